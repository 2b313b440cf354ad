package notes

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/git-checkpoint/git-checkpoint/internal/fault"
	"github.com/git-checkpoint/git-checkpoint/internal/git"
	"github.com/git-checkpoint/git-checkpoint/internal/object"
)

// repository is a fresh repository, the store under test, and git as the judge.
type repository struct {
	t      *testing.T
	repo   *git.Repo
	store  object.Store
	format string
}

// memory is a store that touches no disk, for what git has no say in.
type memory struct {
	format  string
	objects map[string]stored
}

type stored struct {
	kind object.Kind
	data []byte
}

func (m memory) Read(_ context.Context, id string) (object.Kind, []byte, error) {
	o, ok := m.objects[id]
	if !ok {
		return "", nil, fault.New(fault.Integrity, "object-missing", "read object %s: %w", id, object.ErrMissing)
	}
	return o.kind, o.data, nil
}

func (m memory) Put(kind object.Kind, data []byte) string {
	id := object.ID(m.format, kind, data)
	m.objects[id] = stored{kind, data}
	return id
}

func (memory) Flush(context.Context) error { return nil }
func (memory) Close() error                { return nil }

// inMemory runs a test without git, with ids of both lengths.
func inMemory(t *testing.T, test func(t *testing.T, r *repository)) {
	for _, format := range []string{"sha1", "sha256"} {
		t.Run(format, func(t *testing.T) {
			t.Parallel()
			test(t, &repository{t, nil, memory{format, map[string]stored{}}, format})
		})
	}
}

// everywhere runs a test with each store, in each kind of repository it is
// for. What the test leaves there must please git fsck.
func everywhere(t *testing.T, test func(t *testing.T, r *repository)) {
	for _, c := range []struct {
		title, format string
		open          func(*git.Repo) object.Store
	}{
		{"in process", "sha1", func(r *git.Repo) object.Store { return object.NewInProcess(r) }},
		{"git program", "sha1", func(r *git.Repo) object.Store { return object.NewProgram(r) }},
		{"git program with SHA-256", "sha256", func(r *git.Repo) object.Store { return object.NewProgram(r) }},
	} {
		t.Run(c.title, func(t *testing.T) {
			home := t.TempDir()
			for name, value := range map[string]string{
				"GIT_CONFIG_NOSYSTEM": "1", "GIT_CONFIG_GLOBAL": os.DevNull, "HOME": home,
				"GIT_DIR": "", "GIT_WORK_TREE": "", "GIT_OBJECT_DIRECTORY": "",
			} {
				t.Setenv(name, value)
				if value == "" {
					os.Unsetenv(name)
				}
			}
			dir := t.TempDir()
			if out, err := exec.Command("git", "init", "-q", "--object-format="+c.format, dir).CombinedOutput(); err != nil {
				t.Fatalf("git init: %v: %s", err, out)
			}
			repo, err := git.Open(t.Context(), dir)
			if err != nil {
				t.Fatal(err)
			}
			r := &repository{t, repo, c.open(repo), c.format}
			t.Cleanup(func() { r.store.Close() })
			r.git("config", "core.fsync", "none") // for speed
			r.git("config", "user.name", "A U Thor")
			r.git("config", "user.email", "author@example.com")
			test(t, r)
			if out := r.git("fsck", "--strict", "--no-dangling"); out != "" {
				t.Errorf("git fsck: %s", out)
			}
		})
	}
}

func (r *repository) git(args ...string) string {
	r.t.Helper()
	return r.gitWith("", args...)
}

func (r *repository) gitWith(input string, args ...string) string {
	r.t.Helper()
	out, err := r.repo.Command(r.t.Context(), args...).WithInput([]byte(input)).Text()
	if err != nil {
		var failed *git.Error
		if errors.As(err, &failed) {
			r.t.Fatalf("git %s: %s", strings.Join(args, " "), failed.Stderr)
		}
		r.t.Fatal(err)
	}
	return out
}

// objects puts n objects to annotate into the repository and returns their ids, sorted.
func (r *repository) objects(n int) []string {
	r.t.Helper()
	ids := make([]string, n)
	for i := range ids {
		ids[i] = r.store.Put(object.Blob, fmt.Appendf(nil, "object %d\n", i))
	}
	r.flush()
	slices.Sort(ids)
	return ids
}

func (r *repository) flush() {
	r.t.Helper()
	if err := r.store.Flush(r.t.Context()); err != nil {
		r.t.Fatal(err)
	}
}

func (r *repository) load(root string) *Tree {
	r.t.Helper()
	tree, err := LoadTree(r.t.Context(), r.store, r.format, root)
	if err != nil {
		r.t.Fatal(err)
	}
	return tree
}

// notes is the tree of refs/notes/<name>.
func (r *repository) notes(name string) *Tree {
	r.t.Helper()
	return r.load(r.git("rev-parse", "refs/notes/"+name+"^{tree}"))
}

// publish writes a tree and makes it the notes of refs/notes/<name>.
func (r *repository) publish(name string, tree *Tree) string {
	r.t.Helper()
	root, err := tree.Write(r.t.Context())
	if err != nil {
		r.t.Fatal(err)
	}
	r.point(name, root)
	return root
}

// point makes a tree the notes of refs/notes/<name>.
func (r *repository) point(name, root string) {
	r.t.Helper()
	r.flush()
	args := []string{"commit-tree", "-m", "notes", root}
	if parent, err := r.repo.Command(r.t.Context(), "rev-parse", "-q", "--verify", "refs/notes/"+name).Text(); err == nil {
		args = append(args, "-p", parent)
	}
	r.git("update-ref", "refs/notes/"+name, r.git(args...))
}

