package rerun

import (
	"cmp"
	"time"

	"github.com/git-checkpoint/git-checkpoint/notes"
)

// The states of a task.
const (
	Pending  = "pending"  // waits for others
	Ready    = "ready"    // could start now
	Running  = "running"  // somebody works on it
	Waiting  = "waiting"  // asked a question
	Checking = "checking" // done, and being checked
	Done     = "done"
	Failed   = "failed"
	Skipped  = "skipped"  // never started, since what it waits for failed
	Retained = "retained" // a baseline input of a rerun
)

// Source is where the work of a task was done.
type Source struct {
	Run      string `json:"run"`
	Commit   string `json:"commit"`
	Baseline string `json:"baseline,omitempty"`
}

// TaskStatus is where a task is.
type TaskStatus struct {
	Task     string  `json:"task"`
	State    string  `json:"state"`
	Attempts int     `json:"attempts"`
	Commit   string  `json:"commit,omitempty"`
	Source   *Source `json:"source,omitempty"` // of a task that another run did
	Reason   string  `json:"reason,omitempty"` // why it failed
	Question string  `json:"question,omitempty"`

	last     TaskEvent
	session  string // the last that was told
	checking bool   // since the last event
	repairs  int
	handed   string     // why it is to be done again; empty: it is not
	answered []Question // what was asked and answered, in order
	lease    TaskEvent
}

// History is all that the state of a planned run is derived from.
type History struct {
	Plan     *Plan
	Lines    []notes.Line      // of the run's own journal
	Done     map[string]Source // tasks with a checkpoint in the chain
	Own      map[string]bool   // those of them that this run did
	Retained map[string]Source // of a rerun
	Live     bool              // a process holds the run
	Now      time.Time         // for leases
}

// Progress is the state of a planned run.
type Progress struct {
	Planned  Planned
	Tasks    []TaskStatus // in the order of the plan
	Status   string       // as the journal has it
	Calls    int
	Minutes  float64
	Approved bool
	Rejected bool
	Reviews  []Evidence
	Verified *Evidence // the newest
	Checks   []Evidence
	Proofs   []Evidence

	Deliveries map[string]Delivery // the newest of each task
	at         map[string]int
	earlier    float64 // minutes of the runners before the last one
}

// Task returns the status of a task.
func (p *Progress) Task(id string) *TaskStatus {
	if i, ok := p.at[id]; ok {
		return &p.Tasks[i]
	}
	return nil
}

// Derive works out where a planned run is, from its journal and its chain
// alone, so that whoever asks gets the same answer.
func Derive(h History) (*Progress, error) {
	p := &Progress{Status: notes.Running, at: map[string]int{}, Deliveries: map[string]Delivery{}}
	for i, t := range h.Plan.Tasks {
		p.at[t.ID] = i
		p.Tasks = append(p.Tasks, TaskStatus{Task: t.ID, State: Pending})
	}
	if err := p.replay(h.Lines); err != nil {
		return nil, err
	}
	for i := range p.Tasks {
		p.settle(&p.Tasks[i], h)
	}
	for _, id := range h.Plan.Order() {
		t := p.Task(id)
		if t.State != Pending {
			continue
		}
		ready, hopeless := true, false
		for _, e := range h.Plan.DependsOn(id) {
			switch p.Task(e.From).State {
			case Done, Retained:
			case Failed, Skipped:
				ready, hopeless = false, true
			default:
				ready = false
			}
		}
		switch {
		case hopeless:
			t.State = Skipped
		case ready:
			t.State = Ready
		}
	}
	return p, nil
}

// replay reads the journal in its order.
func (p *Progress) replay(lines []notes.Line) error {
	session := 0.0
	spent := func(elapsed float64) { session = max(session, elapsed) }
	for _, l := range lines {
		var err error
		switch l.Event {
		case notes.EventStatus:
			var s struct {
				Status  string
				Elapsed float64
			}
			err = l.Decode(&s)
			spent(s.Elapsed)
			if s.Status == notes.Running {
				p.earlier, session = p.earlier+session, 0
			}
			p.Status = s.Status
		case EventPlanned:
			err = l.Decode(&p.Planned)
		case EventApproved:
			p.Approved = true
		case EventRejected:
			p.Rejected = true
		case EventTask:
			var e TaskEvent
			if err = l.Decode(&e); err == nil {
				spent(e.Elapsed)
				p.taskEvent(e)
			}
		case EventCheck, EventProof, EventVerify, EventReview:
			var e Evidence
			if err = l.Decode(&e); err == nil {
				spent(e.Elapsed)
				p.evidence(l.Event, e)
			}
		case EventQuestion, EventAnswer:
			var q Question
			if err = l.Decode(&q); err == nil {
				spent(q.Elapsed)
				p.question(l.Event, q)
			}
		case EventDelivery:
			var d Delivery
			if err = l.Decode(&d); err == nil {
				p.Deliveries[d.Task] = d
			}
		}
		if err != nil {
			return err
		}
	}
	p.Minutes = p.earlier + session
	return nil
}

