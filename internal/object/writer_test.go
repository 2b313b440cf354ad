package object_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/git-checkpoint/git-checkpoint/internal/fault"
	"github.com/git-checkpoint/git-checkpoint/internal/object"
)

// target is a repository that a Writer writes to.
type target struct {
	*testing.T
	dir, objects string
}

func newTarget(t *testing.T) (target, *object.Writer) {
	t.Helper()
	dir := newRepository(t)
	to := target{t, dir, filepath.Join(dir, ".git", "objects")}
	return to, to.writer()
}

func (to target) writer(also ...string) *object.Writer {
	to.Helper()
	return object.NewWriter(open(to.T, to.dir), to.objects, also...)
}

func (to target) put(w *object.Writer, data string) string {
	to.Helper()
	id, err := w.Put(object.Blob, []byte(data))
	if err != nil {
		to.Fatal(err)
	}
	return id.String()
}

func (to target) file(w *object.Writer, data []byte) object.Hash {
	to.Helper()
	name, fi := to.make(data)
	id, err := w.File(name, fi)
	if err != nil {
		to.Fatal(err)
	}
	return id
}

// make makes a file beside the repository.
func (to target) make(data []byte) (string, fs.FileInfo) {
	to.Helper()
	name := filepath.Join(to.TempDir(), "file")
	if err := os.WriteFile(name, data, 0o666); err != nil {
		to.Fatal(err)
	}
	fi, err := os.Lstat(name)
	if err != nil {
		to.Fatal(err)
	}
	return name, fi
}

func (to target) close(w *object.Writer) {
	to.Helper()
	if err := w.Close(to.Context()); err != nil {
		to.Fatal(err)
	}
}

// glob lists files of the objects directory.
func (to target) glob(pattern string) []string {
	to.Helper()
	names, err := filepath.Glob(filepath.Join(to.objects, pattern))
	if err != nil {
		to.Fatal(err)
	}
	return names
}

// pack returns the one pack that is there, after git has found it good and
// its index the same as it would make.
func (to target) pack() string {
	to.Helper()
	packs := to.glob("pack/*.pack")
	if len(packs) != 1 {
		to.Fatalf("there are %d packs: %v", len(packs), packs)
	}
	gitIn(to, to.dir, "", "verify-pack", packs[0])
	made := filepath.Join(to.TempDir(), "made.idx")
	sum := gitIn(to, to.dir, "", "index-pack", "--strict", "-o", made, packs[0])
	if want := "pack-" + sum + ".pack"; filepath.Base(packs[0]) != want {
		to.Errorf("the pack is %s, git names it %s", filepath.Base(packs[0]), want)
	}
	idx := strings.TrimSuffix(packs[0], ".pack") + ".idx"
	ours, err1 := os.ReadFile(idx)
	gits, err2 := os.ReadFile(made)
	if err := errors.Join(err1, err2); err != nil {
		to.Fatal(err)
	}
	if !bytes.Equal(ours, gits) {
		to.Errorf("the index of %d bytes is not the one of %d bytes that git makes", len(ours), len(gits))
	}
	for _, name := range []string{packs[0], idx} {
		if info, err := os.Stat(name); err != nil || runtime.GOOS != "windows" && info.Mode().Perm() != 0o444 {
			to.Errorf("'%s' has the mode %v, git makes it 444 (%v)", name, info.Mode(), err)
		}
	}
	return packs[0]
}

// tidy fails if something temporary is left, or git finds a fault.
func (to target) tidy() {
	to.Helper()
	if left := append(to.glob("pack/tmp_*"), to.glob("??/tmp_*")...); left != nil {
		to.Errorf("left behind: %v", left)
	}
	if out := gitIn(to, to.dir, "", "fsck", "--strict", "--no-dangling", "--no-progress"); out != "" {
		to.Errorf("git fsck: %s", out)
	}
}

// contents are of all the sizes at which something changes: of headers, of
// buffers, of how it is stored.
func contents() [][]byte {
	random := rand.New(rand.NewSource(1))
	var all [][]byte
	for _, size := range []int{0, 1, 2, 15, 16, 2047, 2048, 65535, 65536, 70000, 1<<20 - 1, 1 << 20, 3<<20 + 1} {
		text := bytes.Repeat(fmt.Appendf(nil, "a line of %d\n", size), size/10+1)[:size]
		noise := make([]byte, size)
		random.Read(noise)
		all = append(all, text, noise)
	}
	return all
}

