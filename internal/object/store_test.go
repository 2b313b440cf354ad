package object_test

import (
	"bytes"
	"compress/zlib"
	"context"
	"errors"
	"fmt"
	"io"
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
	"github.com/git-checkpoint/git-checkpoint/internal/git"
	"github.com/git-checkpoint/git-checkpoint/internal/object"
)

func TestMain(m *testing.M) {
	for name, value := range map[string]string{
		"HOME": os.TempDir(), "GIT_CONFIG_NOSYSTEM": "1", "GIT_CONFIG_GLOBAL": os.DevNull, "LC_ALL": "C",
		"GIT_AUTHOR_NAME": "A", "GIT_AUTHOR_EMAIL": "a@example.com", "GIT_AUTHOR_DATE": "1700000000 +0100",
		"GIT_COMMITTER_NAME": "A", "GIT_COMMITTER_EMAIL": "a@example.com", "GIT_COMMITTER_DATE": "1700000000 +0100",
	} {
		os.Setenv(name, value)
	}
	os.Exit(m.Run())
}

// gitIn runs git, the judge of all of this.
func gitIn(t testing.TB, dir, input string, args ...string) string {
	t.Helper()
	cmd := exec.Command("git", args...)
	var stdout, stderr bytes.Buffer
	cmd.Dir, cmd.Stdin, cmd.Stdout, cmd.Stderr = dir, strings.NewReader(input), &stdout, &stderr
	if err := cmd.Run(); err != nil {
		t.Fatalf("git %s: %v\n%s", strings.Join(args, " "), err, stderr.String())
	}
	return strings.TrimSuffix(stdout.String(), "\n")
}

// newRepository makes a repository with a few commits.
func newRepository(t *testing.T, options ...string) string {
	t.Helper()
	dir := t.TempDir()
	gitIn(t, dir, "", append([]string{"init", "-q", "-b", "main"}, options...)...)
	for i := range 3 {
		if err := os.WriteFile(filepath.Join(dir, "a file"), fmt.Appendf(nil, "%d\n", i), 0o666); err != nil {
			t.Fatal(err)
		}
		gitIn(t, dir, "", "add", "a file")
		gitIn(t, dir, "", "commit", "-q", "-m", fmt.Sprint("commit ", i))
	}
	return dir
}

// cloneOf clones a repository by way of git's transport.
func cloneOf(t *testing.T, options ...string) string {
	t.Helper()
	source, dir := newRepository(t), filepath.Join(t.TempDir(), "clone")
	gitIn(t, source, "", "config", "uploadpack.allowFilter", "true")
	gitIn(t, source, "", "config", "uploadpack.allowAnySHA1InWant", "true")
	gitIn(t, source, "", append(append([]string{"clone", "-q"}, options...), "file://"+source, dir)...)
	return dir
}