func (r *repository) set(tree *Tree, id, content string) {
	r.t.Helper()
	if err := tree.Set(r.t.Context(), id, []byte(content)); err != nil {
		r.t.Fatal(err)
	}
}

func (r *repository) wantGet(tree *Tree, id, want string) {
	r.t.Helper()
	got, ok, err := tree.Get(r.t.Context(), id)
	if err != nil || !ok || string(got) != want {
		r.t.Fatalf("Get %s: %q, %v, %v; want %q", id, got, ok, err, want)
	}
}

// wantJudge lets git say what the notes of a ref are.
func (r *repository) wantJudge(name string, want map[string]string) {
	r.t.Helper()
	var lines []string
	for id, content := range want {
		lines = append(lines, object.ID(r.format, object.Blob, []byte(content))+" "+id)
	}
	// git lists in the order of objects.
	slices.SortFunc(lines, func(a, b string) int { return strings.Compare(a[len(a)/2:], b[len(b)/2:]) })
	if got := r.git("notes", "--ref="+name, "list"); got != strings.Join(lines, "\n") {
		r.t.Errorf("git lists %d notes:\n%.500s\nwant %d:\n%.500s", strings.Count(got, "\n")+1, got, len(lines), strings.Join(lines, "\n"))
	}
	if twice, err := r.notes(name).Duplicates(r.t.Context()); err != nil || twice != nil {
		r.t.Errorf("duplicates: %v, %v", twice, err)
	}
}

// paths is what is in the tree of refs/notes/<name>, as "mode path".
func (r *repository) paths(name string) []string {
	r.t.Helper()
	return strings.Split(r.git("ls-tree", "-r", "--format=%(objectmode) %(path)", "refs/notes/"+name), "\n")
}

// list is the same of any tree in the store, with the ids behind.
func (r *repository) list(root string) []string {
	r.t.Helper()
	_, data, err := r.store.Read(r.t.Context(), root)
	if err != nil {
		r.t.Fatal(err)
	}
	entries, err := object.ParseTree(data, len(root)/2)
	if err != nil {
		r.t.Fatal(err)
	}
	var lines []string
	for _, e := range entries {
		if e.Mode != object.ModeTree {
			lines = append(lines, fmt.Sprintf("%o %s %s", e.Mode, e.Name, e.ID))
			continue
		}
		for _, l := range r.list(e.ID) {
			mode, rest, _ := strings.Cut(l, " ")
			lines = append(lines, mode+" "+e.Name+"/"+rest)
		}
	}
	return lines
}

// mktree makes a tree from lines "mode path content", with any paths; a
// gitlink's content is an id.
func (r *repository) mktree(lines ...string) string {
	r.t.Helper()
	var build func(prefix string) string
	build = func(prefix string) string {
		var entries []object.TreeEntry
		done := map[string]bool{}
		for _, l := range lines {
			mode, rest, _ := strings.Cut(l, " ")
			path, content, _ := strings.Cut(rest, " ")
			name, ok := strings.CutPrefix(path, prefix)
			if !ok {
				continue
			}
			if dir, _, deeper := strings.Cut(name, "/"); deeper {
				if !done[dir] {
					done[dir] = true
					entries = append(entries, object.TreeEntry{Mode: object.ModeTree, Name: dir, ID: build(prefix + dir + "/")})
				}
				continue
			}
			e := object.TreeEntry{Name: name, ID: content}
			fmt.Sscanf(mode, "%o", &e.Mode)
			if e.Mode != object.ModeCommit {
				e.ID = r.store.Put(object.Blob, []byte(content))
			}
			entries = append(entries, e)
		}
		return r.store.Put(object.Tree, object.EncodeTree(entries))
	}
	return build("")
}

// fakes are ids of objects that do not exist; notes do not mind. They begin
// with the given digits; an odd number of them makes for few directories,
// which is faster.
func (r *repository) fakes(n int, digits string) []string {
	ids := make([]string, n)
	for i := range ids {
		sum := sha256.Sum256(fmt.Append(nil, i))
		ids[i] = digits + hex.EncodeToString(sum[:])[:len(object.EmptyTree(r.format))-len(digits)]
	}
	slices.Sort(ids)
	return ids
}

func TestTreeReadsTheNotesThatGitWrites(t *testing.T) {
	everywhere(t, func(t *testing.T, r *repository) {
		ids := r.objects(330)
		want := map[string]string{}
		for i, id := range ids[:8] {
			r.git("notes", "--ref=x", "add", "-m", fmt.Sprintf("note %d", i), id)
			want[id] = fmt.Sprintf("note %d\n", i)
		}
		check := func() {
			t.Helper()
			tree := r.notes("x")
			for id, content := range want {
				r.wantGet(tree, id, content)
			}
			if _, ok, err := tree.Get(t.Context(), ids[329]); ok || err != nil {
				t.Errorf("a note that is not there: %v, %v", ok, err)
			}
			var listed []string
			if err := tree.Walk(t.Context(), func(id, blob string) error {
				listed = append(listed, blob+" "+id)
				return nil
			}); err != nil {
				t.Fatal(err)
			}
			if got, want := strings.Join(listed, "\n"), r.git("notes", "--ref=x", "list"); got != want {
				t.Errorf("Walk:\n%.500s\ngit lists:\n%.500s", got, want)
			}
		}
		check()

		// One process for the rest, until git fans out.
		var copies strings.Builder
		for i, id := range ids[8:329] {
			fmt.Fprintf(&copies, "%s %s\n", ids[i%8], id)
			want[id] = want[ids[i%8]]
		}
		r.gitWith(copies.String(), "notes", "--ref=x", "copy", "--stdin")
		if first := r.paths("x")[0]; !strings.HasPrefix(first, "100644 "+ids[0][:2]+"/") {
			t.Fatalf("git did not fan out: %s", first)
		}
		check()
	})
}

