package main

import (
	"slices"

	"github.com/urfave/cli/v2"

	"github.com/git-checkpoint/git-checkpoint/internal/fault"
	"github.com/git-checkpoint/git-checkpoint/internal/output"
	"github.com/git-checkpoint/git-checkpoint/internal/worktree"
)

func rewindCommand() *command {
	return &command{
		name:    "rewind",
		summary: "go back to a step of a run, as a new run",
		synopsis: []string{
			"[RUN] --list [--json]",
			"[RUN] (--to STEP | --before STEP) [--run NEW] [--no-checkout | --reset] [--dry-run] [--instructions TEXT] [--fresh-session] [--json]",
		},
		description: `Makes a new run that goes on from a step of RUN (the current one unless it is given), restores the files as they were then, and archives RUN. Nothing is lost: the files that were there are saved first, the archived run can still be listed, rewound and forked, and git checkpoint undo takes it all back.

STEP is the name of a step; step#2 is its second visit, without a number the last is meant; {n} is the checkpoint n back from the newest. --to goes on after the step, --before just before it.

If HEAD is not the checkpoint's commit, a branch checkpoint/NEW is made there and checked out, so that commits made since stay on their branch; --reset moves the current branch instead. A run that a live process executes cannot be rewound; an open one is stopped by it.

It answers what an orchestrator needs to go on: the steps that are done, those to skip and to run again, the step and the agent's session to resume, and what is pending.`,
		flags: append([]cli.Flag{
			&cli.BoolFlag{Name: "list", Usage: "list the checkpoints to choose from, oldest first"},
			&cli.BoolFlag{Name: "no-checkout", Usage: "make the run and archive the source, but touch no file, HEAD or current run"},
			&cli.BoolFlag{Name: "reset", Usage: "move the current branch to the checkpoint's commit"},
		}, descentFlags()...),
		args: []string{"[RUN]"},
		examples: []example{
			{"git checkpoint rewind --list", "see the steps"},
			{"git checkpoint rewind --to implement", "go back to where the step 'implement' ended"},
			{"git checkpoint rewind refactor --before review#1 --no-checkout --json", "let an orchestrator go on before the first review"},
		},
		run: runRewind,
	}
}

// descentFlags are those that rewind and fork have in common.
func descentFlags() []cli.Flag {
	return []cli.Flag{
		&cli.StringFlag{Name: "to", Usage: "go on after `STEP`"},
		&cli.StringFlag{Name: "before", Usage: "go on before `STEP`"},
		&cli.StringFlag{Name: "run", Usage: "call the new run `NEW`; asked again with the same name and step, it answers with that run"},
		&cli.BoolFlag{Name: "dry-run", Aliases: []string{"n"}, Usage: "only tell what would be done"},
		&cli.StringFlag{Name: "instructions", Usage: "record `TEXT` for the step that is entered again"},
		&cli.BoolFlag{Name: "fresh-session", Usage: "do not resume the agent's session"},
	}
}

func (c *call) descent() worktree.DescendRequest {
	return worktree.DescendRequest{
		Run: c.arg(0), To: c.flags.String("to"), Before: c.flags.String("before"), New: c.flags.String("run"),
		DryRun: c.flags.Bool("dry-run"), Instructions: c.flags.String("instructions"), FreshSession: c.flags.Bool("fresh-session"),
	}
}

func runRewind(c *call) error {
	request := c.descent()
	request.NoCheckout, request.Reset = c.flags.Bool("no-checkout"), c.flags.Bool("reset")
	if c.flags.Bool("list") {
		if request.To != "" || request.Before != "" {
			return fault.New(fault.Invalid, "excess-argument", "git checkpoint rewind --list only lists: --to and --before do not go with it")
		}
		return runRewindList(c)
	}
	return c.in(func(w *worktree.Worktree) error {
		r, err := w.Rewind(c.ctx, request)
		if err != nil {
			return err
		}
		c.descended(r, "rewind", request.NoCheckout)
		return nil
	})
}

func runRewindList(c *call) error {
	return c.in(func(w *worktree.Worktree) error {
		var entries []worktree.Entry
		err := c.entries(w, c.arg(0), func(e *worktree.Entry) bool {
			entries = append(entries, *e)
			return true
		})
		if err != nil {
			return err
		}
		for i, e := range slices.Backward(entries) {
			if c.JSON() {
				c.Object(nameEntry(e))
			} else {
				c.Text(entryLine(nil, &e, i))
			}
		}
		if len(entries) == 0 {
			c.Hint("no checkpoint yet; git checkpoint save makes one")
		}
		return nil
	})
}

// descended prints what a rewind or fork made.
func (c *call) descended(r *worktree.DescendResult, verb string, refsOnly bool) {
	if r.Restore != nil {
		c.warnLeft(r.Restore)
	}
	if c.JSON() {
		if r.Restore != nil {
			f := r.Restore
			f.Written, f.Deleted = output.Names(f.Written), output.Names(f.Deleted)
			f.Kept, f.Unignored, f.Unprotected = output.Names(f.Kept), output.Names(f.Unignored), output.Names(f.Unprotected)
			f.Skipped = nameSkips(f.Skipped)
		}
		c.Object(r)
		return
	}
	c.descendedText(r, verb)
	switch {
	case r.DryRun:
	case verb == "fork" && r.Worktree != "":
		c.Hint("go on there: cd %s", output.Path(r.Worktree))
	case r.Planned:
		c.Hint("git checkpoint resume %s goes on with its plan", r.Run)
	case verb == "fork", refsOnly, r.Existed:
		c.Hint("git checkpoint switch %s goes on with it here", r.Run)
	default:
		c.Hint("git checkpoint undo takes it back")
	}
}

func (c *call) descendedText(r *worktree.DescendResult, verb string) {
	made := map[string]string{"rewind": "rewound", "fork": "forked"}[verb]
	switch {
	case r.DryRun:
		made = "would be " + made
	case r.Existed:
		made = "was " + made + " before"
	}
	c.Printf("run '%s': %s from '%s' at %s\n", r.Run, made, r.Lineage.Run, short(r.Pin.Checkpoint))
	if r.Restore != nil {
		c.Printf("%s\n", restoreCount(r.Restore))
		if r.Restore.Head != nil {
			c.Printf("HEAD: %s\n", headPlace(r.Restore.Head))
		}
	}
	if r.Worktree != "" {
		c.Printf("worktree: %s, branch '%s'\n", output.Path(r.Worktree), r.Branch)
	}
	step := output.Text(r.Resume.Step)
	if step == "" {
		step = "the checkpoint"
	}
	resume := map[string]string{"continue": "go on after " + step, "redo": "run " + step}[r.Resume.Mode]
	if r.Resume.SessionID != "" {
		resume += ", in session " + output.Text(r.Resume.SessionID)
	}
	c.Printf("resume: %s\n", resume)
	for _, s := range r.Skip {
		c.Printf("skip: %s (done by '%s')\n", output.Text(s.StepName), s.Run)
	}
	for _, s := range r.Replay {
		c.Printf("run again: %s\n", output.Text(s.StepName))
	}
	for _, s := range r.Pending {
		c.Printf("pending: %s\n", output.Text(s))
	}
}
