package rerun_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/git-checkpoint/git-checkpoint/internal/fault"
	"github.com/git-checkpoint/git-checkpoint/notes"
	"github.com/git-checkpoint/git-checkpoint/refs"
	"github.com/git-checkpoint/git-checkpoint/rerun"
)

var person = refs.Identity{Name: "A Person", Email: "person@example.org", When: time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)}

// place is a repository in which plans are executed by the library.
type place struct {
	*testing.T
	dir string
}

func newPlace(t *testing.T) place {
	if _, err := exec.LookPath("sh"); err != nil {
		t.Skip("no sh")
	}
	p := place{t, t.TempDir()}
	p.git("init", "-q", "--initial-branch=main", "repo")
	p.git("-C", "repo", "-c", "user.name=A", "-c", "user.email=a@example.org", "commit", "-q", "--allow-empty", "-m", "base")
	return p
}

func (p place) git(args ...string) string {
	p.Helper()
	cmd := exec.Command("git", args...)
	cmd.Dir = p.dir
	out, err := cmd.Output()
	if err != nil {
		p.Fatalf("git %s: %v", strings.Join(args, " "), err)
	}
	return strings.TrimSpace(string(out))
}

// open opens the repository once more, as another process would.
func (p place) open() *refs.Repository {
	p.Helper()
	repo, err := refs.Open(context.Background(), filepath.Join(p.dir, "repo"))
	if err != nil {
		p.Fatal(err)
	}
	p.Cleanup(func() { repo.Close() })
	return repo
}

func (p place) options(run string, notify func(string)) rerun.Options {
	return rerun.Options{
		Run: run, Jobs: 4, Dir: filepath.Join(p.dir, "trees"), Notify: func(n rerun.Notice) {
			if notify != nil {
				notify(n.Task + ": " + n.Text)
			}
		},
		Identity: func() (refs.Identity, error) { return person, nil },
	}
}

func (p place) begin(plan string, budget rerun.Budget) (run string) {
	p.Helper()
	run, err := rerun.Begin(p.Context(), p.open(), rerun.NewPlanned{
		Plan: []byte(plan), Run: "r", Budget: budget, BranchPrefix: "checkpoint/", By: person,
	})
	if err != nil {
		p.Fatal(err)
	}
	return run
}

func (p place) status(run string) string {
	p.Helper()
	l, err := rerun.Load(p.Context(), p.open(), run, false)
	if err != nil {
		p.Fatal(err)
	}
	var list []string
	for _, t := range l.Progress.Tasks {
		list = append(list, t.Task+":"+t.State)
	}
	return l.Progress.Status + " " + strings.Join(list, " ")
}

// beside is what is left in the worktrees' directory.
func (p place) beside() []string {
	left, _ := filepath.Glob(filepath.Join(p.dir, "trees", "*", "*", "*"))
	return left
}

func tasks(n int, more string) string {
	var b strings.Builder
	b.WriteString("name = \"x\"\n")
	for i := range n {
		fmt.Fprintf(&b, "[[task]]\nid = \"t%d\"\nkind = \"deterministic\"\nrun = \"echo %d >f%d\"\ncheck = \"test -f f%d\"\n%s\n", i, i, i, i, more)
	}
	return b.String()
}

// For the race detector: tasks at once, a status beside them, and what they say.
func TestTasksAtOnce(t *testing.T) {
	p := newPlace(t)
	run := p.begin(tasks(8, ""), rerun.Budget{})
	said := map[string]int{} // not locked: it is told one thing at a time
	done := make(chan struct{})
	go func() {
		defer close(done)
		for range 5 {
			p.status(run)
		}
	}()
	result, err := rerun.Execute(t.Context(), p.open(), p.options(run, func(text string) { said[text]++ }))
	<-done
	if err != nil || result.Status != notes.Completed {
		t.Fatalf("%+v, %v", result, err)
	}
	if n := p.git("-C", "repo", "rev-list", "--count", "main..checkpoint/r"); n != "8" {
		t.Errorf("%s commits", n)
	}
	if said["t7: attempt 1"] != 1 || len(p.beside()) > 0 {
		t.Errorf("said %v, left %v", said, p.beside())
	}
}

// A caller that gives up has the commands ended, and what they did kept.
func TestACallerThatGivesUp(t *testing.T) {
	p := newPlace(t)
	run := p.begin("name = \"x\"\n[[task]]\nid = \"t\"\nkind = \"deterministic\"\nrun = \"test -f ../../../../../go && exit; echo x >half; touch ../../../../../begun; sleep 60\"\n", rerun.Budget{})
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		for range 1000 {
			if _, err := os.Stat(filepath.Join(p.dir, "begun")); err == nil {
				break
			}
			time.Sleep(10 * time.Millisecond)
		}
		cancel()
	}()
	if _, err := rerun.Execute(ctx, p.open(), p.options(run, nil)); err == nil || !strings.Contains(err.Error(), "interrupted") {
		t.Fatal(err)
	}
	if half := p.git("-C", "repo", "show", "refs/checkpoints/local/tasks/r/t.1:half"); half != "x" || len(p.beside()) > 0 {
		t.Errorf("kept %q, left %v", half, p.beside())
	}
	os.WriteFile(filepath.Join(p.dir, "go"), nil, 0o644)
	result, err := rerun.Execute(t.Context(), p.open(), p.options(run, nil))
	if err != nil || result.Status != notes.Completed || result.Tasks[0].Attempts != 2 {
		t.Errorf("%+v, %v", result, err)
	}
}

