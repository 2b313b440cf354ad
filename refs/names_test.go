package refs

import (
	"errors"
	"math/rand/v2"
	"os/exec"
	"strings"
	"testing"
	"time"
	"unicode/utf8"
)

func TestCheckRun(t *testing.T) {
	for run, ok := range map[string]bool{
		"a": true, "A9": true, "0": true, "a.b-c_d": true, "HEAD": true, "a.lockd": true, strings.Repeat("x", 100): true,
		"": false, ".a": false, "-a": false, "_a": false, "a..b": false, "a.": false, "a.lock": false, "a.LOCK": false,
		"a/b": false, "a b": false, "a@{1}": false, "ä": false, "a\n": false, "a~1": false, strings.Repeat("x", 101): false,
	} {
		err := CheckRun(run)
		if (err == nil) != ok {
			t.Errorf("%q: %v", run, err)
		}
		if err != nil && !errors.Is(err, ErrInvalid) {
			t.Errorf("%q: the error is no ErrInvalid: %v", run, err)
		}
		if err == nil && exec.Command("git", "check-ref-format", "--allow-onelevel", run).Run() != nil {
			t.Errorf("%q: git does not take it for a ref", run)
		}
	}
}

func TestCheckStep(t *testing.T) {
	for step, ok := range map[string]bool{
		"plan": true, "write the API": true, "a/b": true, "größe": true, "a@b": true, "@x": true, "#1 first": true, "a#": true, "a#b": true,
		"{": true, "{1": true, "1}": true, strings.Repeat("x", 200): true,
		"": false, " a": false, "a ": false, "a\u00a0": false, "a\tb": false, "a\n": false, "{1}": false, "{}": false, "{a}": false,
		"a#1": false, "a##0": false, "#7": false, "a\xff": false, "a\u0085b": false, strings.Repeat("x", 201): false,
	} {
		if err := CheckStep(step); (err == nil) != ok {
			t.Errorf("%q: %v", step, err)
		} else if err != nil && !errors.Is(err, ErrInvalid) {
			t.Errorf("%q: the error is no ErrInvalid: %v", step, err)
		}
	}
}

func TestParseAddress(t *testing.T) {
	for text, want := range map[string]Address{
		"":                              {},
		"run":                           {Run: "run"},
		"run@{3}":                       {Run: "run", Back: 3},
		"run@{0}":                       {Run: "run"},
		"@{2}":                          {Back: 2},
		"run@plan":                      {Run: "run", Step: "plan"},
		"run@plan#2":                    {Run: "run", Step: "plan", Visit: 2},
		"@plan#12":                      {Step: "plan", Visit: 12},
		"run@a#1#2":                     {}, // a#1 is no step name
		"@a@b":                          {Step: "a@b"},
		"run@@b":                        {Run: "run", Step: "@b"},
		"run@write it":                  {Run: "run", Step: "write it"},
		"rev:HEAD~2":                    {Revision: "HEAD~2"},
		"rev:a@{1}":                     {Revision: "a@{1}"},
		"@":                             {},
		"run@":                          {},
		"run@{-1}":                      {},
		"run@{+x}":                      {},
		"run@{}":                        {},
		"run@plan#0":                    {},
		"run@#1":                        {},
		"a b":                           {},
		"no/run@plan":                   {},
		"rev:":                          {},
		"run@plan#99999999999999999999": {},
	} {
		got, err := ParseAddress(text)
		if got != want {
			t.Errorf("%q is %+v, want %+v", text, got, want)
		}
		if (want == Address{}) != (err != nil) && text != "" {
			t.Errorf("%q: the error is %v", text, err)
		}
		if err != nil && !errors.Is(err, ErrInvalid) {
			t.Errorf("%q: the error is no ErrInvalid: %v", text, err)
		}
	}
}

func FuzzParseAddress(f *testing.F) {
	for _, seed := range []string{"run@plan#2", "@{1}", "rev:HEAD", "a@{0}", "@a@b", "@#", "@x#01", "run@{007}", "\xff@\x00"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		a, err := ParseAddress(text)
		if err != nil {
			if !errors.Is(err, ErrInvalid) {
				t.Fatalf("%q: %v", text, err)
			}
			if !utf8.ValidString(err.Error()) || strings.ContainsAny(err.Error(), "\n\x00\x1b") {
				t.Fatalf("%q: the message is not fit for a terminal: %q", text, err)
			}
			return
		}
		again, err := ParseAddress(a.String())
		if err != nil || again != a {
			t.Fatalf("%q is %+v, and '%s' is %+v: %v", text, a, a, again, err)
		}
		if a.Run != "" && CheckRun(a.Run) != nil || a.Step != "" && CheckStep(a.Step) != nil || a.Back < 0 || a.Visit < 0 {
			t.Fatalf("%q: %+v", text, a)
		}
	})
}

