package rerun

import (
	"fmt"
	"slices"
)

// CauseSelected is the kind of the cause that a task was selected. It comes
// from no task.
const CauseSelected = "selected"

// Cause is why a task is invalidated: an edge of that kind leads to it from
// an invalidated task. EdgeConsumed is for what the task recorded that it
// read, where the plan has no such edge.
type Cause struct {
	Kind string `json:"kind"`
	From string `json:"from"`
}

// Invalidated is a task that a rerun executes again, with all its causes.
type Invalidated struct {
	Task    string  `json:"task"`
	Because []Cause `json:"because"` // never empty
}

// Invalidate returns the selected tasks and every task that can be reached
// from them over completion, artifact and knowledge edges, and over what
// tasks recorded as consumed; in the order of the plan. Tasks that are only
// beside or before them are not touched.
func Invalidate(plan *Plan, consumed map[string][]Consumed, selected []string) []Invalidated {
	edges := plan.edgesWith(consumed)
	next := map[string][]string{}
	for _, e := range edges {
		next[e.From] = append(next[e.From], e.To)
	}
	reached := map[string]bool{}
	for queue := slices.Clone(selected); len(queue) > 0; queue = queue[1:] {
		if id := queue[0]; !reached[id] {
			reached[id] = true
			queue = append(queue, next[id]...)
		}
	}
	because := map[string][]Cause{}
	for _, id := range selected {
		if because[id] == nil {
			because[id] = []Cause{{Kind: CauseSelected}}
		}
	}
	for _, e := range edges {
		if reached[e.From] {
			because[e.To] = append(because[e.To], Cause{e.Kind, e.From})
		}
	}
	list := []Invalidated{}
	for _, id := range plan.Order() {
		if reached[id] {
			list = append(list, Invalidated{id, because[id]})
		}
	}
	return list
}

// edgesWith returns the plan's edges, and those that only what tasks recorded
// makes.
func (p *Plan) edgesWith(consumed map[string][]Consumed) []Edge {
	edges := p.Edges()
	known := map[Edge]bool{}
	for _, e := range edges {
		known[e] = true
	}
	for i := range p.Tasks {
		to := p.Tasks[i].ID
		for _, c := range consumed[to] {
			planned, e := Edge{c.From, to, c.Kind}, Edge{c.From, to, EdgeConsumed}
			if !known[planned] && !known[e] && c.From != to {
				known[e] = true
				edges = append(edges, e)
			}
		}
	}
	return edges
}

// Ancestry says how a commit stands to the baseline.
type Ancestry int

// What a commit can be to the baseline. The zero value is no answer, and
// counts as CommitMissing.
const (
	CommitMissing Ancestry = iota // it is not in this clone, so nobody can tell
	IsAncestor
	NotAncestor
)

// Work is what the source of a rerun knows of a task.
type Work struct {
	Done         bool
	Run          string // where it was done
	Commit       string
	PlanDigest   string            // Plan.TaskDigest when it was done
	Consumed     []Consumed        // what it was given, with the digests as they were
	Artifacts    map[string]string // what it produced last: name → digest
	Handover     string            // the digest of the handover that it left last; empty: none
	CheckCommit  string            // which commit its check passed on
	ReviewCommit string            // which commit its acceptance was approved on; empty: it was not reviewed
	Ancestry     Ancestry          // of Commit
}

// RetainedTask is a retained baseline input of a rerun: data from the source,
// neither an instruction nor an authorization.
type RetainedTask struct {
	Task     string `json:"task"`
	Run      string `json:"run"`
	Commit   string `json:"commit"`
	Baseline string `json:"baseline"`
}

// The kinds of a reason.
const (
	Unfinished    = "unfinished"
	StalePlan     = "stale-plan"
	StaleInput    = "stale-input"
	StaleCheck    = "stale-check"
	StaleReview   = "stale-review"
	NotInBaseline = "not-in-baseline"
	MissingCommit = "missing-commit"
)

// Reason is why a task cannot be retained.
type Reason struct {
	Kind string `json:"kind"`
	Text string `json:"text"` // about "it", the task
}

// MustSelect is a task that is not invalidated and cannot be retained either,
// so that it must be selected too. Because is all reasons for it.
type MustSelect struct {
	Task    string   `json:"task"`
	Because []Reason `json:"because"`
}

