package rerun

import (
	"fmt"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"
	"unicode"
)

// check finds what is wrong with a plan whose keys were read.
func (f *planReader) check() {
	p := &f.plan
	if p.Approval != ApprovalAuto && p.Approval != ApprovalHeld {
		f.fault(f.line("approval", 1), "'approval' must be auto or held, and is %s", quoted(p.Approval))
	}
	members := f.ids(f.members, func(i int) string { return p.Members[i].ID })
	requirements := f.ids(f.requirements, func(i int) string { return p.Requirements[i].ID })
	if i, ok := requirements[ReviewAcceptance]; ok {
		f.requirements[i].fault("id", "the id '%s' stands for the review of the tasks' acceptance", ReviewAcceptance)
	}
	tasks := f.ids(f.tasks, func(i int) string { return p.Tasks[i].ID })
	if r := p.Review; r != nil {
		f.reference(f.review, "member", "member", r.Member, members)
	}
	producers := f.producers()
	for i := range p.Tasks {
		f.checkTask(i, members)
		f.checkEdges(i, tasks, producers)
	}
	f.cycles(tasks, producers)
}

// ReviewAcceptance is what CHECKPOINT_REVIEW says in the review of the
// acceptance of the executed tasks. In the others it is a requirement's id.
const ReviewAcceptance = "acceptance"

// ids checks the ids of tables, and returns which table has which. A second
// one of an id is told, and not returned.
func (f *planReader) ids(tables []table, id func(int) string) map[string]int {
	first := map[string]int{}
	for i, t := range tables {
		s := id(i)
		if s == "" || strings.TrimSpace(s) == "" {
			continue // told as missing
		}
		if !isID(s) && !strings.ContainsFunc(s, isControl) {
			t.fault("id", "the id must be 1 to 64 letters, digits, '.', '_' and '-', the first a letter or digit")
		}
		if j, ok := first[s]; ok {
			_, line := tables[j].place("id")
			t.fault("id", "the id is taken, by the one in line %d", line)
			continue
		}
		first[s] = i
	}
	return first
}

// isID says whether s matches [A-Za-z0-9][A-Za-z0-9._-]{0,63}.
func isID(s string) bool {
	for i := range len(s) {
		c := s[i]
		alnum := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9'
		if !alnum && (i == 0 || c != '.' && c != '_' && c != '-') {
			return false
		}
	}
	return s != "" && len(s) <= 64
}

// reference tells an id that is unknown.
func (f *planReader) reference(t table, key, what, id string, known map[string]int) bool {
	if strings.TrimSpace(id) == "" {
		return false // told as missing
	}
	if _, ok := known[id]; !ok {
		t.fault(key, "'%s' names the unknown %s %s%s", key, what, quoted(id), nearest(id, slices.Sorted(maps.Keys(known))))
		return false
	}
	return true
}

// producers returns which task produces which artifact.
func (f *planReader) producers() map[string]int {
	first := map[string]int{}
	for i, t := range f.tasks {
		produces := f.plan.Tasks[i].Produces
		for _, name := range slices.Sorted(maps.Keys(produces)) {
			inner, _ := t.table("produces")
			inner.what = t.what
			if !isID(name) {
				inner.fault(name, "the artifact name %s must be 1 to 64 letters, digits, '.', '_' and '-', the first a letter or digit", quoted(name))
			}
			if _, isString := inner.values[name].(string); isString {
				if why := checkPath(produces[name]); why != "" {
					inner.fault(name, "the path %s of the artifact %s %s", quoted(produces[name]), quoted(name), why)
				}
			}
			if j, ok := first[name]; ok {
				inner.fault(name, "the artifact %s is produced by %s already", quoted(name), f.tasks[j].what)
				continue
			}
			first[name] = i
		}
	}
	return first
}

func (f *planReader) checkTask(i int, members map[string]int) {
	task, t := &f.plan.Tasks[i], f.tasks[i]
	kinds := []string{KindAgent, KindDeterministic, KindDelivery}
	if strings.TrimSpace(task.Kind) != "" && !slices.Contains(kinds, task.Kind) {
		t.fault("kind", "'kind' must be agent, deterministic or delivery, and is %s%s", quoted(task.Kind), nearest(task.Kind, kinds))
	}
	f.reference(t, "member", "member", task.Member, members)
	if r := f.plan.Review; r != nil && r.Member != "" && task.Member == r.Member {
		t.fault("member", "the reviewer %s must not be an author", quoted(r.Member))
	}
	if task.Probe != "" && slices.Contains(kinds[:2], task.Kind) {
		t.fault("probe", "'probe' is for a delivery only, and this task is %s", quoted(task.Kind))
	}
	if task.Contract != "" {
		if why := checkPath(task.Contract); why != "" {
			t.fault("contract", "the path %s of 'contract' %s", quoted(task.Contract), why)
		}
	}
	for _, glob := range task.Owns {
		if why := checkGlob(glob); why != "" {
			t.fault("owns", "the pattern %s of 'owns' %s", quoted(glob), why)
		}
	}
}

