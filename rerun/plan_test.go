package rerun

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/git-checkpoint/git-checkpoint/internal/fault"
)

func mustParse(t testing.TB, text string) *Plan {
	t.Helper()
	p, err := ParsePlan(strings.NewReader(text))
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	return p
}

func example(t testing.TB, name string) *Plan {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "testdata", "plans", name+".toml"))
	if err != nil {
		t.Fatal(err)
	}
	return mustParse(t, string(text))
}

func TestParsePlan(t *testing.T) {
	p := example(t, "checkout-api")
	if p.Name != "checkout-api" || p.Approval != ApprovalAuto || p.Verify != "go test ./..." {
		t.Errorf("%+v", p)
	}
	if want := (Member{"backend", "claude", "sonnet", "medium"}); p.Members[0] != want || *p.Member("backend") != want {
		t.Errorf("members %+v", p.Members)
	}
	if len(p.Requirements) != 1 || p.Requirements[0] != (Requirement{"R1", "an order can be cancelled"}) {
		t.Errorf("requirements %+v", p.Requirements)
	}
	if p.Review == nil || *p.Review != (Review{"reviewer", "review.sh"}) {
		t.Errorf("review %+v", p.Review)
	}
	task := p.Task("implement-api")
	want := &Task{
		ID: "implement-api", Kind: KindAgent, Member: "backend", Run: "agent.sh", Instructions: "implement cancel",
		Acceptance: "cancelling works", Check: "go test ./api/...", Proof: "go test ./api -run Cancel",
		Contract: "api/openapi.yaml", Uses: []string{"openapi"}, Owns: []string{"api/**"}, Repairs: 1, Line: 34,
	}
	if fmt.Sprintf("%+v", task) != fmt.Sprintf("%+v", want) {
		t.Errorf("task\n%+v\nwant\n%+v", task, want)
	}
	if p.Producer("openapi") != p.Task("design") || p.Producer("x") != nil || p.Task("x") != nil || p.Member("x") != nil {
		t.Error("what is not there is found, or what is there is not")
	}
	edges := []Edge{
		{"design", "implement-api", EdgeArtifact},
		{"implement-api", "announce", EdgeCompletion},
		{"design", "announce", EdgeKnowledge},
	}
	if !slices.Equal(p.Edges(), edges) || !slices.Equal(p.DependsOn("announce"), edges[1:]) || len(p.DependsOn("design")) > 0 {
		t.Errorf("edges %v", p.Edges())
	}
}

// What the documentation shows is a plan, and a request.
func TestDocumentedExamples(t *testing.T) {
	text, err := os.ReadFile("../docs/plans.md")
	if err != nil {
		t.Fatal(err)
	}
	block := func(language string) string {
		_, rest, _ := strings.Cut(string(text), "```"+language+"\n")
		code, _, _ := strings.Cut(rest, "```")
		return code
	}
	plan := mustParse(t, block("toml"))
	q, err := ParseRequest(strings.NewReader(block("json")))
	if err != nil {
		t.Fatal(err)
	}
	if err := q.Check(plan); err != nil {
		t.Error(err)
	}
	for _, key := range slices.Concat(planKeys, memberKeys, requirementKeys, reviewKeys, taskKeys) {
		if _, reference, _ := strings.Cut(string(text), "| key | is |"); !strings.Contains(reference, key) {
			t.Errorf("the key '%s' is not explained", key)
		}
	}
}

func TestOrderIsStable(t *testing.T) {
	p := mustParse(t, planText("late", "late: early", "middle", "early", "other: late middle"))
	if got, want := p.Order(), []string{"middle", "early", "late", "other"}; !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

// planText is a plan of deterministic tasks, each "id" or "id: what it comes
// after". The first word is the plan's name.
func planText(name string, tasks ...string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "name = %q\n", name)
	for _, task := range tasks {
		id, after, _ := strings.Cut(task, ":")
		fmt.Fprintf(&b, "[[task]]\nid = %q\nkind = \"deterministic\"\nrun = \"true\"\n", id)
		if after != "" {
			fmt.Fprintf(&b, "after = [\"%s\"]\n", strings.Join(strings.Fields(after), `", "`))
		}
	}
	return b.String()
}

