package main

import (
	"io"
	"os"
	"strings"

	"github.com/git-checkpoint/git-checkpoint/internal/agent"
	"github.com/git-checkpoint/git-checkpoint/internal/fault"
	"github.com/git-checkpoint/git-checkpoint/internal/git"
	"github.com/git-checkpoint/git-checkpoint/internal/output"
	"github.com/git-checkpoint/git-checkpoint/internal/worktree"
	"github.com/git-checkpoint/git-checkpoint/refs"
)

// hook is what a hook's name makes happen. An error of run is one warning:
// whoever called the hook goes on.
type hook struct {
	name string
	run  func(*call) error // call.args are those after the name
}

// hooks are what `hook NAME` knows.
var hooks = []hook{
	{"post-commit", hookPostCommit},
	{"pre-push", hookPrePush},
	{agent.Claude, hookAgent(agent.Claude)},
	{agent.Codex, hookAgent(agent.Codex)},
	{agent.Gemini, hookAgent(agent.Gemini)},
	{agent.Own, hookAgent(agent.Own)},
}

func hookNames() []string {
	names := make([]string, len(hooks))
	for i, h := range hooks {
		names[i] = h.name
	}
	return names
}

func hookCommand() *command {
	return &command{
		name:     "hook",
		summary:  "do what a hook of git or of an agent is for",
		synopsis: []string{"NAME [ARGUMENT...]"},
		description: `What the hooks call that git checkpoint install puts in place. NAME is ` + alternatives(hookNames()) + `.

post-commit saves a checkpoint of kind commit, in a new run where none is open. pre-push saves what has changed and looks over the current run. Neither does anything in the middle of a rebase, am, cherry-pick or revert.

claude, codex and gemini read an event that this agent sends to its hooks, from standard input or, as Codex's notify gives it, from the argument: a session is a run, a turn that changed something a checkpoint. event reads our own form, for any other agent; docs/events.md has its fields.

A hook prints nothing on standard output, says in a line on standard error what went wrong, and ends with exit code 0, so that it never keeps anybody from going on. With GIT_CHECKPOINT_SKIP=1, or checkpoint.autoCheckpoint false, it does nothing.`,
		args: []string{"NAME", "[ARGUMENT]", "[ARGUMENT]"},
		examples: []example{
			{"git checkpoint hook post-commit", "save a checkpoint of the commit that was just made"},
			{`echo '{"type":"turn-end","session_id":"s1"}' | git checkpoint hook event`, "save what a turn of some other agent left"},
		},
		run: runHook,
	}
}

func runHook(c *call) error {
	name := c.args[0]
	for _, h := range hooks {
		if h.name != name {
			continue
		}
		if skipped() {
			return nil
		}
		inner := *c
		inner.args = c.args[1:]
		if err := guarded(func() error { return h.run(&inner) }); err != nil {
			c.Warning("no checkpoint by the hook %s: %v", name, err)
		}
		return nil
	}
	e := fault.New(fault.Invalid, "unknown-hook", "unknown hook %s", output.Quoted(name))
	if near := refs.Nearest(name, hookNames()); near != "" {
		return e.WithHint("did you mean 'git checkpoint hook %s'?", near)
	}
	return e.WithHint("the hooks are %s", strings.Join(hookNames(), ", "))
}

// skipped says whether the user has switched hooks off for this once.
func skipped() bool {
	v := os.Getenv("GIT_CHECKPOINT_SKIP")
	off, err := git.ParseBool(v)
	return off || err != nil
}

func hookPostCommit(c *call) error {
	return c.in(func(w *worktree.Worktree) error {
		r, err := w.AfterCommit(c.ctx)
		c.hookSaved(r)
		return err
	})
}

func hookPrePush(c *call) error {
	return c.in(func(w *worktree.Worktree) error {
		r, faults, err := w.BeforePush(c.ctx)
		c.hookSaved(r)
		for _, f := range faults {
			c.Warning("the current run is damaged: %s %.12s: %s (git checkpoint verify says more)", f.Ref, f.Object, f.Message)
		}
		if err != nil {
			return err
		}
		return c.shareWithPush(w)
	})
}

// hookSaved says what a checkpoint lacks, in one line: the hook is in the
// middle of something else.
func (c *call) hookSaved(r *worktree.SaveResult) {
	if r == nil || !r.Saved || len(r.Skipped) == 0 {
		return
	}
	first := r.Skipped[0]
	c.Warning("the checkpoint leaves out %s, first %s: %s", count(len(r.Skipped), "file", "files"), output.Quoted(first.Path), first.Reason)
}

// pushedLimit bounds what is read of what git tells its pre-push hook.
const pushedLimit = 1 << 20

// shareWithPush shares the runs whose commits are being pushed, where that is
// wanted. git tells the remote as arguments, and what is pushed on standard
// input.
func (c *call) shareWithPush(w *worktree.Worktree) error {
	if !w.SharesWithPush() {
		return nil
	}
	pushed, err := io.ReadAll(io.LimitReader(c.stdin, pushedLimit))
	if err != nil {
		return fault.New(fault.Fatal, "io", "read what is pushed: %w", err)
	}
	r, err := w.ShareWithPush(c.ctx, c.arg(0), string(pushed))
	switch {
	case err != nil:
		c.Warning("checkpoints were not shared: %v", err)
	case r != nil && len(r.Held) > 0:
		c.Warning("%s held back, which would publish secrets: %s", count(len(r.Held), "run is", "runs are"), strings.Join(r.Held, ", "))
	case r != nil && len(r.Refused) > 0:
		c.Warning("'%s' refused %s of checkpoints, first %s: %s", output.Text(r.Remote), count(len(r.Refused), "ref", "refs"), r.Refused[0].Ref, output.Text(r.Refused[0].Reason))
	case r != nil && len(r.Left) > 0:
		c.Warning("%s of checkpoints could not be merged, first %s: %s", count(len(r.Left), "ref", "refs"), r.Left[0].Ref, output.Text(r.Left[0].Reason))
	}
	return nil
}
