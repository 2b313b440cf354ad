package main

import (
	"bytes"
	"fmt"
	"slices"
	"strconv"
	"time"
	"unicode/utf8"

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
func date(t time.Time) string { return t.Local().Format(dateLayout) }

const dateLayout = "2006-01-02 15:04:05"

func count(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}

// entryLine is one checkpoint in a log; back is how far it is from the newest.
// A log has thousands of them, so that it does without fmt, and uses the room
// that line has.
func entryLine(line []byte, e *worktree.Entry, back int) []byte {
	line = append(line[:0], short(e.Checkpoint)...)
	line = append(line, "  @{"...)
	line = strconv.AppendInt(line, int64(back), 10)
	line = pad(append(line, '}'), shortID+2+6-len(line)-1)
	line = append(line, ' ')
	line = e.At.Local().AppendFormat(line, dateLayout)
	line = append(line, "  "...)
	line = pad(append(line, e.StepKind...), 13-utf8.RuneCountInString(e.StepKind))
	line = append(line, "  "...)
	if step := stepText(e); step != "" {
		line = append(append(append(line, '['), step...), "] "...)
	}
	line = append(line, output.Text(e.Subject)...)
	if e.Inherited {
		line = append(append(append(line, " (inherited from '"...), e.Run...), "')"...)
	}
	return append(bytes.TrimRight(line, " "), '\n')
}

// pad appends spaces, none where count is negative.
func pad(line []byte, count int) []byte {
	for range count {
		line = append(line, ' ')
	}
	return line
}

// stepText is a step, which of its visits, and how it ended.
func stepText(e *worktree.Entry) string {
	step := ""
	if e.StepName != "" {
		step = output.Text(e.StepName)
		if e.Visit > 1 {
			step += "#" + strconv.Itoa(e.Visit)
		}
	}
	if step == "" || e.Outcome == "" {
		return step + e.Outcome
	}
	return step + " " + e.Outcome
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
