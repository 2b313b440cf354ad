//go:build unix

package worktree_test

import (
	"encoding/json"
	"fmt"
	"math/rand"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// killedPlan has every kind of thing that a runner does. Its commands write
// down that they ran, beside the repository.
const killedPlan = `
name = "killed"
verify = "test -f a && test -f b && test -f c"
[[member]]
id = "m"
[[member]]
id = "judge"
[review]
member = "judge"
run = "true"
[[task]]
id = "a"
kind = "agent"
member = "m"
run = ". ./tool; echo half >half; began a; slow; rm half; echo a >a"
check = "test -f a"
produces = { a = "a" }
[[task]]
id = "b"
kind = "agent"
member = "m"
run = ". ./tool; began b; slow; cat $CHECKPOINT_INPUTS/artifacts/a >b"
proof = "test -f b"
uses = ["a"]
[[task]]
id = "c"
kind = "deterministic"
run = ". ./tool; began c; slow; echo $CHECKPOINT_ATTEMPT >>tries; test $CHECKPOINT_ATTEMPT -gt 1 && echo c >c; echo 1 >tries"
check = "test -f c"
repairs = 1
[[task]]
id = "deliver"
kind = "delivery"
run = ". ./tool; began deliver; echo $CHECKPOINT_KEY >>$out/deliveries; slow"
probe = ". ./tool; grep -s $CHECKPOINT_KEY $out/deliveries"
after = ["b", "c"]
`

// The commands' own tool: where they write, and how long they take.
const killedTool = `out=$(git rev-parse --path-format=absolute --git-common-dir)/../..
began() { echo $1 >>$out/ran; echo $$ >>$out/pids; }
slow() {
  while [ "$(cat $out/pace 2>/dev/null)" = hold ]; do sleep 0.1; done
  sleep $(cat $out/pace 2>/dev/null || echo 0) & wait $!
}
`

// planned makes the repository in which a runner is killed.
func planned(t *testing.T) sandbox {
	s := sandbox{t, filepath.Join(t.TempDir(), "repo")}
	if err := os.Mkdir(s.dir, 0o755); err != nil {
		t.Fatal(err)
	}
	s.git("init", "-q", "--initial-branch=main")
	s.write("plan.toml", killedPlan)
	s.write("tool", killedTool)
	s.git("add", ".")
	s.git("commit", "-q", "-m", "base")
	s.write("untracked", "the user's\n")
	s.write("tool", killedTool+"# the user is at it\n")
	return s.placed()
}

// placed sets where attempts go: beside the repository.
func (s sandbox) placed() sandbox {
	s.git("config", "checkpoint.worktreeDir", filepath.Join(filepath.Dir(s.dir), "trees"))
	return s
}

func (s sandbox) beside(name string) string { return filepath.Join(filepath.Dir(s.dir), name) }

// lines counts what was written beside the repository, by line.
func (s sandbox) lines(name string) map[string]int {
	data, _ := os.ReadFile(s.beside(name))
	counts := map[string]int{}
	for _, line := range strings.Fields(string(data)) {
		counts[line]++
	}
	return counts
}

// runStatus is what status says of a planned run.
type runStatus struct {
	Status string
	Calls  int
	Tasks  []struct {
		Task, State, Commit string
		Attempts            int
	}
}

func (s sandbox) runStatus(run string) (st runStatus) {
	s.Helper()
	if err := json.Unmarshal([]byte(s.checkpoint("status", run, "--json")), &st); err != nil {
		s.Fatal(err)
	}
	return st
}

func (st runStatus) done() map[string]string {
	done := map[string]string{}
	for _, t := range st.Tasks {
		if t.State == "done" {
			done[t.Task] = t.Commit
		}
	}
	return done
}

// user is what of the repository is the user's: all but the branches.
func (s sandbox) user() world {
	w := s.world()
	for key := range w {
		if strings.HasPrefix(key, "ref ") {
			delete(w, key)
		}
	}
	return w
}

// goesOn resumes a run whose runner was killed, and checks that it comes to its
// end as if nothing had happened.
func (s sandbox) goesOn(before world, tree string) {
	s.Helper()
	ran := s.lines("ran")
	if s.ask("rev-parse", "-q", "--verify", "refs/checkpoints/runs/one") == "" {
		// It was killed before there was a run: nothing of it is in the way.
		s.checkpoint("run", "plan.toml", "--run", "one", "--jobs", "2")
	} else {
		st := s.runStatus("one")
		s.checkpoint("resume", "one", "--jobs", "2")
		now, after := s.lines("ran"), s.runStatus("one")
		for task, commit := range st.done() {
			if now[task] != ran[task] || after.done()[task] != commit {
				s.Errorf("'%s' was done and ran again: %d times, then %d", task, ran[task], now[task])
			}
		}
		for i, t := range st.Tasks {
			if after.Tasks[i].Attempts < t.Attempts {
				s.Errorf("'%s' had %d attempts, and has %d", t.Task, t.Attempts, after.Tasks[i].Attempts)
			}
		}
		if after.Calls < st.Calls {
			s.Errorf("%d calls, then %d", st.Calls, after.Calls)
		}
	}
	st := s.runStatus("one")
	if st.Status != "completed" || len(st.done()) != 4 {
		s.Errorf("it is %+v", st)
	}
	calls := 0
	for _, t := range st.Tasks {
		calls += t.Attempts
		if ran := s.lines("ran")[t.Task]; ran > t.Attempts {
			s.Errorf("'%s' ran %d times, and the journal has %d attempts", t.Task, ran, t.Attempts)
		}
	}
	if st.Calls < calls+1 {
		s.Errorf("%d calls, and %d attempts and a review", st.Calls, calls)
	}
	if got := s.git("rev-parse", "checkpoint/one^{tree}"); got != tree {
		s.Errorf("its tree is %s, not %s", got, tree)
	}
	if d := s.lines("deliveries"); len(d) != 1 {
		s.Errorf("delivered: %v", d)
	} else {
		for key, n := range d {
			if n != 1 {
				s.Errorf("%s was delivered %d times", key, n)
			}
		}
	}
	if diff := differences(s.user(), before); diff != "" {
		s.Errorf("what is the user's has changed:\n%s", diff)
	}
	s.cleared()
	s.sound()
	s.fsck()
	if out := s.checkpoint("resume", "one"); !strings.Contains(out, "completed") {
		s.Errorf("once more: %s", out)
	}
}

// cleared checks that nothing of attempts is left: processes, worktrees.
func (s sandbox) cleared() {
	s.Helper()
	if list := s.git("worktree", "list", "--porcelain"); strings.Count(list, "worktree ") != 1 {
		s.Errorf("worktrees are left:\n%s", list)
	}
	left, _ := filepath.Glob(filepath.Join(s.beside("trees"), "*", "*", "*"))
	if len(left) > 0 {
		s.Errorf("left: %v", left)
	}
	for pid := range s.lines("pids") {
		environ, _ := os.ReadFile(filepath.Join("/proc", pid, "environ"))
		if strings.Contains(string(environ), s.beside("trees")) {
			s.Errorf("process %s is left", pid)
		}
	}
}

// N.3: TestKilledRunner kills the runner of a plan at its durable steps.
func TestKilledRunner(t *testing.T) {
	t.Parallel()
	s := planned(t)
	whole := s.clone().placed()
	before := whole.user()
	all, _ := whole.steps(-1, "run", "plan.toml", "--run", "one", "--jobs", "2")
	tree := whole.git("rev-parse", "checkpoint/one^{tree}")
	whole.goesOn(before, tree)
	t.Logf("%d steps", len(all))
	for _, n := range spread(len(all), 7) {
		t.Run(fmt.Sprintf("step-%d", n), func(t *testing.T) {
			at := sandbox{t, s.dir}.clone().placed()
			if _, dead := at.steps(n, "run", "plan.toml", "--run", "one", "--jobs", "2"); !dead {
				t.Skip("it had come to its end") // tasks at once do not take the same steps twice
			}
			at.fsck() // no git was killed, so that its own state is whole before we go on
			at.goesOn(before, tree)
		})
	}
}

// TestRunnerKilledAtAnyTime kills the runner, the runner with its gits, or all
// that it started too, while commands are at work.
func TestRunnerKilledAtAnyTime(t *testing.T) {
	t.Parallel()
	s := planned(t)
	whole := s.clone().placed()
	before := whole.user()
	whole.checkpoint("run", "plan.toml", "--run", "one", "--jobs", "2")
	tree := whole.git("rev-parse", "checkpoint/one^{tree}")
	random := rand.New(rand.NewSource(time.Now().UnixNano()))
	for _, what := range []string{"the-runner", "its-group", "everything"} {
		for round := range rounds(1) {
			wait := 300*time.Millisecond + time.Duration(random.Int63n(int64(1500*time.Millisecond)))
			t.Run(fmt.Sprintf("%s-%d", what, round), func(t *testing.T) {
				at := sandbox{t, s.dir}.clone().placed()
				os.WriteFile(at.beside("pace"), []byte("0.4"), 0o644)
				// Twice: what the second finds is what the first left.
				for _, args := range [][]string{{"run", "plan.toml", "--run", "one", "--jobs", "2"}, {"resume", "one", "--jobs", "2"}} {
					at.killRunner(what, wait, args...)
				}
				os.Remove(at.beside("pace"))
				at.goesOn(before, tree)
			})
		}
	}
}

func (s sandbox) killRunner(what string, wait time.Duration, args ...string) {
	s.Helper()
	cmd, _, _ := s.checkpointCommand(args...)
	cmd.Stdout, cmd.Stderr = nil, nil
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		s.Fatal(err)
	}
	time.Sleep(wait)
	switch what {
	case "the-runner":
		cmd.Process.Kill()
	default:
		syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
	}
	cmd.Wait()
	if what == "everything" {
		for text := range s.lines("pids") {
			if pid, err := strconv.Atoi(text); err == nil {
				syscall.Kill(-pid, syscall.SIGKILL)
			}
		}
	}
}