// Retain decides about every task that is not invalidated: it is retained, or
// must be selected too. Both lists are in the order of the plan. A task whose
// acceptance nobody reviewed yet can be retained, since the child reviews the
// whole result; one that was approved on another commit cannot.
func Retain(plan *Plan, works map[string]Work, invalidated []Invalidated, baseline string) ([]RetainedTask, []MustSelect) {
	again := map[string]bool{}
	for _, i := range invalidated {
		again[i.Task] = true
	}
	retained, must := []RetainedTask{}, []MustSelect{}
	for _, id := range plan.Order() {
		if again[id] {
			continue
		}
		if reasons := stale(plan, works, id); len(reasons) > 0 {
			must = append(must, MustSelect{id, reasons})
			continue
		}
		retained = append(retained, RetainedTask{Task: id, Run: works[id].Run, Commit: works[id].Commit, Baseline: baseline})
	}
	return retained, must
}

// stale returns why the work on a task cannot be retained.
func stale(plan *Plan, works map[string]Work, id string) []Reason {
	w := works[id]
	if !w.Done || w.Commit == "" {
		return []Reason{{Unfinished, "it is not done"}}
	}
	var reasons []Reason
	add := func(kind, format string, args ...any) {
		reasons = append(reasons, Reason{kind, fmt.Sprintf(format, args...)})
	}
	if w.PlanDigest != plan.TaskDigest(id) {
		add(StalePlan, "it was done by another plan")
	}
	for _, c := range w.Consumed {
		if why := consumedStale(works, c); why != "" {
			add(StaleInput, "%s", why)
		}
	}
	if plan.Task(id).Check != "" && w.CheckCommit != w.Commit {
		add(StaleCheck, "its check did not pass on its commit %s", w.Commit)
	}
	if plan.Review != nil && w.ReviewCommit != "" && w.ReviewCommit != w.Commit {
		add(StaleReview, "its acceptance was approved on %s, not on its commit %s", w.ReviewCommit, w.Commit)
	}
	switch w.Ancestry {
	case IsAncestor:
	case NotAncestor:
		add(NotInBaseline, "its commit %s is no ancestor of the baseline", w.Commit)
	default:
		add(MissingCommit, "its commit %s is missing in this clone, so nobody can tell whether the baseline holds it", w.Commit)
	}
	return reasons
}

func consumedStale(works map[string]Work, c Consumed) string {
	from, ok := works[c.From]
	now, what := from.Artifacts[c.Name], "artifact '"+c.Name+"'"
	if c.Kind == EdgeKnowledge {
		now, what = from.Handover, "handover"
	}
	switch {
	case !ok:
		return fmt.Sprintf("it read the %s of %s, which is unknown now", what, quoted(c.From))
	case now != c.Digest:
		return fmt.Sprintf("it read another state of the %s of %s than there is now", what, quoted(c.From))
	}
	return ""
}

// Selection is a selection that suffices where others must be selected too:
// the selected tasks, and of the others those that are not reached from the
// rest of it. In the order of the plan.
func Selection(plan *Plan, consumed map[string][]Consumed, selected []string, must []MustSelect) []string {
	all := slices.Clone(selected)
	for _, m := range must {
		all = append(all, m.Task)
	}
	for _, m := range must {
		rest := slices.DeleteFunc(slices.Clone(all), func(id string) bool { return id == m.Task })
		if slices.ContainsFunc(Invalidate(plan, consumed, rest), func(i Invalidated) bool { return i.Task == m.Task }) {
			all = rest
		}
	}
	return slices.DeleteFunc(plan.Order(), func(id string) bool { return !slices.Contains(all, id) })
}

// Reviews is how many calls the reviews of a plan's result take: with a
// review one for the acceptance, and one for each requirement.
func Reviews(plan *Plan) int {
	if plan.Review == nil {
		return 0
	}
	return 1 + len(plan.Requirements)
}

// RequiredBudget is how many calls a rerun must be allowed: one for each
// invalidated task, the reviews, and one for recovery.
func RequiredBudget(plan *Plan, invalidated []Invalidated) int {
	return len(invalidated) + Reviews(plan) + 1
}
