package main

import (
	"context"
	"strings"

	"github.com/git-checkpoint/git-checkpoint/internal/fault"
	"github.com/git-checkpoint/git-checkpoint/internal/worktree"
	"github.com/git-checkpoint/git-checkpoint/refs"
	"github.com/git-checkpoint/git-checkpoint/rerun"
)

func approveCommand() *command {
	return &command{
		name:        "approve",
		summary:     "let a held plan start",
		synopsis:    []string{"RUN [--json]"},
		description: `Approves the plan of RUN, which is held (approval = "held"); git checkpoint resume then executes it.`,
		args:        []string{"RUN"},
		examples:    []example{{"git checkpoint approve api", "let the run 'api' start"}},
		run: func(c *call) error {
			return c.decided("approved", func(ctx context.Context, repo *refs.Repository, by refs.Identity) error {
				return rerun.Approve(ctx, repo, c.args[0], by)
			})
		},
	}
}

func rejectCommand() *command {
	return &command{
		name:        "reject",
		summary:     "end a held plan before it starts",
		synopsis:    []string{"RUN [--json]"},
		description: `Rejects the plan of RUN, which is held (approval = "held"). The run is stopped; another plan is another run.`,
		args:        []string{"RUN"},
		examples:    []example{{"git checkpoint reject api", "do not let the run 'api' start"}},
		run: func(c *call) error {
			return c.decided("rejected", func(ctx context.Context, repo *refs.Repository, by refs.Identity) error {
				return rerun.Reject(ctx, repo, c.args[0], by)
			})
		},
	}
}

func answerCommand() *command {
	return &command{
		name:        "answer",
		summary:     "answer what a task asked",
		synopsis:    []string{"RUN TASK TEXT [--json]"},
		description: `Answers the question of TASK in RUN (git checkpoint status RUN shows it); git checkpoint resume then goes on, with question and answer in the task's instructions.`,
		args:        []string{"RUN", "TASK", "TEXT"},
		examples:    []example{{"git checkpoint answer api design 'use version 2'", "tell the task 'design' what it wants to know"}},
		run: func(c *call) error {
			text := strings.TrimSpace(c.args[2])
			if text == "" {
				return fault.New(fault.Invalid, "missing-argument", "git checkpoint answer needs a text")
			}
			return c.decided("answered", func(ctx context.Context, repo *refs.Repository, by refs.Identity) error {
				return rerun.AnswerQuestion(ctx, repo, c.args[0], c.args[1], text, by)
			})
		},
	}
}

// decided does what a person decided about a run, and says so.
func (c *call) decided(what string, do func(context.Context, *refs.Repository, refs.Identity) error) error {
	return c.in(func(w *worktree.Worktree) error {
		if err := w.Decide(c.ctx, do); err != nil {
			return err
		}
		if c.JSON() {
			c.Object(map[string]string{"run": c.args[0], "decision": what})
			return nil
		}
		c.Printf("run '%s': %s\n", c.args[0], what)
		if what != "rejected" {
			c.Hint("git checkpoint resume %s goes on", c.args[0])
		}
		return nil
	})
}
