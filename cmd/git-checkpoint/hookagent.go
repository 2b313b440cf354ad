package main

import (
	"errors"
	"io"
	"os"

	"github.com/git-checkpoint/git-checkpoint/internal/agent"
	"github.com/git-checkpoint/git-checkpoint/internal/fault"
	"github.com/git-checkpoint/git-checkpoint/internal/worktree"
)

// maxEvent bounds what is read of an agent's event, in bytes.
const maxEvent = 64 << 20

// hookAgent reads one event of an agent, from standard input or, as Codex's
// notify gives it, from the argument, and does what it calls for.
func hookAgent(name string) func(*call) error {
	return func(c *call) error {
		data := []byte(c.arg(0))
		if len(data) == 0 {
			var err error
			if data, err = io.ReadAll(io.LimitReader(c.stdin, maxEvent)); err != nil {
				return fault.New(fault.Fatal, "io", "read the event: %w", err)
			}
		}
		e, err := agent.Parse(name, data)
		if err != nil || e.Type == agent.Ignored {
			return err
		}
		w, err := worktree.Open(c.ctx, eventDir(e.Dir))
		if err != nil {
			return unlessNoRepository(err)
		}
		defer w.Close()
		if !w.Automatic() || w.Repository().Git().Top == "" {
			return nil
		}
		err = agent.Act(c.ctx, w, e)
		for _, warning := range w.Warnings() {
			c.Warning("%s", warning)
		}
		return err
	}
}

// eventDir is where a session works, as far as that is a directory here.
func eventDir(dir string) string {
	if info, err := os.Stat(dir); dir == "" || err != nil || !info.IsDir() {
		return ""
	}
	return dir
}

// unlessNoRepository lets agents work where there is nothing to checkpoint.
func unlessNoRepository(err error) error {
	var f *fault.Error
	if errors.As(err, &f) && f.Code == "not-a-repository" {
		return nil
	}
	return err
}
