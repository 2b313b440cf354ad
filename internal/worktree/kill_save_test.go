//go:build unix

package worktree_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/rand"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// N.3: TestKilledSave kills what only adds to a run. Afterwards each chain is as
// it was or one longer, nothing else has changed, and the next command works
// and clears away what is left.
func TestKilledSave(t *testing.T) {
	t.Parallel()
	fresh := newRepository(t)
	fresh.other()
	s, _, _ := runs(t)
	for name, c := range map[string]struct {
		from sandbox
		args []string
		next []string // what the user does then
	}{
		"first save":  {fresh, []string{"save"}, []string{"save", "--step", "next"}},
		"new run":     {fresh, []string{"save", "--run", "new"}, []string{"save", "--run", "new", "--step", "next"}},
		"second save": {s, []string{"save", "--step", "again"}, []string{"save", "--step", "next"}},
		"start":       {s, []string{"start", "three"}, []string{"save", "--run", "three", "--step", "next"}},
		"end":         {s, []string{"end", "one", "--status", "completed"}, []string{"end", "one", "--status", "completed"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			from := sandbox{t, c.from.dir}
			done := from.clone()
			all, _ := done.steps(-1, c.args...)
			t.Logf("%d steps", len(all))
			k := killedSave{before: from.world(), tips: from.tips(), tree: done.git("rev-parse", "CHECKPOINT_HEAD^{tree}")}
			k.before["CHECKPOINT_HEAD"] = ""
			for _, n := range spread(len(all), 2) {
				t.Run(strings.ReplaceAll(all[n-1], " ", "-"), func(t *testing.T) {
					at := sandbox{t, from.dir}.clone()
					if _, dead := at.steps(n, c.args...); !dead {
						t.Fatal("it was not killed")
					}
					k.check(at, c.next)
				})
			}
			random := rand.New(rand.NewSource(int64(len(all))))
			begun := time.Now()
			from.clone().checkpoint(c.args...)
			took := time.Since(begun)
			for range rounds(1) {
				wait := time.Duration(random.Int63n(int64(took)))
				t.Run(fmt.Sprintf("after-%v", wait.Round(10*time.Microsecond)), func(t *testing.T) {
					at := sandbox{t, from.dir}.clone()
					at.killAfter(wait, c.args...)
					k.check(at, c.next)
				})
			}
		})
	}
}

// tips are the tips of all runs.
func (s sandbox) tips() map[string]string {
	tips := map[string]string{}
	for line := range strings.Lines(s.git("for-each-ref", "--format=%(objectname) %(refname:lstrip=3)", "refs/checkpoints/runs/")) {
		id, run, _ := strings.Cut(strings.TrimSpace(line), " ")
		tips[run] = id
	}
	return tips
}

type killedSave struct {
	before world
	tips   map[string]string
	tree   string // of the checkpoint that was to be made
}

func (k *killedSave) check(s sandbox, next []string) {
	s.Helper()
	s.fsck()
	s.status()
	k.untouched(s)
	k.grown(s, 1)

	s.checkpoint(next...)
	k.untouched(s)
	k.grown(s, 2)
	s.sound()
	for run, tip := range s.tips() {
		// Plain git finds the note on every checkpoint.
		for id := range strings.Lines(s.git("log", "--first-parent", "--format=%H", "--grep=^Checkpoint-Run: "+run+"$", tip)) {
			note := s.git("notes", "--ref=checkpoints/"+run, "show", strings.TrimSpace(id))
			for line := range strings.Lines(note) {
				if !json.Valid([]byte(line)) {
					s.Errorf("the note on %s has the line %q", id, line)
				}
			}
		}
	}
	if next[0] == "save" {
		run := "CHECKPOINT_HEAD"
		if next[1] == "--run" {
			run = "refs/checkpoints/runs/" + next[2]
		}
		if tree := s.git("rev-parse", run+"^{tree}"); tree != k.tree {
			s.Errorf("the next save has the tree %s, not %s", tree, k.tree)
		}
	}
}

// untouched checks that nothing of the user's has changed.
func (k *killedSave) untouched(s sandbox) {
	s.Helper()
	now := s.world()
	now["CHECKPOINT_HEAD"] = ""
	if d := differences(now, k.before); d != "" {
		s.Errorf("a save changed what is the user's:\n%s", d)
	}
}

// grown checks that the chains hold what they held, and at most so many
// checkpoints more.
func (k *killedSave) grown(s sandbox, most int) {
	s.Helper()
	now := s.tips()
	for run, tip := range k.tips {
		more := strings.Count(s.git("rev-list", "--first-parent", now[run], "^"+tip), "\n")
		if s.git("merge-base", tip, now[run]) != tip+"\n" || more > most {
			s.Errorf("run '%s' went from %s to %s", run, tip, now[run])
		}
	}
	if len(now) > len(k.tips)+most {
		s.Errorf("there are runs that nobody made: %v", now)
	}
}

