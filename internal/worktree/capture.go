package worktree

import (
	"context"
	"os"
	"slices"
	"strings"

	"github.com/git-checkpoint/git-checkpoint/internal/git"
	"github.com/git-checkpoint/git-checkpoint/internal/object"
	"github.com/git-checkpoint/git-checkpoint/internal/parallel"
	"github.com/git-checkpoint/git-checkpoint/internal/snapshot"
	"github.com/git-checkpoint/git-checkpoint/refs"
)

func (w *Worktree) options() snapshot.Options {
	return snapshot.Options{MaxFileSize: w.config.MaxFileSize, Exclude: w.config.Exclude}
}

// captured is the whole state of the worktree at one moment.
type captured struct {
	snap  *snapshot.Snapshot
	op    *snapshot.Operation
	head  refs.Head
	tree  string // HEAD's tree
	index string // the tree of the index commit, empty if there is none
}

// capture takes the snapshot and reads HEAD and the operation under way.
// When HEAD moves meanwhile it looks again, so that index and HEAD belong
// together. beside, if it is there, is done while a snapshot begins, when a
// processor is idle: it has the repository for itself until then, and so have
// Changing and Changed of the options after it.
func (w *Worktree) capture(ctx context.Context, options snapshot.Options, beside func()) (*captured, error) {
	var other parallel.Beside
	if changing, changed := options.Changing, options.Changed; changing != nil && changed != nil {
		options.Changing = func() { other.Wait(); changing() }
		options.Changed = func(tree string) { other.Wait(); changed(tree) }
	}
	head, err := w.repo.Head(ctx)
	if err != nil {
		return nil, err
	}
	for {
		c := &captured{head: head}
		if c.op, err = snapshot.ReadOperation(ctx, w.git); err != nil {
			return nil, err
		}
		if beside != nil {
			other.Go(beside)
		}
		c.snap, err = w.taker().Take(ctx, options)
		other.Wait()
		if err != nil {
			return nil, err
		}
		now, err := w.repo.Head(ctx)
		if err != nil {
			c.snap.Discard()
			return nil, err
		}
		if now != head {
			c.snap.Discard()
			head = now
			continue
		}
		if err := w.captureIndex(ctx, c); err != nil {
			c.snap.Discard()
			return nil, err
		}
		return c, nil
	}
}

func (w *Worktree) captureIndex(ctx context.Context, c *captured) (err error) {
	if c.head.Unborn() {
		c.tree = object.EmptyTree(w.git.ObjectFormat)
	} else if c.tree, err = w.repo.CommitTree(ctx, c.head.Commit); err != nil {
		return err
	}
	c.index, err = c.snap.IndexTree(c.op, c.tree, w.git, w.repo.Objects())
	return err
}

// indexCommit returns the commit for the captured index: none, the one of the
// checkpoint before if it holds the same, or a new one.
func (w *Worktree) indexCommit(ctx context.Context, c *captured, before string, by refs.Identity) (string, error) {
	if c.index == "" {
		return "", nil
	}
	if before != "" {
		old, err := w.repo.ReadCommit(ctx, before)
		if err == nil && old.Tree == c.index && slices.Equal(old.Parents, c.op.Commits) {
			return before, nil
		}
	}
	return w.repo.PutCommit(c.index, c.op.Commits, "index of a checkpoint\n", by), nil
}

// settle keeps the private index for the next save. That it cannot be kept
// costs time only.
func (w *Worktree) settle(state *captured, checkpoint string) {
	if err := state.snap.Keep(checkpoint); err != nil {
		git.Trace("private index: %v", err)
	}
}

// settleAgain is settle where nothing was recorded: the private index may be
// behind, and is worth keeping as it has become.
func (w *Worktree) settleAgain(ctx context.Context, state *captured, tip, key string) {
	if state.snap.Behind {
		return
	}
	if key != tip {
		tx := w.repo.Begin("checkpoint: private index")
		tx.Set(w.localRef(indexName), tip, key)
		if err := tx.Commit(ctx); err != nil {
			git.Trace("private index: %v", err)
			return
		}
	}
	w.settle(state, tip)
}

// unignoredName is the file that lists them, each with a NUL after it.
const unignoredName = "unignored"

// unignored are the files that a restore un-ignored: the user did not make
// them part of the run, so automatic saves leave them out.
func (w *Worktree) unignored() map[string]bool {
	data, err := os.ReadFile(w.home(unignoredName))
	if err != nil {
		return nil
	}
	set := map[string]bool{}
	for _, p := range strings.Split(strings.TrimSuffix(string(data), "\x00"), "\x00") {
		set[p] = true
	}
	return set
}
