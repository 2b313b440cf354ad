package main

import (
	"io"
	"os"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/git-checkpoint/git-checkpoint/internal/fault"
	"github.com/git-checkpoint/git-checkpoint/internal/output"
	"github.com/git-checkpoint/git-checkpoint/internal/worktree"
	"github.com/git-checkpoint/git-checkpoint/notes"
	"github.com/git-checkpoint/git-checkpoint/rerun"
)

func runCommand() *command {
	return &command{
		name:     "run",
		summary:  "execute a plan, with a checkpoint after each task",
		synopsis: []string{"FILE [--run RUN] [--jobs N] [--max-invocations N] [--max-minutes N] [--max-steps N] [--no-start] [--json]"},
		description: `Pins the plan in FILE (- is standard input) to a new run and executes it on a branch of its own, checkpoint/RUN from HEAD. The working tree is not touched: each attempt at a task gets a linked worktree below checkpoint.worktreeDir. What a task changed is measured by git, checked, and integrated as a commit; then the task has a checkpoint.

The plan is executed as it was pinned, whatever FILE says later. Killed at any moment, git checkpoint resume goes on, and no task that is done runs again. git checkpoint status RUN tells how far it is; git checkpoint plan check looks at a plan without running it.

A plan with approval = "held" waits for git checkpoint approve; a task that asks a question for git checkpoint answer: then the exit code is 75. A run that ended failed or spent its budget has 1.`,
		flags: append(jobsFlag(),
			&cli.StringFlag{Name: "run", Usage: "call the run `RUN`"},
			&cli.IntFlag{Name: "max-invocations", Usage: "allow at most `N` calls: attempts at tasks, repairs and reviews"},
			&cli.IntFlag{Name: "max-steps", Usage: "the same; the smaller of both counts: `N`"},
			&cli.IntFlag{Name: "max-minutes", Usage: "allow at most `N` minutes of running"},
			&cli.BoolFlag{Name: "no-start", Usage: "only pin the plan; git checkpoint resume or next goes on"},
		),
		args: []string{"FILE"},
		examples: []example{
			{"git checkpoint run plan.toml --jobs 2", "execute a plan, two tasks at a time"},
		},
		run: runRun,
	}
}

func jobsFlag() []cli.Flag {
	return []cli.Flag{&cli.IntFlag{Name: "jobs", Aliases: []string{"j"}, Usage: "execute at most `N` tasks at once; 1 unless given"}}
}

// bound reads a flag that bounds something: a whole number above zero.
func (c *call) bound(name string) (int, error) {
	if !c.flags.IsSet(name) {
		return 0, nil
	}
	n := c.flags.Int(name)
	if n < 1 {
		return 0, fault.New(fault.Invalid, "invalid-flag", "the value of '--%s' must be 1 or more", name)
	}
	return n, nil
}

func runRun(c *call) error {
	plan, err := c.readFile(c.args[0])
	if err != nil {
		return err
	}
	request := worktree.PlanRequest{Plan: plan, Run: c.flags.String("run")}
	for name, to := range map[string]*int{
		"max-invocations": &request.Budget.MaxInvocations, "max-steps": &request.Budget.MaxSteps, "max-minutes": &request.Budget.MaxMinutes, "jobs": &request.Jobs,
	} {
		if *to, err = c.bound(name); err != nil {
			return err
		}
	}
	return c.in(func(w *worktree.Worktree) error {
		run, err := w.BeginPlan(c.ctx, request)
		if err != nil {
			return inFile(err, c.args[0])
		}
		if c.flags.Bool("no-start") {
			return c.begun(run)
		}
		c.Hint("run '%s'", run)
		return c.execute(w, run, request.Jobs)
	})
}

// begun prints a run that is pinned and not started.
func (c *call) begun(run string) error {
	if c.JSON() {
		c.Object(map[string]string{"run": run})
		return nil
	}
	c.Printf("run '%s' is ready\n", run)
	c.Hint("git checkpoint resume %s executes it, git checkpoint next %s hands its tasks out", run, run)
	return nil
}

// readFile reads a file, or standard input for "-".
func (c *call) readFile(name string) ([]byte, error) {
	var data []byte
	var err error
	if name == "-" {
		data, err = io.ReadAll(c.stdin)
	} else {
		data, err = os.ReadFile(name)
	}
	if err != nil {
		return nil, fault.New(fault.Invalid, "unreadable-file", "read %s: %w", output.Quoted(name), err)
	}
	return data, nil
}

// execute executes a run and prints how it ended.
func (c *call) execute(w *worktree.Worktree, run string, jobs int) error {
	tell, end := c.watching()
	result, err := w.ExecutePlan(c.ctx, run, jobs, tell)
	end()
	if err != nil {
		return err
	}
	return c.executed(result)
}

// executed prints how a run ended; one that did not end well is an error.
func (c *call) executed(r *rerun.Result) error {
	if c.JSON() {
		c.Object(r)
	} else {
		c.Printf("run '%s': %s\n", r.Run, r.Status)
		for _, t := range r.Tasks {
			c.Printf("%s\n", taskLine(&t))
		}
		c.Printf("branch '%s' is at %s\n", r.Branch, short(r.Commit))
	}
	switch r.Status {
	case notes.Completed:
		if !r.Reviewed {
			c.Hint("nobody has reviewed it: the plan has no [review]")
		}
		c.Hint("git merge %s takes the result", r.Branch)
		return nil
	case notes.Waiting:
		return fault.New(fault.Unfinished, "waiting", "run '%s' waits: %s", r.Run, r.Reason).
			WithHint("git checkpoint answer %s %s TEXT, then git checkpoint resume %s", r.Run, r.Waiting[0], r.Run)
	}
	return fault.New(fault.Negative, "run-"+r.Status, "run '%s' %s: %s", r.Run, r.Status, r.Reason).
		WithHint("git checkpoint status %s tells more", r.Run)
}

