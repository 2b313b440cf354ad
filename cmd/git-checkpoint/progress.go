package main

import (
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"github.com/git-checkpoint/git-checkpoint/internal/output"
	"github.com/git-checkpoint/git-checkpoint/rerun"
)

// progress shows on a terminal what a run is doing: a line a task with its
// state and how long it took, a total below, drawn again as time goes by.
type progress struct {
	mu    sync.Mutex
	to    io.Writer
	begun time.Time
	tasks []*taskProgress
	drawn int // lines on the terminal
	stop  chan struct{}
	ended sync.WaitGroup
}

type taskProgress struct {
	id, state    string
	begun, ended time.Time
}

// showProgress begins to show a run. end draws it for the last time.
func showProgress(to io.Writer) (tell func(rerun.Notice), end func()) {
	p := &progress{to: to, begun: time.Now(), stop: make(chan struct{})}
	p.ended.Go(func() {
		tick := time.NewTicker(time.Second)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				p.mu.Lock()
				p.draw(time.Now(), "")
				p.mu.Unlock()
			case <-p.stop:
				return
			}
		}
	})
	tell = func(n rerun.Notice) {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.draw(time.Now(), p.take(n, time.Now()))
	}
	return tell, func() {
		close(p.stop)
		p.ended.Wait()
		p.draw(time.Now(), "")
	}
}

// take keeps what a notice says of a task's state, and returns what it says
// beyond that.
func (p *progress) take(n rerun.Notice, now time.Time) (remark string) {
	if n.State == "" {
		if n.Task == "" {
			return n.Text
		}
		return n.Task + ": " + n.Text
	}
	t := p.task(n.Task)
	t.state = n.State
	if n.State == rerun.Running {
		if t.begun.IsZero() {
			t.begun = now
		}
		t.ended = time.Time{}
	} else {
		t.ended = now
	}
	if n.State == rerun.Failed || n.State == rerun.Waiting {
		return n.Task + ": " + n.Text
	}
	return ""
}

func (p *progress) task(id string) *taskProgress {
	for _, t := range p.tasks {
		if t.id == id {
			return t
		}
	}
	t := &taskProgress{id: id}
	p.tasks = append(p.tasks, t)
	return t
}

// draw writes a remark, if there is one, and the lines below it anew.
func (p *progress) draw(now time.Time, remark string) {
	var b strings.Builder
	if p.drawn > 0 {
		fmt.Fprintf(&b, "\x1b[%dA\x1b[J", p.drawn)
	}
	if remark != "" {
		b.WriteString(output.Text(remark) + "\n")
	}
	lines := p.lines(now)
	p.drawn = len(lines)
	for _, line := range lines {
		b.WriteString(line + "\n")
	}
	io.WriteString(p.to, b.String())
}

func (p *progress) lines(now time.Time) []string {
	width, done := 0, 0
	for _, t := range p.tasks {
		width = max(width, len(t.id))
	}
	var lines []string
	for _, t := range p.tasks {
		until := now
		if !t.ended.IsZero() {
			until = t.ended
		}
		took := ""
		if !t.begun.IsZero() {
			took = seconds(until.Sub(t.begun))
		}
		if t.state == rerun.Done {
			done++
		}
		lines = append(lines, strings.TrimRight(fmt.Sprintf("  %-8s %-*s  %s", t.state, width, t.id, took), " "))
	}
	if len(lines) == 0 {
		return nil
	}
	return append(lines, fmt.Sprintf("%d of %s done, %s", done, count(len(p.tasks), "task", "tasks"), seconds(now.Sub(p.begun))))
}

func seconds(d time.Duration) string {
	if d >= time.Minute {
		return fmt.Sprintf("%dm%02ds", int(d.Minutes()), int(d.Seconds())%60)
	}
	return fmt.Sprintf("%.1fs", d.Seconds())
}

// watching tells people what a run does: live on a terminal, a line an event
// elsewhere, nothing where a program reads.
func (c *call) watching() (tell func(rerun.Notice), end func()) {
	if c.JSON() {
		return nil, func() {}
	}
	if c.Watched() {
		return showProgress(c.Stderr())
	}
	var mu sync.Mutex
	return func(n rerun.Notice) {
		mu.Lock()
		defer mu.Unlock()
		if n.Task == "" {
			c.Hint("%s", n.Text)
		} else {
			c.Hint("%s: %s", n.Task, n.Text)
		}
	}, func() {}
}
