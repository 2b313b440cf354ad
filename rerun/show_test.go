package rerun

import (
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"
)

func TestDraw(t *testing.T) {
	for _, c := range []struct {
		name  string
		tasks []string
		want  string
	}{
		{"a line", []string{"a", "b: a", "c: a b"}, `
* a
* b
|   after a
* c
    after a, b
`},
		{"nothing in common", []string{"a", "b", "c"}, `
* a

* b

* c
`},
		{"a diamond", []string{"a", "b: a", "c: a", "d: b c"}, `
* a
|\
* | b
| |   after a
| * c
| |   after a
|/
* d
    after b, c
`},
		{"a line ends beside another", []string{"a", "b: a", "c: a", "d: c"}, `
* a
|\
* | b
  |   after a
 /
* c
|   after a
* d
    after c
`},
		{"lines cross", []string{"a", "b: a", "c: a", "d: a", "e: b d", "f: c"}, `
* a
|\
| |\
* | | b
| | |   after a
| * | c
| | |   after a
| | * d
| | |   after a
|_|/
* | e
  |   after b, d
 /
* f
    after c
`},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := strings.ReplaceAll(Draw(mustParse(t, planText("n", c.tasks...))), ": deterministic", "")
			if "\n"+got != c.want {
				t.Errorf("got\n%s\nwant%s", got, c.want)
			}
		})
	}
}

func TestDrawMany(t *testing.T) {
	tasks := []string{"a"}
	for i := range maxDrawn {
		tasks = append(tasks, fmt.Sprintf("t%d: a", i))
	}
	if got := Draw(mustParse(t, planText("n", tasks...))); strings.Contains(got, "|") || strings.Count(got, "* ") != maxDrawn+1 {
		t.Errorf("%.200s", got)
	}
}

// The drawing of the twelve tasks, as a person has checked it.
func TestDrawTwelve(t *testing.T) {
	want, err := os.ReadFile("../testdata/plans/twelve.txt")
	if err != nil {
		t.Fatal(err)
	}
	if got := Draw(example(t, "twelve")); got != string(want) {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

// Whoever follows the lines of a drawing finds the graph.
func TestDrawingIsTheGraph(t *testing.T) {
	for seed := range uint64(400) {
		r := rand.New(rand.NewPCG(seed, 1))
		n := 1 + r.IntN(12)
		var tasks []string
		for i := range n {
			task := fmt.Sprintf("t%d:", i)
			for j := range i {
				if r.IntN(4) == 0 {
					task += fmt.Sprintf(" t%d", j)
				}
			}
			tasks = append(tasks, strings.TrimSuffix(task, ":"))
		}
		p := mustParse(t, planText("n", tasks...))
		text := Draw(p)
		got, err := follow(text)
		want := slowReduction(p)
		slices.Sort(got)
		slices.Sort(want)
		if err != nil || !slices.Equal(got, want) {
			t.Fatalf("seed %d: %v\n%v\ngot  %v\nwant %v\n%s", seed, err, tasks, got, want, text)
		}
	}
}

// slowReduction is every edge that no other path makes needless: "from>to".
func slowReduction(p *Plan) []string {
	var reaches func(from, to string, direct bool) bool
	reaches = func(from, to string, direct bool) bool {
		for _, e := range p.Edges() {
			if e.From == from && (e.To == to && direct || e.To != to && reaches(e.To, to, true)) {
				return true
			}
		}
		return false
	}
	var edges []string
	for _, e := range p.Edges() {
		if !reaches(e.From, e.To, false) {
			edges = append(edges, e.From+">"+e.To)
		}
	}
	return edges
}

// follow reads a drawing as a person does: at each place of a row stands a
// line, and it goes on to the place below, or aside.
func follow(text string) ([]string, error) {
	var edges []string
	at := map[int][]string{} // the tasks that the line at a place comes from
	for row := range strings.Lines(text) {
		row = strings.TrimRight(row, "\n")
		if i := strings.Index(row, "  after"); i >= 0 {
			row = row[:i]
		}
		label := ""
		if i := strings.Index(row, " t"); i >= 0 {
			row, label = row[:i+1], strings.TrimSuffix(row[i+1:], ": deterministic")
		}
		next := map[int][]string{}
		add := func(place int, from []string) {
			next[place] = append(slices.Clone(next[place]), from...)
		}
		for i := 0; i < len(row); i++ {
			switch place := i / 2; row[i] {
			case '*':
				for _, from := range at[place] {
					edges = append(edges, from+">"+label)
				}
				add(place, []string{label})
			case '|':
				if at[place] == nil {
					return nil, fmt.Errorf("a line from nowhere in %q", row)
				}
				add(place, at[place])
			case '\\':
				if at[place] == nil {
					return nil, fmt.Errorf("a line from nowhere in %q", row)
				}
				add(place+1, at[place])
			case '/':
				to := place
				for to > 0 && row[2*to-1] == '_' {
					to--
				}
				if at[place+1] == nil {
					return nil, fmt.Errorf("a line from nowhere in %q", row)
				}
				add(to, at[place+1])
			}
		}
		at = next
	}
	return edges, nil
}