// N.13: few objects become loose, as git makes them.
func TestWriterLoose(t *testing.T) {
	t.Parallel()
	to, w := newTarget(t)
	kinds := []object.Kind{object.Blob, object.Commit, object.Tree, object.Tag}
	samples := subject{T: t, repo: open(t, to.dir)}.samples()
	for _, kind := range kinds {
		id, err := w.Put(kind, []byte(samples[kind]))
		if err != nil || id.String() != gitIn(t, to.dir, samples[kind], "hash-object", "--literally", "--stdin", "-t", string(kind)) {
			t.Errorf("put a %s: %s, %v", kind, id, err)
		}
		if !w.Has(id) {
			t.Errorf("the %s is not there", kind)
		}
		if to.glob(id.String()[:2]+"/"+id.String()[2:]) != nil {
			t.Errorf("the %s is there before Close", kind)
		}
	}
	small := contents()[:20]
	for _, data := range small {
		to.file(w, data)
	}
	to.close(w)
	for _, kind := range kinds {
		subject{T: t, dir: to.dir, objects: to.objects, repo: open(t, to.dir)}.file(
			object.ID("sha1", kind, []byte(samples[kind])), kind, samples[kind])
	}
	to.holds(small)
	if packs := to.glob("pack/*"); packs != nil {
		t.Errorf("there are packs: %v", packs)
	}
	to.tidy()
}

// holds fails unless git reads each blob.
func (to target) holds(contents [][]byte) {
	to.Helper()
	var names, want strings.Builder
	for _, data := range contents {
		id := object.ID("sha1", object.Blob, data)
		fmt.Fprintln(&names, id)
		fmt.Fprintf(&want, "%s blob %d\n%s\n", id, len(data), data)
	}
	if got := gitIn(to, to.dir, names.String(), "cat-file", "--batch"); got+"\n" != want.String() {
		to.Errorf("git reads %d bytes, want %d", len(got)+1, want.Len())
	}
}

// N.13: many objects become one pack, whoever puts them and however often.
func TestWriterPack(t *testing.T) {
	t.Parallel()
	to, w := newTarget(t)
	all := contents()
	for i := range 300 {
		all = append(all, fmt.Appendf(nil, "content %d", i))
	}
	different := len(all) - 1 // the empty one is there twice
	var group sync.WaitGroup
	for g := range 4 {
		group.Go(func() {
			for i := range all {
				data := all[(i+g*7)%len(all)]
				id, err := w.Put(object.Blob, data)
				if err != nil || id.String() != object.ID("sha1", object.Blob, data) || !w.Has(id) {
					t.Errorf("put %d bytes: %s, %v", len(data), id, err)
				}
			}
		})
	}
	group.Wait()
	to.close(w)
	to.holds(all)
	if lines := strings.Count(gitIn(t, to.dir, "", "verify-pack", "-v", to.pack()), " blob "); lines != different {
		t.Errorf("the pack holds %d blobs, want %d", lines, different)
	}
	to.tidy()
}

// PutLater stores the same as Put, of data that may be changed afterwards: few
// objects and many, new ones and such as exist.
func TestWriterPutLater(t *testing.T) {
	t.Parallel()
	for _, count := range []int{20, 300} {
		to, w := newTarget(t)
		before := len(to.glob("??/*"))
		exists := gitIn(t, to.dir, "content 0", "hash-object", "-w", "--stdin")
		existsFile := filepath.Join(to.objects, exists[:2], exists[2:])
		subject{T: t}.age(existsFile)
		var all [][]byte
		var data []byte
		for i := range count {
			data = fmt.Appendf(data[:0], "content %d", i)
			for range 2 {
				id, err := w.PutLater(object.Blob, data)
				if err != nil || id.String() != object.ID("sha1", object.Blob, data) || !w.Has(id) {
					t.Errorf("put %q: %s, %v", data, id, err)
				}
			}
			all = append(all, bytes.Clone(data))
			clear(data)
		}
		to.close(w)
		to.holds(all)
		if info, err := os.Stat(existsFile); err != nil || time.Since(info.ModTime()) > time.Hour {
			t.Errorf("what existed is not fresh: %v", err)
		}
		if count < 64 {
			if loose := to.glob("??/*"); len(loose) != before+count {
				t.Errorf("there are %d loose objects, want %d", len(loose), before+count)
			}
		} else if lines := strings.Count(gitIn(t, to.dir, "", "verify-pack", "-v", to.pack()), " blob "); lines != count-1 {
			t.Errorf("the pack holds %d blobs, want %d", lines, count-1)
		}
		to.tidy()
	}
}

