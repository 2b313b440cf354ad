package lineage

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/git-checkpoint/git-checkpoint/notes"
	"github.com/git-checkpoint/git-checkpoint/refs"
)

func node(run, kind, from string) Node {
	n := Node{Run: run, Start: "start-" + run, State: notes.State{Said: notes.Open, Known: true}}
	if kind != "" {
		n.Lineage = &refs.Lineage{Kind: kind, Run: from, Step: "plan", Checkpoint: "checkpoint-of-" + run}
	}
	return n
}

func names(nodes []*Node) string {
	var list []string
	for _, n := range nodes {
		list = append(list, n.Run)
	}
	return strings.Join(list, " ")
}

// honest is what the start commits say where no edge is wrong.
func honest(start string) string {
	return "checkpoint-of-" + strings.TrimPrefix(start, "start-")
}

func TestGraphOfRewindOfRewindOfFork(t *testing.T) {
	g := NewGraph([]Node{
		node("d", refs.RewoundFrom, "c"),
		node("c", refs.RewoundFrom, "b"),
		node("a", "", ""),
		node("b", refs.ForkedFrom, "a"),
	})
	if got := names(g.Ancestors("d")); got != "c b a" {
		t.Errorf("the ancestors of d are %s", got)
	}
	if got := g.Root("d"); got != "a" {
		t.Errorf("the root of d is %s", got)
	}
	if got := g.Root("a"); got != "a" {
		t.Errorf("the root of a is %s", got)
	}
	for run, archived := range map[string]bool{"a": false, "b": true, "c": true, "d": false} {
		if g.Archived(run) != archived {
			t.Errorf("archived %s: %v", run, !archived)
		}
	}
	if got := names(g.Children("a")); got != "b" {
		t.Errorf("the children of a are %s", got)
	}
	if faults := g.Check(honest); len(faults) > 0 {
		t.Errorf("faults: %v", faults)
	}
}

func TestNodesAreOldestFirstThenByName(t *testing.T) {
	late, early := node("a", "", ""), node("z", "", "")
	late.At, early.At = time.Unix(2, 0), time.Unix(1, 0)
	same := node("m", "", "")
	same.At = early.At
	if got := names(NewGraph([]Node{late, early, same}).Nodes()); got != "m z a" {
		t.Errorf("the order is %s", got)
	}
}

func TestAMissingSourceIsInTheGraph(t *testing.T) {
	g := NewGraph([]Node{node("b", refs.RewoundFrom, "gone"), node("c", refs.ForkedFrom, "gone")})
	n := g.Node("gone")
	if n == nil || !n.Missing || len(g.Nodes()) != 3 {
		t.Fatalf("the nodes are %s", names(g.Nodes()))
	}
	if got := names(g.Children("gone")); got != "b c" {
		t.Errorf("its children are %s", got)
	}
	if g.Archived("gone") || g.Status("gone") != "" || g.Root("b") != "gone" {
		t.Error("it is not archived, has no status, and is the root of b")
	}
	if faults := g.Check(honest); len(faults) > 0 {
		t.Errorf("it is no fault: %v", faults)
	}
}

