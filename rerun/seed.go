package rerun

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/git-checkpoint/git-checkpoint/internal/fault"
)

// SeedFile is the seed's name in a rerun's seed commit.
const SeedFile = "seed.json"

// SeedVersion is the version of the seed that this program writes, and the
// only one that it reads.
const SeedVersion = 1

// Seed pins a rerun: from the moment that it stands, nothing about the rerun
// is worked out again. Its JSON is a public format (PLANS.md §3). Its checksum
// shows changes, and authorizes nothing.
type Seed struct {
	Version          int               `json:"version"`
	Child            string            `json:"child"`
	Source           SeedSource        `json:"source"`
	ExpectedHead     string            `json:"expected_head"`
	Plan             string            `json:"plan"` // the blob of the pinned plan
	Selected         []string          `json:"selected"`
	Invalidated      []Invalidated     `json:"invalidated"`
	Retained         []RetainedTask    `json:"retained"`
	Instructions     map[string]string `json:"instructions"`
	Budget           Budget            `json:"budget"`
	BudgetRequired   int               `json:"budget_required"`
	BaselineVerified bool              `json:"baseline_verified"`
	RequestDigest    string            `json:"request_digest"`
	CreatedAt        string            `json:"created_at"` // RFC 3339, in UTC
	SHA256           string            `json:"sha256"`     // see Sum
}

// SeedSource is the run that is rerun, as it was then.
type SeedSource struct {
	Run string `json:"run"`
	Tip string `json:"tip"`
}

// Sum is the SHA-256, in hex, of the seed's canonical JSON without the field
// sha256.
func (s *Seed) Sum() string {
	fixed := s.complete()
	fields := map[string]any{}
	if err := json.Unmarshal(canonical(fixed), &fields); err != nil {
		panic(fmt.Sprintf("rerun: decode a seed again: %v", err))
	}
	delete(fields, "sha256")
	return digest(fields)
}

// complete is the seed without null in its JSON.
func (s *Seed) complete() Seed {
	fixed := *s
	fixed.Selected = append([]string{}, s.Selected...)
	fixed.Invalidated = append([]Invalidated{}, s.Invalidated...)
	fixed.Retained = append([]RetainedTask{}, s.Retained...)
	if fixed.Instructions == nil {
		fixed.Instructions = map[string]string{}
	}
	return fixed
}

// Encode sets the checksum, and returns the seed as its file holds it: its
// canonical JSON and a newline.
func (s *Seed) Encode() []byte {
	s.SHA256 = s.Sum()
	return append(canonical(s.complete()), '\n')
}

// Request is what was asked for.
func (s *Seed) Request() *Request {
	q := &Request{ExpectedHead: s.ExpectedHead, TaskIDs: s.Selected, Budget: s.Budget}
	if len(s.Instructions) > 0 {
		q.Instructions = s.Instructions
	}
	return q
}

// DecodeSeed reads a seed's file. It must be, byte for byte, as Encode writes
// it; everything else is fault.Integrity.
func DecodeSeed(data []byte) (*Seed, error) {
	var version struct{ Version *int }
	if err := json.Unmarshal(data, &version); err != nil {
		return nil, damagedSeed("it is no JSON: %w", err)
	}
	if v := version.Version; v != nil && *v > SeedVersion {
		return nil, damagedSeed("it is of version %d, and this program knows %d", *v, SeedVersion).
			WithHint("a newer git checkpoint made it: use that one")
	}
	s := &Seed{}
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	if err := d.Decode(s); err != nil {
		return nil, damagedSeed("%w", err)
	}
	if s.Version != SeedVersion {
		return nil, damagedSeed("it has no version that there is")
	}
	if s.SHA256 != s.Sum() {
		return nil, damagedSeed("its checksum is not that of its content")
	}
	if !bytes.Equal(append(canonical(s.complete()), '\n'), data) {
		return nil, damagedSeed("it is not written as a seed is")
	}
	return s, nil
}

