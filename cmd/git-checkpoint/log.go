package main

import (
	"fmt"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/git-checkpoint/git-checkpoint/internal/fault"
	"github.com/git-checkpoint/git-checkpoint/internal/output"
	"github.com/git-checkpoint/git-checkpoint/internal/worktree"
)

func logCommand() *command {
	return &command{
		name:     "log",
		summary:  "list the checkpoints of a run, or draw the lineage of all runs",
		synopsis: []string{"[RUN] [--json]", "--graph"},
		description: `Lists the checkpoints of a run, the current one unless RUN is given, newest first: id, how far it is from the newest, date, kind, the step with its visit and outcome, and the subject. Those that the run inherited from another one are marked.

With --graph it draws how all runs, archived ones too, descend from each other, as git log --graph draws branches.`,
		flags: []cli.Flag{
			&cli.BoolFlag{Name: "graph", Usage: "draw the lineage of all runs"},
		},
		args: []string{"[RUN]"},
		examples: []example{
			{"git checkpoint log", "list what was saved"},
			{"git checkpoint log --json", "the same, one JSON object a line"},
			{"git checkpoint log --graph", "see which run came from which"},
		},
		run: runLog,
	}
}

func runLog(c *call) error {
	if c.flags.Bool("graph") {
		return runGraph(c)
	}
	return c.in(func(w *worktree.Worktree) error {
		n := 0
		var line []byte
		err := c.entries(w, c.arg(0), func(e *worktree.Entry) bool {
			if c.JSON() {
				c.Object(nameEntry(*e))
			} else {
				line = entryLine(line, e, n)
				c.Text(line)
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

func runGraph(c *call) error {
	if c.JSON() || c.arg(0) != "" {
		return fault.New(fault.Invalid, "excess-argument", "git checkpoint log --graph draws all runs, for people: it takes no run and no --json").
			WithHint("git checkpoint list --all --json tells each run's lineage")
	}
	return c.in(func(w *worktree.Worktree) error {
		colour := w.Colours(c.ctx, c.Terminal())
		return w.Graph(c.ctx, colour, func(l worktree.GraphLine) bool {
			c.Printf("%s\n", strings.TrimRight(l.Art+graphText(&l, colour), " "))
			return !c.Broken()
		})
	})
}

// graphText is what stands behind the lines of a graph.
func graphText(l *worktree.GraphLine, colour bool) string {
	e := &l.Entry
	if e.Checkpoint == "" {
		return ""
	}
	paint := func(code, text string) string {
		if !colour {
			return text
		}
		return "\x1b[" + code + "m" + text + "\x1b[m"
	}
	text := paint("33", short(e.Checkpoint)) + " "
	for _, r := range l.Tips {
		mark := ""
		if r.Current {
			mark = "* "
		}
		text += paint("32", fmt.Sprintf("(%s%s: %s)", mark, r.Run, runState(&r))) + " "
	}
	switch {
	case l.Start && l.Lineage == nil:
		return text + fmt.Sprintf("start of '%s'", e.Run)
	case l.Start:
		return text + fmt.Sprintf("start of '%s', %s%s", e.Run, lineageText(l.Lineage), goneText(l.Gone, l.Pruned))
	case e.StepName != "":
		text += "[" + stepText(e) + "] "
	}
	return text + output.Text(e.Subject)
}

// entries visits the checkpoints of a run, newest first. Lines show nothing of
// their records.
func (c *call) entries(w *worktree.Worktree, run string, yield func(*worktree.Entry) bool) error {
	if c.JSON() {
		return w.Log(c.ctx, run, yield)
	}
	return w.Outline(c.ctx, run, yield)
}
