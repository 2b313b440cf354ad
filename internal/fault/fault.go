// Package fault knows the kinds of failure that git checkpoint tells apart.
// Each kind has one exit code (DESIGN.md, "exit codes"; listed in the README);
// callers match the kinds with errors.Is and read the details with errors.As.
package fault

import (
	"errors"
	"fmt"
)

// The kinds. Every error that leaves a public function of this module wraps
// exactly one of them, or none, which means the same as Fatal.
var (
	Negative   = errors.New("negative answer") // exit 1: faults found
	Conflict   = errors.New("conflict")        // exit 3: conflict or stale state
	Integrity  = errors.New("integrity")       // exit 4: not what was recorded
	NotFound   = errors.New("not found")       // exit 5: no such run, step, checkpoint
	Unfinished = errors.New("not finished")    // exit 75: waits for somebody
	Fatal      = errors.New("fatal")           // exit 128: not a repository, I/O, git failed
	Invalid    = errors.New("invalid request") // exit 129: usage, request, configuration
)

// Error is a failure with what a person needs to act on it.
type Error struct {
	Kind    error  // one of the kinds above
	Code    string // a stable slug for programs, for example "no-such-run"
	Message string // what was attempted and what was wrong, lower case
	Hint    string // what to do about it; may be empty
	Cause   error  // what was met underneath; may be nil
}

// New returns an error of a kind. A final error argument with a %w verb
// becomes the cause.
func New(kind error, code, format string, args ...any) *Error {
	wrapped := fmt.Errorf(format, args...)
	return &Error{Kind: kind, Code: code, Message: wrapped.Error(), Cause: errors.Unwrap(wrapped)}
}

// WithHint sets the hint and returns the error itself.
func (e *Error) WithHint(format string, args ...any) *Error {
	e.Hint = fmt.Sprintf(format, args...)
	return e
}

func (e *Error) Error() string { return e.Message }

// Unwrap makes errors.Is see both the kind and the cause.
func (e *Error) Unwrap() []error {
	if e.Cause == nil {
		return []error{e.Kind}
	}
	return []error{e.Kind, e.Cause}
}