// What goes wrong after PutLater is an error of Close, and an abort waits for
// what is under way.
func TestWriterPutLaterFails(t *testing.T) {
	t.Parallel()
	to, w := newTarget(t)
	os.RemoveAll(filepath.Join(to.objects, "pack"))
	if err := os.WriteFile(filepath.Join(to.objects, "pack"), nil, 0o666); err != nil {
		t.Fatal(err)
	}
	for i := range 65 { // the last one begins a pack
		w.PutLater(object.Blob, fmt.Append(nil, i))
	}
	if err := w.Close(t.Context()); !errors.Is(err, fault.Fatal) {
		t.Errorf("closed with %v", err)
	}
	to.tidy()

	to, w = newTarget(t)
	before := to.glob("*/*")
	for i := range 100 {
		if _, err := w.PutLater(object.Blob, fmt.Append(nil, i)); err != nil {
			t.Fatal(err)
		}
	}
	w.Abort()
	if after := to.glob("*/*"); fmt.Sprint(after) != fmt.Sprint(before) {
		t.Errorf("there is %v, was %v", after, before)
	}
	if _, err := w.PutLater(object.Blob, []byte("late")); err == nil {
		t.Error("put after Abort")
	}
}

// N.13: large files go into the pack in one pass, and are taken back if they exist.
func TestWriterLargeFiles(t *testing.T) {
	t.Parallel()
	to, w := newTarget(t)
	const size = 17<<20 + 123
	noise, text := make([]byte, size), bytes.Repeat([]byte("0123456789abcde\n"), (17<<20)/16)
	rand.New(rand.NewSource(2)).Read(noise)
	gitIn(t, to.dir, string(text), "hash-object", "-w", "--stdin")
	before := to.put(w, "before")
	for range 2 {
		if id := to.file(w, noise); id.String() != object.ID("sha1", object.Blob, noise) {
			t.Errorf("the large file is %s", id)
		}
		if id := to.file(w, text); id.String() != object.ID("sha1", object.Blob, text) {
			t.Errorf("the large file that exists is %s", id)
		}
	}
	name, fi := to.make(text)
	for _, now := range []int64{size + 5, 16<<20 + 1} {
		if err := os.Truncate(name, now); err != nil {
			t.Fatal(err)
		}
		if _, err := w.File(name, fi); !errors.Is(err, object.ErrChanged) {
			t.Errorf("a large file that has %d bytes by now: %v", now, err)
		}
	}
	after := to.put(w, "after")
	to.close(w)
	got := gitIn(t, to.dir, "", "verify-pack", "-v", to.pack())
	for _, id := range []string{before, after, object.ID("sha1", object.Blob, noise)} {
		if !strings.Contains(got, id+" blob") {
			t.Errorf("%s is not in the pack", id)
		}
	}
	if n := strings.Count(got, " blob "); n != 3 {
		t.Errorf("the pack holds %d blobs, want 3", n)
	}
	to.holds([][]byte{noise, text})
	to.tidy()
}

