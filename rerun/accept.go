package rerun

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"sort"
	"strings"
	"time"

	"github.com/git-checkpoint/git-checkpoint/internal/command"
	"github.com/git-checkpoint/git-checkpoint/internal/fault"
	"github.com/git-checkpoint/git-checkpoint/internal/git"
	"github.com/git-checkpoint/git-checkpoint/internal/lock"
	"github.com/git-checkpoint/git-checkpoint/notes"
	"github.com/git-checkpoint/git-checkpoint/refs"
)

// measure makes a commit of what the attempt's worktree holds, on the base
// that it started from, and says what is wrong with it: a change outside what
// the task owns, a contract that changed, a product that is missing.
func (r *runner) measure(ctx context.Context, a *attempt) (commit, failure string, err error) {
	tree, err := r.store(ctx, a.repo)
	if err != nil {
		return "", "", err
	}
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
	var names []string
	for name := range t.Produces {
		names = append(names, name)
	}
	sort.Strings(names)
	for _, name := range names {
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
	what := firstLine(r.loaded.instructions(t))
	if what == "" {
		what = t.Kind
	}
	return t.ID + ": " + what
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
	if failed := new(git.Error); asGitError(err, failed) && failed.Code == 1 && len(parts) > 1 {
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

func asGitError(err error, to *git.Error) bool {
	e, ok := err.(*git.Error)
	if ok {
		*to = *e
	}
	return ok
}

// accepted runs the task's check and proof on a candidate. An empty failure
// means that it is accepted.
func (r *runner) accepted(ctx context.Context, a *attempt, candidate string) (failure string, err error) {
	if a.task.Check == "" && a.task.Proof == "" {
		return "", nil
	}
	r.mu.Lock()
	tree, err := r.repo.CommitTree(ctx, candidate)
	r.mu.Unlock()
	if err != nil {
		return "", err
	}
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

// goTo makes the attempt's worktree a candidate's.
func (r *runner) goTo(ctx context.Context, a *attempt, commit string) error {
	if err := a.repo.Command(ctx, "reset", "--hard", "--quiet", commit).Run(); err != nil {
		return fault.New(fault.Fatal, "git", "check out what task '%s' did: %w", a.task.ID, err)
	}
	return nil
}

func (r *runner) check(ctx context.Context, a *attempt, candidate, tree string) (failure string, err error) {
	d := commandDigest(a.task.Check)
	r.mu.Lock()
	known := good(r.loaded.Progress.Checks, tree, d, "")
	r.mu.Unlock()
	if known != nil && known.Commit == candidate {
		return "", nil
	}
	result, err := r.run(ctx, a, a.task.Check)
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
		return fmt.Sprintf("its check ended with %d:\n%s", result.Exit, result.Tail), nil
	}
	return "", nil
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
	e := Evidence{Task: a.task.ID, Attempt: a.number, Commit: candidate, Tree: tree, Digest: commandDigest(a.task.Proof)}
	r.mu.Lock()
	known := good(r.loaded.Progress.Proofs, tree, e.Digest, "")
	unchanged := r.unchanged(ctx, candidate, tree)
	r.mu.Unlock()
	if known != nil && known.Commit == candidate {
		return "", nil
	}
	if unchanged {
		return "", nil // recorded after the review; see unproved
	}
	if err := r.goTo(ctx, a, a.base); err != nil {
		return "", err
	}
	before, err := r.run(ctx, a, a.task.Proof)
	if err != nil {
		return "", err
	}
	if err := r.goTo(ctx, a, candidate); err != nil {
		return "", err
	}
	after, err := r.run(ctx, a, a.task.Proof)
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
		return fmt.Sprintf("its proof ended with %d:\n%s", after.Exit, after.Tail), nil
	}
	return "", nil
}

// unchanged says whether a rerun's task did not change anything, as git
// measures it: every commit since the baseline has its parent's tree. The
// caller holds mu.
func (r *runner) unchanged(ctx context.Context, candidate, tree string) bool {
	l := r.loaded.Created.Lineage
	if l == nil || l.Kind != refs.RerunOf {
		return false
	}
	baseline, err := r.repo.CommitTree(ctx, r.loaded.Progress.Planned.Baseline)
	if err != nil || baseline != tree {
		return false
	}
	list, err := r.repo.Git().Command(ctx, "log", "--format=%T", r.loaded.Progress.Planned.Baseline+".."+candidate).Output()
	if err != nil {
		return false
	}
	for _, t := range strings.Fields(string(list)) {
		if t != baseline {
			return false
		}
	}
	return true
}

// integrate puts a candidate on the integration branch, and the task's
// checkpoint into the chain, at once. done is false where the branch moved
// meanwhile.
func (r *runner) integrate(ctx context.Context, a *attempt, candidate, head string) (done bool, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now, err := r.head(ctx)
	if err != nil || now != head {
		return false, err
	}
	tree, err := r.repo.CommitTree(ctx, candidate)
	if err != nil {
		return false, err
	}
	err = r.write(ctx, "task "+a.task.ID+" done", func(tx *refs.Transaction, by refs.Identity) (string, error) {
		l := r.loaded
		c := &refs.Checkpoint{
			Tree: tree, Parents: []string{l.Tip.ID, candidate}, Run: l.Run, Step: a.task.ID, Kind: a.task.Kind, Outcome: refs.Succeeded,
			Session: a.session, Head: candidate, Branch: l.Progress.Planned.Branch, Start: l.Start.ID, Number: l.Tip.Number + 1,
			Subject: r.subject(a.task),
		}
		r.repo.PutCheckpoint(c, by)
		if err := l.book.Add(ctx, c.ID, by.When, notes.EventCheckpoint, r.taskRecord(a, c, by)); err != nil {
			return "", err
		}
		e := TaskEvent{Task: a.task.ID, State: eventDone, Attempt: a.number, Base: a.base, Commit: candidate, Session: a.session, Elapsed: r.elapsed()}
		if err := l.book.Add(ctx, l.Start.ID, by.When, EventTask, e); err != nil {
			return "", err
		}
		tx.Set(l.Progress.Planned.Branch, candidate, head)
		return c.ID, nil
	})
	if err != nil {
		return false, err
	}
	r.say("%s: done (%.12s)", a.task.ID, candidate)
	r.removeWorktree(ctx, a)
	return true, nil
}

func (r *runner) taskRecord(a *attempt, c *refs.Checkpoint, by refs.Identity) TaskRecord {
	record := TaskRecord{
		Record: notes.Record{
			StepName: c.Step, StepKind: c.Kind, Outcome: c.Outcome, SessionID: a.session, GitCommit: c.Head,
			Branch: short(c.Branch), By: by.String(), TookMS: time.Since(a.started).Milliseconds(),
		},
		Attempt: a.number, Member: a.member.ID, Provider: a.member.Provider, Model: a.member.Model, Effort: a.member.Effort, Base: a.base,
		PlanDigest: r.loaded.Plan.TaskDigest(a.task.ID), Consumed: a.consumed, Handover: a.result.Handover, Metrics: a.result.Metrics, Log: a.output,
	}
	type artifact struct {
		Name string `json:"name"`
		Path string `json:"path,omitempty"`
		URI  string `json:"uri,omitempty"`
	}
	var list []artifact
	for name, path := range a.task.Produces {
		list = append(list, artifact{Name: name, Path: path})
	}
	for name, place := range a.result.Artifacts {
		if strings.Contains(place, "://") {
			list = append(list, artifact{Name: name, URI: place})
		} else {
			list = append(list, artifact{Name: name, Path: place})
		}
	}
	sort.Slice(list, func(i, j int) bool { return list[i].Name < list[j].Name })
	if len(list) > 0 {
		record.Artifacts, _ = json.Marshal(list)
	}
	return record
}

// deliverOnce runs a delivery so that it happens once, whatever happens: the
// intent is journaled, what is there already is adopted.
func (r *runner) deliverOnce(ctx context.Context, a *attempt) (command.Result, error) {
	d := Delivery{Task: a.task.ID, Key: r.key(a.task), State: "intent"}
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
			r.say("%s: it is delivered already: %s", a.task.ID, firstLine(d.Reference))
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
func (r *runner) unproved(ctx context.Context, head, tree string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.loaded.Seed == nil {
		return nil
	}
	var list []Evidence
	for _, t := range r.loaded.Progress.Tasks {
		task := r.loaded.Plan.Task(t.Task)
		if t.State != Done || task.Proof == "" {
			continue
		}
		at, err := r.repo.CommitTree(ctx, t.Commit)
		if err != nil {
			return err
		}
		if r.unchanged(ctx, t.Commit, at) {
			list = append(list, Evidence{Task: t.Task, Attempt: t.Attempts, Commit: t.Commit, Tree: at, Digest: commandDigest(task.Proof)})
		}
	}
	if r.unchanged(ctx, head, tree) {
		list = append(list, Evidence{Subject: "run", Commit: head, Tree: tree})
	}
	for _, e := range list {
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

// inspection is a place to look at the integrated result.
func (r *runner) inspect(ctx context.Context, name, head string, t *Task, line, brief string, extra ...string) (command.Result, error) {
	a := &attempt{task: t, member: r.loaded.member(t.Member), base: head, dir: filepath.Join(r.home(), name)}
	r.mu.Lock()
	err := func() error {
		r.discard(ctx, a)
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
		return r.repo.Git().Command(ctx, "worktree", "add", "--quiet", "--detach", a.tree(), head).Run()
	}()
	r.mu.Unlock()
	if err != nil {
		return command.Result{}, fault.New(fault.Fatal, "worktree-add", "make a place to look at the result: %w", err)
	}
	result, err := command.Run(ctx, command.Spec{
		Line: line, Dir: a.tree(), Env: append(r.environment(a), extra...), Log: a.file("log"), Hold: a.lock.File(),
	})
	r.mu.Lock()
	a.lock.Release()
	r.discard(context.WithoutCancel(ctx), a)
	r.mu.Unlock()
	if err != nil && ctx.Err() != nil {
		return result, fault.New(fault.Fatal, "interrupted", "the %s of run '%s' was interrupted", name, r.o.Run).
			WithHint("git checkpoint resume %s goes on", r.o.Run)
	}
	return result, err
}

// verify runs the plan's verification on the integrated result, once for each tree.
func (r *runner) verify(ctx context.Context, head, tree string) (ok bool, reason string, err error) {
	d := commandDigest(r.loaded.Plan.Verify)
	r.mu.Lock()
	known := r.loaded.Progress.Verified
	r.mu.Unlock()
	if known == nil || known.Tree != tree || known.Digest != d || known.Commit != head || !known.OK {
		r.say("verifying the result")
		result, err := r.inspect(ctx, "verify", head, &Task{ID: "verify", Kind: refs.KindDeterministic}, r.loaded.Plan.Verify, "")
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
	d := commandDigest(plan.Review.Run + "\x00" + subject)
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
	r.say("review of %s", subject)
	t := &Task{ID: "review", Kind: refs.KindAgent, Member: plan.Review.Member}
	result, err := r.inspect(ctx, "review", head, t, plan.Review.Run, brief, "CHECKPOINT_REVIEW="+subject)
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
			r.say("%s: handed back by the review of %s: %s", t.ID, subject, firstLine(reason))
			e := TaskEvent{Task: t.ID, State: eventReturned, Reason: "the review of " + subject + " rejected it:\n" + reason, Elapsed: r.elapsed()}
			if err := r.loaded.book.Add(ctx, r.loaded.Start.ID, by.When, EventTask, e); err != nil {
				return "", err
			}
		}
		return "", nil
	})
	return true, err
}
