package rerun

import (
	"bytes"
	"cmp"
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
	place   int // the number that it began with, and its directory has: repairs have higher ones
	base    string
	dir     string
	session string
	key     string // of a delivery
	started time.Time

	repo     *git.Repo // of its worktree
	lock     *lock.Lock
	result   taskResult
	output   string
	skipped  []snapshot.Skip // what its result does not hold
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

// attempt is the n-th attempt at a task, in the directory of the one that it
// began with. The caller holds mu.
func (r *runner) attempt(t *Task, n, place int, base, session string) *attempt {
	if place == 0 {
		place = n
	}
	return &attempt{
		task: t, member: r.loaded.member(t.Member), number: n, place: place, base: base, session: session, started: time.Now(), key: r.key(t),
		dir: filepath.Join(r.home(), fmt.Sprintf("%s.%d", t.ID, place)),
	}
}

func (a *attempt) tree() string            { return filepath.Join(a.dir, a.name()) }
func (a *attempt) file(name string) string { return filepath.Join(a.dir, name) }

// name is that of the worktree, for git too: no other worktree has it, so that
// what a killed git leaves in the git directory is known to be of this attempt.
func (a *attempt) name() string {
	sum := sha256.Sum256([]byte(a.dir))
	return "tree-" + hex.EncodeToString(sum[:6])
}

// task does one task to its end: done, failed, waiting, or left for later
// because the budget or the context ended. The error is for what keeps the
// whole run from going on.
func (r *runner) task(ctx context.Context, id string) error {
	for conflicts := 0; ; conflicts++ {
		a, err := r.start(ctx, id)
		if hasCode(err, artifactMissing) {
			return r.failed(ctx, a, err.Error())
		}
		if err != nil {
			return stopQuietly(err)
		}
		outcome, err := r.work(ctx, a)
		if err != nil {
			return stopQuietly(err)
		}
		if outcome.conflict && conflicts == 0 {
			r.tell(id, "", "what it changed conflicts with what was integrated meanwhile; once more on the new head")
			continue
		}
		if outcome.failure == "" {
			return nil
		}
		return r.failed(ctx, a, outcome.failure)
	}
}

// stopQuietly lets a spent budget end a task without ending the others badly.
func stopQuietly(err error) error {
	if hasCode(err, budgetSpent) {
		return nil
	}
	return err
}

// The codes of errors that a task meets and the run does not end of.
const (
	budgetSpent     = "budget-spent"
	artifactMissing = "artifact-missing"
)

func hasCode(err error, code string) bool {
	var f *fault.Error
	return errors.As(err, &f) && f.Code == code
}

// outcome is how an attempt ended: well if failure is empty.
type outcome struct {
	failure  string
	conflict bool
}

// start journals an attempt and makes its worktree.
func (r *runner) start(ctx context.Context, id string) (*attempt, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	t := r.loaded.Plan.Task(id)
	if err := r.afford(); err != nil {
		return nil, err
	}
	base, err := r.head(ctx)
	if err != nil {
		return nil, err
	}
	status := r.loaded.Progress.Task(t.ID)
	a := r.attempt(t, status.Attempts+1, 0, base, r.loaded.session(t))
	repair, reason := status.returned()
	e := TaskEvent{
		Task: t.ID, State: eventStarted, Attempt: a.number, Base: base, Member: t.Member, Call: true, Repair: repair, Reason: reason,
		Session: a.session, Elapsed: r.elapsed(),
	}
	if err := r.journal(ctx, EventTask, e); err != nil {
		return nil, err
	}
	r.tell(t.ID, Running, "attempt %d", a.number)
	if err := r.makeWorktree(ctx, a); err != nil {
		a.lock.Release()
		return a, err
	}
	return a, nil
}

// session is the one that a task goes on in: its own, or what a rewind or fork
// hands on to the task that is entered again, if that was the same member's.
func (l *Loaded) session(t *Task) string {
	if own := l.Progress.Task(t.ID).session; own != "" || l.Created.ResumeStep != t.ID {
		return own
	}
	for _, r := range l.Records {
		if r.SessionID != "" && r.SessionID == l.Created.Session && r.Member == t.Member {
			return r.SessionID
		}
	}
	return ""
}

func (l *Loaded) member(id string) *Member {
	if m := l.Plan.Member(id); m != nil {
		return m
	}
	return &Member{}
}

// returned says whether a task was handed back, and why. It is a repair once:
// an attempt at it that was killed is made again.
func (t *TaskStatus) returned() (repair bool, reason string) {
	return t.last.State == eventReturned, t.handed
}

// makeWorktree makes the attempt's directory and its linked worktree, with
// the lock that its command keeps. The caller holds mu.
func (r *runner) makeWorktree(ctx context.Context, a *attempt) error {
	if err := r.setAside(a); err != nil {
		return err
	}
	if err := os.MkdirAll(a.dir, 0o700); err != nil {
		return fault.New(fault.Fatal, "io", "make a place for task '%s': %w", a.task.ID, err)
	}
	l, err := lock.Acquire(ctx, a.file("lock"), "task "+a.task.ID, time.Second)
	if err != nil {
		return fault.New(fault.Conflict, "task-busy", "take hold of task '%s': %w", a.task.ID, err)
	}
	a.lock = l
	if err := r.addWorktree(ctx, a); err != nil {
		return fault.New(fault.Fatal, "worktree-add", "make a worktree for task '%s': %w", a.task.ID, err).
			WithHint("it was to be '%s'; the setting checkpoint.worktreeDir says where such go", a.tree())
	}
	if a.repo, err = git.Open(ctx, a.tree()); err != nil {
		return err
	}
	return r.writeInputs(a)
}

// setAside moves away what a repository that was here before, and is not known
// to this one, left where the attempt is to be: somebody's work may be in it.
func (r *runner) setAside(a *attempt) error {
	if !exists(a.tree()) || len(r.registered(a.name())) > 0 {
		return nil
	}
	to := ""
	for n := 1; to == "" || exists(to); n++ {
		to = fmt.Sprintf("%s.aside-%d", a.dir, n)
	}
	if err := os.Rename(a.dir, to); err != nil {
		return fault.New(fault.Fatal, "io", "move aside what an earlier repository left: %w", err).WithHint("move '%s' elsewhere and resume the run", a.dir)
	}
	r.tell(a.task.ID, "", "what an earlier repository left in '%s' is now in '%s'", a.dir, to)
	return nil
}

// addWorktree has git make the worktree. It holds the attempt's lock meanwhile:
// a git that outlives us goes on writing.
func (r *runner) addWorktree(ctx context.Context, a *attempt) error {
	defer r.repo.Git().Inherit(a.lock.File())()
	c := r.repo.Git().Command(ctx, "worktree", "add", "--quiet", "--detach", a.tree(), a.base)
	c.Hold = true
	return c.Run()
}

// writeInputs lays out what the task is given: artifacts and handovers, as
// data and nothing else. The caller holds mu.
func (r *runner) writeInputs(a *attempt) error {
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
		// An interrupt here must not be taken for an artifact that is missing.
		made, err := r.artifact(context.Background(), a.task, producer, name, a.base)
		if err != nil {
			return err
		}
		a.consumed = append(a.consumed, Consumed{Kind: "artifact", From: producer.ID, Name: name, Digest: made.Digest})
		if err := copyTree(filepath.Join(a.tree(), filepath.FromSlash(made.Path)), a.file(filepath.Join("inputs", "artifacts", name))); err != nil {
			return fault.New(fault.Fatal, "io", "lay out artifact '%s' for task '%s': %w", name, a.task.ID, err)
		}
	}
	for _, from := range a.task.Knows {
		handover := r.loaded.Records[from].Handover
		a.consumed = append(a.consumed, Consumed{Kind: "knowledge", From: from, Digest: textDigest(handover)})
		if err := os.WriteFile(a.file(filepath.Join("inputs", "handovers", from)), []byte(handover), 0o600); err != nil {
			return fault.New(fault.Fatal, "io", "lay out the handover of '%s' for task '%s': %w", from, a.task.ID, err)
		}
	}
	return nil
}

