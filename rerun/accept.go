package rerun

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sort"
	"strings"
	"time"
	"unicode"

	"github.com/git-checkpoint/git-checkpoint/internal/command"
	"github.com/git-checkpoint/git-checkpoint/internal/fault"
	"github.com/git-checkpoint/git-checkpoint/internal/git"
	"github.com/git-checkpoint/git-checkpoint/internal/lock"
	"github.com/git-checkpoint/git-checkpoint/internal/snapshot"
	"github.com/git-checkpoint/git-checkpoint/notes"
	"github.com/git-checkpoint/git-checkpoint/refs"
)

// measure makes a commit of what the attempt's worktree holds, on the base
// that it started from, and says what is wrong with it: a change outside what
// the task owns, a contract that changed, a product that is missing.
func (r *runner) measure(ctx context.Context, a *attempt) (commit, failure string, err error) {
	tree, skipped, err := r.store(ctx, a.repo)
	if err != nil {
		return "", "", err
	}
	for _, s := range skipped {
		r.tell(a.task.ID, "", "'%s' is left out: %s", s.Path, s.Reason)
	}
	a.skipped = skipped
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.measureTree(ctx, a, tree)
}

// measureTree is measure for a tree that is stored. The caller holds mu.
func (r *runner) measureTree(ctx context.Context, a *attempt, tree string) (commit, failure string, err error) {
	base, err := r.repo.CommitTree(ctx, a.base)
	if err != nil {
		return "", "", err
	}
	if failure, err := r.outside(ctx, a.task, base, tree); err != nil || failure != "" {
		return "", failure, err
	}
	by, err := r.o.Identity()
	if err != nil {
		return "", "", err
	}
	commit = r.repo.PutCommit(tree, []string{a.base}, r.commitMessage(a), by)
	return commit, "", r.repo.Objects().Flush(ctx)
}

// outside compares what changed with what the plan lets the task change.
func (r *runner) outside(ctx context.Context, t *Task, base, tree string) (failure string, err error) {
	diff := func(pathspecs ...string) ([]string, error) {
		args := append([]string{"diff-tree", "-r", "-z", "--name-only", "--no-renames", base, tree, "--"}, pathspecs...)
		return r.repo.Git().Command(ctx, args...).Lines()
	}
	if len(t.Owns) > 0 {
		specs := []string{":(top)"}
		for _, own := range t.Owns {
			for _, spec := range pathspecs(own) {
				specs = append(specs, ":(top,exclude,glob)"+spec)
			}
		}
		paths, err := diff(specs...)
		if err != nil {
			return "", fault.New(fault.Fatal, "git", "measure what task '%s' changed: %w", t.ID, err)
		}
		if len(paths) > 0 {
			return "it changed what it does not own: " + strings.Join(paths, ", "), nil
		}
	}
	if t.Contract != "" {
		paths, err := diff(":(top,literal)" + t.Contract)
		if err != nil {
			return "", fault.New(fault.Fatal, "git", "measure what task '%s' changed: %w", t.ID, err)
		}
		if len(paths) > 0 {
			return "it changed its contract: " + strings.Join(paths, ", "), nil
		}
	}
	for _, name := range slices.Sorted(maps.Keys(t.Produces)) {
		path := t.Produces[name]
		if _, err := r.repo.Git().Command(ctx, "rev-parse", "--verify", "--quiet", "--end-of-options", tree+":"+path).Text(); err != nil {
			return fmt.Sprintf("it did not produce '%s': there is no '%s'", name, path), nil
		}
	}
	return "", nil
}

func (r *runner) commitMessage(a *attempt) string {
	return fmt.Sprintf("%s\n\nCheckpoint-Task: %s\nCheckpoint-Task-Run: %s\nCheckpoint-Attempt: %d\n", r.subject(a.task), a.task.ID, r.o.Run, a.number)
}

// subject says in a line what a task is about. The caller holds mu.
func (r *runner) subject(t *Task) string {
	what := inALine(r.loaded.instructions(t))
	if what == "" {
		what = t.Kind
	}
	return t.ID + ": " + what
}

