package rerun

import (
	"fmt"
	"math/rand"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/git-checkpoint/git-checkpoint/notes"
)

// chainPlan is a → b → c, and d beside them; a may be repaired twice.
var chainPlan = &Plan{Name: "x", Approval: ApprovalAuto, Tasks: []Task{
	{ID: "a", Kind: KindDeterministic, Run: "true", Repairs: 2},
	{ID: "b", Kind: KindDeterministic, Run: "true", After: []string{"a"}},
	{ID: "c", Kind: KindDeterministic, Run: "true", Knows: []string{"b"}},
	{ID: "d", Kind: KindDeterministic, Run: "true"},
}}

var noon = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)

// script is a journal that is being written.
type script struct {
	t    *testing.T
	note []byte
}

func (s *script) add(event string, fields any) {
	s.t.Helper()
	note, _, err := notes.Append(s.note, noon, event, fields)
	if err != nil {
		s.t.Fatal(err)
	}
	s.note = note
}

func (s *script) lines() []notes.Line {
	s.t.Helper()
	lines, err := notes.Parse(s.note)
	if err != nil {
		s.t.Fatal(err)
	}
	return lines
}

// states derives and writes the states of all tasks as "a:done b:ready …".
func states(t *testing.T, h History) (string, *Progress) {
	t.Helper()
	if h.Plan == nil {
		h.Plan = chainPlan
	}
	p, err := Derive(h)
	if err != nil {
		t.Fatal(err)
	}
	var list []string
	for _, s := range p.Tasks {
		list = append(list, s.Task+":"+s.State)
	}
	return strings.Join(list, " "), p
}

func TestTheStateOfATaskIsWhatJournalAndChainSay(t *testing.T) {
	started := TaskEvent{Task: "a", State: eventStarted, Attempt: 1, Call: true}
	leased := TaskEvent{Task: "a", State: eventLeased, Attempt: 1, Call: true, Lease: "L", Deadline: noon.Add(time.Hour).Format(time.RFC3339)}
	ended := func(state string) TaskEvent { return TaskEvent{Task: "a", State: state, Attempt: 1, Reason: "why"} }
	aDone := map[string]Source{"a": {Run: "r", Commit: "1"}}
	for name, c := range map[string]struct {
		events []any
		done   map[string]Source
		live   bool
		now    time.Time
		want   string
	}{
		"nothing yet":                      {want: "a:ready b:pending c:pending d:ready"},
		"at work":                          {events: []any{started}, live: true, want: "a:running b:pending c:pending d:ready"},
		"its runner is gone":               {events: []any{started}, want: "a:ready b:pending c:pending d:ready"},
		"being checked":                    {events: []any{started, ended(eventChecking)}, live: true, want: "a:checking b:pending c:pending d:ready"},
		"its runner is gone, checking":     {events: []any{started, ended(eventChecking)}, want: "a:ready b:pending c:pending d:ready"},
		"killed":                           {events: []any{started, ended(eventKilled)}, live: true, want: "a:ready b:pending c:pending d:ready"},
		"conflict":                         {events: []any{started, ended(eventConflict)}, live: true, want: "a:ready b:pending c:pending d:ready"},
		"failed":                           {events: []any{started, ended(eventFailed)}, want: "a:failed b:skipped c:skipped d:ready"},
		"asked":                            {events: []any{started, ended(eventKilled), Question{Task: "a", Text: "?"}}, want: "a:waiting b:pending c:pending d:ready"},
		"leased":                           {events: []any{leased}, want: "a:running b:pending c:pending d:ready"},
		"the lease ran out":                {events: []any{leased}, now: noon.Add(time.Hour), want: "a:ready b:pending c:pending d:ready"},
		"done":                             {events: []any{started, ended(eventDone)}, done: aDone, want: "a:done b:ready c:pending d:ready"},
		"said done, and not in the chain":  {events: []any{started, ended(eventDone)}, want: "a:ready b:pending c:pending d:ready"},
		"inherited":                        {done: aDone, want: "a:done b:ready c:pending d:ready"},
		"handed back before it was done":   {events: []any{leased, ended(eventReturned)}, want: "a:ready b:pending c:pending d:ready"},
		"handed back":                      {events: []any{started, ended(eventDone), ended(eventReturned)}, done: aDone, want: "a:ready b:pending c:pending d:ready"},
		"handed back, at work":             {events: []any{started, ended(eventDone), ended(eventReturned), started}, live: true, done: aDone, want: "a:running b:pending c:pending d:ready"},
		"handed back, killed":              {events: []any{started, ended(eventDone), ended(eventReturned), started, ended(eventKilled)}, done: aDone, want: "a:ready b:pending c:pending d:ready"},
		"handed back, failed":              {events: []any{started, ended(eventDone), ended(eventReturned), started, ended(eventFailed)}, done: aDone, want: "a:failed b:skipped c:skipped d:ready"},
		"handed back, done again":          {events: []any{started, ended(eventDone), ended(eventReturned), started, ended(eventDone)}, done: aDone, want: "a:done b:ready c:pending d:ready"},
		"of a task that the plan does not": {events: []any{TaskEvent{Task: "z", State: eventStarted, Call: true}}, want: "a:ready b:pending c:pending d:ready"},
	} {
		s := &script{t: t}
		for _, e := range c.events {
			switch e := e.(type) {
			case TaskEvent:
				s.add(EventTask, e)
			case Question:
				s.add(EventQuestion, e)
			}
		}
		if c.now.IsZero() {
			c.now = noon
		}
		if got, _ := states(t, History{Lines: s.lines(), Done: c.done, Live: c.live, Now: c.now}); got != c.want {
			t.Errorf("%s:\n got %s\nwant %s", name, got, c.want)
		}
	}
}