// artifact finds what a task uses of another's, in its base.
func (r *runner) artifact(ctx context.Context, t, producer *Task, name, base string) (Artifact, error) {
	path := producer.Produces[name]
	id, err := r.repo.Git().Command(ctx, "rev-parse", "--verify", "--quiet", "--end-of-options", base+":"+path).Text()
	if err != nil {
		return Artifact{}, fault.New(fault.Conflict, artifactMissing, "task '%s' needs artifact '%s', and '%s' is not in its base", t.ID, name, path)
	}
	return Artifact{Path: path, Digest: id}, nil
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
	o, err := r.pursue(ctx, a)
	if err != nil && ctx.Err() != nil {
		r.breakOff(ctx, a, err.Error())
	}
	return o, err
}

func (r *runner) pursue(ctx context.Context, a *attempt) (outcome, error) {
	failure := ""
	for {
		result, err := r.execute(ctx, a, failure)
		if err != nil {
			return outcome{}, err
		}
		r.readResult(a)
		switch {
		case result.Exit == 75:
			return outcome{}, r.ask(ctx, a, result)
		case result.TimedOut:
			return outcome{failure: "its command " + tooLong(a.task)}, nil
		case !result.OK():
			return outcome{failure: fmt.Sprintf("its command ended with %d", result.Exit)}, nil
		}
		o, err := r.deliver(ctx, a)
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

func tooLong(t *Task) string {
	return fmt.Sprintf("ran longer than %d minutes, and was ended", t.TimeoutMinutes)
}

// deliver takes what the command left through measurement, checks and
// integration.
func (r *runner) deliver(ctx context.Context, a *attempt) (outcome, error) {
	own, failure, err := r.measure(ctx, a)
	if err != nil || failure != "" {
		return outcome{failure: failure}, err
	}
	o, err := r.bring(ctx, a, own)
	if err == nil && o.conflict {
		err = r.conflicted(ctx, a, o.failure)
	}
	return o, err
}

// bring has an attempt's commit checked and integrates it. Where another task
// was integrated meanwhile it does so again on the new head.
func (r *runner) bring(ctx context.Context, a *attempt, own string) (outcome, error) {
	for {
		candidate, head, conflict, err := r.candidate(ctx, a, own)
		if err != nil || conflict != "" {
			return outcome{failure: conflict, conflict: conflict != ""}, err
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
	r.tell(a.task.ID, Running, "handed back: %s", firstLine(failure))
	e := TaskEvent{
		Task: a.task.ID, State: eventStarted, Attempt: a.number, Place: a.place, Base: a.base, Member: a.task.Member, Call: true,
		Repair: true, Reason: failure, Session: a.session, Elapsed: r.elapsed(),
	}
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
		return r.deliverOnce(ctx, a, failure != "")
	}
	return r.run(ctx, a, a.task.Run)
}

// run starts one of the attempt's commands and waits for it.
func (r *runner) run(ctx context.Context, a *attempt, line string) (command.Result, error) {
	result, err := command.Run(ctx, command.Spec{
		Line: line, Dir: a.tree(), Env: r.environment(a), Log: a.file("log"), Hold: a.lock.File(), Group: a.file("group"),
		Timeout: time.Duration(a.task.TimeoutMinutes) * time.Minute,
	})
	a.output = result.Tail
	return result, r.commandError(ctx, "task '"+a.task.ID+"'", err)
}

// commandError explains why a command did not come to its end.
func (r *runner) commandError(ctx context.Context, what string, err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, command.ErrNoShell):
		return fault.New(fault.Fatal, "no-shell", "%s: %w", what, err).
			WithHint(`Git for Windows brings one: start this as 'git checkpoint', or put git's folder usr\bin on the PATH`)
	case ctx.Err() == nil:
		return fault.New(fault.Fatal, "command", "%s: %w", what, err)
	}
	if hasCode(context.Cause(ctx), budgetSpent) {
		return context.Cause(ctx)
	}
	return fault.New(fault.Fatal, "interrupted", "%s was interrupted", what).
		WithHint("git checkpoint resume %s goes on", r.o.Run)
}

func (r *runner) environment(a *attempt) []string {
	m := a.member
	return []string{
		"CHECKPOINT_RUN=" + r.o.Run, "CHECKPOINT_TASK=" + a.task.ID, "CHECKPOINT_KIND=" + a.task.Kind,
		"CHECKPOINT_ATTEMPT=" + strconv.Itoa(a.number), "CHECKPOINT_MEMBER=" + m.ID, "CHECKPOINT_PROVIDER=" + m.Provider,
		"CHECKPOINT_MODEL=" + m.Model, "CHECKPOINT_EFFORT=" + m.Effort, "CHECKPOINT_INSTRUCTIONS=" + a.file("instructions"),
		"CHECKPOINT_INPUTS=" + a.file("inputs"), "CHECKPOINT_SESSION=" + a.session, "CHECKPOINT_BASE=" + a.base,
		"CHECKPOINT_KEY=" + a.key, "CHECKPOINT_RESULT=" + a.file("result.json"),
	}
}

// key is what a delivery is known by from outside. The caller holds mu.
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
	failure = cmp.Or(failure, status.handed)
	if failure != "" {
		b.WriteString("\nThe attempt before was not accepted:\n" + strings.TrimSpace(failure) + "\n")
	}
	return b.String()
}

