package worktree

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/git-checkpoint/git-checkpoint/internal/fault"
	"github.com/git-checkpoint/git-checkpoint/internal/git"
	"github.com/git-checkpoint/git-checkpoint/lineage"
	"github.com/git-checkpoint/git-checkpoint/refs"
)

// DescendRequest asks for a rewind or a fork.
type DescendRequest struct {
	Run          string // the source; empty: the current run
	To, Before   string // exactly one: a step, with #visit if need be, or {n}
	New          string // the new run's id; empty: made up
	NoCheckout   bool   // rewind: refs only
	DryRun       bool
	Reset        bool // rewind: move the current branch
	Instructions string
	FreshSession bool
	Worktree     string // fork: make a linked worktree there
	Branch       string // fork: its branch; empty: one of the run's own
}

// DescendResult is the answer to a rewind or fork.
type DescendResult struct {
	lineage.Answer
	DryRun   bool           `json:"dry_run,omitempty"`
	Planned  bool           `json:"planned,omitempty"`  // it executes a plan: git checkpoint resume goes on
	Worktree string         `json:"worktree,omitempty"` // the linked worktree that was made
	Branch   string         `json:"branch,omitempty"`   // the branch that is checked out for the run
	Safety   string         `json:"safety,omitempty"`   // the commit that holds what was there before
	Restore  *RestoreResult `json:"restore,omitempty"`  // what happened to files and HEAD; null: nothing
}

// The operations of a descent: opFork fills a new linked worktree.
const (
	opRewind = "rewind"
	opFork   = "fork"
)

// rewound names what a rewind did to runs, for undo.
type rewound struct {
	Source string `json:"source"`
	Child  string `json:"child"`
}

func (w *Worktree) lineageRequest(ctx context.Context, req DescendRequest, kind string) (lineage.Request, error) {
	r := lineage.Request{
		Kind: kind, Source: req.Run, Step: req.To, Run: req.New, Instructions: req.Instructions, FreshSession: req.FreshSession,
		Worktree: w.id, Path: w.git.Top,
	}
	switch {
	case (req.To == "") == (req.Before == ""):
		return r, fault.New(fault.Invalid, "invalid-target", "exactly one of --to and --before is needed").
			WithHint("git checkpoint rewind --list shows the steps")
	case req.Before != "":
		r.Step, r.Before = req.Before, true
	}
	r.Step = strings.TrimPrefix(r.Step, "@")
	if r.Source == "" {
		current, err := w.repo.CurrentRun(ctx)
		if err != nil {
			return r, err
		}
		if current == "" {
			return r, refs.NoCurrentRun()
		}
		r.Source = current
	}
	by, err := w.config.Identity()
	if err != nil {
		return r, err
	}
	r.By = by
	r.Also, err = w.planned(ctx, r.Source)
	return r, err
}

// said tells what an answer leaves implicit.
func (w *Worktree) said(req DescendRequest, a *lineage.Answer) {
	if a.Visits > 1 && !strings.Contains(req.To+req.Before, "#") {
		w.warn("step '%s' ran %d times; the last visit is taken: %s#%d", a.Resume.Step, a.Visits, a.Resume.Step, a.Visits)
	}
}

// Rewind makes a run that goes on from a checkpoint of another, archives that
// one, and restores the files.
func (w *Worktree) Rewind(ctx context.Context, req DescendRequest) (*DescendResult, error) {
	if req.NoCheckout && req.Reset {
		return nil, fault.New(fault.Invalid, "invalid-flags", "--reset moves the branch, --no-checkout leaves everything where it is: choose one")
	}
	if !req.NoCheckout {
		if err := w.hold(ctx, opRewind); err != nil {
			return nil, err
		}
		defer w.unlock()
		if err := w.refuseInProgress(ctx); err != nil {
			return nil, err
		}
	}
	r, err := w.lineageRequest(ctx, req, refs.RewoundFrom)
	if err != nil {
		return nil, err
	}
	if req.NoCheckout || r.Also != nil {
		// The files of a planned run are in worktrees of its own.
		return w.refsOnly(ctx, req, r, lineage.Rewind)
	}
	for attempt := 1; ; attempt++ {
		result, err := w.rewind(ctx, req, r)
		if errors.Is(err, refs.ErrStale) && attempt < attempts {
			continue
		}
		return result, err
	}
}

