package rerun

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/BurntSushi/toml"

	"github.com/git-checkpoint/git-checkpoint/internal/fault"
	"github.com/git-checkpoint/git-checkpoint/internal/tomlpos"
	"github.com/git-checkpoint/git-checkpoint/refs"
)

// Fault is something wrong with a plan.
type Fault struct {
	Line    int    `json:"line"` // from 1
	Message string `json:"message"`
}

// PlanError is all that is wrong with a plan. It is fault.Invalid, with the
// code "invalid-plan".
type PlanError struct {
	Faults []Fault // by line; never empty
}

// Error has a line for each fault.
func (e *PlanError) Error() string {
	lines := make([]string, len(e.Faults))
	for i, f := range e.Faults {
		lines[i] = fmt.Sprintf("line %d: %s", f.Line, f.Message)
	}
	return strings.Join(lines, "\n")
}

// Unwrap makes errors.Is see the kind, and errors.As a fault.Error.
func (e *PlanError) Unwrap() error {
	return fault.New(fault.Invalid, "invalid-plan", "%s", e.Error()).
		WithHint("git checkpoint plan check FILE lists what is wrong with a plan")
}

// maxPlanLen bounds a plan, in bytes.
const maxPlanLen = 1 << 20

// ParsePlan reads a plan and checks it. What is wrong with it is told at
// once, as *PlanError; an error in reading is fault.Fatal.
func ParsePlan(r io.Reader) (*Plan, error) {
	data, err := io.ReadAll(io.LimitReader(r, maxPlanLen+1))
	if err != nil {
		return nil, fault.New(fault.Fatal, "io", "read a plan: %w", err)
	}
	f := &planReader{}
	text := string(data)
	var values map[string]any
	switch {
	case len(data) > maxPlanLen:
		f.fault(1, "the plan is larger than %d bytes", maxPlanLen)
	case strings.HasPrefix(text, "\xff\xfe"), strings.HasPrefix(text, "\xfe\xff"):
		f.fault(1, "the plan is UTF-16; TOML is UTF-8")
	default:
		if _, err := toml.Decode(text, &values); err != nil {
			f.syntax(text, err)
		}
	}
	if len(f.faults) > 0 {
		return nil, &PlanError{f.faults}
	}
	f.places = tomlpos.Locate(text)
	f.lines = make(map[string]int, len(f.places))
	for _, d := range f.places {
		if f.lines[d.At] == 0 {
			f.lines[d.At] = d.Line
		}
	}
	f.read(values)
	f.check()
	if len(f.faults) > 0 {
		slices.SortStableFunc(f.faults, func(a, b Fault) int { return a.Line - b.Line })
		return nil, &PlanError{f.faults}
	}
	return &f.plan, nil
}

// planReader is a plan that is being read.
type planReader struct {
	plan   Plan
	faults []Fault
	places []tomlpos.Definition
	lines  map[string]int // of each definition, by its At

	tasks, members, requirements []table // those of plan.Tasks and so on
	review                       table
}

func (f *planReader) fault(line int, format string, args ...any) {
	message := strings.Map(func(r rune) rune {
		if isControl(r) {
			return '?'
		}
		return r
	}, strings.ToValidUTF8(fmt.Sprintf(format, args...), "?"))
	f.faults = append(f.faults, Fault{max(line, 1), message})
}

// syntax tells what the parser of TOML said. Where the fault is an end of
// line, the line that it counts may be the next; its offset is right.
func (f *planReader) syntax(text string, err error) {
	var at toml.ParseError
	if !errors.As(err, &at) {
		f.fault(1, "%s", oneLine(err.Error()))
		return
	}
	line := 1 + strings.Count(text[:min(at.Position.Start, len(text))], "\n")
	f.fault(line, "%s", oneLine(strings.TrimSuffix(at.Message, ".")))
}

// oneLine makes what the parser of TOML said a message of ours.
func oneLine(message string) string {
	message = strings.Join(strings.Fields(message), " ")
	if message == "" {
		return "it is no TOML"
	}
	return strings.ToLower(message[:1]) + message[1:]
}

// line is where a place in the file is defined; outer where it is not.
func (f *planReader) line(at string, outer int) int {
	if n := f.lines[at]; n > 0 {
		return n
	}
	for _, d := range f.places { // a table that only its keys define
		if strings.HasPrefix(d.At, at+".") || strings.HasPrefix(d.At, at+"[") {
			return d.Line
		}
	}
	return outer
}

