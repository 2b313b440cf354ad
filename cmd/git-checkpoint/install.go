package main

import (
	"path/filepath"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/git-checkpoint/git-checkpoint/internal/agent"
	"github.com/git-checkpoint/git-checkpoint/internal/fault"
	"github.com/git-checkpoint/git-checkpoint/internal/git"
	"github.com/git-checkpoint/git-checkpoint/internal/install"
	"github.com/git-checkpoint/git-checkpoint/internal/output"
)

func installCommand() *command {
	return &command{
		name:     "install",
		summary:  "make every commit, or every turn of an agent, a checkpoint",
		synopsis: []string{"[--dry-run] [--json]", "--agent claude|codex|gemini [--user] [--dry-run] [--json]"},
		description: `Puts the hooks post-commit and pre-push in place where git looks for them. From then on every commit is a checkpoint, and a push saves what has changed first. They never make a commit or a push fail; with GIT_CHECKPOINT_SKIP=1 in the environment they do nothing, and git checkpoint config auto_checkpoint says whether they are switched off.

A hook that is there is kept beside ours and called first, with the same arguments and standard input, and its exit code counts. From git 2.54 on the hooks are configured by name instead, and no file is touched.

A folder of hooks that husky or lefthook writes, that is part of the project (core.hooksPath), or that all your repositories share, is left alone, as is a hook that pre-commit has written: then the line to add, and where, is printed. Installing again changes nothing.

With --agent it adds hooks to the settings of a coding agent instead, and keeps all else that is there: in .claude/settings.local.json, .codex/hooks.json or .gemini/settings.json of the project, or with --user in the home directory. From then on a session is a run, and a turn that changes something a checkpoint.`,
		flags: append(agentFlags(),
			&cli.BoolFlag{Name: "dry-run", Aliases: []string{"n"}, Usage: "only say what would be done"},
		),
		examples: []example{
			{"git checkpoint install", "install the hooks"},
			{"git checkpoint install --dry-run", "see first what it would do"},
			{"git checkpoint install --agent claude", "make every turn of Claude Code a checkpoint"},
		},
		run: func(c *call) error {
			if done, err := c.forAgent("installed", agent.Settings.InstallOr); done {
				return err
			}
			program, err := install.Program()
			if err != nil {
				return err
			}
			return c.installing(func(repo *git.Repo) ([]install.Result, error) {
				return install.Install(c.ctx, repo, install.Options{Program: program, DryRun: c.flags.Bool("dry-run")})
			})
		},
	}
}

func uninstallCommand() *command {
	return &command{
		name:     "uninstall",
		summary:  "take the hooks away that install put in place",
		synopsis: []string{"[--dry-run] [--json]", "--agent claude|codex|gemini [--user] [--dry-run] [--json]"},
		description: `Takes away what git checkpoint install did: what was there before is as it was, byte for byte. Checkpoints stay.

A hook of ours that somebody has changed since, or another one in its place, is left alone, which is said, and the exit code is 3.`,
		flags: append(agentFlags(),
			&cli.BoolFlag{Name: "dry-run", Aliases: []string{"n"}, Usage: "only say what would be done"},
		),
		examples: []example{
			{"git checkpoint uninstall", "stop making checkpoints by hooks"},
		},
		run: func(c *call) error {
			if done, err := c.forAgent("removed", agent.Settings.UninstallOr); done {
				return err
			}
			return c.installing(func(repo *git.Repo) ([]install.Result, error) {
				return install.Uninstall(c.ctx, repo, c.flags.Bool("dry-run"))
			})
		},
	}
}

func (c *call) installing(do func(*git.Repo) ([]install.Result, error)) error {
	repo, err := git.Open(c.ctx, "")
	if err != nil {
		return err
	}
	results, err := do(repo)
	unsettled := ""
	for _, r := range results {
		if !r.Settled() {
			unsettled = r.Hook
		}
		c.hookResult(repo, r)
	}
	if err == nil && unsettled != "" {
		return fault.New(fault.Conflict, "hook-in-the-way", "the hook %s is left as it is", unsettled).
			WithHint("look at it, and run the command again")
	}
	return err
}

func (c *call) hookResult(repo *git.Repo, r install.Result) {
	if c.JSON() {
		c.Object(r)
		return
	}
	where := r.Config
	if where == "" {
		where = near(repo, r.Path)
	}
	would := ""
	if r.DryRun {
		would = "would be "
	}
	switch r.State {
	case install.Installed, install.Updated, install.Removed:
		c.Printf("%s: %s%s (%s)\n", r.Hook, would, r.State, where)
	case install.Unchanged:
		c.Printf("%s: installed already (%s)\n", r.Hook, where)
	case install.Present:
		c.Printf("%s: called already (%s)\n", r.Hook, near(repo, r.Path+r.File))
	case install.Restored:
		c.Printf("%s: %sremoved, and what was there before is back (%s)\n", r.Hook, would, where)
	case install.Absent:
		c.Printf("%s: not installed\n", r.Hook)
	case install.Manual:
		c.manualHook(repo, r)
	default:
		c.Warning("%s (%s): %s", r.Hook, where, r.Reason)
	}
	if r.Kept != "" && (r.State == install.Installed || r.State == install.Updated) {
		c.Printf("%s: the hook that was there is kept as %s and called first\n", r.Hook, output.Path(filepath.Base(r.Kept)))
	}
}

func (c *call) manualHook(repo *git.Repo, r install.Result) {
	if r.TakeOut {
		c.Printf("%s: %s; take out of %s what calls git-checkpoint\n", r.Hook, output.Text(r.Reason), near(repo, r.File))
		return
	}
	c.Printf("%s: %s; add to %s:\n\n", r.Hook, output.Text(r.Reason), near(repo, r.File))
	for line := range strings.Lines(r.Lines) {
		c.Printf("    %s", line)
	}
	c.Printf("\n")
}

// near is a path as seen from the top of the working tree.
func near(repo *git.Repo, path string) string {
	if rel, err := filepath.Rel(repo.Top, path); repo.Top != "" && err == nil && rel != ".." && !strings.HasPrefix(rel, ".."+string(filepath.Separator)) {
		path = rel
	}
	return output.Path(path)
}
