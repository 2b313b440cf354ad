package refs

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/git-checkpoint/git-checkpoint/internal/fault"
	"github.com/git-checkpoint/git-checkpoint/internal/git"
	"github.com/git-checkpoint/git-checkpoint/internal/lock"
)

// pending is what is written down before refs are changed, so that the next
// command can tell what a dead writer of ours left from anybody else's.
type pending struct {
	PID     int       `json:"pid"`
	Boot    string    `json:"boot,omitempty"`
	At      time.Time `json:"at"`
	Updates []update  `json:"updates"`
}

func (r *Repository) pendingPath() string {
	return filepath.Join(r.git.Dir, "checkpoint", "transaction")
}

// writersWait is how long a writer of refs waits for another one of this
// worktree. Each is done within milliseconds.
const writersWait = 10 * time.Second

func (r *Repository) lockPath() string { return filepath.Join(r.git.Dir, "checkpoint", "refs-lock") }

// alone makes this the only process that writes refs for the worktree, and its
// git too, until do returns. Who held the lock before is dead or done.
func (r *Repository) alone(ctx context.Context, do func() error) error {
	var l *lock.Lock
	var err error
	if r.ahead != nil {
		defer r.Abandon()
		err = r.ahead.lock.Acquire(ctx, "update refs", writersWait)
	} else {
		l, err = lock.Acquire(ctx, r.lockPath(), "update refs", writersWait)
	}
	if errors.Is(err, lock.ErrHeld) {
		return fault.New(fault.Conflict, "refs-busy", "update refs: %w", err).WithHint("wait for it to end and try again")
	}
	if err != nil {
		return readOnly(err)
	}
	if l != nil {
		defer l.Release()
		defer r.git.Inherit(l.File())()
	}
	return do()
}

// noted changes refs, after it wrote down which.
func (r *Repository) noted(ctx context.Context, updates []update, change func() error) error {
	return r.alone(ctx, func() error {
		if err := r.recover(ctx); err != nil {
			return err
		}
		return r.notedAlone(updates, change)
	})
}

func (r *Repository) notedAlone(updates []update, change func() error) error {
	data, err := json.Marshal(pending{PID: os.Getpid(), Boot: bootID(), At: time.Now().UTC(), Updates: updates})
	if err != nil {
		return err
	}
	path := r.pendingPath()
	if err := os.MkdirAll(filepath.Dir(path), 0o777); err != nil {
		return readOnly(err)
	}
	if err := os.WriteFile(path, data, 0o666); err != nil {
		return readOnly(err)
	}
	git.Step("change of refs written down")
	err = change()
	git.Step("refs changed")
	var failed *git.Error
	if errors.As(err, &failed) && failed.Code < 0 {
		return err // git was killed: what it left is for the next command to clear away
	}
	os.Remove(path)
	return err
}

func readOnly(err error) error {
	return fault.New(fault.Fatal, "io", "write to the git directory: %w", err).
		WithHint("checkpoints are kept in the git directory, which must be writable")
}

// Recover clears away what a dead writer of this worktree left of a change
// of refs: locks, and the notes of a run whose own ref it did not come to
// write. It waits for a living one, and for the git of a dead one.
func (r *Repository) Recover(ctx context.Context) error {
	if _, err := os.Lstat(r.pendingPath()); errors.Is(err, os.ErrNotExist) {
		return nil
	}
	return r.alone(ctx, func() error { return r.recover(ctx) })
}

func (r *Repository) recover(ctx context.Context) error {
	data, err := os.ReadFile(r.pendingPath())
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return readOnly(err)
	}
	var p pending
	if json.Unmarshal(data, &p) == nil {
		for _, lock := range r.locksOf(p.Updates) {
			removeDeadLock(ctx, lock, p.At)
		}
		if err := r.removeDebris(ctx, p.Updates); err != nil {
			return err
		}
	}
	if err := os.Remove(r.pendingPath()); err != nil && !errors.Is(err, os.ErrNotExist) {
		return readOnly(err)
	}
	return nil
}