// The keys of each table.
var (
	planKeys        = []string{"name", "approval", "verify", "member", "requirement", "review", "task"}
	memberKeys      = []string{"id", "provider", "model", "effort"}
	requirementKeys = []string{"id", "text"}
	reviewKeys      = []string{"member", "run"}
	taskKeys        = []string{
		"id", "kind", "member", "run", "instructions", "acceptance", "check", "proof", "probe", "contract",
		"produces", "uses", "owns", "after", "knows", "repairs", "timeout_minutes",
	}
)

func (f *planReader) read(values map[string]any) {
	top := table{file: f, line: 1, values: values}
	top.known(planKeys)
	p := &f.plan
	p.Members, p.Requirements, p.Tasks = []Member{}, []Requirement{}, []Task{}
	p.Name = top.word("name", true)
	p.Verify = top.text("verify", false)
	if p.Approval = top.text("approval", false); p.Approval == "" {
		p.Approval = ApprovalAuto
	}
	f.members = top.tables("member")
	for _, t := range f.members {
		t.known(memberKeys)
		p.Members = append(p.Members, Member{
			ID: t.word("id", true), Provider: t.word("provider", false), Model: t.word("model", false), Effort: t.word("effort", false),
		})
	}
	f.requirements = top.tables("requirement")
	for _, t := range f.requirements {
		t.known(requirementKeys)
		p.Requirements = append(p.Requirements, Requirement{ID: t.word("id", true), Text: t.text("text", true)})
	}
	if t, ok := top.table("review"); ok {
		t.known(reviewKeys)
		f.review = t
		p.Review = &Review{Member: t.word("member", true), Run: t.text("run", true)}
	}
	f.tasks = top.tables("task")
	if _, ok := values["task"]; !ok {
		f.fault(1, "the plan has no task")
	}
	for _, t := range f.tasks {
		p.Tasks = append(p.Tasks, f.task(t))
	}
}

func (f *planReader) task(t table) Task {
	t.known(taskKeys)
	return Task{
		ID: t.word("id", true), Kind: t.word("kind", true), Member: t.word("member", t.values["kind"] == KindAgent), Run: t.text("run", true),
		Instructions: t.text("instructions", false), Acceptance: t.text("acceptance", false),
		Check: t.text("check", false), Proof: t.text("proof", false), Probe: t.text("probe", false),
		Contract: t.text("contract", false), Produces: t.texts("produces"),
		Uses: t.list("uses"), Owns: t.list("owns"), After: t.list("after"), Knows: t.list("knows"),
		Repairs: t.number("repairs", 0, 1000), TimeoutMinutes: t.number("timeout_minutes", 1, 366*24*60),
		Line: t.line,
	}
}

// table is a table of the file.
type table struct {
	file   *planReader
	what   string // "task 'design'"; empty: the top
	at     string
	line   int
	values map[string]any
}

// place is where a key of the table stands, and its line.
func (t table) place(key string) (at string, line int) {
	at = tomlpos.Join(t.at, key)
	return at, t.file.line(at, t.line)
}

// fault tells what is wrong with a key, or with the table where it has none
// of that name.
func (t table) fault(key, format string, args ...any) {
	_, line := t.place(key)
	message := fmt.Sprintf(format, args...)
	if t.what != "" {
		message = t.what + ": " + message
	}
	t.file.fault(line, "%s", message)
}

func (t table) known(keys []string) {
	for _, key := range slices.Sorted(maps.Keys(t.values)) {
		if slices.Contains(keys, key) {
			continue
		}
		t.fault(key, "unknown key %s%s", quoted(key), nearest(key, keys))
	}
}

// nearest ends a message with the known name that may be meant.
func nearest(name string, names []string) string {
	if near := refs.Nearest(name, names); near != "" {
		return "; did you mean '" + near + "'?"
	}
	return ""
}

// text returns a string of any number of lines.
func (t table) text(key string, required bool) string {
	value, ok := t.values[key]
	s, isString := value.(string)
	switch {
	case !ok && required:
		t.fault(key, "'%s' is missing", key)
	case !ok:
	case !isString:
		t.fault(key, "'%s' must be a string, and is %s", key, typeName(value))
	case required && strings.TrimSpace(s) == "":
		t.fault(key, "'%s' is empty", key)
	case strings.Contains(s, "\x00"):
		t.fault(key, "'%s' holds a NUL byte", key)
	}
	return s
}

