package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/git-checkpoint/git-checkpoint/internal/scripttest"
	"github.com/git-checkpoint/git-checkpoint/lineage"
	"github.com/git-checkpoint/git-checkpoint/refs"
)

// lab is a repository with the run "task" of the steps plan, work and test,
// on which real processes work.
type lab struct {
	t   *testing.T
	dir string
	env []string
}

func newLab(t *testing.T) *lab {
	t.Helper()
	home := t.TempDir()
	config := filepath.Join(home, ".gitconfig")
	if err := os.WriteFile(config, []byte(scripttest.UserConfig), 0o666); err != nil {
		t.Fatal(err)
	}
	l := &lab{t: t, dir: filepath.Join(home, "repo"), env: append(os.Environ(),
		"HOME="+home, "GIT_CONFIG_NOSYSTEM=1", "GIT_CONFIG_GLOBAL="+config, "LC_ALL=C", "TZ=UTC")}
	if err := os.Mkdir(l.dir, 0o777); err != nil {
		t.Fatal(err)
	}
	l.git("init", "-q")
	l.write("code", "base")
	l.git("add", ".")
	l.git("commit", "-qm", "base")
	l.checkpoint("start", "task")
	for _, step := range []string{"plan", "work", "test"} {
		l.write("code", step)
		l.write(step, step)
		l.checkpoint("save", "--step", step)
	}
	return l
}

func (l *lab) write(name, content string) {
	l.t.Helper()
	if err := os.WriteFile(filepath.Join(l.dir, name), []byte(content+"\n"), 0o666); err != nil {
		l.t.Fatal(err)
	}
}

func (l *lab) read(name string) string {
	data, err := os.ReadFile(filepath.Join(l.dir, name))
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(data))
}

// run starts a program and returns what it printed and how it ended: its exit
// code, -1 where it was killed.
func (l *lab) run(env []string, name string, args ...string) (stdout, stderr string, code int) {
	cmd := exec.Command(name, args...)
	var out, errs bytes.Buffer
	cmd.Dir, cmd.Env, cmd.Stdout, cmd.Stderr = l.dir, append(l.env[:len(l.env):len(l.env)], env...), &out, &errs
	err := cmd.Run()
	var ended *exec.ExitError
	if err != nil && !errors.As(err, &ended) {
		l.t.Errorf("start %s: %v", name, err)
	}
	return out.String(), errs.String(), cmd.ProcessState.ExitCode()
}

func (l *lab) git(args ...string) string {
	l.t.Helper()
	out, errs, code := l.run(nil, "git", args...)
	if code != 0 {
		l.t.Fatalf("git %s: exit code %d\n%s", strings.Join(args, " "), code, errs)
	}
	return strings.TrimSpace(out)
}

func (l *lab) checkpoint(args ...string) string {
	l.t.Helper()
	return l.git(append([]string{"checkpoint"}, args...)...)
}

// sound checks that the repository is whole; verify asks git fsck, too.
func (l *lab) sound() {
	l.t.Helper()
	if out, _, code := l.run(nil, "git", "checkpoint", "verify"); code != 0 {
		l.t.Errorf("verify: %s", out)
	}
}

func (l *lab) runs() map[string]*lineage.Node {
	l.t.Helper()
	repo, err := refs.Open(context.Background(), l.dir)
	if err != nil {
		l.t.Fatal(err)
	}
	defer repo.Close()
	graph, err := lineage.Load(context.Background(), repo)
	if err != nil {
		l.t.Fatal(err)
	}
	runs := map[string]*lineage.Node{}
	for _, n := range graph.Nodes() {
		runs[n.Run] = n
		if graph.Archived(n.Run) {
			runs[n.Run+" archived"] = n
		}
	}
	return runs
}

// together runs calls of git checkpoint at once and returns their exit codes.
func (l *lab) together(calls [][]string) []int {
	codes := make([]int, len(calls))
	var wait sync.WaitGroup
	for i, args := range calls {
		wait.Add(1)
		go func() {
			defer wait.Done()
			var errs string
			_, errs, codes[i] = l.run(nil, "git", append([]string{"checkpoint"}, args...)...)
			if codes[i] != 0 {
				l.t.Logf("%s: %s", strings.Join(args, " "), errs)
			}
		}()
	}
	wait.Wait()
	return codes
}

func (l *lab) allDone(codes []int) {
	l.t.Helper()
	for i, code := range codes {
		if code != 0 {
			l.t.Errorf("call %d of %d: exit code %d", i+1, len(codes), code)
		}
	}
}

