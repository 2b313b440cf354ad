package rerun

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/git-checkpoint/git-checkpoint/internal/fault"
	"github.com/git-checkpoint/git-checkpoint/internal/git"
	"github.com/git-checkpoint/git-checkpoint/internal/lock"
	"github.com/git-checkpoint/git-checkpoint/internal/object"
	"github.com/git-checkpoint/git-checkpoint/lineage"
	"github.com/git-checkpoint/git-checkpoint/notes"
	"github.com/git-checkpoint/git-checkpoint/refs"
)

// EventSeeded journals a rerun's seed before anything executes.
const EventSeeded = "seeded"

// seeded is that event. What is rewound or forked from a rerun has it too:
// the seed still pins what was retained.
type seeded struct {
	SHA256    string `json:"sha256"`
	Child     string `json:"child"` // the rerun that the seed was made for
	Source    string `json:"source"`
	Tip       string `json:"tip"`
	Handovers string `json:"handovers,omitempty"` // the tree beside the seed
}

// handoversName is where a rerun's seed commit keeps what retained tasks
// handed over, by task, so that it does not depend on the source being there.
const handoversName = "handovers"

// Preview is what a rerun of a selection would do. Its fields are those of the
// command's JSON.
type Preview struct {
	ExpectedHead     string         `json:"expected_head"`
	Selected         []string       `json:"selected"`
	Invalidated      []Invalidated  `json:"invalidated"`
	Retained         []RetainedTask `json:"retained"`
	MustSelect       []MustSelect   `json:"must_select"`
	BaselineVerified bool           `json:"baseline_verified"`
	BudgetRequired   int            `json:"budget_required"`
	Request          Request        `json:"request"` // ready to be sent, if nothing must be selected too
}

// source is a run that is to be rerun, with all that decides about it.
type source struct {
	*Loaded
	head     string
	notesRef string // what its notes ref holds
	works    map[string]Work
	records  map[string]TaskRecord // of retained tasks too
}

// openSource reads the source of a rerun and refuses one that is not idle or
// has nothing to start from. All refusals are ErrConflict.
func openSource(ctx context.Context, repo *refs.Repository, run string) (*source, error) {
	holder, err := lineage.Holder(repo, run)
	if err != nil {
		return nil, err
	}
	// Read before what it guards, so that a change in between is seen when the
	// child is written.
	notesRef, err := repo.Ref(ctx, refs.NotesRef(run))
	if err != nil {
		return nil, err
	}
	l, err := Load(ctx, repo, run, holder != "")
	if err != nil {
		return nil, err
	}
	busy := holder
	for _, t := range l.Progress.Tasks {
		if t.State == Running && busy == "" {
			busy = "whoever works on task '" + t.Task + "'"
		}
	}
	switch {
	case busy != "":
		return nil, fault.New(fault.Conflict, "source-busy", "run '%s' is not idle: it is held by %s", run, busy).
			WithHint("wait for it to end, or stop it")
	case l.Progress.Rejected:
		return nil, fault.New(fault.Conflict, "plan-not-accepted", "the plan of run '%s' was rejected", run)
	case l.held():
		return nil, fault.New(fault.Conflict, "plan-not-accepted", "the plan of run '%s' was not accepted yet", run).
			WithHint("git checkpoint approve %s accepts it", run)
	case l.Progress.Status == notes.Waiting:
		return nil, fault.New(fault.Conflict, "source-waiting", "run '%s' waits for an answer", run).
			WithHint("answer it and resume, or rewind it")
	}
	s := &source{Loaded: l, notesRef: notesRef, works: map[string]Work{}, records: map[string]TaskRecord{}}
	branch := l.Progress.Planned.Branch
	if s.head, err = repo.Ref(ctx, branch); err != nil {
		return nil, err
	}
	if s.head == "" {
		return nil, fault.New(fault.Conflict, "branch-gone", "the integration branch '%s' of run '%s' is gone", short(branch), run).
			WithHint("if it was merged and deleted, git branch %s %.12s names its result again", short(branch), l.head())
	}
	return s, s.readWorks(ctx, repo)
}

