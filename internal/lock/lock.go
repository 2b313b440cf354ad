// Package lock knows advisory file locks: locks that end when their holder
// does, however it ends, so that none is ever left behind. A lock is on an
// open file; a child process that inherits the file keeps the lock too.
package lock

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// ErrHeld is matched by the error of a lock that somebody else holds.
var ErrHeld = errors.New("held by another process")

// HeldError says who holds a lock, as far as the holder wrote it down.
type HeldError struct {
	Path   string
	Holder string // "process 123 (save)"; empty if unknown
}

func (e *HeldError) Error() string {
	if e.Holder == "" {
		return fmt.Sprintf("lock '%s': %v", e.Path, ErrHeld)
	}
	return fmt.Sprintf("lock '%s': held by %s", e.Path, e.Holder)
}

// Unwrap makes the error match ErrHeld.
func (e *HeldError) Unwrap() error { return ErrHeld }

// Lock is a lock that is held, or that was opened to be taken.
type Lock struct{ file *os.File }

// File is the locked file, for a child process to inherit.
func (l *Lock) File() *os.File { return l.file }

// Acquire takes the lock on path, waiting up to wait for it; zero means one
// try. purpose ("save") is what a waiter is told of us. The file stays when
// the lock is released, since removing it would let two processes hold "the"
// lock.
func Acquire(ctx context.Context, path, purpose string, wait time.Duration) (*Lock, error) {
	l, err := Open(path)
	if err != nil {
		return nil, err
	}
	if err := l.Acquire(ctx, purpose, wait); err != nil {
		l.Release()
		return nil, err
	}
	return l, nil
}

// Open opens the file of a lock, which is not taken yet. A child that inherits
// it keeps the lock from when Acquire has taken it.
func Open(path string) (*Lock, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o777); err != nil {
		return nil, fmt.Errorf("lock '%s': %w", path, err)
	}
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o666)
	if err != nil {
		return nil, fmt.Errorf("lock '%s': %w", path, err)
	}
	return &Lock{f}, nil
}

// Acquire takes a lock that was opened; see the function of that name.
func (l *Lock) Acquire(ctx context.Context, purpose string, wait time.Duration) error {
	f, path := l.file, l.file.Name()
	deadline := time.Now().Add(wait)
	for pause := time.Millisecond; ; pause = min(pause*2, 50*time.Millisecond) {
		held, err := tryLock(f)
		if err != nil {
			return fmt.Errorf("lock '%s': %w", path, err)
		}
		if held {
			break
		}
		if time.Now().After(deadline) {
			holder := readHolder(f)
			return &HeldError{Path: path, Holder: holder}
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("lock '%s': %w", path, context.Cause(ctx))
		case <-time.After(pause):
		}
	}
	f.Truncate(0)
	f.WriteAt(fmt.Appendf(nil, "process %d (%s)\n", os.Getpid(), purpose), 0)
	return nil
}

// Probe returns a HeldError if somebody holds the lock on path. It takes
// nothing that another Probe could take for a holder; an Acquire at the same
// moment may have to wait for it. Where there is no file there is no holder,
// and the error matches fs.ErrNotExist.
func Probe(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("lock '%s': %w", path, err)
	}
	defer f.Close()
	free, err := tryShared(f)
	switch {
	case err != nil:
		return fmt.Errorf("lock '%s': %w", path, err)
	case !free:
		return &HeldError{Path: path, Holder: readHolder(f)}
	}
	return nil
}

func readHolder(f *os.File) string {
	b := make([]byte, 200)
	n, _ := f.ReadAt(b, 0)
	line, _, _ := strings.Cut(string(b[:n]), "\n")
	return line
}

// Release ends the lock and closes its file.
func (l *Lock) Release() {
	if l != nil && l.file != nil {
		l.file.Close()
		l.file = nil
	}
}
