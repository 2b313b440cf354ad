package rerun

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/git-checkpoint/git-checkpoint/internal/command"
	"github.com/git-checkpoint/git-checkpoint/internal/fault"
	"github.com/git-checkpoint/git-checkpoint/internal/git"
	"github.com/git-checkpoint/git-checkpoint/internal/lock"
	"github.com/git-checkpoint/git-checkpoint/internal/snapshot"
	"github.com/git-checkpoint/git-checkpoint/refs"
)

// attempt is one attempt at a task: a directory of its own with a linked
// worktree on the integration head.
type attempt struct {
	task    *Task
	member  *Member
	number  int
	base    string
	dir     string
	session string
	started time.Time

	repo     *git.Repo // of its worktree
	lock     *lock.Lock
	result   taskResult
	output   string
	consumed []Consumed
}

// taskResult is what a command may write to CHECKPOINT_RESULT.
type taskResult struct {
	SessionID string            `json:"session_id"`
	Artifacts map[string]string `json:"artifacts"` // name to path or URI
	Handover  string            `json:"handover"`
	Metrics   json.RawMessage   `json:"metrics"`
}

// resultLimit bounds a result file, in bytes.
const resultLimit = 1 << 20

func (a *attempt) tree() string            { return filepath.Join(a.dir, "tree") }
func (a *attempt) file(name string) string { return filepath.Join(a.dir, name) }

// task does one task to its end: done, failed, waiting, or left for later
// because the budget or the context ended. The error is for what keeps the
// whole run from going on.
func (r *runner) task(ctx context.Context, id string) error {
	t := r.loaded.Plan.Task(id)
	failure := ""
	for conflicts := 0; ; conflicts++ {
		a, err := r.start(ctx, t)
		if err != nil {
			return stopQuietly(err)
		}
		outcome, err := r.work(ctx, a)
		if err != nil {
			return stopQuietly(err)
		}
		if outcome.conflict && conflicts == 0 {
			r.say("%s: what it changed conflicts with what was integrated meanwhile; once more on the new head", id)
			continue
		}
		failure = outcome.failure
		if failure == "" {
			return nil
		}
		return r.failed(ctx, a, failure)
	}
}

// stopQuietly lets a spent budget end a task without ending the others badly.
func stopQuietly(err error) error {
	var f *fault.Error
	if errors.As(err, &f) && f.Code == "budget-spent" {
		return nil
	}
	return err
}

// outcome is how an attempt ended: well if failure is empty.
type outcome struct {
	failure  string
	conflict bool
}

// start journals an attempt and makes its worktree.
func (r *runner) start(ctx context.Context, t *Task) (*attempt, error) {
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
	a := &attempt{task: t, number: status.Attempts + 1, base: base, started: time.Now(), session: status.last.Session}
	a.member = r.loaded.member(t.Member)
	repair, reason := status.returned()
	a.dir = filepath.Join(r.home(), fmt.Sprintf("%s.%d", t.ID, a.number))
	e := TaskEvent{Task: t.ID, State: eventStarted, Attempt: a.number, Base: base, Member: t.Member, Call: true, Repair: repair, Reason: reason, Elapsed: r.elapsed()}
	if err := r.journal(ctx, EventTask, e); err != nil {
		return nil, err
	}
	r.say("%s: attempt %d", t.ID, a.number)
	return a, r.makeWorktree(ctx, a)
}

func (l *Loaded) member(id string) *Member {
	if m := l.Plan.Member(id); m != nil {
		return m
	}
	return &Member{}
}

// returned says whether a task is to be done again, and why.
func (t *TaskStatus) returned() (repair bool, reason string) {
	if t.last.State != eventReturned {
		return false, ""
	}
	return true, t.last.Reason
}

// makeWorktree makes the attempt's directory and its linked worktree, with
// the lock that its command keeps. The caller holds mu.
func (r *runner) makeWorktree(ctx context.Context, a *attempt) error {
	if err := os.MkdirAll(a.dir, 0o700); err != nil {
		return fault.New(fault.Fatal, "io", "make a place for task '%s': %w", a.task.ID, err)
	}
	l, err := lock.Acquire(ctx, a.file("lock"), "task "+a.task.ID, time.Second)
	if err != nil {
		return fault.New(fault.Conflict, "task-busy", "take hold of task '%s': %w", a.task.ID, err)
	}
	a.lock = l
	if err := r.repo.Git().Command(ctx, "worktree", "add", "--quiet", "--detach", a.tree(), a.base).Run(); err != nil {
		return fault.New(fault.Fatal, "worktree-add", "make a worktree for task '%s': %w", a.task.ID, err)
	}
	if a.repo, err = git.Open(ctx, a.tree()); err != nil {
		return err
	}
	return r.writeInputs(ctx, a)
}