// taskLine is one task of a planned run.
func taskLine(t *rerun.TaskStatus) string {
	line := "  " + t.State + "  " + t.Task
	if t.Commit != "" {
		line += "  " + short(t.Commit)
	}
	if t.Attempts > 1 {
		line += "  (" + count(t.Attempts, "attempt", "attempts") + ")"
	}
	if t.Source != nil {
		line += "  from '" + t.Source.Run + "'"
	}
	switch {
	case t.Question != "":
		line += ": " + output.Text(firstLine(t.Question))
	case t.Reason != "":
		line += ": " + output.Text(firstLine(t.Reason))
	}
	return line
}

func firstLine(text string) string {
	line, _, _ := strings.Cut(strings.TrimSpace(text), "\n")
	return line
}

func resumeCommand() *command {
	return &command{
		name:     "resume",
		summary:  "go on with a planned run",
		synopsis: []string{"RUN [--jobs N] [--json]"},
		description: `Goes on with a planned run where it stopped: after a kill, after an answer, after an approval, after a rewind or fork of it. Tasks that are done are not repeated; what a killed attempt left running is ended, its half-done work is kept as a commit, and its task starts again.

A run that has completed is left alone; one that has failed, or spent its budget, is not resumed: go back in it by git checkpoint rewind.`,
		flags: jobsFlag(),
		args:  []string{"RUN"},
		examples: []example{
			{"git checkpoint resume api", "go on with the run 'api'"},
		},
		run: func(c *call) error {
			jobs, err := c.bound("jobs")
			if err != nil {
				return err
			}
			return c.in(func(w *worktree.Worktree) error { return c.execute(w, c.args[0], jobs) })
		},
	}
}

func nextCommand() *command {
	return &command{
		name:     "next",
		summary:  "hand out the ready tasks of a planned run",
		synopsis: []string{"RUN [--lease MINUTES] [--json]"},
		description: `For an orchestrator that executes tasks itself: leases all tasks of RUN that are ready, with what they need, and prints one JSON object a task; nobody else gets them until the lease has run out. Where none is ready it prints {"state":"waiting"}, or {"state":"done"} when the run is over. It always prints JSON.

git checkpoint report tells what became of a task; it is checked, proved, integrated and reviewed as by git checkpoint run. A run to hand out begins with git checkpoint run --no-start.`,
		flags: []cli.Flag{&cli.IntFlag{Name: "lease", Usage: "lease for `MINUTES`; 60 unless given"}},
		args:  []string{"RUN"},
		examples: []example{
			{"git checkpoint next api", "get work"},
		},
		run: runNext,
	}
}

func runNext(c *call) error {
	minutes, err := c.bound("lease")
	if err != nil {
		return err
	}
	term := rerun.DefaultLease
	if minutes > 0 {
		term = time.Duration(minutes) * time.Minute
	}
	return c.in(func(w *worktree.Worktree) error {
		h, err := w.NextTasks(c.ctx, c.args[0], term)
		if err != nil {
			return err
		}
		for _, l := range h.Tasks {
			c.Object(l)
		}
		if h.State != "" {
			c.Object(struct {
				State  string        `json:"state"`
				Result *rerun.Result `json:"result,omitempty"`
			}{h.State, h.Result})
		}
		return nil
	})
}

func reportCommand() *command {
	return &command{
		name:     "report",
		summary:  "tell what became of a task that was handed out",
		synopsis: []string{"RUN TASK --lease LEASE --status done|failed [--commit OID] [--result FILE] [--json]"},
		description: `For an orchestrator that executes tasks itself: tells that TASK is done, in the commit OID, or that it failed. What was done is measured against the base that was handed out, checked, proved and integrated; the answer says whether the task is done, failed, or ready again because it was handed back.

FILE (- is standard input) is the JSON that a task's command may write: session_id, artifacts, handover, metrics.`,
		flags: []cli.Flag{
			&cli.StringFlag{Name: "lease", Usage: "the `LEASE` that git checkpoint next gave"},
			&cli.StringFlag{Name: "status", Usage: "`STATUS` is done or failed"},
			&cli.StringFlag{Name: "commit", Usage: "the full id `OID` of the commit that holds what was done"},
			&cli.StringFlag{Name: "result", Usage: "read more about it from `FILE`"},
		},
		args: []string{"RUN", "TASK"},
		examples: []example{
			{"git checkpoint report api design --lease ABC --status failed", "give a task up"},
		},
		run: runReport,
	}
}

func runReport(c *call) error {
	for _, name := range []string{"lease", "status"} {
		if c.flags.String(name) == "" {
			return fault.New(fault.Invalid, "missing-flag", "git checkpoint report needs '--%s'", name)
		}
	}
	report := rerun.Report{Task: c.args[1], Lease: c.flags.String("lease"), Status: c.flags.String("status"), Commit: c.flags.String("commit")}
	if file := c.flags.String("result"); file != "" {
		data, err := c.readFile(file)
		if err != nil {
			return err
		}
		report.Result = strings.NewReader(string(data))
	}
	return c.in(func(w *worktree.Worktree) error {
		answer, err := w.ReportTask(c.ctx, c.args[0], report)
		if err != nil {
			return err
		}
		if c.JSON() {
			c.Object(answer)
			return nil
		}
		c.Printf("%s: %s\n", answer.Task, answer.State)
		if answer.Reason != "" {
			c.Printf("%s\n", output.Text(answer.Reason))
		}
		return nil
	})
}