// A task that ends the run badly lets the others come to their end first.
func TestAnErrorInOneTaskDoesNotLoseTheOthers(t *testing.T) {
	p := newPlace(t)
	gone := "git -C ../../../../../repo update-ref -d refs/heads/checkpoint/r"
	run := p.begin(fmt.Sprintf(`name = "x"
[[task]]
id = "bad"
kind = "deterministic"
run = "until test -f ../../../../../begun; do sleep 0.01; done; %s; touch ../../../../../gone"
[[task]]
id = "slow"
kind = "deterministic"
run = "echo x >half; touch ../../../../../begun; until test -f ../../../../../gone; do sleep 0.01; done; sleep 0.2"
`, gone), rerun.Budget{})
	head := p.git("-C", "repo", "rev-parse", "checkpoint/r")
	_, err := rerun.Execute(t.Context(), p.open(), p.options(run, nil))
	if !errors.Is(err, fault.Conflict) {
		t.Fatalf("got %v", err)
	}
	p.git("-C", "repo", "branch", "checkpoint/r", head)
	os.Remove(filepath.Join(p.dir, "gone"))
	if got := p.status(run); got != "running bad:ready slow:ready" {
		t.Errorf("got %s", got)
	}
}

func TestAskersInOneProcess(t *testing.T) {
	p := newPlace(t)
	run := p.begin(tasks(6, ""), rerun.Budget{MaxInvocations: 100})
	var wait sync.WaitGroup
	var mu sync.Mutex
	given := map[string]int{}
	for range 8 {
		repo := p.open()
		wait.Go(func() {
			h, err := rerun.Next(t.Context(), repo, p.options(run, nil), time.Hour)
			if err != nil {
				t.Error(err)
				return
			}
			mu.Lock()
			defer mu.Unlock()
			for _, l := range h.Tasks {
				given[l.Task]++
			}
		})
	}
	wait.Wait()
	if len(given) != 6 {
		t.Errorf("given: %v", given)
	}
	for task, n := range given {
		if n != 1 {
			t.Errorf("'%s' was given to %d", task, n)
		}
	}
}

// The minutes end what is at work; nothing of it is lost.
func TestMinutesThatAreSpentEndWhatIsAtWork(t *testing.T) {
	p := newPlace(t)
	run := p.begin("name = \"x\"\n[[task]]\nid = \"t\"\nkind = \"deterministic\"\nrun = \"echo x >half; sleep 60\"\n", rerun.Budget{MaxMinutes: 1})
	// All but half a second were spent by an earlier runner.
	repo := p.open()
	l, err := rerun.Load(t.Context(), repo, run, false)
	if err != nil {
		t.Fatal(err)
	}
	book, err := notes.OpenBook(t.Context(), repo, run)
	if err == nil {
		err = book.Add(t.Context(), l.Start.ID, person.When, rerun.EventCheck, rerun.Evidence{Elapsed: 59.0 / 60})
	}
	tx := repo.Begin("test")
	if err == nil {
		err = book.Commit(t.Context(), tx, "test", person)
	}
	if err == nil {
		err = tx.Commit(t.Context())
	}
	if err != nil {
		t.Fatal(err)
	}
	result, err := rerun.Execute(t.Context(), p.open(), p.options(run, nil))
	if err != nil || result.Status != notes.Stopped || !strings.Contains(result.Reason, "the budget is spent: 1 call, 1.0 minutes") {
		t.Fatalf("%+v, %v", result, err)
	}
	if half := p.git("-C", "repo", "show", "refs/checkpoints/local/tasks/r/t.1:half"); half != "x" || len(p.beside()) > 0 {
		t.Errorf("kept %q, left %v", half, p.beside())
	}
}

// A large untracked file is left out, told, and stays where it is.
func TestWhatIsLeftOutStays(t *testing.T) {
	p := newPlace(t)
	run := p.begin("name = \"x\"\n[[task]]\nid = \"t\"\nkind = \"deterministic\"\nrun = \"echo small >small; head -c 5000 /dev/zero >large\"\ncheck = \"test -f small\"\n", rerun.Budget{})
	var said []string
	o := p.options(run, func(text string) { said = append(said, text) })
	o.MaxFileSize = 1000
	result, err := rerun.Execute(t.Context(), p.open(), o)
	if err != nil || result.Status != notes.Completed {
		t.Fatalf("%+v, %v", result, err)
	}
	if files := p.git("-C", "repo", "ls-tree", "--name-only", "checkpoint/r"); files != "small" {
		t.Errorf("files: %s", files)
	}
	if !strings.Contains(strings.Join(said, "\n"), "'large' is left out: ") {
		t.Errorf("said %q", said)
	}
	large, _ := filepath.Glob(filepath.Join(p.dir, "trees", "*", "r", "t.1", "tree-*", "large"))
	if len(large) != 1 {
		t.Error("the large file is gone")
	}
}
