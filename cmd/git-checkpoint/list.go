package main

import (
	"fmt"
	"strings"
	"text/tabwriter"

	"github.com/urfave/cli/v2"

	"github.com/git-checkpoint/git-checkpoint/internal/output"
	"github.com/git-checkpoint/git-checkpoint/internal/worktree"
	"github.com/git-checkpoint/git-checkpoint/refs"
)

func listCommand() *command {
	return &command{
		name:        "list",
		summary:     "list the runs",
		synopsis:    []string{"[--all] [--children-of RUN] [--json]"},
		description: `Lists the runs of this repository: name, status, how many checkpoints, the newest one, when it was created and what it descends from. The current run is marked with a star.`,
		flags: []cli.Flag{
			&cli.BoolFlag{Name: "all", Aliases: []string{"a"}, Usage: "list archived runs too"},
			&cli.StringFlag{Name: "children-of", Usage: "list only the runs that descend directly from `RUN`"},
		},
		examples: []example{
			{"git checkpoint list --all", "list every run there is"},
		},
		run: runList,
	}
}

func runList(c *call) error {
	return c.in(func(w *worktree.Worktree) error {
		runs, err := w.List(c.ctx, c.flags.Bool("all"), c.flags.String("children-of"))
		if err != nil {
			return err
		}
		if c.JSON() {
			for _, r := range runs {
				c.Object(nameRun(r))
			}
			return nil
		}
		if len(runs) == 0 {
			c.Hint("no runs; git checkpoint save starts one, git checkpoint list --all lists archived ones too")
		}
		c.runTable(runs)
		return nil
	})
}

// runTable prints the runs in aligned columns.
func (c *call) runTable(runs []worktree.RunInfo) {
	var text strings.Builder
	table := tabwriter.NewWriter(&text, 0, 0, 2, ' ', 0)
	for _, r := range runs {
		mark := " "
		if r.Current {
			mark = "*"
		}
		if r.Fault != "" {
			fmt.Fprintf(table, "%s %s\tdamaged\t%s\n", mark, r.Run, output.Text(r.Fault))
			continue
		}
		from := ""
		if r.Lineage != nil {
			from = lineageText(r.Lineage)
			from += goneText(r.SourceGone, r.SourcePruned)
		}
		fmt.Fprintf(table, "%s %s\t%s\t%s\t%s\t%s\t%s\n", mark, r.Run, runState(&r),
			count(r.Checkpoints, "checkpoint", "checkpoints"), short(r.Tip), date(r.CreatedAt), from)
	}
	table.Flush()
	for line := range strings.Lines(text.String()) {
		c.Printf("%s\n", strings.TrimRight(line, " \n"))
	}
}

// lineageText says what a run descends from: "forked from 'x@plan'".
func lineageText(l *refs.Lineage) string {
	from := l.Run
	if l.Step != "" {
		from += "@" + output.Text(l.Step)
	}
	return fmt.Sprintf("%s '%s' (%s)", strings.ReplaceAll(l.Kind, "_", " "), from, short(l.Checkpoint))
}

// goneText says of a run that another descends from that it is not there.
func goneText(gone, pruned bool) string {
	switch {
	case pruned:
		return ", which was pruned"
	case gone:
		return ", which is gone"
	}
	return ""
}
