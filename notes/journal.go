package notes

import (
	"context"
	"encoding/json"
	"slices"
	"time"

	"github.com/git-checkpoint/git-checkpoint/internal/fault"
	"github.com/git-checkpoint/git-checkpoint/internal/object"
	"github.com/git-checkpoint/git-checkpoint/refs"
)

// The events of a journal and of a record that this version writes. Readers
// ignore those they do not know.
const (
	EventCreated    = "created"    // on the start commit: Created
	EventStatus     = "status"     // on the start commit: {"status"}
	EventArchived   = "archived"   // on the start commit: {"by","status"}: the run that it was rewound to; none: hidden by undo
	EventUnarchived = "unarchived" // on the start commit: {"by"}: takes back the archiving by that run
	EventCheckpoint = "checkpoint" // on a checkpoint: its record
)

// The statuses of a run.
const (
	Open        = "open"
	Held        = "held"
	Running     = "running"
	Waiting     = "waiting"
	Interrupted = "interrupted"
	Completed   = "completed"
	Failed      = "failed"
	Stopped     = "stopped"
)

// Ended says whether a status is final.
func Ended(status string) bool {
	return status == Completed || status == Failed || status == Stopped
}

// Created is the first event of a run.
type Created struct {
	Lineage  *refs.Lineage `json:"lineage,omitempty"`
	Worktree string        `json:"worktree,omitempty"` // the id of the worktree that writes the run
	Path     string        `json:"path,omitempty"`     // where that worktree was
	Session  string        `json:"sdk_session_id,omitempty"`
	By       string        `json:"by,omitempty"`
	Digest   string        `json:"request_digest,omitempty"`

	// What a rewind or fork was asked for.
	Instructions string `json:"instructions,omitempty"` // for the step that is entered again
	ResumeStep   string `json:"resume_step,omitempty"`  // that step
	Pin          *Pin   `json:"pin,omitempty"`
}

// Pin is the state that a run with lineage starts from.
type Pin struct {
	Checkpoint string `json:"checkpoint"`
	Head       string `json:"head"` // HEAD's commit then; empty: unborn
	Tree       string `json:"tree"`
}

// State is what a run's journal says about it.
type State struct {
	Created    Created
	CreatedAt  time.Time
	Said       string   // the last status; Open where the journal says nothing. See Status
	ArchivedBy []string // the runs that it was rewound to; see Archived
	Unarchived []string // those whose archiving was taken back
	Hidden     bool     // archived by nobody: its own rewind was undone
	Known      bool     // there is a journal

	stoppedBy []string // the rewinds that stopped it while it was open
}

// Archived says whether the run is archived. exists tells whether a run is
// there: the run ref of a rewind is written after this journal, so a rewind
// whose run is not there did not happen.
func (s State) Archived(exists func(run string) bool) bool {
	return s.Hidden || slices.ContainsFunc(s.ArchivedBy, exists)
}

// Status is the run's status; see Archived for exists.
func (s State) Status(exists func(run string) bool) string {
	if s.Said == "" {
		s.Said = Open
	}
	if s.Said == Open && slices.ContainsFunc(s.stoppedBy, exists) {
		return Stopped
	}
	return s.Said
}

// archive notes that a run was, or is no longer, archived by another.
func (s *State) archive(by, status string, archived bool) {
	without := func(list []string) []string {
		return slices.DeleteFunc(list, func(r string) bool { return r == by })
	}
	s.ArchivedBy, s.stoppedBy, s.Unarchived = without(s.ArchivedBy), without(s.stoppedBy), without(s.Unarchived)
	switch {
	case by == "":
		s.Hidden = archived
	case !archived:
		s.Unarchived = append(s.Unarchived, by)
	default:
		s.ArchivedBy = append(s.ArchivedBy, by)
		if status == Stopped {
			s.stoppedBy = append(s.stoppedBy, by)
		}
	}
}

// Derive reads a journal's lines. Lines whose fields are not as they should
// be are ErrIntegrity.
func Derive(lines []Line) (State, error) {
	s := State{Said: Open}
	for _, l := range lines {
		var err error
		switch l.Event {
		case EventCreated:
			if !s.Known {
				s.Known, s.CreatedAt = true, l.At
				err = l.Decode(&s.Created)
			}
		case EventStatus:
			var f struct{ Status string }
			if err = l.Decode(&f); f.Status != "" {
				s.Said = f.Status
			}
		case EventArchived, EventUnarchived:
			var f struct{ By, Status string }
			if err = l.Decode(&f); err == nil {
				s.archive(f.By, f.Status, l.Event == EventArchived)
			}
		}
		if err != nil {
			return s, fault.New(fault.Integrity, "journal-damaged", "read event %s of a journal: %w", l.ID, err).
				WithHint("git checkpoint verify lists what is damaged")
		}
	}
	return s, nil
}

