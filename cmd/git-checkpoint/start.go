package main

import (
	"github.com/urfave/cli/v2"

	"github.com/git-checkpoint/git-checkpoint/internal/worktree"
)

func startCommand() *command {
	return &command{
		name:     "start",
		summary:  "open a run and make it the current one",
		synopsis: []string{"[RUN] [--session ID] [--json]"},
		description: `Opens a new run and makes it the current one. What has changed since the last commit is saved first, as a checkpoint of kind "user", so that the run's own checkpoints hold the run's changes alone.

Without RUN the name is made up from the branch and the date.`,
		flags: []cli.Flag{
			&cli.StringFlag{Name: "session", Usage: "record the agent's session `ID`"},
		},
		args: []string{"[RUN]"},
		examples: []example{
			{"git checkpoint start refactor", "open the run 'refactor'"},
		},
		run: runStart,
	}
}

func runStart(c *call) error {
	return c.in(func(w *worktree.Worktree) error {
		r, err := w.Start(c.ctx, c.arg(0), c.flags.String("session"))
		if err != nil {
			return err
		}
		if c.JSON() {
			if r.Save != nil {
				r.Save.Skipped = nameSkips(r.Save.Skipped)
			}
			c.Object(r)
			return nil
		}
		c.Printf("started run '%s' (%s)\n", r.Run, short(r.Checkpoint))
		if r.Save != nil {
			c.warnSkipped(r.Save.Skipped)
			c.Printf("saved what you had changed as its checkpoint %d\n", r.Save.Number)
		}
		return nil
	})
}