func damagedSeed(format string, args ...any) *fault.Error {
	return fault.New(fault.Integrity, "seed-damaged", "read the seed of a rerun: "+format, args...).
		WithHint("nothing of it was run; git checkpoint verify lists what is damaged")
}

// Pinned is what a seed must agree with, from where else it stands.
type Pinned struct {
	SHA256   string // by the child's journal
	Child    string
	Source   SeedSource
	Baseline string // the commit that the child starts from
	PlanBlob string
	Plan     *Plan
	// Works is what the source says of each task; nil where the source is gone
	// and cannot be asked. Ancestry and staleness are not judged again.
	Works map[string]Work
}

// Verify compares the seed with what else is pinned. A difference is
// fault.Integrity.
func (s *Seed) Verify(p Pinned) error {
	if sum := s.Sum(); sum != s.SHA256 || sum != p.SHA256 {
		return damagedSeed("its checksum is not the one in the journal of run '%s'", p.Child)
	}
	for _, c := range []struct{ what, seed, pinned string }{
		{"the child run", s.Child, p.Child},
		{"the source run", s.Source.Run, p.Source.Run},
		{"the source's tip", s.Source.Tip, p.Source.Tip},
		{"the baseline", s.ExpectedHead, p.Baseline},
		{"the plan", s.Plan, p.PlanBlob},
	} {
		if c.seed != c.pinned {
			return damagedSeed("%s is %s in it, and is %s", c.what, quoted(c.seed), quoted(c.pinned))
		}
	}
	request := s.Request()
	if err := request.Check(p.Plan); err != nil {
		return damagedSeed("no request can have asked for it: %v", err)
	}
	if request.Digest() != s.RequestDigest {
		return damagedSeed("its request is not the one of its digest")
	}
	if err := s.verifyTasks(p); err != nil {
		return err
	}
	if need := RequiredBudget(p.Plan, s.Invalidated); s.BudgetRequired != need || s.Budget.Calls() < need {
		return damagedSeed("its budget is not what its tasks need: %d calls", need)
	}
	if _, err := time.Parse(time.RFC3339, s.CreatedAt); err != nil {
		return damagedSeed("it was created at no time: %w", err)
	}
	return nil
}

// verifyTasks checks that the tasks to run again follow from the selection,
// and that the others are what the source has.
func (s *Seed) verifyTasks(p Pinned) error {
	consumed := map[string][]Consumed{}
	if p.Works != nil {
		for id, w := range p.Works {
			consumed[id] = w.Consumed
		}
	} else {
		// Without the source, what the seed says of it is all there is.
		for _, i := range s.Invalidated {
			for _, c := range i.Because {
				if c.Kind == EdgeConsumed {
					consumed[i.Task] = append(consumed[i.Task], Consumed{Kind: EdgeConsumed, From: c.From})
				}
			}
		}
	}
	same := func(a, b Invalidated) bool { return a.Task == b.Task && slices.Equal(a.Because, b.Because) }
	if !slices.EqualFunc(s.Invalidated, Invalidate(p.Plan, consumed, s.Selected), same) {
		return damagedSeed("the tasks to run again do not follow from the selection")
	}
	again := map[string]bool{}
	for _, i := range s.Invalidated {
		again[i.Task] = true
	}
	rest := slices.DeleteFunc(p.Plan.Order(), func(id string) bool { return again[id] })
	if len(rest) != len(s.Retained) {
		return damagedSeed("it retains %d tasks, and %d are not run again", len(s.Retained), len(rest))
	}
	for i, r := range s.Retained {
		switch w, ok := p.Works[r.Task]; {
		case r.Task != rest[i]:
			return damagedSeed("it retains %s, where %s is not run again", quoted(r.Task), quoted(rest[i]))
		case r.Baseline != s.ExpectedHead:
			return damagedSeed("it retains %s on another baseline", quoted(r.Task))
		case p.Works != nil && (!ok || w.Run != r.Run || w.Commit != r.Commit):
			return damagedSeed("what it retains of %s is not what the source has", quoted(r.Task))
		}
	}
	return nil
}