// A runner that is asked to end stops its commands and keeps what they did.
func TestARunnerThatIsAskedToEnd(t *testing.T) {
	t.Parallel()
	s := planned(t)
	before := s.user()
	os.WriteFile(s.beside("pace"), []byte("20"), 0o644)
	for _, signal := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM} {
		args := []string{"resume", "one", "--jobs", "2"}
		if signal == syscall.SIGINT {
			args = []string{"run", "plan.toml", "--run", "one", "--jobs", "2"}
		}
		os.Remove(s.beside("ran"))
		cmd, _, stderr := s.checkpointCommand(args...)
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		s.until(func() bool { return len(s.lines("ran")) == 2 })
		begun := time.Now()
		cmd.Process.Signal(signal)
		cmd.Wait()
		if code := cmd.ProcessState.ExitCode(); code != 128 || !strings.Contains(stderr.String(), "hint: git checkpoint resume one goes on\n") {
			t.Errorf("%v: exit code %d\n%s", signal, code, stderr)
		}
		if took := time.Since(begun); took > 4*time.Second {
			t.Errorf("%v: it took %v to end", signal, took)
		}
		s.cleared()
	}
	st := s.runStatus("one")
	if st.Status != "interrupted" || st.Calls != 4 {
		t.Errorf("it is %+v", st)
	}
	for _, attempt := range []string{"a.1", "a.2"} {
		if half := s.git("show", "refs/checkpoints/local/tasks/one/"+attempt+":half"); half != "half\n" {
			t.Errorf("%s: %q", attempt, half)
		}
	}
	os.Remove(s.beside("pace"))
	s.checkpoint("resume", "one", "--jobs", "2")
	if diff := differences(s.user(), before); diff != "" {
		t.Errorf("what is the user's has changed:\n%s", diff)
	}
	s.cleared()
}