func TestRewindsOfOneRunAtOnceAllMakeARun(t *testing.T) {
	for _, c := range []struct {
		name string
		n    int
		more []string
	}{
		{"two", 2, nil},
		{"eight without files", 8, []string{"--no-checkout"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := newLab(t)
			// A file that a dead holder left is no holder, for all of them.
			release := l.hold("task")
			release()
			var calls [][]string
			for i := range c.n {
				calls = append(calls, append([]string{"rewind", "task", "--to", "plan", "--run", fmt.Sprint("n", i)}, c.more...))
			}
			l.allDone(l.together(calls))
			runs := l.runs()
			for i := range c.n {
				if runs[fmt.Sprint("n", i)] == nil {
					t.Errorf("there is no run n%d", i)
				}
			}
			if runs["task archived"] == nil {
				t.Error("the source is not archived")
			}
			l.sound()
		})
	}
}

func TestTheSameRequestAtOnceMakesOneRun(t *testing.T) {
	for _, args := range [][]string{
		{"rewind", "task", "--to", "plan", "--run", "n", "--no-checkout"},
		{"rewind", "task", "--to", "plan", "--run", "n"},
		{"fork", "task", "--to", "plan", "--run", "n"},
	} {
		t.Run(strings.Join(args, " "), func(t *testing.T) {
			l := newLab(t)
			l.allDone(l.together([][]string{args, args, args, args}))
			runs := l.runs()
			if len(runs) != 2 && (len(runs) != 3 || runs["task archived"] == nil) || runs["n"] == nil {
				t.Errorf("the runs are %v", runs)
			}
			l.sound()
		})
	}
}

func TestForksIntoWorktreesAtOnce(t *testing.T) {
	l := newLab(t)
	l.allDone(l.together([][]string{
		{"fork", "task", "--to", "plan", "--run", "a", "--worktree", "../a"},
		{"fork", "task", "--to", "work", "--run", "b", "--worktree", "../b"},
	}))
	if a, b := l.read("../a/code"), l.read("../b/code"); a != "plan" || b != "work" {
		t.Errorf("the files are %q and %q", a, b)
	}
	l.holds(".", "test")
	l.sound()
}

// TestTheSameForkIntoAWorktreeAtOnce: git makes a worktree only once; who comes
// too late is told so, and gets the answer when it asks again.
func TestTheSameForkIntoAWorktreeAtOnce(t *testing.T) {
	l := newLab(t)
	args := []string{"fork", "task", "--to", "plan", "--run", "a", "--worktree", "../a"}
	for i, code := range l.together([][]string{args, args, args}) {
		if code != 0 && code != 3 {
			t.Errorf("call %d: exit code %d", i+1, code)
		}
	}
	l.checkpoint(args...)
	l.holds("../a", "plan")
	if runs := l.runs(); len(runs) != 2 || runs["a"] == nil {
		t.Errorf("the runs are %v", runs)
	}
	l.sound()
}

// hold makes this process the holder of a run.
func (l *lab) hold(run string) (release func()) {
	l.t.Helper()
	repo, err := refs.Open(context.Background(), l.dir)
	if err != nil {
		l.t.Fatal(err)
	}
	defer repo.Close()
	release, err = lineage.Hold(context.Background(), repo, run, "run", 0)
	if err != nil {
		l.t.Fatal(err)
	}
	return release
}

func TestARunThatALiveProcessHoldsCanBeForkedOnly(t *testing.T) {
	l := newLab(t)
	release := l.hold("task")
	before := l.git("for-each-ref")
	for _, args := range [][]string{
		{"rewind", "task", "--to", "plan"},
		{"rewind", "task", "--to", "plan", "--no-checkout"},
		{"rewind", "task", "--to", "plan", "--dry-run"},
	} {
		_, errs, code := l.run(nil, "git", append([]string{"checkpoint"}, args...)...)
		want := fmt.Sprintf("error: run 'task' is held by process %d (run)\n", os.Getpid())
		if code != 3 || !strings.HasPrefix(errs, want) {
			t.Errorf("%s: exit code %d, %q", strings.Join(args, " "), code, errs)
		}
	}
	if after := l.git("for-each-ref"); after != before {
		t.Errorf("refs changed: %s", after)
	}
	l.checkpoint("fork", "task", "--to", "plan", "--run", "f")
	release()
	l.checkpoint("rewind", "task", "--to", "plan", "--run", "n")
	l.sound()
}

// TestARunThatAProgramMadeIsGoneOnWithHere: an orchestrator that has no
// worktree makes a run; the first that goes on with it need not fork it.
func TestARunThatAProgramMadeIsGoneOnWithHere(t *testing.T) {
	l := newLab(t)
	ctx := context.Background()
	repo, err := refs.Open(ctx, l.dir)
	if err != nil {
		t.Fatal(err)
	}
	defer repo.Close()
	by := refs.Identity{Name: "An Orchestrator", Email: "orchestrator@example.org"}
	if _, err := lineage.Fork(ctx, repo, lineage.Request{Source: "task", Step: "plan", Run: "n", By: by}); err != nil {
		t.Fatal(err)
	}
	if _, err := lineage.Fork(ctx, repo, lineage.Request{Source: "task", Step: "plan", Run: "m"}); !errors.Is(err, refs.ErrInvalid) {
		t.Errorf("a fork by nobody: %v", err)
	}
	l.checkpoint("switch", "n")
	l.holds(".", "plan")
	l.write("code", "more")
	l.checkpoint("save", "--step", "more")
	if n := l.runs()["n"]; n == nil || n.Checkpoints != 1 {
		t.Errorf("the run is %+v", n)
	}
	l.sound()
}

