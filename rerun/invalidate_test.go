package rerun

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"
)

func names(list []Invalidated) []string {
	var ids []string
	for _, i := range list {
		ids = append(ids, i.Task)
	}
	return ids
}

// S3.6 S3.4
func TestInvalidate(t *testing.T) {
	diamond, twelve := example(t, "diamond"), example(t, "twelve")
	tree := mustParse(t, planText("tree", "a", "b: a", "c: a", "d: b", "e: b", "f: c", "g: c"))
	for _, c := range []struct {
		name     string
		plan     *Plan
		selected []string
		want     string
	}{
		{"one side of a diamond", diamond, []string{"b"}, "b(selected) d(completion b)"},
		{"the top of a diamond", diamond, []string{"a"}, "a(selected) b(artifact a) c(knowledge a) d(completion b, completion c)"},
		{"the end of a diamond", diamond, []string{"d"}, "d(selected)"},
		{"both sides", diamond, []string{"c", "b"}, "b(selected) c(selected) d(completion b, completion c)"},
		{"all", diamond, []string{"d", "c", "b", "a"}, "a(selected) b(selected, artifact a) c(selected, knowledge a) d(selected, completion b, completion c)"},
		{"two edges from one task", twelve, []string{"generate", "docs"}, "generate(selected) server(artifact generate) client(artifact generate, knowledge server) " +
			"integrate(completion server) docs(selected) package(completion integrate, completion client) announce(completion package, completion docs)"},
		{"nothing", diamond, nil, ""},
		// What "X.c+" and "X.a+" select in a balanced tree of seven, as
		// in run_specs of tests/unit/graph/test_selector.py of dbt-labs/dbt-core.
		{"a branch of a tree", tree, []string{"c"}, "c(selected) f(completion c) g(completion c)"},
		{"a whole tree", tree, []string{"a"}, "a(selected) b(completion a) c(completion a) d(completion b) e(completion b) f(completion c) g(completion c)"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := spell(Invalidate(c.plan, nil, c.selected)); got != c.want {
				t.Errorf("got  %s\nwant %s", got, c.want)
			}
		})
	}
}

// spell writes "task(kind from, …)" for each.
func spell(list []Invalidated) string {
	words := make([]string, len(list))
	for i, v := range list {
		because := make([]string, len(v.Because))
		for j, b := range v.Because {
			because[j] = strings.TrimSpace(b.Kind + " " + b.From)
		}
		words[i] = v.Task + "(" + strings.Join(because, ", ") + ")"
	}
	return strings.Join(words, " ")
}

