package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"runtime/debug"
	"syscall"

	"github.com/git-checkpoint/git-checkpoint/internal/fault"
	"github.com/git-checkpoint/git-checkpoint/internal/git"
	"github.com/git-checkpoint/git-checkpoint/internal/output"
)

// exits are the exit codes and the kinds of error they stand for. None is 2,
// which coding agents take as "block". An error of no kind is exitFatal.
var exits = []struct {
	code    int
	kind    error
	meaning string
}{
	{0, nil, "done, or nothing to do"},
	{1, fault.Negative, "a negative answer: faults found"},
	{3, fault.Conflict, "conflict or stale state"},
	{4, fault.Integrity, "integrity: a note or chain is not what was recorded"},
	{5, fault.NotFound, "no such run, step or checkpoint"},
	{75, fault.Unfinished, "not finished: waits for an answer or an approval"},
	{exitFatal, fault.Fatal, "fatal: not a repository, I/O, git failed"},
	{129, fault.Invalid, "usage, or an invalid request or configuration"},
}

const (
	exitFatal = 128
	// exitPipe is what a shell reports of git when the reader of its output
	// has gone: 128 + SIGPIPE.
	exitPipe = 141
)

// exitCode is the code of an error. The outermost fault decides: what it met
// underneath may be of another kind.
func exitCode(err error) int {
	if err == nil {
		return 0
	}
	kind := err
	var f *fault.Error
	if errors.As(err, &f) {
		kind = f.Kind
	}
	for _, e := range exits {
		if e.kind != nil && errors.Is(kind, e.kind) {
			return e.code
		}
	}
	return exitFatal
}

// finish prints how it ended and returns the exit code.
func finish(p *output.Printer, err error) int {
	written := p.Flush()
	if err == nil && readerGone(written) {
		return exitPipe
	}
	if err == nil && written != nil {
		err = fault.New(fault.Fatal, "io", "write the result: %w", written)
	}
	if err != nil {
		err = withHint(err)
		p.Error(err)
	}
	return exitCode(err)
}

// withHint adds what to do to an error that says nothing of it and that a
// damaged repository may have caused: what a cause of it says, or how to look
// for the damage.
func withHint(err error) error {
	var f *fault.Error
	if !errors.As(err, &f) {
		f = fault.New(fault.Fatal, "fatal", "%w", err)
		err = f
	}
	var cause *fault.Error
	for next := f; next.Hint == "" && errors.As(next.Cause, &cause); next = cause {
		f.Hint = cause.Hint
	}
	var failed *git.Error
	switch {
	case f.Hint != "":
	case errors.Is(f.Kind, fault.Integrity):
		f.Hint = "git checkpoint verify lists what is damaged"
	case errors.As(err, &failed):
		f.Hint = "git checkpoint verify and git fsck tell what is damaged"
	}
	return err
}

// readerGone says whether what we wrote was cut off by its reader, as `| head`
// does: that is no failure worth a word.
func readerGone(err error) bool {
	return errors.Is(err, syscall.EPIPE) || errors.Is(err, io.ErrClosedPipe)
}

// guarded turns a panic into an error: a stack trace helps nobody who did not
// ask for one.
func guarded(do func() error) (err error) {
	defer func() {
		r := recover()
		if r == nil {
			return
		}
		if trace := os.Getenv("GIT_CHECKPOINT_TRACE"); trace != "" && trace != "0" {
			fmt.Fprintf(os.Stderr, "trace: %v\n%s", r, debug.Stack())
		}
		err = fault.New(fault.Fatal, "internal", "internal error: %v", r).
			WithHint("this is a fault of git checkpoint: please report it, with what GIT_CHECKPOINT_TRACE=1 prints")
	}()
	return do()
}
