package rerun

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/git-checkpoint/git-checkpoint/internal/fault"
	"github.com/git-checkpoint/git-checkpoint/lineage"
	"github.com/git-checkpoint/git-checkpoint/notes"
	"github.com/git-checkpoint/git-checkpoint/refs"
)

// Options say how a planned run is executed.
type Options struct {
	Run          string
	Jobs         int      // how many tasks at once; below 1 is 1
	Dir          string   // below it each repository, run and attempt has a directory
	MaxFileSize  int64    // bytes; untracked files above it are left out of a task's result; 0: no limit
	Exclude      []string // gitignore patterns of files to leave out of it
	Identity     func() (refs.Identity, error)
	Notify       func(Notice)       // told what happens, by several goroutines; nil: nobody
	MemberStatus func(Member) error // says why a member may not work any more; nil: all may
}

// Result is how the execution of a run ended, for now.
type Result struct {
	Run      string   `json:"run"`
	Status   string   `json:"status"` // completed, failed, stopped, waiting
	Reason   string   `json:"reason,omitempty"`
	Branch   string   `json:"branch"` // without refs/heads/
	Commit   string   `json:"commit"` // its head
	Reviewed bool     `json:"reviewed"`
	Waiting  []string `json:"waiting,omitempty"` // tasks that asked a question

	Tasks []TaskStatus `json:"tasks"`
}

// runner executes one run. Its repository is used under mu only; what takes
// long (commands) runs without it.
type runner struct {
	o     Options
	repo  *refs.Repository
	begun time.Time
	spent float64 // minutes that calls before this one took, of one that is told in pieces

	mu     sync.Mutex
	loaded *Loaded
	budget error // why no further call may be made
}

// Execute takes hold of a run and does all that can be done now. What is done
// is never done again, so it can be called again after any end. Errors:
// ErrConflict for a run that somebody else holds or that has failed or was
// stopped, fault.Unfinished for a plan that waits for approval.
func Execute(ctx context.Context, repo *refs.Repository, o Options) (*Result, error) {
	release, err := lineage.Hold(ctx, repo, o.Run, "run", 2*time.Second)
	if err != nil {
		return nil, err
	}
	defer release()
	if err := repo.Recover(ctx); err != nil {
		return nil, err
	}
	r := &runner{o: o, repo: repo, begun: time.Now()}
	if err := r.reload(ctx); err != nil {
		return nil, err
	}
	if result, err := r.mayGoOn(ctx); result != nil || err != nil {
		return result, err
	}
	if err := r.recover(ctx); err != nil {
		return nil, err
	}
	if err := r.status(ctx, notes.Running, ""); err != nil {
		return nil, err
	}
	for {
		if err := r.tasks(ctx); err != nil {
			return nil, err
		}
		// A question may have been answered while others worked.
		if more, err := r.more(ctx); more || err != nil {
			if err != nil {
				return nil, err
			}
			continue
		}
		again, result, err := r.end(ctx)
		if err != nil || !again {
			return result, err
		}
	}
}

// mayGoOn answers at once for a run that is over, or not to start.
func (r *runner) mayGoOn(ctx context.Context) (*Result, error) {
	p := r.loaded.Progress
	if err := r.loaded.verifySource(ctx, r.repo); err != nil {
		return nil, err
	}
	switch {
	case p.Rejected:
		return nil, fault.New(fault.Conflict, "rejected", "the plan of run '%s' was rejected", r.o.Run)
	case r.loaded.held():
		return nil, fault.New(fault.Unfinished, "held", "the plan of run '%s' waits for approval", r.o.Run).
			WithHint("git checkpoint approve %s lets it start, git checkpoint reject %s ends it", r.o.Run, r.o.Run)
	case p.Status == notes.Completed:
		return r.result(ctx, notes.Completed, "")
	case notes.Ended(p.Status):
		return nil, fault.New(fault.Conflict, "run-ended", "run '%s' has ended: %s", r.o.Run, p.Status).
			WithHint("git checkpoint rewind goes back in it, git checkpoint rerun repeats tasks of it")
	}
	return nil, r.loaded.membersWork(r.o.MemberStatus)
}