// refsOnly makes the run and touches no file.
func (w *Worktree) refsOnly(ctx context.Context, req DescendRequest, r lineage.Request, descend func(context.Context, *refs.Repository, lineage.Request) (*lineage.Answer, error)) (*DescendResult, error) {
	if req.DryRun {
		plan, err := lineage.Prepare(ctx, w.repo, r)
		if err != nil {
			return nil, err
		}
		w.said(req, &plan.Answer)
		return &DescendResult{Answer: plan.Answer, DryRun: true, Planned: r.Also != nil}, nil
	}
	a, err := descend(ctx, w.repo, r)
	if err != nil {
		return nil, err
	}
	w.said(req, a)
	return &DescendResult{Answer: *a, Planned: r.Also != nil}, nil
}

func (w *Worktree) rewind(ctx context.Context, req DescendRequest, r lineage.Request) (*DescendResult, error) {
	plan, err := lineage.Prepare(ctx, w.repo, r)
	if err != nil {
		return nil, err
	}
	a := &plan.Answer
	result := &DescendResult{DryRun: req.DryRun}
	if a.Existed {
		// The answer to an earlier call was lost; what was done is done.
		result.Answer = *a
		return result, nil
	}
	before, err := w.point0(ctx)
	if err != nil {
		return nil, err
	}
	op := &operation{
		Kind: opRewind, Target: a.Target.ID, Before: before, After: before, MovesHead: true,
		Rewound: &rewound{Source: r.Source, Child: a.Run},
	}
	op.After.Run = a.Run
	if req.Reset {
		err = w.planReset(op, a.Target)
	} else {
		err = w.planHead(ctx, op, a.Target, a.Run)
	}
	if err != nil {
		return nil, err
	}
	op.MovesHead = true
	restored, err := w.perform(ctx, op, step{dryRun: req.DryRun, push: undoName, with: plan.AddTo})
	if err != nil {
		return nil, err
	}
	w.said(req, a)
	result.Answer, result.Restore, result.Safety = *a, restored, restored.Safety
	result.Branch = strings.TrimPrefix(op.After.Branch, "refs/heads/")
	return result, nil
}

// Fork makes a run that goes on from a checkpoint of another and leaves that
// one alone. No file is touched, unless a linked worktree is asked for.
func (w *Worktree) Fork(ctx context.Context, req DescendRequest) (*DescendResult, error) {
	if req.Branch != "" && req.Worktree == "" {
		return nil, fault.New(fault.Invalid, "invalid-flags", "--branch names the branch of a new worktree: --worktree is missing")
	}
	r, err := w.lineageRequest(ctx, req, refs.ForkedFrom)
	if err != nil {
		return nil, err
	}
	if req.Worktree == "" {
		if w.id == "" && w.git.Top != "" {
			// The run is this worktree's, which may have no id yet.
			if err := w.hold(ctx, opFork); err != nil {
				return nil, err
			}
			w.unlock()
			r.Worktree = w.id
		}
		return w.refsOnly(ctx, req, r, lineage.Fork)
	}
	plan, err := lineage.Prepare(ctx, w.repo, r)
	if err != nil {
		return nil, err
	}
	if plan.Answer.Existed {
		return w.forkedBefore(ctx, req, &plan.Answer)
	}
	r.Run = plan.Answer.Run
	return w.forkInto(ctx, req, r, &plan.Answer)
}

// directory is the absolute path that a request names: from where Open was
// called, which in a bare repository is the current directory.
func (w *Worktree) directory(dir string) string {
	if w.git.Top != "" && !filepath.IsAbs(dir) {
		return filepath.Join(w.git.CurrentDir(), dir)
	}
	if abs, err := filepath.Abs(dir); err == nil {
		return abs
	}
	return dir
}