// subjectLen bounds what a commit's subject says of a task, in characters.
const subjectLen = 100

// inALine is the beginning of a text as a commit's subject can have it:
// without control characters, and not too long.
func inALine(text string) string {
	line := strings.Map(func(c rune) rune {
		if unicode.IsControl(c) {
			return ' '
		}
		return c
	}, firstLine(text))
	short := []rune(strings.Join(strings.Fields(line), " "))
	if len(short) > subjectLen {
		short = append(short[:subjectLen-1], '…')
	}
	return string(short)
}

// candidate is the attempt's commit on the integration head as it is now:
// itself where that has not moved, a merge of the changes otherwise.
func (r *runner) candidate(ctx context.Context, a *attempt, own string) (commit, head, conflict string, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if head, err = r.head(ctx); err != nil {
		return "", "", "", err
	}
	if head == a.base {
		return own, head, "", nil
	}
	out, err := r.repo.Git().Command(ctx, "merge-tree", "--write-tree", "--name-only", "--no-messages", "-z", head, own).Output()
	parts := strings.Split(strings.TrimSuffix(string(out), "\x00"), "\x00")
	var failed *git.Error
	if errors.As(err, &failed) && failed.Code == 1 && len(parts) > 1 {
		return "", "", "it conflicts with what was integrated meanwhile: " + strings.Join(parts[1:], ", "), nil
	}
	if err != nil {
		return "", "", "", fault.New(fault.Fatal, "git", "integrate task '%s': %w", a.task.ID, err)
	}
	by, err := r.o.Identity()
	if err != nil {
		return "", "", "", err
	}
	commit = r.repo.PutCommit(parts[0], []string{head}, r.commitMessage(a), by)
	return commit, head, "", r.repo.Objects().Flush(ctx)
}

// accepted runs the task's check and proof on a candidate. An empty failure
// means that it is accepted.
func (r *runner) accepted(ctx context.Context, a *attempt, candidate string) (failure string, err error) {
	if a.task.Check == "" && a.task.Proof == "" {
		return "", nil
	}
	r.mu.Lock()
	tree, err := r.repo.CommitTree(ctx, candidate)
	if err == nil {
		err = r.journal(ctx, EventTask, TaskEvent{Task: a.task.ID, State: eventChecking, Attempt: a.number, Elapsed: r.elapsed()})
	}
	r.mu.Unlock()
	if err != nil {
		return "", err
	}
	// Now what it made is tracked, and gone on the base.
	if err := r.goTo(ctx, a, candidate); err != nil {
		return "", err
	}
	if a.task.Check != "" {
		if failure, err := r.check(ctx, a, candidate, tree); err != nil || failure != "" {
			return failure, err
		}
	}
	if a.task.Proof != "" {
		return r.prove(ctx, a, candidate, tree)
	}
	return "", nil
}

// try runs a check or a proof on a commit, in the attempt's worktree, and takes
// away what it leaves there: that is no part of what the task did.
func (r *runner) try(ctx context.Context, a *attempt, commit, line string) (command.Result, error) {
	if err := r.goTo(ctx, a, commit); err != nil {
		return command.Result{}, err
	}
	before, err := r.untracked(ctx, a)
	if err != nil {
		return command.Result{}, err
	}
	result, err := r.run(ctx, a, line)
	if err != nil {
		return result, err
	}
	if err := r.goTo(ctx, a, commit); err != nil {
		return result, err
	}
	after, err := r.untracked(ctx, a)
	for path := range after {
		if !before[path] {
			os.RemoveAll(filepath.Join(a.tree(), filepath.FromSlash(path)))
		}
	}
	return result, err
}

