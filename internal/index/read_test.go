package index

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
)

func TestReadAgreesWithGitAbout(t *testing.T) {
	for _, s := range situations {
		for _, hashLen := range []int{20, 32} {
			t.Run(fmt.Sprintf("%s/ids of %d bytes", s.title, hashLen), func(t *testing.T) {
				t.Parallel()
				r := newRepo(t, hashLen)
				s.make(r)
				if !bytes.Contains(r.indexBytes(), []byte(s.holds)) {
					t.Fatalf("the index does not have %q", s.holds)
				}
				compareWithGit(r)
				for _, version := range []string{"2", "4"} {
					r.git("update-index", "--index-version", version)
					compareWithGit(r)
				}
			})
		}
	}
}

func compareWithGit(r *repo) *Index {
	r.t.Helper()
	x, want := r.read(), r.entries()
	if i := firstDifference(x.Entries, want); i >= 0 {
		r.t.Fatalf("version %d, entry %d of %d\nread: %+.2000v\ngit:  %+.2000v", x.Version, i, len(want),
			entryAt(x.Entries, i), entryAt(want, i))
	}
	if version := int(binary.BigEndian.Uint32(r.indexBytes()[4:])); x.Version != version {
		r.t.Errorf("version %d, want %d", x.Version, version)
	}
	return x
}

func firstDifference(a, b []Entry) int {
	for i := range max(len(a), len(b)) {
		if i >= len(a) || i >= len(b) || a[i] != b[i] {
			return i
		}
	}
	return -1
}

func entryAt(entries []Entry, i int) any {
	if i < len(entries) {
		return entries[i]
	}
	return "nothing"
}

func TestReadTakesAMissingFileForAnEmptyIndex(t *testing.T) {
	x, err := Read(filepath.Join(t.TempDir(), "index"), 20)
	if err != nil || len(x.Entries) != 0 || x.Tree != nil || !x.ModTime.IsZero() {
		t.Fatalf("got %+v, %v", x, err)
	}
}

func TestReadHasTheModificationTimeOfTheFile(t *testing.T) {
	r := newRepo(t, 20)
	makeFiles(r)
	r.git("add", "-A")
	info, err := os.Stat(r.indexPath())
	if err != nil {
		t.Fatal(err)
	}
	if x := r.read(); !x.ModTime.Equal(info.ModTime()) {
		t.Errorf("got %v, want %v", x.ModTime, info.ModTime())
	}
}

func TestReadNamesTheFileInItsErrors(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "index")
	if err := os.WriteFile(path, []byte("not an index, and long enough to be one"), 0o666); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{path, dir} {
		_, err := Read(path, 20)
		if err == nil || !strings.HasPrefix(err.Error(), "read index '"+path+"': ") {
			t.Errorf("got the error %v", err)
		}
	}
	if _, err := Read(path, 21); err == nil {
		t.Error("object ids of 21 bytes are accepted")
	}
}

func TestReadKnowsTheCacheTree(t *testing.T) {
	r := newRepo(t, 20)
	makeFiles(r)
	r.commit("one")
	x := r.read()

	want := map[string]string{"": strings.TrimSpace(r.git("rev-parse", "HEAD^{tree}"))}
	for _, line := range strings.Split(strings.TrimSpace(r.git("ls-tree", "-r", "-d", "-t", "HEAD")), "\n") {
		info, path, _ := strings.Cut(line, "\t")
		want[path+"/"] = strings.Fields(info)[2]
	}
	got := map[string]string{}
	var walk func(prefix string, c *CacheTree)
	walk = func(prefix string, c *CacheTree) {
		got[prefix] = c.ID
		count := 0
		for _, e := range x.Entries {
			if strings.HasPrefix(e.Path, prefix) {
				count++
			}
		}
		if c.EntryCount != count {
			t.Errorf("directory %q has %d entries, want %d", prefix, c.EntryCount, count)
		}
		for _, child := range c.Children {
			walk(prefix+child.Name+"/", child)
		}
	}
	walk("", x.Tree)
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("got the trees\n%v, want\n%v", got, want)
	}
}

