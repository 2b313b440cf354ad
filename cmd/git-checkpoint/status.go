package main

import (
	"github.com/git-checkpoint/git-checkpoint/internal/output"
	"github.com/git-checkpoint/git-checkpoint/internal/worktree"
	"github.com/git-checkpoint/git-checkpoint/refs"
)

func statusCommand() *command {
	return &command{
		name:     "status",
		summary:  "show the current run and what has changed since its last checkpoint",
		synopsis: []string{"[RUN] [--json]"},
		description: `Shows the current run, its last checkpoint, the paths that have changed since, and a restore that was interrupted. Nothing is written.

With RUN it shows everything about that run.`,
		args: []string{"[RUN]"},
		examples: []example{
			{"git checkpoint status", "see where you are"},
			{"git checkpoint status refactor", "see how a run went"},
		},
		run: runStatus,
	}
}

func runStatus(c *call) error {
	c.anyway = true
	return c.in(func(w *worktree.Worktree) error {
		if len(c.args) > 0 {
			r, err := w.RunStatus(c.ctx, c.args[0])
			if err == nil {
				c.runStatus(r)
			}
			return err
		}
		s, err := w.Status(c.ctx)
		if err == nil {
			c.status(s)
		}
		return err
	})
}

func (c *call) status(s *worktree.Status) {
	c.warnSkipped(s.Skipped)
	if c.JSON() {
		s.Changed, s.Skipped = output.Names(s.Changed), nameSkips(s.Skipped)
		if s.Entry != nil {
			e := nameEntry(*s.Entry)
			s.Entry = &e
		}
		if s.RestoreInProgress != nil {
			s.RestoreInProgress.At = s.RestoreInProgress.At.UTC()
		}
		c.Object(s)
		return
	}
	if p := s.RestoreInProgress; p != nil {
		c.Printf("interrupted: %s of %s, begun %s\n", p.Operation, short(p.Checkpoint), date(p.At))
		c.Hint("git checkpoint restore --continue finishes it, git checkpoint undo rolls it back")
	}
	if s.Run == "" {
		c.Printf("no current run\n")
		c.Hint("git checkpoint save starts one")
		return
	}
	c.Printf("run '%s': %s\n", s.Run, runState(&worktree.RunInfo{Status: s.RunStatus, Archived: s.Archived}))
	if s.Entry != nil && s.Entry.StepKind != refs.KindStart {
		c.Text(entryLine(nil, s.Entry, 0))
	} else {
		c.Printf("started at %s, no checkpoint yet\n", short(s.Checkpoint))
	}
	c.changes(s)
	if s.UndoAvailable > 0 {
		c.Hint("git checkpoint undo takes back the last restore, rewind or switch")
	}
	if s.RedoAvailable > 0 {
		c.Hint("git checkpoint redo goes forward again")
	}
}

func (c *call) changes(s *worktree.Status) {
	switch {
	case len(s.Changed) > 0:
		c.Printf("%s changed since:\n", count(len(s.Changed), "path", "paths"))
	case s.IndexChanged:
		c.Printf("no file changed since, but what is staged\n")
	default:
		c.Printf("nothing changed since\n")
	}
	for _, path := range s.Changed {
		c.Printf("  %s\n", output.Path(path))
	}
}

func (c *call) runStatus(r *worktree.RunInfo) {
	if c.JSON() {
		c.Object(nameRun(*r))
		return
	}
	c.Printf("run '%s': %s\n", r.Run, runState(r))
	if r.Fault != "" {
		c.Warning("run '%s' is damaged: %s", r.Run, r.Fault)
	}
	if !r.CreatedAt.IsZero() {
		c.Printf("created  %s\n", date(r.CreatedAt))
	}
	if r.Lineage != nil {
		c.Printf("lineage  %s%s\n", lineageText(r.Lineage), goneText(r.SourceGone, r.SourcePruned))
	}
	if r.Worktree != "" && !r.Here {
		c.Printf("worktree %s, not this one: read-only here\n", r.Worktree)
	}
	if p := r.PlanStatus; p != nil {
		c.planStatus(p)
	}
	c.Printf("%s of its own\n", count(r.Checkpoints, "checkpoint", "checkpoints"))
	for i := range r.Entries {
		c.Text(entryLine(nil, &r.Entries[i], i))
	}
}

// planStatus prints how far a planned run is.
func (c *call) planStatus(p *worktree.PlanStatus) {
	c.Printf("plan     %s executed, %d retained; %s, %.1f minutes\n", count(p.ExecutedCount, "task", "tasks"), p.RetainedCount,
		count(p.Calls, "call", "calls"), p.Minutes)
	if p.BaselineVerified != nil && !*p.BaselineVerified {
		c.Printf("baseline unverified\n")
	}
	if p.ProofNotRequired != "" {
		c.Printf("proof    not required: %s\n", p.ProofNotRequired)
	}
	for i := range p.Tasks {
		c.Printf("%s\n", taskLine(&p.Tasks[i].TaskStatus))
	}
}