// goTo makes the attempt's worktree that of a commit. HEAD is detached, in
// case that the command has checked out a branch of its own.
func (r *runner) goTo(ctx context.Context, a *attempt, commit string) error {
	if err := a.repo.Command(ctx, "checkout", "--quiet", "--force", "--detach", commit).Run(); err != nil {
		return fault.New(fault.Fatal, "git", "check out what task '%s' did: %w", a.task.ID, err)
	}
	return nil
}

func (r *runner) untracked(ctx context.Context, a *attempt) (map[string]bool, error) {
	paths, err := a.repo.Command(ctx, "ls-files", "--others", "--exclude-standard", "-z").Lines()
	if err != nil {
		return nil, fault.New(fault.Fatal, "git", "look at what task '%s' did: %w", a.task.ID, err)
	}
	set := make(map[string]bool, len(paths))
	for _, p := range paths {
		set[p] = true
	}
	return set, nil
}

func (r *runner) check(ctx context.Context, a *attempt, candidate, tree string) (failure string, err error) {
	d := textDigest(a.task.Check)
	r.mu.Lock()
	known := good(r.loaded.Progress.Checks, tree, d, "")
	r.mu.Unlock()
	if known != nil && known.Commit == candidate {
		return "", nil
	}
	result, err := r.try(ctx, a, candidate, a.task.Check)
	if err != nil {
		return "", err
	}
	e := Evidence{
		Task: a.task.ID, Attempt: a.number, Commit: candidate, Tree: tree, Digest: d, Exit: result.Exit, OK: result.OK(), Output: tailOf(result), Elapsed: r.elapsed(),
	}
	if err := r.evidence(ctx, EventCheck, e); err != nil {
		return "", err
	}
	if !result.OK() {
		return "its check " + howItEnded(a.task, result), nil
	}
	return "", nil
}

func howItEnded(t *Task, result command.Result) string {
	if result.TimedOut {
		return tooLong(t) + ":\n" + result.Tail
	}
	return fmt.Sprintf("ended with %d:\n%s", result.Exit, result.Tail)
}

// tailOf keeps of a success nothing, of a failure what it said.
func tailOf(result command.Result) string {
	if result.OK() {
		return ""
	}
	return result.Tail
}

func (r *runner) evidence(ctx context.Context, event string, e Evidence) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.journal(ctx, event, e)
}

// prove runs the proof on the base, where it must fail, and on the candidate,
// where it must pass.
func (r *runner) prove(ctx context.Context, a *attempt, candidate, tree string) (failure string, err error) {
	e := Evidence{Task: a.task.ID, Attempt: a.number, Commit: candidate, Tree: tree, Digest: textDigest(a.task.Proof)}
	r.mu.Lock()
	known := good(r.loaded.Progress.Proofs, tree, e.Digest, "")
	unchanged, err := r.taskUnchanged(ctx, a.task.ID, candidate)
	r.mu.Unlock()
	if err != nil || known != nil && known.Commit == candidate {
		return "", err
	}
	if unchanged {
		return r.stillHolds(ctx, a, candidate, tree) // recorded after the review; see unproved
	}
	before, err := r.try(ctx, a, a.base, a.task.Proof)
	if err != nil {
		return "", err
	}
	after, err := r.try(ctx, a, candidate, a.task.Proof)
	if err != nil {
		return "", err
	}
	e.BaseExit, e.Exit, e.OK, e.Output, e.Elapsed = before.Exit, after.Exit, !before.OK() && after.OK(), tailOf(after), r.elapsed()
	if err := r.evidence(ctx, EventProof, e); err != nil {
		return "", err
	}
	switch {
	case before.OK():
		return "its proof passes on the base too: it proves nothing", nil
	case !after.OK():
		return "its proof " + howItEnded(a.task, after), nil
	}
	return "", nil
}

