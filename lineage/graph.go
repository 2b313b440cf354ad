package lineage

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/git-checkpoint/git-checkpoint/notes"
	"github.com/git-checkpoint/git-checkpoint/refs"
)

// Node is one run, as its journal describes it.
type Node struct {
	Run     string
	Tip     string
	Start   string    // its start commit
	At      time.Time // when it was created
	State   notes.State
	Lineage *refs.Lineage // what its journal says; where that is missing, its start commit

	Checkpoints int    // its own, without inherited ones
	Missing     bool   // other runs descend from it, but it is not there
	Fault       string // why the rest is unknown: its notes or chain cannot be read
}

// Graph is how runs descend from each other. It is built from what journals
// say and does no I/O.
type Graph struct {
	nodes    map[string]*Node
	children map[string][]*Node
	order    []*Node
}

// NewGraph builds the graph. A run that others descend from and that is not
// among nodes is in the graph as missing.
func NewGraph(nodes []Node) *Graph {
	g := &Graph{nodes: map[string]*Node{}, children: map[string][]*Node{}}
	for i := range nodes {
		n := nodes[i]
		g.nodes[n.Run] = &n
		g.order = append(g.order, &n)
	}
	for _, n := range slices.Clone(g.order) {
		if n.Lineage == nil {
			continue
		}
		if _, ok := g.nodes[n.Lineage.Run]; !ok {
			gone := &Node{Run: n.Lineage.Run, At: n.At, Missing: true}
			g.nodes[gone.Run] = gone
			g.order = append(g.order, gone)
		}
		g.children[n.Lineage.Run] = append(g.children[n.Lineage.Run], n)
	}
	older := func(a, b *Node) int {
		return cmp.Or(a.At.Compare(b.At), cmp.Compare(a.Run, b.Run))
	}
	slices.SortFunc(g.order, older)
	for _, list := range g.children {
		slices.SortFunc(list, older)
	}
	return g
}

// Nodes returns all runs, oldest first.
func (g *Graph) Nodes() []*Node { return g.order }

// Node returns a run, nil if the graph does not have it.
func (g *Graph) Node(run string) *Node { return g.nodes[run] }

// Children returns the runs that descend directly from a run, oldest first.
func (g *Graph) Children(run string) []*Node { return g.children[run] }

// Archived says whether a run is hidden: it was rewound, which anybody can
// derive from a child that says so, or its journal hides it. What a journal
// says of a child that is not there never happened: its run ref, written
// last, is missing.
func (g *Graph) Archived(run string) bool {
	n := g.nodes[run]
	if n == nil || n.Missing {
		return false
	}
	for _, c := range g.children[run] {
		if c.Lineage.Kind == refs.RewoundFrom && !slices.Contains(n.State.Unarchived, c.Run) {
			return true
		}
	}
	return n.State.Archived(g.rewoundFrom(run))
}

// rewoundFrom tells whether a run is there and was rewound from another.
func (g *Graph) rewoundFrom(source string) func(run string) bool {
	return func(run string) bool {
		n := g.nodes[run]
		return n != nil && !n.Missing && n.Lineage != nil && n.Lineage.Kind == refs.RewoundFrom && n.Lineage.Run == source
	}
}

// Status is a run's status, "" for one that is not there.
func (g *Graph) Status(run string) string {
	n := g.nodes[run]
	if n == nil || n.Missing {
		return ""
	}
	return n.State.Status(g.rewoundFrom(run))
}

// Ancestors returns the runs that a run descends from, the nearest first. It
// ends at a cycle.
func (g *Graph) Ancestors(run string) []*Node {
	var list []*Node
	seen := map[string]bool{run: true}
	for n := g.nodes[run]; n != nil && n.Lineage != nil && !seen[n.Lineage.Run]; {
		seen[n.Lineage.Run] = true
		n = g.nodes[n.Lineage.Run]
		list = append(list, n)
	}
	return list
}

// Root is the run that a run's lineage begins with: itself if it has none.
func (g *Graph) Root(run string) string {
	if list := g.Ancestors(run); len(list) > 0 {
		return list[len(list)-1].Run
	}
	return run
}

// Fault is something wrong with a lineage.
type Fault struct {
	Run     string
	Code    string // lineage-cycle, lineage-kind, lineage-missing, lineage-checkpoint
	Message string
}

// Check finds cycles, unknown kinds, and edges that disagree with the commits:
// parent tells the first parent of a start commit, "" if unknown. An edge to a
// missing run is no fault: the descendant keeps the history.
func (g *Graph) Check(parent func(start string) string) []Fault {
	var faults []Fault
	for _, n := range g.order {
		if n.Lineage == nil {
			continue
		}
		switch n.Lineage.Kind {
		case refs.RewoundFrom, refs.ForkedFrom, refs.RerunOf:
		default:
			faults = append(faults, Fault{n.Run, "lineage-kind", fmt.Sprintf("its lineage is of the unknown kind '%s'", n.Lineage.Kind)})
		}
		if cycle := g.cycle(n.Run); cycle != nil && cycle[0] == slices.Min(cycle) {
			faults = append(faults, Fault{n.Run, "lineage-cycle", "it descends from itself: " + strings.Join(append(cycle, n.Run), " from ")})
		}
		if n.Lineage.Kind == refs.RerunOf {
			continue
		}
		if p := parent(n.Start); p != "" && p != n.Lineage.Checkpoint {
			faults = append(faults, Fault{n.Run, "lineage-checkpoint", fmt.Sprintf("its journal says that it goes on from %s, its start commit stands on %s", n.Lineage.Checkpoint, p)})
		}
	}
	return faults
}

// cycle returns the runs of the cycle that leads from a run back to it.
func (g *Graph) cycle(run string) []string {
	path := []string{run}
	seen := map[string]bool{run: true}
	for n := g.nodes[run]; n != nil && n.Lineage != nil; n = g.nodes[n.Lineage.Run] {
		next := n.Lineage.Run
		if next == run {
			return path
		}
		if seen[next] {
			return nil // a cycle further up, reported there
		}
		seen[next] = true
		path = append(path, next)
	}
	return nil
}