// readWorks gathers what the source knows of each task.
func (s *source) readWorks(ctx context.Context, repo *refs.Repository) error {
	for _, t := range s.Progress.Tasks {
		if t.State != Done && t.State != Retained {
			s.works[t.Task] = Work{}
			continue
		}
		record := s.Records[t.Task]
		s.records[t.Task] = record
		w := Work{
			Done: true, Run: s.Run, Commit: t.Commit, PlanDigest: record.PlanDigest, Consumed: record.Consumed, Artifacts: map[string]string{},
			Handover: textDigest(record.Handover), CheckCommit: s.checkedCommit(&t),
		}
		var err error
		if w.Ancestry, err = ancestry(ctx, repo, t.Commit, s.head); err != nil {
			return err
		}
		if w.ReviewCommit, err = s.reviewedCommit(ctx, repo, &t); err != nil {
			return err
		}
		if t.Source != nil {
			w.Run = t.Source.Run
		}
		for name, path := range s.Plan.Task(t.Task).Produces {
			if id, err := repo.Git().Command(ctx, "rev-parse", "--verify", "--quiet", "--end-of-options", t.Commit+":"+path).Text(); err == nil {
				w.Artifacts[name] = id
			}
		}
		s.works[t.Task] = w
	}
	return nil
}

// checkedCommit is the commit on which a task's check passed last.
func (s *source) checkedCommit(t *TaskStatus) string {
	if t.State == Retained || t.Source != nil {
		return t.Commit // judged when it was retained or inherited
	}
	d := textDigest(s.Plan.Task(t.Task).Check)
	for _, e := range slices.Backward(s.Progress.Checks) {
		if e.Task == t.Task && e.OK && e.Digest == d {
			return e.Commit
		}
	}
	return ""
}

// reviewedCommit is the commit on which a task's acceptance was approved last,
// the task's own where the result that was approved holds it; "" if nobody
// approved any.
func (s *source) reviewedCommit(ctx context.Context, repo *refs.Repository, t *TaskStatus) (string, error) {
	if s.Plan.Review == nil || t.Source != nil {
		return "", nil // judged when it was retained or inherited
	}
	for _, e := range slices.Backward(s.Progress.Reviews) {
		if e.Subject != acceptance || !e.OK {
			continue
		}
		a, err := ancestry(ctx, repo, t.Commit, e.Commit)
		if err != nil || a != NotAncestor {
			return t.Commit, err
		}
		return e.Commit, nil
	}
	return "", nil
}

// ancestry says how a commit stands to a later one.
func ancestry(ctx context.Context, repo *refs.Repository, commit, later string) (Ancestry, error) {
	if commit == later {
		return IsAncestor, nil
	}
	if _, _, err := repo.Objects().Read(ctx, commit); errors.Is(err, object.ErrMissing) {
		return CommitMissing, nil
	} else if err != nil {
		return CommitMissing, err
	}
	err := repo.Git().Command(ctx, "merge-base", "--is-ancestor", commit, later).Run()
	var failed *git.Error
	switch {
	case err == nil:
		return IsAncestor, nil
	case repo.Git().Shallow:
		return CommitMissing, nil // the way between the two may be cut
	case errors.As(err, &failed) && failed.Code == 1:
		return NotAncestor, nil
	}
	return CommitMissing, fault.New(fault.Fatal, "git", "compare commit %s with %s: %w", commit, later, err)
}

// consumed is what tasks recorded that they were given.
func (s *source) consumed() map[string][]Consumed {
	consumed := map[string][]Consumed{}
	for id, w := range s.works {
		consumed[id] = w.Consumed
	}
	return consumed
}

// preview works a selection out.
func (s *source) preview(selected []string) *Preview {
	invalidated := Invalidate(s.Plan, s.consumed(), selected)
	retained, must := Retain(s.Plan, s.works, invalidated, s.head)
	v := s.Progress.Verified
	return &Preview{
		ExpectedHead: s.head, Selected: selected, Invalidated: invalidated, Retained: retained, MustSelect: must,
		BaselineVerified: v != nil && v.OK && v.Commit == s.head && s.Plan.Verify != "",
		BudgetRequired:   RequiredBudget(s.Plan, invalidated),
	}
}

