package object

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// memory is a file for the parsers.
type memory struct{ *bytes.Reader }

func (memory) Close() error { return nil }

func inMemory(data []byte) file { return memory{bytes.NewReader(data)} }

func runGit(t testing.TB, dir, input string, args ...string) string {
	t.Helper()
	cmd := exec.Command("git", args...)
	var stderr bytes.Buffer
	cmd.Dir, cmd.Stdin, cmd.Stderr = dir, strings.NewReader(input), &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("git %s: %v\n%s", strings.Join(args, " "), err, stderr.String())
	}
	return string(out)
}

// deltified makes a repository of so many commits, in one pack with chains of
// deltas, and returns the path of its objects.
func deltified(t testing.TB, commits int, options ...string) string {
	t.Helper()
	dir := t.TempDir()
	runGit(t, dir, "", "init", "-q")
	var stream, text strings.Builder
	random := rand.New(rand.NewSource(1))
	for i := range commits {
		for range 20 {
			fmt.Fprintf(&text, "line %d of version %d\n", random.Int63(), i)
		}
		message := strings.Repeat("a long message that commits have in common\n", 10) + fmt.Sprint("commit ", i)
		fmt.Fprintf(&stream, "commit refs/heads/main\ncommitter A <a@example.com> %d +0000\ndata %d\n%s\n", 1700000000+i, len(message), message)
		fmt.Fprintf(&stream, "M 644 inline d/file%d\ndata 4\none\n\nM 644 inline a\ndata %d\n%s\n", i, text.Len(), text.String())
	}
	noise := make([]byte, 1000*commits)
	random.Read(noise)
	fmt.Fprintf(&stream, "tag v1\nfrom refs/heads/main\ntagger A <a@example.com> 1700000000 +0000\ndata 2\nt\n\nblob\ndata %d\n%s\nblob\ndata 0\n\n", len(noise), noise)
	runGit(t, dir, stream.String(), "fast-import", "--quiet")
	runGit(t, dir, "", append(append([]string{}, options...), "repack", "-a", "-d", "-q", "-f", "--depth=50", "--window=20", "-k")...)
	return filepath.Join(dir, ".git", "objects")
}

// everything is what git has, by id.
func everything(t testing.TB, objects string) map[string]string {
	t.Helper()
	all := map[string]string{}
	out := runGit(t, objects, "", "cat-file", "--batch-all-objects", "--batch")
	for out != "" {
		line, rest, _ := strings.Cut(out, "\n")
		var id, kind string
		var size int
		if _, err := fmt.Sscan(line, &id, &kind, &size); err != nil {
			t.Fatal(err)
		}
		all[id], out = kind+" "+rest[:size], rest[size+1:]
	}
	return all
}

// N.13: every object of a pack is read as git reads it, whatever refers to
// its base how, and whether its index is one of many.
func TestPacksAreRead(t *testing.T) {
	t.Parallel()
	for name, make := range map[string]func(t *testing.T) string{
		"bases by offset": func(t *testing.T) string { return deltified(t, 60) },
		"bases by id":     func(t *testing.T) string { return deltified(t, 60, "-c", "repack.useDeltaBaseOffset=false") },
		"many packs": func(t *testing.T) string {
			objects := deltified(t, 60)
			ids := strings.Fields(runGit(t, objects, "", "rev-list", "--objects", "--no-object-names", "--all"))
			for i := 0; i < len(ids); i += 50 {
				runGit(t, objects, strings.Join(ids[i:min(i+50, len(ids))], "\n")+"\n", "pack-objects", "-q", filepath.Join(objects, "pack", "pack"))
			}
			runGit(t, objects, "", "multi-pack-index", "write")
			return objects
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			objects := make(t)
			all := everything(t, objects)
			r := newPackReader(objects)
			defer r.close()
			for range 2 { // from the cache too
				for id, want := range all {
					h, _ := ParseHash(id)
					kind, data, err := r.read(h)
					if got := string(kind) + " " + string(data); err != nil || got != want {
						t.Fatalf("%s is %d bytes, want %d (%v)", id, len(got), len(want), err)
					}
				}
			}
			if _, _, err := r.read(Hash{}); err != ErrMissing {
				t.Errorf("read what is not there: %v", err)
			}
		})
	}
}

