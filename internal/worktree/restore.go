package worktree

import (
	"context"

	"github.com/git-checkpoint/git-checkpoint/internal/fault"
)

// Restore makes files, index and single-step state equal to a checkpoint's.
func (w *Worktree) Restore(ctx context.Context, req RestoreRequest) (*RestoreResult, error) {
	if req.Reset && len(req.Paths) > 0 {
		return nil, fault.New(fault.Invalid, "reset-with-paths", "--reset moves the branch to the whole checkpoint, not to some paths of it")
	}
	if err := w.hold(ctx, "restore"); err != nil {
		return nil, err
	}
	defer w.unlock()
	if err := w.refuseInProgress(ctx); err != nil {
		return nil, err
	}
	c, err := w.repo.Resolve(ctx, req.Checkpoint)
	if err != nil {
		return nil, err
	}
	before, err := w.point0(ctx)
	if err != nil {
		return nil, err
	}
	op := &operation{Kind: opRestore, Target: c.ID, Before: before, After: before}
	if req.Reset {
		if err := w.planReset(op, c); err != nil {
			return nil, err
		}
	}
	s := stepOf(op)
	s.pathspecs, s.dryRun = req.Paths, req.DryRun
	result, err := w.perform(ctx, op, s)
	if err != nil {
		return nil, err
	}
	if !req.Reset && c.Head != before.Head && !req.DryRun {
		result.HeadDiffers = c.Head
	}
	return result, nil
}

// Switch makes a run the current one and restores its newest checkpoint.
func (w *Worktree) Switch(ctx context.Context, run string) (*RestoreResult, error) {
	if err := w.hold(ctx, "switch"); err != nil {
		return nil, err
	}
	defer w.unlock()
	if err := w.refuseInProgress(ctx); err != nil {
		return nil, err
	}
	if _, err := w.repo.Tip(ctx, run); err != nil {
		return nil, err
	}
	c, err := w.repo.Resolve(ctx, run)
	if err != nil {
		return nil, err
	}
	before, err := w.point0(ctx)
	if err != nil {
		return nil, err
	}
	op := &operation{Kind: opSwitch, Target: c.ID, Before: before, After: before, MovesHead: true}
	op.After.Run = run
	if err := w.planHead(ctx, op, c, run); err != nil {
		return nil, err
	}
	return w.perform(ctx, op, stepOf(op))
}
