package rerun

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/git-checkpoint/git-checkpoint/internal/fault"
	"github.com/git-checkpoint/git-checkpoint/internal/lock"
	"github.com/git-checkpoint/git-checkpoint/internal/object"
	"github.com/git-checkpoint/git-checkpoint/lineage"
	"github.com/git-checkpoint/git-checkpoint/notes"
	"github.com/git-checkpoint/git-checkpoint/refs"
)

// EventSeeded journals a rerun's seed before anything executes.
const EventSeeded = "seeded"

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
	case l.held():
		return nil, fault.New(fault.Conflict, "plan-not-accepted", "the plan of run '%s' was not accepted yet", run).
			WithHint("git checkpoint approve %s accepts it", run)
	case l.Progress.Rejected:
		return nil, fault.New(fault.Conflict, "plan-not-accepted", "the plan of run '%s' was rejected", run)
	case l.Progress.Status == notes.Waiting:
		return nil, fault.New(fault.Conflict, "source-waiting", "run '%s' waits for an answer", run).
			WithHint("answer it and resume, or rewind it")
	}
	s := &source{Loaded: l, works: map[string]Work{}, records: map[string]TaskRecord{}}
	branch := l.Progress.Planned.Branch
	if s.head, err = repo.Ref(ctx, branch); err != nil {
		return nil, err
	}
	if s.head == "" {
		return nil, fault.New(fault.Conflict, "branch-gone", "the integration branch '%s' of run '%s' is gone", short(branch), run).
			WithHint("if it was merged and deleted, git branch %s <commit> names its result again", short(branch))
	}
	if s.notesRef, err = repo.Ref(ctx, refs.NotesRef(run)); err != nil {
		return nil, err
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
		record, err := s.record(ctx, repo, &t)
		if err != nil {
			return err
		}
		s.records[t.Task] = record
		w := Work{
			Done: true, Run: s.Run, Commit: t.Commit, PlanDigest: record.PlanDigest, Consumed: record.Consumed, Artifacts: map[string]string{},
			Handover: handoverDigest(record.Handover), CheckCommit: s.checkedCommit(&t), Ancestry: ancestry(ctx, repo, t.Commit, s.head),
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

// record finds how a task was done: in this run's chain, or for a retained
// one in that of the run that did it. Where that is gone, the seed that
// retained it is the last word.
func (s *source) record(ctx context.Context, repo *refs.Repository, t *TaskStatus) (TaskRecord, error) {
	if r, ok := s.Records[t.Task]; ok {
		return r, nil
	}
	if t.Source != nil {
		other, err := Load(ctx, repo, t.Source.Run, false)
		if err == nil {
			if r, ok := other.Records[t.Task]; ok {
				return r, nil
			}
		} else if !errors.Is(err, fault.NotFound) {
			return TaskRecord{}, err
		}
	}
	return TaskRecord{PlanDigest: s.Plan.TaskDigest(t.Task), Handover: s.handovers[t.Task]}, nil
}

// checkedCommit is the commit on which a task's check passed last.
func (s *source) checkedCommit(t *TaskStatus) string {
	if t.State == Retained || t.Source != nil {
		return t.Commit // judged when it was retained or inherited
	}
	d := commandDigest(s.Plan.Task(t.Task).Check)
	for _, e := range slices.Backward(s.Progress.Checks) {
		if e.Task == t.Task && e.OK && e.Digest == d {
			return e.Commit
		}
	}
	return ""
}

func handoverDigest(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:])
}

// ancestry says how a commit stands to the baseline.
func ancestry(ctx context.Context, repo *refs.Repository, commit, baseline string) Ancestry {
	if commit == baseline {
		return IsAncestor
	}
	if _, _, err := repo.Objects().Read(ctx, commit); err != nil {
		return CommitMissing
	}
	err := repo.Git().Command(ctx, "merge-base", "--is-ancestor", commit, baseline).Run()
	switch {
	case err == nil:
		return IsAncestor
	case repo.Git().Shallow:
		return CommitMissing // the way between the two may be cut
	}
	return NotAncestor
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
	p.Request = q
	return p, nil
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
	before, err := childrenOf(ctx, repo, r.Source)
	if err != nil {
		return "", err
	}
	digest := r.Request.Digest()
	l, err := lockSource(ctx, repo, r.Source, digest)
	if err != nil {
		return "", err
	}
	defer l.Release()
	now, err := childrenOf(ctx, repo, r.Source)
	if err != nil {
		return "", err
	}
	for _, c := range now {
		if c.digest == digest && !slices.ContainsFunc(before, func(b child0) bool { return b.run == c.run }) {
			return c.run, nil
		}
	}
	return createRerun(ctx, repo, r)
}

type child0 struct{ run, digest string }

