package main

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/git-checkpoint/git-checkpoint/internal/output"
	"github.com/git-checkpoint/git-checkpoint/internal/snapshot"
	"github.com/git-checkpoint/git-checkpoint/internal/worktree"
	"github.com/git-checkpoint/git-checkpoint/refs"
)

const (
	idA = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
	idB = "bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb"
)

// printed is what a call prints for people, and for programs.
func printed(json bool, print func(*call)) (stdout, stderr string) {
	var out, errs bytes.Buffer
	c := &call{Printer: output.New(&out, &errs)}
	if json {
		c.ForPrograms()
	}
	print(c)
	c.Flush()
	return out.String(), errs.String()
}

func compare(t *testing.T, what, got, want string) {
	t.Helper()
	if got != want {
		t.Errorf("%s:\n got %q\nwant %q", what, got, want)
	}
}

func TestSavedIsPrinted(t *testing.T) {
	for _, c := range []struct {
		name        string
		result      worktree.SaveResult
		out, errors string
	}{
		{"saved", worktree.SaveResult{Saved: true, Run: "r", Checkpoint: idA, Number: 3},
			"saved checkpoint 3 of run 'r' (aaaaaaaaaa)\n", ""},
		{"nothing changed", worktree.SaveResult{Run: "r", Checkpoint: idA},
			"nothing changed since checkpoint aaaaaaaaaa of run 'r'\n", ""},
		{"nothing to save", worktree.SaveResult{}, "nothing to save: nothing differs from HEAD\n", ""},
		{"left out", worktree.SaveResult{Saved: true, Run: "r", Checkpoint: idA, Number: 1,
			Skipped: []snapshot.Skip{{Path: "big\nbin", Reason: snapshot.ReasonTooLarge}}, Unprotected: []string{"sub"}},
			"saved checkpoint 1 of run 'r' (aaaaaaaaaa)\n",
			`warning: skipped "big\nbin": too large` + "\n" +
				"hint: git config checkpoint.snapshot.maxFileSize changes the limit, 0 lifts it\n" +
				"warning: 'sub' is a repository of its own: only its commit is saved, not its files\n"},
		{"forked", worktree.SaveResult{Saved: true, Run: "r.1", Checkpoint: idA, Number: 1, Lineage: &refs.Lineage{Kind: refs.ForkedFrom, Run: "r"}},
			"saved checkpoint 1 of run 'r.1' (aaaaaaaaaa)\n",
			"warning: run 'r' belongs to another worktree: this is a fork of it, run 'r.1'\n"},
	} {
		t.Run(c.name, func(t *testing.T) {
			out, errors := printed(false, func(call *call) { call.saved(&c.result) })
			compare(t, "stdout", out, c.out)
			compare(t, "stderr", errors, c.errors)
		})
	}
}

func TestFirstSaveSaysWhatToDoNext(t *testing.T) {
	r := worktree.SaveResult{Saved: true, Started: true, Run: "r", Checkpoint: idA, Number: 1}
	_, errors := printed(false, func(c *call) { c.saved(&r) })
	if !strings.Contains(errors, "git checkpoint restore @{0}") || !strings.Contains(errors, "git checkpoint log") {
		t.Errorf("stderr %q", errors)
	}
	if _, errors := printed(true, func(c *call) { c.saved(&r) }); errors != "" {
		t.Errorf("a program is told %q", errors)
	}
}

func TestSavedForPrograms(t *testing.T) {
	r := worktree.SaveResult{Saved: true, Run: "r", Checkpoint: idA, Tree: idB}
	out, _ := printed(true, func(c *call) { c.saved(&r) })
	compare(t, "stdout", out, `{"saved":true,"run":"r","checkpoint":"`+idA+`","tree":"`+idB+`","skipped":[]}`+"\n")
	r.Skipped = []snapshot.Skip{{Path: "caf\xe9", Reason: "unreadable"}}
	out, errors := printed(true, func(c *call) { c.saved(&r) })
	if !strings.Contains(out, `"skipped":[{"path":"\"caf\\351\"","reason":"unreadable"}]`) {
		t.Errorf("stdout %s", out)
	}
	compare(t, "stderr", errors, `warning: skipped "caf\351": unreadable`+"\n")
}

func TestLongListsOfWarningsEnd(t *testing.T) {
	list := make([]string, 100)
	for i := range list {
		list[i] = fmt.Sprint("f", i)
	}
	_, errors := printed(false, func(c *call) { c.warnEach(list, output.Quoted) })
	lines := strings.Split(strings.TrimSpace(errors), "\n")
	compare(t, "last line", lines[len(lines)-1], "warning: and 80 more like this (--json lists all)")
	if len(lines) != maxWarnings+1 {
		t.Errorf("%d lines", len(lines))
	}
}

