package rerun

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/git-checkpoint/git-checkpoint/internal/fault"
)

// Request asks for a rerun of tasks of a finished run. Its JSON is public
// (PLANS.md §3).
type Request struct {
	ExpectedHead string            `json:"expectedHead"` // the integration commit that was looked at
	TaskIDs      []string          `json:"taskIds"`
	Instructions map[string]string `json:"instructions,omitempty"` // of selected tasks, in place of the plan's
	Budget       Budget            `json:"budget"`
}

// The bounds of a request.
const (
	MinSelected, MaxSelected = 1, 24
	MinCalls, MaxCalls       = 4, 200
	MinMinutes, MaxMinutes   = 1, 720
)

// maxRequestLen bounds a request, in bytes.
const maxRequestLen = 1 << 20

// ParseRequest reads a request, and checks what can be checked without its
// plan. Nothing but the fields of Request is taken, each once and in its own
// type. The error is fault.Invalid and names the field.
func ParseRequest(r io.Reader) (*Request, error) {
	data, err := io.ReadAll(io.LimitReader(r, maxRequestLen+1))
	switch {
	case err != nil:
		return nil, fault.New(fault.Fatal, "io", "read a rerun request: %w", err)
	case len(data) > maxRequestLen:
		return nil, invalidRequest("it is larger than %d bytes", maxRequestLen)
	case !utf8.Valid(data):
		return nil, invalidRequest("it is not UTF-8")
	}
	q := &Request{}
	if err := q.decode(data); err != nil {
		return nil, err
	}
	return q, q.valid()
}

func invalidRequest(format string, args ...any) *fault.Error {
	return fault.New(fault.Invalid, "invalid-request", "read a rerun request: "+format, args...).
		WithHint(`a request is {"expectedHead": ID, "taskIds": [TASK], "instructions": {TASK: TEXT}, "budget": {"maxSteps": N, "maxInvocations": N, "maxMinutes": N}}`)
}

func (q *Request) decode(data []byte) error {
	members, err := jsonObject("", data)
	if err != nil {
		return err
	}
	return fields("", members, []field{
		{"expectedHead", true, textInto(&q.ExpectedHead)},
		{"taskIds", true, func(name string, raw json.RawMessage) error {
			var elements []json.RawMessage
			if err := typed(name, raw, "an array of strings", &elements); err != nil {
				return err
			}
			q.TaskIDs = make([]string, len(elements))
			for i, e := range elements {
				if err := textInto(&q.TaskIDs[i])(name+"["+strconv.Itoa(i)+"]", e); err != nil {
					return err
				}
			}
			return nil
		}},
		{"instructions", false, func(name string, raw json.RawMessage) error {
			members, err := jsonObject(name, raw)
			q.Instructions = map[string]string{}
			for _, m := range members {
				var text string
				if err := textInto(&text)(name+"."+m.key, m.value); err != nil {
					return err
				}
				q.Instructions[m.key] = text
			}
			return err
		}},
		{"budget", true, func(name string, raw json.RawMessage) error {
			members, err := jsonObject(name, raw)
			if err != nil {
				return err
			}
			return fields(name+".", members, []field{
				{"maxSteps", true, numberInto(&q.Budget.MaxSteps)},
				{"maxInvocations", true, numberInto(&q.Budget.MaxInvocations)},
				{"maxMinutes", true, numberInto(&q.Budget.MaxMinutes)},
			})
		}},
	})
}

// field is one that an object may have.
type field struct {
	name     string
	required bool
	decode   func(name string, raw json.RawMessage) error
}

// fields decodes the members of an object, all of which must be known.
func fields(prefix string, members []jsonMember, known []field) error {
	names := make([]string, len(known))
	for i, f := range known {
		names[i] = f.name
	}
	for _, m := range members {
		if !slices.Contains(names, m.key) {
			return invalidRequest("unknown field %s%s", quoted(prefix+m.key), nearest(m.key, names))
		}
	}
	for _, f := range known {
		i := slices.IndexFunc(members, func(m jsonMember) bool { return m.key == f.name })
		if i < 0 && f.required {
			return invalidRequest("%s is missing", quoted(prefix+f.name))
		}
		if i >= 0 {
			if err := f.decode(prefix+f.name, members[i].value); err != nil {
				return err
			}
		}
	}
	return nil
}

type jsonMember struct {
	key   string
	value json.RawMessage
}

