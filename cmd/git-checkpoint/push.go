package main

import (
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/git-checkpoint/git-checkpoint/internal/fault"
	"github.com/git-checkpoint/git-checkpoint/internal/output"
	"github.com/git-checkpoint/git-checkpoint/internal/share"
	"github.com/git-checkpoint/git-checkpoint/internal/worktree"
)

func pushCommand() *command {
	return &command{
		name:     "push",
		summary:  "share runs with a remote",
		synopsis: []string{"[REMOTE] [RUN...] [--secrets block|warn|off] [--timeout SECONDS] [--json]"},
		description: `Takes what the remote has, then sends it the runs that it lacks, with their notes and seeds; all of them unless RUNs are given. Nothing is forced. REMOTE is a remote or a URL; it is where the branch is pushed unless it, or checkpoint.push.remote, is given.

Pushing a run publishes the whole history that it stands on, what was staged included. Everything that the remote lacks is searched for secrets first; a finding names checkpoint, path, line and rule, never the secret, and the runs that hold it stay here (checkpoint.push.secrets).

If somebody else went on with a run of the same name, the one that was pushed first keeps it: ours becomes RUN.<12 digits of its tip>, recorded as a fork.`,
		flags: append(shareFlags(),
			&cli.StringFlag{Name: "secrets", Usage: "`MODE` is block, warn or off"}),
		args: []string{"[REMOTE]", "[RUN...]"},
		examples: []example{
			{"git checkpoint push", "share all runs"},
			{"git checkpoint push origin refactor", "share one"},
		},
		run: runPush,
	}
}

func pullCommand() *command {
	return &command{
		name:        "pull",
		summary:     "take runs from a remote",
		synopsis:    []string{"[REMOTE] [--timeout SECONDS] [--json]"},
		description: `Fetches the runs of a remote and merges them: chains go forward, notes are united, new runs appear. Nothing here is deleted, and runs that were pruned here stay so unless somebody went on with them.`,
		flags:       shareFlags(),
		args:        []string{"[REMOTE]"},
		examples:    []example{{"git checkpoint pull", "take what others have pushed"}},
		run: func(c *call) error {
			request, err := c.shareRequest()
			if err != nil {
				return err
			}
			return c.in(func(w *worktree.Worktree) error {
				r, err := w.Pull(c.ctx, request)
				if err != nil {
					return err
				}
				return c.shared(r)
			})
		},
	}
}

func shareFlags() []cli.Flag {
	return []cli.Flag{&cli.IntFlag{Name: "timeout", Usage: "give up when the remote does not answer within `SECONDS`; 600 unless given"}}
}

func (c *call) shareRequest() (worktree.ShareRequest, error) {
	seconds, err := c.bound("timeout")
	if seconds == 0 {
		seconds = 600
	}
	return worktree.ShareRequest{Remote: c.arg(0), Timeout: time.Duration(seconds) * time.Second, Progress: c.Watched()}, err
}

func runPush(c *call) error {
	request, err := c.shareRequest()
	if err != nil {
		return err
	}
	if len(c.args) > 1 {
		request.Runs = c.args[1:]
	}
	switch request.Secrets = c.flags.String("secrets"); request.Secrets {
	case "", "block", "warn", "off":
	default:
		return fault.New(fault.Invalid, "invalid-flag", "the value of '--secrets' is none of block, warn and off")
	}
	return c.in(func(w *worktree.Worktree) error {
		r, err := w.Push(c.ctx, request)
		if err != nil {
			return err
		}
		return c.shared(r)
	})
}

// shared prints what an exchange did. What the remote refused is an error.
func (c *call) shared(r *share.Result) error {
	if c.JSON() {
		c.Object(r)
	} else {
		for _, run := range r.Pulled {
			c.Printf("took run '%s'\n", run)
		}
		for _, d := range r.Diverged {
			c.Printf("run '%s' went on elsewhere: ours is now '%s'\n", d.Run, d.New)
		}
		for _, run := range r.Pushed {
			c.Printf("sent run '%s'\n", run)
		}
		if len(r.Pulled)+len(r.Pushed)+len(r.Diverged)+len(r.Refused)+len(r.Left)+len(r.Held) == 0 {
			c.Printf("'%s' is up to date\n", output.Text(r.Remote))
		}
	}
	for _, f := range r.Refused {
		c.Warning("'%s' refused %s: %s", output.Text(r.Remote), f.Ref, output.Text(f.Reason))
	}
	for _, f := range r.Left {
		c.Warning("%s stays as it is: %s", f.Ref, output.Text(f.Reason))
	}
	if len(r.Refused) > 0 {
		return fault.New(fault.Conflict, "refused", "'%s' refused %s", output.Text(r.Remote), count(len(r.Refused), "ref", "refs")).
			WithHint("the server may hide or forbid refs below refs/checkpoints and refs/notes; checkpoint.push.remote names another place for them")
	}
	if len(r.Held) > 0 {
		return fault.New(fault.Negative, "secrets-found", "%s held back, which would publish secrets: %s", count(len(r.Held), "run is", "runs are"), strings.Join(r.Held, ", ")).
			WithHint("git checkpoint prune drops a run; a line with its fingerprint in %s accepts a finding; --secrets warn pushes anyway", worktree.BaselineName)
	}
	if len(r.Left) > 0 {
		return fault.New(fault.Conflict, "not-merged", "%s of '%s' could not be merged; all else was", count(len(r.Left), "ref", "refs"), output.Text(r.Remote)).
			WithHint("git checkpoint verify tells what is damaged here; a run that differs by case from another is taken once one of them has another name")
	}
	return nil
}
