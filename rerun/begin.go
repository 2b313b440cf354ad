package rerun

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/git-checkpoint/git-checkpoint/internal/fault"
	"github.com/git-checkpoint/git-checkpoint/internal/object"
	"github.com/git-checkpoint/git-checkpoint/lineage"
	"github.com/git-checkpoint/git-checkpoint/notes"
	"github.com/git-checkpoint/git-checkpoint/refs"
)

// planFile is the plan's name in a run's seed commit.
const planFile = "plan.toml"

// NewPlanned asks for a run that executes a plan.
type NewPlanned struct {
	Plan         []byte // the file, as it is
	Run          string // empty: made up
	Budget       Budget
	BranchPrefix string // of the integration branch
	Worktree     string // the id of the worktree that asks
	Path         string
	By           refs.Identity
}

// Begin makes a run that executes a plan: the plan is pinned, and the
// integration branch is made at HEAD. Nothing is executed yet. Errors:
// ErrInvalid for a plan that cannot be, ErrConflict for a name or branch that
// is taken or a repository without a commit.
func Begin(ctx context.Context, repo *refs.Repository, n NewPlanned) (run string, err error) {
	plan, err := ParsePlan(bytes.NewReader(n.Plan))
	if err != nil {
		return "", err
	}
	for attempt := 1; ; attempt++ {
		run, err = begin(ctx, repo, n, plan)
		if errors.Is(err, refs.ErrStale) && attempt < 8 {
			continue
		}
		return run, err
	}
}

func begin(ctx context.Context, repo *refs.Repository, n NewPlanned, plan *Plan) (string, error) {
	head, err := repo.Head(ctx)
	if err != nil {
		return "", err
	}
	if head.Unborn() {
		return "", fault.New(fault.Conflict, "unborn-head", "a plan starts from a commit, and there is none yet").
			WithHint("git commit --allow-empty makes one")
	}
	run := n.Run
	if run == "" {
		run = refs.GenerateRun(plan.Name, n.By.When)
	}
	if err := repo.CheckNewRun(ctx, run); err != nil {
		return "", err
	}
	branch, err := freeBranch(ctx, repo, n.BranchPrefix+run)
	if err != nil {
		return "", err
	}
	book, err := notes.OpenBook(ctx, repo, run)
	if err != nil {
		return "", err
	}
	start, err := lineage.Create(ctx, repo, book, lineage.NewRun{
		Name: run, Head: refs.Head{Branch: branch, Commit: head.Commit}, Worktree: n.Worktree, Path: n.Path, By: n.By,
	})
	if err != nil {
		return "", err
	}
	blob := repo.Objects().Put(object.Blob, n.Plan)
	tree := repo.Objects().Put(object.Tree, object.EncodeTree([]object.TreeEntry{{Mode: object.ModeFile, Name: planFile, ID: blob}}))
	seed := repo.PutCommit(tree, nil, "plan of run "+run+"\n", n.By)
	planned := Planned{
		Plan: blob, Digest: plan.Digest(), Branch: branch, Baseline: head.Commit, Approval: plan.Approval, Budget: n.Budget,
		Key: deliveryKey(run, start.ID),
	}
	if err := book.Add(ctx, start.ID, n.By.When, EventPlanned, planned); err != nil {
		return "", err
	}
	status := notes.Running
	if plan.Approval == "held" {
		status = notes.Held
	}
	if err := book.Add(ctx, start.ID, n.By.When, notes.EventStatus, map[string]string{"status": status}); err != nil {
		return "", err
	}
	tx := repo.Begin("checkpoint: run " + run)
	if err := book.Commit(ctx, tx, "run "+run+": planned", n.By); err != nil {
		return "", err
	}
	tx.Set(refs.SeedRef(run), seed, "")
	tx.Set(branch, head.Commit, "")
	tx.Set(refs.RunRef(run), start.ID, "")
	return run, tx.Commit(ctx)
}