// forkedBefore answers with the run that an earlier call made, and finishes
// what it did not come to: to fill the worktree.
func (w *Worktree) forkedBefore(ctx context.Context, req DescendRequest, a *lineage.Answer) (*DescendResult, error) {
	dir := w.directory(req.Worktree)
	if resolved, err := filepath.EvalSymlinks(dir); err == nil {
		dir = resolved
	}
	if dir != filepath.Clean(a.Path) {
		return nil, fault.New(fault.Conflict, "run-exists", "run '%s' was forked before, and its worktree is '%s'", a.Run, a.Path).
			WithHint("choose another name, or git checkpoint switch %s in a worktree of your own", a.Run)
	}
	there, err := w.linked(ctx, dir)
	if err != nil {
		return nil, fault.New(fault.Conflict, "worktree-gone", "run '%s' was forked before, and its worktree '%s' is gone", a.Run, a.Path).
			WithHint("git worktree add makes another; git checkpoint switch %s there goes on with the run", a.Run)
	}
	defer there.Close()
	result := &DescendResult{Answer: *a, DryRun: req.DryRun}
	w.said(req, a)
	return result, there.answerFork(ctx, req, result)
}

// linked opens a worktree of this repository.
func (w *Worktree) linked(ctx context.Context, dir string) (*Worktree, error) {
	there, err := Open(ctx, dir)
	if err != nil {
		return nil, err
	}
	if there.git.CommonDir != w.git.CommonDir || there.git.Dir == w.git.Dir || there.git.Prefix != "" {
		there.Close()
		return nil, fault.New(fault.Conflict, "directory-exists", "'%s' is no worktree of this repository", dir)
	}
	return there, nil
}

// answerFork tells, in the worktree of a fork that exists, what is checked out
// there, after what was begun is done.
func (w *Worktree) answerFork(ctx context.Context, req DescendRequest, result *DescendResult) error {
	op, err := w.inProgress(ctx)
	if err != nil {
		return err
	}
	if op != nil && op.Kind == opFork && !req.DryRun {
		// Whoever began it may have come to its end meanwhile.
		if result.Restore, err = w.Continue(ctx); err != nil && code(err, "") != "nothing-in-progress" {
			return err
		}
	}
	head, err := w.repo.Head(ctx)
	result.Worktree, result.Branch = w.git.Top, strings.TrimPrefix(head.Branch, "refs/heads/")
	return err
}

// forkInto makes a linked worktree for a fork and fills it.
func (w *Worktree) forkInto(ctx context.Context, req DescendRequest, r lineage.Request, a *lineage.Answer) (*DescendResult, error) {
	if a.Target.Head == "" {
		return nil, fault.New(fault.Conflict, "unborn-head", "checkpoint %.12s was made before the first commit: a worktree needs one", a.Target.ID).
			WithHint("fork without --worktree, then git checkpoint switch %s", a.Run)
	}
	dir := w.directory(req.Worktree)
	branch, left := w.leftBehind(ctx, dir, req, a)
	if !left {
		var err error
		if branch, err = w.forkBranch(ctx, req, a); err != nil {
			return nil, err
		}
		if entries, err := os.ReadDir(dir); err == nil && len(entries) > 0 || err != nil && !errors.Is(err, fs.ErrNotExist) {
			hint := "choose another directory"
			if len(entries) == 1 && entries[0].Name() == ".git" {
				hint += ", or git worktree remove this one if it is what a killed fork left"
			}
			return nil, fault.New(fault.Conflict, "directory-exists", "make a worktree at '%s': something is there", req.Worktree).WithHint("%s", hint)
		}
	}
	result := &DescendResult{Answer: *a, DryRun: req.DryRun, Worktree: dir, Branch: branch}
	if req.DryRun {
		w.said(req, a)
		return result, nil
	}
	if !left {
		if err := w.addWorktree(ctx, req, dir, branch, a.Target.Head); err != nil {
			return nil, err
		}
	}
	if err := w.fill(ctx, dir, req, r, result); err != nil {
		clean := context.WithoutCancel(ctx)
		if id, _ := w.repo.Ref(clean, refs.RunRef(r.Run)); id == "" {
			w.git.Command(clean, "worktree", "remove", "--force", dir).Run()
			w.git.Command(clean, "branch", "-q", "-D", branch).Run()
		}
		return nil, err
	}
	w.said(req, &result.Answer)
	return result, nil
}

