package snapshot

import (
	"errors"
	"fmt"
	"maps"
	"math/rand"
	"os/exec"
	"reflect"
	"strings"
	"testing"

	"github.com/git-checkpoint/git-checkpoint/internal/git"
	"github.com/git-checkpoint/git-checkpoint/internal/gittest"
	"github.com/git-checkpoint/git-checkpoint/internal/index"
	"github.com/git-checkpoint/git-checkpoint/internal/object"
)

// gitIndex is an index that git writes.
func gitIndex(t *testing.T, dir string, files map[string]string) (x *index.Index, tree string) {
	t.Helper()
	file, tree := gittest.WriteIndex(t, dir, files)
	x, err := index.Read(file, 20)
	if err != nil {
		t.Fatal(err)
	}
	return x, tree
}

// What Compare, Apply and CacheTree make of one index and of another's tree is
// the other's index, as git writes it.
func TestAnIndexFromAnotherAndWhatIsDifferent(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if out, err := exec.Command("git", "init", "-q", dir).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	repo, err := git.Open(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	store := object.Open(repo)
	defer store.Close()
	r := rand.New(rand.NewSource(3))
	entry := func() string {
		mode := []string{"100644", "100755", "120000", "160000"}[r.Intn(4)]
		return mode + " " + strings.Repeat(fmt.Sprint(1+r.Intn(3)), 40)
	}
	path := func() string {
		parts := make([]string, 1+r.Intn(4))
		for i := range parts {
			parts[i] = []string{"a", "a-", "a.b", "a0", "bb", "b", "\xff"}[r.Intn(7)]
		}
		return strings.Join(parts, "/")
	}
	for round := range 15 {
		from := map[string]string{}
		for range r.Intn(60) {
			from[path()] = entry()
		}
		to := maps.Clone(from)
		for p := range from {
			if r.Intn(5) == 0 {
				delete(to, p)
			}
		}
		for range r.Intn(12) {
			to[path()] = entry()
		}
		base, baseTree := gitIndex(t, dir, from)
		want, wantTree := gitIndex(t, dir, to)
		s := &Snapshot{Tree: baseTree, Files: base}
		d, err := s.Compare(t.Context(), store, "sha1", wantTree)
		if err != nil {
			t.Fatal(err)
		}
		got := Apply(base.Entries, d)
		if len(got)+len(want.Entries) > 0 && !reflect.DeepEqual(got, want.Entries) {
			t.Errorf("round %d: %v\nnot %v", round, got, want.Entries)
		}
		if len(got) > 0 && len(base.Entries) > 0 {
			if tree := CacheTree(got, d, base.Tree); !reflect.DeepEqual(tree, want.Tree) {
				t.Errorf("round %d: another cache tree than git's", round)
			}
		}
		whole, err := object.Compare(t.Context(), store, "sha1", baseTree, wantTree)
		if err != nil || !reflect.DeepEqual(whole, d) {
			t.Errorf("round %d: %v\nnot %v, %v", round, d, whole, err)
		}
	}
}

// A cache tree that is not that of the entries is found to be so.
func TestACacheTreeThatDoesNotFit(t *testing.T) {
	t.Parallel()
	entries := []index.Entry{{Path: "a/b"}, {Path: "a/c"}, {Path: "d"}}
	id := strings.Repeat("1", 40)
	for name, tree := range map[string]*index.CacheTree{
		"too many":      {EntryCount: 4},
		"no directory":  {EntryCount: 3},
		"invalid":       {EntryCount: 3, Children: []*index.CacheTree{{Name: "a", EntryCount: -1}}},
		"too much of a": {EntryCount: 3, Children: []*index.CacheTree{{Name: "a", EntryCount: 3, ID: id}}},
	} {
		if _, err := listDirectory(entries, map[string]*index.CacheTree{"": tree}, ""); !errors.Is(err, errCacheTree) {
			t.Errorf("%s: %v", name, err)
		}
	}
	good := &index.CacheTree{EntryCount: 3, Children: []*index.CacheTree{{Name: "a", EntryCount: 2, ID: id}}}
	if list, err := listDirectory(entries, map[string]*index.CacheTree{"": good}, ""); err != nil || len(list) != 2 {
		t.Errorf("%v, %v", list, err)
	}
}