func (s sandbox) until(true func() bool) {
	s.Helper()
	for range 2000 {
		if true() {
			return
		}
		time.Sleep(5 * time.Millisecond)
	}
	s.Fatal("it does not come")
}

// A crash between the refs of one change leaves the notes, which come first,
// ahead of the chain: the task is done, and is not done again.
func TestATaskWhoseEndWasTornApartIsDone(t *testing.T) {
	t.Parallel()
	s := planned(t)
	before := s.user()
	whole := s.clone().placed()
	whole.checkpoint("run", "plan.toml", "--run", "one")
	tree := whole.git("rev-parse", "checkpoint/one^{tree}")
	os.WriteFile(s.beside("pace"), []byte("20"), 0o644)
	// 'a' is done at once, the next one is killed.
	s.write("plan.toml", strings.Replace(killedPlan, "echo half >half; began a; slow;", "began a;", 1))
	cmd, _, _ := s.checkpointCommand("run", "plan.toml", "--run", "one")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	s.until(func() bool { return s.lines("ran")["b"] == 1 })
	cmd.Process.Kill()
	cmd.Wait()
	s.write("plan.toml", killedPlan)
	os.Remove(s.beside("pace"))
	for name, tear := range map[string]func(sandbox){
		"before-the-branch": func(s sandbox) {
			s.git("update-ref", "refs/heads/checkpoint/one", "refs/heads/checkpoint/one^")
			s.git("update-ref", "refs/checkpoints/runs/one", "refs/checkpoints/runs/one^")
		},
		"before-the-chain": func(s sandbox) {
			s.git("update-ref", "refs/checkpoints/runs/one", "refs/checkpoints/runs/one^")
		},
	} {
		t.Run(name, func(t *testing.T) {
			at := sandbox{t, s.dir}.clone().placed()
			os.WriteFile(at.beside("ran"), []byte("a\nb\n"), 0o644)
			tear(at)
			// The worktree of what was at work is the other repository's.
			os.RemoveAll(filepath.Join(at.dir, ".git", "worktrees"))
			at.checkpoint("resume", "one")
			if n := at.lines("ran")["a"]; n != 1 {
				t.Errorf("'a' ran %d times", n)
			}
			at.goesOn(before, tree)
		})
	}
	s.checkpoint("resume", "one") // ends what is left of it
	s.cleared()
}