// stillHolds makes sure that a task which changed nothing is checked
// nonetheless: without a check of its own, its proof must pass.
func (r *runner) stillHolds(ctx context.Context, a *attempt, candidate, tree string) (failure string, err error) {
	if a.task.Check != "" {
		return "", nil
	}
	result, err := r.try(ctx, a, candidate, a.task.Proof)
	if err != nil {
		return "", err
	}
	e := Evidence{
		Task: a.task.ID, Attempt: a.number, Commit: candidate, Tree: tree, Digest: textDigest(a.task.Proof), Exit: result.Exit, OK: result.OK(),
		Output: tailOf(result), Elapsed: r.elapsed(),
	}
	if err := r.evidence(ctx, EventCheck, e); err != nil || result.OK() {
		return "", err
	}
	return "it changed nothing, and its proof " + howItEnded(a.task, result), nil
}

// taskUnchanged says whether a rerun's task changed nothing, as git measures
// it: each commit that the rerun has of it, and commit, has its parent's tree.
// The caller holds mu.
func (r *runner) taskUnchanged(ctx context.Context, task, commit string) (bool, error) {
	if r.loaded.Seed == nil {
		return false, nil
	}
	for _, id := range append(slices.Clone(r.loaded.commits[task]), commit) {
		c, err := r.repo.ReadCommit(ctx, id)
		if err != nil {
			return false, err
		}
		before, err := r.repo.CommitTree(ctx, c.Previous())
		if err != nil || before != c.Tree {
			return false, err
		}
	}
	return true, nil
}

// unchanged says whether a rerun as a whole changed nothing, as git measures
// it: every commit since the baseline has its tree. The caller holds mu.
func (r *runner) unchanged(ctx context.Context, head string) (bool, error) {
	baseline := r.loaded.Seed.ExpectedHead
	tree, err := r.repo.CommitTree(ctx, baseline)
	if err != nil {
		return false, err
	}
	trees, err := r.repo.Git().Command(ctx, "log", "--format=%T", baseline+".."+head, "--").Output()
	if err != nil {
		return false, fault.New(fault.Fatal, "git", "measure what run '%s' changed: %w", r.o.Run, err)
	}
	return !slices.ContainsFunc(strings.Fields(string(trees)), func(t string) bool { return t != tree }), nil
}

// integrate puts a candidate on the integration branch, and the task's
// checkpoint into the chain, at once. done is false where the branch moved
// meanwhile.
func (r *runner) integrate(ctx context.Context, a *attempt, candidate, head string) (done bool, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	tree, err := r.repo.CommitTree(ctx, candidate)
	if err != nil {
		return false, err
	}
	artifacts, err := r.artifacts(ctx, a, tree)
	if err != nil {
		return false, err
	}
	moved := errors.New("the branch moved")
	err = r.write(ctx, "task "+a.task.ID+" done", func(tx *refs.Transaction, by refs.Identity) (string, error) {
		l := r.loaded
		if now, err := r.head(context.WithoutCancel(ctx)); err != nil || now != head {
			return "", cmp.Or(err, moved)
		}
		c := &refs.Checkpoint{
			Tree: tree, Parents: []string{l.Tip.ID, candidate}, Run: l.Run, Step: a.task.ID, Kind: a.task.Kind, Outcome: refs.Succeeded,
			Session: a.session, Head: candidate, Branch: l.Progress.Planned.Branch, Start: l.Start.ID, Number: l.Tip.Number + 1,
			Subject: r.subject(a.task),
		}
		r.repo.PutCheckpoint(c, by)
		if err := l.book.Add(ctx, c.ID, by.When, notes.EventCheckpoint, r.taskRecord(a, c, artifacts, by)); err != nil {
			return "", err
		}
		e := TaskEvent{Task: a.task.ID, State: eventDone, Attempt: a.number, Place: a.place, Base: a.base, Commit: candidate, Checkpoint: c.ID, Session: a.session, Elapsed: r.elapsed()}
		if err := l.book.Add(ctx, l.Start.ID, by.When, EventTask, e); err != nil {
			return "", err
		}
		tx.Set(l.Progress.Planned.Branch, candidate, head)
		return c.ID, nil
	})
	if err != nil {
		if errors.Is(err, moved) {
			err = nil
		}
		return false, err
	}
	r.tell(a.task.ID, Done, "done (%.12s)", candidate)
	r.finished(ctx, a)
	return true, nil
}