// Whatever is damaged, it is not taken for the object and ends nothing.
func TestDamagedPacks(t *testing.T) {
	t.Parallel()
	objects := deltified(t, 60)
	all := everything(t, objects)
	files, err := filepath.Glob(filepath.Join(objects, "pack", "*.pack"))
	if err != nil || len(files) != 1 {
		t.Fatal(files, err)
	}
	index := strings.TrimSuffix(files[0], ".pack") + ".idx"
	pack, err1 := os.ReadFile(files[0])
	idx, err2 := os.ReadFile(index)
	if err1 != nil || err2 != nil {
		t.Fatal(err1, err2)
	}
	random := rand.New(rand.NewSource(1))
	read := func(pack, idx []byte) (good int) {
		r, p := readerOf(pack, idx)
		if p == nil {
			return 0
		}
		for id := range all {
			h, _ := ParseHash(id)
			if offset, ok := p.find(h); ok {
				if kind, data, err := r.at(p, offset); err == nil && ID("sha1", kind, data) == id {
					good++
				}
			}
		}
		return good
	}
	if good := read(pack, idx); good != len(all) {
		t.Fatalf("%d of %d are read where nothing is damaged", good, len(all))
	}
	for range 50 {
		damaged := bytes.Clone(pack)
		for range 1 + random.Intn(3) {
			damaged[random.Intn(len(damaged))] ^= 1 << random.Intn(8)
		}
		read(damaged, idx)
		damaged = bytes.Clone(idx)
		for range 1 + random.Intn(3) {
			damaged[random.Intn(len(damaged))] ^= 1 << random.Intn(8)
		}
		read(pack, damaged)
		read(pack[:random.Intn(len(pack))], idx)
		read(pack, idx[:random.Intn(len(idx))])
	}

	// A file that is cut while it is open.
	r := newPackReader(objects)
	defer r.close()
	ids := strings.Fields(runGit(t, objects, "", "rev-list", "--all"))
	first, _ := ParseHash(ids[0])
	if _, _, err := r.read(first); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{files[0], index} {
		os.Chmod(name, 0o666)
		if err := os.Truncate(name, 0); err != nil {
			t.Fatal(err)
		}
		for id := range all {
			h, _ := ParseHash(id)
			if kind, data, err := r.read(h); err == nil && ID("sha1", kind, data) != id {
				t.Errorf("%s is read from a file that was cut, and wrong", id)
			}
		}
	}
}

// readerOf is a reader of one pack in memory; there is no pack if the index is refused.
func readerOf(pack, idx []byte) (*packReader, *packIndex) {
	p, err := newPackIndex("x.pack", inMemory(idx))
	if err != nil {
		return nil, nil
	}
	r := newPackReader("")
	r.files[p] = inMemory(pack)
	return r, p
}

func packSeeds(f *testing.F, add func(pack, idx []byte)) {
	for _, options := range [][]string{nil, {"-c", "repack.useDeltaBaseOffset=false"}} {
		objects := deltified(f, 3, options...)
		packs, _ := filepath.Glob(filepath.Join(objects, "pack", "*.pack"))
		for _, name := range packs {
			pack, err1 := os.ReadFile(name)
			idx, err2 := os.ReadFile(strings.TrimSuffix(name, ".pack") + ".idx")
			if err1 != nil || err2 != nil {
				f.Fatal(err1, err2)
			}
			add(pack, idx)
		}
	}
}

// FuzzPackIndex: an index says where every object is that it lists, or is refused.
func FuzzPackIndex(f *testing.F) {
	packSeeds(f, func(_, idx []byte) { f.Add(idx) })
	f.Add(encodePackIndex(nil, Hash{}))
	f.Add(encodePackIndex([]packEntry{{Hash{1}, 2, 12}, {Hash{0xff}, 3, 1 << 40}, {Hash{0xff, 1}, 3, 1 << 31}}, Hash{}))
	f.Fuzz(func(t *testing.T, idx []byte) {
		p, err := newPackIndex("x.pack", inMemory(idx))
		if err != nil {
			return
		}
		for i := range min(p.count(), 1000) {
			var id Hash
			copy(id[:], idx[idxIDs+20*i:])
			if offset, ok := p.find(id); ok && offset < 0 {
				t.Errorf("%s is at %d", id, offset)
			}
		}
	})
}

