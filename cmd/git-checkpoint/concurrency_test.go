package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/git-checkpoint/git-checkpoint/internal/scripttest"
)

// The tests here run the command as real processes, as agents and hooks do,
// and judge with git alone.

// place is a repository or one of its worktrees.
type place struct {
	t   *testing.T
	dir string
	env []string
}

func newRepository(t *testing.T) *place {
	t.Helper()
	root := t.TempDir()
	config := filepath.Join(root, "config")
	if err := os.WriteFile(config, []byte(scripttest.UserConfig), 0o666); err != nil {
		t.Fatal(err)
	}
	p := &place{t: t, dir: filepath.Join(root, "main")}
	p.env = append(os.Environ(), "GIT_CONFIG_NOSYSTEM=1", "GIT_CONFIG_GLOBAL="+config, "HOME="+root, "LC_ALL=C")
	if err := os.Mkdir(p.dir, 0o777); err != nil {
		t.Fatal(err)
	}
	p.git("init", "-q")
	p.write("file", "first")
	p.git("add", ".")
	p.git("commit", "-q", "-m", "first")
	return p
}

// linked makes a linked worktree.
func (p *place) linked(name string) *place {
	dir := filepath.Join(filepath.Dir(p.dir), name)
	p.git("worktree", "add", "-q", dir)
	return &place{p.t, dir, p.env}
}

func (p *place) write(name, content string) {
	if err := os.WriteFile(filepath.Join(p.dir, name), []byte(content), 0o666); err != nil {
		p.t.Error(err)
	}
}

// run runs git and returns what it printed, also that of a failure.
func (p *place) run(args ...string) (string, error) {
	cmd := exec.Command("git", args...)
	cmd.Dir, cmd.Env = p.dir, p.env
	var out, stderr strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &stderr
	if err := cmd.Run(); err != nil {
		return out.String(), fmt.Errorf("git %s: %w\n%s", strings.Join(args, " "), err, stderr.String())
	}
	return strings.TrimSpace(out.String()), nil
}

// git runs git, which must not fail.
func (p *place) git(args ...string) string {
	p.t.Helper()
	out, err := p.run(args...)
	if err != nil {
		p.t.Error(err)
	}
	return out
}

// save saves a step, which must be acknowledged.
func (p *place) save(run, step string) {
	p.t.Helper()
	p.git("checkpoint", "save", "--run", run, "--step", step)
}

// sound judges the repository: git finds no fault, and neither does verify.
func (p *place) sound() {
	p.t.Helper()
	p.git("fsck", "--strict", "--no-dangling")
	if out, err := p.run("checkpoint", "verify"); err != nil {
		p.t.Errorf("%s\n%v", out, err)
	}
}

// holds checks that a run's chain has exactly the given steps, in whatever
// order, and that each has a record that names it.
func (p *place) holds(run string, steps []string) {
	p.t.Helper()
	out := p.git("log", "--first-parent", "--format=%H %(trailers:key=Checkpoint-Step,valueonly,separator=)", "refs/checkpoints/runs/"+run)
	var found []string
	for _, line := range strings.Split(out, "\n") {
		id, step, _ := strings.Cut(line, " ")
		if step = strings.TrimSpace(step); step == "" {
			continue
		}
		found = append(found, step)
		if note := p.git("notes", "--ref=checkpoints/"+run, "show", id); !strings.Contains(note, `"step_name":"`+step+`"`) {
			p.t.Errorf("run %s: the note on step %s is %q", run, step, note)
		}
	}
	slices.Sort(found)
	slices.Sort(steps)
	if !slices.Equal(found, steps) {
		p.t.Errorf("run %s has the steps %v, want %v", run, found, steps)
	}
}

const (
	agents = 8
	rounds = 4
)

// N.10: eight agents at once, each in its own worktree with its own run.
func TestEightWorktreesSaveAtOnceAndLoseNothing(t *testing.T) {
	t.Parallel()
	main := newRepository(t)
	var work sync.WaitGroup
	steps := make([][]string, agents)
	for i := range agents {
		w := main.linked(fmt.Sprintf("agent-%d", i))
		work.Go(func() {
			for round := range rounds {
				step := fmt.Sprintf("%d-%d", i, round)
				w.write("file", step)
				w.save(fmt.Sprintf("run-%d", i), step)
				steps[i] = append(steps[i], step)
			}
		})
	}
	work.Wait()
	for i := range agents {
		run := fmt.Sprintf("run-%d", i)
		main.holds(run, steps[i])
		if got := main.git("cat-file", "blob", "refs/checkpoints/runs/"+run+":file"); got != fmt.Sprintf("%d-%d", i, rounds-1) {
			t.Errorf("run %s ends with the file %q", run, got)
		}
	}
	main.sound()
}

