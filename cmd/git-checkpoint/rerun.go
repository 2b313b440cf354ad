package main

import (
	"bytes"
	"encoding/json"
	"os"
	"strings"
	"unicode/utf8"

	"github.com/urfave/cli/v2"

	"github.com/git-checkpoint/git-checkpoint/internal/fault"
	"github.com/git-checkpoint/git-checkpoint/internal/output"
	"github.com/git-checkpoint/git-checkpoint/internal/worktree"
	"github.com/git-checkpoint/git-checkpoint/rerun"
)

func rerunCommand() *command {
	return &command{
		name:    "rerun",
		summary: "repeat tasks of a finished plan, with all that depends on them",
		synopsis: []string{
			"RUN --task TASK... --preview [--json]",
			"RUN --task TASK... [--instructions TASK=TEXT|@FILE]... --expected-head OID --max-steps N --max-invocations N --max-minutes N [--start] [--jobs N] [--json]",
			"RUN --request FILE [--start] [--jobs N] [--json]",
		},
		description: `Makes a child run of RUN that executes the selected tasks again and every task that depends on them, with a budget of its own, from the exact commit that the integration branch is at. All other tasks are retained as they are. RUN itself is never changed.

--preview shows what would happen: which tasks are invalidated and why, which are retained, which must be selected too, the head, whether the baseline is verified, the budget that is needed, and a request that is ready to be sent.

Then say what was looked at (--expected-head) and what may be spent: it prints {"id": CHILD}. FILE (- is standard input) holds the same as JSON, {"expectedHead", "taskIds", "instructions", "budget": {"maxSteps", "maxInvocations", "maxMinutes"}}. git checkpoint resume CHILD executes it, --start at once. The same request again, later, makes another child; after a lost answer git checkpoint list --children-of RUN tells.`,
		flags: append(jobsFlag(),
			&cli.StringSliceFlag{Name: "task", Aliases: []string{"t"}, KeepSpace: true, Usage: "execute `TASK` again"},
			&cli.BoolFlag{Name: "preview", Usage: "only show what would happen"},
			&cli.StringSliceFlag{Name: "instructions", KeepSpace: true, Usage: "replace a selected task's instructions: `TASK=TEXT|@FILE`"},
			&cli.StringFlag{Name: "expected-head", Usage: "the integration commit `OID` that was looked at"},
			&cli.IntFlag{Name: "max-steps", Usage: "allow at most `N` calls, 4 to 200"},
			&cli.IntFlag{Name: "max-invocations", Usage: "the same; the smaller of both counts: `N`"},
			&cli.IntFlag{Name: "max-minutes", Usage: "allow at most `N` minutes, 1 to 720"},
			&cli.StringFlag{Name: "request", Usage: "read the whole request from `FILE`"},
			&cli.BoolFlag{Name: "start", Usage: "execute the child at once"},
		),
		args: []string{"RUN"},
		examples: []example{
			{"git checkpoint rerun api --task implement --preview", "see what depends on a task"},
			{"git checkpoint rerun api --request request.json --start", "do it"},
		},
		run: runRerun,
	}
}

func runRerun(c *call) error {
	if c.flags.Bool("preview") {
		return c.previewRerun()
	}
	jobs, err := c.bound("jobs")
	if err != nil {
		return err
	}
	request, err := c.rerunRequest()
	if err != nil {
		return err
	}
	return c.in(func(w *worktree.Worktree) error {
		child, err := w.CreateRerun(c.ctx, c.args[0], *request)
		if err != nil {
			return err
		}
		if !c.flags.Bool("start") {
			c.Object(map[string]string{"id": child})
			c.Hint("git checkpoint resume %s executes it", child)
			return nil
		}
		c.Object(map[string]string{"id": child})
		return c.execute(w, child, jobs)
	})
}