// PreviewRerun shows what a rerun of the selected tasks would do, and changes
// nothing. Errors: ErrInvalid for a selection that cannot be, ErrConflict for
// a source that cannot be rerun now.
func PreviewRerun(ctx context.Context, repo *refs.Repository, run string, q Request) (*Preview, error) {
	s, err := openSource(ctx, repo, run)
	if err != nil {
		return nil, err
	}
	if q.ExpectedHead == "" {
		q.ExpectedHead = s.head
	}
	p := s.preview(q.TaskIDs)
	calls := min(max(p.BudgetRequired, MinCalls), MaxCalls)
	for _, b := range []struct {
		to  *int
		def int
	}{{&q.Budget.MaxSteps, calls}, {&q.Budget.MaxInvocations, calls}, {&q.Budget.MaxMinutes, 60}} {
		if *b.to == 0 {
			*b.to = b.def
		}
	}
	if err := q.Check(s.Plan); err != nil {
		return nil, err
	}
	if err := s.headIs(q.ExpectedHead); err != nil {
		return nil, err
	}
	p.Request = q
	return p, nil
}

// headIs refuses a request that was made for another head.
func (s *source) headIs(expected string) error {
	if expected == s.head {
		return nil
	}
	return fault.New(fault.Conflict, "head-moved", "the integration branch '%s' of run '%s' is at %.12s, not at %.12s",
		short(s.Progress.Planned.Branch), s.Run, s.head, expected).
		WithHint("look at it again: git checkpoint rerun %s --preview", s.Run)
}

// RerunRequest asks for a rerun.
type RerunRequest struct {
	Source       string
	Request      Request
	BranchPrefix string
	Worktree     string
	Path         string
	Identity     func() (refs.Identity, error)
	MemberStatus func(Member) error // says why a member may not work any more; nil: all may
}

// shareWait is how long a request waits for the same one that arrived before.
const shareWait = 60 * time.Second

// CreateRerun makes the child run of a rerun, and executes nothing. The same
// request, arriving while its child is being made, is answered with that
// child; one that arrives later makes another. Errors: ErrInvalid for a
// request that cannot be, ErrConflict for a stale one, one that overlaps with
// another, and for a member that may not work any more.
func CreateRerun(ctx context.Context, repo *refs.Repository, r RerunRequest) (child string, err error) {
	if _, err := repo.Tip(ctx, r.Source); err != nil {
		return "", err
	}
	before, err := childrenOf(ctx, repo, r.Source)
	if err != nil {
		return "", err
	}
	digest := r.Request.Digest()
	l, err := lockSource(ctx, repo, r.Source, digest)
	if err != nil {
		return "", err
	}
	defer func() {
		l.File().Truncate(0) // so that the next one's name is not taken for ours
		l.Release()
	}()
	now, err := childrenOf(ctx, repo, r.Source)
	if err != nil {
		return "", err
	}
	now = slices.DeleteFunc(now, func(c pendingChild) bool { return slices.Contains(before, c) })
	for _, c := range now {
		if c.digest == digest {
			return c.run, nil
		}
	}
	if len(now) > 0 {
		return "", overlaps(r.Source) // it was made while we waited
	}
	return createRerun(ctx, repo, r)
}

func overlaps(source string) error {
	return fault.New(fault.Conflict, "rerun-overlaps", "another rerun of run '%s' is being made", source).
		WithHint("git checkpoint list --children-of %s shows it; try again", source)
}

// pendingChild is a child of a run, and what it was asked for with.
type pendingChild struct{ run, digest string }

func childrenOf(ctx context.Context, repo *refs.Repository, source string) ([]pendingChild, error) {
	graph, err := lineage.Load(ctx, repo)
	if err != nil {
		return nil, err
	}
	var list []pendingChild
	for _, n := range graph.Children(source) {
		if n.Lineage.Kind == refs.RerunOf {
			list = append(list, pendingChild{n.Run, n.State.Created.Digest})
		}
	}
	return list, nil
}