// N.10: eight processes at once in one worktree and one run.
func TestEightProcessesSaveToOneRunAndLoseNothing(t *testing.T) {
	t.Parallel()
	main := newRepository(t)
	var work sync.WaitGroup
	steps := make([][]string, agents)
	for i := range agents {
		work.Go(func() {
			for round := range rounds {
				step := fmt.Sprintf("%d-%d", i, round)
				main.write(fmt.Sprintf("file-%d", i), step)
				main.save("run", step)
				steps[i] = append(steps[i], step)
			}
		})
	}
	work.Wait()
	main.holds("run", slices.Concat(steps...))
	main.sound()
}

// Processes that start one run at the same time, from several worktrees: one
// makes it, the others are told, and none is lost silently.
func TestOneRunIsMadeOnceByManyWorktrees(t *testing.T) {
	t.Parallel()
	main := newRepository(t)
	var work sync.WaitGroup
	made := make([]bool, agents)
	for i := range agents {
		w := main.linked(fmt.Sprintf("agent-%d", i))
		work.Go(func() {
			w.write("file", fmt.Sprint(i))
			_, err := w.run("checkpoint", "save", "--run", "same", "--step", fmt.Sprint(i))
			made[i] = err == nil
			if err != nil && !strings.Contains(err.Error(), "exit status 3") {
				t.Error(err)
			}
		})
	}
	work.Wait()
	var steps []string
	for i := range made {
		if made[i] {
			steps = append(steps, fmt.Sprint(i))
		}
	}
	if len(steps) != 1 {
		t.Errorf("%d worktrees made the run, want 1", len(steps))
	}
	main.holds("same", steps)
	main.sound()
}

// beside runs other git commands over and over until the test is done with
// its own. They may fail where one git is in another's way; that is git's affair.
func (p *place) beside(ctx context.Context, work *sync.WaitGroup, commands ...[]string) {
	for _, args := range commands {
		work.Go(func() {
			for ctx.Err() == nil {
				p.run(args...)
			}
		})
	}
}

// Saving, reading and restoring while git repacks and packs refs as fast as it
// can. Pruning is git's default here: with --prune=now git itself says that
// nothing else may write at the time (git-gc(1)).
func TestSavesAndRestoresBesideGC(t *testing.T) {
	t.Parallel()
	main := newRepository(t)
	main.save("run", "first")
	ctx, stop := context.WithTimeout(context.Background(), 3*time.Second)
	defer stop()
	var work sync.WaitGroup
	main.beside(ctx, &work, []string{"gc", "-q"}, []string{"repack", "-a", "-d", "-q"}, []string{"pack-refs", "--all", "--prune"})
	steps := []string{"first"}
	for i := 0; ctx.Err() == nil; i++ {
		step := fmt.Sprint(i)
		main.write("file", step)
		main.save("run", step)
		steps = append(steps, step)
		if i%4 == 3 {
			main.git("checkpoint", "restore", "run@{2}")
			main.git("checkpoint", "undo")
			main.git("checkpoint", "log", "run")
		}
	}
	work.Wait()
	main.holds("run", steps)
	main.sound()
}

// Reading while git repacks everything and prunes at once.
func TestReadsBesidePruning(t *testing.T) {
	t.Parallel()
	main := newRepository(t)
	for i := range 4 {
		main.write("file", fmt.Sprint(i))
		main.save("run", fmt.Sprint(i))
	}
	want := main.git("checkpoint", "log", "run")
	ctx, stop := context.WithTimeout(context.Background(), 2*time.Second)
	defer stop()
	var work sync.WaitGroup
	main.beside(ctx, &work, []string{"gc", "-q", "--prune=now"}, []string{"repack", "-a", "-d", "-f", "-q"})
	for ctx.Err() == nil {
		if got := main.git("checkpoint", "log", "run"); got != want {
			t.Errorf("log prints %q, want %q", got, want)
		}
		main.git("checkpoint", "list")
		main.git("checkpoint", "show", "-p", "run@2")
		main.git("checkpoint", "diff", "run@1", "run@2")
	}
	work.Wait()
	main.sound()
}
