package worktree

import (
	"context"
	"errors"
	"time"

	"github.com/git-checkpoint/git-checkpoint/internal/fault"
	"github.com/git-checkpoint/git-checkpoint/notes"
	"github.com/git-checkpoint/git-checkpoint/refs"
)

// createOnly makes a run that has nothing but its start commit yet.
func (w *Worktree) createOnly(ctx context.Context, tx *refs.Transaction, book *notes.Book, t *target, start *refs.Checkpoint, by refs.Identity) error {
	if err := book.Commit(ctx, tx, "start of run "+t.run, by); err != nil {
		return err
	}
	tx.Set(refs.RunRef(t.run), start.ID, "")
	return tx.Commit(ctx)
}

// Start opens a run and makes it the current one; what the user had changed
// since the last commit is saved as its first checkpoint.
func (w *Worktree) Start(ctx context.Context, run, session string) (*StartResult, error) {
	if run != "" {
		if err := refs.CheckRun(run); err != nil {
			return nil, err
		}
	}
	if err := w.hold(ctx, "start"); err != nil {
		return nil, err
	}
	defer w.unlock()
	if err := w.refuseInProgress(ctx); err != nil {
		return nil, err
	}
	req := SaveRequest{Run: run, Kind: refs.KindUser, Session: session, IfChanged: true, Message: "what the user had changed before the run"}
	saved, err := w.save(ctx, req, w.forStart)
	if err != nil {
		return nil, err
	}
	result := &StartResult{Run: saved.Run, Checkpoint: saved.Checkpoint}
	if saved.Saved {
		result.Save = saved
	}
	return result, nil
}

// forStart is a new run, whatever is current.
func (w *Worktree) forStart(ctx context.Context, req SaveRequest, head refs.Head, at time.Time) (*target, error) {
	run := req.Run
	if run == "" {
		run = refs.GenerateRun(head.Branch, at)
	}
	return &target{run: run, current: true, create: true}, w.repo.CheckNewRun(ctx, run)
}

// End closes a run with a status: completed, failed or stopped.
func (w *Worktree) End(ctx context.Context, run, status string) (*EndResult, error) {
	if !notes.Ended(status) {
		return nil, fault.New(fault.Invalid, "invalid-status", "'%s' is no status that a run can end with", status).
			WithHint("the statuses are completed, failed and stopped")
	}
	if err := w.hold(ctx, "end"); err != nil {
		return nil, err
	}
	defer w.unlock()
	if run == "" {
		current, err := w.repo.CurrentRun(ctx)
		if err != nil {
			return nil, err
		}
		if run = current; run == "" {
			return nil, refs.NoCurrentRun()
		}
	}
	for attempt := 1; ; attempt++ {
		result, err := w.end(ctx, run, status)
		if errors.Is(err, refs.ErrStale) && attempt < attempts {
			continue
		}
		return result, err
	}
}

func (w *Worktree) end(ctx context.Context, run, status string) (*EndResult, error) {
	if _, err := w.repo.Tip(ctx, run); err != nil {
		return nil, err
	}
	t, err := w.existing(ctx, run)
	if err != nil {
		return nil, err
	}
	result := &EndResult{Run: run, Status: status}
	switch {
	case t.status == status:
		return result, nil
	case notes.Ended(t.status):
		return nil, fault.New(fault.Conflict, "run-ended", "run '%s' has ended already: %s", run, t.status)
	case w.foreign(t.state):
		return nil, w.mayWrite(t)
	}
	result.Changed = true
	return result, w.setStatus(ctx, t, status)
}

// setStatus adds a status to a run's journal.
func (w *Worktree) setStatus(ctx context.Context, t *target, status string) error {
	by, err := w.config.Identity()
	if err != nil {
		return err
	}
	book, err := w.bookOf(ctx, t)
	if err != nil {
		return err
	}
	start, err := w.startOf(ctx, t.tip)
	if err != nil {
		return err
	}
	fields := struct {
		Status string `json:"status"`
		By     string `json:"by"`
	}{status, by.String()}
	if err := book.Add(ctx, start, by.When, notes.EventStatus, fields); err != nil {
		return err
	}
	tx := w.repo.Begin("checkpoint: " + status)
	if err := book.Commit(ctx, tx, "run "+t.run+": "+status, by); err != nil {
		return err
	}
	tx.Verify(refs.RunRef(t.run), t.tip.ID)
	return tx.Commit(ctx)
}