func (w *Worktree) addWorktree(ctx context.Context, req DescendRequest, dir, branch, head string) error {
	err := w.git.Command(ctx, "worktree", "add", "--quiet", "--no-checkout", "-b", branch, dir, head).Run()
	git.Step("worktree added")
	var failed *git.Error
	switch {
	case err == nil:
		return nil
	case errors.As(err, &failed) && strings.Contains(failed.Stderr, "already"):
		// Somebody else made it since we looked.
		return fault.New(fault.Conflict, "directory-exists", "make a worktree at '%s': %w", req.Worktree, err).
			WithHint("choose another directory or branch; git worktree list shows what there is")
	}
	return fault.New(fault.Fatal, "worktree-add", "make a worktree at '%s': %w", req.Worktree, err)
}

// leftBehind recognises the worktree that a killed call of the same fork made
// and did not fill: it has no file and no index, and the branch that this fork
// would make, at its commit.
func (w *Worktree) leftBehind(ctx context.Context, dir string, req DescendRequest, a *lineage.Answer) (branch string, ok bool) {
	branch = req.Branch
	if branch == "" {
		branch = w.config.BranchPrefix + a.Run
	}
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 1 || entries[0].Name() != ".git" {
		return "", false
	}
	there, err := w.linked(ctx, dir)
	if err != nil {
		return "", false
	}
	defer there.Close()
	now, err := there.point0(ctx)
	if err != nil || now != (point{Branch: "refs/heads/" + branch, Head: a.Target.Head}) {
		return "", false
	}
	_, err = os.Lstat(filepath.Join(there.git.Dir, "index"))
	return branch, errors.Is(err, fs.ErrNotExist)
}

// forkBranch is the branch of a fork's worktree.
func (w *Worktree) forkBranch(ctx context.Context, req DescendRequest, a *lineage.Answer) (string, error) {
	if req.Branch != "" {
		if _, err := w.git.Command(ctx, "check-ref-format", "--branch", req.Branch).Text(); err != nil {
			return "", fault.New(fault.Invalid, "invalid-branch", "'%s' is no branch name", req.Branch)
		}
		id, err := w.repo.Ref(ctx, "refs/heads/"+req.Branch)
		if err == nil && id != "" {
			err = fault.New(fault.Conflict, "branch-exists", "a branch named '%s' exists", req.Branch).WithHint("choose another name")
		}
		if err == nil {
			err = w.branchFits(ctx, "refs/heads/"+req.Branch)
		}
		return req.Branch, err
	}
	op := &operation{Before: point{Head: "none"}}
	if err := w.planHead(ctx, op, &refs.Checkpoint{Head: "new"}, a.Run); err != nil {
		return "", err
	}
	return strings.TrimPrefix(op.After.Branch, "refs/heads/"), nil
}

// fill makes the run in its new worktree, together with the record of the
// restore that fills it.
func (w *Worktree) fill(ctx context.Context, dir string, req DescendRequest, r lineage.Request, result *DescendResult) error {
	there, err := Open(ctx, dir)
	if err != nil {
		return err
	}
	defer there.Close()
	if err := there.hold(ctx, opFork); err != nil {
		return err
	}
	r.Worktree, r.Path = there.id, there.git.Top
	plan, err := lineage.Prepare(ctx, there.repo, r)
	if err != nil {
		return err
	}
	result.Answer = plan.Answer
	if plan.Answer.Existed {
		return there.answerFork(ctx, req, result)
	}
	before, err := there.point0(ctx)
	if err != nil {
		return err
	}
	op := &operation{Kind: opFork, Target: plan.Answer.Target.ID, Before: before, After: before, MovesHead: true}
	op.After.Run = plan.Answer.Run
	s := stepOf(op)
	s.with = plan.AddTo
	result.Restore, err = there.perform(ctx, op, s)
	result.Worktree = there.git.Top
	return err
}