// descents are the ways to descend from the step plan of the lab's run.
var descents = []struct {
	name string
	args []string
	dir  string // where the files of the new run are
}{
	{"rewind", []string{"rewind", "task", "--to", "plan", "--run", "n"}, "."},
	{"rewind without files", []string{"rewind", "task", "--to", "plan", "--run", "n", "--no-checkout"}, ""},
	{"fork", []string{"fork", "task", "--to", "plan", "--run", "n"}, ""},
	{"fork into a worktree", []string{"fork", "task", "--to", "plan", "--run", "n", "--worktree", "../w"}, "../w"},
}

// N.3: TestKilledDescent kills each way to descend at every durable step of it and
// demands that there is no new run and an unarchived source, or the whole, and
// that what is begun can be finished, and taken back.
func TestKilledDescent(t *testing.T) {
	if testing.Short() {
		t.Skip("it starts hundreds of processes")
	}
	for _, d := range descents {
		t.Run(d.name, func(t *testing.T) {
			t.Parallel()
			pristine := newLab(t)
			pristine.git("commit", "-qam", "made since")
			for n, killed := 1, true; killed; n++ {
				l := pristine.copy(t)
				_, _, code := l.run([]string{fmt.Sprint("GIT_CHECKPOINT_KILL=", n)}, "git", append([]string{"checkpoint"}, d.args...)...)
				killed = code != 0
				if !killed && n < 4 {
					t.Fatalf("it was not killed at step %d", n)
				}
				l.afterKill(n, d.args, d.dir)
				if t.Failed() {
					t.Fatalf("killed at step %d", n)
				}
			}
		})
	}
}

// copy is a copy of a lab, to be spoilt.
func (l *lab) copy(t *testing.T) *lab {
	t.Helper()
	home := t.TempDir()
	c := &lab{t: t, dir: filepath.Join(home, "repo"), env: l.env}
	if err := os.CopyFS(c.dir, os.DirFS(l.dir)); err != nil {
		t.Fatal(err)
	}
	return c
}

// afterKill checks what a kill left. What was begun is finished at every other
// step, and taken back at the others.
func (l *lab) afterKill(n int, args []string, dir string) {
	l.t.Helper()
	rewind := args[0] == "rewind"
	runs := l.runs()
	made := runs["n"] != nil
	if archived := runs["task archived"] != nil; archived != (made && rewind) {
		l.t.Errorf("the run was made: %v; its source is archived: %v", made, archived)
	}
	status := ""
	if dir != "" && made {
		status = l.git("-C", dir, "checkpoint", "status")
	}
	switch interrupted := strings.Contains(status, "interrupted: "); {
	case interrupted && n%2 == 0:
		l.git("-C", dir, "checkpoint", "undo")
	case interrupted:
		l.git("-C", dir, "checkpoint", "restore", "--continue")
		l.holds(dir, "plan")
		if rewind {
			l.checkpoint("undo")
		}
	case rewind && dir != "" && made:
		l.checkpoint("undo") // only the answer was lost
	default:
		// Asked again, by a caller who got no answer, it is whole.
		l.checkpoint(args...)
		if dir != "" {
			l.holds(dir, "plan")
		}
		if runs = l.runs(); runs["n"] == nil || (runs["task archived"] != nil) != rewind {
			l.t.Errorf("asked again, the runs are %v", runs)
		}
		if rewind && dir != "" {
			l.checkpoint("undo")
		}
	}
	l.holds(".", "test")
	if l.git("log", "-1", "--format=%s") != "made since" {
		l.t.Error("HEAD is not where it was")
	}
	if dir == "." {
		if l.runs()["task archived"] != nil {
			l.t.Error("after undo the source is archived")
		}
		l.checkpoint("save", "--run", "task", "--step", "after")
	}
	l.sound()
}

func (l *lab) holds(dir, want string) {
	l.t.Helper()
	if got := l.read(filepath.Join(dir, "code")); got != want {
		l.t.Errorf("the file in '%s' is %q, not %q", dir, got, want)
	}
}