// S3.22: what is retained is not executed, and what waits for it may start.
func TestARetainedTaskIsThereAndNotDone(t *testing.T) {
	got, p := states(t, History{Retained: map[string]Source{"a": {Run: "old", Commit: "1", Baseline: "2"}, "b": {Run: "old"}}})
	if got != "a:retained b:retained c:ready d:ready" || p.Task("a").Source.Baseline != "2" {
		t.Errorf("%s, %+v", got, p.Task("a"))
	}
}

func TestCallsAndMinutesAreThoseOfAllRunners(t *testing.T) {
	s := &script{t: t}
	s.add(EventPlanned, Planned{Budget: Budget{MaxInvocations: 5, MaxMinutes: 10}})
	s.add(notes.EventStatus, map[string]any{"status": notes.Running})
	s.add(EventTask, TaskEvent{Task: "a", State: eventStarted, Attempt: 1, Call: true, Elapsed: 0.5})
	s.add(EventCheck, Evidence{Task: "a", Elapsed: 2}) // no call
	s.add(notes.EventStatus, map[string]any{"status": notes.Running})
	s.add(EventTask, TaskEvent{Task: "a", State: eventStarted, Attempt: 2, Call: true, Elapsed: 0.25})
	s.add(EventReview, Evidence{Subject: "acceptance", Call: true, Elapsed: 1.5})
	s.add(notes.EventStatus, map[string]any{"status": notes.Waiting, "elapsed": 3})
	_, p := states(t, History{Lines: s.lines(), Now: noon})
	if p.Calls != 3 || p.Minutes != 5 || p.earlier != 2 {
		t.Errorf("%d calls, %v minutes, %v of them earlier", p.Calls, p.Minutes, p.earlier)
	}
	left := p.left(3)
	if *left.Calls != 2 || *left.Minutes != 5 {
		t.Errorf("left: %d, %v", *left.Calls, *left.Minutes)
	}
}

func TestOfTwoBoundsOnCallsTheSmallerCounts(t *testing.T) {
	for _, c := range []struct{ steps, calls, want int }{{0, 0, 0}, {3, 0, 3}, {0, 4, 4}, {3, 4, 3}, {5, 4, 4}} {
		if got := (Budget{MaxSteps: c.steps, MaxInvocations: c.calls}).Calls(); got != c.want {
			t.Errorf("%+v: %d", c, got)
		}
	}
}

// An attempt that was handed back and killed is not a second repair, but it is
// told what was wrong.
func TestAKilledRepairIsMadeAgainAndCountsOnce(t *testing.T) {
	s := &script{t: t}
	s.add(EventTask, TaskEvent{Task: "a", State: eventReturned, Reason: "too short"})
	_, p := states(t, History{Lines: s.lines(), Now: noon})
	if repair, why := p.Task("a").returned(); !repair || why != "too short" {
		t.Errorf("%v %q", repair, why)
	}
	s.add(EventTask, TaskEvent{Task: "a", State: eventStarted, Attempt: 2, Repair: true, Session: "s1"})
	s.add(EventTask, TaskEvent{Task: "a", State: eventKilled, Attempt: 2})
	_, p = states(t, History{Lines: s.lines(), Now: noon})
	a := p.Task("a")
	if repair, why := a.returned(); repair || why != "too short" || a.repairs != 1 || a.session != "s1" {
		t.Errorf("%v %q, %d repairs, session %q", repair, why, a.repairs, a.session)
	}
}

func TestEvidenceHoldsForOneTreeAndOneCommand(t *testing.T) {
	list := []Evidence{
		{Tree: "t", Digest: "d", OK: true}, {Tree: "u", Digest: "d", OK: true}, {Tree: "u", Digest: "d"}, {Tree: "t", Digest: "d", Subject: "R1", OK: true},
	}
	for _, c := range []struct {
		tree, digest, subject string
		want                  bool
	}{{"t", "d", "", true}, {"u", "d", "", false}, {"t", "e", "", false}, {"t", "d", "R1", true}, {"t", "d", "R2", false}} {
		if got := good(list, c.tree, c.digest, c.subject) != nil; got != c.want {
			t.Errorf("%+v: %v", c, got)
		}
	}
}

// world is a run as it might go: it writes the journal and knows the truth.
type world struct {
	script
	random  *rand.Rand
	done    map[string]Source
	attempt map[string]int
}