// TestHalfAppliedTransaction makes by hand what a loss of power in the middle
// of git's renames leaves: some refs of a transaction moved, others not.
func TestHalfAppliedTransaction(t *testing.T) {
	t.Parallel()
	const run, notes = "refs/checkpoints/runs/new", "refs/notes/checkpoints/new"
	// begun is the repository after all of a first save but its last ref.
	begun := func(t *testing.T) (s sandbox, noted string) {
		s = newRepository(t)
		s.other()
		s.checkpoint("save", "--run", "new", "--step", "first")
		noted = strings.TrimSpace(s.git("rev-parse", notes))
		s.git("update-ref", "-d", run)
		s.git("symbolic-ref", "--delete", "CHECKPOINT_HEAD")
		return s, noted
	}
	t.Run("a dead writer's notes of a run that it did not make are removed", func(t *testing.T) {
		s, noted := begun(t)
		s.pending(map[string]string{notes: noted, run: "1234567890123456789012345678901234567890"})
		s.checkpoint("save", "--run", "other")
		s.sound()
		if left := s.ask("for-each-ref", notes); left != "" {
			t.Errorf("debris is left: %s", left)
		}
	})
	t.Run("notes that another command has used since stay", func(t *testing.T) {
		s, noted := begun(t)
		s.checkpoint("save", "--run", "new", "--step", "second")
		s.pending(map[string]string{notes: noted, run: "1234567890123456789012345678901234567890"})
		s.checkpoint("save", "--run", "new", "--step", "third")
		s.sound()
		if log := s.checkpoint("log", "new"); !strings.Contains(log, "second") || !strings.Contains(log, "third") {
			t.Errorf("the log lacks a step:\n%s", log)
		}
	})
	t.Run("notes without a run are taken over by a run of that name", func(t *testing.T) {
		s, _ := begun(t)
		s.checkpoint("save", "--run", "new", "--step", "second")
		s.sound()
	})
	t.Run("a note on a checkpoint that is in no chain does no harm", func(t *testing.T) {
		s := newRepository(t)
		s.checkpoint("save", "--run", "new", "--step", "first")
		first := s.tips()["new"]
		s.other()
		s.checkpoint("save", "--step", "lost")
		s.git("update-ref", run, first)
		s.checkpoint("save", "--step", "second")
		s.sound()
		if got := strings.TrimSpace(s.git("rev-parse", run+"^1")); got != first {
			t.Errorf("the chain goes on from %s, not from %s", got, first)
		}
		if log := s.checkpoint("log"); strings.Contains(log, "lost") || !strings.Contains(log, "second") {
			t.Errorf("the log is not that of the chain:\n%s", log)
		}
	})
	t.Run("an operation that is on the undo stack is done", func(t *testing.T) {
		s, _, _ := runs(t)
		before := s.world()
		s.checkpoint("restore", "one@rich")
		after, want := s.world(), s.status()
		undo := strings.Fields(s.git("for-each-ref", "--format=%(objectname) %(refname)", "refs/checkpoints/local/*/undo/*"))
		s.git("update-ref", strings.Replace(undo[1], "undo/000001", "restoring", 1), undo[0])
		if st := s.status(); st.InProgress != nil {
			t.Errorf("status says that a %s is in progress", st.InProgress.Operation)
		}
		s.checkpoint("save")
		equal(s, after, "what was restored")
		if st := s.status(); st.Undo != want.Undo {
			t.Errorf("%d to undo, want %d", st.Undo, want.Undo)
		}
		s.sound()
		s.checkpoint("undo")
		equal(s, before, "the state before")
		s.sound()
	})
	t.Run("locks of a dead writer are removed and nobody else's", func(t *testing.T) {
		s := newRepository(t)
		s.checkpoint("save", "--run", "new", "--step", "first")
		s.pending(map[string]string{
			run: "1234567890123456789012345678901234567890", "CHECKPOINT_HEAD": run, "refs/heads/main": "1234567890123456789012345678901234567890",
			"refs/checkpoints/local/0123456789abcdef/undo/000001": "", "../outside": "",
		})
		for _, lock := range []string{run, "CHECKPOINT_HEAD", "HEAD", "refs/heads/main", "packed-refs", "../outside"} {
			s.write(".git/"+lock+".lock", "")
		}
		s.write(".git/packed-refs.new", "")
		s.write(".git/refs/heads/side.lock", "")
		s.checkpoint("save", "--step", "second")
		s.git("pack-refs", "--all", "--no-prune")
		for _, lock := range []string{".git/refs/heads/side.lock", "outside.lock"} {
			if _, err := os.Stat(filepath.Join(s.dir, lock)); err != nil {
				t.Errorf("somebody's lock was removed: %v", err)
			}
			s.remove(lock)
		}
		s.sound()
	})
}

// pending writes down a change of refs as a writer does before it starts; the
// writer is dead.
func (s sandbox) pending(updates map[string]string) {
	s.Helper()
	type update struct {
		Ref string `json:"ref"`
		New string `json:"new,omitempty"`
	}
	var list []update
	for ref, id := range maps.All(updates) {
		list = append(list, update{ref, id})
	}
	data, err := json.Marshal(map[string]any{"pid": 1, "at": time.Now().UTC(), "updates": list})
	if err != nil {
		s.Fatal(err)
	}
	s.write(".git/checkpoint/transaction", string(data))
}