// lockSource takes the lock of reruns of a run. While the same request holds
// it, it waits; another one is a conflict.
func lockSource(ctx context.Context, repo *refs.Repository, run, digest string) (*lock.Lock, error) {
	if err := refs.CheckRun(run); err != nil {
		return nil, err
	}
	file := filepath.Join(repo.Git().CommonDir, "checkpoint", "rerun", run)
	deadline := time.Now().Add(shareWait)
	stranger, waiting := "", false
	for {
		l, err := lock.Acquire(ctx, file, "rerun "+digest, 0)
		var held *lock.HeldError
		if err == nil {
			return l, nil
		}
		if !errors.As(err, &held) {
			return nil, fault.New(fault.Fatal, "io", "%w", err)
		}
		// Who has just taken it may not have written its name yet, over that of
		// one who died: the name must stay the same for a while.
		if held.Holder != "" && !strings.Contains(held.Holder, digest) {
			if held.Holder == stranger {
				return nil, overlaps(run)
			}
			stranger = held.Holder
		}
		if time.Now().After(deadline) {
			return nil, overlaps(run)
		}
		if !waiting {
			git.Trace("wait for the same rerun of run '%s'", run)
			waiting = true
		}
		select {
		case <-time.After(10 * time.Millisecond):
		case <-ctx.Done():
			return nil, fault.New(fault.Fatal, "interrupted", "wait for the same rerun: %w", context.Cause(ctx))
		}
	}
}

// createRerun makes the child. The caller holds the lock.
func createRerun(ctx context.Context, repo *refs.Repository, r RerunRequest) (string, error) {
	s, err := openSource(ctx, repo, r.Source)
	if err != nil {
		return "", err
	}
	q := &r.Request
	if err := q.Check(s.Plan); err != nil {
		return "", err
	}
	if err := s.headIs(q.ExpectedHead); err != nil {
		return "", err
	}
	if err := s.membersWork(r.MemberStatus); err != nil {
		return "", err
	}
	p := s.preview(q.TaskIDs)
	if len(p.MustSelect) > 0 {
		return "", mustSelect(s, q, p)
	}
	if err := q.CheckBudget(p.BudgetRequired); err != nil {
		return "", err
	}
	return s.commit(ctx, repo, r, p)
}

// mustSelect names all tasks that must be selected too, and how.
func mustSelect(s *source, q *Request, p *Preview) error {
	var parts []string
	for _, m := range p.MustSelect {
		var reasons []string
		for _, b := range m.Because {
			reasons = append(reasons, b.Text)
		}
		parts = append(parts, fmt.Sprintf("'%s' (%s)", m.Task, strings.Join(reasons, "; ")))
	}
	command := "git checkpoint rerun " + s.Run
	selection := Selection(s.Plan, s.consumed(), q.TaskIDs, p.MustSelect)
	for _, id := range selection {
		command += " --task " + id
	}
	e := fault.New(fault.Conflict, "must-select", "these tasks cannot be retained and must be selected too: %s", strings.Join(parts, ", "))
	if len(selection) > MaxSelected {
		return e.WithHint("that is more than the %d tasks of a request: go on with run '%s', by git checkpoint resume or rewind", MaxSelected, s.Run)
	}
	return e.WithHint("%s --preview", command)
}

