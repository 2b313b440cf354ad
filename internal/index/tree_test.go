package index

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"
)

// treeStore keeps trees by the id that git gives them.
type treeStore struct {
	hashLen int
	trees   map[string]string
}

func (s *treeStore) put(tree []byte) string {
	object := append(fmt.Appendf(nil, "tree %d\x00", len(tree)), tree...)
	id := hex.EncodeToString(checksum(object, s.hashLen))
	if s.trees == nil {
		s.trees = map[string]string{}
	}
	s.trees[id] = string(tree)
	return id
}

// treeEntries are what git write-tree makes trees of.
func treeEntries(x *Index) []TreeEntry {
	var entries []TreeEntry
	for _, e := range x.Entries {
		if !e.IntentToAdd {
			entries = append(entries, TreeEntry{Mode: e.Mode, ID: e.ID, Path: e.Path})
		}
	}
	return entries
}

func (r *repo) writeTree() string {
	r.t.Helper()
	return strings.TrimSpace(r.git("write-tree", "--missing-ok"))
}

func TestBuildTreesMakesTheTreesOfGit(t *testing.T) {
	for seed := range uint64(4) {
		hashLen := []int{20, 32}[seed%2]
		t.Run(fmt.Sprintf("random paths %d", seed), func(t *testing.T) {
			t.Parallel()
			random := rand.New(rand.NewPCG(seed, 1))
			r := newRepo(t, hashLen)
			r.indexInfo(randomLines(random, hashLen, 300)...)
			x := r.read()
			store := &treeStore{hashLen: hashLen}
			got, err := BuildTrees(treeEntries(x), nil, hashLen, store.put)
			if err != nil {
				t.Fatal(err)
			}
			if want := r.writeTree(); got != want {
				t.Fatalf("got the root %s, want %s", got, want)
			}
			for _, line := range strings.Split(r.git("ls-tree", "-r", "-d", "-t", "-z", got), "\x00") {
				if line == "" || strings.HasPrefix(line, "160000") {
					continue
				}
				if id := strings.Fields(line)[2]; store.trees[id] == "" {
					t.Errorf("%q was not put", line)
				}
			}
		})
	}
}

// randomLines are entries for git update-index --index-info whose names collide
// around '/', which git sorts in two ways. There are fewer than n, since some
// would be there twice or be a file and a directory.
func randomLines(random *rand.Rand, hashLen, n int) []string {
	names := []string{"a", "a-", "a.", "a0", "a\x01", "ab", "b", "b\xff", "日", " ", "B", "a.b", "long" + strings.Repeat("g", 50)}
	files, dirs := map[string]bool{}, map[string]bool{}
	var lines []string
	for range n {
		parts := make([]string, 1+random.IntN(4))
		for i := range parts {
			parts[i] = names[random.IntN(len(names))]
		}
		path := strings.Join(parts, "/")
		above := []string{}
		for i := 1; i < len(parts); i++ {
			above = append(above, strings.Join(parts[:i], "/"))
		}
		if dirs[path] || files[path] || slices.ContainsFunc(above, func(dir string) bool { return files[dir] }) {
			continue
		}
		files[path] = true
		for _, dir := range above {
			dirs[dir] = true
		}
		id := make([]byte, hashLen)
		for i := range id {
			id[i] = byte(random.IntN(256))
		}
		mode := []string{"100644", "100755", "120000", "160000"}[random.IntN(4)]
		lines = append(lines, fmt.Sprintf("%s %x\t%s", mode, id, path))
	}
	return lines
}

func TestBuildTreesTakesWhatTheCacheTreeHas(t *testing.T) {
	for seed := range uint64(4) {
		t.Run(fmt.Sprintf("random paths %d", seed), func(t *testing.T) {
			t.Parallel()
			random := rand.New(rand.NewPCG(seed, 2))
			r := newRepo(t, 20)
			r.indexInfo(randomLines(random, 20, 300)...)
			want := r.writeTree()
			x := r.read()
			got, err := BuildTrees(treeEntries(x), x.Tree, 20, func([]byte) string {
				t.Error("put was called, although the whole cache tree is valid")
				return ""
			})
			if err != nil || got != want {
				t.Fatalf("got the root %s, %v, want %s", got, err, want)
			}

			e := x.Entries[random.IntN(len(x.Entries))]
			r.indexInfo("100644 " + r.id("9") + "\t" + e.Path)
			x = r.read()
			store := &treeStore{hashLen: 20}
			got, err = BuildTrees(treeEntries(x), x.Tree, 20, store.put)
			if err != nil {
				t.Fatal(err)
			}
			if want := 1 + strings.Count(e.Path, "/"); len(store.trees) != want {
				t.Errorf("%d trees were put after a change of %q, want %d", len(store.trees), e.Path, want)
			}
			if want := r.writeTree(); got != want {
				t.Errorf("got the root %s, want %s", got, want)
			}
		})
	}
}

