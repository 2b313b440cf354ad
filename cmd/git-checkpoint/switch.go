package main

import "github.com/git-checkpoint/git-checkpoint/internal/worktree"

func switchCommand() *command {
	return &command{
		name:     "switch",
		summary:  "make a run the current one and restore its newest checkpoint",
		synopsis: []string{"RUN [--json]"},
		description: `Makes RUN the current run and restores its newest checkpoint: files, index and what was under way. What was there before is saved first; git checkpoint undo brings it back, and the run that was current.

If HEAD is not the checkpoint's commit, a branch checkpoint/RUN is made there and checked out, so that commits made since stay on their branch.

A run that belongs to another worktree can be looked at: a save then makes a fork of it.`,
		args: []string{"RUN"},
		examples: []example{
			{"git checkpoint switch refactor", "go on where the run 'refactor' stopped"},
		},
		run: func(c *call) error {
			return c.restoring(func(w *worktree.Worktree) (*worktree.RestoreResult, error) {
				return w.Switch(c.ctx, c.args[0])
			})
		},
	}
}