func (r *runner) taskRecord(a *attempt, c *refs.Checkpoint, artifacts []artifact, by refs.Identity) TaskRecord {
	record := TaskRecord{
		Record: notes.Record{
			StepName: c.Step, StepKind: c.Kind, Outcome: c.Outcome, SessionID: a.session, GitCommit: c.Head,
			Branch: short(c.Branch), By: by.String(), TookMS: time.Since(a.started).Milliseconds(),
		},
		Attempt: a.number, Member: a.member.ID, Provider: a.member.Provider, Model: a.member.Model, Effort: a.member.Effort, Base: a.base,
		PlanDigest: r.loaded.Plan.TaskDigest(a.task.ID), Consumed: a.consumed, Handover: a.result.Handover, Metrics: a.result.Metrics,
		Log: command.ReadTail(a.file("log"), recordedLog),
	}
	if len(artifacts) > 0 {
		record.Artifacts, _ = json.Marshal(artifacts)
	}
	if len(a.skipped) > 0 {
		record.Skipped = snapshot.EncodeSkips(a.skipped)
	}
	return record
}

// LogOf is the end of what the commands of a task printed; empty for a
// checkpoint that no plan made.
func LogOf(ctx context.Context, repo *refs.Repository, c *refs.Checkpoint) (string, error) {
	if c.Step == "" || !strings.HasPrefix(c.Branch, "refs/heads/") {
		return "", nil
	}
	book, err := notes.OpenBook(ctx, repo, c.Run)
	if err != nil {
		return "", err
	}
	record, err := taskRecord(ctx, book, c.ID)
	return record.Log, err
}

// recordedLog is how much of an attempt's output its record has, in bytes.
const recordedLog = 32 << 10

type artifact struct {
	Name   string `json:"name"`
	Path   string `json:"path,omitempty"`
	URI    string `json:"uri,omitempty"`
	Digest string `json:"digest,omitempty"`
}

// artifacts lists what the task made, by name: what the plan says, and what
// the command said where that is in the tree. The caller holds mu.
func (r *runner) artifacts(ctx context.Context, a *attempt, tree string) ([]artifact, error) {
	var list []artifact
	add := func(name, path string) error {
		kind, data, err := r.readPath(ctx, tree, path)
		switch {
		case err != nil:
			return err
		case kind == "":
			r.tell(a.task.ID, "", "it names the artifact '%s' at '%s', and there is nothing", name, path)
			return nil
		}
		made := artifact{Name: name, Path: path}
		if kind == "blob" {
			sum := sha256.Sum256(data)
			made.Digest = "sha256:" + hex.EncodeToString(sum[:])
		}
		list = append(list, made)
		return nil
	}
	for name, path := range a.task.Produces {
		if err := add(name, path); err != nil {
			return nil, err
		}
	}
	for name, place := range a.result.Artifacts {
		if _, planned := a.task.Produces[name]; planned {
			continue
		}
		if strings.Contains(place, "://") {
			list = append(list, artifact{Name: name, URI: place})
		} else if err := add(name, place); err != nil {
			return nil, err
		}
	}
	sort.Slice(list, func(i, j int) bool { return list[i].Name < list[j].Name })
	return list, nil
}

// readPath reads what is at a path of a tree; kind is empty where nothing is.
func (r *runner) readPath(ctx context.Context, tree, path string) (kind string, data []byte, err error) {
	name := tree + ":" + path
	if checkPath(path) != "" {
		return "", nil, nil
	}
	if kind, err = r.repo.Git().Command(ctx, "cat-file", "-t", name).Text(); err != nil {
		return "", nil, nil
	}
	if kind == "blob" {
		data, err = r.repo.Git().Command(ctx, "cat-file", "blob", name).Output()
	}
	return kind, data, err
}

