package worktree

import (
	"context"
	"time"

	"github.com/git-checkpoint/git-checkpoint/internal/fault"
	"github.com/git-checkpoint/git-checkpoint/notes"
	"github.com/git-checkpoint/git-checkpoint/refs"
)

// target is the run that a save goes to.
type target struct {
	run     string
	tip     *refs.Checkpoint // nil: the run is to be made
	book    *notes.Book      // see bookOf; nil: not read yet
	state   notes.State
	status  string
	hidden  bool             // archived
	from    *refs.Checkpoint // the run is to be forked from here
	lineage *refs.Lineage
	current bool // CHECKPOINT_HEAD is to name it
	create  bool // make the run even if there is nothing to record in it
}

// forSave finds the run that a save goes to, by the rules of the current run.
func (w *Worktree) forSave(ctx context.Context, req SaveRequest, head refs.Head, at time.Time) (*target, error) {
	current, err := w.repo.CurrentRun(ctx)
	if err != nil {
		return nil, err
	}
	if req.Run == "" {
		return w.bareTarget(ctx, current, head, at)
	}
	t, err := w.existing(ctx, req.Run)
	if err != nil {
		return nil, err
	}
	if t == nil {
		if err := w.repo.CheckNewRun(ctx, req.Run); err != nil {
			return nil, err
		}
		t = &target{run: req.Run}
	} else if err := w.mayWrite(t); err != nil {
		return nil, err
	}
	if current != req.Run {
		old, err := w.existing(ctx, current)
		if err != nil {
			w.warn("the current run '%s' cannot be read: %v", current, err)
		}
		t.current = old == nil || old.hidden || notes.Ended(old.status)
	}
	return t, nil
}

// foreign says whether a run belongs to another worktree. One that a program
// made without a worktree belongs to whoever goes on with it.
func (w *Worktree) foreign(s notes.State) bool {
	return s.Created.Worktree != "" && s.Created.Worktree != w.id
}

// mayWrite refuses an explicit run that is closed or not ours.
func (w *Worktree) mayWrite(t *target) error {
	switch {
	case t.hidden:
		return fault.New(fault.Conflict, "run-archived", "run '%s' is archived", t.run).
			WithHint("git checkpoint save without --run goes on elsewhere")
	case notes.Ended(t.status):
		return fault.New(fault.Conflict, "run-ended", "run '%s' has ended: %s", t.run, t.status).
			WithHint("git checkpoint start opens a new one")
	case w.foreign(t.state):
		e := fault.New(fault.Conflict, "foreign-run", "run '%s' belongs to another worktree", t.run)
		if t.state.Created.Path != "" {
			e.Message += ": " + t.state.Created.Path
		}
		return e.WithHint("git checkpoint switch %s, then save, makes a fork of it here", t.run)
	}
	return nil
}

// bareTarget is where a save without --run goes.
func (w *Worktree) bareTarget(ctx context.Context, current string, head refs.Head, at time.Time) (*target, error) {
	t, err := w.existing(ctx, current)
	if err != nil {
		return nil, err
	}
	switch {
	case t == nil, t.hidden, notes.Ended(t.status):
		return &target{run: refs.GenerateRun(head.Branch, at), current: true}, nil
	case w.foreign(t.state):
		from := t.tip
		if from.Kind == refs.KindStart && from.Lineage != nil {
			if from, err = w.repo.Resolve(ctx, t.run); err != nil {
				return nil, err
			}
		}
		return &target{
			run: refs.GenerateChild(t.run), from: from, current: true,
			lineage: &refs.Lineage{Kind: refs.ForkedFrom, Run: t.run, Step: from.Step, Checkpoint: from.ID},
		}, nil
	}
	return t, nil
}

// known is a run as it was last read. It holds while its refs do.
type known struct {
	run, tip, notes string
	target          target // without what depends on other runs
}

// existing reads a run, nil if there is none of that name. A hook asks for
// the same run several times.
func (w *Worktree) existing(ctx context.Context, run string) (*target, error) {
	if run == "" {
		return nil, nil
	}
	tip, err := w.repo.Ref(ctx, refs.RunRef(run))
	if err != nil || tip == "" {
		return nil, err
	}
	noted, err := w.repo.Ref(ctx, refs.NotesRef(run))
	if err != nil {
		return nil, err
	}
	if k := w.known; k == nil || k.run != run || k.tip != tip || k.notes != noted {
		t, err := w.read(ctx, run, tip, noted)
		if err != nil {
			return nil, err
		}
		w.known = &known{run, tip, noted, *t}
	}
	t := w.known.target
	t.status, t.hidden = t.state.Status(w.rewoundFrom(ctx, run)), t.state.Archived(w.rewoundFrom(ctx, run))
	return &t, nil
}

// read reads the run whose refs hold tip and noted.
func (w *Worktree) read(ctx context.Context, run, tip, noted string) (*target, error) {
	c, err := w.repo.ReadCheckpoint(ctx, tip)
	if err != nil {
		return nil, err
	}
	book, err := notes.OpenBookAt(ctx, w.repo, run, noted)
	if err != nil {
		return nil, err
	}
	start, err := w.startOf(ctx, c)
	if err != nil {
		return nil, err
	}
	state, err := book.State(ctx, start)
	if err != nil {
		return nil, err
	}
	return &target{run: run, tip: c, book: book, state: state}, nil
}

// bookOf is the run's notes, to be written: those that were read last, once.
func (w *Worktree) bookOf(ctx context.Context, t *target) (*notes.Book, error) {
	k := w.known
	w.known = nil
	if k != nil && k.target.book == t.book {
		return t.book, nil
	}
	return notes.OpenBook(ctx, w.repo, t.run)
}

// rewoundFrom tells whether a run is there and was rewound from another. One
// that cannot be read counts.
func (w *Worktree) rewoundFrom(ctx context.Context, source string) func(run string) bool {
	return func(run string) bool {
		tip, err := w.repo.Ref(ctx, refs.RunRef(run))
		if err != nil || tip == "" {
			return err != nil
		}
		start, err := w.repo.StartOf(ctx, tip)
		return err != nil || start.Lineage != nil && start.Lineage.Kind == refs.RewoundFrom && start.Lineage.Run == source
	}
}

// startOf finds the start commit of a checkpoint's run.
func (w *Worktree) startOf(ctx context.Context, c *refs.Checkpoint) (string, error) {
	if c.Start != "" {
		return c.Start, nil
	}
	start, err := w.repo.StartOf(ctx, c.ID)
	if err != nil {
		return "", err
	}
	return start.ID, nil
}

// choose finds a target anew at each attempt.
type choose func(ctx context.Context, req SaveRequest, head refs.Head, at time.Time) (*target, error)

// point makes the run the current one where it is to be. The checkpoint is
// there by then, and CHECKPOINT_HEAD only a hint, so that it cannot be set is
// no failure of the save.
func (w *Worktree) point(ctx context.Context, t *target) {
	if !t.current {
		return
	}
	if err := w.repo.SetCurrentRun(ctx, t.run); err != nil {
		w.warn("make '%s' the current run: %v; git checkpoint switch %s does it", t.run, err, t.run)
	}
}
