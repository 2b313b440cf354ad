package object_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand"
	"strings"
	"testing"

	"github.com/git-checkpoint/git-checkpoint/internal/fault"
	"github.com/git-checkpoint/git-checkpoint/internal/gittest"
	"github.com/git-checkpoint/git-checkpoint/internal/object"
)

// somePath makes a path of few components, so that files and directories
// often want the same place, and of bytes between which '/' sorts.
func somePath(r *rand.Rand) string {
	parts := make([]string, 1+r.Intn(4))
	for i := range parts {
		parts[i] = []string{"a", "a-", "a.b", "a0", "b", "\x01", "\xff\xfe", "sp ace\n", "é"}[r.Intn(9)]
	}
	return strings.Join(parts, "/")
}

// someTree stores a tree as git makes it and returns its id.
func someTree(t *testing.T, dir string, entries map[string]string) string {
	t.Helper()
	_, id := gittest.WriteIndex(t, dir, entries)
	return id
}

func TestCompareAsGitDoes(t *testing.T) {
	t.Parallel()
	for _, format := range []string{"sha1", "sha256"} {
		dir := newRepository(t, "--object-format="+format)
		var ids []string
		for i := range 4 {
			ids = append(ids, gitIn(t, dir, fmt.Sprint(i), "hash-object", "-w", "--stdin"))
		}
		r := rand.New(rand.NewSource(1))
		entry := func() string {
			return []string{"100644", "100755", "120000", "160000"}[r.Intn(4)] + " " + ids[r.Intn(len(ids))]
		}
		for range 12 {
			from := map[string]string{}
			for range r.Intn(40) {
				from[somePath(r)] = entry()
			}
			to := maps.Clone(from)
			for path := range from {
				switch r.Intn(8) {
				case 0:
					delete(to, path)
				case 1:
					to[path] = entry()
				}
			}
			for range r.Intn(6) {
				to[somePath(r)] = entry()
			}
			compareAsGit(t, dir, format, someTree(t, dir, from), someTree(t, dir, to))
		}
	}
}

func compareAsGit(t *testing.T, dir, format, from, to string) {
	t.Helper()
	want := map[string]string{}
	fields := strings.Split(gitIn(t, dir, "", "diff-tree", "-r", "-t", "-z", "--raw", "--no-renames", "--no-abbrev", from, to), "\x00")
	for i := 0; i+1 < len(fields); i += 2 {
		want[fields[i+1]] += fields[i] + "\n"
	}
	store := object.Open(open(t, dir))
	defer store.Close()
	d, err := object.Compare(context.Background(), store, format, from, to)
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]bool{}
	for i, c := range d.Changes {
		got[c.Path] = true
		if i > 0 && d.Changes[i-1].Path >= c.Path {
			t.Errorf("'%s' is not in order", c.Path)
		}
		for _, side := range []string{fmt.Sprintf("%06o", c.FromMode), fmt.Sprintf(" %06o", c.ToMode), c.FromID, c.ToID} {
			if !strings.Contains(want[c.Path], side) {
				t.Errorf("'%s' is %v; git says %s", c.Path, c, want[c.Path])
			}
		}
	}
	for path, lines := range want {
		file := strings.Contains(lines, "100") || strings.Contains(lines, "120000") || strings.Contains(lines, "160000")
		if isTree := strings.Contains(lines, " 040000 "); isTree && d.Trees[path] == "" || isTree && !strings.Contains(lines, d.Trees[path]) {
			t.Errorf("tree '%s' is '%s'; git says %s", path, d.Trees[path], lines)
		}
		if file && !strings.Contains(lines, "040000") && !got[path] {
			t.Errorf("'%s' is missing; git says %s", path, lines)
		}
	}
}

func TestCompareRefusesWhatNoWorkingTreeCanHold(t *testing.T) {
	t.Parallel()
	dir := newRepository(t)
	blob := gitIn(t, dir, "x", "hash-object", "-w", "--stdin")
	store := object.Open(open(t, dir))
	defer store.Close()
	for _, names := range [][]string{{".."}, {"."}, {".git"}, {".GIT"}, {"a/b"}, {"a", "a"}} {
		var entries []object.TreeEntry
		for _, name := range names {
			entries = append(entries, object.TreeEntry{Mode: object.ModeFile, Name: name, ID: blob})
		}
		tree := store.Put(object.Tree, object.EncodeTree(entries))
		if _, err := object.Compare(context.Background(), store, "sha1", "", tree); !errors.Is(err, fault.Integrity) {
			t.Errorf("%q: %v", names, err)
		}
	}
	if _, err := object.Compare(context.Background(), store, "sha1", "", strings.Repeat("12", 20)); !errors.Is(err, fault.Integrity) {
		t.Errorf("a missing tree: %v", err)
	}
	if _, err := object.Compare(context.Background(), store, "sha1", "", blob); !errors.Is(err, fault.Integrity) {
		t.Errorf("a blob: %v", err)
	}
}