// deliverOnce runs a delivery so that it happens once, whatever happens: the
// intent is journaled, what is there already is adopted.
func (r *runner) deliverOnce(ctx context.Context, a *attempt, repair bool) (command.Result, error) {
	d := Delivery{Task: a.task.ID, Key: a.key, State: "intent"}
	r.mu.Lock()
	before := r.loaded.Progress.Deliveries[a.task.ID]
	r.mu.Unlock()
	if before.Key == a.key && before.State != d.State && !repair {
		return command.Result{}, nil // what came after it was broken off
	}
	if err := r.delivery(ctx, d); err != nil {
		return command.Result{}, err
	}
	if a.task.Probe != "" {
		probe, err := r.run(ctx, a, a.task.Probe)
		if err != nil {
			return probe, err
		}
		if probe.OK() {
			d.State, d.Reference = "adopted", strings.TrimSpace(probe.Stdout)
			r.tell(a.task.ID, "", "it is delivered already: %s", firstLine(d.Reference))
			return probe, r.delivery(ctx, d)
		}
	}
	result, err := r.run(ctx, a, a.task.Run)
	if err != nil || !result.OK() {
		return result, err
	}
	d.State, d.Reference = "delivered", strings.TrimSpace(result.Stdout)
	return result, r.delivery(ctx, d)
}

func (r *runner) delivery(ctx context.Context, d Delivery) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.journal(ctx, EventDelivery, d)
}

// accept verifies the integrated result and has it reviewed. A rejection goes
// back as a repair where repairs are left: then again is true.
func (r *runner) accept(ctx context.Context) (again bool, result *Result, err error) {
	r.mu.Lock()
	head, err := r.head(ctx)
	var tree string
	if err == nil {
		tree, err = r.repo.CommitTree(ctx, head)
	}
	plan := r.loaded.Plan
	r.mu.Unlock()
	if err != nil {
		return false, nil, err
	}
	if plan.Verify != "" {
		ok, reason, err := r.verify(ctx, head, tree)
		if hasCode(err, budgetSpent) {
			result, err = r.conclude(ctx, notes.Stopped, err.Error())
			return false, result, err
		}
		if err != nil {
			return false, nil, err
		}
		if !ok {
			result, err = r.conclude(ctx, notes.Failed, reason)
			return false, result, err
		}
	}
	if plan.Review != nil {
		for _, subject := range reviewSubjects(plan) {
			ok, reason, err := r.review(ctx, subject, head, tree)
			if err != nil {
				if stopQuietly(err) == nil {
					result, err = r.conclude(ctx, notes.Stopped, err.Error())
				}
				return false, result, err
			}
			if ok {
				continue
			}
			handed, err := r.handBack(ctx, subject, reason)
			if err != nil || handed {
				return handed, nil, err
			}
			result, err = r.conclude(ctx, notes.Failed, fmt.Sprintf("the review of %s rejected it: %s", subject, firstLine(reason)))
			return false, result, err
		}
	}
	if err := r.unproved(ctx, head, tree); err != nil {
		return false, nil, err
	}
	result, err = r.conclude(ctx, notes.Completed, "")
	return false, result, err
}

// unchangedRerun is why there is no proof of a rerun that changed nothing.
const unchangedRerun = "unchanged-rerun"