// Each fault is on the line of the key that is wrong, and none hides another.
func TestPlanFaults(t *testing.T) {
	const ok = "name = 'n'\n[[task]]\nid = 'a'\nkind = 'deterministic'\nrun = 'x'\n" // 5 lines
	for _, c := range []struct {
		name, text string
		want       []string
	}{
		{"nothing", "", []string{"1: 'name' is missing", "1: the plan has no task"}},
		{"no TOML", "name = 'n'\n\n[[task]\n", []string{"3: expected end of table array name delimiter ']', but got '\\n' instead"}},
		{"a key twice", ok + "run = 'y'\n", []string{"6: key 'task.run' has already been defined"}},
		{"UTF-16", "\xff\xfen\x00", []string{"1: the plan is UTF-16; TOML is UTF-8"}},
		{"too large", strings.Repeat("# much\n", maxPlanLen/7+1), []string{"1: the plan is larger than 1048576 bytes"}},
		{"unknown keys", "titel = 1\n" + ok + "nmae = 1\nafterr = 1\n[review]\nmember = 'm'\nrun = 'x'\nruns = 1\n[[member]]\nid = 'm'\nmodle = 'x'\n[[requirement]]\nid = 'r'\ntext = 't'\nTEXT = 't'\n", []string{
			"1: unknown key 'titel'",
			"7: task 'a': unknown key 'nmae'",
			"8: task 'a': unknown key 'afterr'; did you mean 'after'?",
			"12: review: unknown key 'runs'; did you mean 'run'?",
			"15: member 'm': unknown key 'modle'; did you mean 'model'?",
			"19: requirement 'r': unknown key 'TEXT'; did you mean 'text'?",
		}},
		{"wrong types", "name = 1\napproval = true\nverify = ['x']\nmember = 'm'\nrequirement = [1]\nreview = 1.5\n[[task]]\nid = 1979-05-27\nkind = {}\nrun = [[1]]\nuses = 'u'\nowns = ['x', 2]\nrepairs = '1'\ntimeout_minutes = 1.0\nproduces = 'x'\nafter = [['a']]\n", []string{
			"1: 'name' must be a string, and is an integer",
			"2: 'approval' must be a string, and is a boolean",
			"3: 'verify' must be a string, and is an array",
			"4: 'member' must be an array of tables, [[member]], and is a string",
			"5: 'requirement' must be an array of tables, and holds an integer",
			"6: 'review' must be a table, and is a float",
			"8: task 1: 'id' must be a string, and is a date or time",
			"9: task 1: 'kind' must be a string, and is a table",
			"10: task 1: 'run' must be a string, and is an array",
			"11: task 1: 'uses' must be an array of strings, and is a string",
			"12: task 1: 'owns' must be an array of strings, and holds an integer",
			"13: task 1: 'repairs' must be an integer, and is a string",
			"14: task 1: 'timeout_minutes' must be an integer, and is a float",
			"15: task 1: 'produces' must be a table, and is a string",
			"16: task 1: 'after' must be an array of strings, and holds an array",
		}},
		{"a table where tables should be", "name = 'n'\n[task]\nid = 'a'\n", []string{"2: 'task' must be an array of tables, [[task]], and is a table"}},
		{"no tasks", "name = 'n'\ntask = []\n", []string{"2: the plan has no task"}},
		{"in line", "name = 'n'\ntask = [\n{id = 'a', kind = 'agent',\nrun = ''},\n{id = 'b', kind = 'deterministic', run = 'x', produces.y = 'a', uses = [\n'y']},\n{},\n]\n", []string{
			"2: task 3: 'id' is missing",
			"2: task 3: 'kind' is missing",
			"2: task 3: 'run' is missing",
			"3: task 'a': 'member' is missing",
			"4: task 'a': 'run' is empty",
			"5: task 'b': it waits for itself: 'uses' names 'y'",
		}},
		{"missing and empty", "name = ' '\n[[member]]\nprovider = 'p'\n[[requirement]]\nid = ''\n[review]\n[[task]]\n[[task]]\nid = 'x'\nkind = 'agent'\nrun = \"\"\"\n\"\"\"\nmember = ''\n", []string{
			"1: 'name' is empty",
			"2: member 1: 'id' is missing",
			"4: requirement 1: 'text' is missing",
			"5: requirement 1: 'id' is empty",
			"6: review: 'member' is missing",
			"6: review: 'run' is missing",
			"7: task 1: 'id' is missing",
			"7: task 1: 'kind' is missing",
			"7: task 1: 'run' is missing",
			"11: task 'x': 'run' is empty",
			"13: task 'x': 'member' is empty",
		}},
		{"ids taken", ok + "[[task]]\nid = 'a'\nkind = 'deterministic'\nrun = 'x'\n[[member]]\nid = 'm'\n[[member]]\nid = 'm'\n[[requirement]]\nid = 'r'\ntext = 't'\n[[requirement]]\ntext = 't'\nid = 'r'\n", []string{
			"7: task 'a': the id is taken, by the one in line 3",
			"13: member 'm': the id is taken, by the one in line 11",
			"19: requirement 'r': the id is taken, by the one in line 15",
		}},
		{"ids that are none", "name = 'n'\n[[task]]\nid = '.a'\nkind = 'deterministic'\nrun = 'x'\n[[task]]\nid = \"a\\u202eb\"\nkind = 'deterministic'\nrun = 'x'\n[[requirement]]\nid = 'acceptance'\ntext = 't'\n[[member]]\nid = '" + strings.Repeat("x", 65) + "'\n", []string{
			"3: task '.a': the id must be 1 to 64 letters, digits, '.', '_' and '-', the first a letter or digit",
			"7: task \"a\\u202eb\": 'id' holds a control character",
			"11: requirement 'acceptance': the id 'acceptance' stands for the review of the tasks' acceptance",
			"14: member '" + strings.Repeat("x", 65) + "': the id must be 1 to 64 letters, digits, '.', '_' and '-', the first a letter or digit",
		}},
		{"unknown ids", ok + "member = 'mm'\nafter = ['b', 'b']\nuses = ['u']\nknows = ['A', '']\n[review]\nmember = 'x'\nrun = 'x'\n[[member]]\nid = 'm1'\n", []string{
			"6: task 'a': 'member' names the unknown member 'mm'; did you mean 'm1'?",
			"7: task 'a': 'after' holds 'b' twice",
			"7: task 'a': 'after' names the unknown task 'b'; did you mean 'a'?",
			"8: task 'a': no task produces the artifact 'u'",
			"9: task 'a': 'knows' holds an empty string",
			"9: task 'a': 'knows' names the unknown task 'A'; did you mean 'a'?",
			"11: review: 'member' names the unknown member 'x'",
		}},
		{"waits for itself", ok + "after = ['a']\nuses = ['p']\nknows = ['a']\nproduces = {p = 'p'}\n", []string{
			"6: task 'a': it waits for itself: 'after' names 'a'",
			"7: task 'a': it waits for itself: 'uses' names 'p'",
			"8: task 'a': it waits for itself: 'knows' names 'a'",
		}},
		{"two producers", ok + "[task.produces]\np = 'p'\n[[task]]\nid = 'b'\nkind = 'deterministic'\nrun = 'x'\nproduces = {q = 'q',\n  p = 'r'}\n", []string{
			"13: task 'b': the artifact 'p' is produced by task 'a' already",
		}},
		{"the reviewer is an author", ok + "member = 'm'\n[[member]]\nid = 'm'\n[review]\nmember = 'm'\nrun = 'x'\n", []string{
			"6: task 'a': the reviewer 'm' must not be an author",
		}},
		{"bad values", "approval = 'later'\n" + ok + "repairs = -1\ntimeout_minutes = 0\nprobe = 'x'\nverify = 'x'\n[[task]]\nid = 'b'\nkind = 'Agent'\nrun = \"x\\u0000\"\nmember = \"a\\nb\"\nprobe = 'x'\n", []string{
			"1: 'approval' must be auto or held, and is 'later'",
			"7: task 'a': 'repairs' must be from 0 to 1000, and is -1",
			"8: task 'a': 'timeout_minutes' must be from 1 to 527040, and is 0",
			"9: task 'a': 'probe' is for a delivery only, and this task is 'deterministic'",
			"10: task 'a': unknown key 'verify'",
			"13: task 'b': 'kind' must be agent, deterministic or delivery, and is 'Agent'; did you mean 'agent'?",
			"14: task 'b': 'run' holds a NUL byte",
			"15: task 'b': 'member' holds a control character",
			"15: task 'b': 'member' names the unknown member \"a\\nb\"",
		}},
		{"paths", ok + "contract = '/etc/passwd'\nowns = ['**', '/x', 'a*/[!b]?/', '..', 'x/../y', '!x', '[', '/', 'a//b', './x', '.GIT/**']\n[task.produces]\na = '../x'\nb = 'x/../../y'\nc = './x'\nd = ''\ne = '.git/hooks/x'\nf = 'a\\b'\ng = 'C:/x'\nh = 'fine/x y'\n'i j' = 'x'\nk = 1\n", []string{
			"6: task 'a': the path '/etc/passwd' of 'contract' must be relative to the top of the tree",
			"7: task 'a': the pattern '..' of 'owns' leaves the tree",
			"7: task 'a': the pattern 'x/../y' of 'owns' leaves the tree",
			"7: task 'a': the pattern '!x' of 'owns' begins with '!', which takes nothing back here",
			"7: task 'a': the pattern '[' of 'owns' is no pattern: a '[' or '\\' is not ended",
			"7: task 'a': the pattern '/' of 'owns' is empty",
			"7: task 'a': the pattern 'a//b' of 'owns' holds '//', which nothing matches",
			"7: task 'a': the pattern './x' of 'owns' holds a '.' part, which nothing matches",
			"7: task 'a': the pattern '.GIT/**' of 'owns' is in git's own folder",
			"9: task 'a': the path '../x' of the artifact 'a' leaves the tree",
			"10: task 'a': the path 'x/../../y' of the artifact 'b' leaves the tree",
			"11: task 'a': the path './x' of the artifact 'c' must be written without '.', '//' and a final '/'",
			"12: task 'a': the path '' of the artifact 'd' is empty",
			"13: task 'a': the path '.git/hooks/x' of the artifact 'e' is in git's own folder",
			"14: task 'a': the path 'a\\b' of the artifact 'f' holds a '\\'; folders end in '/'",
			"15: task 'a': the path 'C:/x' of the artifact 'g' must be relative to the top of the tree",
			"17: task 'a': the artifact name 'i j' must be 1 to 64 letters, digits, '.', '_' and '-', the first a letter or digit",
			"18: task 'a': 'produces.k' must be a string, and is an integer",
		}},
		{"a cycle of all kinds", ok + "produces = {p = 'p'}\nknows = ['c']\n[[task]]\nid = 'b'\nkind = 'deterministic'\nrun = 'x'\nuses = ['p']\n[[task]]\nid = 'c'\nkind = 'deterministic'\nrun = 'x'\nafter = ['b']\n", []string{
			"7: the tasks wait for each other: a -> b -> c -> a",
		}},
		{"two cycles with a task in common", planText("n", "a: b", "b: a c", "c: b", "d: c"), []string{
			"6: the tasks wait for each other: a -> b -> a",
			"11: the tasks wait for each other: b -> c -> b",
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			p, err := ParsePlan(strings.NewReader(c.text))
			var faults *PlanError
			if p != nil || !errors.As(err, &faults) || !errors.Is(err, fault.Invalid) {
				t.Fatalf("%v, %v", p, err)
			}
			var f *fault.Error
			if !errors.As(err, &f) || f.Code != "invalid-plan" {
				t.Errorf("no fault with a code: %v", f)
			}
			got := strings.TrimPrefix(strings.ReplaceAll(err.Error(), "\nline ", "\n"), "line ")
			if got != strings.Join(c.want, "\n") {
				t.Errorf("got\n%s\nwant\n%s", got, strings.Join(c.want, "\n"))
			}
		})
	}
}

