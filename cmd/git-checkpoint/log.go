package main

import "github.com/git-checkpoint/git-checkpoint/internal/worktree"

func logCommand() *command {
	return &command{
		name:        "log",
		summary:     "list the checkpoints of a run",
		synopsis:    []string{"[RUN] [--json]"},
		description: `Lists the checkpoints of a run, the current one unless RUN is given, newest first: id, how far it is from the newest, date, kind, the step with its visit and outcome, and the subject. Those that the run inherited from another one are marked.`,
		args:        []string{"[RUN]"},
		examples: []example{
			{"git checkpoint log", "list what was saved"},
			{"git checkpoint log --json", "the same, one JSON object a line"},
		},
		run: runLog,
	}
}

func runLog(c *call) error {
	return c.in(func(w *worktree.Worktree) error {
		n := 0
		err := w.Log(c.ctx, c.arg(0), func(e worktree.Entry) bool {
			if c.JSON() {
				c.Object(nameEntry(e))
			} else {
				c.Printf("%s", entryLine(&e, n))
			}
			n++
			return !c.Broken()
		})
		if err == nil && n == 0 {
			c.Hint("no checkpoint yet; git checkpoint save makes one")
		}
		return err
	})
}
