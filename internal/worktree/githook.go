package worktree

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"

	"github.com/git-checkpoint/git-checkpoint/internal/snapshot"
	"github.com/git-checkpoint/git-checkpoint/refs"
)

// AfterCommit saves a checkpoint of a commit that was just made, in a new run
// where none is open. The result is nil where there is nothing to do: it is
// switched off, or the commit is one of a series that git makes.
func (w *Worktree) AfterCommit(ctx context.Context) (*SaveResult, error) {
	head, err := w.repo.Head(ctx)
	if err != nil || head.Unborn() {
		return nil, err
	}
	if stay, err := w.stayOut(ctx); stay || err != nil {
		return nil, err
	}
	c, err := w.repo.ReadCommit(ctx, head.Commit)
	if err != nil {
		return nil, err
	}
	return w.Save(ctx, SaveRequest{Kind: refs.KindCommit, Message: strings.ToValidUTF8(c.Subject, "?"), Automatic: true})
}

// recentCheckpoints is how many of a run's checkpoints are looked over before
// a push, which should not wait.
const recentCheckpoints = 100

// BeforePush saves what has changed since the last checkpoint, and looks over
// the current run: its ref, its recent checkpoints and its journal.
func (w *Worktree) BeforePush(ctx context.Context) (*SaveResult, []Finding, error) {
	if stay, err := w.stayOut(ctx); stay || err != nil {
		return nil, nil, err
	}
	result, err := w.Save(ctx, SaveRequest{Kind: refs.KindCommit, Message: "before a push", Automatic: true, IfChanged: true})
	faults, checking := w.checkCurrent(ctx)
	return result, faults, errors.Join(err, checking)
}

// checkCurrent looks over the current run, from its newest checkpoint on.
func (w *Worktree) checkCurrent(ctx context.Context) ([]Finding, error) {
	run, err := w.repo.CurrentRun(ctx)
	if err != nil || run == "" {
		return nil, err
	}
	ref := refs.RunRef(run)
	tip, err := w.repo.Ref(ctx, ref)
	if err != nil || tip == "" {
		return nil, err
	}
	var faults []Finding
	v := &verifier{w: w, yield: func(f Finding) { faults = append(faults, f) }, damaged: map[string]bool{}}
	var after *refs.Checkpoint
	left := recentCheckpoints
	err = w.repo.Walk(ctx, tip, func(c *refs.Checkpoint) bool {
		v.checkpoint(ctx, ref, run, c, after)
		after = c
		left--
		return left > 0
	})
	if err != nil {
		v.found(code(err, "chain-broken"), ref, tip, "%v", err)
	} else if _, err := w.existing(ctx, run); err != nil {
		v.found(code(err, "note-damaged"), ref, tip, "%v", err)
	}
	return faults, nil
}

// stayOut says whether a hook of git is to do nothing: switched off, no
// working tree, or a commit that git makes as one of a series. After a single
// cherry-pick or revert without conflicts git still calls it under way.
func (w *Worktree) stayOut(ctx context.Context) (bool, error) {
	if !w.Automatic() || w.git.Top == "" || filterBranch(w.git.Top) {
		return true, nil
	}
	op, err := snapshot.ReadOperation(ctx, w.git)
	if err != nil {
		return true, err
	}
	switch op.Kind {
	case snapshot.Rebase, snapshot.Am, snapshot.Sequence, snapshot.CherryPick, snapshot.Revert:
		return true, nil
	}
	return false, nil
}

// filterBranch recognises the working tree that git filter-branch makes: a
// directory t beside its map of rewritten commits.
func filterBranch(top string) bool {
	if filepath.Base(top) != "t" {
		return false
	}
	for _, name := range []string{"map", "backup-refs"} {
		if _, err := os.Lstat(filepath.Join(filepath.Dir(top), name)); err != nil {
			return false
		}
	}
	return true
}
