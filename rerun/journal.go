package rerun

import (
	"encoding/json"

	"github.com/git-checkpoint/git-checkpoint/notes"
)

// The events of a planned run's journal, beside those of every run.
const (
	EventPlanned  = "planned"
	EventTask     = "task"
	EventCheck    = "check"
	EventProof    = "proof"
	EventVerify   = "verify"
	EventReview   = "review"
	EventQuestion = "question"
	EventAnswer   = "answer"
	EventApproved = "approved"
	EventRejected = "rejected"
	EventDelivery = "delivery"
)

// Budget bounds what a run may spend. Zero is no bound.
type Budget struct {
	MaxSteps       int `json:"maxSteps,omitempty"`
	MaxInvocations int `json:"maxInvocations,omitempty"`
	MaxMinutes     int `json:"maxMinutes,omitempty"`
}

// Calls is the effective bound on calls: both maxSteps and maxInvocations
// limit them, the smaller counts. 0 is no bound.
func (b Budget) Calls() int {
	switch {
	case b.MaxSteps == 0:
		return b.MaxInvocations
	case b.MaxInvocations == 0:
		return b.MaxSteps
	}
	return min(b.MaxSteps, b.MaxInvocations)
}

// Planned is the event that pins a plan to a run.
type Planned struct {
	Plan     string `json:"plan"`   // the blob of plan.toml in the run's seed commit
	Digest   string `json:"digest"` // of the plan
	Branch   string `json:"branch"` // full name of the integration branch
	Baseline string `json:"baseline"`
	Approval string `json:"approval"`
	Budget   Budget `json:"budget"`
	Key      string `json:"key"` // of the run's deliveries
}

// TaskEvent is something that happened to a task.
type TaskEvent struct {
	Task    string `json:"task"`
	State   string `json:"state"` // started, leased, checking, done, failed, conflict, killed, returned
	Attempt int    `json:"attempt,omitempty"`
	Place   int    `json:"place,omitempty"` // the attempt whose worktree it works in, where that is an earlier one's
	Member  string `json:"member,omitempty"`
	Base    string `json:"base,omitempty"`
	Commit  string `json:"commit,omitempty"`
	// Checkpoint is the one that makes a task done, which is written after
	// this: where a crash came between, it is put into the chain later.
	Checkpoint string  `json:"checkpoint,omitempty"`
	Session    string  `json:"sdk_session_id,omitempty"`
	Call       bool    `json:"call,omitempty"`   // it counts against the budget
	Repair     bool    `json:"repair,omitempty"` // a failure was handed back
	Reason     string  `json:"reason,omitempty"`
	Output     string  `json:"output,omitempty"` // the end of the command's output
	Safety     string  `json:"safety,omitempty"` // the commit that keeps half-done work
	Lease      string  `json:"lease,omitempty"`
	Deadline   string  `json:"deadline,omitempty"` // RFC 3339
	Elapsed    float64 `json:"elapsed,omitempty"`  // minutes since this runner began
}

// The states of TaskEvent.
const (
	eventStarted  = "started"
	eventLeased   = "leased"
	eventChecking = "checking"
	eventDone     = "done"
	eventFailed   = "failed"
	eventConflict = "conflict"
	eventKilled   = "killed"
	eventReturned = "returned" // it is to be done again, for the reason given
)

// Evidence is the outcome of a check, of a proof, of the verification or of a
// review. It holds for one tree and one command.
type Evidence struct {
	Task     string  `json:"task,omitempty"`
	Subject  string  `json:"subject,omitempty"` // of a review: acceptance, or a requirement's id
	Attempt  int     `json:"attempt,omitempty"`
	Commit   string  `json:"commit"`
	Tree     string  `json:"tree"`
	Digest   string  `json:"digest"` // of the command
	Exit     int     `json:"exit"`
	OK       bool    `json:"ok"`
	BaseExit int     `json:"base_exit,omitempty"` // of a proof: how it failed on the base
	Reason   string  `json:"reason,omitempty"`
	Output   string  `json:"output,omitempty"`
	Call     bool    `json:"call,omitempty"`
	Elapsed  float64 `json:"elapsed,omitempty"`
	// ProofNotRequired says why there is no proof: "unchanged-rerun".
	ProofNotRequired string `json:"proof_not_required,omitempty"`
}

// Question is what a task asked, and Answer's text what it was told.
type Question struct {
	Task    string  `json:"task"`
	Attempt int     `json:"attempt,omitempty"`
	Text    string  `json:"text"`
	Elapsed float64 `json:"elapsed,omitempty"`
}

// Delivery is a step of a delivery: intent, then adopted or delivered.
type Delivery struct {
	Task      string `json:"task"`
	Key       string `json:"key"`
	State     string `json:"state"`
	Reference string `json:"reference,omitempty"`
}

// TaskRecord is the record of a task's checkpoint: that of every checkpoint,
// and how the task was done.
type TaskRecord struct {
	notes.Record
	Attempt    int             `json:"attempt,omitempty"`
	Member     string          `json:"member,omitempty"`
	Provider   string          `json:"provider,omitempty"`
	Model      string          `json:"model,omitempty"`
	Effort     string          `json:"effort,omitempty"`
	Base       string          `json:"base,omitempty"`
	PlanDigest string          `json:"task_digest,omitempty"` // of what the plan fixes about the task
	Consumed   []Consumed      `json:"consumed,omitempty"`
	Handover   string          `json:"handover,omitempty"`
	Metrics    json.RawMessage `json:"metrics,omitempty"`
	Log        string          `json:"log,omitempty"` // the end of the output
}

// Consumed is something of another task that a task was given.
type Consumed struct {
	Kind   string `json:"kind"` // artifact or knowledge
	From   string `json:"from"` // the task
	Name   string `json:"name,omitempty"`
	Digest string `json:"digest"` // the artifact's object id, or the SHA-256 of the handover
}