// A large plan that is one knot is answered soon, and not with all its cycles.
func TestPlanKnot(t *testing.T) {
	var tasks []string
	for i := range 4000 {
		tasks = append(tasks, fmt.Sprintf("t%d: t%d t%d", i, (i+1)%4000, (i+7)%4000))
	}
	before := time.Now()
	_, err := ParsePlan(strings.NewReader(planText("knot", tasks...)))
	var faults *PlanError
	if !errors.As(err, &faults) || len(faults.Faults) != maxCycles {
		t.Errorf("%d faults", len(faults.Faults))
	}
	if took := time.Since(before); took > 10*time.Second {
		t.Errorf("took %v", took)
	}
}

func TestPlanDigest(t *testing.T) {
	base := example(t, "twelve")
	text, err := os.ReadFile("../testdata/plans/twelve.toml")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name, from, to string
		changed        []string // tasks; nil: the plan is another, no task is
		same           bool     // not even the plan
	}{
		{"a comment", "# Twelve tasks", "# A dozen", nil, true},
		{"the order of what it uses", `"openapi", "glossary"`, `"glossary", "openapi"`, nil, true},
		{"the order of keys", "id = \"lint\"\nkind = \"deterministic\"", "kind = \"deterministic\"\nid = \"lint\"", nil, true},
		{"the requirements", "orders can be", "an order can be", nil, false},
		{"the command", "make lint", "make lint all", []string{"lint"}, false},
		{"a member", `model = "gpt"`, `model = "gpt-5"`, []string{"store", "server", "client"}, false},
		{"an edge", `["integrate", "client", "lint"]`, `["integrate", "lint"]`, []string{"package"}, false},
		{"the kind of an edge", "after = [\"store\"]", "knows = [\"store\"]", []string{"migrate"}, false},
		{"where an artifact stands", "gen/api.go", "gen/api2.go", []string{"generate", "server", "client"}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := mustParse(t, strings.Replace(string(text), c.from, c.to, 1))
			if (p.Digest() == base.Digest()) != c.same {
				t.Error("the plan's digest")
			}
			for _, id := range base.Order() {
				if (p.TaskDigest(id) != base.TaskDigest(id)) != slices.Contains(c.changed, id) {
					t.Errorf("the digest of '%s'", id)
				}
			}
		})
	}
	if base.TaskDigest("x") != "" || len(base.TaskDigest("lint")) != 64 {
		t.Error("the digest of a task that is not there")
	}
}