// unproved records, after all checks and reviews of a rerun, that what did not
// change anything needs no proof: each such task, and the run if that is all.
// Without a review nobody approved it, and nothing is recorded.
func (r *runner) unproved(ctx context.Context, head, tree string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.loaded.Seed == nil || r.loaded.Plan.Review == nil {
		return nil
	}
	var list []Evidence
	for _, t := range r.loaded.Progress.Tasks {
		task := r.loaded.Plan.Task(t.Task)
		if t.State != Done || task.Proof == "" {
			continue
		}
		same, err := r.taskUnchanged(ctx, t.Task, t.Commit)
		if err != nil {
			return err
		}
		if same {
			at, err := r.repo.CommitTree(ctx, t.Commit)
			if err != nil {
				return err
			}
			list = append(list, Evidence{Task: t.Task, Attempt: t.Attempts, Commit: t.Commit, Tree: at, Digest: textDigest(task.Proof)})
		}
	}
	same, err := r.unchanged(ctx, head)
	if err != nil {
		return err
	}
	if same {
		list = append(list, Evidence{Subject: wholeRun, Commit: head, Tree: tree})
	}
	for _, e := range list {
		if slices.ContainsFunc(r.loaded.Progress.Proofs, func(p Evidence) bool {
			return p.ProofNotRequired != "" && p.Task == e.Task && p.Subject == e.Subject && p.Commit == e.Commit
		}) {
			continue // recorded before this run was interrupted
		}
		e.OK, e.ProofNotRequired, e.Elapsed = true, unchangedRerun, r.elapsed()
		if err := r.journal(ctx, EventProof, e); err != nil {
			return err
		}
	}
	return nil
}

// acceptance is the subject of the review of all tasks' acceptance.
const acceptance = "acceptance"

func reviewSubjects(p *Plan) []string {
	subjects := []string{acceptance}
	for _, q := range p.Requirements {
		subjects = append(subjects, q.ID)
	}
	return subjects
}

// The places to look at the integrated result.
const (
	inspectVerify = "verify"
	inspectReview = "review"
)

// inspect runs a command on the integrated result, in a place of its own.
func (r *runner) inspect(ctx context.Context, name, head string, t *Task, line, brief string, extra ...string) (command.Result, error) {
	ctx, stop := r.whilePaid(ctx)
	defer stop()
	a := &attempt{task: t, member: r.loaded.member(t.Member), base: head, dir: filepath.Join(r.home(), name)}
	r.mu.Lock()
	err := func() error {
		if exists(a.dir) {
			r.discard(ctx, a)
		}
		if err := os.MkdirAll(a.dir, 0o700); err != nil {
			return err
		}
		l, err := lock.Acquire(ctx, a.file("lock"), name, time.Second)
		if err != nil {
			return err
		}
		a.lock = l
		if err := os.MkdirAll(a.file("inputs"), 0o700); err != nil {
			return err
		}
		if err := os.WriteFile(a.file("instructions"), []byte(brief), 0o600); err != nil {
			return err
		}
		return r.addWorktree(ctx, a)
	}()
	r.mu.Unlock()
	if err != nil {
		return command.Result{}, fault.New(fault.Fatal, "worktree-add", "make a place to look at the result: %w", err)
	}
	result, err := command.Run(ctx, command.Spec{
		Line: line, Dir: a.tree(), Env: append(r.environment(a), extra...), Log: a.file("log"), Hold: a.lock.File(), Group: a.file("group"),
	})
	r.mu.Lock()
	a.lock.Release()
	r.discard(ctx, a)
	r.mu.Unlock()
	return result, r.commandError(ctx, "the "+name+" of run '"+r.o.Run+"'", err)
}

// verify runs the plan's verification on the integrated result, once for each tree.
func (r *runner) verify(ctx context.Context, head, tree string) (ok bool, reason string, err error) {
	d := textDigest(r.loaded.Plan.Verify)
	r.mu.Lock()
	known := r.loaded.Progress.Verified
	r.mu.Unlock()
	if known == nil || known.Tree != tree || known.Digest != d || known.Commit != head || !known.OK {
		r.tell("", "", "verifying the result")
		result, err := r.inspect(ctx, inspectVerify, head, &Task{ID: "verify", Kind: refs.KindDeterministic}, r.loaded.Plan.Verify, "")
		if err != nil {
			return false, "", err
		}
		known = &Evidence{Commit: head, Tree: tree, Digest: d, Exit: result.Exit, OK: result.OK(), Output: tailOf(result), Elapsed: r.elapsed()}
		if err := r.evidence(ctx, EventVerify, *known); err != nil {
			return false, "", err
		}
	}
	return known.OK, fmt.Sprintf("the verification of the result ended with %d: %s", known.Exit, firstLine(known.Output)), nil
}