// A git that is killed while it makes a worktree leaves a state in which no git
// works any more: that is ours to clear away.
func TestAWorktreeThatWasOnlyBegun(t *testing.T) {
	t.Parallel()
	s := planned(t)
	before := s.user()
	whole := s.clone().placed()
	whole.checkpoint("run", "plan.toml", "--run", "one")
	tree := whole.git("rev-parse", "checkpoint/one^{tree}")
	for name, half := range map[string]func(admin string){
		"empty": func(admin string) { os.Truncate(filepath.Join(admin, "commondir"), 0) },
		"bare": func(admin string) {
			os.RemoveAll(admin)
			os.Mkdir(admin, 0o755)
			os.WriteFile(filepath.Join(admin, "locked"), []byte("initializing"), 0o644)
		},
		"locked":  func(admin string) { os.WriteFile(filepath.Join(admin, "locked"), []byte("initializing"), 0o644) },
		"no-head": func(admin string) { os.Remove(filepath.Join(admin, "HEAD")) },
	} {
		t.Run(name, func(t *testing.T) {
			at := sandbox{t, s.dir}.clone().placed()
			os.WriteFile(at.beside("pace"), []byte("20"), 0o644)
			cmd, _, _ := at.checkpointCommand("run", "plan.toml", "--run", "one")
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			at.until(func() bool { return at.lines("ran")["a"] == 1 })
			cmd.Process.Kill()
			cmd.Wait()
			os.Remove(at.beside("pace"))
			admins, _ := filepath.Glob(filepath.Join(at.dir, ".git", "worktrees", "*"))
			for _, admin := range admins {
				half(admin)
			}
			at.checkpoint("resume", "one")
			at.goesOn(before, tree)
			if left, _ := os.ReadDir(filepath.Join(at.dir, ".git", "worktrees")); len(left) > 0 {
				t.Errorf("left: %v", left)
			}
		})
	}
}

