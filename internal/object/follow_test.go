package object_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/git-checkpoint/git-checkpoint/internal/object"
)

// What follows each other is what git rev-list gives, loose, in a pack with
// chains of deltas, and not written yet; it ends early where that is asked for,
// and at a commit that is not there.
func TestFollow(t *testing.T) {
	t.Parallel()
	dir := newRepository(t)
	var stream strings.Builder
	for i := range 300 {
		message := fmt.Sprintf("%s\n%d", strings.Repeat("what commits have in common\n", 5), i)
		fmt.Fprintf(&stream, "commit refs/heads/long\ncommitter A <a@example.com> %d +0000\ndata %d\n%s\n", 1700000000+i, len(message), message)
	}
	gitIn(t, dir, stream.String(), "-c", "fastimport.unpackLimit=1000", "fast-import", "--quiet")
	store := object.NewInProcess(open(t, dir))
	defer store.Close()
	ids := strings.Fields(gitIn(t, dir, "", "rev-list", "long"))
	parent := func(data []byte) string {
		_, after, _ := bytes.Cut(data, []byte("\nparent "))
		id, _, _ := bytes.Cut(after, []byte("\n"))
		return string(id)
	}
	follow := func(first string, count int) (got []string, err error) {
		err = store.Follow(t.Context(), first, parent, func(id string, kind object.Kind, data []byte) bool {
			if kind != object.Commit || object.ID("sha1", kind, data) != id {
				t.Errorf("%s is a %s, %q", id, kind, data)
			}
			got = append(got, id)
			return len(got) != count
		})
		return got, err
	}
	check := func(first string, want ...string) {
		t.Helper()
		for _, count := range []int{0, 1, 63, 64, 65, 200} {
			want := want
			if count > 0 && count < len(want) {
				want = want[:count]
			}
			if got, err := follow(first, count); err != nil || !slices.Equal(got, want) {
				t.Errorf("followed %d commits, want %d (%v)", len(got), len(want), err)
			}
		}
	}
	check(ids[0], ids...)
	gitIn(t, dir, "", "repack", "-a", "-d", "-q", "-f", "--depth=50")
	check(ids[0], ids...)
	content := strings.Replace(gitIn(t, dir, "", "cat-file", "commit", ids[0]), "parent "+ids[1], "parent "+ids[0], 1)
	queued := store.Put(object.Commit, []byte(content))
	check(queued, slices.Insert(slices.Clone(ids), 0, queued)...)
	if err := store.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	check(queued, slices.Insert(slices.Clone(ids), 0, queued)...)

	packs, _ := filepath.Glob(filepath.Join(dir, ".git", "objects", "pack", "*.pack"))
	for _, pack := range packs {
		data, err := os.ReadFile(pack)
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range []string{pack, strings.TrimSuffix(pack, "pack") + "idx", strings.TrimSuffix(pack, "pack") + "rev"} {
			os.Remove(file)
		}
		gitIn(t, dir, string(data), "unpack-objects", "-q")
	}
	if err := os.Remove(filepath.Join(dir, ".git", "objects", ids[150][:2], ids[150][2:])); err != nil {
		t.Fatal(err)
	}
	other := object.NewInProcess(open(t, dir))
	defer other.Close()
	store = other
	if got, err := follow(ids[0], 0); !errors.Is(err, object.ErrMissing) || !slices.Equal(got, ids[:150]) {
		t.Errorf("followed %d commits to one that is missing: %v", len(got), err)
	}
}
