package main

import (
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/git-checkpoint/git-checkpoint/internal/fault"
	"github.com/git-checkpoint/git-checkpoint/internal/output"
	"github.com/git-checkpoint/git-checkpoint/internal/snapshot"
	"github.com/git-checkpoint/git-checkpoint/internal/worktree"
	"github.com/git-checkpoint/git-checkpoint/refs"
)

func saveCommand() *command {
	return &command{
		name:    "save",
		summary: "save the working tree as a checkpoint; so does git checkpoint alone",
		synopsis: []string{
			"[-m MESSAGE] [--run RUN] [--step STEP] [--kind KIND] [--outcome OUTCOME] [--replay always] [--session ID [--transcript FILE]] [--turn ID] [--artifact NAME=PATH|URI]... [--if-changed] [--json]",
		},
		description: `Saves all files, tracked or untracked, that are not ignored, and what is staged, flagged, in conflict or under way. Files, index, HEAD, branches and stash stay as they are, and no hook is run.

Without --run the checkpoint goes to the current run; where there is none, or it has ended, a new run begins. Where nothing has changed since the last checkpoint, none is made; but a step that is named is always recorded, unless --if-changed is given.

Untracked files above checkpoint.snapshot.maxFileSize (50 MiB unless configured), unreadable ones, sockets and the like are skipped, with a warning. Of a submodule or a repository within the working tree only its commit is saved, not its files.`,
		flags: []cli.Flag{
			&cli.StringFlag{Name: "message", Aliases: []string{"m"}, Usage: "describe the checkpoint by `MESSAGE`; its first line is the subject"},
			&cli.StringFlag{Name: "run", Usage: "save to `RUN`, which is made if need be"},
			&cli.StringFlag{Name: "step", Usage: "name the step that has ended `STEP`"},
			&cli.StringFlag{Name: "kind", Usage: "say what made the changes: `KIND` is " + alternatives(refs.Kinds)},
			&cli.StringFlag{Name: "outcome", Usage: "say how the step ended: `OUTCOME` is " + alternatives(refs.Outcomes)},
			&cli.StringFlag{Name: "replay", Usage: "with `always`: the step makes something that is not in the tree, so that it has to run again after a rewind"},
			&cli.StringFlag{Name: "session", Usage: "record the agent's session `ID`"},
			&cli.StringFlag{Name: "transcript", Usage: "record the `FILE` in which the agent keeps the session; a rewind resumes it only while the file is there"},
			&cli.StringFlag{Name: "turn", Usage: "record the turn's `ID`"},
			&cli.StringSliceFlag{Name: "artifact", KeepSpace: true, Usage: "record a product of the step, `NAME=PATH|URI`; a URI has a scheme, such as https://"},
			&cli.BoolFlag{Name: "if-changed", Usage: "record a named step only if something has changed"},
		},
		examples: []example{
			{"git checkpoint save -m 'before the rewrite'", "save what is there"},
			{"git checkpoint save --step test --kind deterministic --outcome failed", "record how a step of the current run ended"},
		},
		run: runSave,
	}
}

func runSave(c *call) error {
	artifacts, err := parseArtifacts(c.flags.StringSlice("artifact"))
	if err != nil {
		return err
	}
	return c.in(func(w *worktree.Worktree) error {
		r, err := w.Save(c.ctx, worktree.SaveRequest{
			Run:        c.flags.String("run"),
			Step:       c.flags.String("step"),
			Kind:       c.flags.String("kind"),
			Outcome:    c.flags.String("outcome"),
			Replay:     c.flags.String("replay"),
			Session:    c.flags.String("session"),
			Transcript: c.flags.String("transcript"),
			Turn:       c.flags.String("turn"),
			Artifacts:  artifacts,
			Message:    c.flags.String("message"),
			IfChanged:  c.flags.Bool("if-changed"),
		})
		if err != nil {
			return err
		}
		c.saved(r)
		return nil
	})
}

func parseArtifacts(values []string) ([]worktree.Artifact, error) {
	var artifacts []worktree.Artifact
	for _, v := range values {
		name, place, _ := strings.Cut(v, "=")
		if name == "" || place == "" {
			return nil, fault.New(fault.Invalid, "invalid-artifact", "%s is no artifact", output.Quoted(v)).
				WithHint("write --artifact NAME=PATH or --artifact NAME=URI")
		}
		a := worktree.Artifact{Name: name}
		if isURI(place) {
			a.URI = place
		} else {
			a.Path = place
		}
		artifacts = append(artifacts, a)
	}
	return artifacts, nil
}

// isURI tells a URI from a path by its scheme (RFC 3986, with "//").
func isURI(place string) bool {
	scheme, _, ok := strings.Cut(place, "://")
	return ok && scheme != "" && strings.Trim(strings.ToLower(scheme), "abcdefghijklmnopqrstuvwxyz0123456789+-.") == ""
}

func (c *call) saved(r *worktree.SaveResult) {
	c.warnSkipped(r.Skipped)
	c.warnEach(r.Unprotected, func(path string) string {
		return output.Quoted(path) + " is a repository of its own: only its commit is saved, not its files"
	})
	if r.Lineage != nil && r.Saved {
		c.Warning("run '%s' belongs to another worktree: this is a fork of it, run '%s'", r.Lineage.Run, r.Run)
	}
	if c.JSON() {
		r.Skipped, r.Unprotected = nameSkips(r.Skipped), output.Names(r.Unprotected)
		c.Object(r)
		return
	}
	switch {
	case r.Saved:
		c.Printf("saved checkpoint %d of run '%s' (%s)\n", r.Number, r.Run, short(r.Checkpoint))
	case r.Run == "":
		c.Printf("nothing to save: nothing differs from HEAD\n")
	default:
		c.Printf("nothing changed since checkpoint %s of run '%s'\n", short(r.Checkpoint), r.Run)
	}
	if r.Saved && r.Started {
		newest := "@{0}"
		if c.flags.String("run") != "" {
			newest = r.Run // it need not be the current one
		}
		c.Hint("git checkpoint restore %s comes back to it, from wherever you are then", newest)
		c.Hint("git checkpoint saves the next one; git checkpoint log lists them")
	}
}

// warnSkipped says what a snapshot left out, and how to change that.
func (c *call) warnSkipped(skips []snapshot.Skip) {
	large := false
	lines := make([]string, len(skips))
	for i, s := range skips {
		lines[i] = "skipped " + output.Quoted(s.Path) + ": " + s.Reason
		large = large || s.Reason == snapshot.ReasonTooLarge
	}
	c.warnEach(lines, func(line string) string { return line })
	if large {
		c.Hint("git config checkpoint.snapshot.maxFileSize changes the limit, 0 lifts it")
	}
}

// maxWarnings keeps a directory full of the same from filling the terminal.
const maxWarnings = 20

func (c *call) warnEach(list []string, text func(string) string) {
	for i, s := range list {
		if i == maxWarnings {
			c.Warning("and %d more like this (--json lists all)", len(list)-i)
			return
		}
		c.Warning("%s", text(s))
	}
}

func nameSkips(skips []snapshot.Skip) []snapshot.Skip {
	named := make([]snapshot.Skip, len(skips))
	for i, s := range skips {
		named[i] = snapshot.Skip{Path: output.Name(s.Path), Reason: s.Reason}
	}
	return named
}
