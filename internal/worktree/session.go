package worktree

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/git-checkpoint/git-checkpoint/internal/fault"
	"github.com/git-checkpoint/git-checkpoint/lineage"
	"github.com/git-checkpoint/git-checkpoint/notes"
	"github.com/git-checkpoint/git-checkpoint/refs"
)

// Session is an agent's session, or an orchestrator's thread: something with
// a foreign id that works in this worktree and has a run here.
type Session struct {
	ID         string
	Transcript string // the file in which the agent keeps it; may be empty
	Parent     string // the session that it was forked from; may be empty
}

// RunOf finds the run that a session's work goes to, "" if it has none here.
// After a rewind it is the run that inherited the session.
func (w *Worktree) RunOf(ctx context.Context, session string) (string, error) {
	current, err := w.repo.CurrentRun(ctx)
	if err != nil {
		return "", err
	}
	if t, err := w.existing(ctx, current); err == nil && t != nil && !t.hidden && t.state.Created.Session == session && t.state.Created.Worktree == w.id {
		return current, nil
	}
	runs, err := w.List(ctx, false, "")
	if err != nil {
		return "", err
	}
	found := ""
	for _, r := range runs {
		if r.Fault != "" || !r.Here || r.state.Created.Session != session {
			continue
		}
		// A fork shares the session of its source only until it gets its own.
		if forked := r.Lineage != nil && r.Lineage.Kind == refs.ForkedFrom; found == "" || !forked {
			found = r.Run
		}
	}
	return found, nil
}

// PathOf finds where the worktree is in which a session works, as its run
// recorded it; "" if no run of this repository knows the session.
func (w *Worktree) PathOf(ctx context.Context, session string) (string, error) {
	runs, err := w.List(ctx, true, "")
	if err != nil {
		return "", err
	}
	path := ""
	for _, r := range runs {
		if r.state.Created.Session == session && r.state.Created.Path != "" {
			path = r.state.Created.Path
		}
	}
	return path, nil
}

// OpenSession gives a session its run and makes that the current one: the run
// that it has, reopened if it had ended; a fork of its parent's; or a new one,
// which begins with what the user had changed.
func (w *Worktree) OpenSession(ctx context.Context, s Session) (run string, err error) {
	if err := w.hold(ctx, "hook"); err != nil {
		return "", err
	}
	defer w.unlock()
	if err := w.refuseInProgress(ctx); err != nil {
		return "", err
	}
	run, err = w.RunOf(ctx, s.ID)
	if err != nil {
		return "", err
	}
	if run != "" {
		if err := w.reopen(ctx, run); err != nil {
			return "", err
		}
		return run, w.repo.SetCurrentRun(ctx, run)
	}
	if s.Parent != "" {
		if run, err = w.forkSession(ctx, s); err != nil || run != "" {
			return run, err
		}
	}
	req := SaveRequest{Kind: refs.KindUser, Session: s.ID, Transcript: s.Transcript, IfChanged: true, Automatic: true, Message: "what the user had changed before the session"}
	saved, err := w.save(ctx, req, w.forStart)
	if err != nil {
		return "", err
	}
	return saved.Run, nil
}

// forkSession makes the run of a session that was forked from another.
func (w *Worktree) forkSession(ctx context.Context, s Session) (string, error) {
	source, err := w.RunOf(ctx, s.Parent)
	if err != nil || source == "" {
		return "", err
	}
	by, err := w.config.Identity()
	if err != nil {
		return "", err
	}
	tip, err := w.repo.Resolve(ctx, source)
	if err != nil {
		return "", err
	}
	run := refs.GenerateChild(source)
	tx := w.repo.Begin("checkpoint: hook")
	book, err := notes.OpenBook(ctx, w.repo, run)
	if err != nil {
		return "", err
	}
	start, err := lineage.Create(ctx, w.repo, book, lineage.NewRun{
		Name: run, Source: tip, Worktree: w.id, Path: w.git.Top, Session: s.ID, By: by,
		Lineage: &refs.Lineage{Kind: refs.ForkedFrom, Run: source, Step: tip.Step, Checkpoint: tip.ID},
	})
	if err != nil {
		return "", err
	}
	if err := book.Commit(ctx, tx, "run "+run+": forked with its session", by); err != nil {
		return "", err
	}
	tx.Set(refs.RunRef(run), start.ID, "")
	if err := tx.Commit(ctx); err != nil {
		return "", err
	}
	return run, w.repo.SetCurrentRun(ctx, run)
}

// reopen makes a run that has ended open again.
func (w *Worktree) reopen(ctx context.Context, run string) error {
	for attempt := 1; ; attempt++ {
		t, err := w.existing(ctx, run)
		if err != nil || t == nil || !notes.Ended(t.status) {
			return err
		}
		err = w.setStatus(ctx, t, notes.Open)
		if errors.Is(err, refs.ErrStale) && attempt < attempts {
			continue
		}
		return err
	}
}