// step lets something happen that can happen in that state.
func (w *world) step(p *Progress) {
	t := p.Tasks[w.random.Intn(len(p.Tasks))]
	event := func(state string, e TaskEvent) {
		e.Task, e.State, e.Attempt, e.Elapsed = t.Task, state, w.attempt[t.Task], w.random.Float64()
		w.add(EventTask, e)
	}
	switch t.State {
	case Ready:
		w.attempt[t.Task]++
		repair, why := t.returned()
		if w.random.Intn(4) == 0 {
			event(eventLeased, TaskEvent{Call: true, Lease: "L", Deadline: noon.Add(time.Duration(w.random.Intn(3)-1) * time.Hour).Format(time.RFC3339), Repair: repair, Reason: why})
		} else {
			event(eventStarted, TaskEvent{Call: true, Repair: repair, Reason: why})
		}
	case Running:
		switch w.random.Intn(7) {
		case 0:
			event(eventChecking, TaskEvent{})
		case 1:
			event(eventKilled, TaskEvent{})
		case 2:
			event(eventConflict, TaskEvent{Reason: "conflict"})
		case 3:
			event(eventReturned, TaskEvent{Reason: "handed back"})
		case 4:
			if w.random.Intn(3) == 0 {
				event(eventFailed, TaskEvent{Reason: "failed"})
			}
		case 5:
			event(eventKilled, TaskEvent{})
			w.add(EventQuestion, Question{Task: t.Task, Text: "?"})
		default:
			event(eventDone, TaskEvent{Commit: "c"})
			w.done[t.Task] = Source{Run: "r", Commit: "c"}
		}
	case Waiting:
		w.add(EventAnswer, Question{Task: t.Task, Text: "!"})
	case Done:
		if w.random.Intn(6) == 0 {
			event(eventReturned, TaskEvent{Reason: "rejected"})
		}
	}
	if w.random.Intn(8) == 0 {
		w.add(notes.EventStatus, map[string]any{"status": notes.Running})
	}
}

func TestEveryPrefixOfAJournalHasAState(t *testing.T) {
	for seed := range 60 {
		random := rand.New(rand.NewSource(int64(seed)))
		w := &world{script: script{t: t}, random: random, done: map[string]Source{}, attempt: map[string]int{}}
		w.add(EventPlanned, Planned{Budget: Budget{MaxInvocations: 7, MaxMinutes: 3}})
		var before *Progress
		for n := range 40 {
			lines := w.lines()
			h := History{Plan: chainPlan, Lines: lines, Done: w.done, Live: random.Intn(4) > 0, Now: noon}
			text, p := states(t, h)
			w.invariants(p, before, lines, fmt.Sprintf("seed %d, step %d: %s", seed, n, text))
			if again, _ := states(t, h); again != text {
				t.Fatalf("seed %d: %s, then %s", seed, text, again)
			}
			before = p
			w.step(p)
		}
	}
}

// invariants are what no journal may break.
func (w *world) invariants(p, before *Progress, lines []notes.Line, what string) {
	w.t.Helper()
	left := p.left(0)
	if *left.Calls < 0 || *left.Minutes < 0 || p.Minutes < p.earlier {
		w.t.Fatalf("%s: the budget is %d calls, %v minutes", what, *left.Calls, *left.Minutes)
	}
	calls := 0
	for _, l := range lines {
		var e TaskEvent
		if l.Event == EventTask && l.Decode(&e) == nil && e.Call {
			calls++
		}
	}
	if p.Calls != calls {
		w.t.Fatalf("%s: %d calls, and the journal has %d", what, p.Calls, calls)
	}
	for _, s := range p.Tasks {
		_, inChain := w.done[s.Task]
		if s.State == Done && !inChain {
			w.t.Fatalf("%s: '%s' is done without a checkpoint", what, s.Task)
		}
		if inChain && s.handed == "" && s.State != Done {
			w.t.Fatalf("%s: '%s' has a checkpoint, was not handed back, and is not done", what, s.Task)
		}
		if s.State == Ready || s.State == Running {
			for _, e := range chainPlan.DependsOn(s.Task) {
				// What was begun goes on when what it used is handed back.
				if s.State == Ready && p.Task(e.From).State != Done {
					w.t.Fatalf("%s: '%s' is ready before '%s' is done", what, s.Task, e.From)
				}
			}
		}
		if before == nil {
			continue
		}
		was := before.Task(s.Task)
		if was.State == Done && s.State != Done && s.last.State != eventReturned {
			w.t.Fatalf("%s: '%s' was done", what, s.Task)
		}
		if s.Attempts < was.Attempts || s.repairs < was.repairs || len(s.answered) < len(was.answered) {
			w.t.Fatalf("%s: '%s' has lost an attempt", what, s.Task)
		}
	}
	if !slices.IsSortedFunc(p.Tasks, func(a, b TaskStatus) int { return p.at[a.Task] - p.at[b.Task] }) {
		w.t.Fatalf("%s: not in the order of the plan", what)
	}
}
