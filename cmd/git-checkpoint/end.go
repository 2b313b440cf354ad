package main

import (
	"github.com/urfave/cli/v2"

	"github.com/git-checkpoint/git-checkpoint/internal/fault"
	"github.com/git-checkpoint/git-checkpoint/internal/worktree"
)

func endCommand() *command {
	return &command{
		name:        "end",
		summary:     "close a run",
		synopsis:    []string{"[RUN] --status completed|failed|stopped [--json]"},
		description: `Closes a run, the current one unless RUN is given, with the status it ended with. Nothing is saved to a run that has ended: the next save begins a new one. Its checkpoints can be restored as before.`,
		flags: []cli.Flag{
			&cli.StringFlag{Name: "status", Usage: "how the run ended: `STATUS` is completed, failed or stopped"},
		},
		args: []string{"[RUN]"},
		examples: []example{
			{"git checkpoint end --status completed", "close the current run"},
		},
		run: runEnd,
	}
}

func runEnd(c *call) error {
	status := c.flags.String("status")
	if status == "" {
		return fault.New(fault.Invalid, "missing-flag", "git checkpoint end needs the flag '--status'").
			WithHint("write --status completed, --status failed or --status stopped")
	}
	return c.in(func(w *worktree.Worktree) error {
		r, err := w.End(c.ctx, c.arg(0), status)
		switch {
		case err != nil:
			return err
		case c.JSON():
			c.Object(r)
		case r.Changed:
			c.Printf("ended run '%s': %s\n", r.Run, r.Status)
		default:
			c.Printf("run '%s' had ended already: %s\n", r.Run, r.Status)
		}
		return nil
	})
}