// S3.6: what a task recorded as consumed counts, also where the plan has no
// such edge.
func TestInvalidateByWhatWasConsumed(t *testing.T) {
	plan := mustParse(t, planText("n", "a", "b", "c: b", "d"))
	consumed := map[string][]Consumed{
		"b": {{Kind: EdgeKnowledge, From: "a"}, {Kind: EdgeArtifact, From: "a", Name: "x"}},
		"c": {{Kind: EdgeCompletion, From: "b"}, {Kind: EdgeKnowledge, From: "gone"}},
	}
	consumed["d"] = []Consumed{{Kind: EdgeKnowledge, From: "d"}} // a repair reads its own
	want := "a(selected) b(consumed a) c(completion b) d(selected)"
	if got := spell(Invalidate(plan, consumed, []string{"a", "d"})); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

// S3.38
func TestRequiredBudget(t *testing.T) {
	twelve, diamond := example(t, "twelve"), example(t, "diamond")
	// Two tasks, the review of their acceptance, two requirements, one to recover.
	if got := RequiredBudget(twelve, Invalidate(twelve, nil, []string{"package"})); got != 2+1+2+1 {
		t.Errorf("with a review: %d", got)
	}
	if got := RequiredBudget(diamond, Invalidate(diamond, nil, []string{"b"})); got != 2+1 {
		t.Errorf("without a review: %d", got)
	}
}

// done is the work on every task of a plan, fresh, in one run.
func done(plan *Plan) map[string]Work {
	works := map[string]Work{}
	for i, id := range plan.Order() {
		commit := fmt.Sprintf("%040x", i+1)
		w := Work{Done: true, Run: "source", Commit: commit, PlanDigest: plan.TaskDigest(id), Ancestry: IsAncestor, Artifacts: map[string]string{}, Handover: "handover of " + id}
		t := plan.Task(id)
		if t.Check != "" {
			w.CheckCommit = commit
		}
		if plan.Review != nil {
			w.ReviewCommit = commit
		}
		for name := range t.Produces {
			w.Artifacts[name] = "artifact " + name
		}
		for _, name := range t.Uses {
			w.Consumed = append(w.Consumed, Consumed{EdgeArtifact, plan.Producer(name).ID, name, "artifact " + name})
		}
		for _, from := range t.Knows {
			w.Consumed = append(w.Consumed, Consumed{EdgeKnowledge, from, "", "handover of " + from})
		}
		works[id] = w
	}
	return works
}

// S3.7 S3.17 S3.18
func TestRetain(t *testing.T) {
	plan := example(t, "twelve")
	invalidated := Invalidate(plan, nil, []string{"server"})
	all, must := Retain(plan, done(plan), invalidated, someHead)
	if len(must) > 0 || len(all) != 12-len(invalidated) {
		t.Fatalf("%v %v", all, must)
	}
	if want := (RetainedTask{"design", "source", fmt.Sprintf("%040x", 1), someHead}); all[0] != want {
		t.Errorf("%+v, want %+v", all[0], want)
	}

	for _, c := range []struct {
		name   string
		change func(works map[string]Work)
		want   string // "task: reason, …"
	}{
		{"unfinished", edit("docs", func(w *Work) { w.Done = false }), "docs: unfinished"},
		{"unknown", func(works map[string]Work) { delete(works, "docs") }, "docs: unfinished"},
		{"without a commit", edit("docs", func(w *Work) { w.Commit = "" }), "docs: unfinished"},
		{"by another plan", edit("docs", func(w *Work) { w.PlanDigest = strings.Repeat("0", 64) }), "docs: stale-plan"},
		{"its plan not recorded", edit("docs", func(w *Work) { w.PlanDigest = "" }), "docs: stale-plan"},
		{"an artifact is another now", edit("design", func(w *Work) { w.Artifacts["glossary"] = "new" }), "schema: stale-input docs: stale-input"},
		{"two artifacts are", edit("design", func(w *Work) { w.Artifacts = nil }), "generate: stale-input schema: stale-input docs: stale-input, stale-input"},
		{"a handover is another now", func(works map[string]Work) {
			w := works["lint"]
			w.Consumed = []Consumed{{EdgeKnowledge, "store", "", "an older one"}}
			works["lint"] = w
		}, "lint: stale-input"},
		{"read from nobody", edit("lint", func(w *Work) { w.Consumed = []Consumed{{EdgeKnowledge, "gone", "", "x"}} }), "lint: stale-input"},
		{"checked on another commit", edit("store", func(w *Work) { w.CheckCommit = someHead }), "store: stale-check"},
		{"not checked", edit("store", func(w *Work) { w.CheckCommit = "" }), "store: stale-check"},
		{"without a check there is nothing to check", edit("docs", func(w *Work) { w.CheckCommit = someHead }), ""},
		{"approved on another commit", edit("docs", func(w *Work) { w.ReviewCommit = someHead }), "docs: stale-review"},
		// S3.11: a run that was stopped before its review can be rerun.
		{"not reviewed yet", edit("docs", func(w *Work) { w.ReviewCommit = "" }), ""},
		{"not in the baseline", edit("docs", func(w *Work) { w.Ancestry = NotAncestor }), "docs: not-in-baseline"},
		{"cut off in a shallow clone", edit("docs", func(w *Work) { w.Ancestry = CommitMissing }), "docs: missing-commit"},
		{"nobody asked", edit("docs", func(w *Work) { w.Ancestry = 0 }), "docs: missing-commit"},
		{"much at once", func(works map[string]Work) {
			edit("store", func(w *Work) {
				w.PlanDigest, w.CheckCommit, w.ReviewCommit, w.Ancestry = "x", "x", "x", NotAncestor
			})(works)
			delete(works, "lint")
		}, "store: stale-plan, stale-check, stale-review, not-in-baseline lint: unfinished"},
		// What runs again anyway is not asked.
		{"unfinished and invalidated", edit("package", func(w *Work) { *w = Work{} }), ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			works := done(plan)
			c.change(works)
			retained, must := Retain(plan, works, invalidated, someHead)
			words := []string{}
			for _, m := range must {
				kinds := []string{}
				for _, r := range m.Because {
					if kinds = append(kinds, r.Kind); r.Text == "" {
						t.Error("a reason without a text")
					}
				}
				words = append(words, m.Task+": "+strings.Join(kinds, ", "))
			}
			if got := strings.Join(words, " "); got != c.want {
				t.Errorf("got  %s\nwant %s", got, c.want)
			}
			if len(retained)+len(must)+len(invalidated) != 12 {
				t.Errorf("%d retained, %d to select, %d invalidated", len(retained), len(must), len(invalidated))
			}
		})
	}
}

func edit(id string, change func(*Work)) func(map[string]Work) {
	return func(works map[string]Work) {
		w := works[id]
		change(&w)
		works[id] = w
	}
}

