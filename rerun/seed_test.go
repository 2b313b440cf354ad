package rerun

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/git-checkpoint/git-checkpoint/internal/fault"
)

// exampleSeed is the seed of a rerun of the twelve tasks, and what it was made
// from.
func exampleSeed(t testing.TB) (*Seed, Pinned) {
	plan := example(t, "twelve")
	works := done(plan)
	consumed := map[string][]Consumed{}
	for id, w := range works {
		consumed[id] = w.Consumed
	}
	request := &Request{
		ExpectedHead: someHead, TaskIDs: []string{"server", "lint"},
		Instructions: map[string]string{"lint": "<all> of \"it\"\n"}, Budget: Budget{20, 12, 30},
	}
	if err := request.Check(plan); err != nil {
		t.Fatal(err)
	}
	again := Invalidate(plan, consumed, request.TaskIDs)
	retained, must := Retain(plan, works, again, someHead)
	if len(must) > 0 {
		t.Fatal(must)
	}
	s := &Seed{
		Version: SeedVersion, Child: "r.x1y2", Source: SeedSource{"r", strings.Repeat("7", 40)}, ExpectedHead: someHead,
		Plan: strings.Repeat("8", 40), Selected: request.TaskIDs, Invalidated: again, Retained: retained,
		Instructions: request.Instructions, Budget: request.Budget, BudgetRequired: RequiredBudget(plan, again),
		BaselineVerified: true, RequestDigest: request.Digest(), CreatedAt: "2026-11-30T12:00:00Z",
	}
	s.Encode()
	return s, Pinned{SHA256: s.SHA256, Child: s.Child, Source: s.Source, Baseline: someHead, PlanBlob: s.Plan, Plan: plan, Works: works}
}

// S3.31 S3.32: what comes back is what was pinned.
func TestSeed(t *testing.T) {
	s, pinned := exampleSeed(t)
	data := s.Encode()
	if string(data) != string(s.Encode()) {
		t.Error("encoded twice, two seeds")
	}
	back, err := DecodeSeed(data)
	if err != nil {
		t.Fatal(err)
	}
	if fmt.Sprintf("%+v", back) != fmt.Sprintf("%+v", s) {
		t.Errorf("got\n%+v\nwant\n%+v", back, s)
	}
	if err := back.Verify(pinned); err != nil {
		t.Error(err)
	}
	pinned.Works = nil
	if err := back.Verify(pinned); err != nil {
		t.Errorf("without the source: %v", err)
	}
}

// The format is public, and so is how the checksum is made.
func TestSeedFormat(t *testing.T) {
	plan := example(t, "diamond")
	s := &Seed{Version: 1, Child: "c", Source: SeedSource{"r", "t"}, ExpectedHead: "h", Plan: "p", Selected: []string{"d"},
		Invalidated: Invalidate(plan, nil, []string{"d"}), Budget: Budget{4, 5, 6}, BudgetRequired: 2, RequestDigest: "q", CreatedAt: "2026-11-30T12:00:00Z"}
	const rest = `{"baseline_verified":false,"budget":{"maxInvocations":5,"maxMinutes":6,"maxSteps":4},"budget_required":2,"child":"c","created_at":"2026-11-30T12:00:00Z",` +
		`"expected_head":"h","instructions":{},"invalidated":[{"because":[{"from":"","kind":"selected"}],"task":"d"}],"plan":"p","request_digest":"q","retained":[],"selected":["d"],`
	const source = `"source":{"run":"r","tip":"t"},"version":1}`
	sum := fmt.Sprintf("%x", sha256.Sum256([]byte(rest+source)))
	if got, want := string(s.Encode()), rest+`"sha256":"`+sum+`",`+source+"\n"; got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

// S3.33 S3.39: what was changed is not run.
func TestSeedDamaged(t *testing.T) {
	s, _ := exampleSeed(t)
	data := string(s.Encode())
	for _, c := range []struct{ name, text, want string }{
		{"empty", "", "no JSON"},
		{"cut off", data[:len(data)-20], "no JSON"},
		{"another", "{}\n", "no version"},
		{"null", "null\n", "no version"},
		{"newer", strings.Replace(data, `"version":1`, `"version":2`, 1), "version 2"},
		{"older", strings.Replace(data, `"version":1`, `"version":0`, 1), "no version"},
		{"an unknown field", strings.Replace(data, `"version"`, `"extra":1,"version"`, 1), "unknown field"},
		{"a wrong type", strings.Replace(data, `"budget_required":`, `"budget_required":"1","x":`, 1), "budget_required"},
		{"a field twice", strings.Replace(data, `"version":1`, `"version":1,"version":1`, 1), "not written as"},
		{"another case", strings.Replace(data, `"version":1`, `"Version":1`, 1), "not written as"},
		{"a space", strings.Replace(data, `"version":1`, `"version": 1`, 1), "not written as"},
		{"something follows", data + data, "no JSON"},
		{"no newline", strings.TrimSuffix(data, "\n"), "not written as"},
		{"a task more", strings.Replace(data, `"selected":["server"`, `"selected":["design","server"`, 1), "checksum"},
		{"another checksum", strings.Replace(data, s.SHA256, strings.Repeat("0", 64), 1), "checksum"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if c.text == data {
				t.Fatal("the test changes nothing")
			}
			_, err := DecodeSeed([]byte(c.text))
			if !errors.Is(err, fault.Integrity) || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v, want %s", err, c.want)
			}
		})
	}
}