// writeInputs lays out what the task is given: artifacts and handovers, as
// data and nothing else. The caller holds mu.
func (r *runner) writeInputs(_ context.Context, a *attempt) error {
	for _, dir := range []string{"inputs/artifacts", "inputs/handovers"} {
		if err := os.MkdirAll(a.file(filepath.FromSlash(dir)), 0o700); err != nil {
			return fault.New(fault.Fatal, "io", "lay out the inputs of task '%s': %w", a.task.ID, err)
		}
	}
	a.consumed = nil
	for _, name := range a.task.Uses {
		producer := r.loaded.Plan.Producer(name)
		if producer == nil {
			continue
		}
		path := producer.Produces[name]
		id, err := r.repo.Git().Command(context.Background(), "rev-parse", "--verify", "--quiet", "--end-of-options", a.base+":"+path).Text()
		if err != nil {
			return fault.New(fault.Conflict, "artifact-missing", "task '%s' needs artifact '%s', and '%s' is not in its base", a.task.ID, name, path)
		}
		a.consumed = append(a.consumed, Consumed{Kind: "artifact", From: producer.ID, Name: name, Digest: id})
		if err := copyTree(filepath.Join(a.tree(), filepath.FromSlash(path)), a.file(filepath.Join("inputs", "artifacts", name))); err != nil {
			return fault.New(fault.Fatal, "io", "lay out artifact '%s' for task '%s': %w", name, a.task.ID, err)
		}
	}
	for _, from := range a.task.Knows {
		handover := r.loaded.Records[from].Handover
		sum := sha256.Sum256([]byte(handover))
		a.consumed = append(a.consumed, Consumed{Kind: "knowledge", From: from, Digest: hex.EncodeToString(sum[:])})
		if err := os.WriteFile(a.file(filepath.Join("inputs", "handovers", from)), []byte(handover), 0o600); err != nil {
			return fault.New(fault.Fatal, "io", "lay out the handover of '%s' for task '%s': %w", from, a.task.ID, err)
		}
	}
	return nil
}

// copyTree copies files and directories; symbolic links are left out, since
// they may lead anywhere.
func copyTree(from, to string) error {
	return filepath.WalkDir(from, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(from, path)
		if err != nil {
			return err
		}
		target := filepath.Join(to, rel)
		switch {
		case d.IsDir():
			return os.MkdirAll(target, 0o700)
		case !d.Type().IsRegular():
			return nil
		}
		in, err := os.Open(path)
		if err != nil {
			return err
		}
		defer in.Close()
		out, err := os.OpenFile(target, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
		if err != nil {
			return err
		}
		_, err = io.Copy(out, in)
		if closed := out.Close(); err == nil {
			err = closed
		}
		return err
	})
}

// work runs the attempt's command, measures, checks and integrates what it
// did, and hands failures back while there are repairs.
func (r *runner) work(ctx context.Context, a *attempt) (outcome, error) {
	defer a.lock.Release()
	failure := ""
	for {
		result, err := r.execute(ctx, a, failure)
		if err != nil {
			return outcome{}, err
		}
		switch {
		case result.Exit == 75:
			return outcome{}, r.ask(ctx, a, result)
		case result.TimedOut:
			return outcome{failure: fmt.Sprintf("its command ran longer than %d minutes", a.task.TimeoutMinutes)}, nil
		case !result.OK():
			return outcome{failure: fmt.Sprintf("its command ended with %d", result.Exit)}, nil
		}
		a.readResult()
		o, err := r.deliver(ctx, a, result)
		if err != nil || o.failure == "" || o.conflict {
			return o, err
		}
		failure = o.failure
		again, err := r.repair(ctx, a, failure)
		if err != nil || !again {
			return o, err
		}
	}
}

