package snapshot

import (
	"encoding/hex"
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
		v, err := base.View()
		if err != nil {
			t.Fatal(err)
		}
		s := &Snapshot{Tree: baseTree, Files: base, content: contents(v, base.Tree)}
		if base.Tree == nil {
			s.content = nil
		}
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
		if base.Tree != nil {
			n := &native{after: v, out: s, start: 1}
			var edits []index.Edit
			for _, c := range d.Changes {
				e := index.Edit{Path: c.Path, Drop: c.ToMode == 0, Record: (&index.Stat{}).Record(c.ToMode)}
				hex.Decode(e.ID[:], []byte(c.ToID))
				edits = append(edits, e)
			}
			data, tree, err := n.reindexed(edits, nil)
			if err != nil || tree != wantTree {
				t.Fatalf("round %d: tree %s, not %s: %v", round, tree, wantTree, err)
			}
			if x, err := index.Parse(data, 20); err != nil || len(x.Entries) != len(want.Entries) || len(x.Entries) > 0 && !reflect.DeepEqual(x.Entries, want.Entries) || len(x.Entries) > 0 && !reflect.DeepEqual(x.Tree, want.Tree) {
				t.Errorf("round %d: %v\nnot %v, %v", round, x, want.Entries, err)
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
	id := strings.Repeat("1", 40)
	x := &index.Index{}
	for _, path := range []string{"a/b", "a/c", "d"} {
		x.Entries = append(x.Entries, index.Entry{Path: path, Mode: index.ModeFile, ID: id})
	}
	v, err := x.View()
	if err != nil {
		t.Fatal(err)
	}
	for name, tree := range map[string]*index.CacheTree{
		"too many":      {EntryCount: 4},
		"no directory":  {EntryCount: 3},
		"invalid":       {EntryCount: 3, Children: []*index.CacheTree{{Name: "a", EntryCount: -1}}},
		"too much of a": {EntryCount: 3, Children: []*index.CacheTree{{Name: "a", EntryCount: 3, ID: id}}},
	} {
		if _, err := contents(v, tree)(""); !errors.Is(err, index.ErrCacheTree) {
			t.Errorf("%s: %v", name, err)
		}
	}
	good := &index.CacheTree{EntryCount: 3, Children: []*index.CacheTree{{Name: "a", EntryCount: 2, ID: id}}}
	content, err := contents(v, good)("")
	if want := "40000 a\x00" + strings.Repeat("\x11", 20) + "100644 d\x00" + strings.Repeat("\x11", 20); err != nil || string(content) != want {
		t.Errorf("%q, %v", content, err)
	}
}