// jsonObject splits a JSON object into its members. name is what it is called;
// empty: the whole request.
func jsonObject(name string, data []byte) ([]jsonMember, error) {
	what := "the request"
	if name != "" {
		what = quoted(name)
	}
	broken := func(err error) error {
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		return invalidRequest("%s is no JSON: %w", what, err)
	}
	d := json.NewDecoder(bytes.NewReader(data))
	first, err := d.Token()
	if err != nil {
		return nil, broken(err)
	}
	if first != json.Delim('{') {
		return nil, invalidRequest("%s must be an object, and is %s", what, jsonType(data))
	}
	var members []jsonMember
	for d.More() {
		key, err := d.Token()
		if err != nil {
			return nil, broken(err)
		}
		m := jsonMember{key: key.(string)} // the decoder takes nothing else for a key
		if err := d.Decode(&m.value); err != nil {
			return nil, broken(err)
		}
		if slices.ContainsFunc(members, func(o jsonMember) bool { return o.key == m.key }) {
			return nil, invalidRequest("%s stands twice", quoted(strings.TrimPrefix(name+"."+m.key, ".")))
		}
		members = append(members, m)
	}
	if _, err := d.Token(); err != nil {
		return nil, broken(err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil, invalidRequest("something follows %s", what)
	}
	return members, nil
}

// typed decodes a value that must be of the wanted type. null is of none.
func typed(name string, raw json.RawMessage, want string, into any) error {
	if err := json.Unmarshal(raw, into); err != nil || jsonType(raw) == "null" {
		return invalidRequest("%s must be %s, and is %s", quoted(name), want, jsonType(raw))
	}
	return nil
}

func textInto(s *string) func(string, json.RawMessage) error {
	return func(name string, raw json.RawMessage) error { return typed(name, raw, "a string", s) }
}

func numberInto(n *int) func(string, json.RawMessage) error {
	return func(name string, raw json.RawMessage) error { return typed(name, raw, "an integer", n) }
}

// jsonType names what a JSON value is; a number by itself.
func jsonType(raw []byte) string {
	raw = bytes.TrimLeft(raw, " \t\r\n")
	if len(raw) == 0 {
		return "nothing"
	}
	switch raw[0] {
	case '{':
		return "an object"
	case '[':
		return "an array"
	case '"':
		return "a string"
	case 't', 'f':
		return "a boolean"
	case 'n':
		return "null"
	}
	return strings.TrimSpace(string(raw[:min(len(raw), 40)]))
}

// valid checks the request's bounds, and makes its object id lower case.
func (q *Request) valid() error {
	q.ExpectedHead = strings.ToLower(q.ExpectedHead)
	if !isObjectID(q.ExpectedHead) {
		return invalidRequest("'expectedHead' must be a full object id, and is %s", quoted(q.ExpectedHead))
	}
	if n := len(q.TaskIDs); n < MinSelected || n > MaxSelected {
		return invalidRequest("'taskIds' must name %d to %d tasks, and names %d", MinSelected, MaxSelected, n)
	}
	for i, id := range q.TaskIDs {
		if slices.Contains(q.TaskIDs[:i], id) {
			return invalidRequest("'taskIds' names %s twice", quoted(id))
		}
	}
	for _, id := range slices.Sorted(maps.Keys(q.Instructions)) {
		name := quoted("instructions." + id)
		switch text := q.Instructions[id]; {
		case !slices.Contains(q.TaskIDs, id):
			return invalidRequest("%s is for a task that 'taskIds' does not select", name)
		case strings.TrimSpace(text) == "":
			return invalidRequest("%s is empty; without it the plan's instructions stay", name)
		case strings.Contains(text, "\x00"):
			return invalidRequest("%s holds a NUL byte", name)
		}
	}
	for _, b := range []struct {
		name           string
		n, least, most int
		what           string
	}{
		{"budget.maxSteps", q.Budget.MaxSteps, MinCalls, MaxCalls, "calls"},
		{"budget.maxInvocations", q.Budget.MaxInvocations, MinCalls, MaxCalls, "calls"},
		{"budget.maxMinutes", q.Budget.MaxMinutes, MinMinutes, MaxMinutes, "minutes"},
	} {
		if b.n < b.least || b.n > b.most {
			return invalidRequest("'%s' must be %d to %d %s, and is %d", b.name, b.least, b.most, b.what, b.n)
		}
	}
	return nil
}

// isObjectID says whether s is a full object id of SHA-1 or SHA-256, in
// lower case. The null id names no object.
func isObjectID(s string) bool {
	if len(s) != 40 && len(s) != 64 {
		return false
	}
	return strings.Trim(s, "0123456789abcdef") == "" && strings.Trim(s, "0") != ""
}

// Check checks the request, however it was made, against the plan of the run
// that it is for. The error is fault.Invalid and names the field.
func (q *Request) Check(plan *Plan) error {
	if err := q.valid(); err != nil {
		return err
	}
	ids := make([]string, len(plan.Tasks))
	for i := range plan.Tasks {
		ids[i] = plan.Tasks[i].ID
	}
	for _, id := range q.TaskIDs {
		if !slices.Contains(ids, id) {
			return invalidRequest("'taskIds' names the unknown task %s%s", quoted(id), nearest(id, ids))
		}
	}
	return nil
}

// CheckBudget checks that the effective call budget funds what a rerun needs;
// see RequiredBudget. The error is fault.Invalid and names the field.
func (q *Request) CheckBudget(required int) error {
	if q.Budget.Calls() >= required {
		return nil
	}
	name := "budget.maxSteps"
	if q.Budget.MaxInvocations < q.Budget.MaxSteps {
		name = "budget.maxInvocations"
	}
	e := invalidRequest("'%s' is %d, and the selection needs %d calls", name, q.Budget.Calls(), required)
	if required > MaxCalls {
		return e.WithHint("a rerun has at most %d calls: run the plan again instead", MaxCalls)
	}
	return e.WithHint("allocate at least %d steps and %d invocations", required, required)
}

// Digest is the SHA-256, in hex, of what is asked for. The order of the tasks
// does not matter.
func (q *Request) Digest() string {
	same := *q
	same.TaskIDs = slices.Sorted(slices.Values(q.TaskIDs))
	same.ExpectedHead = strings.ToLower(q.ExpectedHead)
	return digest(same)
}