// N.13: what exists is not written again but freshened, in any of the
// directories; what waits in a cruft pack to be deleted does not count.
func TestWriterFreshens(t *testing.T) {
	t.Parallel()
	to, _ := newTarget(t)
	other := filepath.Join(newRepository(t), ".git", "objects")
	s := subject{T: t}
	loose := gitIn(t, to.dir, "loose", "hash-object", "-w", "--stdin")
	looseFile := filepath.Join(to.objects, loose[:2], loose[2:])
	packed := gitIn(t, to.dir, "packed", "hash-object", "-w", "--stdin")
	pack := filepath.Join(to.objects, "pack", "pack-"+gitIn(t, to.dir, packed+"\n", "pack-objects", "-q", filepath.Join(to.objects, "pack", "pack"))+".pack")
	gitIn(t, to.dir, "", "prune-packed", "-q")
	cruft := gitIn(t, to.dir, "cruft", "hash-object", "-w", "--stdin")
	cruftPack := filepath.Join(to.objects, "pack", "pack-"+gitIn(t, to.dir, cruft+"\n", "pack-objects", "-q", filepath.Join(to.objects, "pack", "pack"))+".pack")
	gitIn(t, to.dir, "", "prune-packed", "-q")
	if err := os.WriteFile(strings.TrimSuffix(cruftPack, ".pack")+".mtimes", nil, 0o666); err != nil {
		t.Fatal(err)
	}
	elsewhere := gitIn(t, filepath.Dir(filepath.Dir(other)), "elsewhere", "hash-object", "-w", "--stdin")
	elsewhereFile := filepath.Join(other, elsewhere[:2], elsewhere[2:])
	for _, name := range []string{looseFile, pack, cruftPack, elsewhereFile} {
		s.age(name)
	}
	w := to.writer(other)
	for _, data := range []string{"loose", "packed", "cruft", "elsewhere"} {
		to.put(w, data)
	}
	if h, _ := object.ParseHash(cruft); !w.Has(h) {
		t.Error("what is in a cruft pack does not exist")
	}
	if w.Has(object.Hash{}) {
		t.Error("what is nowhere exists")
	}
	to.close(w)
	for _, name := range []string{looseFile, pack, elsewhereFile} {
		if info, err := os.Stat(name); err != nil || time.Since(info.ModTime()) > time.Hour {
			t.Errorf("'%s' is not fresh: %v", name, err)
		}
	}
	if info, err := os.Stat(cruftPack); err != nil || time.Since(info.ModTime()) < time.Hour {
		t.Errorf("the cruft pack is fresh: %v", err)
	}
	for id, want := range map[string]int{loose: 1, packed: 0, cruft: 1, elsewhere: 0} {
		if got := to.glob(id[:2] + "/" + id[2:]); len(got) != want {
			t.Errorf("%s is loose: %v", id, got)
		}
	}
}

// N.13: a file that is not what it was is an error of its own, and nothing of
// it is stored.
func TestWriterChangedFile(t *testing.T) {
	t.Parallel()
	to, w := newTarget(t)
	for what, change := range map[string]func(name string) error{
		"grown": func(name string) error { return os.WriteFile(name, []byte("content and more"), 0o666) },
		"cut":   func(name string) error { return os.Truncate(name, 3) },
		"empty": func(name string) error { return os.Truncate(name, 0) },
		"a directory": func(name string) error {
			return errors.Join(os.Remove(name), os.Mkdir(name, 0o777))
		},
		"a link": func(name string) error {
			return errors.Join(os.Rename(name, name+" moved"), os.Symlink(name+" moved", name))
		},
	} {
		if what == "a link" && runtime.GOOS == "windows" {
			continue
		}
		name, fi := to.make([]byte("content"))
		if err := change(name); err != nil {
			t.Fatal(err)
		}
		if _, err := w.File(name, fi); !errors.Is(err, object.ErrChanged) || !errors.Is(err, fault.Conflict) {
			t.Errorf("a file that is %s by now: %v", what, err)
		}
	}
	name, fi := to.make([]byte("content"))
	os.Remove(name)
	if _, err := w.File(name, fi); !errors.Is(err, fs.ErrNotExist) || errors.Is(err, object.ErrChanged) {
		t.Errorf("a file that is gone: %v", err)
	}
	// The writer is none the worse for it.
	id := to.put(w, "another")
	to.close(w)
	if got := gitIn(t, to.dir, "", "cat-file", "blob", id); got != "another" {
		t.Errorf("git reads %q", got)
	}
	to.tidy()
}

