package worktree

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/git-checkpoint/git-checkpoint/internal/fault"
	"github.com/git-checkpoint/git-checkpoint/internal/snapshot"
	"github.com/git-checkpoint/git-checkpoint/notes"
	"github.com/git-checkpoint/git-checkpoint/refs"
)

// message makes subject and body of a checkpoint's commit.
func (w *Worktree) message(req SaveRequest, c *refs.Checkpoint) (subject, body string) {
	subject, body, _ = strings.Cut(strings.TrimSpace(req.Message), "\n")
	switch {
	case subject != "":
	case w.config.CommitMessage != "":
		subject = strings.NewReplacer("{turn_id}", c.Turn, "{run}", c.Run, "{step_name}", c.Step, "{step_kind}", c.Kind,
			"{session_id}", c.Session, "{number}", fmt.Sprint(c.Number)).Replace(w.config.CommitMessage)
	case c.Step != "":
		subject = "checkpoint: " + c.Step
	default:
		subject = fmt.Sprintf("checkpoint %d", c.Number)
	}
	return subject, strings.TrimSpace(body)
}

func (w *Worktree) record(req SaveRequest, c *refs.Checkpoint, state *captured, artifacts []Artifact, by refs.Identity, begun time.Time) notes.Record {
	r := notes.Record{
		StepName: c.Step, StepKind: c.Kind, Outcome: c.Outcome, Replay: req.Replay, SessionID: c.Session, Transcript: transcriptPath(req.Transcript), TurnID: c.Turn,
		GitCommit: c.Head, Branch: strings.TrimPrefix(c.Branch, "refs/heads/"), By: by.String(), Worktree: w.id,
		TookMS: time.Since(begun).Milliseconds(),
	}
	if os.Getenv("GIT_CHECKPOINT_DATE") != "" {
		r.TookMS = 0 // time stands still
	}
	if len(artifacts) > 0 {
		r.Artifacts, _ = json.Marshal(artifacts)
	}
	if len(state.snap.Skipped) > 0 {
		r.Skipped = snapshot.EncodeSkips(state.snap.Skipped)
	}
	return r
}

// transcriptPath makes a transcript's path good wherever it is read.
func transcriptPath(file string) string {
	if file == "" {
		return ""
	}
	if abs, err := filepath.Abs(file); err == nil {
		return abs
	}
	return file
}

// artifacts completes what the request says: paths from the top of the
// worktree, with a digest where the file is there.
func (w *Worktree) artifacts(list []Artifact) ([]Artifact, error) {
	done := slices.Clone(list)
	for i := range done {
		a := &done[i]
		if a.Path == "" {
			if u, err := url.Parse(a.URI); err != nil || u.Scheme == "" {
				return nil, fault.New(fault.Invalid, "invalid-artifact", "artifact '%s': '%s' is no URI", a.Name, a.URI)
			}
			continue
		}
		file := a.Path
		if !filepath.IsAbs(file) {
			file = filepath.Join(w.git.Top, filepath.FromSlash(w.git.Prefix), file)
		}
		rel, err := filepath.Rel(w.git.Top, file)
		if err != nil || rel == ".." || strings.HasPrefix(rel, ".."+string(filepath.Separator)) {
			return nil, fault.New(fault.Invalid, "invalid-artifact", "artifact '%s': '%s' is outside the working tree", a.Name, a.Path).
				WithHint("name it by a URI such as file:///…")
		}
		a.Path = filepath.ToSlash(rel)
		f, err := os.Open(file)
		if err != nil {
			return nil, fault.New(fault.Invalid, "invalid-artifact", "artifact '%s': %w", a.Name, err)
		}
		h := sha256.New()
		_, err = io.Copy(h, f)
		f.Close()
		if err != nil {
			continue // a directory: a pointer without a digest
		}
		a.Digest = "sha256:" + hex.EncodeToString(h.Sum(nil))
	}
	return done, nil
}