func TestGitReadsTheNotesThatTreeWrites(t *testing.T) {
	everywhere(t, func(t *testing.T, r *repository) {
		for _, n := range []int{1, 256, 257} {
			name := fmt.Sprint("n", n)
			ids := r.fakes(n, "0")
			tree := r.load("")
			want := map[string]string{}
			for i, id := range ids {
				want[id] = line(id1, "created", fmt.Sprintf(`"n":%d`, i%10)) + "\n"
				r.set(tree, id, want[id])
			}
			r.publish(name, tree)
			r.wantJudge(name, want)
			for _, id := range []string{ids[0], ids[n/2], ids[n-1]} {
				if got := r.git("notes", "--ref="+name, "show", id) + "\n"; got != want[id] {
					t.Errorf("git shows %q, want %q", got, want[id])
				}
				r.wantGet(tree, id, want[id])
				r.wantGet(r.notes(name), id, want[id])
			}
			flat := 0
			for _, p := range r.paths(name) {
				if !strings.Contains(p, "/") {
					flat++
				}
			}
			if want := map[int]int{1: 1, 256: 256}[n]; flat != want {
				t.Errorf("of %d notes %d are flat, want %d", n, flat, want)
			}
		}
	})
}

func TestAnEmptyTreeIsWrittenAsGitsEmptyTree(t *testing.T) {
	everywhere(t, func(t *testing.T, r *repository) {
		empty := r.gitWith("", "mktree")
		for _, root := range []string{"", empty} {
			if got, err := r.load(root).Write(t.Context()); got != empty || err != nil {
				t.Errorf("Write: %s, %v; want %s", got, err, empty)
			}
		}
	})
}

func TestTheEmptyTreeNeedNotBeInTheStore(t *testing.T) {
	inMemory(t, func(t *testing.T, r *repository) {
		id := r.fakes(1, "ab")[0]
		tree := r.load(object.EmptyTree(r.format))
		r.set(tree, id, "x")
		if got, err := tree.Write(t.Context()); got != r.mktree("100644 "+id+" x") || err != nil {
			t.Errorf("Write: %s, %v", got, err)
		}
	})
}

func TestSetReplacesANoteWhereItStands(t *testing.T) {
	everywhere(t, func(t *testing.T, r *repository) {
		a := r.fakes(4, "ab")
		for i := range a {
			a[i] = a[i][:2] + fmt.Sprintf("%02d", i) + a[i][4:] // no two share two bytes
		}
		at := []string{a[0], a[1][:2] + "/" + a[1][2:], a[2][:2] + "/" + a[2][2:4] + "/" + a[2][4:]}
		before := r.mktree("100644 "+at[0]+" 0", "100644 "+at[1]+" 1", "100755 "+at[2]+" 2")
		tree := r.load(before)
		for i := range at {
			r.wantGet(tree, a[i], fmt.Sprint(i))
			r.set(tree, a[i], fmt.Sprint("new ", i))
			r.wantGet(tree, a[i], fmt.Sprint("new ", i))
		}
		r.set(tree, a[3], "added")
		r.publish("x", tree)
		r.wantJudge("x", map[string]string{a[0]: "new 0", a[1]: "new 1", a[2]: "new 2", a[3]: "added"})
		want := []string{
			"100644 " + at[2],
			"100644 " + at[1],
			"100644 " + a[3][:2] + "/" + a[3][2:], // in the directory for its prefix
			"100644 " + at[0],
		}
		got := r.paths("x")
		slices.Sort(got)
		slices.Sort(want)
		if !slices.Equal(got, want) {
			t.Errorf("got %q, want %q", got, want)
		}
	})
}

