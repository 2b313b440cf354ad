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
	all := func(data []byte, rules [32]byte) map[string]dirState {
		t := decodeDirs(data, rules)
		list := map[string]dirState{}
		for i := range t.at {
			d := t.get(i)
			list[d.path] = d
			if t.find(d.path) != i || t.find(d.path+"\x00") >= 0 && t.find(d.path+"\x00") != i+1 {
				f.Fatalf("%q is not found", d.path)
			}
		}
		return list
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		var rules [32]byte
		copy(rules[:], data)
		read := all(data, rules)
		written := encodeDirs(rules, slices.Collect(maps.Values(read)))
		if again := all(written, rules); !maps.Equal(read, again) {
			t.Fatalf("read %v, then %v", read, again)
		}
		rules[31]++
		if got := all(data, rules); len(got) > 0 {
			t.Fatalf("read with other rules: %v", got)
		}
		rules[31]--
		for n := range len(written) {
			for path, d := range all(written[:n], rules) {
				if d != read[path] {
					t.Fatalf("read from the first %d bytes: %v", n, d)
				}
			}
		}
	})
}
