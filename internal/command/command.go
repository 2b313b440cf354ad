// Package command starts the commands of a plan: `sh -c`, each in a process
// group of its own that ends as a whole, with its output kept up to a limit.
package command

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"time"
)

// Grace is how long a process group has between being asked to end and being
// killed.
const Grace = 5 * time.Second

// Spec is one command to run.
type Spec struct {
	Line    string   // for sh -c
	Dir     string   // where it runs
	Env     []string // added to the environment, from which all GIT_ variables of location are taken out
	Log     string   // a file that gets the line, and standard output and error: the first LogLimit bytes and the end
	Timeout time.Duration
	Hold    *os.File // stays open in the command and its children, where the system can do that; see internal/lock
	Group   string   // a file that gets the process group, before the command does anything; empty: none
}

// LogLimit is how much of a command's output is kept, in bytes.
const LogLimit = 1 << 20

// TailLimit is how much of the end of the output Result has, in bytes.
const TailLimit = 8 << 10

// Result is how a command ended.
type Result struct {
	Exit     int    // -1 if it was killed
	Stdout   string // at most TailLimit bytes of its end
	Tail     string // the end of standard output and error together
	TimedOut bool
	Took     time.Duration
}

// ErrNoShell is for a system without a shell that understands `sh -c`.
var ErrNoShell = errors.New("the commands of a plan are for 'sh -c', and no 'sh' is on the PATH")

// OK says whether the command succeeded.
func (r Result) OK() bool { return r.Exit == 0 }

// Run runs a command to its end. When ctx or the time-out ends it, its whole
// process group is asked to end, and killed if it does not. The error is for a
// command that could not be started, or was ended by ctx.
func Run(ctx context.Context, s Spec) (Result, error) {
	log, err := os.OpenFile(s.Log, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o666)
	if err != nil {
		return Result{Exit: -1}, fmt.Errorf("run a command: %w", err)
	}
	defer log.Close()
	head, _ := fmt.Fprintf(log, "$ %s\n", s.Line)
	sink := &sink{log: log, left: LogLimit - head, both: tail{limit: TailLimit}, stdout: tail{limit: TailLimit}}
	cmd := shell(s)
	cmd.Dir = s.Dir
	cmd.Env = append(environment(os.Environ()), s.Env...)
	streams, err := connect(cmd, sink)
	if err != nil {
		return Result{Exit: -1}, fmt.Errorf("start a command: %w", err)
	}
	begun := time.Now()
	err = cmd.Start()
	streams.started()
	if err != nil {
		streams.finish()
		if errors.Is(err, exec.ErrNotFound) {
			return Result{Exit: -1}, ErrNoShell
		}
		return Result{Exit: -1}, fmt.Errorf("start a command: %w", err)
	}
	result, err := wait(ctx, cmd, s.Timeout)
	streams.finish()
	sink.finish()
	result.Stdout, result.Tail = sink.ends()
	result.Took = time.Since(begun)
	return result, err
}

func wait(ctx context.Context, cmd *exec.Cmd, timeout time.Duration) (Result, error) {
	done := make(chan error, 1)
	go func() { done <- cmd.Wait() }()
	var limit <-chan time.Time
	if timeout > 0 {
		timer := time.NewTimer(timeout)
		defer timer.Stop()
		limit = timer.C
	}
	var result Result
	var cause, err error
	select {
	case err = <-done:
	case <-limit:
		result.TimedOut = true
		err = stop(cmd, done)
	case <-ctx.Done():
		cause = context.Cause(ctx)
		err = stop(cmd, done)
	}
	// Whatever it left running belongs to it.
	killGroup(cmd.Process.Pid)
	result.Exit = exitCode(err)
	return result, cause
}

func exitCode(err error) int {
	var exit *exec.ExitError
	switch {
	case err == nil:
		return 0
	case errors.As(err, &exit):
		return exit.ExitCode()
	}
	return -1
}

// stop asks the group to end, and kills it after a while.
func stop(cmd *exec.Cmd, done <-chan error) error {
	endGroup(cmd.Process.Pid)
	select {
	case err := <-done:
		return notSuccess(err)
	case <-time.After(Grace):
	}
	killGroup(cmd.Process.Pid)
	return notSuccess(<-done)
}

var errStopped = errors.New("it was stopped")