// deliver takes what the command left through measurement, checks and
// integration. Where another task was integrated meanwhile it does so again on
// the new head.
func (r *runner) deliver(ctx context.Context, a *attempt, _ command.Result) (outcome, error) {
	own, failure, err := r.measure(ctx, a)
	if err != nil || failure != "" {
		return outcome{failure: failure}, err
	}
	for {
		candidate, head, conflict, err := r.candidate(ctx, a, own)
		if err != nil {
			return outcome{}, err
		}
		if conflict != "" {
			return outcome{failure: conflict, conflict: true}, r.conflicted(ctx, a, conflict)
		}
		// From here on the worktree stands on that head.
		a.base, own = head, candidate
		if failure, err := r.accepted(ctx, a, candidate); err != nil || failure != "" {
			return outcome{failure: failure}, err
		}
		done, err := r.integrate(ctx, a, candidate, head)
		if err != nil || done {
			return outcome{}, err
		}
	}
}

// repair journals that a failure is handed back, if the task has repairs left.
func (r *runner) repair(ctx context.Context, a *attempt, failure string) (bool, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	status := r.loaded.Progress.Task(a.task.ID)
	if status.repairs >= a.task.Repairs {
		return false, nil
	}
	if err := r.afford(); err != nil {
		return false, err
	}
	a.number = status.Attempts + 1
	r.say("%s: handed back: %s", a.task.ID, firstLine(failure))
	e := TaskEvent{Task: a.task.ID, State: eventStarted, Attempt: a.number, Base: a.base, Member: a.task.Member, Call: true, Repair: true, Reason: failure, Elapsed: r.elapsed()}
	return true, r.journal(ctx, EventTask, e)
}

func firstLine(s string) string {
	line, _, _ := strings.Cut(strings.TrimSpace(s), "\n")
	return line
}

// execute runs the task's command in its worktree. For a delivery it first
// asks whether it is there already.
func (r *runner) execute(ctx context.Context, a *attempt, failure string) (command.Result, error) {
	if err := r.writeInstructions(a, failure); err != nil {
		return command.Result{}, err
	}
	os.Remove(a.file("result.json"))
	if a.task.Kind == refs.KindDelivery {
		return r.deliverOnce(ctx, a)
	}
	return r.run(ctx, a, a.task.Run)
}

// run starts one of the attempt's commands and waits for it.
func (r *runner) run(ctx context.Context, a *attempt, line string) (command.Result, error) {
	result, err := command.Run(ctx, command.Spec{
		Line: line, Dir: a.tree(), Env: r.environment(a), Log: a.file("log"), Hold: a.lock.File(),
		Timeout: time.Duration(a.task.TimeoutMinutes) * time.Minute,
		Started: func(group int) { os.WriteFile(a.file("group"), []byte(strconv.Itoa(group)), 0o600) },
	})
	a.output = result.Tail
	if err != nil && ctx.Err() != nil {
		return result, r.killed(a)
	}
	if err != nil {
		return result, fault.New(fault.Fatal, "command", "task '%s': %w", a.task.ID, err)
	}
	return result, nil
}

// killed leaves an attempt that was broken off for resume, which keeps its work.
func (r *runner) killed(a *attempt) error {
	return fault.New(fault.Fatal, "interrupted", "task '%s' was interrupted", a.task.ID).
		WithHint("git checkpoint resume %s goes on", r.o.Run)
}

func (r *runner) environment(a *attempt) []string {
	m := a.member
	return []string{
		"CHECKPOINT_RUN=" + r.o.Run, "CHECKPOINT_TASK=" + a.task.ID, "CHECKPOINT_KIND=" + a.task.Kind,
		"CHECKPOINT_ATTEMPT=" + strconv.Itoa(a.number), "CHECKPOINT_MEMBER=" + m.ID, "CHECKPOINT_PROVIDER=" + m.Provider,
		"CHECKPOINT_MODEL=" + m.Model, "CHECKPOINT_EFFORT=" + m.Effort, "CHECKPOINT_INSTRUCTIONS=" + a.file("instructions"),
		"CHECKPOINT_INPUTS=" + a.file("inputs"), "CHECKPOINT_SESSION=" + a.session, "CHECKPOINT_BASE=" + a.base,
		"CHECKPOINT_KEY=" + r.key(a.task), "CHECKPOINT_RESULT=" + a.file("result.json"),
	}
}

// key is what a delivery is known by from outside.
func (r *runner) key(t *Task) string {
	if t.Kind != refs.KindDelivery {
		return ""
	}
	return r.loaded.Progress.Planned.Key + "-" + t.ID
}

// writeInstructions writes what the task is to do: the plan's text, what was
// asked and answered, and what was wrong with the attempt before.
func (r *runner) writeInstructions(a *attempt, failure string) error {
	r.mu.Lock()
	text := r.loaded.brief(a.task, failure)
	r.mu.Unlock()
	if err := os.WriteFile(a.file("instructions"), []byte(text), 0o600); err != nil {
		return fault.New(fault.Fatal, "io", "write the instructions of task '%s': %w", a.task.ID, err)
	}
	return nil
}

