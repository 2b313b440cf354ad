package main

import (
	"fmt"

	"github.com/urfave/cli/v2"

	"github.com/git-checkpoint/git-checkpoint/internal/fault"
	"github.com/git-checkpoint/git-checkpoint/internal/output"
	"github.com/git-checkpoint/git-checkpoint/internal/worktree"
)

func restoreCommand() *command {
	return &command{
		name:    "restore",
		summary: "make files and index equal to a checkpoint",
		synopsis: []string{
			"CHECKPOINT [--reset] [--dry-run] [--json] [-- PATH...]",
			"--continue [--json]",
		},
		description: `Makes files, index and what was under way (a merge, say) equal to the checkpoint. What is there now is saved first: git checkpoint undo brings it back. Only what differs is written, and only what a checkpoint holds is deleted; ignored files stay.

HEAD stays where it is, unless --reset is given. With paths after "--" only they are restored; they may be pathspecs, relative to the current directory.

` + addressHelp + `

A restore that was interrupted is finished by --continue, or rolled back by git checkpoint undo.`,
		flags: []cli.Flag{
			&cli.BoolFlag{Name: "dry-run", Aliases: []string{"n"}, Usage: "only list what would be written and deleted"},
			&cli.BoolFlag{Name: "reset", Usage: "move the current branch to the checkpoint's HEAD too"},
			&cli.BoolFlag{Name: "continue", Usage: "finish a restore that was interrupted"},
		},
		args:  []string{"[CHECKPOINT]"},
		paths: true,
		examples: []example{
			{"git checkpoint restore @{1}", "go back to the checkpoint before the last"},
			{"git checkpoint restore @plan -- docs", "take the directory docs from the step 'plan'"},
			{"git checkpoint restore refactor --dry-run", "see what the newest checkpoint of a run would change"},
		},
		run: runRestore,
	}
}

func runRestore(c *call) error {
	request := worktree.RestoreRequest{
		Checkpoint: c.arg(0), Paths: c.paths, Reset: c.flags.Bool("reset"), DryRun: c.flags.Bool("dry-run"),
	}
	if c.flags.Bool("continue") {
		if request.Checkpoint != "" || request.Reset || request.DryRun || c.paths != nil {
			return fault.New(fault.Invalid, "excess-argument", "git checkpoint restore --continue takes nothing else: it finishes what was begun")
		}
		c.anyway = true
		return c.restoring(func(w *worktree.Worktree) (*worktree.RestoreResult, error) { return w.Continue(c.ctx) })
	}
	if request.Checkpoint == "" {
		return fault.New(fault.Invalid, "missing-argument", "git checkpoint restore needs a checkpoint").
			WithHint("@{0} is the newest of the current run; git checkpoint log lists them")
	}
	if c.paths != nil && len(c.paths) == 0 {
		// Most likely an empty list of files, not a wish for all of them.
		return fault.New(fault.Invalid, "missing-argument", "git checkpoint restore has no path after '--'").
			WithHint("leave '--' out to restore everything")
	}
	return c.restoring(func(w *worktree.Worktree) (*worktree.RestoreResult, error) { return w.Restore(c.ctx, request) })
}

// restoring runs something that answers as a restore does, and prints it.
func (c *call) restoring(do func(*worktree.Worktree) (*worktree.RestoreResult, error)) error {
	return c.in(func(w *worktree.Worktree) error {
		r, err := do(w)
		if err != nil {
			return err
		}
		c.warnLeft(r)
		switch {
		case c.JSON():
			c.restoreObject(r)
		case r.DryRun:
			c.restorePlan(r)
		default:
			c.restored(r)
		}
		return nil
	})
}

func (c *call) restoreObject(r *worktree.RestoreResult) {
	r.Written, r.Deleted = output.Names(r.Written), output.Names(r.Deleted)
	r.Kept, r.Unignored, r.Unprotected = output.Names(r.Kept), output.Names(r.Unignored), output.Names(r.Unprotected)
	r.Skipped = nameSkips(r.Skipped)
	c.Object(r)
}

func (c *call) restorePlan(r *worktree.RestoreResult) {
	for _, path := range r.Written {
		c.Printf("write %s\n", output.Path(path))
	}
	for _, path := range r.Deleted {
		c.Printf("delete %s\n", output.Path(path))
	}
	if r.Head != nil {
		c.Printf("move HEAD to %s\n", headPlace(r.Head))
	}
	if len(r.Written)+len(r.Deleted) == 0 && r.Head == nil {
		c.Hint("no file differs from %s", short(r.Checkpoint))
	}
}

func (c *call) restored(r *worktree.RestoreResult) {
	c.Printf("%s: %s\n", restoreVerb(r), restoreCount(r))
	if r.Head != nil {
		c.Printf("moved HEAD to %s\n", headPlace(r.Head))
	}
	if r.HeadDiffers != "" {
		c.Hint("the checkpoint's HEAD was %s; git checkpoint restore --reset moves the branch too", short(r.HeadDiffers))
	}
	switch r.Operation {
	case "undo":
		c.Hint("git checkpoint redo goes forward again")
	case "rollback":
	default:
		c.Hint("git checkpoint undo takes it back")
	}
}

func restoreVerb(r *worktree.RestoreResult) string {
	id := short(r.Checkpoint)
	switch r.Operation {
	case "undo", "rollback":
		return "undone, back to " + id
	case "redo":
		return "redone, forward to " + id
	case "switch":
		return fmt.Sprintf("switched to run '%s', restored %s", r.Run, id)
	case "rewind":
		return fmt.Sprintf("rewound to run '%s', restored %s", r.Run, id)
	}
	return "restored " + id
}

func restoreCount(r *worktree.RestoreResult) string {
	if len(r.Written)+len(r.Deleted) == 0 {
		return "no file differed"
	}
	return fmt.Sprintf("%d written, %d deleted", len(r.Written), len(r.Deleted))
}

// headPlace says where HEAD is after a move.
func headPlace(m *worktree.HeadMove) string {
	place := short(m.To)
	if m.To == "" {
		place = "no commit yet"
	}
	if m.Branch == "" {
		return place + ", detached"
	}
	return fmt.Sprintf("%s, branch '%s'", place, m.Branch)
}

// warnLeft says what a restore did not make equal to the checkpoint.
func (c *call) warnLeft(r *worktree.RestoreResult) {
	c.warnSkipped(r.Skipped)
	c.warnEach(r.Kept, func(path string) string {
		return "kept " + output.Quoted(path) + ": the checkpoint ignores it"
	})
	c.warnEach(r.Unignored, func(path string) string {
		return output.Quoted(path) + " was ignored and is not any more"
	})
	c.warnEach(r.Unprotected, func(path string) string {
		return "left " + output.Quoted(path) + " alone: it is a repository of its own, at another commit"
	})
}