func TestRestoredIsPrinted(t *testing.T) {
	undo := "hint: git checkpoint undo takes it back\n"
	for _, c := range []struct {
		name        string
		result      worktree.RestoreResult
		out, errors string
	}{
		{"restore", worktree.RestoreResult{Operation: "restore", Checkpoint: idA, Written: []string{"a", "b"}, Deleted: []string{"c"}},
			"restored aaaaaaaaaa: 2 written, 1 deleted\n", undo},
		{"nothing differed", worktree.RestoreResult{Operation: "restore", Checkpoint: idA},
			"restored aaaaaaaaaa: no file differed\n", undo},
		{"HEAD was elsewhere", worktree.RestoreResult{Operation: "restore", Checkpoint: idA, HeadDiffers: idB},
			"restored aaaaaaaaaa: no file differed\n",
			"hint: the checkpoint's HEAD was bbbbbbbbbb; git checkpoint restore --reset moves the branch too\n" + undo},
		{"undo moves HEAD", worktree.RestoreResult{Operation: "undo", Checkpoint: idA, Head: &worktree.HeadMove{From: idA, To: idB, Branch: "main"}},
			"undone, back to aaaaaaaaaa: no file differed\nmoved HEAD to bbbbbbbbbb, branch 'main'\n",
			"hint: git checkpoint redo goes forward again\n"},
		{"redo to a detached HEAD", worktree.RestoreResult{Operation: "redo", Checkpoint: idA, Head: &worktree.HeadMove{To: idB}},
			"redone, forward to aaaaaaaaaa: no file differed\nmoved HEAD to bbbbbbbbbb, detached\n", undo},
		{"switch to an unborn branch", worktree.RestoreResult{Operation: "switch", Run: "r", Checkpoint: idA, Head: &worktree.HeadMove{From: idB, Branch: "x"}},
			"switched to run 'r', restored aaaaaaaaaa: no file differed\nmoved HEAD to no commit yet, branch 'x'\n", undo},
	} {
		t.Run(c.name, func(t *testing.T) {
			out, errors := printed(false, func(call *call) { call.restored(&c.result) })
			compare(t, "stdout", out, c.out)
			compare(t, "stderr", errors, c.errors)
		})
	}
}

func TestRestoreForPrograms(t *testing.T) {
	r := worktree.RestoreResult{Operation: "restore", Checkpoint: idA, Safety: idB, Deleted: []string{"caf\xe9", "a\nb"}}
	out, _ := printed(true, func(c *call) { c.restoreObject(&r) })
	compare(t, "stdout", out, `{"operation":"restore","checkpoint":"`+idA+`","safety":"`+idB+`","written":[],"deleted":["\"caf\\351\"","a\nb"],"head":null}`+"\n")
}

func TestDryRunIsPrinted(t *testing.T) {
	r := worktree.RestoreResult{DryRun: true, Checkpoint: idA, Written: []string{"a\nb"}, Deleted: []string{"c"}, Head: &worktree.HeadMove{To: idB, Branch: "main"}}
	out, _ := printed(false, func(c *call) { c.restorePlan(&r) })
	compare(t, "stdout", out, "write \"a\\nb\"\ndelete c\nmove HEAD to bbbbbbbbbb, branch 'main'\n")
}

func TestEntryLine(t *testing.T) {
	at := time.Date(2026, 11, 30, 12, 0, 0, 0, time.Local)
	for _, c := range []struct {
		entry worktree.Entry
		back  int
		want  string
	}{
		{worktree.Entry{Run: "r", Checkpoint: idA, StepKind: "manual", Subject: "one", At: at}, 0,
			"aaaaaaaaaa  @{0}   2026-11-30 12:00:00  manual         one\n"},
		{worktree.Entry{Run: "r", Checkpoint: idA, StepKind: "deterministic", StepName: "build", Visit: 2, Outcome: "failed", Subject: "x\x1b[2J\ny", At: at, Inherited: true}, 12,
			"aaaaaaaaaa  @{12}  2026-11-30 12:00:00  deterministic  [build#2 failed] x?[2J y (inherited from 'r')\n"},
		{worktree.Entry{Run: "r", Checkpoint: idA, StepKind: "agent", At: at}, 1234567,
			"aaaaaaaaaa  @{1234567} 2026-11-30 12:00:00  agent\n"},
	} {
		compare(t, "line", string(entryLine(nil, &c.entry, c.back)), c.want)
	}
}