// notSuccess keeps a command that was stopped from counting as done, even if
// it ends with 0 when asked to.
func notSuccess(err error) error {
	if err == nil {
		return errStopped
	}
	return err
}

// environment leaves out what says where a repository is: the command has a
// working tree of its own.
func environment(environ []string) []string {
	kept := make([]string, 0, len(environ))
	for _, kv := range environ {
		name, _, _ := strings.Cut(kv, "=")
		switch {
		case strings.HasPrefix(name, "CHECKPOINT_"):
		case name == "GIT_DIR", name == "GIT_WORK_TREE", name == "GIT_INDEX_FILE", name == "GIT_COMMON_DIR", name == "GIT_PREFIX",
			name == "GIT_OBJECT_DIRECTORY", name == "GIT_ALTERNATE_OBJECT_DIRECTORIES", name == "GIT_NAMESPACE",
			strings.HasPrefix(name, "GIT_AUTHOR_"), strings.HasPrefix(name, "GIT_COMMITTER_"):
		default:
			kept = append(kept, kv)
		}
	}
	return kept
}

// tail keeps the end of what is written to it.
type tail struct {
	limit int
	data  []byte
}

func (t *tail) Write(p []byte) (int, error) {
	t.data = append(t.data, p...)
	if extra := len(t.data) - t.limit; extra > t.limit {
		t.data = append(t.data[:0], t.data[extra:]...)
	}
	return len(p), nil
}

func (t *tail) end() []byte { return t.data[max(len(t.data)-t.limit, 0):] }

func (t *tail) String() string { return strings.ToValidUTF8(string(t.end()), "\uFFFD") }

// ReadTail returns the end of a file, at most limit bytes of it; nothing where
// it cannot be read.
func ReadTail(path string, limit int64) string {
	f, err := os.Open(path)
	if err != nil {
		return ""
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return ""
	}
	data, _ := io.ReadAll(io.NewSectionReader(f, max(info.Size()-limit, 0), limit))
	return strings.ToValidUTF8(string(data), "\uFFFD")
}

// sink takes both streams of a command.
type sink struct {
	mu     sync.Mutex
	log    io.Writer
	left   int // of the log
	lost   int // bytes that it did not take
	both   tail
	stdout tail
}

func (s *sink) write(p []byte, stdout bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := max(min(len(p), s.left), 0)
	s.left, s.lost = s.left-n, s.lost+len(p)-n
	if _, err := s.log.Write(p[:n]); err != nil {
		s.left = 0 // a full disk loses the log, not the work
	}
	s.both.Write(p)
	if stdout {
		s.stdout.Write(p)
	}
}

// finish adds the end of what the log did not take.
func (s *sink) finish() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if extra := s.lost - len(s.both.end()); extra > 0 {
		fmt.Fprintf(s.log, "\n[%d bytes left out]\n", extra)
	}
	if end := s.both.end(); s.lost > 0 {
		s.log.Write(end[max(len(end)-s.lost, 0):])
	}
}

func (s *sink) ends() (stdout, both string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.stdout.String(), s.both.String()
}

// streams are the pipes of a command. They are ours and not exec's, so that
// its end is seen at once even where a child of it keeps them open.
type streams struct {
	readers, writers []*os.File
	copying          sync.WaitGroup
}

func connect(cmd *exec.Cmd, to *sink) (*streams, error) {
	s := &streams{}
	for _, stdout := range []bool{true, false} {
		r, w, err := os.Pipe()
		if err != nil {
			s.started()
			s.finish()
			return nil, err
		}
		s.readers, s.writers = append(s.readers, r), append(s.writers, w)
		if stdout {
			cmd.Stdout = w
		} else {
			cmd.Stderr = w
		}
		s.copying.Go(func() {
			buffer := make([]byte, 32<<10)
			for {
				n, err := r.Read(buffer)
				to.write(buffer[:n], stdout)
				if err != nil {
					return
				}
			}
		})
	}
	return s, nil
}

// started closes our copies of what the command writes to.
func (s *streams) started() {
	for _, w := range s.writers {
		w.Close()
	}
}

// finish waits for the rest of the output, but not for somebody who escaped
// the process group and keeps a pipe open.
func (s *streams) finish() {
	for _, r := range s.readers {
		r.SetReadDeadline(time.Now().Add(time.Second))
	}
	s.copying.Wait()
	for _, r := range s.readers {
		r.Close()
	}
}
