package worktree

import (
	"context"

	"github.com/git-checkpoint/git-checkpoint/internal/fault"
)

// Continue finishes an operation that was killed.
func (w *Worktree) Continue(ctx context.Context) (*RestoreResult, error) {
	if err := w.hold(ctx, "restore --continue"); err != nil {
		return nil, err
	}
	defer w.unlock()
	op, err := w.inProgress(ctx)
	if err != nil {
		return nil, err
	}
	if op == nil {
		return nil, fault.New(fault.NotFound, "nothing-in-progress", "no restore is in progress").
			WithHint("git checkpoint restore <checkpoint> begins one; git checkpoint undo takes the last one back")
	}
	return w.goOn(ctx, op)
}

// goOn does an operation again from whatever state it was left in.
func (w *Worktree) goOn(ctx context.Context, op *operation) (*RestoreResult, error) {
	s := stepOf(op)
	s.resumes = op
	again := *op
	return w.perform(ctx, &again, s)
}

// Undo goes back to before the last restore, rewind or switch; one that was
// killed is rolled back.
func (w *Worktree) Undo(ctx context.Context) (*RestoreResult, error) {
	if err := w.hold(ctx, "undo"); err != nil {
		return nil, err
	}
	defer w.unlock()
	op, err := w.inProgress(ctx)
	if err != nil {
		return nil, err
	}
	if op != nil {
		if op.Kind == opUndo || op.Kind == opRollback {
			return w.goOn(ctx, op)
		}
		back := &operation{
			Kind: opRollback, Target: op.Safety, targetRaw: op.raw, Safety: op.Safety, raw: op.raw, Paths: op.Paths,
			Before: op.After, After: op.Before, Created: op.Created, MovesHead: op.MovesHead,
			HalfDone: append(op.HalfDone, op.Target), RolledBack: op.Target,
			wrote: op.Paths, skipped: op.skipped, leave: op.skipped,
		}
		if op.Kind == opRewind {
			back.Rewound = op.Rewound
		}
		s := stepOf(back)
		s.resumes = op
		return w.perform(ctx, back, s)
	}
	done, err := w.stack(ctx, undoName)
	if err != nil {
		return nil, err
	}
	if len(done) == 0 {
		return nil, fault.New(fault.NotFound, "nothing-to-undo", "there is nothing to undo").
			WithHint("git checkpoint restore @{1} takes back what was done since the last checkpoint but one")
	}
	return w.reverse(ctx, opUndo, done[len(done)-1])
}

// Redo goes forward again after undo.
func (w *Worktree) Redo(ctx context.Context) (*RestoreResult, error) {
	if err := w.hold(ctx, "redo"); err != nil {
		return nil, err
	}
	defer w.unlock()
	op, err := w.inProgress(ctx)
	if err != nil {
		return nil, err
	}
	if op != nil && op.Kind == opRedo {
		return w.goOn(ctx, op)
	}
	if err := w.refuseInProgress(ctx); err != nil {
		return nil, err
	}
	undone, err := w.stack(ctx, redoName)
	if err != nil {
		return nil, err
	}
	if len(undone) == 0 {
		return nil, fault.New(fault.NotFound, "nothing-to-redo", "there is nothing to redo").
			WithHint("git checkpoint undo takes back what was done last")
	}
	return w.reverse(ctx, opRedo, undone[len(undone)-1])
}

// reverse takes an operation back: its safety checkpoint is the target.
func (w *Worktree) reverse(ctx context.Context, kind string, top numbered) (*RestoreResult, error) {
	done, err := w.readOperation(ctx, top.commit)
	if err != nil {
		return nil, err
	}
	now, err := w.point0(ctx)
	if err != nil {
		return nil, err
	}
	op := &operation{
		Kind: kind, Target: done.Safety, targetRaw: done.raw, Before: now, After: now, Undoes: top.ref, MovesHead: done.MovesHead, Rewound: done.Rewound,
		Reverses: done.Target, wrote: done.Paths, leave: done.skipped,
	}
	if done.MovesHead {
		if now.Branch != done.After.Branch || now.Head != done.After.Head {
			return nil, fault.New(fault.Conflict, "head-moved", "HEAD has moved since the %s: it is at %s", done.Kind, describe(now)).
				WithHint("git checkpoint restore rev:%s brings back the files alone", done.Safety)
		}
		op.After = done.Before
		op.Created = done.Created
	}
	return w.perform(ctx, op, stepOf(op))
}
