package rerun

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/git-checkpoint/git-checkpoint/internal/fault"
)

const someHead = "0123456789abcdef0123456789abcdef01234567"

// request is a good one, with parts of it replaced.
func request(replace ...string) string {
	text := `{
		"expectedHead": "` + someHead + `",
		"taskIds": ["implement-api"],
		"instructions": {"implement-api": "Recheck the error path and its acceptance tests."},
		"budget": {"maxSteps": 12, "maxInvocations": 10, "maxMinutes": 20}
	}`
	return strings.NewReplacer(replace...).Replace(text)
}

// S3.34 S3.3 S3.5
func TestParseRequest(t *testing.T) {
	q, err := ParseRequest(strings.NewReader(request()))
	if err != nil {
		t.Fatal(err)
	}
	if q.ExpectedHead != someHead || len(q.TaskIDs) != 1 || q.TaskIDs[0] != "implement-api" ||
		q.Instructions["implement-api"] != "Recheck the error path and its acceptance tests." || q.Budget != (Budget{12, 10, 20}) {
		t.Errorf("%+v", q)
	}
	if err := q.Check(example(t, "checkout-api")); err != nil {
		t.Error(err)
	}
	// The smaller of both bounds on calls is the effective one.
	if q.CheckBudget(10) != nil {
		t.Error("10 calls do not fund 10")
	}
	for _, good := range []string{
		request(`"instructions": {"implement-api": "Recheck the error path and its acceptance tests."},`, ""),
		request(`"Recheck the error path and its acceptance tests."`, `"\u0041\n"`),
		request(someHead, strings.ToUpper(someHead)),
		request(someHead, strings.Repeat("a1", 32)),
		request(`: 12`, `: 4`, `10`, `200`, `20`, `720`),
		request(`["implement-api"]`, tasks(24), `{"implement-api": "Recheck the error path and its acceptance tests."}`, `{"t23": "x"}`),
	} {
		if _, err := ParseRequest(strings.NewReader(good)); err != nil {
			t.Errorf("%v\n%s", err, good)
		}
	}
}

// tasks is a JSON array of n task ids.
func tasks(n int) string {
	ids := make([]string, n)
	for i := range ids {
		ids[i] = fmt.Sprintf(`"t%d"`, i)
	}
	return "[" + strings.Join(ids, ",") + "]"
}