// commit writes the child: verified against what was looked at, its own run
// ref last.
func (s *source) commit(ctx context.Context, repo *refs.Repository, r RerunRequest, p *Preview) (string, error) {
	by, err := r.Identity()
	if err != nil {
		return "", err
	}
	child := ""
	for child == "" {
		name := refs.GenerateChild(s.Run)
		id, err := repo.Ref(ctx, refs.RunRef(name))
		if err != nil {
			return "", err
		}
		if id == "" {
			child = name
		}
	}
	branch, err := freeBranch(ctx, repo, r.BranchPrefix+child)
	if err != nil {
		return "", err
	}
	planned := s.Progress.Planned
	planned.Branch, planned.Baseline, planned.Budget = branch, s.head, r.Request.Budget
	seed := &Seed{
		Version: SeedVersion, Child: child, Source: SeedSource{Run: s.Run, Tip: s.Tip.ID}, ExpectedHead: s.head, Plan: planned.Plan,
		Selected: r.Request.TaskIDs, Invalidated: p.Invalidated, Retained: p.Retained, Instructions: r.Request.Instructions, Budget: r.Request.Budget,
		BudgetRequired: p.BudgetRequired, BaselineVerified: p.BaselineVerified, RequestDigest: r.Request.Digest(), CreatedAt: by.When.UTC().Format(time.RFC3339),
	}
	book, err := notes.OpenBook(ctx, repo, child)
	if err != nil {
		return "", err
	}
	start, err := lineage.Create(ctx, repo, book, lineage.NewRun{
		Name: child, Head: refs.Head{Branch: branch, Commit: s.head}, Worktree: r.Worktree, Path: r.Path, By: by, Digest: seed.RequestDigest,
		Lineage: &refs.Lineage{Kind: refs.RerunOf, Run: s.Run, Checkpoint: s.Tip.ID},
	})
	if err != nil {
		return "", err
	}
	planned.Key = deliveryKey(child, start.ID)
	status := notes.Running
	if planned.Approval == "held" {
		status = notes.Held
	}
	seedCommit, handovers := s.putSeed(repo, seed, by)
	for _, e := range []struct {
		event  string
		fields any
	}{
		{EventPlanned, planned},
		{EventSeeded, seeded{SHA256: seed.SHA256, Child: child, Source: s.Run, Tip: s.Tip.ID, Handovers: handovers}},
		{notes.EventStatus, map[string]string{"status": status}},
	} {
		if err := book.Add(ctx, start.ID, by.When, e.event, e.fields); err != nil {
			return "", err
		}
	}
	tx := repo.Begin("checkpoint: rerun " + s.Run)
	tx.Verify(s.Progress.Planned.Branch, s.head)
	tx.Verify(refs.RunRef(s.Run), s.Tip.ID)
	tx.Verify(refs.NotesRef(s.Run), s.notesRef)
	if err := book.Commit(ctx, tx, "run "+child+": rerun of "+s.Run, by); err != nil {
		return "", err
	}
	tx.Set(refs.SeedRef(child), seedCommit, "")
	tx.Set(branch, s.head, "")
	tx.Set(refs.RunRef(child), start.ID, "")
	err = tx.Commit(ctx)
	if errors.Is(err, refs.ErrStale) {
		return "", fault.New(fault.Conflict, "source-changed", "run '%s' changed while its rerun was being made: %w", s.Run, err).
			WithHint("look at it again: git checkpoint rerun %s --preview", s.Run)
	}
	return child, err
}

// putSeed makes the seed commit: the seed, the plan, and what retained tasks
// handed over, as a tree; "" for nothing.
func (s *source) putSeed(repo *refs.Repository, seed *Seed, by refs.Identity) (commit, tree string) {
	store := repo.Objects()
	entries := []object.TreeEntry{
		{Mode: object.ModeFile, Name: SeedFile, ID: store.Put(object.Blob, seed.Encode())},
		{Mode: object.ModeFile, Name: planFile, ID: seed.Plan},
	}
	var handovers []object.TreeEntry
	for _, t := range seed.Retained {
		if text := s.records[t.Task].Handover; text != "" {
			handovers = append(handovers, object.TreeEntry{Mode: object.ModeFile, Name: t.Task, ID: store.Put(object.Blob, []byte(text))})
		}
	}
	if len(handovers) > 0 {
		tree = store.Put(object.Tree, object.EncodeTree(handovers))
		entries = append(entries, object.TreeEntry{Mode: object.ModeTree, Name: handoversName, ID: tree})
	}
	root := store.Put(object.Tree, object.EncodeTree(entries))
	return repo.PutCommit(root, nil, "seed of run "+seed.Child+"\n", by), tree
}

