package rerun

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"io"
	"time"

	"github.com/git-checkpoint/git-checkpoint/internal/fault"
	"github.com/git-checkpoint/git-checkpoint/internal/object"
	"github.com/git-checkpoint/git-checkpoint/lineage"
	"github.com/git-checkpoint/git-checkpoint/notes"
	"github.com/git-checkpoint/git-checkpoint/refs"
)

// holdWait is how long one asker waits for another.
const holdWait = 30 * time.Second

// DefaultLease is how long a task that was handed out belongs to its asker.
const DefaultLease = time.Hour

// Lease is a task that was handed out to an outside orchestrator.
type Lease struct {
	Run          string `json:"run"`
	Task         string `json:"task"`
	Kind         string `json:"kind"`
	Attempt      int    `json:"attempt"`
	Lease        string `json:"lease"`
	Deadline     string `json:"deadline"` // RFC 3339
	Member       Member `json:"member"`
	Instructions string `json:"instructions"`
	Inputs       Inputs `json:"inputs"`
	Base         string `json:"base"` // the commit to start from
	SessionID    string `json:"session_id,omitempty"`
	Key          string `json:"key,omitempty"` // of a delivery
	BudgetLeft   *Left  `json:"budget_left,omitempty"`
}

// Left is what is left of a budget, in its words; what has no bound is absent.
type Left struct {
	Calls   *int     `json:"maxInvocations,omitempty"`
	Minutes *float64 `json:"maxMinutes,omitempty"`
}

// Inputs are what a task is given of others, as data.
type Inputs struct {
	Artifacts map[string]Artifact `json:"artifacts"`
	Handovers map[string]string   `json:"handovers"` // by task
}

// Artifact is where an artifact is in the base.
type Artifact struct {
	Path   string `json:"path"`
	Digest string `json:"digest"` // its object id
}

// Handout answers a request for work: tasks, or why there are none.
type Handout struct {
	State  string  // "" with tasks; waiting, or done
	Result *Result // with done
	Tasks  []Lease
}

// external takes hold of a run for one request of an outside orchestrator.
func external(ctx context.Context, repo *refs.Repository, o Options, do func(*runner) error) error {
	release, err := lineage.Hold(ctx, repo, o.Run, "next", holdWait)
	if err != nil {
		return err
	}
	defer release()
	if err := repo.Recover(ctx); err != nil {
		return err
	}
	r := &runner{o: o, repo: repo, begun: time.Now()}
	l, err := Load(ctx, repo, o.Run, false)
	if err != nil {
		return err
	}
	r.loaded = l
	r.spent = l.Progress.Minutes - l.Progress.earlier
	return do(r)
}

// Next hands out the tasks that are ready, each to one asker: who asks next
// gets others, until a lease has run out.
func Next(ctx context.Context, repo *refs.Repository, o Options, lease time.Duration) (h *Handout, err error) {
	err = external(ctx, repo, o, func(r *runner) error {
		h, err = r.next(ctx, lease)
		return err
	})
	return h, err
}

func (r *runner) next(ctx context.Context, lease time.Duration) (*Handout, error) {
	if p := r.loaded.Progress; notes.Ended(p.Status) && !p.Rejected {
		result, err := r.result(ctx, p.Status, "")
		return &Handout{State: "done", Result: result}, err
	}
	if _, err := r.mayGoOn(ctx); err != nil {
		return nil, err
	}
	if err := r.recover(ctx); err != nil {
		return nil, err
	}
	ready := r.ready(nil)
	if len(ready) == 0 {
		return r.nothing(ctx)
	}
	var leases []Lease
	for _, id := range ready {
		l, err := r.lease(ctx, r.loaded.Plan.Task(id), lease)
		if stopQuietly(err) != nil {
			return nil, err
		}
		if err != nil {
			break // the budget is spent
		}
		leases = append(leases, *l)
	}
	if len(leases) == 0 {
		result, err := r.conclude(ctx, notes.Stopped, r.budget.Error())
		return &Handout{State: "done", Result: result}, err
	}
	return &Handout{Tasks: leases}, nil
}