// review has one subject reviewed by the member who authors nothing.
func (r *runner) review(ctx context.Context, subject, head, tree string) (ok bool, reason string, err error) {
	plan := r.loaded.Plan
	d := textDigest(plan.Review.Run + "\x00" + subject)
	r.mu.Lock()
	known := good(r.loaded.Progress.Reviews, tree, d, subject)
	if known == nil || known.Commit != head {
		known = nil
		err = r.afford()
	}
	brief := r.reviewBrief(subject)
	r.mu.Unlock()
	if err != nil || known != nil {
		return known != nil, "", err
	}
	r.tell("", "", "review of %s", subject)
	t := &Task{ID: "review", Kind: refs.KindAgent, Member: plan.Review.Member}
	result, err := r.inspect(ctx, inspectReview, head, t, plan.Review.Run, brief, "CHECKPOINT_REVIEW="+subject)
	if err != nil {
		return false, "", err
	}
	reason = strings.TrimSpace(result.Stdout)
	if !result.OK() && result.Exit != 1 {
		reason = fmt.Sprintf("the review ended with %d: %s", result.Exit, result.Tail)
	}
	e := Evidence{Subject: subject, Commit: head, Tree: tree, Digest: d, Exit: result.Exit, OK: result.OK(), Reason: reason, Call: true, Elapsed: r.elapsed()}
	return result.OK(), reason, r.evidence(ctx, EventReview, e)
}

// reviewBrief is what a reviewer is told. The caller holds mu.
func (r *runner) reviewBrief(subject string) string {
	var b strings.Builder
	if subject != acceptance {
		for _, q := range r.loaded.Plan.Requirements {
			if q.ID == subject {
				fmt.Fprintf(&b, "Requirement %s: %s\n", q.ID, q.Text)
			}
		}
		return b.String()
	}
	for _, t := range r.loaded.Plan.Tasks {
		status := r.loaded.Progress.Task(t.ID)
		if t.Acceptance != "" && status.State == Done {
			fmt.Fprintf(&b, "%s (%.12s): %s\n", t.ID, status.Commit, t.Acceptance)
		}
	}
	return b.String()
}

// handBack gives a rejection to the tasks that it names at the start of a
// line ("<task>: …"), or else to all that nothing depends on, as far as they
// have repairs left.
func (r *runner) handBack(ctx context.Context, subject, reason string) (bool, error) {
	r.mu.Lock()
	plan := r.loaded.Plan
	named := map[string]bool{}
	for _, line := range strings.Split(reason, "\n") {
		if id, _, ok := strings.Cut(line, ":"); ok && plan.Task(strings.TrimSpace(id)) != nil {
			named[strings.TrimSpace(id)] = true
		}
	}
	if len(named) == 0 {
		for _, t := range plan.Tasks {
			named[t.ID] = true
		}
		for _, e := range plan.Edges() {
			delete(named, e.From)
		}
	}
	var repairable []*Task
	for i := range plan.Tasks {
		t := &plan.Tasks[i]
		status := r.loaded.Progress.Task(t.ID)
		if named[t.ID] && status.State == Done && t.Kind != refs.KindDelivery && status.repairs < t.Repairs && status.Source == nil {
			repairable = append(repairable, t)
		}
	}
	defer r.mu.Unlock()
	if len(repairable) == 0 {
		return false, nil
	}
	err := r.write(ctx, "handed back", func(_ *refs.Transaction, by refs.Identity) (string, error) {
		for _, t := range repairable {
			r.tell(t.ID, Ready, "handed back by the review of %s: %s", subject, firstLine(reason))
			e := TaskEvent{Task: t.ID, State: eventReturned, Reason: "the review of " + subject + " rejected it:\n" + reason, Elapsed: r.elapsed()}
			if err := r.loaded.book.Add(ctx, r.loaded.Start.ID, by.When, EventTask, e); err != nil {
				return "", err
			}
		}
		return "", nil
	})
	return true, err
}
