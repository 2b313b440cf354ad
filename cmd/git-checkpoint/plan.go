package main

import (
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/git-checkpoint/git-checkpoint/internal/fault"
	"github.com/git-checkpoint/git-checkpoint/internal/output"
	"github.com/git-checkpoint/git-checkpoint/refs"
	"github.com/git-checkpoint/git-checkpoint/rerun"
)

func planCommand() *command {
	return &command{
		name:     "plan",
		summary:  "check a plan, or show what it consists of",
		synopsis: []string{"check|show FILE [--json]"},
		description: `plan check tells everything that is wrong with a plan at once, each with its line: what is no TOML, unknown keys, wrong types and values, ids that are taken or unknown, artifacts that no task or two produce, a reviewer who is an author, tasks that wait for themselves or for each other. Nothing is run.

plan show draws the tasks, each after those that it depends on, with what it waits for and what it produces.

A plan is TOML: name, approval (auto or held) and verify; [[member]] with id, provider, model and effort; [[requirement]] with id and text; [review] with member and run; [[task]] with id, kind (agent, deterministic or delivery), member, run, instructions, acceptance, check, proof, probe, contract, produces, uses, owns, after, knows, repairs and timeout_minutes.

FILE may be "-", which is standard input.`,
		args: []string{"check|show", "FILE"},
		examples: []example{
			{"git checkpoint plan check plan.toml", "see all that is wrong with it"},
			{"git checkpoint plan show plan.toml", "see the graph of its tasks"},
		},
		run: runPlan,
	}
}

func runPlan(c *call) error {
	verb, file := c.args[0], c.args[1]
	if verb != "check" && verb != "show" {
		e := fault.New(fault.Invalid, "unknown-argument", "git checkpoint plan cannot %s", output.Quoted(verb))
		if near := refs.Nearest(verb, []string{"check", "show"}); near != "" {
			return e.WithHint("did you mean 'git checkpoint plan %s'?", near)
		}
		return e.WithHint("it can check or show a plan")
	}
	plan, err := c.readPlan(file)
	if err != nil {
		return err
	}
	if verb == "check" {
		c.planChecked(plan)
	} else {
		c.planShown(plan)
	}
	return nil
}

// readPlan reads the plan in a file; "-" is standard input.
func (c *call) readPlan(file string) (*rerun.Plan, error) {
	var from io.Reader = c.stdin
	if file != "-" {
		f, err := os.Open(file)
		if err != nil {
			return nil, fault.New(fault.Invalid, "no-plan-file", "read the plan: %w", err).
				WithHint("git checkpoint plan -h tells what a plan is")
		}
		defer f.Close()
		from = f
	}
	plan, err := rerun.ParsePlan(from)
	return plan, inFile(err, file)
}

// inFile makes the faults of a plan name the file that it was read from.
func inFile(err error, file string) error {
	var faults *rerun.PlanError
	if !errors.As(err, &faults) {
		return err
	}
	if file == "-" {
		file = "standard input"
	}
	return &planFaults{file: output.Path(file), faults: faults}
}

// planFaults are the faults of a plan in a file.
type planFaults struct {
	file   string
	faults *rerun.PlanError
}

func (e *planFaults) Error() string {
	return fmt.Sprintf("%s has %s", e.file, count(len(e.faults.Faults), "fault", "faults"))
}

// Each, with Faults, makes it output.Several.
func (e *planFaults) Each() []string {
	lines := make([]string, len(e.faults.Faults))
	for i, f := range e.faults.Faults {
		lines[i] = fmt.Sprintf("%s:%d: %s", e.file, f.Line, f.Message)
	}
	return lines
}

func (e *planFaults) Faults() any { return e.faults.Faults }

// Unwrap gives the faults a code and no hint: they tell what to do.
func (e *planFaults) Unwrap() error {
	return fault.New(fault.Invalid, "invalid-plan", "%s", e.Error())
}

func (c *call) planChecked(p *rerun.Plan) {
	edges := len(p.Edges())
	if c.JSON() {
		c.Object(struct {
			OK           bool   `json:"ok"`
			Name         string `json:"name"`
			Digest       string `json:"digest"`
			Approval     string `json:"approval"`
			Tasks        int    `json:"tasks"`
			Edges        int    `json:"edges"`
			Members      int    `json:"members"`
			Requirements int    `json:"requirements"`
			Reviewed     bool   `json:"reviewed"`
		}{true, p.Name, p.Digest(), p.Approval, len(p.Tasks), edges, len(p.Members), len(p.Requirements), p.Review != nil})
		return
	}
	c.Printf("plan '%s': ok\n", output.Text(p.Name))
	c.Printf("%s, %s, %s, %s\n", count(len(p.Tasks), "task", "tasks"), count(edges, "dependency", "dependencies"),
		count(len(p.Members), "member", "members"), count(len(p.Requirements), "requirement", "requirements"))
	c.planReview(p)
}

func (c *call) planReview(p *rerun.Plan) {
	if p.Review != nil {
		c.Printf("reviewed by '%s'\n", p.Review.Member)
	} else {
		c.Printf("not reviewed\n")
	}
	if p.Approval == rerun.ApprovalHeld {
		c.Printf("held: starts only after it is approved\n")
	}
}

func (c *call) planShown(p *rerun.Plan) {
	if c.JSON() {
		c.Object(struct {
			*rerun.Plan
			Digest string       `json:"digest"`
			Edges  []rerun.Edge `json:"edges"`
			Order  []string     `json:"order"`
		}{p, p.Digest(), append([]rerun.Edge{}, p.Edges()...), p.Order()})
		return
	}
	c.Printf("plan '%s'\n", output.Text(p.Name))
	c.planReview(p)
	for _, r := range p.Requirements {
		c.Printf("requirement %s: %s\n", r.ID, output.Text(r.Text))
	}
	c.Printf("\n%s", rerun.Draw(p))
}