// FuzzPackEntry: the head of an entry is read as it would be written, or refused.
func FuzzPackEntry(f *testing.F) {
	f.Add(packHeader(Blob, 0))
	f.Add(packHeader(Tag, 1<<40))
	f.Add([]byte{0x60, 0x00})
	f.Add([]byte{0xe3, 0x7f, 0x80, 0x80, 0x00})
	f.Add(append([]byte{0x75}, make([]byte, 20)...))
	f.Add(bytes.Repeat([]byte{0xff}, 40))
	f.Fuzz(func(t *testing.T, b []byte) {
		e, err := parseEntry(b)
		if err != nil {
			return
		}
		if e.size < 0 || e.back < 0 || e.length < 1 || e.length > int64(len(b)) {
			t.Errorf("%x is %+v", b, e)
		}
		if kind := entryKinds[e.kind]; kind != "" {
			again, err := parseEntry(packHeader(kind, e.size))
			if again.length = e.length; err != nil || again != e {
				t.Errorf("%x is %+v, written and read again %+v, %v", b, e, again, err)
			}
		}
	})
}

// FuzzDelta: a delta onto a base, in a pack, gives what it says or is refused.
func FuzzDelta(f *testing.F) {
	f.Add([]byte("the base"), []byte{8, 4, 0x90, 4})
	f.Add([]byte("the base"), []byte{8, 8, 0x91, 4, 4, 4, 'n', 'e', 'w', '!'})
	f.Add([]byte("the base"), []byte{8, 8, 0x91, 255, 4, 0})
	f.Add([]byte(""), []byte{0, 1, 1, 'x'})
	f.Add([]byte("x"), []byte{1, 0x80, 0x80, 4, 0x80, 0x80})
	f.Fuzz(func(t *testing.T, base, delta []byte) {
		var pack, out bytes.Buffer
		pack.WriteString("PACK\x00\x00\x00\x02\x00\x00\x00\x02")
		deflate(&out, Blob, base).writePacked(&pack)
		at := pack.Len()
		var entry bytes.Buffer
		deflate(&out, Blob, delta).writePacked(&entry)
		head := packHeader(Blob, int64(len(delta)))
		pack.WriteByte(head[0]&0x8f | ofsDelta<<4)
		pack.Write(head[1:])
		back, bytesBack := at-packHeaderLen, []byte(nil)
		for bytesBack = append(bytesBack, byte(back&0x7f)); back > 0x7f; {
			back = back>>7 - 1
			bytesBack = append([]byte{0x80 | byte(back&0x7f)}, bytesBack...)
		}
		pack.Write(bytesBack)
		pack.Write(entry.Bytes()[len(head):])
		pack.Write(make([]byte, 20))
		r, p := readerOf(pack.Bytes(), encodePackIndex(nil, Hash{}))
		kind, data, err := r.at(p, int64(at))
		if err != nil {
			return
		}
		_, n := binary.Uvarint(delta)
		if size, _ := binary.Uvarint(delta[n:]); kind != Blob || uint64(len(data)) != size {
			t.Errorf("a delta of %d bytes gives a %s of %d", size, kind, len(data))
		}
	})
}

// FuzzPack: whatever a pack holds, reading it ends with an object or an error.
func FuzzPack(f *testing.F) {
	packSeeds(f, func(pack, idx []byte) { f.Add(pack, idx, int64(12)) })
	f.Fuzz(func(t *testing.T, pack, idx []byte, offset int64) {
		r, p := readerOf(pack, idx)
		if p == nil {
			return
		}
		if offset >= 0 {
			r.at(p, offset)
		}
		for i := range min(p.count(), 20) {
			var id Hash
			copy(id[:], idx[idxIDs+20*i:])
			if at, ok := p.find(id); ok {
				r.at(p, at)
			}
		}
	})
}