// kinds are the repositories that the stores have to do with, and whether the
// one in process is to be trusted with them.
var kinds = []struct {
	name      string
	inProcess bool
	make      func(t *testing.T) string
}{
	{"loose", true, func(t *testing.T) string { return newRepository(t) }},
	{"packed", true, func(t *testing.T) string {
		dir := newRepository(t)
		gitIn(t, dir, "", "repack", "-a", "-d", "-q")
		return dir
	}},
	{"many packed", true, func(t *testing.T) string {
		dir := t.TempDir()
		if err := os.CopyFS(dir, os.DirFS(manyPacked(t))); err != nil {
			t.Fatal(err)
		}
		return dir
	}},
	{"collected", true, func(t *testing.T) string {
		dir := newRepository(t)
		gitIn(t, dir, "", "gc", "-q", "--prune=now")
		return dir
	}},
	{"linked worktree", true, func(t *testing.T) string {
		dir := filepath.Join(t.TempDir(), "linked")
		gitIn(t, newRepository(t), "", "worktree", "add", "-q", "--detach", dir)
		return dir
	}},
	{"worktree configuration", false, func(t *testing.T) string {
		dir := newRepository(t)
		gitIn(t, dir, "", "config", "extensions.worktreeConfig", "true")
		gitIn(t, dir, "", "config", "--worktree", "core.sparseCheckout", "false")
		return dir
	}},
	{"alternates", false, func(t *testing.T) string {
		source, dir := newRepository(t), filepath.Join(t.TempDir(), "clone")
		gitIn(t, source, "", "clone", "-q", "--shared", source, dir)
		return dir
	}},
	{"loose objects synced", false, func(t *testing.T) string {
		dir := newRepository(t)
		gitIn(t, dir, "", "config", "core.fsync", "reference,loose-object")
		return dir
	}},
	{"nothing synced", true, func(t *testing.T) string {
		dir := newRepository(t)
		gitIn(t, dir, "", "config", "core.fsync", "none")
		return dir
	}},
	{"shared", false, func(t *testing.T) string { return newRepository(t, "--shared=group") }},
	{"shallow", false, func(t *testing.T) string { return cloneOf(t, "--depth=1") }},
	{"partial", false, func(t *testing.T) string { return cloneOf(t, "--filter=blob:none", "--no-checkout") }},
	{"SHA-256", false, func(t *testing.T) string { return newRepository(t, "--object-format=sha256") }},
	{"reftable", false, func(t *testing.T) string {
		var major, minor int
		fmt.Sscanf(gitIn(t, "", "", "version"), "git version %d.%d", &major, &minor)
		if major < 2 || major == 2 && minor < 45 {
			t.Skipf("git %d.%d has no reftable; 2.45 has", major, minor)
		}
		return newRepository(t, "--ref-format=reftable")
	}},
}

// manyPacked makes, once, a repository with many packed objects.
var manyPacked = func() func(*testing.T) string {
	var once sync.Once
	var dir string
	return func(t *testing.T) string {
		once.Do(func() {
			var stream strings.Builder
			for i := range 75000 {
				data := fmt.Sprint("object ", i)
				fmt.Fprintf(&stream, "blob\ndata %d\n%s\n", len(data), data)
			}
			made := newRepository(t)
			gitIn(t, made, stream.String(), "fast-import", "--quiet")
			gitIn(t, made, "", "repack", "-a", "-q")
			dir = made
		})
		return dir
	}
}()

// subject is one store of one repository.
type subject struct {
	*testing.T
	dir     string
	objects string // the directory of the objects
	repo    *git.Repo
	open    func() object.Store
}

// TestStores holds every store against git, in every kind of repository that
// it is used in.
func TestStores(t *testing.T) {
	t.Parallel()
	stores := []struct {
		name string
		open func(*git.Repo) object.Store
	}{
		{"program", func(r *git.Repo) object.Store { return object.NewProgram(r) }},
		{"in process", func(r *git.Repo) object.Store { return object.NewInProcess(r) }},
	}
	checks := []struct {
		name  string
		check func(subject)
		in    string // only this kind of repository, where the others would be the same
	}{
		{"what is written is what git reads", writes, ""},
		{"what git wrote is read", reads, ""},
		{"what exists is freshened", freshens, ""},
		{"what is packed is freshened", freshensPacked, ""},
		{"what is missing is told from what is damaged", misses, ""},
		{"a collection beside it does no harm", collects, ""},
		{"a large object", large, "loose"},
	}
	for _, kind := range kinds {
		t.Run(kind.name, func(t *testing.T) {
			t.Parallel()
			repo := open(t, kind.make(t))
			if _, ok := object.Open(repo).(*object.InProcess); ok != kind.inProcess {
				t.Errorf("Open picks the in-process store: %v, want %v", ok, kind.inProcess)
			}
			for _, store := range stores {
				if store.name == "in process" && !kind.inProcess {
					continue
				}
				for _, c := range checks {
					if c.in != "" && c.in != kind.name {
						continue
					}
					t.Run(store.name+"/"+c.name, func(t *testing.T) {
						dir := kind.make(t)
						repo := open(t, dir)
						c.check(subject{t, dir, filepath.Join(repo.CommonDir, "objects"), repo, func() object.Store { return store.open(repo) }})
					})
				}
			}
		})
	}
}