// nothing answers where no task is ready: others work, or all is over.
func (r *runner) nothing(ctx context.Context) (*Handout, error) {
	for _, t := range r.loaded.Progress.Tasks {
		if t.State == Running || t.State == Waiting {
			return &Handout{State: "waiting"}, nil
		}
	}
	again, result, err := r.end(ctx)
	if err != nil {
		return nil, err
	}
	if again {
		return r.next(ctx, DefaultLease)
	}
	return &Handout{State: "done", Result: result}, nil
}

func (r *runner) lease(ctx context.Context, t *Task, term time.Duration) (*Lease, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.afford(); err != nil {
		return nil, err
	}
	base, err := r.head(ctx)
	if err != nil {
		return nil, err
	}
	status := r.loaded.Progress.Task(t.ID)
	repair, reason := status.returned()
	inputs, err := r.inputs(ctx, t, base)
	if err != nil {
		return nil, err
	}
	l := &Lease{
		Run: r.o.Run, Task: t.ID, Kind: t.Kind, Attempt: status.Attempts + 1, Lease: rand.Text(), Deadline: time.Now().Add(term).UTC().Format(time.RFC3339),
		Member: *r.loaded.member(t.Member), Instructions: r.loaded.brief(t, ""), Inputs: *inputs, Base: base, SessionID: r.loaded.session(t), Key: r.key(t),
	}
	e := TaskEvent{
		Task: t.ID, State: eventLeased, Attempt: l.Attempt, Base: base, Member: t.Member, Call: true, Repair: repair, Reason: reason,
		Session: l.SessionID, Lease: l.Lease, Deadline: l.Deadline, Elapsed: r.elapsed(),
	}
	if err := r.journal(ctx, EventTask, e); err != nil {
		return nil, err
	}
	p := r.loaded.Progress
	l.BudgetLeft = p.left(r.elapsed())
	return l, nil
}

func (r *runner) inputs(ctx context.Context, t *Task, base string) (*Inputs, error) {
	in := &Inputs{Artifacts: map[string]Artifact{}, Handovers: map[string]string{}}
	for _, name := range t.Uses {
		producer := r.loaded.Plan.Producer(name)
		if producer == nil {
			continue
		}
		made, err := r.artifact(ctx, t, producer, name, base)
		if err != nil {
			return nil, err
		}
		in.Artifacts[name] = made
	}
	for _, from := range t.Knows {
		in.Handovers[from] = r.loaded.Records[from].Handover
	}
	return in, nil
}

// Report is what an outside orchestrator tells of a task.
type Report struct {
	Task   string
	Lease  string
	Status string    // done or failed
	Commit string    // what was done, for done
	Result io.Reader // the JSON that a command would write to CHECKPOINT_RESULT; nil: none
}

// Reported is the answer to a report.
type Reported struct {
	Task   string  `json:"task"`
	State  string  `json:"state"`            // done, failed, or ready: handed back
	Commit string  `json:"commit,omitempty"` // on the integration branch
	Reason string  `json:"reason,omitempty"`
	Result *Result `json:"result,omitempty"` // where that was the last task
}

// TakeReport takes what was done through the same checks and integration as a
// command of ours.
func TakeReport(ctx context.Context, repo *refs.Repository, o Options, report Report) (answer *Reported, err error) {
	if report.Status != "done" && report.Status != "failed" {
		return nil, fault.New(fault.Invalid, "invalid-status", "'%s' is no status of a task: it is done or failed", report.Status)
	}
	if report.Status == "done" && !object.IsID(report.Commit) {
		return nil, fault.New(fault.Invalid, "invalid-commit", "'%s' is no full commit id", report.Commit)
	}
	err = external(ctx, repo, o, func(r *runner) error {
		answer, err = r.report(ctx, report)
		return err
	})
	return answer, err
}

