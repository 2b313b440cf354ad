package snapshot

import (
	"maps"
	"slices"
	"testing"
)

// FuzzDirs reads what is known of directories from bytes of all sorts: what is
// read is written again so that it is read the same, with no other rules, and
// cut off it is nothing that was not there.
func FuzzDirs(f *testing.F) {
	rules := [32]byte{1, 2, 3}
	some := []dirState{{path: "b/", subs: 300}, {path: "", times: dirTimes{1, 2, 3, 4, 5, 1 << 63}, subs: 2}, {path: "a\xff\n/b/", times: dirTimes{0: 1 << 40}}}
	f.Add(encodeDirs(rules, some))
	f.Add(encodeDirs(rules, some[:1]))
	f.Add(rules[:])
	f.Add(append(rules[:], 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1)) // a length that is none
	f.Add([]byte("too short"))
	f.Fuzz(func(t *testing.T, data []byte) {
		var rules [32]byte
		copy(rules[:], data)
		read := decodeDirs(data, rules)
		for path, d := range read {
			if d.path != path {
				t.Fatalf("%q is at %q", d.path, path)
			}
		}
		written := encodeDirs(rules, slices.Collect(maps.Values(read)))
		again := decodeDirs(written, rules)
		if len(read) != len(again) || len(read) > 0 && !maps.Equal(read, again) {
			t.Fatalf("read %v, then %v", read, again)
		}
		rules[31]++
		if got := decodeDirs(data, rules); got != nil {
			t.Fatalf("read with other rules: %v", got)
		}
		rules[31]--
		for n := range len(written) {
			for path, d := range decodeDirs(written[:n], rules) {
				if d != read[path] {
					t.Fatalf("read from the first %d bytes: %v", n, d)
				}
			}
		}
	})
}