// S3.33: neither with a checksum that was corrected, nor with one that the
// journal has too.
func TestSeedVerify(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(*Seed, *Pinned)
		want   string
	}{
		{"its own checksum", func(s *Seed, _ *Pinned) { s.Child = "x" }, "checksum"},
		{"corrected, but the journal's is another", func(s *Seed, _ *Pinned) { s.BaselineVerified = false; s.Encode() }, "checksum"},
		{"of another child", agreed(func(s *Seed) { s.Child = "other" }), "the child run is 'other' in it"},
		{"of another source", agreed(func(s *Seed) { s.Source.Run = "other" }), "the source run"},
		{"the source went on", agreed(func(s *Seed) { s.Source.Tip = someHead }), "the source's tip"},
		{"on another baseline", agreed(func(s *Seed) { s.ExpectedHead = strings.Repeat("9", 40) }), "the baseline"},
		{"of another plan", agreed(func(s *Seed) { s.Plan = someHead }), "the plan is"},
		{"an unknown task", agreed(func(s *Seed) { s.Selected = []string{"lint", "x"} }), "unknown task 'x'"},
		{"instructions for another task", agreed(func(s *Seed) { s.Instructions = map[string]string{"design": "x"} }), "instructions.design"},
		{"more calls", agreed(func(s *Seed) { s.Budget.MaxSteps = 201 }), "budget.maxSteps"},
		{"another request", agreed(func(s *Seed) { s.Budget.MaxSteps = 21 }), "its request"},
		{"a task less", agreed(func(s *Seed) { s.Invalidated = s.Invalidated[1:] }), "do not follow"},
		{"a task more", agreed(func(s *Seed) {
			s.Invalidated = append([]Invalidated{{"design", []Cause{{CauseSelected, ""}}}}, s.Invalidated...)
		}), "do not follow"},
		{"another cause", agreed(func(s *Seed) { s.Invalidated[0].Because = []Cause{{EdgeArtifact, "design"}} }), "do not follow"},
		{"a retained task less", agreed(func(s *Seed) { s.Retained = s.Retained[1:] }), "it retains 5 tasks, and 6"},
		{"a retained task twice", agreed(func(s *Seed) { s.Retained[1] = s.Retained[0] }), "it retains 'design', where"},
		{"another commit", agreed(func(s *Seed) { s.Retained[0].Commit = someHead }), "what it retains of 'design'"},
		{"another run", agreed(func(s *Seed) { s.Retained[0].Run = "x" }), "what it retains of 'design'"},
		{"another baseline of a task", agreed(func(s *Seed) { s.Retained[0].Baseline = strings.Repeat("9", 40) }), "on another baseline"},
		{"another need", agreed(func(s *Seed) { s.BudgetRequired = 4 }), "its budget"},
		{"a budget below the need", agreed(func(s *Seed) {
			s.Budget.MaxSteps = s.BudgetRequired - 1
			s.RequestDigest = s.Request().Digest()
		}), "its budget"},
		{"no time", agreed(func(s *Seed) { s.CreatedAt = "now" }), "at no time"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s, pinned := exampleSeed(t)
			c.change(s, &pinned)
			err := s.Verify(pinned)
			if !errors.Is(err, fault.Integrity) || errors.Is(err, fault.Invalid) || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v, want %s", err, c.want)
			}
		})
	}
}

// agreed is a change that seed and journal agree about.
func agreed(change func(*Seed)) func(*Seed, *Pinned) {
	return func(s *Seed, p *Pinned) {
		change(s)
		s.Encode()
		p.SHA256 = s.SHA256
	}
}

func FuzzDecodeSeed(f *testing.F) {
	s, pinned := exampleSeed(f)
	f.Add(s.Encode())
	f.Add([]byte("{}"))
	f.Fuzz(func(t *testing.T, data []byte) {
		got, err := DecodeSeed(data)
		if err != nil {
			if !errors.Is(err, fault.Integrity) {
				t.Error(err)
			}
			return
		}
		if string(got.Encode()) != string(data) {
			t.Error("it is encoded otherwise")
		}
		_ = got.Verify(pinned)
	})
}