// readSeed reads and verifies the seed of a rerun, and of what descends from
// one. Any other run has none. What is not as it was recorded is ErrIntegrity.
func (l *Loaded) readSeed(ctx context.Context, repo *refs.Repository, lines []notes.Line, planned Planned, files map[string]string) error {
	blob, ok := files[SeedFile]
	journaled, lineage := false, l.Created.Lineage
	for _, line := range lines {
		if line.Event != EventSeeded {
			continue
		}
		before := l.seeded
		if err := line.Decode(&l.seeded); err != nil {
			return err
		}
		if journaled && l.seeded != before {
			return damagedSeed("the journal of run '%s' tells of two", l.Run)
		}
		journaled = true
	}
	isRerun := lineage != nil && lineage.Kind == refs.RerunOf
	switch {
	case !ok && (journaled || isRerun):
		return fault.New(fault.Integrity, "no-seed", "run '%s' has lost its seed", l.Run)
	case ok && !journaled:
		return damagedSeed("the journal of run '%s' does not tell of it", l.Run)
	case !ok:
		return nil
	}
	_, data, err := repo.Objects().Read(ctx, blob)
	if err != nil {
		return err
	}
	if l.Seed, err = DecodeSeed(data); err != nil {
		return err
	}
	l.pinned = Pinned{
		SHA256: l.seeded.SHA256, Child: l.seeded.Child, Source: SeedSource{Run: l.seeded.Source, Tip: l.seeded.Tip}, Baseline: planned.Baseline,
		PlanBlob: planned.Plan, Plan: l.Plan,
	}
	if isRerun {
		l.pinned.Child, l.pinned.Source, l.pinned.Baseline = l.Run, SeedSource{Run: lineage.Run, Tip: lineage.Checkpoint}, l.Start.Previous()
	}
	if err := l.Seed.Verify(l.pinned); err != nil {
		return err
	}
	if files[handoversName] != l.seeded.Handovers {
		return damagedSeed("what retained tasks handed over is not what the journal of run '%s' pinned", l.Run)
	}
	return l.readHandovers(ctx, repo, files[handoversName])
}

func (l *Loaded) readHandovers(ctx context.Context, repo *refs.Repository, tree string) error {
	l.handovers = map[string]string{}
	if tree == "" {
		return nil
	}
	entries, err := readTree(ctx, repo, tree)
	if err != nil {
		return err
	}
	for _, e := range entries {
		_, text, err := repo.Objects().Read(ctx, e.ID)
		if err != nil {
			return err
		}
		l.handovers[e.Name] = string(text)
	}
	return nil
}

func readTree(ctx context.Context, repo *refs.Repository, id string) ([]object.TreeEntry, error) {
	_, data, err := repo.Objects().Read(ctx, id)
	if err != nil {
		return nil, err
	}
	entries, err := object.ParseTree(data, repo.Git().HashLen())
	if err != nil {
		return nil, fault.New(fault.Integrity, "seed-damaged", "read tree %s: %w", id, err)
	}
	return entries, nil
}

// Verify checks what a planned run pins: its plan, and of a rerun the seed,
// with the source as far as that is there. A run without a plan is sound. What
// is not as it was recorded is ErrIntegrity.
func Verify(ctx context.Context, repo *refs.Repository, run string) error {
	l, err := Load(ctx, repo, run, false)
	var f *fault.Error
	if errors.As(err, &f) && f.Code == "no-plan" {
		return nil
	}
	if err != nil {
		return err
	}
	return l.verifySource(ctx, repo)
}

// verifySource compares a rerun's seed with its source once more, before
// anything is executed: with the source as it was when the seed was made,
// whatever became of it since, as far as it is still there.
func (l *Loaded) verifySource(ctx context.Context, repo *refs.Repository) error {
	if l.Seed == nil {
		return nil
	}
	from := l.Seed.Source
	tip, err := repo.Ref(ctx, refs.RunRef(from.Run))
	if err != nil || tip == "" {
		return err
	}
	there := false
	err = repo.Walk(ctx, tip, func(c *refs.Checkpoint) bool {
		there = c.ID == from.Tip
		return !there
	})
	if err != nil || !there {
		return err // another run has that name now
	}
	then, err := loadAt(ctx, repo, from.Run, from.Tip, false)
	if err != nil {
		return err
	}
	p := l.pinned
	if then.Progress.Planned.Plan != p.PlanBlob {
		return damagedSeed("its plan is not that of run '%s'", from.Run)
	}
	p.Works = map[string]Work{}
	for task, s := range then.done {
		p.Works[task] = Work{Run: s.Run, Commit: s.Commit, Consumed: then.Records[task].Consumed}
	}
	return l.Seed.Verify(p)
}

// wholeRun is the subject of what is recorded of a run as a whole.
const wholeRun = "run"

// Unproved says why a task's result has no proof: "unchanged-rerun", or "" if
// it has one or needs none. An empty task is the run as a whole, at commit.
func (p *Progress) Unproved(task, commit string) string {
	for _, e := range p.Proofs {
		if e.ProofNotRequired != "" && e.Commit == commit && (task != "" && e.Task == task || task == "" && e.Subject == wholeRun) {
			return e.ProofNotRequired
		}
	}
	return ""
}
