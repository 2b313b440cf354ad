//go:build unix

package worktree_test

import (
	"flag"
	"fmt"
	"math/rand"
	"os"
	"strings"
	"testing"
	"time"
)

// killAll is for a run by hand or before a release: minutes instead of seconds.
var killAll = flag.Bool("kill.all", os.Getenv("GIT_CHECKPOINT_TEST_KILL") == "all",
	"kill at every durable step instead of a spread of them (GIT_CHECKPOINT_TEST_KILL=all does the same)")

// spread picks steps to be killed at.
func spread(total, count int) []int {
	if *killAll || total <= count {
		count = total
	}
	var list []int
	for i := range count {
		list = append(list, 1+(2*i+1)*total/(2*count))
	}
	return list
}

// rounds is how often an operation is killed at a random moment.
func rounds(few int) int {
	if *killAll {
		return 12
	}
	return few
}

// killCase is an operation that may be killed at any moment.
type killCase struct {
	args  []string
	from  sandbox
	start world  // what undo of the killed operation goes back to; nil: from's own
	goOn  world  // what restore --continue goes on to before a roll-back has begun; nil: the state after
	undo  string // what undo does to the killed operation: "rolls back" or "finishes"
}

// N.3: TestKilledRestore kills whatever changes the working tree at its durable
// steps. Afterwards, restore --continue brings one state, undo the other, and
// nothing of the killed process is in anybody's way.
func TestKilledRestore(t *testing.T) {
	t.Parallel()
	s, rich, merge := runs(t)
	before := s.world()
	for _, ignored := range []string{"file notes.log", "file build/out.o"} {
		merge[ignored] = before[ignored] // not in the checkpoint, so it stays
	}
	rich["file build/out.o"] = before["file build/out.o"]

	merged := s.clone()
	merged.checkpoint("restore", "one@merge")
	same(merged, merge, "the merge that was saved")
	restored := s.clone()
	restored.checkpoint("restore", "one@rich")
	same(restored, rich, "what was saved")
	undone := restored.clone()
	undone.checkpoint("undo")
	equal(undone, before, "the state before")
	partial := s.clone()
	partial.checkpoint("restore", "one@rich", "--", "nested")
	want := s.world()
	want["file nested/deep/er/c.txt"] = rich["file nested/deep/er/c.txt"]
	same(partial, want, "the state before but for one directory")
	switched := s.clone()
	switched.checkpoint("switch", "two")
	rewound := s.clone()
	rewound.checkpoint("rewind", "one", "--to", "rich", "--run", "three")
	reset := s.clone()
	reset.checkpoint("restore", "--reset", "one@rich")
	// Without attributes files are written by ourselves.
	plain := plainRuns(t)
	plainUndone := plain.clone()
	plainUndone.checkpoint("restore", "one@rich")
	half := halfway(s, "restore", "one@rich")
	halfSwitched := halfway(s, "switch", "two")
	halfReset := late(s, "restore", "--reset", "one@rich")
	halfUndone := halfway(switched, "undo")

	for name, c := range map[string]killCase{
		"restore":                {from: s, args: []string{"restore", "one@rich"}},
		"restore without git":    {from: plain, args: []string{"restore", "one@rich"}},
		"undo without git":       {from: plainUndone, args: []string{"undo"}, undo: "finishes"},
		"restore of a merge":     {from: s, args: []string{"restore", "one@merge"}},
		"restore out of a merge": {from: merged, args: []string{"restore", "one@rich"}},
		"restore that resets":    {from: s, args: []string{"restore", "--reset", "one@rich"}},
		"restore of some paths":  {from: s, args: []string{"restore", "one@rich", "--", "nested", "swap-dir", "link"}},
		"switch":                 {from: s, args: []string{"switch", "two"}},
		"undo":                   {from: restored, args: []string{"undo"}, undo: "finishes"},
		"rewind":                 {from: s, args: []string{"rewind", "one", "--to", "rich", "--run", "three"}},
		"undo of a rewind":       {from: rewound, args: []string{"undo"}, undo: "finishes"},
		"undo of a switch":       {from: switched, args: []string{"undo"}, undo: "finishes"},
		"redo":                   {from: undone, args: []string{"redo"}},
		"continued restore":      {from: half, args: []string{"restore", "--continue"}, start: before},
		"continued switch":       {from: halfSwitched, args: []string{"restore", "--continue"}, start: before},
		"continued reset":        {from: halfReset, args: []string{"restore", "--continue"}, start: before},
		"continued undo":         {from: halfUndone, args: []string{"restore", "--continue"}, undo: "finishes"},
		"rolled back restore":    {from: half, args: []string{"undo"}, undo: "finishes", goOn: restored.world()},
		"rolled back switch":     {from: halfSwitched, args: []string{"undo"}, undo: "finishes", goOn: switched.world()},
		"rolled back reset":      {from: halfReset, args: []string{"undo"}, undo: "finishes", goOn: reset.world()},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c.from.T = t
			c.run()
		})
	}
}

