// Package rerun knows plans: the tasks of a run and what they depend on. It
// runs them, and of a finished plan it runs again only what must be.
package rerun

import (
	"cmp"
	"container/heap"
	"slices"
)

// The kinds of a task.
const (
	KindAgent         = "agent"
	KindDeterministic = "deterministic"
	KindDelivery      = "delivery"
)

// How a plan starts: at once, or only after it was approved.
const (
	ApprovalAuto = "auto"
	ApprovalHeld = "held"
)

// Plan is a plan as its file says it (PLANS.md §1). One that ParsePlan
// returned is without fault: every id that it names is there, and its edges
// make no cycle.
type Plan struct {
	Name         string        `json:"name"`
	Approval     string        `json:"approval"`         // ApprovalAuto or ApprovalHeld
	Verify       string        `json:"verify,omitempty"` // the command that verifies the integrated result
	Members      []Member      `json:"members"`
	Requirements []Requirement `json:"requirements"`
	Review       *Review       `json:"review,omitempty"` // nil: nobody reviews
	Tasks        []Task        `json:"tasks"`
}

// Member is one of the pool that works on a plan.
type Member struct {
	ID       string `json:"id"`
	Provider string `json:"provider,omitempty"`
	Model    string `json:"model,omitempty"`
	Effort   string `json:"effort,omitempty"`
}

// Requirement is what the result is reviewed for.
type Requirement struct {
	ID   string `json:"id"`
	Text string `json:"text"`
}

// Review is the independent review: its member authors nothing.
type Review struct {
	Member string `json:"member"`
	Run    string `json:"run"`
}

// Task is one unit of work.
type Task struct {
	ID             string            `json:"id"`
	Kind           string            `json:"kind"`
	Member         string            `json:"member,omitempty"`
	Run            string            `json:"run"` // for sh -c, as Check, Proof and Probe
	Instructions   string            `json:"instructions,omitempty"`
	Acceptance     string            `json:"acceptance,omitempty"`
	Check          string            `json:"check,omitempty"`
	Proof          string            `json:"proof,omitempty"`
	Probe          string            `json:"probe,omitempty"`    // of deliveries only
	Contract       string            `json:"contract,omitempty"` // a path in the tree
	Produces       map[string]string `json:"produces,omitempty"` // artifact name → path in the tree
	Uses           []string          `json:"uses,omitempty"`     // artifact names
	Owns           []string          `json:"owns,omitempty"`     // patterns as of gitignore; empty: all
	After          []string          `json:"after,omitempty"`    // tasks
	Knows          []string          `json:"knows,omitempty"`    // tasks
	Repairs        int               `json:"repairs,omitempty"`
	TimeoutMinutes int               `json:"timeout_minutes,omitempty"` // 0: no limit of its own
	Line           int               `json:"-"`                         // where it begins in the file
}

// The kinds of an edge, in the order in which they are listed.
const (
	EdgeCompletion = "completion" // after
	EdgeArtifact   = "artifact"   // uses
	EdgeKnowledge  = "knowledge"  // knows
	EdgeConsumed   = "consumed"   // not of the plan: what a task recorded that it read
)

// Edge says that From must be done before To can start.
type Edge struct {
	From string `json:"from"`
	To   string `json:"to"`
	Kind string `json:"kind"`
}

// Task returns a task by its id, nil if there is none.
func (p *Plan) Task(id string) *Task {
	for i := range p.Tasks {
		if p.Tasks[i].ID == id {
			return &p.Tasks[i]
		}
	}
	return nil
}

// Member returns a member by its id, nil if there is none.
func (p *Plan) Member(id string) *Member {
	for i := range p.Members {
		if p.Members[i].ID == id {
			return &p.Members[i]
		}
	}
	return nil
}

// Producer returns the task that produces an artifact, nil if there is none.
func (p *Plan) Producer(artifact string) *Task {
	for i := range p.Tasks {
		if _, ok := p.Tasks[i].Produces[artifact]; ok {
			return &p.Tasks[i]
		}
	}
	return nil
}

// Edges returns the edges of the plan by the place of To in the file, then by
// kind, then in the order in which To names them. No two are equal.
func (p *Plan) Edges() []Edge {
	producers := map[string]string{}
	for i := range p.Tasks {
		for name := range p.Tasks[i].Produces {
			producers[name] = p.Tasks[i].ID
		}
	}
	var edges []Edge
	seen := map[Edge]bool{}
	add := func(from, to, kind string) {
		if e := (Edge{from, to, kind}); from != "" && !seen[e] {
			seen[e] = true
			edges = append(edges, e)
		}
	}
	for i := range p.Tasks {
		t := &p.Tasks[i]
		for _, from := range t.After {
			add(from, t.ID, EdgeCompletion)
		}
		for _, name := range t.Uses {
			add(producers[name], t.ID, EdgeArtifact)
		}
		for _, from := range t.Knows {
			add(from, t.ID, EdgeKnowledge)
		}
	}
	return edges
}

// DependsOn returns the edges that lead to a task, in the order of Edges.
func (p *Plan) DependsOn(task string) []Edge {
	return slices.DeleteFunc(p.Edges(), func(e Edge) bool { return e.To != task })
}

// Order returns the ids of the tasks, each after those that it depends on;
// where that leaves a choice, the one that comes first in the file.
func (p *Plan) Order() []string {
	place := map[string]int{}
	for i := range p.Tasks {
		place[p.Tasks[i].ID] = i
	}
	waits := make([]int, len(p.Tasks))
	next := make([][]int, len(p.Tasks))
	for _, e := range p.Edges() {
		from, ok := place[e.From]
		if to, known := place[e.To]; ok && known {
			waits[to]++
			next[from] = append(next[from], to)
		}
	}
	ready := &places{}
	for i, n := range waits {
		if n == 0 {
			heap.Push(ready, i)
		}
	}
	order := make([]string, 0, len(p.Tasks))
	for ready.Len() > 0 {
		i := heap.Pop(ready).(int)
		order = append(order, p.Tasks[i].ID)
		for _, to := range next[i] {
			if waits[to]--; waits[to] == 0 {
				heap.Push(ready, to)
			}
		}
	}
	return order
}

// places is a heap of places in the file.
type places []int

func (h places) Len() int           { return len(h) }
func (h places) Less(i, j int) bool { return h[i] < h[j] }
func (h places) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }
func (h *places) Push(v any)        { *h = append(*h, v.(int)) }

func (h *places) Pop() any {
	last := len(*h) - 1
	v := (*h)[last]
	*h = (*h)[:last]
	return v
}

// compareEdges orders edges by their tasks' ids.
func compareEdges(a, b Edge) int {
	return cmp.Or(cmp.Compare(a.To, b.To), cmp.Compare(a.From, b.From), cmp.Compare(a.Kind, b.Kind))
}
