// Package react knows how an orchestrator drives checkpoints: events as JSON
// lines in, answers as JSON lines out (docs/events.md). Events of one project
// are handled in their order, those of several projects at once.
package react

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"sync"

	"github.com/git-checkpoint/git-checkpoint/internal/fault"
	"github.com/git-checkpoint/git-checkpoint/internal/worktree"
	"github.com/git-checkpoint/git-checkpoint/refs"
)

// maxLine bounds an event, in bytes.
const maxLine = 16 << 20

// DefaultSubject is the subject of a turn's checkpoint where no template is
// configured.
const DefaultSubject = "forge-agent checkpoint — turn "

// event is what an orchestrator sends.
type event struct {
	Type        string `json:"type"`
	ThreadID    string `json:"thread_id"`
	TurnID      string `json:"turn_id"`
	ProjectPath string `json:"project_path"`
	GitRef      string `json:"git_ref"`

	line int
}

// The types of events that mean something; others are ignored.
const (
	turnCompleted     = "TurnCompleted"
	restoreCheckpoint = "RestoreCheckpoint"
)

// answer is what goes back.
type answer struct {
	Type     string `json:"type"`
	ThreadID string `json:"thread_id,omitempty"`
	TurnID   string `json:"turn_id,omitempty"`
	GitRef   string `json:"git_ref,omitempty"`
	Reason   string `json:"reason,omitempty"`
	Status   string `json:"status,omitempty"`
	Line     int    `json:"line,omitempty"`
	Code     string `json:"code,omitempty"`
	Message  string `json:"message,omitempty"`
}

// reactor is one run of React.
type reactor struct {
	ctx context.Context

	mu     sync.Mutex // of out and failed
	out    *json.Encoder
	failed error

	paths   map[string]string     // thread to project, as far as events told
	workers map[string]chan event // project to its queue
	running sync.WaitGroup
}

// React reads events until the end of in and answers each on out. The error is
// for what keeps it from going on: in that cannot be read, out that cannot be
// written.
func React(ctx context.Context, in io.Reader, out io.Writer) error {
	encoder := json.NewEncoder(out)
	encoder.SetEscapeHTML(false)
	r := &reactor{ctx: ctx, out: encoder, paths: map[string]string{}, workers: map[string]chan event{}}
	err := r.read(bufio.NewReaderSize(in, 64<<10))
	for _, queue := range r.workers {
		close(queue)
	}
	r.running.Wait()
	if r.failed != nil {
		return fault.New(fault.Fatal, "io", "write an answer: %w", r.failed)
	}
	return err
}

func (r *reactor) read(in *bufio.Reader) error {
	for line := 1; r.ctx.Err() == nil; line++ {
		data, err := readLine(in)
		if len(data) > 0 {
			r.take(data, line)
		}
		switch {
		case errors.Is(err, errTooLong):
			r.fail(event{line: line}, fault.New(fault.Invalid, "malformed-event", "read an event: %w", err))
		case err == io.EOF:
			return nil
		case err != nil:
			return fault.New(fault.Fatal, "io", "read an event: %w", err)
		}
	}
	return nil
}

var errTooLong = errors.New("the line is too long")

// readLine reads a line without its end; one that is too long is read over.
func readLine(in *bufio.Reader) ([]byte, error) {
	var data []byte
	long := false
	for {
		part, more, err := in.ReadLine()
		if err != nil {
			return data, err
		}
		if long = long || len(data)+len(part) > maxLine; !long {
			data = append(data, part...)
		}
		switch {
		case more:
		case long:
			return nil, errTooLong
		default:
			return data, nil
		}
	}
}

// take reads an event and hands it to its project's worker.
func (r *reactor) take(data []byte, line int) {
	e := event{line: line}
	if err := json.Unmarshal(data, &e); err != nil {
		var other *json.UnmarshalTypeError
		switch {
		case !errors.As(err, &other):
		case other.Field == "":
			err = errors.New("it is a JSON " + other.Value + ", not an object")
		default:
			err = errors.New("its " + other.Field + " is a JSON " + other.Value + ", not a string")
		}
		r.fail(e, fault.New(fault.Invalid, "malformed-event", "read an event: %w", err))
		return
	}
	if e.Type != turnCompleted && e.Type != restoreCheckpoint {
		return
	}
	if err := e.check(); err != nil {
		r.fail(e, err)
		return
	}
	project, err := r.project(&e)
	if err != nil {
		r.fail(e, err)
		return
	}
	queue, ok := r.workers[project]
	if !ok {
		queue = make(chan event, 64)
		r.workers[project] = queue
		r.running.Go(func() {
			for e := range queue {
				r.handle(project, e)
			}
		})
	}
	queue <- e
}