// membersWork refuses a run of which a member may not work any more, as status
// says; nil: all may.
func (l *Loaded) membersWork(status func(Member) error) error {
	if status == nil {
		return nil
	}
	for _, m := range l.Plan.Members {
		if err := status(m); err != nil {
			return fault.New(fault.Conflict, "member-unavailable", "member '%s' of run '%s' cannot work: %w", m.ID, l.Run, err).
				WithHint("nobody is put in its place; change the policy, or plan anew")
		}
	}
	return nil
}

// Notice is something that happened while a run was executed.
type Notice struct {
	Task  string // empty: the run as a whole
	State string // what the task is now: running, done, failed, …; empty: what it was
	Text  string // a line for people, without the task
}

func (r *runner) tell(task, state, format string, args ...any) {
	if r.o.Notify != nil {
		r.o.Notify(Notice{task, state, fmt.Sprintf(format, args...)})
	}
}

// elapsed is how long this runner has worked, in minutes.
func (r *runner) elapsed() float64 { return r.spent + time.Since(r.begun).Minutes() }

// recover finishes, or clears away, what a runner that died left.
func (r *runner) recover(ctx context.Context) error {
	if err := r.adopt(ctx); err != nil {
		return err
	}
	return r.clearAway(ctx)
}

// adopt finishes the change of refs by which a task is done, where a crash came
// between the notes, which git writes first, and the run's own ref.
func (r *runner) adopt(ctx context.Context) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, t := range r.loaded.Progress.Tasks {
		if t.last.State != eventDone || t.last.Checkpoint == "" || t.Commit == t.last.Commit {
			continue
		}
		c, err := r.repo.ReadCheckpoint(ctx, t.last.Checkpoint)
		if err != nil || c.Previous() != r.loaded.Tip.ID {
			continue // its objects are gone too, or the chain went on without it: it is done again
		}
		commit, err := r.repo.ReadCommit(ctx, t.last.Commit)
		if err != nil {
			continue
		}
		branch := r.loaded.Progress.Planned.Branch
		at, err := r.repo.Ref(ctx, branch)
		if err != nil {
			return err
		}
		tx := r.repo.Begin("checkpoint: task " + t.Task + " done")
		switch {
		case at == commit.Previous():
			tx.Set(branch, commit.ID, at)
		case at == "" || r.repo.Git().Command(ctx, "merge-base", "--is-ancestor", commit.ID, at).Run() != nil:
			continue // people moved it
		}
		tx.Set(refs.RunRef(r.o.Run), c.ID, r.loaded.Tip.ID)
		if err := tx.Commit(ctx); err != nil {
			return err
		}
		r.tell(t.Task, Done, "done (%.12s), as its runner had written down", commit.ID)
		return r.reload(ctx)
	}
	return nil
}

// more says whether something can start that could not before.
func (r *runner) more(ctx context.Context) (bool, error) {
	r.mu.Lock()
	err := r.reload(ctx)
	r.mu.Unlock()
	return len(r.ready(nil)) > 0, err
}

// reload reads the run again. The caller holds mu, or is alone.
func (r *runner) reload(ctx context.Context) error {
	l, err := Load(ctx, r.repo, r.o.Run, true)
	if err == nil {
		r.loaded = l
	}
	return err
}

// write changes the run: add puts events into its journal, may add to the
// transaction, and returns the new tip of the chain, or "" if that stays. All of
// it lands at once, the run's own ref last, and again on what is there if
// somebody else wrote meanwhile. The caller holds mu.
func (r *runner) write(ctx context.Context, what string, add func(tx *refs.Transaction, by refs.Identity) (tip string, err error)) error {
	// A journal that is begun is finished, even while we are asked to stop.
	ctx = context.WithoutCancel(ctx)
	for attempt := 1; ; attempt++ {
		by, err := r.o.Identity()
		if err != nil {
			return err
		}
		tx := r.repo.Begin("checkpoint: " + what)
		tip, err := add(tx, by)
		if err != nil {
			r.reload(ctx) // what it added to the journal is not to be written with the next
			return err
		}
		if err := r.loaded.book.Commit(ctx, tx, fmt.Sprintf("run %s: %s", r.o.Run, what), by); err != nil {
			return err
		}
		if tip != "" {
			tx.Set(refs.RunRef(r.o.Run), tip, r.loaded.Tip.ID)
		}
		err = tx.Commit(ctx)
		if err != nil && (!errors.Is(err, refs.ErrStale) || attempt == 8) {
			r.reload(ctx)
			return err
		}
		stale := err
		if err := r.reload(ctx); err != nil {
			return err
		}
		if stale == nil {
			return nil
		}
	}
}

