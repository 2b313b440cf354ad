// Package worktree knows one working tree and its current run: it saves the
// tree as checkpoints, restores it, and takes that back. Commands parse and
// print; what they do is decided here.
package worktree

import (
	"time"

	"github.com/git-checkpoint/git-checkpoint/internal/snapshot"
	"github.com/git-checkpoint/git-checkpoint/notes"
	"github.com/git-checkpoint/git-checkpoint/refs"
)

// Artifact is a product of a step that is not, or not only, in the tree.
type Artifact struct {
	Name   string `json:"name"`
	Path   string `json:"path,omitempty"` // relative to the top of the working tree
	URI    string `json:"uri,omitempty"`
	Digest string `json:"digest,omitempty"` // "sha256:<hex>" of the file, where there is one
}

// SaveRequest asks for one checkpoint.
type SaveRequest struct {
	Run     string // empty: the current run, or a new one
	Step    string
	Kind    string // one of refs.Kinds; empty: manual
	Outcome string // one of refs.Outcomes; empty: succeeded if there is a step
	Replay  string // "always" or empty
	Session string
	// Transcript is the file in which the agent keeps the session.
	Transcript string
	Turn       string
	Artifacts  []Artifact // Name with Path or URI
	Message    string     // its first line is the subject
	IfChanged  bool       // record a named step only if something changed
	Automatic  bool       // for a hook: waits for an unfinished restore, leaves out what a restore un-ignored
}

// SaveResult says what became of it.
type SaveResult struct {
	Saved       bool            `json:"saved"`
	Run         string          `json:"run"`
	Checkpoint  string          `json:"checkpoint"`
	Tree        string          `json:"tree"`
	StepName    string          `json:"step_name,omitempty"`
	StepKind    string          `json:"step_kind,omitempty"`
	Skipped     []snapshot.Skip `json:"skipped"`
	Unprotected []string        `json:"unprotected,omitempty"` // submodules and nested repositories
	Started     bool            `json:"started,omitempty"`     // the run was made by this save
	Lineage     *refs.Lineage   `json:"lineage,omitempty"`     // of a run that was forked because it belongs to another worktree
	Number      int             `json:"number,omitempty"`      // 1-based among the run's own checkpoints
}

// StartResult says which run was opened.
type StartResult struct {
	Run        string      `json:"run"`
	Checkpoint string      `json:"checkpoint"`     // its newest: what the user had changed, or the start commit
	Save       *SaveResult `json:"save,omitempty"` // the user checkpoint, if anything had changed
}

// EndResult says how a run ended.
type EndResult struct {
	Run     string `json:"run"`
	Status  string `json:"status"`
	Changed bool   `json:"changed"` // false: it had ended so already
}

// RestoreRequest asks for the files of a checkpoint.
type RestoreRequest struct {
	Checkpoint string   // an address
	Paths      []string // pathspecs relative to where the command runs; empty: everything
	Reset      bool     // move the current branch too
	DryRun     bool
}

// RestoreResult says what a restore, undo, redo or switch did, or would do.
type RestoreResult struct {
	Operation   string          `json:"operation"` // restore, undo, redo, switch, rewind, fork; rollback: undo of one that was interrupted
	DryRun      bool            `json:"dry_run,omitempty"`
	Run         string          `json:"run,omitempty"` // the current run afterwards
	Checkpoint  string          `json:"checkpoint"`
	Safety      string          `json:"safety"` // the commit that holds what was there before
	Written     []string        `json:"written"`
	Deleted     []string        `json:"deleted"`
	Kept        []string        `json:"kept,omitempty"`         // not in the checkpoint, but ignored by it: left alone
	Unignored   []string        `json:"unignored,omitempty"`    // ignored before, not any more
	Unprotected []string        `json:"unprotected,omitempty"`  // submodules and nested repositories at another commit: left alone
	Skipped     []snapshot.Skip `json:"skipped,omitempty"`      // what the safety checkpoint could not take and the restore left alone
	Head        *HeadMove       `json:"head"`                   // null: HEAD is where it was
	HeadDiffers string          `json:"head_differs,omitempty"` // the checkpoint's HEAD, where it is another and was left
}