func TestATreeThatDidNotChangeIsNotWritten(t *testing.T) {
	inMemory(t, func(t *testing.T, r *repository) {
		ids := r.fakes(600, "")
		tree := r.load("")
		for _, id := range ids {
			r.set(tree, id, "same")
		}
		root, err := tree.Write(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		c := &counting{Store: r.store}
		tree, err = LoadTree(t.Context(), c, r.format, root)
		if err != nil {
			t.Fatal(err)
		}
		r.set(tree, ids[7], "same")
		if got, err := tree.Write(t.Context()); got != root || err != nil {
			t.Errorf("Write: %s, %v; want %s", got, err, root)
		}
		if c.trees != nil {
			t.Errorf("%d trees were put", len(c.trees))
		}
		r.set(tree, ids[7], "other")
		first, err := tree.Write(t.Context())
		if err != nil || first == root || len(c.trees) != 2 {
			t.Errorf("Write: %s, %v, %d trees were put", first, err, len(c.trees))
		}
		if second, err := tree.Write(t.Context()); second != first || err != nil || len(c.trees) != 2 {
			t.Errorf("Write again: %s, %v, %d trees were put", second, err, len(c.trees))
		}
	})
}

func TestGitAndTreeWriteInTurns(t *testing.T) {
	everywhere(t, func(t *testing.T, r *repository) {
		ids := r.objects(320)
		want := map[string]string{}
		ours := func(from, to int, content string) {
			tree := r.notes("x")
			for i, id := range ids[from:to] {
				want[id] = fmt.Sprintf("%s %d\n", content, i%5)
				r.set(tree, id, want[id])
			}
			r.publish("x", tree)
			r.wantJudge("x", want)
		}
		theirs := func(source int, to ...string) {
			var copies strings.Builder
			for _, id := range to {
				fmt.Fprintf(&copies, "%s %s\n", ids[source], id)
				want[id] = want[ids[source]]
			}
			r.gitWith(copies.String(), "notes", "--ref=x", "copy", "-f", "--stdin")
			r.wantJudge("x", want)
		}
		r.git("notes", "--ref=x", "add", "-m", "theirs", ids[0])
		want[ids[0]] = "theirs\n"
		ours(1, 40, "ours")                             // flat
		theirs(0, ids[35:150]...)                       // git fans out
		ours(140, 180, "ours again")                    // replaced and added in git's fan-out
		theirs(1, append(ids[170:200], ids[0:9]...)...) // and back
		r.git("notes", "--ref=x", "remove", ids[1])     // git may fold directories
		delete(want, ids[1])                            //
		ours(200, 320, "more")                          // beside git's directories
		theirs(0, ids[2], ids[250], ids[319])           // and git reads them
		r.git("notes", "--ref=x", "append", "-m", "end", ids[3])
		want[ids[3]] += "\nend\n"
		ours(300, 302, "the last")
	})
}

// counting counts what a tree does with its store.
type counting struct {
	object.Store
	reads int
	trees [][]byte
	blobs int
}

func (c *counting) Read(ctx context.Context, id string) (object.Kind, []byte, error) {
	c.reads++
	return c.Store.Read(ctx, id)
}

func (c *counting) Put(kind object.Kind, data []byte) string {
	if kind == object.Tree {
		c.trees = append(c.trees, data)
	} else {
		c.blobs++
	}
	return c.Store.Put(kind, data)
}

func TestASaveInALongRunRewritesTwoSmallTrees(t *testing.T) {
	inMemory(t, func(t *testing.T, r *repository) {
		ids := r.fakes(10_000, "")
		tree := r.load("")
		for _, id := range ids[1:] {
			r.set(tree, id, "record")
		}
		root, err := tree.Write(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		c := &counting{Store: r.store}
		if tree, err = LoadTree(t.Context(), c, r.format, root); err != nil {
			t.Fatal(err)
		}
		r.set(tree, ids[0], "record")
		if _, err := tree.Write(t.Context()); err != nil {
			t.Fatal(err)
		}
		if c.reads != 2 || len(c.trees) != 2 || c.blobs != 1 {
			t.Errorf("%d objects were read, %d trees and %d blobs put", c.reads, len(c.trees), c.blobs)
		}
		for _, data := range c.trees {
			if entries, err := object.ParseTree(data, len(ids[0])/2); err != nil || len(entries) > 256 {
				t.Errorf("a tree of %d entries, %v", len(entries), err)
			}
		}
	})
}

func TestARunThatGrowsNoteByNoteKeepsItsTreesSmall(t *testing.T) {
	inMemory(t, func(t *testing.T, r *repository) {
		c := &counting{Store: r.store}
		ids := r.fakes(1500, "")
		for i := range 450 {
			ids[i] = "77" + ids[i][2:] // a directory that fills up
		}
		slices.Sort(ids)
		root := ""
		for i := range ids {
			tree, err := LoadTree(t.Context(), c, r.format, root)
			if err != nil {
				t.Fatal(err)
			}
			r.set(tree, ids[i*7%len(ids)], "record")
			if root, err = tree.Write(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		for _, data := range c.trees {
			// 256 directories beside 256 notes that have none.
			if entries, _ := object.ParseTree(data, len(ids[0])/2); len(entries) > 512 {
				t.Fatalf("a tree of %d entries", len(entries))
			}
		}
		var grown []string
		if err := r.load(root).Walk(t.Context(), func(id, _ string) error { grown = append(grown, id); return nil }); err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(grown, ids) {
			t.Errorf("%d notes are there, want %d, each once", len(grown), len(ids))
		}
	})
}

func TestADirectoryOfMoreThan256NotesIsFannedOutAgain(t *testing.T) {
	inMemory(t, func(t *testing.T, r *repository) {
		ids := append(r.fakes(300, "ab"), r.fakes(30, "cd")...)
		tree := r.load("")
		for _, id := range ids {
			r.set(tree, id, "x")
		}
		root, err := tree.Write(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		blob, wanted := object.ID(r.format, object.Blob, []byte("x")), []string{}
		for _, id := range ids {
			path := id[:2] + "/" + id[2:]
			if id[:2] == "ab" {
				path = id[:2] + "/" + id[2:4] + "/" + id[4:]
			}
			wanted = append(wanted, "100644 "+path+" "+blob)
		}
		if got := r.list(root); !slices.Equal(got, wanted) {
			t.Errorf("got\n%.600q\nwant\n%.600q", got, wanted)
		}
		r.wantGet(r.load(root), ids[4], "x")
	})
}

func TestNotesMoveIntoDirectoriesThatAreThere(t *testing.T) {
	inMemory(t, func(t *testing.T, r *repository) {
		ids := r.fakes(600, "")
		var lines []string
		for i, id := range ids[1:] {
			path := []string{id, id[:2] + "/" + id[2:]}[i%2]
			lines = append(lines, "100644 "+path+" x")
		}
		tree := r.load(r.mktree(lines...))
		r.set(tree, ids[0], "x")
		root, err := tree.Write(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		blob, wanted := object.ID(r.format, object.Blob, []byte("x")), []string{}
		for _, id := range ids {
			wanted = append(wanted, "100644 "+id[:2]+"/"+id[2:]+" "+blob)
		}
		if got := r.list(root); !slices.Equal(got, wanted) {
			t.Errorf("%d notes:\n%.600q\nwant %d:\n%.600q", len(got), got, len(wanted), wanted)
		}
	})
}

func TestADirectoryInWhichNothingChangedIsNotFannedOut(t *testing.T) {
	inMemory(t, func(t *testing.T, r *repository) {
		ids, other := r.fakes(300, "ab"), r.fakes(1, "cd")[0]
		lines := []string{"100644 " + other + " x"}
		for _, id := range ids {
			lines = append(lines, "100644 ab/"+id[2:]+" x")
		}
		before := r.mktree(lines...)
		tree := r.load(before)
		r.wantGet(tree, ids[0], "x")
		r.set(tree, other, "y")
		lines[0] = "100644 " + other + " y"
		if got, err := tree.Write(t.Context()); got != r.mktree(lines...) || err != nil {
			t.Errorf("got %.600q, %v", r.list(got), err)
		}
	})
}

func TestADirectoryBelowTheLastByteOfAnIDIsNotOurs(t *testing.T) {
	inMemory(t, func(t *testing.T, r *repository) {
		id := r.fakes(1, "ab")[0]
		var path strings.Builder
		for i := 0; i < len(id); i += 2 {
			path.WriteString(id[i:i+2] + "/")
		}
		root := r.mktree("100644 " + path.String() + "ab x")
		tree := r.load(root)
		if _, ok, err := tree.Get(t.Context(), id); ok || err != nil {
			t.Errorf("Get: %v, %v", ok, err)
		}
		if err := tree.Set(t.Context(), id, nil); !errors.Is(err, fault.Integrity) {
			t.Errorf("Set where a directory stands: %v", err)
		}
		if got := r.merge(root, ""); got != root {
			t.Errorf("merged with nothing: %q", r.list(got))
		}
		beside := id[:len(id)-2] + fmt.Sprintf("%02x", ^id[0])
		r.set(tree, beside, "y")
		r.wantGet(tree, beside, "y")
	})
}

// foreign are entries that are not notes, as lines for mktree, around the
// note on id.
func foreign(id, commit string) []string {
	return []string{
		"100644 README about",
		"100755 bin/tool script",
		"100644 ab/README inside",
		"100644 ab/foo/" + id[2:] + " deeper",
		"100644 ab/" + id[4:] + " too-short-here",
		"100644 foo/" + id[2:] + " no-fan-out",
		"120000 " + id[:len(id)-1] + "0 link",
		"160000 " + id[:len(id)-1] + "1 " + commit,
		"120000 ab/" + id[2:len(id)-1] + "2 link",
		"100644 " + id[:len(id)-1] + "g no-hex",
		"100644 " + id[:len(id)-1] + " short",
		"100644 " + id + "0 long",
		"100644 cd file-where-a-directory-could-be",
	}
}

func TestEntriesThatAreNotNotesStayAsTheyAre(t *testing.T) {
	everywhere(t, func(t *testing.T, r *repository) {
		ids := r.fakes(260, "0")
		abs := r.fakes(260, "ab0")
		cds := r.fakes(2, "cd")
		others := foreign(abs[0], ids[0])
		before := r.mktree(others...)
		wanted := r.list(before)
		tree := r.load(before)
		if err := tree.Walk(t.Context(), func(id, blob string) error { return fmt.Errorf("%s is taken for a note", id) }); err != nil {
			t.Fatal(err)
		}
		want := map[string]string{}
		add := func(ids ...string) {
			for _, id := range ids {
				want[id] = "x"
				r.set(tree, id, "x")
			}
			r.publish("x", tree)
			r.wantJudge("x", want)
			left := slices.DeleteFunc(r.list(r.git("rev-parse", "refs/notes/x^{tree}")), func(l string) bool {
				fields := strings.Fields(l)
				_, ok := want[strings.ReplaceAll(fields[1], "/", "")]
				return fields[0] == "100644" && ok
			})
			if !slices.Equal(left, wanted) {
				t.Fatalf("after %d notes the others are\n%s\nwant\n%s", len(want), strings.Join(left, "\n"), strings.Join(wanted, "\n"))
			}
			tree = r.notes("x")
		}
		add(abs[0])                       // into a directory with others
		add(abs[0][:len(abs[0])-1] + "0") // where a link has the name
		add(ids...)                       // spread at the root
		add(abs...)                       // spread inside 'ab'
		add(cds...)                       // where a file has the directory's name
	})
}

func TestANoteThatHasNoPlaceIsRefused(t *testing.T) {
	inMemory(t, func(t *testing.T, r *repository) {
		id := r.fakes(1, "ab")[0]
		root := r.mktree("120000 "+id+" link", "100644 ab file")
		tree := r.load(root)
		if err := tree.Set(t.Context(), id, []byte("x")); !errors.Is(err, fault.Integrity) {
			t.Errorf("Set: %v", err)
		}
		if got, err := tree.Write(t.Context()); got != root || err != nil {
			t.Errorf("Write: %s, %v; want %s", got, err, root)
		}
	})
}

func TestAnObjectAtTwoPathsHasTheUnionAndIsSetOnce(t *testing.T) {
	everywhere(t, func(t *testing.T, r *repository) {
		id := r.fakes(1, "ab")[0]
		other := r.fakes(1, "cd")[0]
		a, b, c := line(id1, "a", `"x":0`), line(id2, "b"), line(id3, "c")
		a, b, c = strings.ReplaceAll(a, " ", ""), strings.ReplaceAll(b, " ", ""), strings.ReplaceAll(c, " ", "")
		root := r.mktree(
			"100644 "+id+" "+b+"\n"+c+"\n",
			"100644 ab/"+id[2:]+" "+a+"\n"+b+"\n",
			"100644 ab/"+id[2:4]+"/"+id[4:]+" "+c+"\n",
			"100644 "+other+" "+c+"\n",
		)
		tree := r.load(root)
		if twice, err := tree.Duplicates(t.Context()); err != nil || !slices.Equal(twice, []string{id}) {
			t.Errorf("duplicates: %v, %v", twice, err)
		}
		walked := map[string]int{}
		if err := tree.Walk(t.Context(), func(id, blob string) error { walked[id]++; return nil }); err != nil || !maps.Equal(walked, map[string]int{id: 3, other: 1}) {
			t.Errorf("Walk: %v, %v", walked, err)
		}
		both := string(jsonl(a, b, c))
		r.wantGet(tree, id, both)
		r.set(tree, id, both)
		r.wantGet(tree, id, both)
		r.publish("x", tree)
		r.wantJudge("x", map[string]string{id: both, other: c + "\n"})
		if p := r.paths("x"); len(p) != 2 {
			t.Errorf("paths: %q", p)
		}

		merged, err := MergeTrees(t.Context(), r.store, r.format, root, "")
		if err != nil {
			t.Fatal(err)
		}
		r.point("healed", merged)
		r.wantJudge("healed", map[string]string{id: both, other: c + "\n"})

		// Also when the one that stays is right as it is.
		tree = r.load(root)
		r.set(tree, id, c+"\n")
		r.publish("y", tree)
		r.wantJudge("y", map[string]string{id: c + "\n", other: c + "\n"})

		damaged := r.load(r.mktree("100644 "+id+" "+b+"\n", "100644 ab/"+id[2:]+" text\n"))
		if _, _, err := damaged.Get(t.Context(), id); !errors.Is(err, fault.Integrity) || !strings.Contains(err.Error(), id) {
			t.Errorf("Get of a damaged copy: %v", err)
		}
	})
}

func TestOneNoteIsReturnedWithoutBeingParsed(t *testing.T) {
	inMemory(t, func(t *testing.T, r *repository) {
		id := r.fakes(1, "ab")[0]
		r.wantGet(r.load(r.mktree("100644 "+id+" text", "100644 ab/"+id[2:]+" text")), id, "text")
	})
}

func TestDamagedTreesAndWrongIDsAreRefused(t *testing.T) {
	everywhere(t, func(t *testing.T, r *repository) {
		id := r.fakes(1, "ab")[0]
		blob := r.store.Put(object.Blob, []byte("x"))
		half := r.store.Put(object.Tree, []byte("100644 half"))
		twice := r.store.Put(object.Tree, slices.Concat(
			object.EncodeTree([]object.TreeEntry{{Mode: object.ModeFile, Name: "ab", ID: blob}}),
			object.EncodeTree([]object.TreeEntry{{Mode: object.ModeTree, Name: "ab", ID: half}})))
		for title, root := range map[string]string{"missing": id, "a blob": blob, "cut off": half, "one name twice": twice} {
			if _, err := LoadTree(t.Context(), r.store, r.format, root); !errors.Is(err, fault.Integrity) {
				t.Errorf("%s: LoadTree: %v", title, err)
			}
		}
		tree := r.load(r.store.Put(object.Tree, object.EncodeTree([]object.TreeEntry{{Mode: object.ModeTree, Name: "ab", ID: half}})))
		ignore := func(string, string) error { return nil }
		_, _, get := tree.Get(t.Context(), id)
		_, duplicates := tree.Duplicates(t.Context())
		for what, err := range map[string]error{
			"Get": get, "Set": tree.Set(t.Context(), id, nil), "Walk": tree.Walk(t.Context(), ignore), "Duplicates": duplicates,
		} {
			if !errors.Is(err, fault.Integrity) {
				t.Errorf("%s in a damaged directory: %v", what, err)
			}
		}
		if _, ok, err := tree.Get(t.Context(), r.fakes(1, "cd")[0]); ok || err != nil {
			t.Errorf("Get beside a damaged directory: %v, %v", ok, err)
		}
		if _, err := MergeTrees(t.Context(), r.store, r.format, "", id); !errors.Is(err, fault.Integrity) {
			t.Errorf("MergeTrees with a missing tree: %v", err)
		}
		for title, blob := range map[string]string{"missing": id, "a tree": half} {
			tree := r.load(r.store.Put(object.Tree, object.EncodeTree([]object.TreeEntry{{Mode: object.ModeFile, Name: id, ID: blob}})))
			if _, ok, err := tree.Get(t.Context(), id); ok || !errors.Is(err, fault.Integrity) {
				t.Errorf("Get of a note that is %s: %v, %v", title, ok, err)
			}
		}
		for _, wrong := range []string{"", "HEAD", id[:10], strings.ToUpper(id), id + id} {
			if _, _, err := tree.Get(t.Context(), wrong); !errors.Is(err, fault.Invalid) {
				t.Errorf("Get of %q: %v", wrong, err)
			}
			if err := tree.Set(t.Context(), wrong, nil); !errors.Is(err, fault.Invalid) {
				t.Errorf("Set of %q: %v", wrong, err)
			}
		}
	})
}

func TestAWalkEndsWithTheErrorOfItsCallback(t *testing.T) {
	inMemory(t, func(t *testing.T, r *repository) {
		tree := r.load("")
		for _, id := range r.fakes(3, "") {
			r.set(tree, id, "x")
		}
		enough, calls := errors.New("enough"), 0
		if err := tree.Walk(t.Context(), func(string, string) error { calls++; return enough }); err != enough || calls != 1 {
			t.Errorf("Walk: %v after %d calls", err, calls)
		}
	})
}

// merge merges both ways round and wants one result.
func (r *repository) merge(a, b string) string {
	r.t.Helper()
	ab, err := MergeTrees(r.t.Context(), r.store, r.format, a, b)
	if err != nil {
		r.t.Fatal(err)
	}
	ba, err := MergeTrees(r.t.Context(), r.store, r.format, b, a)
	if err != nil {
		r.t.Fatal(err)
	}
	if ab != ba {
		r.t.Fatalf("one way round: %q\nthe other: %q", r.list(ab), r.list(ba))
	}
	return ab
}

func TestMergedNotesAreWhatGitMakesOfThem(t *testing.T) {
	everywhere(t, func(t *testing.T, r *repository) {
		ids := r.fakes(300, "0")
		a, b := r.load(""), r.load("")
		for i, id := range ids {
			shared := string(jsonl(line(id1, "created")))
			if i%3 != 0 {
				r.set(a, id, shared)
			}
			if i%3 != 1 {
				r.set(b, id, shared)
			}
			if i%5 == 2 {
				r.set(a, id, shared+string(jsonl(line(id2, "status", `"from":"a"`))))
				r.set(b, id, shared+string(jsonl(line(id2, "status", `"from":"b"`), line(id3, "archived"))))
			}
		}
		// git needs a common ancestor without the notes.
		r.point("a", r.gitWith("", "mktree"))
		r.git("update-ref", "refs/notes/b", "refs/notes/a")
		rootA, rootB := r.publish("a", a), r.publish("b", b)
		r.point("ours", r.merge(rootA, rootB))
		r.git("notes", "--ref=a", "merge", "-q", "-s", "cat_sort_uniq", "b")
		if got, want := r.git("notes", "--ref=ours", "list"), r.git("notes", "--ref=a", "list"); got != want {
			t.Errorf("we make\n%.600s\ngit makes\n%.600s", got, want)
		}
	})
}

func TestTheFormOfAMergedTreeDependsOnlyOnItsNotes(t *testing.T) {
	inMemory(t, func(t *testing.T, r *repository) {
		for _, c := range []struct {
			title  string
			ids    []string
			depths map[int]int // how many notes stand how many directories deep
		}{
			{"256 are flat", r.fakes(256, ""), map[int]int{0: 256}},
			{"257 are in directories", r.fakes(257, ""), map[int]int{1: 257}},
			{"a directory of 257 has directories", append(r.fakes(257, "ab"), r.fakes(3, "cd")...), map[int]int{1: 3, 2: 257}},
		} {
			t.Run(c.title, func(t *testing.T) {
				// The notes flat, in git's own fan-out, two levels deep, and a mixture.
				forms := []func(i int, id string) string{
					func(_ int, id string) string { return id },
					func(_ int, id string) string { return id[:2] + "/" + id[2:] },
					func(_ int, id string) string { return id[:2] + "/" + id[2:4] + "/" + id[4:] },
					func(i int, id string) string { return []string{id, id[:2] + "/" + id[2:]}[i%2] },
				}
				var roots []string
				for _, form := range forms {
					var lines []string
					for i, id := range c.ids {
						lines = append(lines, "100644 "+form(i, id)+" x")
					}
					roots = append(roots, r.mktree(lines...))
				}
				want := r.merge(roots[0], "")
				for i, a := range roots {
					if got := r.merge(a, roots[(i+1)%len(roots)]); got != want {
						t.Errorf("form %d gives %s, want %s", i, got, want)
					}
				}
				depths := map[int]int{}
				for _, p := range r.list(want) {
					depths[strings.Count(p, "/")]++
				}
				if !maps.Equal(depths, c.depths) {
					t.Errorf("notes stand %v deep, want %v", depths, c.depths)
				}
				if again := r.merge(want, want); again != want {
					t.Errorf("merged again it is %s, was %s", again, want)
				}
			})
		}
	})
}

func TestMergingTreesCommutesAndAssociates(t *testing.T) {
	inMemory(t, func(t *testing.T, r *repository) {
		ids := r.fakes(400, "")
		var roots []string
		for side := range 3 {
			tree := r.load("")
			for i, id := range ids {
				if (i*7+side)%3 != 0 {
					n, _, err := Append(jsonl(line(id1, "created")), noon, "status", map[string]int{"side": side, "i": i % 4})
					if err != nil {
						t.Fatal(err)
					}
					r.set(tree, id, string(n))
				}
			}
			root, err := tree.Write(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			roots = append(roots, root)
		}
		a, b, c := roots[0], roots[1], roots[2]
		if left, right := r.merge(r.merge(a, b), c), r.merge(a, r.merge(b, c)); left != right {
			t.Errorf("(a b) c is %s, a (b c) is %s", left, right)
		}
		if ab := r.merge(a, b); r.merge(ab, a) != ab || r.merge(ab, b) != ab {
			t.Error("a side changes a merge that holds it")
		}
	})
}

func TestMergeTreesLosesNoSideOfADamagedNote(t *testing.T) {
	inMemory(t, func(t *testing.T, r *repository) {
		id, other := r.fakes(1, "ab")[0], r.fakes(1, "cd")[0]
		good := r.mktree("100644 "+id+" "+line(id1, "a")+"\n", "100644 "+other+" free-text")
		bad := r.mktree("100644 "+id+" free-text", "100644 cd/"+other[2:]+" free-text")
		for _, sides := range [][2]string{{good, bad}, {bad, good}} {
			root, err := MergeTrees(t.Context(), r.store, r.format, sides[0], sides[1])
			if root != "" || !errors.Is(err, fault.Integrity) || !strings.Contains(err.Error(), id) {
				t.Errorf("MergeTrees: %s, %v", root, err)
			}
		}
		// Equal on both sides, it is not looked at.
		tree := r.load(r.merge(good, r.mktree("100644 cd/"+other[2:]+" free-text")))
		r.wantGet(tree, other, "free-text")
	})
}

func TestOtherEntriesAreMergedByPath(t *testing.T) {
	inMemory(t, func(t *testing.T, r *repository) {
		id := r.fakes(1, "ab")[0]
		greater := func(a, b string) string {
			if object.ID(r.format, object.Blob, []byte(a)) > object.ID(r.format, object.Blob, []byte(b)) {
				return a
			}
			return b
		}
		a := r.mktree("100644 "+id+" note", "100644 README a", "100644 doc/a a", "100644 doc/both a", "100644 ab/x a", "100644 same/s s")
		b := r.mktree("100644 ab/"+id[2:]+" note", "100644 README b", "100644 doc/b b", "100644 doc/both b", "100644 ab/y b", "100644 same/s s", "120000 ef b")
		want := r.mktree("100644 "+id+" note",
			"100644 README "+greater("a", "b"), "100644 doc/a a", "100644 doc/b b", "100644 doc/both "+greater("a", "b"),
			"100644 ab/x a", "100644 ab/y b", "100644 same/s s", "120000 ef b")
		if got := r.merge(a, b); got != want {
			t.Errorf("got  %q\nwant %q", r.list(got), r.list(want))
		}
	})
}

func TestOfAFileAndADirectoryTheGreaterIDStays(t *testing.T) {
	inMemory(t, func(t *testing.T, r *repository) {
		id := r.fakes(1, "ab")[0]
		dir := r.mktree("100644 inner x")
		for _, content := range []string{"0", "1", "2", "3", "4", "5", "6", "7"} {
			file := object.ID(r.format, object.Blob, []byte(content))
			for _, name := range []string{"foo", "ab"} {
				want := r.mktree("100644 "+name+" "+content, "100644 "+id+" note")
				if dir > file {
					want = r.mktree("100644 "+name+"/inner x", "100644 "+id+" note")
				}
				got := r.merge(r.mktree("100644 "+name+" "+content, "100644 "+id+" note"), r.mktree("100644 "+name+"/inner x"))
				if got != want {
					t.Errorf("%s: got %q, want %q", name, r.list(got), r.list(want))
				}
			}
		}
	})
}

func TestAMergedNoteMakesWayForAnotherEntryOfItsName(t *testing.T) {
	inMemory(t, func(t *testing.T, r *repository) {
		id := r.fakes(1, "ab")[0]
		got := r.merge(r.mktree("120000 "+id+" link"), r.mktree("100644 "+id+" note"))
		if want := r.mktree("120000 "+id+" link", "100644 ab/"+id[2:]+" note"); got != want {
			t.Errorf("got %q, want %q", r.list(got), r.list(want))
		}
		got = r.merge(r.mktree("120000 "+id+" link", "100644 ab/README x"), r.mktree("100644 "+id+" note"))
		if want := r.mktree("120000 "+id+" link", "100644 ab/README x", "100644 ab/"+id[2:]+" note"); got != want {
			t.Errorf("got %q, want %q", r.list(got), r.list(want))
		}
		blocked := r.mktree("120000 "+id+" link", "100644 ab file")
		if _, err := MergeTrees(t.Context(), r.store, r.format, blocked, r.mktree("100644 "+id+" note")); !errors.Is(err, fault.Integrity) {
			t.Errorf("MergeTrees without a place: %v", err)
		}
	})
}

func TestMergingIntoNothingIsFannedOutAfresh(t *testing.T) {
	inMemory(t, func(t *testing.T, r *repository) {
		if got := r.merge("", ""); got != object.EmptyTree(r.format) {
			t.Errorf("nothing and nothing make %s", got)
		}
		id := r.fakes(1, "ab")[0]
		got := r.merge("", r.mktree("100755 ab/"+id[2:]+" x"))
		if want := r.mktree("100644 " + id + " x"); got != want {
			t.Errorf("got %q, want %q", r.list(got), r.list(want))
		}
	})
}

func TestANameInCapitalsIsNotANote(t *testing.T) {
	inMemory(t, func(t *testing.T, r *repository) {
		id := r.fakes(1, "ab")[0]
		capitals := "100644 AB/" + strings.ToUpper(id[2:]) + " kept"
		tree := r.load(r.mktree(capitals))
		r.set(tree, id, "note")
		got, err := tree.Write(t.Context())
		if want := r.mktree(capitals, "100644 "+id+" note"); got != want || err != nil {
			t.Errorf("got %q, %v; want %q", r.list(got), err, r.list(want))
		}
	})
}

func TestNotesMayHoldAnything(t *testing.T) {
	everywhere(t, func(t *testing.T, r *repository) {
		id := r.objects(1)[0]
		for _, content := range []string{"", "\x00\n\xff", strings.Repeat("long ", 1<<18)} {
			tree := r.load("")
			r.set(tree, id, content)
			r.publish("x", tree)
			got, ok, err := r.notes("x").Get(t.Context(), id)
			if err != nil || !ok || !bytes.Equal(got, []byte(content)) {
				t.Errorf("got %d bytes, %v, %v; want %d", len(got), ok, err, len(content))
			}
		}
	})
}
