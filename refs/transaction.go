package refs

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/git-checkpoint/git-checkpoint/internal/fault"
	"github.com/git-checkpoint/git-checkpoint/internal/git"
)

// ErrStale is matched by the error of a transaction that found a ref at
// another value than expected. It is an ErrConflict too.
var ErrStale = errors.New("a ref has another value than expected")

// Transaction is a set of ref updates that git applies in one
// `update-ref --stdin`: against other writers all or nothing, against a crash
// ordered, in the order of the calls. The run's ref comes last.
type Transaction struct {
	repo    *Repository
	message string
	refs    []string
	input   bytes.Buffer
}

// Begin starts a transaction; message goes to reflogs, where there are any.
func (r *Repository) Begin(message string) *Transaction {
	return &Transaction{repo: r, message: message}
}

// Set makes ref hold id. old is the value that it must have now; empty means
// that it must not exist.
func (t *Transaction) Set(ref, id, old string) {
	if id == old {
		t.Verify(ref, old)
		return
	}
	t.refs = append(t.refs, ref)
	if old == "" {
		fmt.Fprintf(&t.input, "create %s\x00%s\x00", ref, id)
	} else {
		fmt.Fprintf(&t.input, "update %s\x00%s\x00%s\x00", ref, id, old)
	}
}

// SetDetached makes HEAD itself hold id, not the branch that it may name.
func (t *Transaction) SetDetached(id, old string) {
	t.refs = append(t.refs, "HEAD")
	fmt.Fprintf(&t.input, "option no-deref\x00update HEAD\x00%s\x00%s\x00", id, old)
}

// Delete removes ref; old is the value that it must have now.
func (t *Transaction) Delete(ref, old string) {
	t.refs = append(t.refs, ref)
	fmt.Fprintf(&t.input, "delete %s\x00%s\x00", ref, old)
}

// Verify makes the transaction fail unless ref holds old; empty: unless it
// does not exist.
func (t *Transaction) Verify(ref, old string) {
	if old == "" {
		old = strings.Repeat("0", 2*t.repo.git.HashLen())
	}
	fmt.Fprintf(&t.input, "verify %s\x00%s\x00", ref, old)
}

// Commit writes the objects that were Put, then applies the updates. When a
// ref moved meanwhile, nothing is changed and the error matches ErrStale and
// ErrConflict.
func (t *Transaction) Commit(ctx context.Context) error {
	if err := t.repo.objects.Flush(ctx); err != nil {
		return err
	}
	if t.input.Len() == 0 {
		return nil
	}
	note, err := t.note()
	if err != nil {
		return err
	}
	git.Step("transaction")
	err = t.attempt(ctx)
	git.Step("transaction done")
	os.Remove(note)
	return err
}

// attempt retries while somebody else holds a lock on one of the refs.
func (t *Transaction) attempt(ctx context.Context) error {
	deadline := time.Now().Add(5 * time.Second)
	for pause := 5 * time.Millisecond; ; pause = min(2*pause, 200*time.Millisecond) {
		c := t.repo.git.Command(ctx, "-c", "core.filesRefLockTimeout=1000", "-c", "core.packedRefsTimeout=5000",
			"update-ref", "--stdin", "-z", "-m", t.message)
		c.Hold = true
		err := c.WithEnv("LC_ALL", "C").WithInput(t.input.Bytes()).Run()
		var failed *git.Error
		if err == nil || !errors.As(err, &failed) {
			return err
		}
		said := failed.Stderr
		switch {
		case strings.Contains(said, ".lock': File exists"):
			if time.Now().Before(deadline) {
				select {
				case <-time.After(pause):
					continue
				case <-ctx.Done():
				}
			}
			return fault.New(fault.Conflict, "ref-locked", "update refs: %s", failed.Reason()).
				WithHint("another git process holds the lock, or crashed and left it; if none runs, remove the file")
		case strings.Contains(said, "but expected"), strings.Contains(said, "reference already exists"),
			strings.Contains(said, "unable to resolve reference"):
			e := fault.New(fault.Conflict, "ref-moved", "update refs: %s", failed.Reason()).
				WithHint("something else changed the repository at the same time; look again and retry")
			e.Cause = ErrStale
			return e
		}
		return fault.New(fault.Fatal, "ref-write", "update refs: %s", failed.Reason())
	}
}

