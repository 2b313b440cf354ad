package lineage

import (
	"context"
	"errors"
	"io/fs"
	"path/filepath"
	"time"

	"github.com/git-checkpoint/git-checkpoint/internal/fault"
	"github.com/git-checkpoint/git-checkpoint/internal/lock"
	"github.com/git-checkpoint/git-checkpoint/refs"
)

// HolderLock is the file whose lock a process holds while it executes a run.
func HolderLock(repo *refs.Repository, run string) string {
	return filepath.Join(repo.Git().CommonDir, "checkpoint", "held", run)
}

// Hold makes this process the one that executes a run, until release is
// called or the process ends, however it ends. purpose ("run") is what others
// are told of it. While a run is held it can be forked, but not rewound. A run
// that somebody else holds is ErrConflict, after up to wait.
func Hold(ctx context.Context, repo *refs.Repository, run, purpose string, wait time.Duration) (release func(), err error) {
	if err := refs.CheckRun(run); err != nil {
		return nil, err
	}
	l, err := lock.Acquire(ctx, HolderLock(repo, run), purpose, wait)
	if err != nil {
		return nil, holdError(run, err)
	}
	return l.Release, nil
}

// Holder says who executes a run: "process 123 (run)". It is empty where
// nobody does.
func Holder(repo *refs.Repository, run string) (string, error) {
	err := lock.Probe(HolderLock(repo, run))
	var held *lock.HeldError
	switch {
	case err == nil, errors.Is(err, fs.ErrNotExist):
		return "", nil
	case !errors.As(err, &held):
		return "", holdError(run, err)
	case held.Holder == "":
		return "a process", nil
	}
	return held.Holder, nil
}

// refuseHeld refuses to rewind a run that a live process executes.
func refuseHeld(repo *refs.Repository, run string) error {
	who, err := Holder(repo, run)
	if err != nil || who == "" {
		return err
	}
	return heldBy(run, who)
}

func holdError(run string, err error) error {
	var held *lock.HeldError
	if !errors.As(err, &held) {
		return fault.New(fault.Fatal, "io", "%w", err)
	}
	if held.Holder == "" {
		return heldBy(run, "a process")
	}
	return heldBy(run, held.Holder)
}

func heldBy(run, who string) error {
	return fault.New(fault.Conflict, "run-held", "run '%s' is held by %s", run, who).
		WithHint("wait for it to end, or stop it; a fork leaves it alone")
}