// freeBranch is the full name of a branch that can be made. One that exists,
// or that a branch above it keeps from being made, is ErrConflict.
func freeBranch(ctx context.Context, repo *refs.Repository, name string) (string, error) {
	branch := "refs/heads/" + name
	id, err := repo.Ref(ctx, branch)
	if err != nil {
		return "", err
	}
	if id != "" {
		return "", fault.New(fault.Conflict, "branch-exists", "a branch named '%s' exists, and the run needs it", name).
			WithHint("choose another name by --run")
	}
	taken, err := repo.InTheWay(ctx, branch)
	if err != nil || taken == "" {
		return branch, err
	}
	e := fault.New(fault.Conflict, "branch-exists", "branch '%s' cannot be made: there is a branch '%s'", name, short(taken))
	if strings.HasPrefix(branch, taken) {
		return "", e.WithHint("git config checkpoint.branchPrefix chooses where branches of runs are")
	}
	return "", e.WithHint("choose another name by --run")
}

// deliveryKey is what makes a delivery of a run known from outside: the same
// for a run and what is rewound from it, another for any other.
func deliveryKey(run, start string) string {
	sum := sha256.Sum256([]byte(run + " " + start))
	return hex.EncodeToString(sum[:16])
}

// pinnedPlan reads the plan of a run, and lists what is beside it in the run's
// seed commit. A run without one is ErrNotFound, one that is not what the
// journal pinned ErrIntegrity.
func pinnedPlan(ctx context.Context, repo *refs.Repository, run string, planned Planned) (*Plan, map[string]string, error) {
	if planned.Plan == "" {
		return nil, nil, fault.New(fault.NotFound, "no-plan", "run '%s' has no plan", run).
			WithHint("git checkpoint run FILE executes a plan as a new run")
	}
	seed, err := repo.Ref(ctx, refs.SeedRef(run))
	if err != nil {
		return nil, nil, err
	}
	if seed == "" {
		return nil, nil, fault.New(fault.Integrity, "no-seed", "run '%s' has lost its plan: ref '%s' is missing", run, refs.SeedRef(run))
	}
	tree, err := repo.CommitTree(ctx, seed)
	if err != nil {
		return nil, nil, err
	}
	entries, err := readTree(ctx, repo, tree)
	if err != nil {
		return nil, nil, err
	}
	files := map[string]string{}
	for _, e := range entries {
		files[e.Name] = e.ID
	}
	changed := fault.New(fault.Integrity, "plan-changed", "the plan of run '%s' is not the one that its journal pinned", run)
	if files[planFile] != planned.Plan {
		return nil, nil, changed
	}
	_, data, err := repo.Objects().Read(ctx, planned.Plan)
	if err != nil {
		return nil, nil, err
	}
	plan, err := ParsePlan(bytes.NewReader(data))
	if err != nil {
		return nil, nil, fault.New(fault.Integrity, "plan-damaged", "read the plan of run '%s': %w", run, err)
	}
	if plan.Digest() != planned.Digest {
		return nil, nil, changed
	}
	return plan, files, nil
}

// Loaded is a planned run as it is.
type Loaded struct {
	Run      string
	Plan     *Plan
	Progress *Progress
	Tip      *refs.Checkpoint
	Start    *refs.Checkpoint
	Created  notes.Created
	Records  map[string]TaskRecord // of the tasks in the chain
	Seed     *Seed                 // of a rerun

	book      *notes.Book
	seeded    seeded              // of a rerun, and of what descends from one
	done      map[string]Source   // tasks with a checkpoint in the chain, and retained ones
	commits   map[string][]string // all that the chain has of a task, oldest first
	pinned    Pinned              // what the seed must agree with
	handovers map[string]string   // of retained tasks
}

// Load reads a planned run. live says whether a process holds it.
func Load(ctx context.Context, repo *refs.Repository, run string, live bool) (*Loaded, error) {
	id, err := repo.Tip(ctx, run)
	if err != nil {
		return nil, err
	}
	return loadAt(ctx, repo, run, id, live)
}