// pending is what a transaction writes down before it starts, so that the
// next command can tell the locks of a dead writer of ours from others.
type pending struct {
	PID  int       `json:"pid"`
	Boot string    `json:"boot,omitempty"`
	At   time.Time `json:"at"`
	Refs []string  `json:"refs"`
}

func (t *Transaction) note() (string, error) {
	data, err := json.Marshal(pending{PID: os.Getpid(), Boot: bootID(), At: time.Now().UTC(), Refs: t.refs})
	if err != nil {
		return "", err
	}
	path := t.repo.notePath()
	if err := os.MkdirAll(filepath.Dir(path), 0o777); err != nil {
		return "", readOnly(err)
	}
	if err := os.WriteFile(path, data, 0o666); err != nil {
		return "", readOnly(err)
	}
	return path, nil
}

func readOnly(err error) error {
	return fault.New(fault.Fatal, "io", "write to the git directory: %w", err)
}

func (r *Repository) notePath() string {
	return filepath.Join(r.git.Dir, "checkpoint", "transaction")
}

// RecoverLocks removes the ref locks that a dead writer of this worktree
// left. The caller holds the worktree's lock, which a dead writer's git keeps
// until it ends too, so nobody of ours can be using them.
func (r *Repository) RecoverLocks(ctx context.Context) error {
	data, err := os.ReadFile(r.notePath())
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return readOnly(err)
	}
	var p pending
	if json.Unmarshal(data, &p) == nil {
		for _, ref := range p.Refs {
			r.removeDeadLock(ctx, ref, p.At)
		}
	}
	return os.Remove(r.notePath())
}

// removeDeadLock removes a lock that was made after the dead writer began
// and that nobody has touched for a while: a live git holds a ref's lock for
// milliseconds only.
func (r *Repository) removeDeadLock(ctx context.Context, ref string, begun time.Time) {
	if CheckRefName(ref) != nil {
		return
	}
	dir := r.git.CommonDir
	if !strings.HasPrefix(ref, "refs/") {
		dir = r.git.Dir
	}
	path := filepath.Join(dir, filepath.FromSlash(ref)+".lock")
	before, err := os.Lstat(path)
	if err != nil || before.ModTime().Before(begun.Add(-2*time.Second)) {
		return
	}
	if wait := time.Second - time.Since(before.ModTime()); wait > 0 {
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return
		}
	}
	after, err := os.Lstat(path)
	if err == nil && os.SameFile(before, after) && after.ModTime().Equal(before.ModTime()) {
		git.Trace("remove the lock of a dead writer: %s", path)
		os.Remove(path)
	}
}

// CheckRefName says whether a name can be a ref of ours, so that what a file
// says never leads outside the git directory.
func CheckRefName(ref string) error {
	if ref == "HEAD" || ref == Current {
		return nil
	}
	if !strings.HasPrefix(ref, "refs/") {
		return fault.New(fault.Invalid, "invalid-ref", "'%s' is no ref", printable(ref))
	}
	for _, part := range strings.Split(ref, "/") {
		if part == "" || strings.HasPrefix(part, ".") || strings.Contains(part, "..") || strings.ContainsAny(part, "\\ ~^:?*[\x00") {
			return fault.New(fault.Invalid, "invalid-ref", "'%s' is no ref", printable(ref))
		}
	}
	return nil
}

// bootID tells one start of the machine from another, where the system says.
func bootID() string {
	data, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(data))
}