func TestSelectionSuffices(t *testing.T) {
	plan := mustParse(t, planText("n", "a", "b: a", "c: b", "x", "y: x"))
	must := []MustSelect{{Task: "a"}, {Task: "b"}, {Task: "c"}}
	if got, want := Selection(plan, nil, []string{"y"}, must), []string{"a", "y"}; !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

// The model: random plans with all three kinds of edges, random histories and
// selections, compared with what the rows say, read slowly.
//
// S3.6 S3.7 S3.16 S3.17 S3.18 S3.38
func TestRerunModel(t *testing.T) {
	for seed := range uint64(1000) {
		r := rand.New(rand.NewPCG(seed, 2))
		m := randomModel(r)
		plan := mustParse(t, m.text())
		works := m.works(plan)
		consumed := map[string][]Consumed{}
		for id, w := range works {
			consumed[id] = w.Consumed
		}
		got := Invalidate(plan, consumed, m.selected)
		want := m.invalidated()
		if gotSet := set(names(got)); !reflect.DeepEqual(gotSet, want) {
			t.Fatalf("seed %d: invalidated %v, want %v\n%s", seed, gotSet, want, m.text())
		}
		if ids := names(got); !inOrder(plan, ids) || len(ids) != len(want) {
			t.Fatalf("seed %d: %v is not in the plan's order", seed, ids)
		}
		for _, i := range got {
			if cause := set(causes(i.Because)); !reflect.DeepEqual(cause, m.causes(i.Task, want)) || len(cause) != len(i.Because) {
				t.Fatalf("seed %d: %s because of %v, want %v\n%s", seed, i.Task, i.Because, m.causes(i.Task, want), m.text())
			}
		}
		retained, must := Retain(plan, works, got, someHead)
		for _, k := range retained {
			if want[k.Task] || !m.fresh(k.Task) {
				t.Fatalf("seed %d: %s is retained\n%+v", seed, k.Task, m.tasks)
			}
			if w := works[k.Task]; k.Run != w.Run || k.Commit != w.Commit || k.Baseline != someHead {
				t.Fatalf("seed %d: %+v is retained for %+v", seed, k, w)
			}
		}
		for _, k := range must {
			if want[k.Task] || m.fresh(k.Task) || len(k.Because) == 0 {
				t.Fatalf("seed %d: %s must be selected: %v\n%+v", seed, k.Task, k.Because, m.tasks)
			}
		}
		if len(retained)+len(must)+len(got) != len(m.tasks) {
			t.Fatalf("seed %d: %d retained, %d to select, %d invalidated of %d", seed, len(retained), len(must), len(got), len(m.tasks))
		}
		// With what suffices selected, nothing more must be.
		enough := Selection(plan, consumed, m.selected, must)
		if _, more := Retain(plan, works, Invalidate(plan, consumed, enough), someHead); len(more) > 0 {
			t.Fatalf("seed %d: %v does not suffice: %v", seed, enough, more)
		}
		reviews := 0
		if m.review {
			reviews = 1 + m.requirements
		}
		if got := RequiredBudget(plan, got); got != len(want)+reviews+1 {
			t.Fatalf("seed %d: budget %d", seed, got)
		}
	}
}

func set(ids []string) map[string]bool {
	s := map[string]bool{}
	for _, id := range ids {
		s[id] = true
	}
	return s
}

func causes(list []Cause) []string {
	words := make([]string, len(list))
	for i, c := range list {
		words[i] = c.Kind + " " + c.From
	}
	return words
}

func inOrder(plan *Plan, ids []string) bool {
	order := plan.Order()
	return slices.IsSortedFunc(ids, func(a, b string) int { return slices.Index(order, a) - slices.Index(order, b) })
}

// model is a plan and its history, in the words of the rows.
type model struct {
	tasks        map[string]*modelTask
	place        []string // in the file
	selected     []string
	review       bool
	requirements int
}

type modelTask struct {
	after, uses, knows map[string]bool // from which tasks
	read               map[string]bool // from which tasks it recorded to have read, beside those
	check              bool

	done, samePlan, sameInputs, checked, approved, inBaseline bool
	reviewed                                                  bool
}

func randomModel(r *rand.Rand) *model {
	m := &model{tasks: map[string]*modelTask{}, review: r.IntN(2) == 0, requirements: r.IntN(4)}
	n := 1 + r.IntN(9)
	some := func(i, of int) map[string]bool {
		s := map[string]bool{}
		for j := range i {
			if r.IntN(of) == 0 {
				s[fmt.Sprintf("t%d", j)] = true
			}
		}
		return s
	}
	mostly := func() bool { return r.IntN(12) > 0 }
	for i := range n {
		id := fmt.Sprintf("t%d", i)
		m.place = append(m.place, id)
		m.tasks[id] = &modelTask{
			after: some(i, 6), uses: some(i, 6), knows: some(i, 6), read: some(i, 20), check: r.IntN(2) == 0,
			done: mostly(), samePlan: mostly(), sameInputs: mostly(), checked: mostly(), reviewed: mostly(), approved: mostly(), inBaseline: mostly(),
		}
		if r.IntN(4) == 0 {
			m.selected = append(m.selected, id)
		}
	}
	if len(m.selected) == 0 {
		m.selected = []string{m.place[r.IntN(n)]}
	}
	r.Shuffle(n, func(i, j int) { m.place[i], m.place[j] = m.place[j], m.place[i] })
	r.Shuffle(len(m.selected), func(i, j int) { m.selected[i], m.selected[j] = m.selected[j], m.selected[i] })
	return m
}

func (m *model) text() string {
	var b strings.Builder
	b.WriteString("name = 'model'\n[[member]]\nid = 'judge'\n")
	for i := range m.requirements {
		fmt.Fprintf(&b, "[[requirement]]\nid = 'R%d'\ntext = 't'\n", i)
	}
	if m.review {
		b.WriteString("[review]\nmember = 'judge'\nrun = 'judge.sh'\n")
	}
	list := func(key, prefix string, ids map[string]bool) {
		if len(ids) > 0 {
			fmt.Fprintf(&b, "%s = [", key)
			for id := range ids {
				fmt.Fprintf(&b, "'%s%s',", prefix, id)
			}
			b.WriteString("]\n")
		}
	}
	for _, id := range m.place {
		task := m.tasks[id]
		fmt.Fprintf(&b, "[[task]]\nid = '%s'\nkind = 'deterministic'\nrun = 'x'\nproduces = {of-%s = '%s'}\n", id, id, id)
		list("after", "", task.after)
		list("uses", "of-", task.uses)
		list("knows", "", task.knows)
		if task.check {
			b.WriteString("check = 'x'\n")
		}
	}
	return b.String()
}

// works is the history as the source records it.
func (m *model) works(plan *Plan) map[string]Work {
	works := map[string]Work{}
	for id, task := range m.tasks {
		// One whose inputs are another now read what is no longer there.
		digest, commit := "now", "commit of "+id
		if !task.sameInputs {
			digest = "before"
		}
		w := Work{Done: task.done, Run: "source", Commit: commit, PlanDigest: plan.TaskDigest(id), Artifacts: map[string]string{"of-" + id: "now"}, Handover: "now"}
		for from := range task.uses {
			w.Consumed = append(w.Consumed, Consumed{EdgeArtifact, from, "of-" + from, digest})
		}
		for from := range task.knows {
			w.Consumed = append(w.Consumed, Consumed{EdgeKnowledge, from, "", digest})
		}
		for from := range task.read {
			w.Consumed = append(w.Consumed, Consumed{EdgeKnowledge, from, "", digest})
		}
		if !task.samePlan {
			w.PlanDigest = "another"
		}
		if w.CheckCommit = commit; !task.checked {
			w.CheckCommit = "another"
		}
		if w.ReviewCommit = commit; !task.reviewed {
			w.ReviewCommit = ""
		} else if !task.approved {
			w.ReviewCommit = "another"
		}
		if w.Ancestry = IsAncestor; !task.inBaseline {
			w.Ancestry = NotAncestor
		}
		works[id] = w
	}
	return works
}

// invalidated: the selected tasks, and whatever waits for, uses, knows or has
// read of an invalidated one, until nothing changes.
func (m *model) invalidated() map[string]bool {
	again := set(m.selected)
	for changed := true; changed; {
		changed = false
		for id, task := range m.tasks {
			for from := range again {
				if !again[id] && (task.after[from] || task.uses[from] || task.knows[from] || task.read[from]) {
					again[id], changed = true, true
				}
			}
		}
	}
	return again
}

// causes are the reasons of an invalidated task.
func (m *model) causes(id string, again map[string]bool) map[string]bool {
	task, all := m.tasks[id], map[string]bool{}
	if slices.Contains(m.selected, id) {
		all[CauseSelected+" "] = true
	}
	for from := range again {
		if task.after[from] {
			all["completion "+from] = true
		}
		if task.uses[from] {
			all["artifact "+from] = true
		}
		if task.knows[from] {
			all["knowledge "+from] = true
		}
		if task.read[from] && !task.knows[from] {
			all["consumed "+from] = true
		}
	}
	return all
}

// fresh says whether a task's work is finished and not stale.
func (m *model) fresh(id string) bool {
	task := m.tasks[id]
	readNothing := len(task.uses)+len(task.knows)+len(task.read) == 0
	return task.done && task.samePlan && (task.sameInputs || readNothing) && task.inBaseline &&
		(task.checked || !task.check) && (!m.review || !task.reviewed || task.approved)
}