func (e *event) check() error {
	switch {
	case e.ThreadID == "":
		return fault.New(fault.Invalid, "malformed-event", "read an event: %s without a thread_id", e.Type)
	case e.Type == turnCompleted && e.TurnID == "":
		return fault.New(fault.Invalid, "malformed-event", "read an event: %s without a turn_id", e.Type)
	case e.Type == restoreCheckpoint && e.GitRef == "":
		return fault.New(fault.Invalid, "malformed-event", "read an event: %s without a git_ref", e.Type)
	}
	return nil
}

// project finds the directory that an event is about: as it says, as the
// thread's last event said, or as the thread's run recorded in the repository
// that we were started in.
func (r *reactor) project(e *event) (string, error) {
	path := e.ProjectPath
	if path == "" {
		path = r.paths[e.ThreadID]
	}
	if path == "" {
		w, err := worktree.Open(r.ctx, "")
		if err != nil {
			return "", err
		}
		defer w.Close()
		if path, err = w.PathOf(r.ctx, e.ThreadID); err != nil {
			return "", err
		}
	}
	if path == "" {
		return "", fault.New(fault.NotFound, "unknown-thread", "no run knows the thread '%.100s'", e.ThreadID).
			WithHint("give the event a project_path")
	}
	path, err := filepath.Abs(path)
	if err != nil {
		return "", fault.New(fault.Fatal, "io", "resolve '%s': %w", path, err)
	}
	if real, err := filepath.EvalSymlinks(path); err == nil {
		path = real
	}
	if info, err := os.Stat(path); err != nil || !info.IsDir() {
		return "", fault.New(fault.NotFound, "no-such-project", "'%s' is no directory", path)
	}
	r.paths[e.ThreadID] = path
	return path, nil
}

func (r *reactor) send(a answer) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.out.Encode(a); err != nil && r.failed == nil {
		r.failed = err
	}
}

// fail answers an event that could not be handled.
func (r *reactor) fail(e event, err error) {
	code := "fatal"
	var f *fault.Error
	if errors.As(err, &f) {
		code = f.Code
	}
	r.send(answer{Type: "Error", Line: e.line, ThreadID: e.ThreadID, TurnID: e.TurnID, Code: code, Message: err.Error()})
}

func (r *reactor) handle(project string, e event) {
	if err := r.act(project, e); err != nil {
		r.fail(e, err)
	}
}

// act opens the project afresh for each event, since its configuration may
// have changed, and holds nothing between two.
func (r *reactor) act(project string, e event) error {
	w, err := worktree.Open(r.ctx, project)
	if err != nil {
		return err
	}
	defer w.Close()
	if !w.Automatic() {
		if e.Type == turnCompleted {
			r.send(answer{Type: "CheckpointSkipped", ThreadID: e.ThreadID, TurnID: e.TurnID, Reason: "disabled"})
			return nil
		}
		return fault.New(fault.Conflict, "disabled", "automatic checkpoints are switched off (auto_checkpoint)")
	}
	if e.Type == turnCompleted {
		return r.turn(w, e)
	}
	return r.restore(w, e)
}

// turn saves what a turn left.
func (r *reactor) turn(w *worktree.Worktree, e event) error {
	run, err := w.RunOf(r.ctx, e.ThreadID)
	if err != nil {
		return err
	}
	if run == "" {
		if run, err = w.OpenThread(r.ctx, e.ThreadID); err != nil {
			return err
		}
	}
	subject := ""
	if w.SubjectTemplate() == "" {
		subject = DefaultSubject + e.TurnID
	}
	saved, _, err := w.SaveTurn(r.ctx, worktree.SaveRequest{
		Run: run, Kind: refs.KindTurn, Session: e.ThreadID, Turn: e.TurnID, Message: subject, IfChanged: true, Automatic: true,
	})
	switch {
	case err != nil:
		return err
	case !saved.Saved:
		r.send(answer{Type: "CheckpointSkipped", ThreadID: e.ThreadID, TurnID: e.TurnID, Reason: "no-changes"})
	default:
		r.send(answer{Type: "CreateCheckpoint", ThreadID: e.ThreadID, TurnID: e.TurnID, GitRef: saved.Checkpoint})
	}
	return nil
}

// restore resets the project to a checkpoint.
func (r *reactor) restore(w *worktree.Worktree, e event) error {
	c, err := w.Repository().Resolve(r.ctx, e.GitRef)
	if err != nil {
		return err
	}
	if c.Run == "" {
		return fault.New(fault.NotFound, "no-checkpoint", "'%.100s' is no checkpoint", e.GitRef)
	}
	if _, err := w.Restore(r.ctx, worktree.RestoreRequest{Checkpoint: "rev:" + c.ID, Reset: true}); err != nil {
		return err
	}
	r.send(answer{Type: "CheckpointRestored", ThreadID: e.ThreadID, GitRef: e.GitRef})
	r.send(answer{Type: "ThreadStatusChanged", ThreadID: e.ThreadID, Status: "Idle"})
	return nil
}