// journal adds events to the run's journal. The caller holds mu.
func (r *runner) journal(ctx context.Context, event string, fields any) error {
	return r.write(ctx, event, func(_ *refs.Transaction, by refs.Identity) (string, error) {
		return "", r.loaded.book.Add(ctx, r.loaded.Start.ID, by.When, event, fields)
	})
}

func (r *runner) status(ctx context.Context, status, reason string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	fields := map[string]any{"status": status, "elapsed": r.elapsed()}
	if status == notes.Running {
		fields["elapsed"] = 0
	}
	if reason != "" {
		fields["reason"] = reason
	}
	return r.journal(ctx, notes.EventStatus, fields)
}

// afford makes sure that one more call is paid for. The caller holds mu.
func (r *runner) afford() error {
	p := r.loaded.Progress
	b := p.Planned.Budget
	now := *p
	now.Minutes = p.earlier + r.elapsed()
	if b.left(&now) {
		return nil
	}
	r.budget = spentError(p.Calls, now.Minutes)
	return r.budget
}

func spentError(calls int, minutes float64) error {
	spent := "1 call"
	if calls != 1 {
		spent = fmt.Sprintf("%d calls", calls)
	}
	return fault.New(fault.Negative, budgetSpent, "the budget is spent: %s, %.1f minutes", spent, minutes)
}

// whilePaid returns a context that ends when the budget of minutes does.
func (r *runner) whilePaid(ctx context.Context) (context.Context, context.CancelFunc) {
	r.mu.Lock()
	defer r.mu.Unlock()
	p := r.loaded.Progress
	most := float64(p.Planned.Budget.MaxMinutes)
	if most == 0 {
		return ctx, func() {}
	}
	left := time.Duration((most - p.earlier - r.elapsed()) * float64(time.Minute))
	spent := fault.New(fault.Negative, budgetSpent, "the budget of %d minutes is spent", p.Planned.Budget.MaxMinutes)
	return context.WithTimeoutCause(ctx, max(left, 0), spent)
}

// tasks executes until nothing is running and nothing more can start.
func (r *runner) tasks(ctx context.Context) error {
	ctx, stop := r.whilePaid(ctx)
	defer stop()
	jobs := max(r.o.Jobs, 1)
	running := map[string]bool{}
	ended := make(chan taskEnd)
	var failure error
	for {
		if failure == nil && ctx.Err() == nil {
			for _, id := range r.ready(running) {
				if len(running) >= jobs {
					break
				}
				running[id] = true
				go func() {
					err := r.task(ctx, id)
					ended <- taskEnd{id, err}
				}()
			}
		}
		if len(running) == 0 {
			break
		}
		e := <-ended
		delete(running, e.task)
		if e.err != nil && failure == nil {
			failure = e.err
		}
	}
	if failure != nil {
		return failure
	}
	if hasCode(context.Cause(ctx), budgetSpent) {
		r.mu.Lock()
		r.budget = spentError(r.loaded.Progress.Calls, r.loaded.Progress.earlier+r.elapsed())
		r.mu.Unlock()
		return nil
	}
	if ctx.Err() != nil {
		return fault.New(fault.Fatal, "interrupted", "run '%s' was interrupted", r.o.Run).
			WithHint("git checkpoint resume %s goes on", r.o.Run)
	}
	return nil
}

type taskEnd struct {
	task string
	err  error
}

// ready lists the tasks that could start now, in the order of the plan.
func (r *runner) ready(running map[string]bool) []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.budget != nil {
		return nil
	}
	var ids []string
	for _, t := range r.loaded.Progress.Tasks {
		if t.State == Ready && !running[t.Task] {
			ids = append(ids, t.Task)
		}
	}
	return ids
}