func open(t *testing.T, dir string) *git.Repo {
	t.Helper()
	repo, err := git.Open(context.Background(), dir)
	if err != nil {
		t.Fatal(err)
	}
	return repo
}

func (s subject) git(args ...string) string {
	s.Helper()
	return gitIn(s, s.dir, "", args...)
}

func (s subject) flush(store object.Store) {
	s.Helper()
	if err := store.Flush(s.Context()); err != nil {
		s.Fatal(err)
	}
}

// want fails unless a store reads an object as it is expected.
func (s subject) want(store object.Store, id string, kind object.Kind, data string) {
	s.Helper()
	gotKind, got, err := store.Read(s.Context(), id)
	if err != nil {
		s.Errorf("read %s: %v", id, err)
	} else if gotKind != kind || string(got) != data {
		s.Errorf("read %s: a %s of %d bytes, want a %s of %d", id, gotKind, len(got), kind, len(data))
	}
}

func (s subject) fsck() {
	s.Helper()
	if out := s.git("fsck", "--strict", "--no-dangling", "--no-progress"); out != "" {
		s.Errorf("git fsck: %s", out)
	}
}

// samples are an object of each kind, as they refer to each other.
func (s subject) samples() map[object.Kind]string {
	blob := "content\x00of any bytes\xff\n"
	entries := []object.TreeEntry{{Mode: object.ModeFile, Name: "a name", ID: s.id(object.Blob, blob)}}
	tree := string(object.EncodeTree(entries))
	who := object.Signature{Name: "A", Email: "a@example.com", When: time.Unix(1700000000, 0).UTC()}
	commit := object.CommitObject{Tree: s.id(object.Tree, tree), Author: who, Committer: who, Message: "subject\n\nbody\n"}
	data := string(commit.Encode())
	tag := fmt.Sprintf("object %s\ntype commit\ntag v1\ntagger A <a@example.com> 1700000000 +0000\n\nmessage\n", s.id(object.Commit, data))
	return map[object.Kind]string{object.Blob: blob, object.Tree: tree, object.Commit: data, object.Tag: tag}
}

func (s subject) id(kind object.Kind, data string) string {
	return object.ID(s.repo.ObjectFormat, kind, []byte(data))
}

func writes(s subject) {
	store := s.open()
	defer store.Close()
	objects := s.samples()
	ids := map[object.Kind]string{}
	for kind, data := range objects {
		ids[kind] = store.Put(kind, []byte(data))
		s.want(store, ids[kind], kind, data)
		if got := gitIn(s, s.dir, data, "hash-object", "--stdin", "-t", string(kind)); got != ids[kind] {
			s.Errorf("put a %s: %s, git says %s", kind, ids[kind], got)
		}
	}
	emptyBlob, emptyTree := store.Put(object.Blob, nil), store.Put(object.Tree, nil)
	if emptyTree != object.EmptyTree(s.repo.ObjectFormat) {
		s.Errorf("the empty tree is %s", emptyTree)
	}
	s.flush(store)
	s.flush(store) // there is nothing to flush any more
	again := s.open()
	defer again.Close()
	for kind, data := range objects {
		s.want(store, ids[kind], kind, data)
		s.want(again, ids[kind], kind, data)
		if got := s.git("cat-file", "-t", ids[kind]); got != string(kind) {
			s.Errorf("git takes the %s for a %s", kind, got)
		}
		if got := gitIn(s, s.dir, ids[kind]+"\n", "cat-file", "--batch=%(objectsize)"); got != fmt.Sprintf("%d\n%s", len(data), data) {
			s.Errorf("git reads the %s as %q", kind, got)
		}
		s.file(ids[kind], kind, data)
	}
	s.want(again, emptyBlob, object.Blob, "")
	s.want(again, emptyTree, object.Tree, "")
	s.git("update-ref", "refs/heads/written", ids[object.Commit])
	s.fsck()
}