// brief is the text of a task's instructions.
func (l *Loaded) brief(t *Task, failure string) string {
	var b bytes.Buffer
	b.WriteString(strings.TrimSpace(l.instructions(t)) + "\n")
	if t.Acceptance != "" {
		b.WriteString("\nIt is done when: " + strings.TrimSpace(t.Acceptance) + "\n")
	}
	status := l.Progress.Task(t.ID)
	for i := 0; i+1 < len(status.answered); i += 2 {
		fmt.Fprintf(&b, "\nYou asked: %s\nThe answer: %s\n", status.answered[i].Text, status.answered[i+1].Text)
	}
	if failure == "" && (status.last.Repair || status.last.State == eventReturned) {
		failure = status.last.Reason
	}
	if failure != "" {
		b.WriteString("\nThe attempt before was not accepted:\n" + strings.TrimSpace(failure) + "\n")
	}
	return b.String()
}

// readResult reads what the command wrote about its work; what cannot be read
// counts as not written.
func (a *attempt) readResult() {
	a.result = taskResult{}
	data, err := os.ReadFile(a.file("result.json"))
	if err != nil || len(data) > resultLimit {
		return
	}
	var result taskResult
	if json.Unmarshal(data, &result) == nil {
		a.result = result
	}
	if a.result.SessionID != "" {
		a.session = a.result.SessionID
	}
}

// ask journals a question and leaves the task waiting. What it did until then
// is kept.
func (r *runner) ask(ctx context.Context, a *attempt, result command.Result) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	text := strings.TrimSpace(result.Stdout)
	if text == "" {
		text = "(it asked without words)"
	}
	r.say("%s: asks: %s", a.task.ID, firstLine(text))
	safety, err := r.keepHalfDone(ctx, a)
	if err != nil {
		return err
	}
	return r.write(ctx, "question", func(_ *refs.Transaction, by refs.Identity) (string, error) {
		e := TaskEvent{Task: a.task.ID, State: eventKilled, Attempt: a.number, Session: a.session, Safety: safety, Reason: "it asked a question", Elapsed: r.elapsed()}
		if err := r.loaded.book.Add(ctx, r.loaded.Start.ID, by.When, EventTask, e); err != nil {
			return "", err
		}
		q := Question{Task: a.task.ID, Attempt: a.number, Text: text, Elapsed: r.elapsed()}
		return "", r.loaded.book.Add(ctx, r.loaded.Start.ID, by.When, EventQuestion, q)
	})
}

// failed journals the end of a task that nothing can be done about.
func (r *runner) failed(ctx context.Context, a *attempt, reason string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.say("%s: failed: %s", a.task.ID, firstLine(reason))
	safety, err := r.keepHalfDone(ctx, a)
	if err != nil {
		return err
	}
	e := TaskEvent{Task: a.task.ID, State: eventFailed, Attempt: a.number, Session: a.session, Reason: reason, Output: a.output, Safety: safety, Elapsed: r.elapsed()}
	return r.journal(ctx, EventTask, e)
}

// conflicted journals an attempt whose work does not go together with what was
// integrated meanwhile.
func (r *runner) conflicted(ctx context.Context, a *attempt, reason string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	safety, err := r.keepHalfDone(ctx, a)
	if err != nil {
		return err
	}
	e := TaskEvent{Task: a.task.ID, State: eventConflict, Attempt: a.number, Session: a.session, Reason: reason, Safety: safety, Elapsed: r.elapsed()}
	return r.journal(ctx, EventTask, e)
}

// LocalTasks stands in the place of a worktree's id in the local refs that
// keep what attempts left: refs/checkpoints/local/tasks/<run>/<task>.<attempt>.
const LocalTasks = "tasks"

