package refs_test

import (
	"errors"
	"testing"

	"github.com/git-checkpoint/git-checkpoint/internal/sample"
	"github.com/git-checkpoint/git-checkpoint/refs"
)

// A git that was started ahead writes what the transaction says, or nothing,
// and somebody else's write meanwhile is found.
func TestAhead(t *testing.T) {
	ctx := t.Context()
	dir, remove := sample.Repository()
	defer remove()
	open := func() *refs.Repository {
		r, err := refs.Open(ctx, dir)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { r.Close() })
		return r
	}
	repo, other := open(), open()
	runs, err := repo.Runs(ctx)
	if err != nil {
		t.Fatal(err)
	}
	tip := runs[0].Tip
	const ref = "refs/checkpoints/local/0123456789abcdef/test"
	holds := func(want string) {
		t.Helper()
		if got, err := other.Ref(ctx, ref); err != nil || got != want {
			t.Errorf("the ref holds '%s', not '%s': %v", got, want, err)
		}
	}
	set := func(r *refs.Repository, message, id, old string) error {
		tx := r.Begin(message)
		tx.Set(ref, id, old)
		return tx.Commit(ctx)
	}

	repo.Ahead(ctx, "one")
	repo.Abandon()
	repo.Abandon()
	holds("")
	repo.Ahead(ctx, "one")
	if err := set(repo, "one", tip, ""); err != nil {
		t.Error(err)
	}
	holds(tip)
	repo.Ahead(ctx, "one")
	if err := set(repo, "one", tip, ""); !errors.Is(err, refs.ErrStale) {
		t.Errorf("create what is there: %v", err)
	}
	repo.Ahead(ctx, "one")
	tx := repo.Begin("two") // another than is waited for
	tx.Delete(ref, tip)
	if err := tx.Commit(ctx); err != nil {
		t.Error(err)
	}
	holds("")
	// Whatever became of it, nobody is kept waiting.
	if err := set(other, "three", tip, ""); err != nil {
		t.Error(err)
	}
	holds(tip)
}