// TestArchivedAndStatus goes through what journals and other runs can say
// together.
func TestArchivedAndStatus(t *testing.T) {
	journal := func(events ...string) notes.State {
		t.Helper()
		var note []byte
		for _, e := range events {
			event, fields, _ := strings.Cut(e, " ")
			by, status, _ := strings.Cut(fields, " ")
			var err error
			if note, _, err = notes.Append(note, time.Unix(1, 0), event, map[string]string{"by": by, "status": status}); err != nil {
				t.Fatal(err)
			}
		}
		lines, err := notes.Parse(note)
		if err != nil {
			t.Fatal(err)
		}
		s, err := notes.Derive(lines)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	rewind, fork := node("child", refs.RewoundFrom, "r"), node("child", refs.ForkedFrom, "r")
	other := node("child", refs.RewoundFrom, "another")
	for _, c := range []struct {
		name     string
		journal  []string
		children []Node
		status   string
		archived bool
	}{
		{"alone", nil, nil, notes.Open, false},
		{"rewound, as both say", []string{"archived child stopped"}, []Node{rewind}, notes.Stopped, true},
		{"rewound, as the child says alone", nil, []Node{rewind}, notes.Open, true},
		{"a child that did not come to be", []string{"archived child stopped"}, nil, notes.Open, false},
		{"a fork of that name", []string{"archived child stopped"}, []Node{fork}, notes.Open, false},
		{"another's rewind of that name", []string{"archived child stopped"}, []Node{other}, notes.Open, false},
		{"rewound after its end", []string{"status - completed", "archived child"}, []Node{rewind}, notes.Completed, true},
		{"ended after its rewind", []string{"archived child stopped", "status - failed"}, []Node{rewind}, notes.Failed, true},
		{"undone", []string{"archived child stopped", "unarchived child"}, []Node{rewind}, notes.Open, false},
		{"redone", []string{"archived child stopped", "unarchived child", "archived child stopped"}, []Node{rewind}, notes.Stopped, true},
		{"one of two undone", []string{"archived child stopped", "archived second stopped", "unarchived child"},
			[]Node{rewind, node("second", refs.RewoundFrom, "r")}, notes.Stopped, true},
		{"hidden by the undo of its own rewind", []string{"archived "}, nil, notes.Open, true},
		{"shown by the redo", []string{"archived ", "unarchived "}, nil, notes.Open, false},
		{"forked", nil, []Node{fork}, notes.Open, false},
		{"rerun", nil, []Node{node("child", refs.RerunOf, "r")}, notes.Open, false},
	} {
		r := node("r", "", "")
		r.State = journal(c.journal...)
		g := NewGraph(append([]Node{r}, c.children...))
		if got := g.Archived("r"); got != c.archived {
			t.Errorf("%s: archived %v", c.name, got)
		}
		if got := g.Status("r"); got != c.status {
			t.Errorf("%s: the status is %s", c.name, got)
		}
	}
}

func TestCheck(t *testing.T) {
	for _, c := range []struct {
		name  string
		nodes []Node
		want  []string // run code
	}{
		{"nothing", nil, nil},
		{"a run of its own", []Node{node("a", refs.ForkedFrom, "a")}, []string{"a lineage-cycle"}},
		{"two", []Node{node("a", refs.ForkedFrom, "b"), node("b", refs.RewoundFrom, "a")}, []string{"a lineage-cycle"}},
		{"a cycle and who leads into it", []Node{node("a", refs.ForkedFrom, "b"), node("b", refs.ForkedFrom, "c"), node("c", refs.ForkedFrom, "b")}, []string{"b lineage-cycle"}},
		{"an unknown kind", []Node{node("a", "", ""), node("b", "stolen_from", "a")}, []string{"b lineage-kind"}},
	} {
		var got []string
		for _, f := range NewGraph(c.nodes).Check(honest) {
			got = append(got, f.Run+" "+f.Code)
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
	g := NewGraph([]Node{node("a", "", ""), node("b", refs.ForkedFrom, "a"), node("c", refs.RerunOf, "a")})
	for _, c := range []struct {
		parent string
		faults int
	}{{"another", 1}, {"", 0}} {
		faults := g.Check(func(string) string { return c.parent })
		if len(faults) != c.faults || c.faults > 0 && (faults[0].Run != "b" || faults[0].Code != "lineage-checkpoint") {
			t.Errorf("with the parent '%s' the faults are %v", c.parent, faults)
		}
	}
}

// forest makes random runs, each descending from an older one, from one that
// is missing, or from none; then it plants faults. It returns which.
func forest(r *rand.Rand) (nodes []Node, want []string, wrong map[string]bool) {
	kinds := []string{refs.RewoundFrom, refs.ForkedFrom, refs.RerunOf}
	wrong = map[string]bool{}
	size := 1 + r.IntN(40)
	for i := range size {
		run := fmt.Sprintf("r%02d", i)
		switch n := r.IntN(10); {
		case n == 0 || i == 0:
			nodes = append(nodes, node(run, "", ""))
		case n == 1:
			nodes = append(nodes, node(run, kinds[r.IntN(3)], fmt.Sprint("gone", r.IntN(3))))
		default:
			nodes = append(nodes, node(run, kinds[r.IntN(3)], nodes[r.IntN(i)].Run))
		}
		if l := nodes[i].Lineage; l != nil && r.IntN(8) == 0 {
			l.Kind = "stolen_from"
			want = append(want, run+" lineage-kind")
		}
		if l := nodes[i].Lineage; l != nil && l.Kind != refs.RerunOf && r.IntN(8) == 0 {
			wrong["start-"+run] = true
			want = append(want, run+" lineage-checkpoint")
		}
	}
	// Each cycle is a new tree whose root descends from one of its leaves.
	for i := range r.IntN(4) {
		length := 1 + r.IntN(5)
		for j := range length {
			nodes = append(nodes, node(fmt.Sprintf("z%d-%d", i, j), refs.ForkedFrom, fmt.Sprintf("z%d-%d", i, (j+1)%length)))
		}
		want = append(want, fmt.Sprintf("z%d-0 lineage-cycle", i))
		nodes = append(nodes, node(fmt.Sprintf("y%d", i), refs.ForkedFrom, fmt.Sprintf("z%d-%d", i, r.IntN(length))))
	}
	r.Shuffle(len(nodes), func(i, j int) { nodes[i], nodes[j] = nodes[j], nodes[i] })
	return nodes, want, wrong
}

func TestCheckFindsExactlyThePlantedFaults(t *testing.T) {
	for seed := range uint64(500) {
		nodes, want, wrong := forest(rand.New(rand.NewPCG(seed, 1)))
		g := NewGraph(nodes)
		var got []string
		for _, f := range g.Check(func(start string) string {
			if wrong[start] {
				return "another"
			}
			return honest(start)
		}) {
			got = append(got, f.Run+" "+f.Code)
		}
		slices.Sort(got)
		slices.Sort(want)
		if !slices.Equal(got, want) {
			t.Fatalf("seed %d: found %v, planted %v", seed, got, want)
		}
		for _, n := range nodes {
			ancestors := g.Ancestors(n.Run)
			if len(ancestors) > len(nodes)+3 {
				t.Fatalf("seed %d: %s has %d ancestors", seed, n.Run, len(ancestors))
			}
			root := g.Node(g.Root(n.Run))
			if root == nil || root.Lineage != nil && !strings.HasPrefix(root.Run, "z") {
				t.Fatalf("seed %d: the root of %s is %v", seed, n.Run, root)
			}
			rewound := slices.ContainsFunc(nodes, func(c Node) bool {
				return c.Lineage != nil && c.Lineage.Kind == refs.RewoundFrom && c.Lineage.Run == n.Run
			})
			if g.Archived(n.Run) != rewound {
				t.Fatalf("seed %d: archived %s: %v", seed, n.Run, !rewound)
			}
		}
		for _, n := range g.Nodes() {
			for _, c := range g.Children(n.Run) {
				if c.Lineage.Run != n.Run {
					t.Fatalf("seed %d: %s is no child of %s", seed, c.Run, n.Run)
				}
			}
		}
	}
}