// S3.35 S3.36 S3.37 S3.39
func TestRequestRefused(t *testing.T) {
	for _, c := range []struct{ name, text, want string }{
		{"nothing", "", "the request is no JSON"},
		{"no JSON", "{'a': 1}", "the request is no JSON"},
		{"cut off", request()[:60], "no JSON"},
		{"no object", "[1]", "the request must be an object, and is an array"},
		{"null", "null", "the request must be an object, and is null"},
		{"something follows", request() + "{}", "something follows the request"},
		{"not UTF-8", request("error path", "\xff"), "it is not UTF-8"},
		{"too large", strings.Repeat(" ", maxRequestLen+1), "it is larger than"},
		{"an unknown field", request(`"taskIds"`, `"seed": {}, "taskIds"`), "unknown field 'seed'"}, // a seed from outside
		{"another case", request(`"taskIds"`, `"taskIDs"`), "unknown field 'taskIDs'; did you mean 'taskIds'?"},
		{"an unknown field of the budget", request(`"maxSteps"`, `"maxTokens": 1, "maxSteps"`), "unknown field 'budget.maxTokens'"},
		{"a field twice", request(`"taskIds"`, `"taskIds": ["a"], "taskIds"`), "'taskIds' stands twice"},
		{"a field twice, escaped", request(`"taskIds"`, `"task\u0049ds": ["a"], "taskIds"`), "'taskIds' stands twice"},
		{"a field of the budget twice", request(`"maxSteps"`, `"maxSteps": 7, "maxSteps"`), "'budget.maxSteps' stands twice"},
		{"an instruction twice", request(`{"implement-api"`, `{"implement-api": "x", "implement-api"`), "'instructions.implement-api' stands twice"},
		{"no head", request(`"expectedHead": "`+someHead+`",`, ""), "'expectedHead' is missing"},
		{"no tasks", request(`"taskIds": ["implement-api"],`, ""), "'taskIds' is missing"},
		{"no budget", `{"expectedHead":"` + someHead + `","taskIds":["a"]}`, "'budget' is missing"},
		{"no minutes", request(`, "maxMinutes": 20`, ""), "'budget.maxMinutes' is missing"},
		{"a head that is null", request(`"`+someHead+`"`, "null"), "'expectedHead' must be a string, and is null"},
		{"a head that is short", request(someHead, "0123abc"), "'expectedHead' must be a full object id"},
		{"a head that is a branch", request(someHead, "refs/heads/main"), "'expectedHead' must be a full object id"},
		{"a head that is nothing", request(someHead, strings.Repeat("0", 40)), "'expectedHead' must be a full object id"},
		{"a head with a space", request(someHead, someHead+" "), "'expectedHead' must be a full object id"},
		{"tasks that are a string", request(`["implement-api"]`, `"implement-api"`), "'taskIds' must be an array of strings, and is a string"},
		{"tasks that are null", request(`["implement-api"]`, `null`), "'taskIds' must be an array of strings, and is null"},
		{"a task that is a number", request(`["implement-api"]`, `["a", 1]`), "'taskIds[1]' must be a string, and is 1"},
		{"no task", request(`["implement-api"]`, `[]`), "'taskIds' must name 1 to 24 tasks, and names 0"},
		{"25 tasks", request(`["implement-api"]`, tasks(25)), "'taskIds' must name 1 to 24 tasks, and names 25"},
		{"a task twice", request(`["implement-api"]`, `["a", "b", "a"]`), "'taskIds' names 'a' twice"},
		{"instructions that are an array", request(`{"implement-api": "Recheck the error path and its acceptance tests."}`, `[]`), "'instructions' must be an object, and is an array"},
		{"instructions that are null", request(`{"implement-api": "Recheck the error path and its acceptance tests."}`, `null`), "'instructions' must be an object, and is null"},
		{"an instruction that is no string", request(`"Recheck the error path and its acceptance tests."`, `true`), "'instructions.implement-api' must be a string, and is a boolean"},
		{"an instruction that is empty", request(`"Recheck the error path and its acceptance tests."`, `" "`), "'instructions.implement-api' is empty"},
		{"instructions for another task", request(`{"implement-api": "Recheck the error path and its acceptance tests."}`, `{"announce": "x"}`), "'instructions.announce' is for a task that 'taskIds' does not select"},
		{"a budget that is a number", request(`{"maxSteps": 12, "maxInvocations": 10, "maxMinutes": 20}`, "12"), "'budget' must be an object, and is 12"},
		{"3 steps", request(`: 12`, `: 3`), "'budget.maxSteps' must be 4 to 200 calls, and is 3"},
		{"201 steps", request(`: 12`, `: 201`), "'budget.maxSteps' must be 4 to 200 calls, and is 201"},
		{"3 invocations", request(`10`, `3`), "'budget.maxInvocations' must be 4 to 200 calls, and is 3"},
		{"201 invocations", request(`10`, `201`), "'budget.maxInvocations' must be 4 to 200 calls, and is 201"},
		{"0 minutes", request(`20`, `0`), "'budget.maxMinutes' must be 1 to 720 minutes, and is 0"},
		{"721 minutes", request(`20`, `721`), "'budget.maxMinutes' must be 1 to 720 minutes, and is 721"},
		{"half a minute", request(`20`, `0.5`), "'budget.maxMinutes' must be an integer, and is 0.5"},
		{"steps as a string", request(`: 12`, `: "12"`), "'budget.maxSteps' must be an integer, and is a string"},
		{"steps beyond a number", request(`: 12`, `: 99999999999999999999`), "'budget.maxSteps' must be an integer, and is 99999999999999999999"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := ParseRequest(strings.NewReader(c.text))
			if !errors.Is(err, fault.Invalid) || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v, want %s", err, c.want)
			}
		})
	}
}

// What was not read from JSON is checked all the same.
func TestRequestAgainstPlan(t *testing.T) {
	plan := example(t, "twelve")
	for _, c := range []struct {
		name   string
		change func(*Request)
		want   string // empty: fine
	}{
		{"fine", func(*Request) {}, ""},
		// S3.35
		{"unknown", func(q *Request) { q.TaskIDs = []string{"linnt"} }, "'taskIds' names the unknown task 'linnt'; did you mean 'lint'?"},
		{"another case", func(q *Request) { q.TaskIDs = []string{"Lint"} }, "unknown task 'Lint'"},
		{"twice", func(q *Request) { q.TaskIDs = []string{"lint", "lint"} }, "names 'lint' twice"},
		// S3.39: it is invalidated with 'server', but not selected.
		{"invalidated", func(q *Request) { q.Instructions = map[string]string{"package": "x"} }, "'instructions.package' is for a task that"},
		{"no budget", func(q *Request) { q.Budget = Budget{} }, "'budget.maxSteps' must be 4 to 200 calls"},
		{"head", func(q *Request) { q.ExpectedHead = "HEAD" }, "'expectedHead' must be a full object id"},
	} {
		t.Run(c.name, func(t *testing.T) {
			q := &Request{ExpectedHead: someHead, TaskIDs: []string{"server"}, Budget: Budget{8, 9, 1}}
			c.change(q)
			err := q.Check(plan)
			if c.want == "" && err != nil || c.want != "" && (!errors.Is(err, fault.Invalid) || !strings.Contains(err.Error(), c.want)) {
				t.Errorf("%v, want %q", err, c.want)
			}
		})
	}
}