func (f *planReader) checkEdges(i int, tasks, producers map[string]int) {
	task, t := &f.plan.Tasks[i], f.tasks[i]
	for _, l := range []struct {
		key, what string
		ids       []string
		known     map[string]int
	}{
		{"after", "task", task.After, tasks},
		{"uses", "artifact", task.Uses, producers},
		{"knows", "task", task.Knows, tasks},
	} {
		for _, id := range l.ids {
			if _, ok := l.known[id]; !ok && l.key == "uses" {
				t.fault("uses", "no task produces the artifact %s%s", quoted(id), nearest(id, slices.Sorted(maps.Keys(producers))))
				continue
			}
			if f.reference(t, l.key, l.what, id, l.known) && l.known[id] == i {
				t.fault(l.key, "it waits for itself: '%s' names %s", l.key, quoted(id))
			}
		}
	}
}

// checkPath says what is wrong with a path in the tree: nothing, if it is "".
func checkPath(p string) string {
	switch {
	case strings.TrimSpace(p) == "":
		return "is empty"
	case strings.ContainsFunc(p, isControl):
		return "holds a control character"
	case strings.Contains(p, `\`):
		return "holds a '\\'; folders end in '/'"
	case strings.HasPrefix(p, "/"), len(p) > 1 && p[1] == ':':
		return "must be relative to the top of the tree"
	}
	if why := checkParts(p); why != "" {
		return why
	}
	if clean := path.Clean(p); clean != p || clean == "." {
		return "must be written without '.', '//' and a final '/'"
	}
	return ""
}

// checkGlob says what is wrong with a pattern of paths, of the kind that
// gitignore has: '*' and '?' stop at '/', '**' does not, [a-z] is one of a
// range; a pattern with a '/' before its end is for the whole path, one
// without for the last part of it. What it matches holds for all that is in
// there. A '!' that takes back what others match does not exist.
func checkGlob(glob string) string {
	switch {
	case strings.Trim(glob, "/ ") == "":
		return "is empty"
	case strings.ContainsFunc(glob, isControl):
		return "holds a control character"
	case strings.HasPrefix(glob, "!"):
		return "begins with '!', which takes nothing back here"
	case strings.Contains(glob, "//"):
		return "holds '//', which nothing matches"
	}
	if why := checkParts(glob); why != "" {
		return why
	}
	for part := range strings.SplitSeq(glob, "/") {
		if part == "." {
			return "holds a '.' part, which nothing matches"
		}
		if _, err := path.Match(strings.ReplaceAll(part, "[!", "[^"), ""); err != nil {
			return "is no pattern: a '[' or '\\' is not ended"
		}
	}
	return ""
}

// pathspecs writes a pattern that checkGlob has accepted as git's pathspecs,
// which do not look into deeper folders by themselves, and match what is in a
// folder only where it is written out.
func pathspecs(glob string) []string {
	inside := strings.HasSuffix(glob, "/")
	glob = strings.TrimSuffix(glob, "/")
	if rest, anchored := strings.CutPrefix(glob, "/"); anchored {
		glob = rest
	} else if !strings.Contains(glob, "/") {
		glob = "**/" + glob
	}
	if inside && strings.HasSuffix(glob, "**") {
		glob += "/*" // a folder, not what is beside it
	}
	if inside {
		return []string{glob + "/**"}
	}
	return []string{glob, glob + "/**"}
}

func checkParts(p string) string {
	for part := range strings.SplitSeq(p, "/") {
		switch {
		case part == "..":
			return "leaves the tree"
		case strings.EqualFold(part, ".git"):
			return "is in git's own folder"
		}
	}
	return ""
}

// cycles tells cycles over all kinds of edges. The shortest through every
// edge that is in one is found, so that nobody mends one to meet the next.
func (f *planReader) cycles(tasks, producers map[string]int) {
	g := newDigraph(len(f.plan.Tasks))
	for i := range f.plan.Tasks {
		t := &f.plan.Tasks[i]
		add := func(ids []string, known map[string]int, key string) {
			for _, id := range ids {
				if from, ok := known[id]; ok && from != i {
					g.add(from, i, key)
				}
			}
		}
		add(t.After, tasks, "after")
		add(t.Uses, producers, "uses")
		add(t.Knows, tasks, "knows")
	}
	for _, cycle := range g.cycles() {
		first := cycle[0]
		key := g.keys[[2]int{cycle[len(cycle)-1], first}]
		ids := make([]string, len(cycle), len(cycle)+1)
		for i, n := range cycle {
			ids[i] = quotedID(f.plan.Tasks[n].ID)
		}
		_, line := f.tasks[first].place(key)
		f.fault(line, "the tasks wait for each other: %s", strings.Join(append(ids, ids[0]), " -> "))
	}
}

// maxCycles is how many cycles are told: the rest is seen when those are mended.
const maxCycles = 20

// digraph is a graph of numbers.
type digraph struct {
	next [][]int
	keys map[[2]int]string // of each edge, the first key that made it
}

func newDigraph(n int) *digraph {
	return &digraph{next: make([][]int, n), keys: map[[2]int]string{}}
}

func (g *digraph) add(from, to int, key string) {
	edge := [2]int{from, to}
	if _, ok := g.keys[edge]; !ok {
		g.keys[edge] = key
		g.next[from] = append(g.next[from], to)
	}
}

// cycles returns a shortest cycle through every edge that is in one, each
// beginning with its least number; no edge's twice.
func (g *digraph) cycles() [][]int {
	part := g.components()
	covered := map[[2]int]bool{}
	var found [][]int
	for from, next := range g.next {
		for _, to := range next {
			if part[from] != part[to] || covered[[2]int{from, to}] {
				continue
			}
			cycle := g.path(to, from, part)
			for i, n := range cycle {
				covered[[2]int{n, cycle[(i+1)%len(cycle)]}] = true
			}
			least := slices.Index(cycle, slices.Min(cycle))
			if found = append(found, append(cycle[least:len(cycle):len(cycle)], cycle[:least]...)); len(found) == maxCycles {
				return found
			}
		}
	}
	return found
}

// path returns the shortest path between two of a component, both included.
func (g *digraph) path(from, to int, part []int) []int {
	before := map[int]int{from: -1}
	for queue := []int{from}; len(queue) > 0; queue = queue[1:] {
		n := queue[0]
		if n == to {
			break
		}
		for _, m := range g.next[n] {
			if _, seen := before[m]; !seen && part[m] == part[from] {
				before[m] = n
				queue = append(queue, m)
			}
		}
	}
	var path []int
	for n := to; n >= 0; n = before[n] {
		path = append(path, n)
	}
	slices.Reverse(path)
	return path
}

// components returns of each node the number of its strongly connected
// component, by Tarjan's algorithm.
func (g *digraph) components() []int {
	n := len(g.next)
	part, index, low := make([]int, n), make([]int, n), make([]int, n)
	for i := range part {
		part[i] = -1
	}
	var stack []int
	count, parts := 0, 0
	var visit func(int)
	visit = func(v int) {
		count++
		index[v], low[v] = count, count
		stack = append(stack, v)
		for _, w := range g.next[v] {
			switch {
			case index[w] == 0:
				visit(w)
				low[v] = min(low[v], low[w])
			case part[w] < 0:
				low[v] = min(low[v], index[w])
			}
		}
		if low[v] != index[v] {
			return
		}
		for {
			w := stack[len(stack)-1]
			stack = stack[:len(stack)-1]
			part[w] = parts
			if w == v {
				parts++
				return
			}
		}
	}
	for v := range n {
		if index[v] == 0 {
			visit(v)
		}
	}
	return part
}

func isControl(r rune) bool {
	return unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r) || r == '\u2028' || r == '\u2029'
}

// quoted writes a text of any origin into a message.
func quoted(s string) string {
	const most = 100
	if len(s) > most {
		s = strings.ToValidUTF8(s[:most], "") + "…"
	}
	if strings.ContainsFunc(s, isControl) || strings.Contains(s, "'") {
		return strconv.Quote(s)
	}
	return "'" + s + "'"
}

// quotedID is quoted where an id is none.
func quotedID(id string) string {
	if isID(id) {
		return id
	}
	return fmt.Sprint(quoted(id))
}