// readResult reads what the command wrote about its work. What cannot be read
// counts as not written, and is told.
func (r *runner) readResult(a *attempt) {
	a.result = taskResult{}
	result, err := readResultFile(a.file("result.json"))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return
	case err != nil:
		r.tell(a.task.ID, "", "its result file is left out: %v", err)
		return
	}
	a.takeResult(result)
}

func readResultFile(path string) (result taskResult, err error) {
	info, err := os.Lstat(path)
	switch {
	case err != nil:
		return result, err
	case !info.Mode().IsRegular():
		return result, errors.New("it is no file")
	case info.Size() > resultLimit:
		return result, fmt.Errorf("it has more than %d bytes", resultLimit)
	}
	data, err := os.ReadFile(path)
	if err == nil {
		err = json.Unmarshal(data, &result)
	}
	return result, err
}

func (a *attempt) takeResult(result taskResult) {
	a.result = result
	if result.SessionID != "" {
		a.session = result.SessionID
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
	r.tell(a.task.ID, Waiting, "asks: %s", firstLine(text))
	os.WriteFile(a.file("kept"), nil, 0o600)
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
	r.tell(a.task.ID, Failed, "failed: %s", firstLine(reason))
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
	tree, _, err := r.store(ctx, a.repo)
	if err != nil {
		r.tell(a.task.ID, "", "what it left in %s could not be saved: %v", a.tree(), err)
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
	// An id may hold '..', which a ref must not.
	ref := refs.LocalRef(LocalTasks, fmt.Sprintf("%s/%s.%d", r.o.Run, strings.ReplaceAll(a.task.ID, ".", "+"), a.number))
	old, err := r.repo.Ref(ctx, ref)
	if err != nil {
		return "", err
	}
	tx.Set(ref, id, old)
	return id, tx.Commit(ctx)
}

// store makes a tree of what is in a worktree, and lists what it leaves out.
func (r *runner) store(ctx context.Context, repo *git.Repo) (string, []snapshot.Skip, error) {
	snap, err := snapshot.New(repo).Take(ctx, snapshot.Options{MaxFileSize: r.o.MaxFileSize, Exclude: r.o.Exclude})
	if err != nil {
		return "", nil, err
	}
	defer snap.Discard()
	return snap.Tree, snap.Skipped, nil
}

// finished removes an attempt's directory when its work is integrated; where
// something of it was left out, it stays.
func (r *runner) finished(ctx context.Context, a *attempt) {
	a.lock.Release()
	if len(a.skipped) > 0 {
		os.WriteFile(a.file("kept"), nil, 0o600)
		r.tell(a.task.ID, "", "not all that it made is in the result; see '%s'", a.tree())
		return
	}
	if err := r.discard(ctx, a); err != nil {
		r.tell(a.task.ID, "", "its worktree '%s' could not be removed: %v", a.tree(), err)
	}
}

// clearAway ends and keeps what attempts of a dead runner left: processes are
// stopped, half-done work is saved, and their tasks start again.
func (r *runner) clearAway(ctx context.Context) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	// What git had only begun to make keeps it from working at all.
	if len(r.registered("tree-")) > 0 {
		for _, t := range r.loaded.Progress.Tasks {
			if t.last.State != eventStarted {
				continue
			}
			a := r.attempt(r.loaded.Plan.Task(t.Task), t.last.Attempt, t.last.Place, "", "")
			if err := r.stopLeftover(ctx, a); err != nil {
				return err
			}
			r.sweep(a, true)
		}
		for _, name := range []string{inspectVerify, inspectReview} {
			r.sweep(&attempt{task: &Task{ID: name}, dir: filepath.Join(r.home(), name)}, true)
		}
	}
	for _, t := range slices.Clone(r.loaded.Progress.Tasks) {
		if t.last.State != eventStarted && t.last.State != eventDone && t.last.State != eventKilled {
			continue
		}
		a := r.attempt(r.loaded.Plan.Task(t.Task), t.last.Attempt, t.last.Place, t.last.Base, t.session)
		if err := r.stopLeftover(ctx, a); err != nil {
			return err
		}
		if t.last.State == eventStarted {
			if err := r.keepKilled(ctx, a, "its runner was killed"); err != nil {
				return err
			}
		}
		if t.last.State != eventDone || exists(a.dir) {
			r.discard(ctx, a)
		}
	}
	for _, name := range []string{inspectVerify, inspectReview} {
		a := &attempt{task: &Task{ID: name}, dir: filepath.Join(r.home(), name)}
		if !exists(a.dir) {
			continue
		}
		if err := r.stopLeftover(ctx, a); err != nil {
			return err
		}
		r.discard(ctx, a)
	}
	return nil
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

// openTree opens the attempt's worktree; nil where there is none, or none yet.
func (a *attempt) openTree(ctx context.Context) *git.Repo {
	repo, err := git.Open(ctx, a.tree())
	if err != nil {
		return nil
	}
	// The directory may lie in another repository.
	top, err := os.Stat(repo.Top)
	own, err2 := os.Stat(a.tree())
	if err != nil || err2 != nil || !os.SameFile(top, own) {
		return nil
	}
	return repo
}

// keepKilled stores what an attempt left that did not come to its end, and
// journals that. The caller holds mu.
func (r *runner) keepKilled(ctx context.Context, a *attempt, reason string) (err error) {
	safety := ""
	if a.repo == nil {
		a.repo = a.openTree(ctx)
	}
	if a.repo != nil {
		if safety, err = r.keepHalfDone(ctx, a); err != nil {
			return err
		}
	}
	e := TaskEvent{Task: a.task.ID, State: eventKilled, Attempt: a.number, Place: a.place, Session: a.session, Safety: safety, Reason: reason, Output: a.output}
	return r.journal(ctx, EventTask, e)
}

// breakOff ends an attempt whose command we stopped ourselves.
func (r *runner) breakOff(ctx context.Context, a *attempt, reason string) {
	ctx = context.WithoutCancel(ctx)
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.keepKilled(ctx, a, reason); err != nil {
		r.tell(a.task.ID, "", "what it did is kept in '%s': %v", a.tree(), err)
		return // resume tries again
	}
	a.lock.Release()
	r.discard(ctx, a)
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
		// Without a group it is git, which comes to its end.
		if tries == 2 && exists(a.file("group")) || tries == 30 {
			return fault.New(fault.Conflict, "task-alive", "task '%s' of run '%s' is still running, in '%s'", a.task.ID, r.o.Run, a.dir).
				WithHint("end its processes and try again")
		}
		if data, err := os.ReadFile(a.file("group")); err == nil {
			if group, err := strconv.Atoi(strings.TrimSpace(string(data))); err == nil && group > 1 {
				r.tell(a.task.ID, "", "ending what a dead runner left running")
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

// discard removes the directory of an attempt whose work is kept elsewhere,
// and what git knows of its worktree, however far that was made.
func (r *runner) discard(ctx context.Context, a *attempt) error {
	if exists(a.file("kept")) {
		return nil
	}
	// The second --force is for a worktree that git was killed in making.
	remove := func() error {
		return r.repo.Git().Command(context.WithoutCancel(ctx), "worktree", "remove", "--force", "--force", a.tree()).Run()
	}
	if err := remove(); err != nil {
		os.RemoveAll(a.tree())
		if err := remove(); err != nil {
			r.sweep(a, false)
		}
	}
	return os.RemoveAll(a.dir)
}

// RemoveHome removes the directories of a run's attempts, see Home, also those
// that were kept, and what git knows of their worktrees.
func RemoveHome(ctx context.Context, repo *refs.Repository, home string) {
	r := &runner{repo: repo}
	entries, _ := os.ReadDir(home)
	for _, e := range entries {
		a := &attempt{dir: filepath.Join(home, e.Name())}
		os.Remove(a.file("kept"))
		r.discard(ctx, a)
	}
	os.RemoveAll(home)
}

// registered lists what git keeps of worktrees whose name begins so.
func (r *runner) registered(prefix string) (dirs []string) {
	all := filepath.Join(r.repo.Git().CommonDir, "worktrees")
	entries, _ := os.ReadDir(all)
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), prefix) {
			dirs = append(dirs, filepath.Join(all, e.Name()))
		}
	}
	return dirs
}

// sweep removes what git keeps of an attempt's worktree in the git directory,
// or only what it had not come to finish.
func (r *runner) sweep(a *attempt, unfinished bool) {
	for _, dir := range r.registered(a.name()) {
		finished := true
		for _, name := range []string{"gitdir", "commondir", "HEAD"} {
			info, err := os.Stat(filepath.Join(dir, name))
			finished = finished && err == nil && info.Size() > 0
		}
		if !unfinished || !finished {
			os.RemoveAll(dir)
		}
	}
}
