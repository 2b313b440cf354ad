package index

import (
	"bytes"
	"testing"
)

// FuzzView looks through files of all sorts: a View says of one what Parse says
// of it, and never panics.
func FuzzView(f *testing.F) {
	x := &Index{Entries: []Entry{fileEntry("a"), fileEntry("a-b"), fileEntry("a/b/c"), fileEntry("a/d")}}
	x.Entries[1].SkipWorktree, x.Entries[3].Mode = true, ModeGitlink
	f.Add(encode(f, x, 20))
	x.Entries[3].Stage = 2
	f.Add(encode(f, x, 20))
	f.Add(encode(f, &Index{}, 20))
	f.Add(rawIndex(4, 2, rawV4(0, 1, "a"), rawV4(0, 2, "b")))
	f.Fuzz(func(t *testing.T, data []byte) {
		if len(data) >= 20 {
			data = bytes.Clone(data)
			clear(data[len(data)-20:]) // or all that is found is the checksum
		}
		parsed, bad := Parse(data, 20)
		v, err := NewView(data, false)
		if err != nil {
			if bad == nil {
				t.Fatalf("Parse takes it, NewView does not: %v", err)
			}
			return
		}
		for i := range v.Len() {
			if v.Find(string(v.Path(i))) < 0 || len(v.Record(i)) != RecordSize || len(v.ID(i)) != 20 {
				t.Fatalf("entry %d is not found", i)
			}
		}
		v.Root()
		v.CacheTree()
		whole, notWhole := v.Index()
		if bad != nil {
			if notWhole == nil && v.Check() == nil {
				t.Fatalf("NewView takes it, Parse does not: %v", bad)
			}
			return
		}
		if notWhole != nil || v.Check() != nil || !bytes.Equal(encode(t, whole, 20), encode(t, parsed, 20)) {
			t.Fatalf("it is another index: %v, %v", notWhole, v.Check())
		}
	})
}

// What Splice makes of an index is what Encode makes of the entries.
func TestSpliceIsEncode(t *testing.T) {
	t.Parallel()
	x := &Index{Entries: []Entry{fileEntry("a"), fileEntry("b"), fileEntry("c/d"), fileEntry("e")}}
	v, err := x.View()
	if err != nil {
		t.Fatal(err)
	}
	edit := func(path string) Edit {
		e := fileEntry(path)
		edit := Edit{Path: path, Record: e.Stat.Record(e.Mode)}
		copy(edit.ID[:], v.ID(0))
		return edit
	}
	gone, absent := Edit{Path: "b", Drop: true}, edit("f")
	absent.SkipWorktree = true
	flagged := edit("c/c")
	flagged.AssumeUnchanged = true
	data, at := v.Splice([]Edit{edit("0"), gone, flagged, absent})
	if data, err = Seal(data, nil, nil); err != nil {
		t.Fatal(err)
	}
	want := &Index{Entries: []Entry{fileEntry("0"), fileEntry("a"), fileEntry("c/c"), fileEntry("c/d"), fileEntry("e"), fileEntry("f")}}
	for i := range want.Entries {
		want.Entries[i].ID = x.Entries[0].ID
	}
	want.Entries[2].AssumeUnchanged, want.Entries[5].SkipWorktree = true, true
	if !bytes.Equal(data, encode(t, want, 20)) {
		t.Errorf("Splice made %q", data)
	}
	for i, path := range []string{"0", "", "c/c", "f"} {
		if path != "" && !bytes.Contains(data[at[i]:at[i]+72], []byte(path)) {
			t.Errorf("edit %d is not at %d", i, at[i])
		}
	}
}