func FuzzParsePlan(f *testing.F) {
	files, err := filepath.Glob("../testdata/plans/*.toml")
	if err != nil || len(files) == 0 {
		f.Fatalf("no examples: %v", err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(string(text))
	}
	f.Add("task = [{id = 'a', after = ['a']}, 1]\n[review]\n[[member]]\nid.x = 1")
	f.Add("name = \"\"\"\n\x7f\"\"\"\n[[task]]\n[[task]]\n'\\n' = [1]\n[task.produces.x]\ny = 1")
	f.Fuzz(func(t *testing.T, text string) {
		p, err := ParsePlan(strings.NewReader(text))
		if err != nil {
			var faults *PlanError
			if p != nil || !errors.As(err, &faults) || len(faults.Faults) == 0 {
				t.Fatalf("%v, %v", p, err)
			}
			last := 1
			for _, f := range faults.Faults {
				if f.Line < last || f.Line > strings.Count(text, "\n")+1 {
					t.Errorf("line %d after line %d of %d", f.Line, last, strings.Count(text, "\n")+1)
				}
				if last = f.Line; f.Message == "" || strings.ContainsFunc(f.Message, isControl) {
					t.Errorf("message %q", f.Message)
				}
			}
			return
		}
		if len(p.Tasks) > 100 {
			return
		}
		order := p.Order()
		if len(order) != len(p.Tasks) {
			t.Fatalf("%d of %d tasks have a place", len(order), len(p.Tasks))
		}
		for _, e := range p.Edges() {
			if slices.Index(order, e.From) >= slices.Index(order, e.To) {
				t.Errorf("%v is not in order: %v", e, order)
			}
		}
		if again := mustParse(t, text); again.Digest() != p.Digest() {
			t.Error("two digests")
		}
		if text := Draw(p); strings.Count(text, "*") < len(order) || strings.ContainsFunc(strings.ReplaceAll(text, "\n", ""), isControl) {
			t.Errorf("drawn as\n%s", text)
		}
	})
}