func TestEntryForPrograms(t *testing.T) {
	e := worktree.Entry{Run: "r", Checkpoint: idA, At: time.Date(2026, 11, 30, 12, 0, 0, 0, time.FixedZone("", 3600)),
		Artifacts: []worktree.Artifact{{Name: "n", Path: "caf\xe9"}}}
	out, _ := printed(true, func(c *call) { c.Object(nameEntry(e)) })
	if !strings.Contains(out, `"at":"2026-11-30T11:00:00Z"`) || !strings.Contains(out, `"path":"\"caf\\351\""`) {
		t.Errorf("stdout %s", out)
	}
	compare(t, "the entry itself", e.Artifacts[0].Path, "caf\xe9")
}

func TestStatusIsPrinted(t *testing.T) {
	at := time.Date(2026, 11, 30, 12, 0, 0, 0, time.Local)
	entry := &worktree.Entry{Run: "r", Checkpoint: idA, StepKind: "manual", Subject: "one", At: at}
	for _, c := range []struct {
		name        string
		status      worktree.Status
		out, errors string
	}{
		{"no run", worktree.Status{}, "no current run\n", "hint: git checkpoint save starts one\n"},
		{"only started", worktree.Status{Run: "r", RunStatus: "open", Checkpoint: idB, Entry: &worktree.Entry{StepKind: refs.KindStart}},
			"run 'r': open\nstarted at bbbbbbbbbb, no checkpoint yet\nnothing changed since\n", ""},
		{"staged", worktree.Status{Run: "r", RunStatus: "completed", Archived: true, Checkpoint: idA, Entry: entry, IndexChanged: true},
			"run 'r': completed, archived\n" + string(entryLine(nil, entry, 0)) + "no file changed since, but what is staged\n", ""},
		{"changed", worktree.Status{Run: "r", RunStatus: "open", Checkpoint: idA, Entry: entry, Changed: []string{"a\nb"}, UndoAvailable: 1, RedoAvailable: 1},
			"run 'r': open\n" + string(entryLine(nil, entry, 0)) + "1 path changed since:\n  \"a\\nb\"\n",
			"hint: git checkpoint undo takes back the last restore, rewind or switch\nhint: git checkpoint redo goes forward again\n"},
		{"interrupted", worktree.Status{RestoreInProgress: &worktree.RestoreInProgress{Operation: "restore", Checkpoint: idA, At: at}},
			"interrupted: restore of aaaaaaaaaa, begun 2026-11-30 12:00:00\nno current run\n",
			"hint: git checkpoint restore --continue finishes it, git checkpoint undo rolls it back\nhint: git checkpoint save starts one\n"},
	} {
		t.Run(c.name, func(t *testing.T) {
			out, errors := printed(false, func(call *call) { call.status(&c.status) })
			compare(t, "stdout", out, c.out)
			compare(t, "stderr", errors, c.errors)
		})
	}
}

func TestRunTableIsAligned(t *testing.T) {
	at := time.Date(2026, 11, 30, 12, 0, 0, 0, time.Local)
	out, _ := printed(false, func(c *call) {
		c.runTable([]worktree.RunInfo{
			{Run: "main", Status: "open", Checkpoints: 1, Tip: idA, CreatedAt: at, Current: true},
			{Run: "longer.name", Status: "stopped", Archived: true, Checkpoints: 12, Tip: idB, CreatedAt: at,
				Lineage: &refs.Lineage{Kind: refs.RewoundFrom, Run: "main", Step: "plan", Checkpoint: idA}},
			{Run: "bad", Fault: "read note:\nx"},
		})
	})
	compare(t, "table", out, `* main         open               1 checkpoint    aaaaaaaaaa  2026-11-30 12:00:00
  longer.name  stopped, archived  12 checkpoints  bbbbbbbbbb  2026-11-30 12:00:00  rewound from 'main@plan' (aaaaaaaaaa)
  bad          damaged            read note: x
`)
}

func TestFindings(t *testing.T) {
	f := worktree.Finding{Code: "object-missing", Object: idA, Message: "blob\nis missing"}
	out, _ := printed(false, func(c *call) { c.finding(f) })
	compare(t, "stdout", out, "object-missing "+idA+": blob is missing\n")
	out, _ = printed(true, func(c *call) { c.finding(f) })
	compare(t, "stdout", out, `{"code":"object-missing","ref":"","object":"`+idA+`","message":"blob\nis missing"}`+"\n")
}