// file checks an object's file: its bytes once inflated, and that nobody can
// write to it, as git has it.
func (s subject) file(id string, kind object.Kind, data string) {
	s.Helper()
	name := filepath.Join(s.objects, id[:2], id[2:])
	info, err := os.Stat(name)
	if err != nil {
		s.Error(err)
		return
	}
	if mode := info.Mode().Perm(); runtime.GOOS != "windows" && mode&0o222 != 0 || mode&0o400 == 0 {
		s.Errorf("the %s has the mode %o", kind, mode)
	}
	if shared, _ := s.repo.Config.Get("core.sharedrepository"); runtime.GOOS != "windows" && shared == "" && info.Mode().Perm() != 0o444 {
		s.Errorf("the %s has the mode %o, git makes it 444", kind, info.Mode().Perm())
	}
	f, err := os.Open(name)
	if err != nil {
		s.Fatal(err)
	}
	defer f.Close()
	z, err := zlib.NewReader(f)
	if err != nil {
		s.Fatal(err)
	}
	got, err := io.ReadAll(z)
	if want := fmt.Sprintf("%s %d\x00%s", kind, len(data), data); err != nil || string(got) != want {
		s.Errorf("the file of the %s holds %q (%v), want %q", kind, got, err, want)
	}
}

func reads(s subject) {
	store := s.open()
	defer store.Close()
	head := s.git("rev-parse", "HEAD")
	s.want(store, head, object.Commit, s.git("cat-file", "commit", head)+"\n")
	tree := s.git("rev-parse", "HEAD^{tree}")
	kind, data, err := store.Read(s.Context(), tree)
	if err != nil || kind != object.Tree {
		s.Fatalf("read the tree: a %s, %v", kind, err)
	}
	entries, err := object.ParseTree(data, s.repo.HashLen())
	if err != nil || len(entries) != 1 || entries[0].Name != "a file" {
		s.Fatalf("parse the tree: %v, %v", entries, err)
	}
	s.want(store, entries[0].ID, object.Blob, "2\n") // a partial clone fetches it now

	odd := "tree " + tree + "\nparent " + head + "\nauthor A <a@example.com> 1700000000 +0100\ncommitter B <b@example.com> 1700000000 -0230\n" +
		"encoding ISO-8859-1\ngpgsig -----BEGIN PGP SIGNATURE-----\n \n abc\n -----END PGP SIGNATURE-----\nmergetag object " + head + "\n type commit\n tag x\n\n" +
		"subject \xe4\n\nbody"
	id := gitIn(s, s.dir, odd, "hash-object", "-w", "--stdin", "-t", "commit")
	s.want(store, id, object.Commit, odd)
}

// age makes a file old, as one that a garbage collection may take.
func (s subject) age(name string) {
	s.Helper()
	old := time.Now().Add(-30 * 24 * time.Hour)
	if err := os.Chtimes(name, old, old); err != nil {
		s.Fatal(err)
	}
}

func freshens(s subject) {
	kept := gitIn(s, s.dir, "to be kept", "hash-object", "-w", "--stdin")
	lost := gitIn(s, s.dir, "to be lost", "hash-object", "-w", "--stdin")
	for _, id := range []string{kept, lost} {
		s.age(filepath.Join(s.objects, id[:2], id[2:]))
	}
	store := s.open()
	defer store.Close()
	store.Put(object.Blob, []byte("to be kept"))
	s.flush(store)
	info, err := os.Stat(filepath.Join(s.objects, kept[:2], kept[2:]))
	if err != nil || time.Since(info.ModTime()) > time.Hour {
		s.Errorf("the object is not fresh: %v, %v", info.ModTime(), err)
	}
	s.git("prune", "--expire=1.hour.ago")
	s.want(store, kept, object.Blob, "to be kept")
	again := s.open()
	defer again.Close()
	if _, _, err := again.Read(s.Context(), lost); !errors.Is(err, object.ErrMissing) {
		s.Errorf("git prune left the old object: %v", err)
	}
}