// loadAt reads a planned run as if its chain ended at a checkpoint of it. The
// journal is that of today.
func loadAt(ctx context.Context, repo *refs.Repository, run, id string, live bool) (l *Loaded, err error) {
	l = &Loaded{Run: run, Records: map[string]TaskRecord{}, done: map[string]Source{}, commits: map[string][]string{}}
	if l.Tip, err = repo.ReadCheckpoint(ctx, id); err != nil {
		return nil, err
	}
	if l.Start, err = repo.StartOf(ctx, id); err != nil {
		return nil, err
	}
	if l.book, err = notes.OpenBook(ctx, repo, run); err != nil {
		return nil, err
	}
	lines, err := l.book.Lines(ctx, l.Start.ID)
	if err != nil {
		return nil, err
	}
	state, err := notes.Derive(lines)
	if err != nil {
		return nil, err
	}
	l.Created = state.Created
	planned, err := plannedOf(lines)
	if err != nil {
		return nil, err
	}
	var files map[string]string
	if l.Plan, files, err = pinnedPlan(ctx, repo, run, planned); err != nil {
		return nil, err
	}
	if err := l.readSeed(ctx, repo, lines, planned, files); err != nil {
		return nil, err
	}
	h := History{Plan: l.Plan, Lines: lines, Done: map[string]Source{}, Own: map[string]bool{}, Live: live, Now: time.Now()}
	if err := l.readChain(ctx, repo, &h); err != nil {
		return nil, err
	}
	if l.Seed != nil {
		h.Retained = map[string]Source{}
		for _, t := range l.Seed.Retained {
			h.Retained[t.Task] = Source{Run: t.Run, Commit: t.Commit, Baseline: t.Baseline}
			l.done[t.Task] = h.Retained[t.Task]
			// It was done by this plan and with what is retained too, or it would
			// not have been retained; its source need not be asked again.
			l.Records[t.Task] = TaskRecord{PlanDigest: l.Plan.TaskDigest(t.Task), Handover: l.handovers[t.Task]}
		}
	}
	l.Progress, err = Derive(h)
	return l, err
}

func plannedOf(lines []notes.Line) (p Planned, err error) {
	for _, l := range lines {
		if l.Event == EventPlanned {
			err = l.Decode(&p)
		}
	}
	return p, err
}

// readChain finds the tasks that have a checkpoint, and their records.
func (l *Loaded) readChain(ctx context.Context, repo *refs.Repository, h *History) error {
	chain, _, err := repo.Chain(ctx, l.Tip.ID)
	if err != nil {
		return err
	}
	books := map[string]*notes.Book{l.Run: l.book}
	for _, c := range chain {
		if l.Plan.Task(c.Step) == nil || c.Outcome != refs.Succeeded {
			continue
		}
		h.Done[c.Step] = Source{Run: c.Run, Commit: c.Head}
		l.done[c.Step] = h.Done[c.Step]
		l.commits[c.Step] = append(l.commits[c.Step], c.Head)
		h.Own[c.Step] = !c.Inherited
		if books[c.Run] == nil {
			if books[c.Run], err = notes.OpenBook(ctx, repo, c.Run); err != nil {
				return err
			}
		}
		record, err := taskRecord(ctx, books[c.Run], c.ID)
		if err != nil {
			return err
		}
		l.Records[c.Step] = record
	}
	return nil
}

func taskRecord(ctx context.Context, book *notes.Book, checkpoint string) (r TaskRecord, err error) {
	lines, err := book.Lines(ctx, checkpoint)
	if err != nil {
		return r, err
	}
	for _, l := range lines {
		if l.Event == notes.EventCheckpoint {
			if err := l.Decode(&r); err != nil {
				return r, err
			}
		}
	}
	return r, nil
}