// What cannot be written is an error there and at Close; nothing is left.
func TestWriterFails(t *testing.T) {
	t.Parallel()
	to, w := newTarget(t)
	os.RemoveAll(filepath.Join(to.objects, "pack"))
	if err := os.WriteFile(filepath.Join(to.objects, "pack"), nil, 0o666); err != nil {
		t.Fatal(err)
	}
	var failed error
	for i := range 100 {
		if _, err := w.Put(object.Blob, fmt.Append(nil, i)); err != nil {
			failed = err
		}
	}
	if err := w.Close(t.Context()); !errors.Is(err, fault.Fatal) || err != failed {
		t.Errorf("closed with %v, put with %v", err, failed)
	}
	to.tidy()

	to, w = newTarget(t)
	stopped, stop := context.WithCancel(t.Context())
	stop()
	to.put(w, "content")
	if err := w.Close(stopped); !errors.Is(err, context.Canceled) {
		t.Errorf("closed after it was stopped: %v", err)
	}
	sha256 := open(t, newRepository(t, "--object-format=sha256"))
	if _, err := object.NewWriter(sha256, to.objects).Put(object.Blob, nil); !errors.Is(err, fault.Fatal) {
		t.Errorf("put into a SHA-256 repository: %v", err)
	}
}

// Abort leaves nothing, and a closed writer takes nothing more.
func TestWriterAbort(t *testing.T) {
	t.Parallel()
	to, w := newTarget(t)
	before := to.glob("*/*")
	for i := range 100 {
		to.put(w, fmt.Sprint("content ", i))
	}
	if to.glob("pack/tmp_pack_*") == nil {
		t.Error("a hundred objects have not begun a pack")
	}
	w.Abort()
	w.Abort()
	if after := to.glob("*/*"); fmt.Sprint(after) != fmt.Sprint(before) {
		t.Errorf("there is %v, was %v", after, before)
	}
	if _, err := w.Put(object.Blob, []byte("late")); err == nil {
		t.Error("put after Abort")
	}
	if err := w.Close(t.Context()); err == nil {
		t.Error("closed after Abort")
	}
	empty := to.writer()
	to.close(empty)
	empty.Abort()
	if after := to.glob("*/*"); fmt.Sprint(after) != fmt.Sprint(before) {
		t.Errorf("nothing was put, and there is %v, was %v", after, before)
	}
	to.tidy()
}

// A "git gc" beside a writer takes nothing of what was put.
func TestWriterBesideGC(t *testing.T) {
	t.Parallel()
	to, w := newTarget(t)
	gitIn(t, to.dir, "loose", "hash-object", "-w", "--stdin")
	to.put(w, "loose") // and freshens it
	for i := range 100 {
		to.put(w, fmt.Sprint("content ", i))
	}
	gitIn(t, to.dir, "", "gc", "-q", "--prune=1.hour.ago")
	few := to.writer()
	to.put(few, "one")
	gitIn(t, to.dir, "", "gc", "-q", "--prune=1.hour.ago")
	to.close(few)
	to.close(w)
	to.holds([][]byte{[]byte("loose"), []byte("content 0"), []byte("content 99"), []byte("one")})
	to.tidy()
}

// A writer that is killed after any of its steps leaves a repository that git
// finds sound, and that the same objects can be stored in again.
func TestWriterKilled(t *testing.T) {
	t.Parallel()
	const variable = "TEST_WRITER_KILLED"
	put := func(to target, count int) {
		w := to.writer()
		for i := range count {
			to.put(w, fmt.Sprint("content ", i))
		}
		to.close(w)
	}
	if child := os.Getenv(variable); child != "" {
		var count int
		fmt.Sscan(os.Getenv(variable+"_COUNT"), &count)
		put(target{t, child, filepath.Join(child, ".git", "objects")}, count)
		return
	}
	for _, count := range []int{3, 100} { // loose, and a pack and its index
		for step := 1; ; step++ {
			to, _ := newTarget(t)
			cmd := exec.Command(os.Args[0], "-test.run=^TestWriterKilled$")
			cmd.Env = append(os.Environ(), variable+"="+to.dir, fmt.Sprint(variable, "_COUNT=", count), fmt.Sprint("GIT_CHECKPOINT_KILL=", step))
			err := cmd.Run()
			gitIn(t, to.dir, "", "fsck", "--strict")
			put(to, count)
			to.holds([][]byte{[]byte("content 0"), fmt.Appendf(nil, "content %d", count-1)})
			gitIn(t, to.dir, "", "prune", "--expire=now") // clears away what the dead one left
			to.tidy()
			if err == nil { // there were no more steps
				if want := map[int]int{3: 3, 100: 2}[count]; step != want+1 {
					t.Errorf("%d objects are stored in %d steps, want %d", count, step-1, want)
				}
				break
			}
		}
	}
}