func (p *Progress) taskEvent(e TaskEvent) {
	if e.Call {
		p.Calls++
	}
	t := p.Task(e.Task)
	if t == nil {
		return
	}
	t.checking = e.State == eventChecking
	if t.checking {
		return
	}
	t.last, t.session = e, cmp.Or(e.Session, t.session)
	switch e.State {
	case eventStarted, eventLeased:
		t.Attempts = max(t.Attempts, e.Attempt)
		t.Reason = ""
		t.lease = TaskEvent{}
		if e.State == eventLeased {
			t.lease = e
		}
		if e.Repair {
			t.repairs++
		}
	case eventFailed:
		t.Reason = e.Reason
	case eventReturned:
		t.handed = cmp.Or(e.Reason, "it was handed back")
	case eventDone:
		t.handed = ""
	}
}

func (p *Progress) evidence(event string, e Evidence) {
	if e.Call {
		p.Calls++
	}
	switch event {
	case EventCheck:
		p.Checks = append(p.Checks, e)
	case EventProof:
		p.Proofs = append(p.Proofs, e)
	case EventVerify:
		p.Verified = &e
	case EventReview:
		p.Reviews = append(p.Reviews, e)
	}
}

func (p *Progress) question(event string, q Question) {
	t := p.Task(q.Task)
	if t == nil {
		return
	}
	if event == EventQuestion {
		t.Question = q.Text
		return
	}
	t.answered = append(t.answered, Question{Task: q.Task, Text: t.Question}, q)
	t.Question = ""
}

// settle decides a task's state, as far as it does not depend on others.
func (p *Progress) settle(t *TaskStatus, h History) {
	// One that a review handed back is worked on again, until it is done anew.
	if s, ok := h.Done[t.Task]; ok && t.handed == "" {
		t.State, t.Commit = Done, s.Commit
		if !h.Own[t.Task] {
			t.Source = &s
		}
		return
	}
	if s, ok := h.Retained[t.Task]; ok {
		t.State, t.Commit, t.Source = Retained, s.Commit, &s
		return
	}
	switch {
	case t.Question != "":
		t.State = Waiting
	case t.last.State == eventFailed:
		t.State = Failed
	case t.last.State == eventStarted && h.Live, t.last.State == eventLeased && leaseLives(t.last, h.Now):
		t.State = Running
		if t.checking && h.Live {
			t.State = Checking
		}
	}
}

func leaseLives(e TaskEvent, now time.Time) bool {
	deadline, err := time.Parse(time.RFC3339, e.Deadline)
	return err == nil && now.Before(deadline)
}

// good looks for evidence of success for a tree and a command.
func good(list []Evidence, tree, digest, subject string) *Evidence {
	for i := len(list) - 1; i >= 0; i-- {
		e := &list[i]
		if e.Tree == tree && e.Digest == digest && e.Subject == subject {
			if e.OK {
				return e
			}
			return nil
		}
	}
	return nil
}

// left is what is left of the budget; nil where it has no bound.
func (p *Progress) left(elapsed float64) *Left {
	b, left := p.Planned.Budget, &Left{}
	if n := b.Calls(); n > 0 {
		calls := max(n-p.Calls, 0)
		left.Calls = &calls
	}
	if b.MaxMinutes > 0 {
		minutes := max(float64(b.MaxMinutes)-p.earlier-elapsed, 0)
		left.Minutes = &minutes
	}
	if left.Calls == nil && left.Minutes == nil {
		return nil
	}
	return left
}

// left says whether a budget allows one more call.
func (b Budget) left(p *Progress) bool {
	if n := b.Calls(); n > 0 && p.Calls >= n {
		return false
	}
	return b.MaxMinutes == 0 || p.Minutes < float64(b.MaxMinutes)
}