// word returns a string of one line.
func (t table) word(key string, required bool) string {
	s := t.text(key, required)
	if !strings.Contains(s, "\x00") && strings.ContainsFunc(s, isControl) {
		t.fault(key, "'%s' holds a control character", key)
	}
	return s
}

func (t table) number(key string, least, most int64) int {
	value, ok := t.values[key]
	n, isInteger := value.(int64)
	switch {
	case !ok:
	case !isInteger:
		t.fault(key, "'%s' must be an integer, and is %s", key, typeName(value))
	case n < least || n > most:
		t.fault(key, "'%s' must be from %d to %d, and is %d", key, least, most, n)
	default:
		return int(n)
	}
	return 0
}

// list returns a list of strings; those that are none are told and left out.
func (t table) list(key string) []string {
	value, ok := t.values[key]
	if !ok {
		return nil
	}
	elements, ok := elements(value)
	if !ok {
		t.fault(key, "'%s' must be an array of strings, and is %s", key, typeName(value))
		return nil
	}
	var list []string
	for _, e := range elements {
		s, ok := e.(string)
		switch {
		case !ok:
			t.fault(key, "'%s' must be an array of strings, and holds %s", key, typeName(e))
		case s == "":
			t.fault(key, "'%s' holds an empty string", key)
		case slices.Contains(list, s):
			t.fault(key, "'%s' holds %s twice", key, quoted(s))
		default:
			list = append(list, s)
		}
	}
	return list
}

// texts returns a table of strings.
func (t table) texts(key string) map[string]string {
	inner, ok := t.table(key)
	if !ok {
		return nil
	}
	texts := map[string]string{}
	for _, name := range slices.Sorted(maps.Keys(inner.values)) {
		value := inner.values[name]
		s, ok := value.(string)
		if !ok {
			inner.what = t.what
			inner.fault(name, "%s must be a string, and is %s", quoted(key+"."+name), typeName(value))
		}
		texts[name] = s // also where it is none: the name is known
	}
	return texts
}

func (t table) table(key string) (table, bool) {
	value, ok := t.values[key]
	if !ok {
		return table{}, false
	}
	values, ok := value.(map[string]any)
	if !ok {
		t.fault(key, "'%s' must be a table, and is %s", key, typeName(value))
		return table{}, false
	}
	at, line := t.place(key)
	return table{file: t.file, what: key, at: at, line: line, values: values}, true
}

// tables returns the tables of an array.
func (t table) tables(key string) []table {
	value, ok := t.values[key]
	if !ok {
		return nil
	}
	elements, ok := elements(value)
	if !ok {
		t.fault(key, "'%s' must be an array of tables, [[%s]], and is %s", key, key, typeName(value))
		return nil
	}
	at, outer := t.place(key)
	if len(elements) == 0 && key == "task" {
		t.fault(key, "the plan has no task")
	}
	var list []table
	for i, e := range elements {
		values, ok := e.(map[string]any)
		if !ok {
			t.fault(key, "'%s' must be an array of tables, and holds %s", key, typeName(e))
			continue
		}
		at := tomlpos.Element(at, i)
		what := fmt.Sprintf("%s %d", key, i+1)
		if id, ok := values["id"].(string); ok && id != "" {
			what = key + " " + quoted(id)
		}
		list = append(list, table{file: t.file, what: what, at: at, line: t.file.line(at, outer), values: values})
	}
	return list
}

// elements returns those of an array of any kind.
func elements(value any) ([]any, bool) {
	switch list := value.(type) {
	case []any:
		return list, true
	case []map[string]any:
		all := make([]any, len(list))
		for i := range list {
			all[i] = list[i]
		}
		return all, true
	}
	return nil, false
}

func typeName(value any) string {
	switch value.(type) {
	case string:
		return "a string"
	case int64:
		return "an integer"
	case float64:
		return "a float"
	case bool:
		return "a boolean"
	case map[string]any:
		return "a table"
	case []map[string]any:
		return "an array of tables"
	case []any:
		return "an array"
	}
	return "a date or time"
}