// same fails unless files, index and operation state are those of a world.
// Line endings are as git would check them out, and branches stay.
func same(s sandbox, want world, what string) {
	s.Helper()
	trim := func(w world) world {
		kept := world{}
		for key, value := range w {
			if !strings.Contains(key, "line.crlf") && !strings.HasPrefix(key, "ref ") && !strings.HasPrefix(key, "status ") &&
				!strings.HasSuffix(key, "HEAD") {
				kept[key] = value
			}
		}
		return kept
	}
	if d := differences(trim(s.world()), trim(want)); d != "" {
		s.Fatalf("this is not %s:\n%s", what, d)
	}
}

func equal(s sandbox, want world, what string) {
	s.Helper()
	if d := differences(s.world(), want); d != "" {
		s.Errorf("this is not %s:\n%s", what, d)
	}
}

// halfway returns the repository with an operation killed in its middle.
func halfway(s sandbox, args ...string) sandbox {
	s.Helper()
	all, _ := s.clone().steps(-1, args...)
	first, last := 0, 0
	for i, step := range all {
		if strings.Contains(step, "file deleted") || strings.Contains(step, "file written") {
			if last = i; first == 0 {
				first = i
			}
		}
	}
	half := s.clone()
	half.steps((first+last)/2, args...)
	if half.status().InProgress == nil {
		s.Fatalf("git checkpoint %s is not in progress", strings.Join(args, " "))
	}
	return half
}

// late returns the repository with an operation killed when all but the
// record of it was done.
func late(s sandbox, args ...string) sandbox {
	s.Helper()
	all, _ := s.clone().steps(-1, args...)
	for n := len(all); n > 0; n-- {
		half := s.clone()
		half.steps(n, args...)
		if half.status().InProgress != nil {
			return half
		}
	}
	s.Fatalf("git checkpoint %s is never in progress", strings.Join(args, " "))
	return sandbox{}
}

func (c killCase) run() {
	t := c.from
	done := t.clone()
	all, _ := done.steps(-1, c.args...)
	few := 1
	if c.start != nil || c.goOn != nil {
		few = 0 // most of what it does other cases do too
	}
	k := &killed{killCase: c, beforeStatus: t.status(), afterStatus: done.status(), before: t.world(), after: done.world()}
	if k.start == nil {
		k.start = k.before
	}
	done.sound()
	t.Logf("%d steps", len(all))
	for _, n := range spread(len(all), 1+few) {
		t.Run(strings.ReplaceAll(all[n-1], " ", "-"), func(t *testing.T) {
			at := sandbox{t, c.from.dir}.clone()
			if _, dead := at.steps(n, c.args...); !dead {
				t.Fatal("it was not killed")
			}
			k.check(at)
		})
	}
	random := rand.New(rand.NewSource(int64(len(all))))
	begun := time.Now()
	t.clone().checkpoint(c.args...)
	took := time.Since(begun)
	for range rounds(few) {
		wait := time.Duration(random.Int63n(int64(took)))
		t.Run(fmt.Sprintf("after-%v", wait.Round(10*time.Microsecond)), func(t *testing.T) {
			at := sandbox{t, c.from.dir}.clone()
			at.killAfter(wait, c.args...)
			k.check(at)
		})
	}
}

// killed is what is known about an operation that was killed.
type killed struct {
	killCase
	before, after             world
	beforeStatus, afterStatus status
}

// check looks at what a killed operation left, and ends it both ways.
func (k *killed) check(a sandbox) {
	a.Helper()
	a.fsck()
	st := a.status()
	if k.beforeStatus.InProgress != nil && st.InProgress == nil {
		// It had come to its end, or somebody else's end was written down.
		equal(a, k.after, "the state after")
	}
	b := a.clone()
	if st.InProgress != nil {
		a.checkpoint("restore", "--continue")
		if k.goOn != nil && st.InProgress.Operation != "rollback" {
			equal(a, k.goOn, "what the operation was to bring, by restore --continue")
		} else {
			equal(a, k.after, "the state after, by restore --continue")
			k.stacks(a, k.afterStatus)
		}
		a.sound()

		b.checkpoint("undo")
		if k.undo == "finishes" {
			equal(b, k.after, "the state after, by undo")
			k.stacks(b, k.afterStatus)
		} else {
			equal(b, k.start, "the state before, by undo")
		}
		b.sound()
		return
	}
	now := a.world()
	isBefore, isAfter := differences(now, k.before) == "", differences(now, k.after) == ""
	if !isBefore && !isAfter {
		a.Fatalf("nothing is in progress, and this is neither the state before:\n%sthe state after:\n%s",
			differences(now, k.before), differences(now, k.after))
	}
	a.checkpoint("save")
	equal(a, now, "what was there before the save")
	a.sound()
	switch {
	case !isAfter:
		k.stacks(b, k.beforeStatus)
		b.checkpoint(k.args...)
		equal(b, k.after, "the state after, by doing it again")
		k.stacks(b, k.afterStatus)
		b.sound()
	case k.undo == "":
		k.stacks(b, k.afterStatus)
		b.checkpoint("undo")
		equal(b, k.start, "the state before, by undo")
		b.sound()
	}
}

// stacks checks that undo and redo go as far as they should.
func (k *killed) stacks(s sandbox, want status) {
	s.Helper()
	st := s.status()
	if st.InProgress != nil || st.Undo != want.Undo || st.Redo != want.Redo {
		s.Errorf("in progress: %v, %d to undo, %d to redo; want %d and %d", st.InProgress, st.Undo, st.Redo, want.Undo, want.Redo)
	}
}
