package worktree

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/git-checkpoint/git-checkpoint/internal/config"
	"github.com/git-checkpoint/git-checkpoint/internal/fault"
	"github.com/git-checkpoint/git-checkpoint/internal/git"
	"github.com/git-checkpoint/git-checkpoint/internal/lock"
	"github.com/git-checkpoint/git-checkpoint/internal/restore"
	"github.com/git-checkpoint/git-checkpoint/internal/snapshot"
	"github.com/git-checkpoint/git-checkpoint/refs"
)

// lockWait is how long a command waits for another one in the same worktree.
const lockWait = 60 * time.Second

// Worktree is one working tree, opened for a command. It is not safe for
// concurrent use.
type Worktree struct {
	repo     *refs.Repository
	git      *git.Repo
	config   *config.Config
	id       string
	warnings []string
	faults   []error // in the settings and the worktree's id
	lock     *lock.Lock
	known    *known // nil: none yet

	endInherit func() // of the lock, by the git that we start
}

// Open opens the worktree that dir lies in; empty means the current directory.
// Settings that cannot be read are fault.Invalid.
func Open(ctx context.Context, dir string) (*Worktree, error) {
	w, err := OpenToVerify(ctx, dir)
	if err == nil && len(w.faults) > 0 {
		w.Close()
		return nil, w.faults[0]
	}
	return w, err
}

// OpenAnyway is Open for what has to work whatever the settings say: those
// that cannot be read are warned of and left out.
func OpenAnyway(ctx context.Context, dir string) (*Worktree, error) {
	w, err := OpenToVerify(ctx, dir)
	if err != nil {
		return nil, err
	}
	for _, f := range w.faults {
		w.warn("%v", f)
	}
	return w, nil
}

// OpenToVerify is Open for Verify, which tells of settings that cannot be read.
func OpenToVerify(ctx context.Context, dir string) (*Worktree, error) {
	repo, err := refs.Open(ctx, dir)
	if err != nil {
		return nil, err
	}
	w := &Worktree{repo: repo, git: repo.Git()}
	w.config, w.faults = config.Read(repo.Git())
	if w.id, err = readID(w.home("worktree-id")); err != nil {
		w.faults = append(w.faults, err)
	}
	return w, nil
}

// Close ends what Open started.
func (w *Worktree) Close() error {
	w.unlock()
	return w.repo.Close()
}

// Repository is the repository that the worktree belongs to.
func (w *Worktree) Repository() *refs.Repository { return w.repo }

// Warnings are what the user should know beside the result.
func (w *Worktree) Warnings() []string { return w.warnings }

func (w *Worktree) warn(format string, args ...any) {
	w.warnings = append(w.warnings, fmt.Sprintf(format, args...))
}

// home is a file of ours in this worktree's git directory.
func (w *Worktree) home(name string) string { return filepath.Join(w.git.Dir, "checkpoint", name) }

// readID returns the worktree's id, empty if it has none yet.
func readID(file string) (string, error) {
	data, err := os.ReadFile(file)
	if errors.Is(err, os.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", fault.New(fault.Fatal, "io", "read the worktree's id: %w", err).
			WithHint("make it readable, or remove it to get a new id; runs that this worktree wrote are then continued as forks")
	}
	id := strings.TrimSpace(string(data))
	if len(id) != 16 || strings.Trim(id, "0123456789abcdef") != "" {
		return "", fault.New(fault.Integrity, "worktree-id-damaged", "read the worktree's id: '%s' holds no id", file).
			WithHint("remove the file to get a new id; runs that this worktree wrote are then continued as forks")
	}
	return id, nil
}

// ensureID gives the worktree an id. The caller holds the lock.
func (w *Worktree) ensureID() error {
	if w.id != "" {
		return nil
	}
	file := w.home("worktree-id")
	id, err := readID(file)
	if err != nil || id != "" {
		w.id = id
		return err
	}
	var b [8]byte
	rand.Read(b[:])
	id = hex.EncodeToString(b[:])
	temporary := fmt.Sprintf("%s.%d", file, os.Getpid())
	if err := os.WriteFile(temporary, []byte(id+"\n"), 0o666); err != nil {
		return fault.New(fault.Fatal, "io", "write to the git directory: %w", err)
	}
	git.Step("worktree id written")
	if err := os.Rename(temporary, file); err != nil {
		return fault.New(fault.Fatal, "io", "write to the git directory: %w", err)
	}
	git.Step("worktree id in place")
	w.id = id
	return nil
}

// hold makes this the one command that works on the worktree, and clears
// away what a dead one left. It does nothing when the lock is held already.
func (w *Worktree) hold(ctx context.Context, purpose string) error {
	if w.lock != nil {
		return nil
	}
	if err := w.git.NeedTop(); err != nil {
		return err
	}
	l, err := lock.Acquire(ctx, w.home("lock"), purpose, lockWait)
	if errors.Is(err, lock.ErrHeld) {
		return fault.New(fault.Conflict, "worktree-busy", "%w", err).WithHint("wait for it to end and try again")
	}
	if err != nil {
		return fault.New(fault.Fatal, "io", "%w", err).WithHint("checkpoints are kept in the git directory, which must be writable")
	}
	git.Step("worktree locked")
	w.lock = l
	w.endInherit = w.git.Inherit(l.File())
	if err := w.ensureID(); err != nil {
		return err
	}
	if err := w.clearAway(ctx); err != nil {
		return err
	}
	return w.settleFinished(ctx)
}

func (w *Worktree) unlock() {
	if w.endInherit != nil {
		w.endInherit()
		w.endInherit = nil
	}
	w.lock.Release()
	w.lock = nil
}

// clearAway removes the locks and temporary files of a dead command.
func (w *Worktree) clearAway(ctx context.Context) error {
	if err := w.repo.Recover(ctx); err != nil {
		return err
	}
	restore.RemoveDeadLock(w.git)
	left, err := os.ReadDir(w.home(""))
	if err != nil {
		return fault.New(fault.Fatal, "io", "read our files in the git directory: %w", err)
	}
	for _, file := range left {
		if leftBehind(file.Name()) {
			os.RemoveAll(w.home(file.Name()))
		}
	}
	return nil
}

// leftBehind says whether a file of ours is one that only a dead command leaves.
func leftBehind(name string) bool {
	for _, pattern := range []string{"stage-*", "index.[0-9]*", "index.key.*", "index.tmp*", "worktree-id.*", "setup.*"} {
		if ok, _ := filepath.Match(pattern, name); ok {
			return true
		}
	}
	return false
}

func (w *Worktree) taker() snapshot.Taker { return snapshot.New(w.git) }

// localRef is a ref of this worktree's own.
func (w *Worktree) localRef(name string) string { return refs.LocalRef(w.id, name) }

// The local refs.
const (
	indexName     = "index"        // the checkpoint that the private index equals
	restoringName = refs.Restoring // the operation in progress
	undoName      = "undo/"        // operations that undo takes back, by number
	redoName      = "redo/"        // operations that redo does again
	safetyName    = "safety/"      // half-done states that were saved on the way
)