// S3.38
func TestRequestBudget(t *testing.T) {
	for _, c := range []struct {
		steps, invocations, required int
		want                         string
	}{
		{8, 8, 8, ""}, {200, 8, 8, ""}, {8, 200, 8, ""},
		{7, 200, 8, "'budget.maxSteps' is 7, and the selection needs 8 calls"},
		{200, 7, 8, "'budget.maxInvocations' is 7, and the selection needs 8 calls"},
		{200, 200, 201, "'budget.maxSteps' is 200, and the selection needs 201 calls"},
	} {
		q := &Request{Budget: Budget{c.steps, c.invocations, 1}}
		err := q.CheckBudget(c.required)
		if c.want == "" && err != nil || c.want != "" && (!errors.Is(err, fault.Invalid) || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%+v: %v", c, err)
		}
	}
}

// S3.41: what is the same request.
func TestRequestDigest(t *testing.T) {
	two := `["implement-api", "b"]`
	digest := func(text string) string {
		t.Helper()
		q, err := ParseRequest(strings.NewReader(text))
		if err != nil {
			t.Fatal(err)
		}
		d := q.Digest()
		if again := q.Digest(); d != again || len(d) != 64 {
			t.Errorf("%s, then %s", d, again)
		}
		return d
	}
	base := digest(request(`["implement-api"]`, two))
	for name, text := range map[string]string{
		"the order of tasks":   request(`["implement-api"]`, `["b", "implement-api"]`),
		"the order of fields":  `{"budget":{"maxMinutes":20,"maxInvocations":10,"maxSteps":12},"instructions":{"implement-api":"Recheck the error path and its acceptance tests."},"taskIds":` + two + `,"expectedHead":"` + someHead + `"}`,
		"how a text is quoted": request(`["implement-api"]`, two, "Recheck", `\u0052echeck`),
		"how an id is written": request(`["implement-api"]`, two, someHead, strings.ToUpper(someHead)),
	} {
		if digest(text) != base {
			t.Errorf("%s makes another request", name)
		}
	}
	upper, lower := &Request{ExpectedHead: strings.ToUpper(someHead)}, &Request{ExpectedHead: someHead}
	if upper.Digest() != lower.Digest() {
		t.Error("an id that was not read from JSON makes another request")
	}
	seen := map[string]string{base: "the first"}
	for name, text := range map[string]string{
		"the head":         request(`["implement-api"]`, two, "0123456789abcdef0123456789abcdef01234567", "1123456789abcdef0123456789abcdef01234567"),
		"the tasks":        request(),
		"the instructions": request(`["implement-api"]`, two, "Recheck", "Check"),
		"who is told":      request(`["implement-api"]`, two, `{"implement-api"`, `{"b"`),
		"steps":            request(`["implement-api"]`, two, ": 12", ": 13"),
		"invocations":      request(`["implement-api"]`, two, "10", "11"),
		"minutes":          request(`["implement-api"]`, two, "20", "21"),
	} {
		d := digest(text)
		if other, ok := seen[d]; ok {
			t.Errorf("%s makes the same request as %s", name, other)
		}
		seen[d] = name
	}
}

func FuzzParseRequest(f *testing.F) {
	f.Add(request())
	f.Add(request(`"taskIds"`, `"seed": {"a": [1, {}]}, "taskIds"`))
	f.Add(`{"taskIds": [null, "\ud800"], "budget": {"maxSteps": 1e1}}`)
	f.Fuzz(func(t *testing.T, text string) {
		q, err := ParseRequest(strings.NewReader(text))
		if err != nil {
			if !errors.Is(err, fault.Invalid) {
				t.Errorf("%v", err)
			}
			return
		}
		again, err := ParseRequest(strings.NewReader(string(canonical(q))))
		if err != nil || again.Digest() != q.Digest() {
			t.Errorf("%v: %+v, again %+v", err, q, again)
		}
	})
}
