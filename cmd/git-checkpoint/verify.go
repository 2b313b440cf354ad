package main

import (
	"github.com/git-checkpoint/git-checkpoint/internal/fault"
	"github.com/git-checkpoint/git-checkpoint/internal/output"
	"github.com/git-checkpoint/git-checkpoint/internal/worktree"
)

func verifyCommand() *command {
	return &command{
		name:     "verify",
		summary:  "check everything that was recorded",
		synopsis: []string{"[--json]"},
		description: `Checks every run: that its chain is whole, that its notes can be read and belong to it, and that the objects are there. Each fault is a line: what is wrong, where, and with which object.

The exit code is 1 if there are faults.`,
		examples: []example{
			{"git checkpoint verify", "check all runs of this repository"},
		},
		run: runVerify,
	}
}

func runVerify(c *call) error {
	return c.inside(worktree.OpenToVerify, func(w *worktree.Worktree) error {
		n := 0
		err := w.Verify(c.ctx, func(f worktree.Finding) {
			n++
			c.finding(f)
		})
		switch {
		case err != nil:
			return err
		case n > 0:
			return fault.New(fault.Negative, "faults-found", "%s found", count(n, "fault", "faults"))
		case !c.JSON():
			c.Printf("ok\n")
		}
		return nil
	})
}

func (c *call) finding(f worktree.Finding) {
	if c.JSON() {
		c.Object(f)
		return
	}
	line := f.Code
	for _, part := range []string{f.Ref, f.Object} {
		if part != "" {
			line += " " + output.Text(part)
		}
	}
	c.Printf("%s: %s\n", line, output.Text(f.Message))
}
