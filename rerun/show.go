package rerun

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Draw draws a plan as text, as git draws history: each task after those that
// it depends on, with lines that lead from one to the next. Lines that follow
// from others are left out; below each task stands all that it waits for. A
// plan of more than a thousand tasks, which nobody could follow, has no lines.
func Draw(p *Plan) string {
	d := &drawing{}
	var next map[string][]string
	if len(p.Tasks) <= maxDrawn {
		next = p.reduced()
	}
	for _, id := range p.Order() {
		column := d.join(id)
		d.task(p, p.Task(id), column, len(next[id]) > 0)
		d.fork(column, next[id])
	}
	return d.text.String()
}

// maxDrawn is how many tasks are drawn with lines between them.
const maxDrawn = 1000

// reduced returns the tasks that depend on each, without those that depend on
// it by way of another, in the order of the plan.
func (p *Plan) reduced() map[string][]string {
	order := p.Order()
	direct := map[string]map[string]bool{}
	for _, e := range p.Edges() {
		if direct[e.From] == nil {
			direct[e.From] = map[string]bool{}
		}
		direct[e.From][e.To] = true
	}
	after := map[string]map[string]bool{} // all that depend on each
	next := map[string][]string{}
	for _, id := range slices.Backward(order) {
		after[id] = map[string]bool{}
		// In their order, so that a way through another is seen first.
		for _, to := range order {
			if direct[id][to] && !after[id][to] {
				next[id] = append(next[id], to)
				after[id][to] = true
				maps.Copy(after[id], after[to])
			}
		}
	}
	return next
}

// drawing is a graph that is being drawn.
type drawing struct {
	text    strings.Builder
	columns []string // of each line, the task that it leads to
	ended   int      // 1 + the column in which a task that leads nowhere was the last thing drawn
}

// row writes a line of the drawing. Cells are two wide: the line of a column,
// and what is to the right of it.
func (d *drawing) row(cells []byte, label string) {
	d.text.WriteString(strings.TrimRight(string(cells)+label, " ") + "\n")
}

// lines are the cells of all columns.
func (d *drawing) lines() []byte {
	return []byte(strings.Repeat("| ", len(d.columns)))
}

// join brings all lines that lead to a task together, and returns their
// column. A task that none leads to gets a column at the right.
func (d *drawing) join(id string) int {
	column := slices.Index(d.columns, id)
	if column < 0 {
		if column = len(d.columns); d.ended == column+1 {
			d.row(d.lines(), "") // so that it does not seem to follow from that one
		}
		d.columns = append(d.columns, id)
		return column
	}
	for i := column + 1; i < len(d.columns); i++ {
		if d.columns[i] != id {
			continue
		}
		cells := d.lines()
		for j := column; j < i-1; j++ {
			cells[2*j+1] = '_'
		}
		d.shiftLeft(cells, i)
		d.row(cells, "")
		d.columns = slices.Delete(d.columns, i, i+1)
		i--
	}
	return column
}

// shiftLeft draws the columns from i on as moving one place to the left.
func (d *drawing) shiftLeft(cells []byte, i int) {
	for ; i < len(d.columns); i++ {
		cells[2*i-1], cells[2*i] = '/', ' '
	}
}

// task writes a task at its column, and what there is to say of it below.
func (d *drawing) task(p *Plan, t *Task, column int, leads bool) {
	cells := d.lines()
	cells[2*column] = '*'
	d.row(cells, title(p, t))
	if cells[2*column] = '|'; !leads {
		cells[2*column] = ' '
	}
	for _, line := range details(p, t) {
		d.row(cells, "  "+line)
	}
}

// fork leads from a task to those that follow.
func (d *drawing) fork(column int, next []string) {
	d.ended = 0
	if len(next) == 0 {
		if column == len(d.columns)-1 {
			d.ended = column + 1
		} else {
			cells := d.lines()
			cells[2*column] = ' '
			d.shiftLeft(cells, column+1)
			d.row(cells, "")
		}
		d.columns = slices.Delete(d.columns, column, column+1)
		return
	}
	d.columns[column] = next[0]
	for i, to := range next[1:] {
		from := column + i
		cells := append(d.lines(), ' ')
		for j := from + 1; j < len(d.columns); j++ {
			cells[2*j], cells[2*j+1] = ' ', '\\'
		}
		cells[2*from+1] = '\\'
		d.row(cells, "")
		d.columns = slices.Insert(d.columns, from+1, to)
	}
}

// title is a task in one line: its kind, and who does it with what.
func title(p *Plan, t *Task) string {
	s := t.ID + ": " + t.Kind
	m := p.Member(t.Member)
	if m == nil {
		return s
	}
	s += ", by " + m.ID
	with := slices.DeleteFunc([]string{m.Provider, m.Model, m.Effort}, func(s string) bool { return s == "" })
	if len(with) > 0 {
		s += " (" + strings.Join(with, " ") + ")"
	}
	return s
}

// details are what a task waits for, and what it produces.
func details(p *Plan, t *Task) []string {
	var lines []string
	if len(t.After) > 0 {
		lines = append(lines, "after "+strings.Join(t.After, ", "))
	}
	for _, name := range t.Uses {
		if producer := p.Producer(name); producer != nil {
			lines = append(lines, fmt.Sprintf("uses %s of %s", name, producer.ID))
		}
	}
	if len(t.Knows) > 0 {
		lines = append(lines, "knows "+strings.Join(t.Knows, ", "))
	}
	for _, name := range slices.Sorted(maps.Keys(t.Produces)) {
		lines = append(lines, fmt.Sprintf("produces %s: %s", name, t.Produces[name]))
	}
	return lines
}