func (r *runner) report(ctx context.Context, report Report) (*Reported, error) {
	t, err := r.loaded.task(report.Task)
	if err != nil {
		return nil, err
	}
	status := r.loaded.Progress.Task(t.ID)
	if status.lease.Lease == "" || status.lease.Lease != report.Lease {
		return nil, fault.New(fault.Conflict, "lease-lost", "task '%s' is not, or no longer, leased to you", t.ID).
			WithHint("git checkpoint next %s hands out what is ready", r.o.Run)
	}
	if status.last.State != eventLeased {
		// Told again: what came of it stands.
		return &Reported{Task: t.ID, State: status.State, Commit: status.Commit, Reason: status.last.Reason}, nil
	}
	if _, err := r.mayGoOn(ctx); err != nil {
		return nil, err
	}
	r.mu.Lock()
	a := r.attempt(t, status.lease.Attempt, 0, status.lease.Base, status.lease.Session)
	r.mu.Unlock()
	if report.Result != nil {
		var result taskResult
		if err := json.NewDecoder(io.LimitReader(report.Result, resultLimit)).Decode(&result); err != nil {
			return nil, fault.New(fault.Invalid, "invalid-result", "read the result of task '%s': %w", t.ID, err)
		}
		a.takeResult(result)
	}
	failure := "it was reported as failed"
	if a.result.Handover != "" && report.Status == "failed" {
		failure = a.result.Handover
	}
	if report.Status == "done" {
		if failure, err = r.take(ctx, a, report.Commit); err != nil {
			return nil, err
		}
	}
	return r.answer(ctx, a, failure)
}

// take checks and integrates a commit that was reported.
func (r *runner) take(ctx context.Context, a *attempt, commit string) (failure string, err error) {
	r.mu.Lock()
	tree, err := r.reported(ctx, a, commit)
	if err == nil {
		err = r.stopLeftover(ctx, a)
	}
	if err == nil {
		if len(r.registered(a.name())) > 0 {
			r.discard(ctx, a)
		}
		err = r.makeWorktree(ctx, a)
	}
	r.mu.Unlock()
	if hasCode(err, artifactMissing) {
		a.lock.Release()
		return err.Error(), nil
	}
	if err != nil {
		a.lock.Release()
		return "", err
	}
	defer func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		a.lock.Release()
		r.discard(ctx, a)
	}()
	r.mu.Lock()
	own, failure, err := r.measureTree(ctx, a, tree)
	r.mu.Unlock()
	if err != nil || failure != "" {
		return failure, err
	}
	o, err := r.bring(ctx, a, own)
	return o.failure, err
}

// reported reads the tree of a commit that was reported, which must go on from
// what was handed out: else it would take back what others did. The caller
// holds mu.
func (r *runner) reported(ctx context.Context, a *attempt, commit string) (tree string, err error) {
	tree, err = r.repo.CommitTree(ctx, commit)
	if err != nil {
		return "", fault.New(fault.Invalid, "invalid-commit", "take commit %s for task '%s': %w", commit, a.task.ID, err)
	}
	if err := r.repo.Git().Command(ctx, "merge-base", "--is-ancestor", a.base, commit).Run(); err != nil {
		return "", fault.New(fault.Invalid, "invalid-commit", "take commit %s for task '%s': it does not descend from %s, which was handed out", commit, a.task.ID, a.base)
	}
	return tree, nil
}

// answer journals a failure, hands it back if there are repairs, and ends the
// run where that was the last task.
func (r *runner) answer(ctx context.Context, a *attempt, failure string) (*Reported, error) {
	if failure != "" {
		r.mu.Lock()
		status := r.loaded.Progress.Task(a.task.ID)
		state, event := Failed, eventFailed
		if status.repairs < a.task.Repairs {
			state, event = Ready, eventReturned
		}
		err := r.journal(ctx, EventTask, TaskEvent{Task: a.task.ID, State: event, Attempt: a.number, Session: a.session, Reason: failure, Output: a.output, Elapsed: r.elapsed()})
		r.mu.Unlock()
		if err != nil {
			return nil, err
		}
		answer := &Reported{Task: a.task.ID, State: state, Reason: failure}
		return answer, r.endIfLast(ctx, answer)
	}
	answer := &Reported{Task: a.task.ID, State: Done, Commit: r.loaded.Progress.Task(a.task.ID).Commit}
	return answer, r.endIfLast(ctx, answer)
}

func (r *runner) endIfLast(ctx context.Context, answer *Reported) error {
	for _, t := range r.loaded.Progress.Tasks {
		switch t.State {
		case Done, Retained, Failed, Skipped:
		default:
			return nil
		}
	}
	again, result, err := r.end(ctx)
	if !again {
		answer.Result = result
	}
	return err
}