func TestNearest(t *testing.T) {
	candidates := []string{"plan", "implement", "implement-more", "review", "Größe", "x"}
	for name, want := range map[string]string{
		"paln": "plan", "plna": "plan", "PLAN": "plan", "implment": "implement", "implement-mroe": "implement-more",
		"rev": "review", "größe": "Größe", "grosse": "", "xyzzy": "", "": "", "y": "x", "deploy": "", "pla": "plan",
	} {
		if got := Nearest(name, candidates); got != want {
			t.Errorf("the nearest to %q is %q, want %q", name, got, want)
		}
	}
	if got := Nearest("plan", nil); got != "" {
		t.Errorf("among none it is %q", got)
	}
}

// TestGeneratedRunsAreValid feeds branches and sources of every kind.
func TestGeneratedRunsAreValid(t *testing.T) {
	at := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	if got := GenerateRun("refs/heads/feature/x", at); !strings.HasPrefix(got, "feature-x-20261130-") || len(got) != len("feature-x-20261130-abcd") {
		t.Errorf("generated %q", got)
	}
	if got := GenerateRun("", at); !strings.HasPrefix(got, "detached-20261130-") {
		t.Errorf("generated %q", got)
	}
	if got := GenerateChild("run"); !strings.HasPrefix(got, "run.") || len(got) != len("run.abcd") {
		t.Errorf("generated %q", got)
	}
	r := rand.New(rand.NewPCG(1, 2))
	const alphabet = "aZ0..--__//~^ é@{\x00.lock"
	check := func(made, from string) {
		if err := CheckRun(made); err != nil {
			t.Fatalf("from %q it made %q: %v", from, made, err)
		}
	}
	for range 20000 {
		b := make([]byte, r.IntN(130))
		for i := range b {
			b[i] = alphabet[r.IntN(len(alphabet))]
		}
		check(GenerateRun("refs/heads/"+string(b), at), string(b))
		check(GenerateChild(string(b)), string(b))
	}
	// A child of a child, to any depth.
	run := "refactor.lock-x"
	for range 200 {
		run = GenerateChild(run)
		check(run, run)
	}
}

func TestMessagesAreParsedAsTheyWereMade(t *testing.T) {
	id := strings.Repeat("1", 40)
	for _, c := range []Checkpoint{
		{Run: "r", Kind: KindManual, Subject: "s"},
		{Run: "r", Step: "plan: the API", Kind: KindAgent, Outcome: Succeeded, Session: "s 1", Turn: "t", Head: id, Branch: "refs/heads/a b", Index: id, State: "merge", Replay: "always", Start: id, Number: 7, Subject: "s", Body: "two\n\nparagraphs"},
		{Run: "r", Kind: KindStart, Lineage: &Lineage{Kind: RewoundFrom, Run: "q", Step: "a@b c", Checkpoint: id}, Subject: "s"},
		{Run: "r", Kind: KindManual, Subject: "s", Body: "Checkpoint-Run: forged\n\nCheckpoint-Step: forged"},
	} {
		data := "tree " + id + "\nauthor A <a@b> 1 +0000\ncommitter A <a@b> 1 +0000\n\n" + c.Message()
		got, ok, err := ParseCheckpoint(id, []byte(data))
		if err != nil || !ok {
			t.Fatalf("%q: %v", data, err)
		}
		lineage, want := got.Lineage, c.Lineage
		if (lineage == nil) != (want == nil) || lineage != nil && *lineage != *want {
			t.Errorf("the lineage is %+v, want %+v", lineage, want)
		}
		if got.Run != c.Run || got.Step != c.Step || got.Kind != c.Kind || got.Outcome != c.Outcome || got.Session != c.Session || got.Turn != c.Turn ||
			got.Head != c.Head || got.Branch != c.Branch || got.Index != c.Index || got.State != c.State || got.Replay != c.Replay || got.Number != c.Number || got.Subject != c.Subject || got.Body != c.Body {
			t.Errorf("parsed %+v, want %+v", got, c)
		}
	}
}
