package main

import "github.com/git-checkpoint/git-checkpoint/internal/worktree"

func undoCommand() *command {
	return &command{
		name:     "undo",
		summary:  "go back to before the last restore, rewind or switch",
		synopsis: []string{"[--json]"},
		description: `Goes back to before the last restore, rewind or switch: files, index, HEAD and current run, also what was never saved. A restore that was interrupted is rolled back. Called again it goes back one more; git checkpoint redo goes forward.

To take back what was changed since the last checkpoint instead, use git checkpoint restore @{0}; for what the last step changed, git checkpoint restore @{1}.`,
		examples: []example{
			{"git checkpoint undo", "take back the last restore"},
		},
		run: func(c *call) error {
			c.anyway = true
			return c.restoring(func(w *worktree.Worktree) (*worktree.RestoreResult, error) { return w.Undo(c.ctx) })
		},
	}
}

func redoCommand() *command {
	return &command{
		name:        "redo",
		summary:     "do again what undo took back",
		synopsis:    []string{"[--json]"},
		description: `Goes forward again to where the last git checkpoint undo came from: files, index, HEAD and current run.`,
		examples: []example{
			{"git checkpoint redo", "take back the last undo"},
		},
		run: func(c *call) error {
			return c.restoring(func(w *worktree.Worktree) (*worktree.RestoreResult, error) { return w.Redo(c.ctx) })
		},
	}
}
