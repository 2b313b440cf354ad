package main

import (
	"github.com/git-checkpoint/git-checkpoint/internal/output"
	"github.com/git-checkpoint/git-checkpoint/internal/worktree"
)

func diffCommand() *command {
	return &command{
		name:     "diff",
		summary:  "compare checkpoints, or a checkpoint with the working tree",
		synopsis: []string{"[A [B]] [--json] [-- PATH...]"},
		description: `Compares the checkpoint A with the checkpoint B, or with the working tree where B is left out; A is the last checkpoint where it is left out too. Untracked files count as they would in a save.

Paths come after "--", relative to the current directory. The text is what git diff prints, by your configuration. With --json it is one object for each path: its name and how it changed (A, D, M or T, as in git diff --name-status).

` + addressHelp,
		args:  []string{"[A]", "[B]"},
		paths: true,
		examples: []example{
			{"git checkpoint diff", "what has changed since the last checkpoint"},
			{"git checkpoint diff @plan @implement -- src", "what happened in src between two steps"},
		},
		run: runDiff,
	}
}

func runDiff(c *call) error {
	return c.in(func(w *worktree.Worktree) error {
		if !c.JSON() {
			return w.Diff(c.ctx, c.arg(0), c.arg(1), c.paths, c.Raw(), c.Terminal())
		}
		changes, err := w.DiffPaths(c.ctx, c.arg(0), c.arg(1), c.paths)
		for _, change := range changes {
			change.Path = output.Name(change.Path)
			c.Object(change)
		}
		return err
	})
}