func TestBuildTreesDoesNotTrustACacheTreeOfAnotherSize(t *testing.T) {
	r := newRepo(t, 20)
	makeFiles(r)
	r.commit("one")
	x := r.read()
	entries := treeEntries(x)
	i := slices.IndexFunc(entries, func(e TreeEntry) bool { return e.Path == "dir/b.txt" })
	entries = slices.Delete(entries, i, i+1)
	store := &treeStore{hashLen: 20}
	got, err := BuildTrees(entries, x.Tree, 20, store.put)
	if err != nil {
		t.Fatal(err)
	}
	r.git("update-index", "--force-remove", "dir/b.txt")
	if want := r.writeTree(); got != want || len(store.trees) != 2 {
		t.Errorf("got the root %s after %d trees, want %s after 2", got, len(store.trees), want)
	}
}

func TestBuildTreesLeavesOutWhatIsOnlyIntended(t *testing.T) {
	r := newRepo(t, 20)
	makeFiles(r)
	r.commit("one")
	r.write("dir/sub/later", "later")
	r.git("add", "-N", "dir/sub/later")
	want := r.writeTree()
	x := r.read()
	store := &treeStore{hashLen: 20}
	got, err := BuildTrees(treeEntries(x), x.Tree, 20, store.put)
	if err != nil || got != want {
		t.Errorf("got the root %s, %v, want %s", got, err, want)
	}
}

func TestBuildTreesMakesTheEmptyTreeOfNothing(t *testing.T) {
	for _, hashLen := range []int{20, 32} {
		r := newRepo(t, hashLen)
		want := strings.TrimSpace(r.git("hash-object", "-t", "tree", os.DevNull))
		store := &treeStore{hashLen: hashLen}
		got, err := BuildTrees(nil, &CacheTree{ID: want}, hashLen, store.put)
		if _, put := store.trees[got]; err != nil || got != want || !put {
			t.Errorf("got the root %s, %v, want %s", got, err, want)
		}
	}
}

func TestBuildTreesNormalisesModesAsGitDoes(t *testing.T) {
	for _, mode := range []uint32{0o100644, 0o100600, 0o100664, 0o100755, 0o100775, 0o100700, 0o100611, 0o120000, 0o120777, 0o160000, 0o160755} {
		t.Run(fmt.Sprintf("%o", mode), func(t *testing.T) {
			r := newRepo(t, 20)
			r.git("update-index", "--add", "--cacheinfo", fmt.Sprintf("%o,%s,f", mode, r.id("1")))
			store := &treeStore{hashLen: 20}
			got, err := BuildTrees([]TreeEntry{{Mode: mode, ID: r.id("1"), Path: "f"}}, nil, 20, store.put)
			if want := r.writeTree(); err != nil || got != want {
				t.Errorf("got the tree %q, %v, want %s", store.trees[got], err, want)
			}
		})
	}
}

func TestBuildTreesRefuses(t *testing.T) {
	files := func(paths ...string) []TreeEntry {
		var entries []TreeEntry
		for _, path := range paths {
			entries = append(entries, TreeEntry{Mode: ModeFile, ID: strings.Repeat("a", 40), Path: path})
		}
		return entries
	}
	tests := []struct {
		title   string
		entries []TreeEntry
		says    string
	}{
		{"a path that is there twice", files("a", "a"), "more than once"},
		{"a file that is a directory as well", files("a", "a/b"), "both a file and the directory"},
		{"the same with names that sort between them", files("a", "a-", "a-b", "a.c/d", "a/b"), "both a file and the directory"},
		{"the same further down", files("d/a", "d/a!", "d/a/b/c"), "both a file and the directory"},
		{"a link that is a directory as well", []TreeEntry{
			{ModeGitlink, strings.Repeat("a", 40), "a"}, files("a/b")[0]}, "both a file and the directory"},
		{"paths that are not sorted", files("b", "a"), "not in order"},
		{"paths that are sorted as trees are", files("a/b", "a-b"), "not in order"},
		{"a path in the repository", files(".git/a"), `".git"`},
		{"a path that leaves the working tree", files("a/../b"), `".."`},
		{"an absolute path", files("/a"), "empty component"},
		{"a directory", []TreeEntry{{ModeDir, strings.Repeat("a", 40), "a"}}, "mode 040000"},
		{"a FIFO", []TreeEntry{{0o010644, strings.Repeat("a", 40), "a"}}, "mode 010644"},
		{"an id of another length", []TreeEntry{{ModeFile, strings.Repeat("a", 64), "a"}}, "object id"},
		{"the null id", []TreeEntry{{ModeFile, strings.Repeat("0", 40), "a"}}, "object id"},
		{"a path of too many directories", files(strings.Repeat("d/", maxDepth+1) + "f"), "nest more than"},
	}
	for _, test := range tests {
		t.Run(test.title, func(t *testing.T) {
			store := &treeStore{hashLen: 20}
			root, err := BuildTrees(test.entries, nil, 20, store.put)
			if err == nil || root != "" {
				t.Fatalf("got the root %q and the error %v", root, err)
			}
			if !strings.Contains(err.Error(), test.says) {
				t.Errorf("the error %.200q does not say %q", err, test.says)
			}
		})
	}
	t.Run("a tree that put does not store", func(t *testing.T) {
		if _, err := BuildTrees(files("a/b"), nil, 20, func([]byte) string { return "" }); err == nil {
			t.Error("there is no error")
		}
	})
	t.Run("a cache tree of other ids", func(t *testing.T) {
		cache := &CacheTree{EntryCount: 1, ID: strings.Repeat("a", 64)}
		if _, err := BuildTrees(files("a"), cache, 20, (&treeStore{hashLen: 20}).put); err == nil {
			t.Error("there is no error")
		}
	})
}

