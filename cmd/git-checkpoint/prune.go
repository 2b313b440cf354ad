package main

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/git-checkpoint/git-checkpoint/internal/config"
	"github.com/git-checkpoint/git-checkpoint/internal/fault"
	"github.com/git-checkpoint/git-checkpoint/internal/output"
	"github.com/git-checkpoint/git-checkpoint/internal/worktree"
)

func pruneCommand() *command {
	return &command{
		name:     "prune",
		summary:  "drop runs, and what is left over",
		synopsis: []string{"[RUN...] [--older-than AGE] [--keep N] [--status STATUS]... [--max-size SIZE] [--safety AGE] [--dry-run] [--json]"},
		description: `Drops the RUNs that are named, or all runs that every bound which is given lets go. The current run of a worktree, and a run that is being executed, stay; so do, with checkpoint.retention.requirePushed, runs that no remote is known to have. What other runs inherited from a run stays with them.

A tombstone keeps git checkpoint pull from bringing a run back, unless somebody went on with it. The objects go when git next collects garbage.

It also removes the worktrees of tasks whose run has ended, and notes that belong to no run. --safety drops what git checkpoint undo could go back to.`,
		flags: []cli.Flag{
			&cli.StringFlag{Name: "older-than", Usage: "drop runs whose last checkpoint is older than `AGE`: 12h, 30d, 8w"},
			&cli.IntFlag{Name: "keep", Usage: "drop all but the newest `N` runs"},
			&cli.StringSliceFlag{Name: "status", Usage: "drop runs that are `STATUS`: completed, failed, stopped, archived and so on"},
			&cli.StringFlag{Name: "max-size", Usage: "drop the oldest runs until what runs alone hold is at most `SIZE`: 500m, 2g"},
			&cli.StringFlag{Name: "safety", Usage: "drop undo's checkpoints that are older than `AGE`"},
			&cli.BoolFlag{Name: "dry-run", Aliases: []string{"n"}, Usage: "only tell what would be dropped, and what each run costs"},
		},
		args: []string{"[RUN...]"},
		examples: []example{
			{"git checkpoint prune --older-than 30d --dry-run", "see what would go"},
			{"git checkpoint prune --status archived --keep 20", "drop archived runs, but none of the newest 20"},
		},
		run: runPrune,
	}
}

func runPrune(c *call) error {
	request := worktree.PruneRequest{Runs: c.args, Statuses: c.flags.StringSlice("status"), DryRun: c.flags.Bool("dry-run")}
	var err error
	if request.Keep, err = c.bound("keep"); err != nil {
		return err
	}
	if request.OlderThan, err = c.age("older-than"); err != nil {
		return err
	}
	if request.Safety, err = c.age("safety"); err != nil {
		return err
	}
	if text := c.flags.String("max-size"); text != "" {
		if request.MaxSize, err = config.ParseSize(text); err != nil {
			return fault.New(fault.Invalid, "invalid-flag", "read '--max-size': %w", err)
		}
	}
	return c.in(func(w *worktree.Worktree) error {
		r, err := w.Prune(c.ctx, request)
		if err != nil {
			return err
		}
		c.pruned(r)
		return nil
	})
}

// age reads a flag that is a length of time: a number and h, d or w.
func (c *call) age(name string) (time.Duration, error) {
	text := c.flags.String(name)
	if text == "" {
		return 0, nil
	}
	units := map[byte]time.Duration{'h': time.Hour, 'd': 24 * time.Hour, 'w': 7 * 24 * time.Hour}
	unit, ok := units[text[len(text)-1]]
	n, err := strconv.Atoi(text[:len(text)-1])
	if !ok || err != nil || n < 1 || n > 100_000 {
		return 0, fault.New(fault.Invalid, "invalid-flag", "the value of '--%s' is no length of time: %s", name, output.Quoted(text)).
			WithHint("write a number and h, d or w: 12h, 30d, 8w")
	}
	return time.Duration(n) * unit, nil
}

func (c *call) pruned(r *worktree.PruneResult) {
	for _, k := range r.Kept {
		c.Warning("kept run %s", k)
	}
	if c.JSON() {
		c.Object(r)
		return
	}
	verb := "dropped"
	if r.DryRun {
		verb = "would drop"
	}
	for _, p := range r.Pruned {
		c.Printf("%s run '%s' (%s, %s)\n", verb, p.Run, p.Status, bytesText(p.Size))
	}
	for _, what := range []struct {
		n    int
		text string
	}{{r.Safety, "safety checkpoint"}, {len(r.Worktrees), "directory of tasks"}, {len(r.Debris), "ref without a run"}} {
		if what.n > 0 {
			c.Printf("%s %s\n", verb, count(what.n, what.text, strings.Replace(what.text, "directory", "directories", 1)+plural(what.text)))
		}
	}
	if len(r.Pruned)+r.Safety+len(r.Worktrees)+len(r.Debris) == 0 {
		c.Printf("nothing to drop\n")
	}
}

func plural(text string) string {
	if strings.HasSuffix(text, "checkpoint") {
		return "s"
	}
	return ""
}

func bytesText(n int64) string {
	switch {
	case n >= 1<<30:
		return fmt.Sprintf("%.1f GiB", float64(n)/(1<<30))
	case n >= 1<<20:
		return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20))
	case n >= 1<<10:
		return fmt.Sprintf("%.1f KiB", float64(n)/(1<<10))
	}
	return fmt.Sprintf("%d bytes", n)
}
