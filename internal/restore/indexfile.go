package restore

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/git-checkpoint/git-checkpoint/internal/fault"
	"github.com/git-checkpoint/git-checkpoint/internal/git"
)

// IndexLock is git's lock on the user's index, held by us. It is a hard link
// to a file of ours, by which the lock of a dead writer of ours is told from
// anybody else's.
type IndexLock struct {
	repo *git.Repo
	own  string
	lock string
}

// LockIndex takes the lock as git does. While somebody else has it, it waits a
// moment, then fails with a fault.Conflict.
func LockIndex(ctx context.Context, repo *git.Repo) (*IndexLock, error) {
	l := &IndexLock{repo: repo, own: ownLock(repo), lock: filepath.Join(repo.Dir, "index.lock")}
	// A new file each time: the old one may be the user's index by now.
	os.Remove(l.own)
	f, err := os.OpenFile(l.own, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o666)
	if err != nil {
		return nil, fault.New(fault.Fatal, "io", "lock the index: %w", err)
	}
	f.Close()
	git.Step("index lock made")
	deadline := time.Now().Add(time.Second)
	for {
		err := os.Link(l.own, l.lock)
		if err != nil && !errors.Is(err, fs.ErrExist) {
			// No hard links here: make the lock as git does.
			var f *os.File
			if f, err = os.OpenFile(l.lock, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o666); err == nil {
				f.Close()
			}
		}
		switch {
		case err == nil:
			git.Step("index locked")
			return l, nil
		case !errors.Is(err, fs.ErrExist):
			return nil, fault.New(fault.Fatal, "io", "lock the index: %w", err)
		case time.Now().After(deadline):
			return nil, fault.New(fault.Conflict, "index-locked", "the index is locked: '%s' exists", l.lock).
				WithHint("another git process may be running; if it crashed, remove the file")
		}
		select {
		case <-ctx.Done():
			return nil, fault.New(fault.Fatal, "interrupted", "lock the index: %w", context.Cause(ctx))
		case <-time.After(20 * time.Millisecond):
		}
	}
}

func ownLock(repo *git.Repo) string { return filepath.Join(repo.Dir, "checkpoint", "index-lock") }

// RemoveDeadLock removes an index lock that a dead writer of ours left. The
// caller holds the worktree's lock.
func RemoveDeadLock(repo *git.Repo) {
	ours, err := os.Lstat(ownLock(repo))
	if err != nil {
		return
	}
	lock := filepath.Join(repo.Dir, "index.lock")
	theirs, err := os.Lstat(lock)
	if err == nil && os.SameFile(theirs, ours) {
		git.Trace("remove the index lock of a dead writer")
		os.Remove(lock)
	}
	os.Remove(ownLock(repo))
}

// Write replaces the user's index by what an index file holds, and so ends the lock.
func (l *IndexLock) Write(data []byte) error {
	if err := l.fill(data); err != nil {
		return fault.New(fault.Fatal, "index-write", "write the index: %w", err)
	}
	git.Step("index written")
	if err := os.Rename(l.lock, filepath.Join(l.repo.Dir, "index")); err != nil {
		return fault.New(fault.Fatal, "index-write", "write the index: %w", err)
	}
	git.Step("index in place")
	l.lock = ""
	os.Remove(l.own)
	return nil
}

func (l *IndexLock) fill(data []byte) error {
	f, err := os.OpenFile(l.lock, os.O_WRONLY|os.O_TRUNC, 0o666)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	if closed := f.Close(); err == nil {
		err = closed
	}
	if info, statErr := os.Stat(filepath.Join(l.repo.Dir, "index")); err == nil && statErr == nil {
		err = os.Chmod(l.lock, info.Mode().Perm())
	}
	return err
}

// Release gives the lock back without writing. After Write it does nothing.
func (l *IndexLock) Release() {
	if l != nil && l.lock != "" {
		os.Remove(l.lock)
		os.Remove(l.own)
		l.lock = ""
	}
}