// end decides how the run ends when no task can go on: done, failed, stopped
// or waiting. again means that a rejection was handed back as a repair.
func (r *runner) end(ctx context.Context) (again bool, result *Result, err error) {
	r.mu.Lock()
	var failed, waiting, leased string
	open := false
	for _, t := range r.loaded.Progress.Tasks {
		switch t.State {
		case Failed:
			failed = fmt.Sprintf("task '%s' failed: %s", t.Task, t.Reason)
		case Waiting:
			waiting = t.Task
		case Done, Retained, Skipped:
		default:
			open = true
			if t.last.State == eventLeased {
				leased = fmt.Sprintf("task '%s' is handed out until %s", t.Task, t.last.Deadline)
			}
		}
	}
	budget := r.budget
	r.mu.Unlock()
	switch {
	case budget != nil && (open || failed == ""):
		result, err = r.conclude(ctx, notes.Stopped, budget.Error())
	case waiting != "":
		result, err = r.conclude(ctx, notes.Waiting, fmt.Sprintf("task '%s' asked a question", waiting))
	case failed != "":
		result, err = r.conclude(ctx, notes.Failed, failed)
	case leased != "":
		return false, nil, fault.New(fault.Conflict, "task-leased", "run '%s' cannot go on: %s", r.o.Run, leased).
			WithHint("git checkpoint report %s tells what became of it; after that time git checkpoint resume %s does it", r.o.Run, r.o.Run)
	case open:
		return false, nil, fault.New(fault.Fatal, "stuck", "run '%s' has tasks that can neither start nor fail", r.o.Run)
	default:
		return r.accept(ctx)
	}
	return false, result, err
}

// conclude journals how the run ended and answers it.
func (r *runner) conclude(ctx context.Context, status, reason string) (*Result, error) {
	if err := r.status(ctx, status, reason); err != nil {
		return nil, err
	}
	return r.result(ctx, status, reason)
}

func (r *runner) result(ctx context.Context, status, reason string) (*Result, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	l := r.loaded
	head, err := r.repo.Ref(ctx, l.Progress.Planned.Branch)
	if err != nil {
		return nil, err
	}
	result := &Result{
		Run: l.Run, Status: status, Reason: reason, Branch: short(l.Progress.Planned.Branch), Commit: head,
		Reviewed: l.Plan.Review != nil && status == notes.Completed, Tasks: l.Progress.Tasks,
	}
	for _, t := range l.Progress.Tasks {
		if t.State == Waiting {
			result.Waiting = append(result.Waiting, t.Task)
		}
	}
	return result, nil
}

func short(branch string) string { return strings.TrimPrefix(branch, "refs/heads/") }

// home is the directory of the run's attempts.
func (r *runner) home() string { return Home(r.o.Dir, r.repo, r.o.Run) }

// Home is the directory in which the attempts of a run are made.
func Home(dir string, repo *refs.Repository, run string) string {
	sum := sha256.Sum256([]byte(repo.Git().CommonDir))
	return filepath.Join(dir, hex.EncodeToString(sum[:8]), run)
}

// head is the integration branch's commit. People may have added to it; it
// must go on from where we left it. The caller holds mu.
func (r *runner) head(ctx context.Context) (string, error) {
	branch := r.loaded.Progress.Planned.Branch
	head, err := r.repo.Ref(ctx, branch)
	if err != nil {
		return "", err
	}
	if head == "" {
		return "", fault.New(fault.Conflict, "branch-gone", "the branch '%s' of run '%s' is gone", short(branch), r.o.Run).
			WithHint("git branch %s <commit> makes it again; git checkpoint status %s tells the commits of its tasks", short(branch), r.o.Run)
	}
	last := r.loaded.Tip.Head
	if last == "" || head == last {
		return head, nil
	}
	if err := r.repo.Git().Command(ctx, "merge-base", "--is-ancestor", last, head).Run(); err != nil {
		return "", fault.New(fault.Conflict, "branch-moved", "the branch '%s' of run '%s' no longer has what its tasks did", short(branch), r.o.Run).
			WithHint("move it back to %.12s or to a commit after it", last)
	}
	return head, nil
}

// textDigest is the digest of a command, which evidence is bound to, or of a
// handover.
func textDigest(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:])
}