func freshensPacked(s subject) {
	id := gitIn(s, s.dir, "packed and unreachable", "hash-object", "-w", "--stdin")
	gitIn(s, s.dir, id+"\n", "pack-objects", "-q", filepath.Join(s.objects, "pack", "pack"))
	s.git("prune-packed", "-q")
	packs, err := filepath.Glob(filepath.Join(s.objects, "pack", "*"))
	if err != nil || len(packs) == 0 {
		s.Fatalf("there is no pack: %v", err)
	}
	for _, p := range packs {
		s.age(p)
	}
	store := s.open()
	defer store.Close()
	store.Put(object.Blob, []byte("packed and unreachable"))
	s.flush(store)
	s.git("repack", "-A", "-d", "-q", "--unpack-unreachable=1.hour.ago")
	s.git("prune", "--expire=1.hour.ago")
	s.want(store, id, object.Blob, "packed and unreachable")
}

func misses(s subject) {
	store := s.open()
	defer store.Close()
	absent := s.id(object.Blob, "absent")
	for _, id := range []string{absent, "", "HEAD", absent[:10], strings.ToUpper(absent), absent + "0"} {
		_, _, err := store.Read(s.Context(), id)
		if !errors.Is(err, object.ErrMissing) || !errors.Is(err, fault.Integrity) {
			s.Errorf("read '%s': %v", id, err)
		}
	}
	for what, damage := range map[string]func(file []byte) []byte{
		"cut":      func(file []byte) []byte { return file[:len(file)/2] },
		"empty":    func([]byte) []byte { return nil },
		"no zlib":  func(file []byte) []byte { return bytes.Repeat([]byte("x"), len(file)) },
		"exchange": func([]byte) []byte { return deflate(s, "blob 5\x00other") },
	} {
		id := gitIn(s, s.dir, strings.Repeat(what+" some bytes\n", 100), "hash-object", "-w", "--stdin")
		name := filepath.Join(s.objects, id[:2], id[2:])
		file, err := os.ReadFile(name)
		if err != nil {
			s.Fatal(err)
		}
		os.Chmod(name, 0o666)
		if err := os.WriteFile(name, damage(file), 0o666); err != nil {
			s.Fatal(err)
		}
		_, _, err = store.Read(s.Context(), id)
		if !errors.Is(err, fault.Integrity) || errors.Is(err, object.ErrMissing) {
			s.Errorf("read an object that is damaged (%s): %v", what, err)
		}
		// The damage of one object does not spread.
		head := s.git("rev-parse", "HEAD")
		if _, _, err := store.Read(s.Context(), head); err != nil {
			s.Errorf("read another object after that: %v", err)
		}
	}
}

func deflate(s subject, data string) []byte {
	var b bytes.Buffer
	z := zlib.NewWriter(&b)
	io.WriteString(z, data)
	if err := z.Close(); err != nil {
		s.Fatal(err)
	}
	return b.Bytes()
}

