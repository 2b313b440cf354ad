package main

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/git-checkpoint/git-checkpoint/internal/output"
	"github.com/git-checkpoint/git-checkpoint/internal/worktree"
)

// shortID is how much of an id people see: enough to be unique in a
// repository of some million objects.
const shortID = 10

func short(id string) string {
	if len(id) > shortID {
		return id[:shortID]
	}
	return id
}

// date is a time as people see it: theirs, to the second.
func date(t time.Time) string { return t.Local().Format("2006-01-02 15:04:05") }

func count(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}

// entryLine is one checkpoint in a log; back is how far it is from the newest.
func entryLine(e *worktree.Entry, back int) string {
	line := fmt.Sprintf("%s  %-6s %s  %-13s  ", short(e.Checkpoint), fmt.Sprintf("@{%d}", back), date(e.At), e.StepKind)
	if step := stepText(e); step != "" {
		line += "[" + step + "] "
	}
	line += output.Text(e.Subject)
	if e.Inherited {
		line += fmt.Sprintf(" (inherited from '%s')", e.Run)
	}
	return strings.TrimRight(line, " ") + "\n"
}

// stepText is a step, which of its visits, and how it ended.
func stepText(e *worktree.Entry) string {
	var parts []string
	if e.StepName != "" {
		step := output.Text(e.StepName)
		if e.Visit > 1 {
			step += fmt.Sprintf("#%d", e.Visit)
		}
		parts = append(parts, step)
	}
	if e.Outcome != "" {
		parts = append(parts, e.Outcome)
	}
	return strings.Join(parts, " ")
}

// nameEntry makes an entry fit for JSON.
func nameEntry(e worktree.Entry) worktree.Entry {
	e.At = e.At.UTC()
	e.Skipped = nameSkips(e.Skipped)
	e.Artifacts = slices.Clone(e.Artifacts)
	for i := range e.Artifacts {
		e.Artifacts[i].Path = output.Name(e.Artifacts[i].Path)
	}
	return e
}

func nameRun(r worktree.RunInfo) worktree.RunInfo {
	r.CreatedAt = r.CreatedAt.UTC()
	r.Entries = slices.Clone(r.Entries)
	for i := range r.Entries {
		r.Entries[i] = nameEntry(r.Entries[i])
	}
	return r
}

// runState is a run's status with what stands beside it.
func runState(r *worktree.RunInfo) string {
	if r.Archived {
		return r.Status + ", archived"
	}
	return r.Status
}