func childrenOf(ctx context.Context, repo *refs.Repository, source string) ([]child0, error) {
	graph, err := lineage.Load(ctx, repo)
	if err != nil {
		return nil, err
	}
	var list []child0
	for _, n := range graph.Children(source) {
		if n.Lineage.Kind == refs.RerunOf {
			list = append(list, child0{n.Run, n.State.Created.Digest})
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
	strangers := 0
	for {
		l, err := lock.Acquire(ctx, file, "rerun "+digest, 0)
		var held *lock.HeldError
		if err == nil {
			return l, nil
		}
		if !errors.As(err, &held) {
			return nil, fault.New(fault.Fatal, "io", "%w", err)
		}
		// Who has just taken it may not have written its name yet.
		if !strings.Contains(held.Holder, digest) {
			strangers++
		}
		if strangers > 10 || time.Now().After(deadline) {
			return nil, fault.New(fault.Conflict, "rerun-overlaps", "another rerun of run '%s' is being made", run).
				WithHint("git checkpoint list --children-of %s shows it; try again", run)
		}
		select {
		case <-time.After(20 * time.Millisecond):
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
	if q.ExpectedHead != s.head {
		return "", fault.New(fault.Conflict, "head-moved", "the integration branch '%s' of run '%s' is at %.12s, not at %.12s",
			short(s.Progress.Planned.Branch), r.Source, s.head, q.ExpectedHead).
			WithHint("look at it again: git checkpoint rerun %s --preview", r.Source)
	}
	for _, m := range s.Plan.Members {
		if r.MemberStatus == nil {
			break
		}
		if err := r.MemberStatus(m); err != nil {
			return "", fault.New(fault.Conflict, "member-unavailable", "member '%s' of run '%s' cannot work: %w", m.ID, r.Source, err).
				WithHint("nobody is put in its place; change the policy, or plan anew")
		}
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
	for _, id := range Selection(s.Plan, s.consumed(), q.TaskIDs, p.MustSelect) {
		command += " --task " + id
	}
	return fault.New(fault.Conflict, "must-select", "these tasks cannot be retained and must be selected too: %s", strings.Join(parts, ", ")).
		WithHint("%s --preview", command)
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
	seedCommit := s.putSeed(repo, seed, by)
	for _, e := range []struct {
		event  string
		fields any
	}{
		{EventPlanned, planned},
		{EventSeeded, map[string]string{"sha256": seed.SHA256, "source": s.Run}},
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
// handed over.
func (s *source) putSeed(repo *refs.Repository, seed *Seed, by refs.Identity) string {
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
		entries = append(entries, object.TreeEntry{Mode: object.ModeTree, Name: handoversName, ID: store.Put(object.Tree, object.EncodeTree(handovers))})
	}
	tree := store.Put(object.Tree, object.EncodeTree(entries))
	return repo.PutCommit(tree, nil, "seed of run "+seed.Child+"\n", by)
}

// readSeed reads and verifies a rerun's seed. A run that is no rerun has none.
// What is not as it was recorded is ErrIntegrity.
func (l *Loaded) readSeed(ctx context.Context, repo *refs.Repository, lines []notes.Line, planned Planned, files map[string]string) error {
	lineage := l.Created.Lineage
	if lineage == nil || lineage.Kind != refs.RerunOf {
		return nil
	}
	blob, ok := files[SeedFile]
	if !ok {
		return fault.New(fault.Integrity, "no-seed", "run '%s' has lost its seed", l.Run)
	}
	_, data, err := repo.Objects().Read(ctx, blob)
	if err != nil {
		return err
	}
	seed, err := DecodeSeed(data)
	if err != nil {
		return err
	}
	sum := ""
	for _, line := range lines {
		if line.Event == EventSeeded {
			var f struct{ SHA256 string }
			if err := line.Decode(&f); err != nil {
				return err
			}
			sum = f.SHA256
		}
	}
	l.Seed = seed
	l.pinned = Pinned{
		SHA256: sum, Child: l.Run, Source: SeedSource{Run: lineage.Run, Tip: lineage.Checkpoint}, Baseline: l.Start.Previous(),
		PlanBlob: planned.Plan, Plan: l.Plan,
	}
	if err := seed.Verify(l.pinned); err != nil {
		return err
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

// verifySource compares a rerun's seed with its source once more, before
// anything is executed, where the source is still as it was.
func (l *Loaded) verifySource(ctx context.Context, repo *refs.Repository) error {
	if l.Seed == nil {
		return nil
	}
	tip, err := repo.Ref(ctx, refs.RunRef(l.Seed.Source.Run))
	if err != nil || tip != l.Seed.Source.Tip {
		return err
	}
	s, err := Load(ctx, repo, l.Seed.Source.Run, false)
	if err != nil {
		return err
	}
	works := &source{Loaded: s, head: l.Seed.ExpectedHead, works: map[string]Work{}, records: map[string]TaskRecord{}}
	if err := works.readWorks(ctx, repo); err != nil {
		return err
	}
	p := l.pinned
	p.Works = works.works
	return l.Seed.Verify(p)
}
