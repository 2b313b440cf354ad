package main

import (
	"github.com/urfave/cli/v2"

	"github.com/git-checkpoint/git-checkpoint/internal/worktree"
)

func forkCommand() *command {
	return &command{
		name:     "fork",
		summary:  "branch a new run off a step of a run",
		synopsis: []string{"[RUN] (--to STEP | --before STEP) [--run NEW] [--worktree DIR [--branch BRANCH]] [--dry-run] [--instructions TEXT] [--fresh-session] [--json]"},
		description: `Makes a new run that goes on from a step of RUN (the current one unless it is given) and leaves RUN as it is: use it to try two ways from one step. No file is touched and the current run stays; git checkpoint switch goes on with the fork here.

With --worktree the fork gets a linked worktree (see git help worktree) with the files of the step and a branch of its own, so that both runs go on at once.

STEP is the name of a step; step#2 is its second visit, without a number the last is meant; {n} is the checkpoint n back from the newest. --to goes on after the step, --before just before it.`,
		flags: append([]cli.Flag{
			&cli.StringFlag{Name: "worktree", Usage: "make a linked worktree for the fork at `DIR`"},
			&cli.StringFlag{Name: "branch", Usage: "call the worktree's branch `BRANCH` instead of checkpoint/NEW"},
		}, descentFlags()...),
		args: []string{"[RUN]"},
		examples: []example{
			{"git checkpoint fork --to plan --worktree ../other-way", "try another way from the step 'plan' in a directory of its own"},
			{"git checkpoint fork refactor --before review --run refactor-b", "branch off before the last review"},
		},
		run: runFork,
	}
}

func runFork(c *call) error {
	request := c.descent()
	request.Worktree, request.Branch = c.flags.String("worktree"), c.flags.String("branch")
	return c.in(func(w *worktree.Worktree) error {
		r, err := w.Fork(c.ctx, request)
		if err != nil {
			return err
		}
		c.descended(r, "fork", true)
		return nil
	})
}
