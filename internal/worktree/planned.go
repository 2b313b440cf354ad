package worktree

import (
	"context"
	"errors"
	"path/filepath"
	"time"

	"github.com/git-checkpoint/git-checkpoint/internal/fault"
	"github.com/git-checkpoint/git-checkpoint/lineage"
	"github.com/git-checkpoint/git-checkpoint/notes"
	"github.com/git-checkpoint/git-checkpoint/refs"
	"github.com/git-checkpoint/git-checkpoint/rerun"
)

// PlanRequest asks for the execution of a plan.
type PlanRequest struct {
	Plan   []byte
	Run    string // empty: made up
	Jobs   int
	Budget rerun.Budget
}

// planOptions are how this worktree executes plans.
func (w *Worktree) planOptions(run string, jobs int, notify func(rerun.Notice)) (rerun.Options, error) {
	dir, err := filepath.Abs(w.config.WorktreeDir)
	if err != nil {
		return rerun.Options{}, fault.New(fault.Fatal, "io", "find the directory for worktrees: %w", err)
	}
	return rerun.Options{
		Run: run, Jobs: jobs, Dir: dir, MaxFileSize: w.config.MaxFileSize, Exclude: w.config.Exclude,
		Identity: w.config.Identity, Notify: notify, MemberStatus: w.mayWork,
	}, nil
}

// mayWork says why a member may not work by the policy, nil if it may.
func (w *Worktree) mayWork(m rerun.Member) error {
	if why := w.config.MayWork(m.ID, m.Provider, m.Model); why != "" {
		return errors.New(why)
	}
	return nil
}

// PreviewRerun shows what a rerun would do.
func (w *Worktree) PreviewRerun(ctx context.Context, run string, q rerun.Request) (*rerun.Preview, error) {
	return rerun.PreviewRerun(ctx, w.repo, run, q)
}

// CreateRerun makes the child run of a rerun.
func (w *Worktree) CreateRerun(ctx context.Context, run string, q rerun.Request) (child string, err error) {
	if w.id == "" && w.git.Top != "" {
		if err := w.hold(ctx, "rerun"); err != nil {
			return "", err
		}
		w.unlock()
	}
	return rerun.CreateRerun(ctx, w.repo, rerun.RerunRequest{
		Source: run, Request: q, BranchPrefix: w.config.BranchPrefix, Worktree: w.id, Path: w.git.Top,
		Identity: w.config.Identity, MemberStatus: w.mayWork,
	})
}

// BeginPlan pins a plan to a new run, and executes nothing.
func (w *Worktree) BeginPlan(ctx context.Context, req PlanRequest) (run string, err error) {
	if w.git.Top != "" {
		if err := w.hold(ctx, "run"); err != nil {
			return "", err
		}
		defer w.unlock()
	}
	by, err := w.config.Identity()
	if err != nil {
		return "", err
	}
	return rerun.Begin(ctx, w.repo, rerun.NewPlanned{
		Plan: req.Plan, Run: req.Run, Budget: req.Budget, BranchPrefix: w.config.BranchPrefix, Worktree: w.id, Path: w.git.Top, By: by,
	})
}

// ExecutePlan executes all of a planned run that can be done now.
func (w *Worktree) ExecutePlan(ctx context.Context, run string, jobs int, notify func(rerun.Notice)) (*rerun.Result, error) {
	o, err := w.planOptions(run, jobs, notify)
	if err != nil {
		return nil, err
	}
	return rerun.Execute(ctx, w.repo, o)
}

// NextTasks hands out tasks to an outside orchestrator.
func (w *Worktree) NextTasks(ctx context.Context, run string, lease time.Duration) (*rerun.Handout, error) {
	o, err := w.planOptions(run, 1, nil)
	if err != nil {
		return nil, err
	}
	return rerun.Next(ctx, w.repo, o, lease)
}

// ReportTask takes what an outside orchestrator did.
func (w *Worktree) ReportTask(ctx context.Context, run string, report rerun.Report) (*rerun.Reported, error) {
	o, err := w.planOptions(run, 1, nil)
	if err != nil {
		return nil, err
	}
	return rerun.TakeReport(ctx, w.repo, o, report)
}

// Decide approves, rejects, or answers.
func (w *Worktree) Decide(ctx context.Context, do func(context.Context, *refs.Repository, refs.Identity) error) error {
	by, err := w.config.Identity()
	if err != nil {
		return err
	}
	return do(ctx, w.repo, by)
}

// PlanStatus is what status tells of a planned run beyond every run.
type PlanStatus struct {
	Tasks            []PlanTask `json:"tasks"`
	Calls            int        `json:"calls"`
	Minutes          float64    `json:"minutes"`
	RetainedCount    int        `json:"retained_count"`
	ExecutedCount    int        `json:"executed_count"`
	BaselineVerified *bool      `json:"baseline_verified,omitempty"` // of a rerun
	ProofNotRequired string     `json:"proof_not_required,omitempty"`
	Reviewed         bool       `json:"reviewed"`
	Branch           string     `json:"plan_branch,omitempty"`
}

// PlanTask is a task of a planned run.
type PlanTask struct {
	rerun.TaskStatus
	ProofNotRequired string `json:"proof_not_required,omitempty"`
}

// planStatus reads a planned run; nil where the run has no plan. live says
// whether somebody works on it.
func (w *Worktree) planStatus(ctx context.Context, run string) (p *PlanStatus, live bool, err error) {
	holder, err := lineage.Holder(w.repo, run)
	if err != nil {
		return nil, false, err
	}
	live = holder != ""
	l, err := rerun.Load(ctx, w.repo, run, live)
	var f *fault.Error
	if errors.As(err, &f) && f.Code == "no-plan" {
		return nil, live, nil
	}
	if err != nil {
		return nil, live, err
	}
	p = &PlanStatus{Calls: l.Progress.Calls, Minutes: l.Progress.Minutes, Branch: l.Progress.Planned.Branch}
	for _, t := range l.Progress.Tasks {
		p.Tasks = append(p.Tasks, PlanTask{t, l.Progress.Unproved(t.Task, t.Commit)})
		switch t.State {
		case rerun.Retained:
			p.RetainedCount++
		case rerun.Running:
			live = true
		}
		if t.State == rerun.Done && t.Source == nil {
			p.ExecutedCount++
		}
	}
	p.Reviewed = l.Plan.Review != nil && l.Progress.Status == notes.Completed
	if l.Progress.Status == notes.Completed {
		p.ProofNotRequired = l.Progress.Unproved("", l.Tip.Head)
	}
	if l.Seed != nil {
		p.BaselineVerified = &l.Seed.BaselineVerified
	}
	return p, live, nil
}

// planned adds what a planned run needs to its descendants: the plan, a branch
// of their own, and what is left of the budget. It is nil for a run without
// a plan.
func (w *Worktree) planned(ctx context.Context, source string) (func(context.Context, *refs.Transaction, *notes.Book, *refs.Checkpoint, *lineage.Answer) error, error) {
	seed, err := w.repo.Ref(ctx, refs.SeedRef(source))
	if err != nil || seed == "" {
		return nil, err
	}
	return rerun.Descend(ctx, w.repo, source, seed, w.config.BranchPrefix, w.config.Identity)
}