// HeadMove says how HEAD moved.
type HeadMove struct {
	From   string `json:"from"`   // commit; empty: unborn
	To     string `json:"to"`     // commit; empty: unborn
	Branch string `json:"branch"` // the branch that is checked out now, without refs/heads/; empty: detached
}

// Entry is one checkpoint as log and show print it.
type Entry struct {
	Run        string          `json:"run"`
	Checkpoint string          `json:"checkpoint"`
	StepName   string          `json:"step_name,omitempty"`
	StepKind   string          `json:"step_kind,omitempty"`
	Outcome    string          `json:"outcome,omitempty"`
	Visit      int             `json:"visit,omitempty"`
	Number     int             `json:"number,omitempty"`
	TurnID     string          `json:"turn_id,omitempty"`
	SessionID  string          `json:"sdk_session_id,omitempty"`
	GitCommit  string          `json:"git_commit_sha,omitempty"` // HEAD's commit when it was saved
	Branch     string          `json:"branch,omitempty"`         // without refs/heads/
	Artifacts  []Artifact      `json:"artifacts,omitempty"`
	Replay     string          `json:"replay,omitempty"`
	Subject    string          `json:"subject"`
	At         time.Time       `json:"at"`
	Inherited  bool            `json:"inherited"`
	State      string          `json:"state,omitempty"` // the operation that was under way
	Tree       string          `json:"tree,omitempty"`
	Skipped    []snapshot.Skip `json:"skipped,omitempty"`
	Log        string          `json:"log,omitempty"` // show only, of a plan's task: the end of what its commands printed
}

// RunInfo is one run as list prints it.
type RunInfo struct {
	Run           string        `json:"run"`
	Status        string        `json:"status"`
	Archived      bool          `json:"archived"`
	Checkpoints   int           `json:"checkpoints"` // its own, without inherited ones
	Tip           string        `json:"tip"`
	Lineage       *refs.Lineage `json:"lineage"`
	SourceGone    bool          `json:"source_gone,omitempty"`   // the run that it descends from is not there
	SourcePruned  bool          `json:"source_pruned,omitempty"` // since it was pruned, here or elsewhere
	CreatedAt     time.Time     `json:"created_at,omitzero"`
	RequestDigest string        `json:"request_digest,omitempty"`
	Current       bool          `json:"current"`         // of this worktree
	Worktree      string        `json:"worktree"`        // the id of the worktree that writes it
	Here          bool          `json:"here"`            // it is this worktree
	Fault         string        `json:"fault,omitempty"` // why the rest is unknown: its notes or chain cannot be read
	*PlanStatus                 // status R of a planned run only
	Entries       []Entry       `json:"entries,omitempty"` // status R only

	start string
	state notes.State
}

// Status is the state of this worktree.
type Status struct {
	Run               string             `json:"run"` // empty: none is current
	RunStatus         string             `json:"status,omitempty"`
	Archived          bool               `json:"archived,omitempty"`
	Checkpoint        string             `json:"checkpoint"`
	Entry             *Entry             `json:"entry,omitempty"`     // the last checkpoint
	Changed           []string           `json:"changed"`             // paths that differ from the last checkpoint
	IndexChanged      bool               `json:"index_changed"`       // what is staged differs
	RestoreInProgress *RestoreInProgress `json:"restore_in_progress"` // null: none
	UndoAvailable     int                `json:"undo_available"`
	RedoAvailable     int                `json:"redo_available"`
	Skipped           []snapshot.Skip    `json:"skipped,omitempty"`
}

// RestoreInProgress is a restore that was killed before its end.
type RestoreInProgress struct {
	Operation  string    `json:"operation"`
	Checkpoint string    `json:"checkpoint"`
	Safety     string    `json:"safety"`
	At         time.Time `json:"at"`
}

// Finding is one fault that verify found.
type Finding struct {
	Code    string `json:"code"`
	Ref     string `json:"ref"`
	Object  string `json:"object"`
	Message string `json:"message"`
}

// Change is one path that differs between two checkpoints.
type Change struct {
	Path   string `json:"path"`
	Status string `json:"status"` // A, D, M or T, as git diff --name-status prints it
}