// TestCrashBetweenRefs leaves what a crash of the machine leaves: git renames
// one ref after the other, in the order given.
func TestCrashBetweenRefs(t *testing.T) {
	for _, d := range descents[:2] {
		t.Run(d.name, func(t *testing.T) {
			lab := newLab(t)
			at := lab.copy(t).stepOf("change of refs written down", d.args)
			pristine := lab.copy(t) // in which as much is to be looked at again
			pristine.run([]string{fmt.Sprint("GIT_CHECKPOINT_KILL=", at)}, "git", append([]string{"checkpoint"}, d.args...)...)
			var record struct {
				Updates []struct{ Ref, New string }
			}
			data, err := os.ReadFile(filepath.Join(pristine.dir, ".git", "checkpoint", "transaction"))
			if err == nil {
				err = json.Unmarshal(data, &record)
			}
			if err != nil || len(record.Updates) < 3 {
				t.Fatalf("the record of the change is %s: %v", data, err)
			}
			// A copy is not the lock that the dead process made.
			os.Remove(filepath.Join(pristine.dir, ".git", "index.lock"))
			for done := range record.Updates {
				l := pristine.copy(t)
				for _, u := range record.Updates[:done] {
					l.git("update-ref", u.Ref, u.New)
				}
				if runs := l.runs(); runs["n"] != nil || runs["task archived"] != nil {
					t.Errorf("after %d refs the runs are %v", done, runs)
				}
				l.checkpoint("save", "--run", "task", "--step", "after")
				l.sound()
				l.checkpoint(d.args...)
				if runs := l.runs(); runs["n"] == nil || runs["task archived"] == nil {
					t.Errorf("after %d refs, and asked again, the runs are %v", done, runs)
				}
				l.sound()
			}
		})
	}
}

// stepOf is the number of the first durable step of that name in a call.
func (l *lab) stepOf(name string, args []string) string {
	l.t.Helper()
	_, trace, _ := l.run([]string{"GIT_CHECKPOINT_KILL=1000000", "GIT_CHECKPOINT_TRACE=1"}, "git", append([]string{"checkpoint"}, args...)...)
	for line := range strings.Lines(trace) {
		if number, ok := strings.CutPrefix(strings.TrimSpace(line), "trace: step "); ok {
			if number, ok = strings.CutSuffix(number, ": "+name); ok {
				return number
			}
		}
	}
	l.t.Fatalf("there is no step '%s' in %s", name, trace)
	return ""
}

// S0.13: the command line and the library make the same runs: the same commits,
// and journals that say the same.
func TestTheCommandLineAndTheLibraryMakeTheSameRuns(t *testing.T) {
	t.Parallel()
	byCommand := newLab(t)
	byLibrary := byCommand.copy(t)
	date := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	byCommand.env = append(byCommand.env, "GIT_CHECKPOINT_DATE="+date.Format(time.RFC3339))
	byCommand.checkpoint("fork", "task", "--before", "test", "--run", "other")
	byCommand.checkpoint("rewind", "task", "--to", "work", "--run", "again", "--no-checkout", "--instructions", "use the parser")

	ctx := context.Background()
	repo, err := refs.Open(ctx, byLibrary.dir)
	if err != nil {
		t.Fatal(err)
	}
	defer repo.Close()
	by := refs.Identity{Name: "A Person", Email: "person@example.org", When: date}
	if _, err := lineage.Fork(ctx, repo, lineage.Request{Source: "task", Step: "test", Before: true, Run: "other", By: by}); err != nil {
		t.Fatal(err)
	}
	if _, err := lineage.Rewind(ctx, repo, lineage.Request{Source: "task", Step: "work", Run: "again", Instructions: "use the parser", By: by}); err != nil {
		t.Fatal(err)
	}

	for _, run := range []string{"other", "again", "task"} {
		tips, journals := [2]string{}, [2]string{}
		for i, l := range []*lab{byCommand, byLibrary} {
			tips[i] = l.git("rev-parse", "refs/checkpoints/runs/"+run)
			start := l.git("log", "--first-parent", "-1", "--grep=^Checkpoint-Kind: start", "--format=%H", tips[i])
			for line := range strings.Lines(l.git("notes", "--ref=checkpoints/"+run, "show", start)) {
				var event map[string]any
				if err := json.Unmarshal([]byte(line), &event); err != nil {
					t.Fatal(err)
				}
				// What is particular to a call: its id, and where it was made.
				delete(event, "id")
				delete(event, "worktree")
				delete(event, "path")
				data, _ := json.Marshal(event)
				journals[i] += string(data) + "\n"
			}
		}
		if tips[0] != tips[1] {
			t.Errorf("run %s: %s by the command line, %s by the library", run, tips[0], tips[1])
		}
		if journals[0] != journals[1] || journals[0] == "" {
			t.Errorf("run %s: the command line wrote\n%sthe library\n%s", run, journals[0], journals[1])
		}
	}
	byLibrary.sound()
}