// Book is the notes of one run, open for reading and adding.
type Book struct {
	Run string

	repo   *refs.Repository
	ref    string
	commit string // what the ref held when the book was opened; empty: nothing
	root   string
	tree   *Tree
}

// OpenBook opens the notes of a run. A run without notes has an empty book.
func OpenBook(ctx context.Context, repo *refs.Repository, run string) (*Book, error) {
	commit, err := repo.Ref(ctx, refs.NotesRef(run))
	if err != nil {
		return nil, err
	}
	return OpenBookAt(ctx, repo, run, commit)
}

// OpenBookAt is OpenBook where what the ref of the notes holds is known; an
// empty commit stands for no ref.
func OpenBookAt(ctx context.Context, repo *refs.Repository, run, commit string) (*Book, error) {
	b := &Book{Run: run, repo: repo, ref: refs.NotesRef(run), commit: commit}
	var err error
	if commit != "" {
		if b.root, err = repo.CommitTree(ctx, commit); err != nil {
			return nil, err
		}
	}
	b.tree, err = LoadTree(ctx, repo.Objects(), repo.Git().ObjectFormat, b.root)
	return b, err
}

// Lines returns the lines on an object; none where it has no note.
func (b *Book) Lines(ctx context.Context, id string) ([]Line, error) {
	note, ok, err := b.tree.Get(ctx, id)
	if err != nil || !ok {
		return nil, err
	}
	return Parse(note)
}

// State reads the run's journal, the note on its start commit.
func (b *Book) State(ctx context.Context, start string) (State, error) {
	lines, err := b.Lines(ctx, start)
	if err != nil {
		return State{}, err
	}
	return Derive(lines)
}

// Add adds a line to an object's note.
func (b *Book) Add(ctx context.Context, id string, at time.Time, event string, fields any) error {
	note, _, err := b.tree.Get(ctx, id)
	if err != nil {
		return err
	}
	note, _, err = Append(note, at, event, fields)
	if err != nil {
		return err
	}
	return b.tree.Set(ctx, id, note)
}

// Commit puts the changed notes as a commit and adds their ref to a
// transaction. A book to which nothing was added changes nothing.
func (b *Book) Commit(ctx context.Context, tx *refs.Transaction, message string, by refs.Identity) error {
	root, err := b.tree.Write(ctx)
	if err != nil {
		return err
	}
	if root == b.root || b.root == "" && root == object.EmptyTree(b.repo.Git().ObjectFormat) {
		return nil
	}
	var parents []string
	if b.commit != "" {
		parents = []string{b.commit}
	}
	tx.Set(b.ref, b.repo.PutCommit(root, parents, message+"\n", by), b.commit)
	return nil
}

// Record is what a checkpoint's note says about it, beyond its trailers.
type Record struct {
	StepName  string `json:"step_name,omitempty"`
	StepKind  string `json:"step_kind,omitempty"`
	Outcome   string `json:"outcome,omitempty"`
	Replay    string `json:"replay,omitempty"` // "always": run the step again after a rewind
	SessionID string `json:"sdk_session_id,omitempty"`
	// Transcript is the file in which the agent keeps the session: while it
	// is there, the session can be resumed.
	Transcript string          `json:"transcript_path,omitempty"`
	TurnID     string          `json:"turn_id,omitempty"`
	GitCommit  string          `json:"git_commit_sha,omitempty"` // HEAD's commit
	Branch     string          `json:"branch,omitempty"`
	Artifacts  json.RawMessage `json:"artifacts,omitempty"` // [{name, path|uri, digest}]
	Skipped    json.RawMessage `json:"skipped,omitempty"`   // [{path, reason}]
	By         string          `json:"by,omitempty"`
	Worktree   string          `json:"worktree,omitempty"`
	TookMS     int64           `json:"took_ms,omitempty"` // how long the save took, in milliseconds
}

// Record returns a checkpoint's record; an empty one where there is none.
func (b *Book) Record(ctx context.Context, checkpoint string) (Record, error) {
	lines, err := b.Lines(ctx, checkpoint)
	if err != nil {
		return Record{}, err
	}
	return DecodeRecord(checkpoint, lines)
}

// DecodeRecord finds a checkpoint's record among the lines of its note.
func DecodeRecord(checkpoint string, lines []Line) (r Record, err error) {
	for _, l := range lines {
		if l.Event != EventCheckpoint || plainRecord(l.Raw, &r) {
			continue
		}
		if err := l.Decode(&r); err != nil {
			return r, fault.New(fault.Integrity, "record-damaged", "read the record of checkpoint %s: %w", checkpoint, err)
		}
	}
	return r, nil
}