// instructions are what a task is told: the plan's text, or what a rewind or
// rerun put in its place.
func (l *Loaded) instructions(t *Task) string {
	if l.Created.Instructions != "" && l.Created.ResumeStep == t.ID {
		return l.Created.Instructions
	}
	if l.Seed != nil && l.Seed.Instructions[t.ID] != "" {
		return l.Seed.Instructions[t.ID]
	}
	return t.Instructions
}

// head is the last commit that the run put on its integration branch.
func (l *Loaded) head() string {
	if l.Tip.Head != "" {
		return l.Tip.Head
	}
	return l.Progress.Planned.Baseline
}

// held is the status of a run whose plan waits for approval.
func (l *Loaded) held() bool {
	return l.Progress.Planned.Approval == "held" && !l.Progress.Approved
}

func (l *Loaded) task(id string) (*Task, error) {
	if t := l.Plan.Task(id); t != nil {
		return t, nil
	}
	var ids []string
	for _, t := range l.Plan.Tasks {
		ids = append(ids, t.ID)
	}
	e := fault.New(fault.NotFound, "no-such-task", "the plan of run '%s' has no task '%s'", l.Run, id)
	if near := refs.Nearest(id, ids); near != "" {
		return nil, e.WithHint("did you mean '%s'?", near)
	}
	return nil, e.WithHint("its tasks are %s", strings.Join(ids, ", "))
}

// decide journals what a person says of a run: approval, rejection, an answer.
func decide(ctx context.Context, repo *refs.Repository, run, event string, by refs.Identity, fields any, check func(*Loaded) error) error {
	for attempt := 1; ; attempt++ {
		l, err := Load(ctx, repo, run, false)
		if err != nil {
			return err
		}
		if err := check(l); err != nil {
			return err
		}
		if err := l.book.Add(ctx, l.Start.ID, by.When, event, fields); err != nil {
			return err
		}
		if event == EventRejected {
			if err := l.book.Add(ctx, l.Start.ID, by.When, notes.EventStatus, map[string]string{"status": notes.Stopped, "by": by.String()}); err != nil {
				return err
			}
		}
		tx := repo.Begin("checkpoint: " + event)
		if err := l.book.Commit(ctx, tx, fmt.Sprintf("run %s: %s", run, event), by); err != nil {
			return err
		}
		tx.Verify(refs.RunRef(run), l.Tip.ID)
		err = tx.Commit(ctx)
		if errors.Is(err, refs.ErrStale) && attempt < 8 {
			continue
		}
		return err
	}
}

// Approve lets a held plan start. A run that is not held is ErrConflict.
func Approve(ctx context.Context, repo *refs.Repository, run string, by refs.Identity) error {
	return decide(ctx, repo, run, EventApproved, by, map[string]string{"by": by.String()}, notDecided)
}

// Reject ends a held plan before it starts.
func Reject(ctx context.Context, repo *refs.Repository, run string, by refs.Identity) error {
	return decide(ctx, repo, run, EventRejected, by, map[string]string{"by": by.String()}, notDecided)
}

func notDecided(l *Loaded) error {
	switch {
	case l.Progress.Rejected:
		return fault.New(fault.Conflict, "rejected", "the plan of run '%s' was rejected already", l.Run)
	case !l.held():
		return fault.New(fault.Conflict, "not-held", "the plan of run '%s' is not held for approval", l.Run)
	}
	return nil
}

// AnswerQuestion answers what a task asked. A task that asked nothing is
// ErrConflict.
func AnswerQuestion(ctx context.Context, repo *refs.Repository, run, task, text string, by refs.Identity) error {
	return decide(ctx, repo, run, EventAnswer, by, map[string]string{"task": task, "text": text, "by": by.String()}, func(l *Loaded) error {
		if _, err := l.task(task); err != nil {
			return err
		}
		if l.Progress.Task(task).Question == "" {
			return fault.New(fault.Conflict, "no-question", "task '%s' of run '%s' has asked nothing", task, run)
		}
		return nil
	})
}