// Of two that go on with a run one works, the other is told so.
func TestTwoRunnersOfOneRun(t *testing.T) {
	t.Parallel()
	s := planned(t)
	s.checkpoint("run", "plan.toml", "--run", "one", "--no-start")
	os.WriteFile(s.beside("pace"), []byte("hold"), 0o644)
	var first sync.WaitGroup
	codes := make([]int, 2)
	first.Go(func() { _, _, codes[0] = s.try("resume", "one", "--jobs", "3") })
	s.until(func() bool { return s.lines("ran")["a"] == 1 })
	_, _, codes[1] = s.try("resume", "one", "--jobs", "3")
	os.Remove(s.beside("pace"))
	first.Wait()
	if codes[0] != 0 || codes[1] != 3 {
		t.Errorf("exit codes %v", codes)
	}
	if n := s.lines("ran")["a"]; n != 1 {
		t.Errorf("'a' ran %d times", n)
	}
	s.cleared()
}

// While a run is executed, the user saves, commits and packs in their own
// working tree: neither is in the other's way.
func TestARunBesideItsUser(t *testing.T) {
	t.Parallel()
	s := planned(t)
	os.WriteFile(s.beside("pace"), []byte("0.2"), 0o644)
	done := make(chan int)
	go func() {
		_, stderr, code := s.try("run", "plan.toml", "--run", "one", "--jobs", "2")
		if code != 0 {
			t.Errorf("exit code %d\n%s", code, stderr)
		}
		done <- code
	}()
	for n := 0; ; n++ {
		select {
		case <-done:
			if n < 3 {
				t.Errorf("only %d saves", n)
			}
			s.cleared()
			s.sound()
			return
		default:
			s.write("work", strconv.Itoa(n))
			s.checkpoint("save", "--run", "mine")
			s.git("add", "work")
			s.git("commit", "-q", "-m", strconv.Itoa(n))
			if n%3 == 1 {
				s.git("pack-refs", "--all")
			}
		}
	}
}

// Eight askers at once: no task goes to two.
func TestAskersOfNextAtOnce(t *testing.T) {
	t.Parallel()
	s := planned(t)
	var plan strings.Builder
	plan.WriteString("name = \"many\"\n")
	for i := range 9 {
		fmt.Fprintf(&plan, "[[task]]\nid = \"t%d\"\nkind = \"deterministic\"\nrun = \"false\"\n", i)
	}
	s.write("many.toml", plan.String())
	s.checkpoint("run", "many.toml", "--run", "many", "--no-start", "--max-invocations", "7")
	var wait sync.WaitGroup
	var mu sync.Mutex
	given, leases := map[string]int{}, map[string]bool{}
	for range 8 {
		wait.Go(func() {
			stdout, stderr, code := s.try("next", "many")
			if code != 0 {
				t.Errorf("exit code %d: %s", code, stderr)
			}
			mu.Lock()
			defer mu.Unlock()
			for line := range strings.Lines(stdout) {
				var l struct{ Task, Lease, State string }
				if err := json.Unmarshal([]byte(line), &l); err != nil {
					t.Error(err)
				}
				if l.Task != "" {
					given[l.Task]++
					leases[l.Lease] = true
				}
			}
		})
	}
	wait.Wait()
	if len(given) != 7 || len(leases) != 7 {
		t.Errorf("given: %v", given)
	}
	for task, n := range given {
		if n != 1 {
			t.Errorf("'%s' was given to %d", task, n)
		}
	}
	if st := s.runStatus("many"); st.Calls != 7 {
		t.Errorf("%d calls", st.Calls)
	}
}