func TestBuildTreesTakesFilesBesideDirectoriesOfSimilarNames(t *testing.T) {
	r := newRepo(t, 20)
	paths := []string{"a", "a-", "a-b", "a.c/d", "ab/c", "b/a", "b/a-/x", "b/a.", "b.x"}
	slices.Sort(paths)
	var lines []string
	for _, path := range paths {
		lines = append(lines, "100644 "+r.id("1")+"\t"+path)
	}
	r.indexInfo(lines...)
	got, err := BuildTrees(treeEntries(r.read()), nil, 20, (&treeStore{hashLen: 20}).put)
	if want := r.writeTree(); err != nil || got != want {
		t.Errorf("got the root %s, %v, want %s", got, err, want)
	}
}

func TestInvalidateDoesWhatGitDoesFor(t *testing.T) {
	tests := []struct {
		title       string
		git         func(r *repo)
		invalidates []string
	}{
		{"a changed file", func(r *repo) { r.indexInfo("100644 " + r.id("1") + "\tdir/b.txt") }, []string{"dir/b.txt"}},
		{"a changed file at the top", func(r *repo) { r.indexInfo("100644 " + r.id("1") + "\ta.txt") }, []string{"a.txt"}},
		{"a removed file", func(r *repo) { r.git("update-index", "--force-remove", "dir/sub/deep.txt") }, []string{"dir/sub/deep.txt"}},
		{"a file in a new directory", func(r *repo) { r.indexInfo("100644 " + r.id("1") + "\tdir/new/f") }, []string{"dir/new/f"}},
		{"a file that replaces a directory", func(r *repo) {
			r.git("update-index", "--add", "--replace", "--cacheinfo", "100644,"+r.id("1")+",dir/sub")
		}, []string{"dir/sub/deep.txt", "dir/sub"}},
	}
	for _, test := range tests {
		t.Run(test.title, func(t *testing.T) {
			r := newRepo(t, 20)
			makeFiles(r)
			r.commit("one")
			before := r.read()
			test.git(r)
			after := r.read()
			for _, path := range test.invalidates {
				before.Tree.Invalidate(path)
			}
			got, want := encode(t, &Index{Tree: before.Tree}, 20), encode(t, &Index{Tree: after.Tree}, 20)
			if !bytes.Equal(got, want) {
				t.Errorf("got the cache tree\n%q, want\n%q", got, want)
			}
		})
	}
	t.Run("an index without cache tree", func(t *testing.T) {
		(*CacheTree)(nil).Invalidate("a/b")
	})
}

func TestGitWritesTheRightTreeOfAnIndexThatWasChangedHere(t *testing.T) {
	r := newRepo(t, 20)
	makeFiles(r)
	r.commit("one")
	x := r.read()
	e, ok := x.Lookup("dir/sub/deep.txt", 0)
	if !ok {
		t.Fatal("the entry is missing")
	}
	e.ID, e.Stat = r.id("1"), Stat{}
	x.Tree.Invalidate(e.Path)
	store := &treeStore{hashLen: 20}
	got, err := BuildTrees(treeEntries(x), x.Tree, 20, store.put)
	if err != nil {
		t.Fatal(err)
	}
	if err := x.WriteFile(r.indexPath(), 20); err != nil {
		t.Fatal(err)
	}
	if want := r.writeTree(); got != want || len(store.trees) != 3 {
		t.Errorf("got the root %s after %d trees, want %s after 3", got, len(store.trees), want)
	}
}