// SaveTurn saves the end of a turn, or of another part of a session, in the
// session's run (req.Run). A turn that was saved before is answered with the
// checkpoint that it made. A run that has ended is opened again: a session
// that goes on after its end may not say so.
func (w *Worktree) SaveTurn(ctx context.Context, req SaveRequest) (result *SaveResult, replayed bool, err error) {
	if err := req.check(); err != nil {
		return nil, false, err
	}
	if err := w.hold(ctx, "hook"); err != nil {
		return nil, false, err
	}
	defer w.unlock()
	if err := w.refuseInProgress(ctx); err != nil {
		return nil, false, err
	}
	if req.Turn != "" {
		earlier, err := w.turn(ctx, req.Run, req.Session, req.Turn)
		if err != nil {
			return nil, false, err
		}
		if earlier != nil {
			return &SaveResult{
				Saved: true, Run: earlier.Run, Checkpoint: earlier.ID, Tree: earlier.Tree, StepKind: earlier.Kind, StepName: earlier.Step, Number: earlier.Number,
			}, true, nil
		}
	}
	if err := w.reopen(ctx, req.Run); err != nil {
		return nil, false, err
	}
	if req.Run, err = w.rollOver(ctx, req.Run, req.Session); err != nil {
		return nil, false, err
	}
	result, err = w.save(ctx, req, w.forSave)
	return result, false, err
}

// memory is what a session's hooks tell each other between two events.
type memory struct {
	Prompt string `json:"prompt"` // the first line of the last prompt
}

// maxSubject bounds a subject that is made from a prompt, in characters.
const maxSubject = 100

// Remember keeps the first line of a prompt as the subject of the turn's
// checkpoint. It stays in the git directory of this worktree.
func (w *Worktree) Remember(session, prompt string) error {
	first, _, _ := strings.Cut(strings.TrimSpace(prompt), "\n")
	first = strings.TrimSpace(first)
	if utf8.RuneCountInString(first) > maxSubject {
		first = strings.TrimSpace(string([]rune(first)[:maxSubject-1])) + "…"
	}
	data, err := json.Marshal(memory{Prompt: first})
	if err != nil {
		return err
	}
	file := w.memoryFile(session)
	if err := os.MkdirAll(filepath.Dir(file), 0o777); err != nil {
		return fault.New(fault.Fatal, "io", "remember the prompt: %w", err)
	}
	if _, err := os.Lstat(file); err != nil {
		forgetOld(filepath.Dir(file))
	}
	if err := os.WriteFile(file, data, 0o600); err != nil {
		return fault.New(fault.Fatal, "io", "remember the prompt: %w", err)
	}
	return nil
}

// remembered is how long a session is remembered that never told its end.
const remembered = 30 * 24 * time.Hour

func forgetOld(dir string) {
	entries, _ := os.ReadDir(dir)
	for _, e := range entries {
		if info, err := e.Info(); err == nil && time.Since(info.ModTime()) > remembered {
			os.Remove(filepath.Join(dir, e.Name()))
		}
	}
}

// Recall returns the first line of a session's last prompt.
func (w *Worktree) Recall(session string) string {
	var m memory
	data, err := os.ReadFile(w.memoryFile(session))
	if err != nil || json.Unmarshal(data, &m) != nil {
		return ""
	}
	return m.Prompt
}

// Forget removes what is remembered of a session.
func (w *Worktree) Forget(session string) { os.Remove(w.memoryFile(session)) }

func (w *Worktree) memoryFile(session string) string {
	sum := sha256.Sum256([]byte(session))
	return w.home(filepath.Join("sessions", hex.EncodeToString(sum[:16])))
}

// Automatic says whether hooks and reactors are to do anything.
func (w *Worktree) Automatic() bool { return w.config.AutoCheckpoint }

// SubjectTemplate is the configured template of a checkpoint's subject, "" if
// there is none.
func (w *Worktree) SubjectTemplate() string { return w.config.CommitMessage }

// OpenThread makes the run of an orchestrator's thread and makes it current.
// Unlike OpenSession it saves nothing: what is there belongs to the turn that
// has just been completed.
func (w *Worktree) OpenThread(ctx context.Context, thread string) (run string, err error) {
	if err := w.hold(ctx, "react"); err != nil {
		return "", err
	}
	defer w.unlock()
	if err := w.refuseInProgress(ctx); err != nil {
		return "", err
	}
	for attempt := 1; ; attempt++ {
		run, err = w.emptyRun(ctx, thread)
		if errors.Is(err, refs.ErrStale) && attempt < attempts {
			continue
		}
		return run, err
	}
}

// emptyRun makes a run that has only its start commit.
func (w *Worktree) emptyRun(ctx context.Context, session string) (string, error) {
	by, err := w.config.Identity()
	if err != nil {
		return "", err
	}
	head, err := w.repo.Head(ctx)
	if err != nil {
		return "", err
	}
	t := &target{run: refs.GenerateRun(head.Branch, by.When), current: true}
	book, err := notes.OpenBook(ctx, w.repo, t.run)
	if err != nil {
		return "", err
	}
	start, err := lineage.Create(ctx, w.repo, book, lineage.NewRun{
		Name: t.run, Head: head, Worktree: w.id, Path: w.git.Top, Session: session, By: by,
	})
	if err != nil {
		return "", err
	}
	if err := w.createOnly(ctx, w.repo.Begin("checkpoint: start"), book, t, start, by); err != nil {
		return "", err
	}
	w.point(ctx, t)
	return t.run, nil
}

// rollOver ends a session's run that has grown long and begins another one,
// which stands on nothing of it, so that old turns can be pruned while the
// session goes on. It returns the run to save to.
func (w *Worktree) rollOver(ctx context.Context, run, session string) (string, error) {
	t, err := w.existing(ctx, run)
	if err != nil || t == nil || w.config.Rollover <= 0 || int64(t.tip.Number) < w.config.Rollover {
		return run, err
	}
	next, err := w.emptyRun(ctx, session)
	if err != nil {
		return "", err
	}
	w.warn("run '%s' has %d checkpoints; the session goes on in run '%s'", run, t.tip.Number, next)
	return next, w.setStatus(ctx, t, notes.Completed)
}
