package main

import (
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/git-checkpoint/git-checkpoint/internal/fault"
	"github.com/git-checkpoint/git-checkpoint/internal/output"
	"github.com/git-checkpoint/git-checkpoint/internal/worktree"
)

func showCommand() *command {
	return &command{
		name:     "show",
		summary:  "show a checkpoint and what its step changed",
		synopsis: []string{"[CHECKPOINT] [-p] [--json]"},
		description: `Shows a checkpoint, the newest of the current run unless CHECKPOINT is given, and which files differ from the checkpoint before it; of a plan's task also the end of what its commands printed.

` + addressHelp,
		flags: []cli.Flag{
			&cli.BoolFlag{Name: "patch", Aliases: []string{"p"}, Usage: "show the changes line by line"},
		},
		args: []string{"[CHECKPOINT]"},
		examples: []example{
			{"git checkpoint show @implement#1 -p", "show what the first visit of a step changed"},
		},
		run: runShow,
	}
}

func runShow(c *call) error {
	patch := c.flags.Bool("patch")
	if patch && c.JSON() {
		return fault.New(fault.Invalid, "excess-flag", "git checkpoint show takes either '--patch' or '--json'").
			WithHint("git checkpoint diff --json lists the paths that differ between two checkpoints")
	}
	return c.in(func(w *worktree.Worktree) error {
		e, err := w.Show(c.ctx, c.arg(0))
		if err != nil {
			return err
		}
		if c.JSON() {
			c.Object(nameEntry(*e))
			return nil
		}
		c.entry(e)
		if err := w.ShowChanges(c.ctx, e.Checkpoint, patch, false, c.Raw()); err != nil {
			return err
		}
		c.log(e.Log)
		return nil
	})
}

// entry prints a checkpoint's header, as git show prints a commit's.
func (c *call) entry(e *worktree.Entry) {
	what := "checkpoint"
	if e.Run == "" {
		what = "commit"
	}
	c.Printf("%s %s\n", what, e.Checkpoint)
	field := func(name, value string) {
		if value != "" {
			c.Printf("%-10s%s\n", name+":", output.Text(value))
		}
	}
	run := e.Run
	if e.Inherited {
		run += " (inherited)"
	}
	field("Run", run)
	field("Step", stepText(e))
	field("Kind", e.StepKind)
	field("Replay", e.Replay)
	field("Session", e.SessionID)
	field("Turn", e.TurnID)
	field("Branch", e.Branch)
	field("Head", e.GitCommit)
	field("State", e.State)
	field("Date", date(e.At))
	for _, a := range e.Artifacts {
		field("Artifact", a.Name+" = "+artifactPlace(a))
	}
	for _, s := range e.Skipped {
		field("Skipped", output.Path(s.Path)+" ("+s.Reason+")")
	}
	c.Printf("\n    %s\n\n", output.Text(e.Subject))
}

// log prints what the command of a plan's task printed.
func (c *call) log(text string) {
	if text == "" {
		return
	}
	c.Printf("\nOutput:\n")
	for line := range strings.Lines(text) {
		c.Printf("    %s\n", output.Text(strings.TrimRight(line, "\r\n")))
	}
}

func artifactPlace(a worktree.Artifact) string {
	if a.URI != "" {
		return a.URI
	}
	return output.Path(a.Path)
}