func TestReadLeavesSplitAndSparseIndexesToGit(t *testing.T) {
	t.Run("a split index can be read after git has joined it", func(t *testing.T) {
		r := newRepo(t, 20)
		makeFiles(r)
		r.commit("one")
		r.git("update-index", "--split-index")
		r.write("a.txt", "changed after the split")
		r.write("dir/new.txt", "new")
		r.git("add", "-A")
		if _, err := Read(r.indexPath(), 20); !errors.Is(err, ErrUnsupported) {
			t.Fatalf("got the error %v", err)
		}
		r.git("update-index", "--no-split-index")
		compareWithGit(r)
	})
	t.Run("a sparse index can be read after git has filled it", func(t *testing.T) {
		r := newRepo(t, 20)
		makeFiles(r)
		r.commit("one")
		r.git("sparse-checkout", "set", "--cone", "--sparse-index", "other")
		if _, err := Read(r.indexPath(), 20); !errors.Is(err, ErrUnsupported) {
			t.Fatalf("got the error %v", err)
		}
		r.git("sparse-checkout", "reapply", "--no-sparse-index")
		x := compareWithGit(r)
		if e, ok := x.Lookup("dir/b.txt", 0); !ok || !e.SkipWorktree {
			t.Errorf("got the entry %+v", e)
		}
	})
}

func TestParseAcceptsAnIndexWithoutChecksum(t *testing.T) {
	for _, hashLen := range []int{20, 32} {
		r := newRepo(t, hashLen)
		makeFiles(r)
		r.commit("one")
		data := r.indexBytes()
		clear(data[len(data)-hashLen:])
		x, err := Parse(data, hashLen)
		if err != nil {
			t.Fatal(err)
		}
		if firstDifference(x.Entries, r.entries()) >= 0 {
			t.Error("the entries differ")
		}
	}
}

// seal puts the right checksum behind the content of an index.
func seal(body []byte, hashLen int) []byte {
	return append(slices.Clip(body), checksum(body, hashLen)...)
}