// rerunRequest reads the request, from its file or from flags.
func (c *call) rerunRequest() (*rerun.Request, error) {
	flags := []string{"task", "instructions", "expected-head", "max-steps", "max-invocations", "max-minutes"}
	if file := c.flags.String("request"); file != "" {
		for _, name := range flags {
			if c.flags.IsSet(name) {
				return nil, fault.New(fault.Invalid, "excess-argument", "--request holds the whole request: '--%s' does not go with it", name)
			}
		}
		data, err := c.readFile(file)
		if err != nil {
			return nil, err
		}
		return rerun.ParseRequest(bytes.NewReader(data))
	}
	q, err := c.selection()
	if err != nil {
		return nil, err
	}
	for _, name := range []string{"expected-head", "max-steps", "max-invocations", "max-minutes"} {
		if !c.flags.IsSet(name) {
			return nil, fault.New(fault.Invalid, "missing-flag", "git checkpoint rerun needs '--%s'", name).
				WithHint("--preview shows what to give")
		}
	}
	// By the same door as a request from outside, and so by the same rules.
	data, err := json.Marshal(q)
	if err != nil {
		return nil, err
	}
	return rerun.ParseRequest(bytes.NewReader(data))
}

// selection is what the flags say.
func (c *call) selection() (*rerun.Request, error) {
	q := &rerun.Request{
		ExpectedHead: c.flags.String("expected-head"), TaskIDs: c.flags.StringSlice("task"),
		Budget: rerun.Budget{MaxSteps: c.flags.Int("max-steps"), MaxInvocations: c.flags.Int("max-invocations"), MaxMinutes: c.flags.Int("max-minutes")},
	}
	if len(q.TaskIDs) == 0 {
		return nil, fault.New(fault.Invalid, "missing-flag", "git checkpoint rerun needs '--task'").
			WithHint("git checkpoint status %s lists the tasks", c.args[0])
	}
	for _, v := range c.flags.StringSlice("instructions") {
		task, text, ok := strings.Cut(v, "=")
		if !ok || task == "" {
			return nil, fault.New(fault.Invalid, "invalid-instructions", "%s are no instructions", output.Quoted(v)).
				WithHint("write --instructions TASK=TEXT or TASK=@FILE")
		}
		if file, ok := strings.CutPrefix(text, "@"); ok {
			data, err := os.ReadFile(file)
			if err != nil {
				return nil, fault.New(fault.Invalid, "unreadable-file", "read the instructions for '%s': %w", task, err)
			}
			text = string(data)
		}
		if !utf8.ValidString(v) || !utf8.ValidString(text) {
			return nil, fault.New(fault.Invalid, "invalid-instructions", "the instructions for %s are not UTF-8", output.Quoted(task))
		}
		if q.Instructions == nil {
			q.Instructions = map[string]string{}
		}
		if _, twice := q.Instructions[task]; twice {
			return nil, fault.New(fault.Invalid, "invalid-instructions", "there are instructions for %s twice", output.Quoted(task))
		}
		q.Instructions[task] = text
	}
	return q, nil
}

func (c *call) previewRerun() error {
	if c.flags.Bool("start") || c.flags.String("request") != "" {
		return fault.New(fault.Invalid, "excess-argument", "git checkpoint rerun --preview only shows: --start and --request do not go with it")
	}
	q, err := c.selection()
	if err != nil {
		return err
	}
	return c.in(func(w *worktree.Worktree) error {
		p, err := w.PreviewRerun(c.ctx, c.args[0], *q)
		if err != nil {
			return err
		}
		if c.JSON() {
			c.Object(p)
			return nil
		}
		c.preview(p)
		return nil
	})
}

func (c *call) preview(p *rerun.Preview) {
	c.Printf("head %s", p.ExpectedHead)
	if !p.BaselineVerified {
		c.Printf(", unverified")
	}
	c.Printf("\nneeds %s\n", count(p.BudgetRequired, "call", "calls"))
	for _, i := range p.Invalidated {
		var because []string
		for _, b := range i.Because {
			text := b.Kind
			if b.From != "" {
				text += " of " + b.From
			}
			because = append(because, text)
		}
		c.Printf("  again     %s (%s)\n", i.Task, strings.Join(because, ", "))
	}
	for _, r := range p.Retained {
		c.Printf("  retained  %s  %s from '%s'\n", r.Task, short(r.Commit), r.Run)
	}
	for _, m := range p.MustSelect {
		var because []string
		for _, b := range m.Because {
			because = append(because, output.Text(b.Text))
		}
		c.Printf("  select    %s: %s\n", m.Task, strings.Join(because, "; "))
	}
	if len(p.MustSelect) > 0 {
		c.Hint("the tasks marked 'select' cannot be retained: select them too")
		return
	}
	request, err := json.Marshal(p.Request)
	if err == nil {
		c.Printf("request %s\n", request)
	}
}