func collects(s subject) {
	store := s.open()
	defer store.Close()
	first := gitIn(s, s.dir, "first", "hash-object", "-w", "--stdin")
	second := gitIn(s, s.dir, "second", "hash-object", "-w", "--stdin")
	s.want(store, first, object.Blob, "first")
	s.git("update-ref", "refs/heads/kept", s.git("commit-tree", "-m", "kept", gitIn(s, s.dir,
		"100644 blob "+first+"\tfirst\n100644 blob "+second+"\tsecond\n", "mktree")))
	store.Put(object.Blob, []byte("second")) // is there, loose
	third := store.Put(object.Blob, []byte("third"))
	s.git("gc", "-q", "--prune=now")
	// Two objects have moved from files of their own to a pack.
	s.want(store, second, object.Blob, "second")
	s.flush(store)
	s.want(store, third, object.Blob, "third")
	s.git("gc", "-q", "--prune=1.hour.ago")
	s.want(store, first, object.Blob, "first")
	s.want(store, second, object.Blob, "second")
	s.want(store, third, object.Blob, "third")
	s.fsck()
}

func large(s subject) {
	store := s.open()
	defer store.Close()
	data := make([]byte, 20<<20)
	rand.New(rand.NewSource(1)).Read(data[:10<<20]) // the other half deflates well
	id := store.Put(object.Blob, data)
	s.flush(store)
	again := s.open()
	defer again.Close()
	s.want(again, id, object.Blob, string(data))
	if got := s.git("cat-file", "-s", id); got != fmt.Sprint(len(data)) {
		s.Errorf("git says that it has %s bytes", got)
	}
}

// TestHas asks for objects that are queued, loose, packed, packed meanwhile, and for none.
func TestHas(t *testing.T) {
	t.Parallel()
	dir := newRepository(t)
	store := object.NewInProcess(open(t, dir))
	defer store.Close()
	head := gitIn(t, dir, "", "rev-parse", "HEAD")
	queued := store.Put(object.Blob, []byte("queued"))
	if !store.Has(head) || !store.Has(queued) {
		t.Error("what is loose or queued is not there")
	}
	gitIn(t, dir, "", "gc", "-q", "--prune=now")
	if !store.Has(head) || !store.Has(gitIn(t, dir, "", "rev-parse", "HEAD~1:a file")) {
		t.Error("what is packed by now is not there")
	}
	for _, absent := range []string{object.ID("sha1", object.Blob, []byte("absent")), "", "HEAD", head[:10]} {
		if store.Has(absent) {
			t.Errorf("'%s' is there", absent)
		}
	}
}

// TestBatch asks for objects by names of all sorts.
func TestBatch(t *testing.T) {
	t.Parallel()
	dir := newRepository(t)
	b, err := object.OpenBatch(t.Context(), open(t, dir))
	if err != nil {
		t.Fatal(err)
	}
	head := gitIn(t, dir, "", "rev-parse", "HEAD")
	id, kind, data, err := b.Read("HEAD:a file")
	if err != nil || kind != object.Blob || string(data) != "2\n" || id != gitIn(t, dir, "", "rev-parse", "HEAD:a file") {
		t.Errorf("read 'HEAD:a file': %s, a %s, %q, %v", id, kind, data, err)
	}
	names := []string{"HEAD", "HEAD:no such file", "no-such-ref:a file", "HEAD:a file", head, "", "HEAD:a missing", "HEAD~1:a file"}
	want := []string{"commit", "-", "-", "2\n", "commit", "-", "-", "1\n"}
	var got []string
	err = b.ReadAll(names, func(i int, id string, kind object.Kind, data []byte, err error) error {
		switch {
		case errors.Is(err, object.ErrMissing):
			got = append(got, "-")
		case kind == object.Commit:
			got = append(got, "commit")
		default:
			got = append(got, string(data))
		}
		return nil
	})
	if err != nil || fmt.Sprintf("%q", got) != fmt.Sprintf("%q", want) {
		t.Errorf("read all: %q, %v; want %q", got, err, want)
	}
	stop := errors.New("enough")
	if err := b.ReadAll(names, func(int, string, object.Kind, []byte, error) error { return stop }); err != stop {
		t.Errorf("a visit that ends it: %v", err)
	}
	if _, _, _, err := b.Read("HEAD"); err == nil {
		t.Error("a batch that was given up still answers")
	}
	if err := b.Close(); err != nil {
		t.Error(err)
	}
}