func encode(t testing.TB, x *Index, hashLen int) []byte {
	t.Helper()
	data, err := x.Encode(hashLen)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func fileEntry(path string) Entry {
	return Entry{Mode: ModeFile, ID: strings.Repeat("a", 40), Path: path}
}

// rawEntry is an entry as version 2 has it, right or wrong.
func rawEntry(mode uint32, flags uint16, path string) []byte {
	data := make([]byte, statSize)
	binary.BigEndian.PutUint32(data[24:], mode)
	data = append(data, bytes.Repeat([]byte{0xaa}, 20)...)
	data = binary.BigEndian.AppendUint16(data, flags|uint16(min(len(path), flagNameMask)))
	data = append(data, path...)
	return append(data, make([]byte, padding(len(data)))...)
}

// rawV4 is an entry as version 4 has it, right or wrong.
func rawV4(cut byte, nameLen int, suffix string) []byte {
	data := rawEntry(ModeFile, 0, "")[:statSize+20]
	data = binary.BigEndian.AppendUint16(data, uint16(min(nameLen, flagNameMask)))
	data = append(data, cut)
	data = append(data, suffix...)
	return append(data, 0)
}

func rawIndex(version, count uint32, parts ...[]byte) []byte {
	data := []byte(signature)
	data = binary.BigEndian.AppendUint32(data, version)
	data = binary.BigEndian.AppendUint32(data, count)
	return seal(append(data, bytes.Join(parts, nil)...), 20)
}

func rawExtension(name, content string) []byte {
	return append(binary.BigEndian.AppendUint32([]byte(name), uint32(len(content))), content...)
}

func TestParseRefuses(t *testing.T) {
	const stage1, stage2 = 1 << 12, 2 << 12
	file := func(path string) []byte { return rawEntry(ModeFile, 0, path) }
	id := strings.Repeat("\xaa", 20)
	tests := []struct {
		title string
		data  []byte
		want  error
		says  string
	}{
		{"no bytes at all", nil, ErrCorrupt, `are too few`},
		{"a header without checksum", []byte("DIRC\x00\x00\x00\x02\x00\x00\x00\x00"), ErrCorrupt, `are too few`},
		{"another signature", seal([]byte("DIRX\x00\x00\x00\x02\x00\x00\x00\x00"), 20), ErrCorrupt, `signature "DIRX"`},
		{"version 1", rawIndex(1, 0), ErrUnsupported, `version 1`},
		{"version 5", rawIndex(5, 0), ErrUnsupported, `version 5`},
		{"a wrong checksum", append(rawIndex(2, 1, file("a"))[:96-8], "12345678"...), ErrCorrupt, `the checksum`},
		{"fewer entries than it says", rawIndex(2, 2, file("a")), ErrCorrupt, `2 entries do not fit`},
		{"a count for which no file is large enough", rawIndex(2, 1<<32-1, file("a")), ErrCorrupt, `4294967295 entries do not fit`},
		{"more entries than it says", rawIndex(2, 1, file("a"), file("b")), ErrCorrupt, `extension "\x00\x00\x00\x00"`},
		{"entries that are not sorted", rawIndex(2, 2, file("b"), file("a")), ErrCorrupt, `not in order after "b"`},
		{"entries that are sorted as trees are", rawIndex(2, 2, file("a/b"), file("a-b")), ErrCorrupt, `not in order after "a/b"`},
		{"an entry that is there twice", rawIndex(2, 2, file("a"), file("a")), ErrCorrupt, `more than once`},
		{"a stage that is there twice", rawIndex(2, 2, rawEntry(ModeFile, stage1, "a"), rawEntry(ModeFile, stage1, "a")), ErrCorrupt, `after stage 1`},
		{"stages that are not sorted", rawIndex(2, 2, rawEntry(ModeFile, stage2, "a"), rawEntry(ModeFile, stage1, "a")), ErrCorrupt, `after stage 2`},
		{"a stage of a path that is merged", rawIndex(2, 2, file("a"), rawEntry(ModeFile, stage1, "a")), ErrCorrupt, `more than once`},
		{"the extended flag in version 2", rawIndex(2, 1, rawEntry(ModeFile, flagExtended, "\x20\x00a")), ErrCorrupt, `of version 2 has extended flags`},
		{"an extended flag that is not known", rawIndex(3, 1, rawEntry(ModeFile, flagExtended, "\x80\x00a")), ErrCorrupt, `extended flags 8000`},
		{"a name shorter than its length", rawIndex(2, 1, file("ab\x00c")), ErrCorrupt, `name length 4`},
		{"a name without end", rawIndex(2, 1, file("abcdefgh")[:statSize+22+8]), ErrCorrupt, `entry 0 is cut off`},
		{"padding that is cut off", rawIndex(2, 1, file("abc")[:statSize+22+4]), ErrCorrupt, `entry "abc" is cut off`},
		{"a prefix longer than the previous path", rawIndex(4, 2, rawV4(0, 1, "a"), rawV4(2, 1, "b")), ErrCorrupt, `entry 1 has a bad prefix`},
		{"a prefix length without end", rawIndex(4, 1, rawV4(0x80, 1, "\xff\xff\xff\xff\xff\xffa")), ErrCorrupt, `entry 0 has a bad prefix`},
		{"a name length that does not fit the prefix", rawIndex(4, 2, rawV4(0, 2, "aa"), rawV4(1, 1, "b")), ErrCorrupt, `name length 1`},

		{"an empty path", rawIndex(2, 1, file("")), ErrCorrupt, `an empty component`},
		{"a path that starts with a slash", rawIndex(2, 1, file("/a")), ErrCorrupt, `an empty component`},
		{"a path that ends in a slash", rawIndex(2, 1, file("a/")), ErrCorrupt, `an empty component`},
		{"a path with an empty component", rawIndex(2, 1, file("a//b")), ErrCorrupt, `an empty component`},
		{"a path that is the directory itself", rawIndex(2, 1, file(".")), ErrCorrupt, `component "."`},
		{"a path with a component of one dot", rawIndex(2, 1, file("a/./b")), ErrCorrupt, `component "."`},
		{"a path that leaves the working tree", rawIndex(2, 1, file("../a")), ErrCorrupt, `component ".."`},
		{"a path that ends in two dots", rawIndex(2, 1, file("a/..")), ErrCorrupt, `component ".."`},
		{"a path in the repository", rawIndex(2, 1, file(".git/config")), ErrCorrupt, `component ".git"`},
		{"a path in the repository where case does not matter", rawIndex(2, 1, file("a/.GiT")), ErrCorrupt, `component ".GiT"`},

		{"mode 0", rawIndex(2, 1, rawEntry(0, 0, "a")), ErrCorrupt, `mode 000000`},
		{"a file that the group may write", rawIndex(2, 1, rawEntry(0o100664, 0, "a")), ErrCorrupt, `mode 100664`},
		{"a directory", rawIndex(2, 1, rawEntry(ModeDir, 0, "a")), ErrCorrupt, `mode 040000`},
		{"a device", rawIndex(2, 1, rawEntry(0o020000, 0, "a")), ErrCorrupt, `mode 020000`},
		{"a mode of more than 16 bits", rawIndex(2, 1, rawEntry(0o100644|1<<16, 0, "a")), ErrCorrupt, `mode 300644`},
		{"the null id", rawIndex(2, 1, bytes.ReplaceAll(file("a"), []byte{0xaa}, []byte{0})), ErrCorrupt, `object id "0000`},

		{"the start of an extension", rawIndex(2, 0, []byte("TREE\x00")), ErrCorrupt, `5 bytes follow`},
		{"an extension that is cut off", rawIndex(2, 0, []byte("ABCD\xff\xff\xff\xff")), ErrCorrupt, `is cut off`},
		{"an extension whose name is no name", rawIndex(2, 0, rawExtension("\x00\x00\x00\x00", "")), ErrCorrupt, `extension "\x00\x00\x00\x00"`},
		{"an extension that must be understood", rawIndex(2, 0, rawExtension("abcd", "")), ErrUnsupported, `extension "abcd"`},
		{"an empty cache tree", rawIndex(2, 0, rawExtension("TREE", "")), ErrCorrupt, `a directory is cut off`},
		{"two cache trees", rawIndex(2, 0, rawExtension("TREE", "\x00-1 0\n"), rawExtension("TREE", "\x00-1 0\n")), ErrCorrupt, `more than once`},
		{"a cache tree whose root has a name", rawIndex(2, 0, rawExtension("TREE", "a\x00-1 0\n")), ErrCorrupt, `the root has the name "a"`},
		{"a cache tree without counts", rawIndex(2, 0, rawExtension("TREE", "\x00 \n")), ErrCorrupt, `the counts " "`},
		{"a cache tree with one count", rawIndex(2, 0, rawExtension("TREE", "\x00-1\n")), ErrCorrupt, `the counts "-1"`},
		{"a cache tree without the end of a line", rawIndex(2, 0, rawExtension("TREE", "\x00-1 0")), ErrCorrupt, `directory "" is cut off`},
		{"a cache tree without id", rawIndex(2, 0, rawExtension("TREE", "\x000 0\n")), ErrCorrupt, `directory "" is cut off`},
		{"a cache tree without the children it says", rawIndex(2, 0, rawExtension("TREE", "\x00-1 4000000000\n")), ErrCorrupt, `a directory is cut off`},
		{"a cache tree with a child twice", rawIndex(2, 0, rawExtension("TREE", "\x00-1 2\na\x00-1 0\na\x00-1 0\n")), ErrCorrupt, `subdirectory "a" after "a"`},
		{"a cache tree with a child without name", rawIndex(2, 0, rawExtension("TREE", "\x00-1 1\n\x00-1 0\n")), ErrCorrupt, `subdirectory ""`},
		{"a cache tree with a child that is a path", rawIndex(2, 0, rawExtension("TREE", "\x00-1 1\na/b\x00-1 0\n")), ErrCorrupt, `subdirectory "a/b"`},
		{"a cache tree with more than the root", rawIndex(2, 0, rawExtension("TREE", "\x000 0\n"+id+"x")), ErrCorrupt, `1 bytes follow`},
		{"a cache tree without bottom", rawIndex(2, 0, rawExtension("TREE", "\x00-1 1\n"+strings.Repeat("a\x00-1 1\n", 1<<20))), ErrCorrupt, `nest more than`},
	}
	for _, test := range tests {
		t.Run(test.title, func(t *testing.T) {
			x, err := Parse(test.data, 20)
			if !errors.Is(err, test.want) || x != nil {
				t.Fatalf("got %v and the error %v, want %v", x, err, test.want)
			}
			if !strings.Contains(err.Error(), test.says) {
				t.Errorf("the error %q does not say %q", err, test.says)
			}
		})
	}
}

func TestParseAcceptsHandmadeFilesThatAreRight(t *testing.T) {
	// The makers of wrong files above would prove nothing if all they make
	// were wrong.
	tests := []struct {
		title string
		data  []byte
		paths string
	}{
		{"version 2", rawIndex(2, 2, rawEntry(ModeFile, 0, "a"), rawEntry(ModeGitlink, 0, "b/c")), "a b/c"},
		{"version 3", rawIndex(3, 1, rawEntry(ModeFile, 0, "a")), "a"},
		{"version 4", rawIndex(4, 3, rawV4(0, 3, "abc"), rawV4(2, 3, "cd"), rawV4(3, 1, "b")), "abc acd b"},
		{"an unknown extension that may be skipped", rawIndex(2, 1, rawEntry(ModeFile, 0, "a"), rawExtension("ABCD", "data")), "a"},
		{"a cache tree whose children are in another order",
			rawIndex(2, 0, rawExtension("TREE", "\x00-1 2\nbb\x00-1 0\na\x00-1 0\n")), ""},
	}
	for _, test := range tests {
		t.Run(test.title, func(t *testing.T) {
			x, err := Parse(test.data, 20)
			if err != nil {
				t.Fatal(err)
			}
			var paths []string
			for _, e := range x.Entries {
				paths = append(paths, e.Path)
			}
			if got := strings.Join(paths, " "); got != test.paths {
				t.Errorf("got the paths %q, want %q", got, test.paths)
			}
			encode(t, x, 20)
		})
	}
}

func TestParseRefusesEveryCutAndEveryFlippedBit(t *testing.T) {
	r := newRepo(t, 20)
	makeFiles(r)
	r.commit("one")
	r.git("update-index", "--skip-worktree", "a.txt")
	for _, version := range []string{"3", "4"} {
		r.git("update-index", "--index-version", version)
		data := r.indexBytes()
		for n := range data {
			if _, err := Parse(data[:n], 20); !errors.Is(err, ErrCorrupt) {
				t.Fatalf("version %s cut to %d bytes: %v", version, n, err)
			}
		}
		extensions := bytes.LastIndex(data, []byte("TREE"))
		for n := headerSize; n < len(data)-20; n++ {
			_, err := Parse(seal(data[:n:n], 20), 20)
			if n == extensions && err != nil || n != extensions && !errors.Is(err, ErrCorrupt) {
				t.Fatalf("version %s cut to %d bytes and sealed: %v", version, n, err)
			}
		}
		for bit := range 8 * len(data) {
			data[bit/8] ^= 1 << (bit % 8)
			if _, err := Parse(data, 20); !errors.Is(err, ErrCorrupt) && !errors.Is(err, ErrUnsupported) {
				t.Fatalf("version %s with bit %d flipped: %v", version, bit, err)
			}
			data[bit/8] ^= 1 << (bit % 8)
		}
	}
}

func TestParseDoesNotAllocateWhatAForgedFilePromises(t *testing.T) {
	long := strings.Repeat("a", 1<<20)
	parts := [][]byte{rawV4(0, len(long), long)}
	for range 10000 {
		parts = append(parts, rawV4(0, len(long), "b"))
	}
	tests := []struct {
		title string
		data  []byte
		want  error
		limit uint64
	}{
		{"four thousand million entries", rawIndex(2, 1<<32-1, rawEntry(ModeFile, 0, "a")), ErrCorrupt, 1 << 20},
		{"ten thousand million bytes of paths", rawIndex(4, uint32(len(parts)), parts...), ErrUnsupported, 1 << 28},
	}
	for _, test := range tests {
		t.Run(test.title, func(t *testing.T) {
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			_, err := Parse(test.data, 20)
			runtime.ReadMemStats(&after)
			if !errors.Is(err, test.want) {
				t.Errorf("got the error %v, want %v", err, test.want)
			}
			if n := after.TotalAlloc - before.TotalAlloc; n > test.limit {
				t.Errorf("%d bytes were allocated for a file of %d", n, len(test.data))
			}
		})
	}
}

func TestLookupFindsEveryEntryAndNoOther(t *testing.T) {
	r := newRepo(t, 20)
	makeConflict(r)
	x := r.read()
	for i := range x.Entries {
		e := &x.Entries[i]
		if got, ok := x.Lookup(e.Path, e.Stage); !ok || got != e {
			t.Errorf("stage %d of %q: got %v", e.Stage, e.Path, got)
		}
	}
	for _, e := range []Entry{{Path: "both.txt"}, {Path: "both.tx", Stage: 1}, {Path: ""}, {Path: "zzz"}, {Path: "same"}} {
		if got, ok := x.Lookup(e.Path, e.Stage); ok || got != nil {
			t.Errorf("stage %d of %q: got %v", e.Stage, e.Path, got)
		}
	}
}

func FuzzParse(f *testing.F) {
	x := &Index{Entries: []Entry{fileEntry("a"), fileEntry("b/c"), fileEntry("b/d")}}
	f.Add(encode(f, x, 20))
	x.Tree = &CacheTree{EntryCount: -1, Children: []*CacheTree{{Name: "b", EntryCount: 2, ID: strings.Repeat("b", 40)}}}
	x.Entries[0].SkipWorktree = true
	x.Entries[1].Stage = 2
	f.Add(encode(f, x, 20))
	f.Add(rawIndex(4, 3, rawV4(0, 3, "abc"), rawV4(2, 3, "cd"), rawV4(3, 1, "b")))
	f.Add(rawIndex(2, 0, rawExtension("TREE", "\x00-1 1\na\x00-1 0\n"), rawExtension("link", "")))
	f.Fuzz(func(t *testing.T, data []byte) {
		if len(data) >= 20 {
			data = slices.Clone(data)
			clear(data[len(data)-20:]) // or all that is found is the checksum
		}
		x, err := Parse(data, 20)
		if err != nil {
			if !errors.Is(err, ErrCorrupt) && !errors.Is(err, ErrUnsupported) {
				t.Fatalf("got the error %v", err)
			}
			return
		}
		first := encode(t, x, 20)
		y, err := Parse(first, 20)
		if err != nil {
			t.Fatal(err)
		}
		if firstDifference(x.Entries, y.Entries) >= 0 {
			t.Fatal("the entries differ")
		}
		if !bytes.Equal(first, encode(t, y, 20)) {
			t.Fatal("the encoding differs")
		}
	})
}
