package main

import (
	"strings"
	"testing"
	"time"

	"github.com/git-checkpoint/git-checkpoint/rerun"
)

// A line a task with state and time, a total; drawn again in place.
func TestProgressIsALineATaskAndATotal(t *testing.T) {
	var out strings.Builder
	start := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	at := func(s float64) time.Time { return start.Add(time.Duration(s * float64(time.Second))) }
	p := &progress{to: &out, begun: start}
	for _, step := range []struct {
		at float64
		n  rerun.Notice
	}{
		{0, rerun.Notice{Task: "design", State: rerun.Running, Text: "attempt 1"}},
		{1, rerun.Notice{Task: "design", Text: "a file is left out"}},
		{2.5, rerun.Notice{Task: "design", State: rerun.Done, Text: "done"}},
		{3, rerun.Notice{Task: "api", State: rerun.Running, Text: "attempt 1"}},
		{65, rerun.Notice{Task: "api", State: rerun.Failed, Text: "failed: its check ended with 1"}},
	} {
		p.draw(at(step.at), p.take(step.n, at(step.at)))
	}
	last := out.String()[strings.LastIndex(out.String(), "\x1b[J")+len("\x1b[J"):]
	want := "api: failed: its check ended with 1\n" +
		"  done     design  2.5s\n" +
		"  failed   api     1m02s\n" +
		"1 of 2 tasks done, 1m05s\n"
	if last != want {
		t.Errorf("got\n%s\nwant\n%s", last, want)
	}
	if !strings.Contains(out.String(), "\x1b[3A\x1b[J") {
		t.Error("it is not drawn in place")
	}
}