// locksOf lists the locks that git takes for a change of refs.
func (r *Repository) locksOf(updates []update) []string {
	if r.git.RefFormat() == "reftable" {
		locks := []string{filepath.Join(r.git.CommonDir, "reftable", "tables.list.lock")}
		if r.git.Linked() {
			locks = append(locks, filepath.Join(r.git.Dir, "reftable", "tables.list.lock"))
		}
		return locks
	}
	var locks []string
	branch, deleted := false, false
	for _, u := range updates {
		if CheckRefName(u.Ref) != nil {
			continue
		}
		dir := r.git.CommonDir
		if !strings.HasPrefix(u.Ref, "refs/") {
			dir = r.git.Dir
		}
		locks = append(locks, filepath.Join(dir, filepath.FromSlash(u.Ref)+".lock"))
		branch = branch || strings.HasPrefix(u.Ref, branchPrefix)
		deleted = deleted || u.New == ""
	}
	if branch {
		// HEAD is locked with the branch that it names, for its reflog.
		locks = append(locks, filepath.Join(r.git.Dir, "HEAD.lock"))
	}
	if deleted {
		// The new list is written while the lock is held; git never removes it.
		locks = append(locks, filepath.Join(r.git.CommonDir, "packed-refs.new"), filepath.Join(r.git.CommonDir, "packed-refs.lock"))
	}
	return locks
}

// removeDeadLock removes a lock that was made when the dead writer was at
// work and that nobody has touched for a while: a live git holds a ref's lock
// for milliseconds only. The lock of all packed refs it may hold longer, when
// somebody packs many; that one is given more time to go away by itself.
func removeDeadLock(ctx context.Context, path string, begun time.Time) {
	before, err := os.Lstat(path)
	if err != nil || before.ModTime().Before(begun.Add(-2*time.Second)) || before.ModTime().After(begun.Add(30*time.Second)) {
		return
	}
	patience := time.Second
	if strings.HasPrefix(filepath.Base(path), "packed-refs.") {
		patience = 10 * time.Second
	}
	for {
		now, err := os.Lstat(path)
		if err != nil || !os.SameFile(before, now) || !now.ModTime().Equal(before.ModTime()) {
			return
		}
		if time.Since(before.ModTime()) > patience {
			break
		}
		select {
		case <-time.After(50 * time.Millisecond):
		case <-ctx.Done():
			return
		}
	}
	git.Trace("remove the lock of a dead writer: %s", path)
	os.Remove(path)
	git.Step("dead lock removed")
}

// removeDebris deletes notes and seeds that the dead writer wrote for a run
// that does not exist, the branch that it made for it, and the record of what
// it was to do then. Git renames ref by ref, the run's own last; so what came
// last goes first, and what was written down stays true.
func (r *Repository) removeDebris(ctx context.Context, updates []update) error {
	tx := r.Begin("checkpoint: debris of a dead writer")
	checked := map[string]bool{}
	begun := r.begun(ctx, updates)
	for _, u := range slices.Backward(updates) {
		run, ok := strings.CutPrefix(u.Ref, NotesPrefix)
		if !ok {
			run, ok = strings.CutPrefix(u.Ref, SeedPrefix)
		}
		if strings.HasPrefix(u.Ref, LocalPrefix) && strings.HasSuffix(u.Ref, "/"+Restoring) {
			run, ok = lastRun(updates)
		}
		if strings.HasPrefix(u.Ref, branchPrefix) && u.Created && begun {
			run, ok = lastRun(updates)
		}
		if !ok || u.New == "" || CheckRun(run) != nil {
			continue
		}
		tip, err := r.Ref(ctx, RunRef(run))
		if err != nil || tip != "" {
			continue
		}
		if now, err := r.Ref(ctx, u.Ref); err != nil || now != u.New {
			continue
		}
		git.Trace("remove the debris of a dead writer: %s", u.Ref)
		tx.Delete(u.Ref, u.New)
		if !checked[run] {
			checked[run] = true
			tx.Verify(RunRef(run), "")
		}
	}
	if tx.input.Len() == 0 {
		return nil
	}
	// What was written down before stays true until this is done.
	return r.notedAlone(updates, func() error {
		err := tx.attempt(ctx)
		if errors.Is(err, ErrStale) {
			return nil // somebody made the run, or removed its notes
		}
		return err
	})
}

// branchPrefix begins the names of branches.
const branchPrefix = "refs/heads/"

// begun says whether the notes of the run that the dead writer was to make
// are there: only then is a branch that it was to make after them its own.
func (r *Repository) begun(ctx context.Context, updates []update) bool {
	for _, u := range updates {
		if run, _ := lastRun(updates); u.Ref == NotesRef(run) && u.Created {
			id, err := r.Ref(ctx, u.Ref)
			return err == nil && id == u.New
		}
	}
	return false
}

// lastRun is the run that a change of refs would have made, or gone on with,
// at its end.
func lastRun(updates []update) (run string, ok bool) {
	return strings.CutPrefix(updates[len(updates)-1].Ref, RunPrefix)
}

// bootID tells one start of the machine from another, where the system says.
func bootID() string {
	data, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(data))
}
