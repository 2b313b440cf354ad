package main

import (
	"github.com/urfave/cli/v2"

	"github.com/git-checkpoint/git-checkpoint/internal/agent"
	"github.com/git-checkpoint/git-checkpoint/internal/fault"
	"github.com/git-checkpoint/git-checkpoint/internal/git"
)

// agentFlags choose an agent whose hooks are meant instead of git's.
func agentFlags() []cli.Flag {
	return []cli.Flag{
		&cli.StringFlag{Name: "agent", Usage: "the hooks of `AGENT` instead of git's: claude, codex or gemini"},
		&cli.BoolFlag{Name: "user", Usage: "with --agent: in the settings of your home directory, for all projects"},
	}
}

// agentChange is what became of an agent's settings.
type agentChange struct {
	Agent   string `json:"agent"`
	File    string `json:"file"`
	Changed bool   `json:"changed"`
	DryRun  bool   `json:"dry_run,omitempty"`
}

// forAgent changes an agent's settings, if an agent is named.
func (c *call) forAgent(what string, do func(agent.Settings, bool) (bool, error)) (done bool, err error) {
	name := c.flags.String("agent")
	if name == "" {
		if c.flags.Bool("user") {
			return true, fault.New(fault.Invalid, "missing-flag", "--user goes with --agent")
		}
		return false, nil
	}
	top := ""
	if !c.flags.Bool("user") {
		repo, err := git.Open(c.ctx, "")
		if err != nil {
			return true, err
		}
		if err := repo.NeedTop(); err != nil {
			return true, err
		}
		top = repo.Top
	}
	settings, err := agent.SettingsOf(name, top, c.flags.Bool("user"))
	if err != nil {
		return true, err
	}
	change := agentChange{Agent: name, File: settings.File, DryRun: c.flags.Bool("dry-run")}
	if change.Changed, err = do(settings, change.DryRun); err != nil {
		return true, err
	}
	c.agentChanged(what, change)
	return true, nil
}

func (c *call) agentChanged(what string, change agentChange) {
	switch {
	case c.JSON():
		c.Object(change)
		return
	case !change.Changed:
		c.Printf("%s: nothing to do (%s)\n", change.Agent, change.File)
		return
	case change.DryRun:
		c.Printf("%s: would be %s (%s)\n", change.Agent, what, change.File)
		return
	}
	c.Printf("%s: %s (%s)\n", change.Agent, what, change.File)
	if what != "installed" {
		return
	}
	c.Hint("git-checkpoint must be on the PATH of the agent")
	if change.Agent == agent.Codex {
		c.Hint("Codex asks once whether it may trust the hooks; older versions want hooks = true under [features] in config.toml")
	}
}
