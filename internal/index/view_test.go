package index

import (
	"bytes"
	"crypto/sha1"
	"errors"
	"maps"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
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
	if data, err = Seal(data, nil); err != nil {
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
	unmarked, _ := v.Splice([]Edit{edit("0"), gone, flagged, absent})
	want.Entries[2].AssumeUnchanged = false
	if err := Unmark(unmarked); err != nil {
		t.Fatal(err)
	}
	if unmarked, err = Seal(unmarked, nil); err != nil || !bytes.Equal(unmarked, encode(t, want, 20)) {
		t.Errorf("Unmark left %q, %v", unmarked, err)
	}
	for i, path := range []string{"0", "", "c/c", "f"} {
		if path != "" && !bytes.Contains(data[at[i]:at[i]+72], []byte(path)) {
			t.Errorf("edit %d is not at %d", i, at[i])
		}
	}
}

// The trees of an index with edits are those of the index that Splice makes of
// them, whatever part of the cache tree is known.
func TestWriteTreesWithEdits(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(8, 8))
	names := []string{"a", "a-", "a0", "b", "c"}
	path := func() string {
		parts := make([]string, 1+r.IntN(3))
		for i := range parts {
			parts[i] = names[r.IntN(len(names))]
		}
		return strings.Join(parts, "/")
	}
	for round := range 300 {
		have := map[string]bool{}
		add := func(p string) { // in the place of whatever is in its way
			for other := range have {
				if strings.HasPrefix(other, p+"/") || strings.HasPrefix(p, other+"/") {
					delete(have, other)
				}
			}
			have[p] = true
		}
		for range 1 + r.IntN(20) {
			add(path())
		}
		x := &Index{}
		for _, p := range slices.Sorted(maps.Keys(have)) {
			x.Entries = append(x.Entries, fileEntry(p))
		}
		v, err := x.View()
		if err != nil {
			t.Fatal(err)
		}
		trees := map[string][]byte{}
		put := func(content []byte) (id [20]byte, err error) {
			id = sha1.Sum(content)
			trees[string(id[:])] = bytes.Clone(content)
			return id, nil
		}
		known := &CacheTree{EntryCount: -1}
		if err := v.WriteTrees(known, nil, put); err != nil {
			t.Fatal(err)
		}
		before := maps.Clone(have)
		for range 1 + r.IntN(6) {
			if p := path(); r.IntN(3) > 0 {
				add(p)
			} else {
				delete(have, p)
			}
		}
		changed := maps.Clone(before)
		maps.Copy(changed, have)
		var edits []Edit
		for _, p := range slices.Sorted(maps.Keys(changed)) {
			switch {
			case !have[p]:
				edits = append(edits, Edit{Path: p, Drop: true})
			case !before[p] || r.IntN(4) == 0:
				e := fileEntry(p)
				edit := Edit{Path: p, Record: e.Stat.Record(ModeExecutable)}
				edit.ID[0] = byte(round) | 1
				edits = append(edits, edit)
			default:
				continue
			}
			known.Invalidate(p)
		}
		data, _ := v.Splice(edits)
		spliced, err := NewView(data, true)
		if err != nil {
			t.Fatal(err)
		}
		whole := &CacheTree{EntryCount: -1}
		if err := errors.Join(spliced.WriteTrees(whole, nil, put), v.WriteTrees(known, edits, put)); err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(known, whole) {
			t.Fatalf("%v with %+v: not the same trees", slices.Sorted(maps.Keys(before)), edits)
		}
	}
}

// What Keep made NewKept reads as NewView does, and no other bytes for it: with
// any one of them changed it is refused, or looked through like an index of git's.
func TestKeptIsRead(t *testing.T) {
	t.Parallel()
	x := &Index{Entries: []Entry{fileEntry("a"), fileEntry("b"), fileEntry("c/d"), fileEntry("e")}}
	x.Entries[1].Mode, x.Entries[2].AssumeUnchanged, x.Entries[3].SkipWorktree = ModeGitlink, true, true
	for _, entries := range [][]Entry{x.Entries, x.Entries[:1], nil} {
		spliced, _ := must(t)((&Index{Entries: entries}).View()).Splice(nil)
		tree := &CacheTree{EntryCount: len(entries), ID: strings.Repeat("1", 40)}
		data, err := must(t)(NewView(spliced, true)).Keep(tree, []byte("dirs"))
		if err != nil {
			t.Fatal(err)
		}
		kept, looked := must(t)(NewKept(data)), must(t)(NewView(data, false))
		if kept.Check() != nil || looked.Check() != nil {
			t.Fatal("the checksum is wrong")
		}
		looked.trusted, looked.table, kept.table = true, bytes.Clone(looked.table), bytes.Clone(kept.table)
		if !reflect.DeepEqual(kept, looked) || string(kept.Dirs()) != "dirs" || kept.CacheTree().ID != tree.ID {
			t.Errorf("%+v, not %+v", kept, looked)
		}
		for i := range len(data) - 20 {
			for _, bit := range []byte{1, 0x80} {
				damaged := bytes.Clone(data)
				damaged[i] ^= bit
				v, err := NewKept(damaged)
				if err == nil && v.Check() == nil {
					t.Errorf("with another byte %d it is read", i)
				}
			}
		}
		for n := range data {
			if v, err := NewKept(data[:n]); err == nil && v.Check() == nil {
				t.Errorf("cut off after %d bytes it is read", n)
			}
		}
	}
}

func must(t *testing.T) func(*View, error) *View {
	return func(v *View, err error) *View {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}