// keepHalfDone stores what an attempt has in its worktree as a commit, kept
// by a ref of that worktree's, and returns it. The caller holds mu.
func (r *runner) keepHalfDone(ctx context.Context, a *attempt) (string, error) {
	ctx = context.WithoutCancel(ctx)
	by, err := r.o.Identity()
	if err != nil {
		return "", err
	}
	tree, err := r.store(ctx, a.repo)
	if err != nil {
		r.say("%s: what it left in %s could not be saved: %v", a.task.ID, a.tree(), err)
		return "", nil
	}
	if base, err := r.repo.CommitTree(ctx, a.base); err == nil && base == tree {
		return "", nil
	}
	c := &refs.Checkpoint{
		Tree: tree, Parents: []string{a.base}, Kind: refs.KindSafety, Head: a.base,
		Subject: fmt.Sprintf("what attempt %d at task '%s' of run '%s' left", a.number, a.task.ID, r.o.Run),
	}
	id := r.repo.PutCheckpoint(c, by)
	tx := r.repo.Begin("checkpoint: half-done work")
	ref := refs.LocalRef(LocalTasks, fmt.Sprintf("%s/%s.%d", r.o.Run, a.task.ID, a.number))
	old, err := r.repo.Ref(ctx, ref)
	if err != nil {
		return "", err
	}
	tx.Set(ref, id, old)
	return id, tx.Commit(ctx)
}

// store makes a tree of what is in a worktree.
func (r *runner) store(ctx context.Context, repo *git.Repo) (string, error) {
	snap, err := (&snapshot.ByGit{Repo: repo}).Take(ctx, snapshot.Options{MaxFileSize: r.o.MaxFileSize, Exclude: r.o.Exclude})
	if err != nil {
		return "", err
	}
	defer snap.Discard()
	return snap.Tree, nil
}

// removeWorktree removes an attempt's directory when its work is integrated.
func (r *runner) removeWorktree(ctx context.Context, a *attempt) {
	ctx = context.WithoutCancel(ctx)
	a.lock.Release()
	if err := r.repo.Git().Command(ctx, "worktree", "remove", "--force", a.tree()).Run(); err != nil {
		r.say("%s: its worktree '%s' could not be removed: %v", a.task.ID, a.tree(), err)
		return
	}
	os.RemoveAll(a.dir)
}

// clearAway ends and keeps what attempts of a dead runner left: processes are
// stopped, half-done work is saved, and their tasks start again.
func (r *runner) clearAway(ctx context.Context) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, t := range slices.Clone(r.loaded.Progress.Tasks) {
		if t.last.State != eventStarted {
			continue
		}
		task := r.loaded.Plan.Task(t.Task)
		a := &attempt{task: task, number: t.last.Attempt, base: t.last.Base, session: t.last.Session}
		a.dir = filepath.Join(r.home(), fmt.Sprintf("%s.%d", t.Task, a.number))
		if done := r.loaded.Progress.Task(t.Task); done.State == Done {
			r.discard(ctx, a)
			continue
		}
		if err := r.stopLeftover(ctx, a); err != nil {
			return err
		}
		safety := ""
		if repo, err := git.Open(ctx, a.tree()); err == nil {
			a.repo = repo
			if safety, err = r.keepHalfDone(ctx, a); err != nil {
				return err
			}
		}
		e := TaskEvent{Task: t.Task, State: eventKilled, Attempt: a.number, Session: a.session, Safety: safety, Reason: "its runner was killed"}
		if err := r.journal(ctx, EventTask, e); err != nil {
			return err
		}
		r.discard(ctx, a)
	}
	return r.repo.Git().Command(ctx, "worktree", "prune").Run()
}

// stopLeftover ends a command that outlived its runner: it still has the
// attempt's lock open.
func (r *runner) stopLeftover(ctx context.Context, a *attempt) error {
	if _, err := os.Stat(a.file("lock")); err != nil {
		return nil
	}
	for tries := 0; ; tries++ {
		err := lock.Probe(a.file("lock"))
		if err == nil || !errors.Is(err, lock.ErrHeld) {
			return nil
		}
		if tries == 2 {
			return fault.New(fault.Conflict, "task-alive", "task '%s' of run '%s' is still running, in '%s'", a.task.ID, r.o.Run, a.dir).
				WithHint("end its processes and try again")
		}
		if data, err := os.ReadFile(a.file("group")); err == nil {
			if group, err := strconv.Atoi(strings.TrimSpace(string(data))); err == nil && group > 1 {
				r.say("%s: ending what a dead runner left running", a.task.ID)
				command.KillGroup(group)
			}
		}
		select {
		case <-time.After(time.Second):
		case <-ctx.Done():
			return nil
		}
	}
}

// discard removes the directory of an attempt whose work is kept elsewhere.
func (r *runner) discard(ctx context.Context, a *attempt) {
	if _, err := os.Stat(a.dir); err != nil {
		return
	}
	r.repo.Git().Command(ctx, "worktree", "remove", "--force", a.tree()).Run()
	os.RemoveAll(a.dir)
}
