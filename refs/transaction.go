package refs

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
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
	updates []update
	input   bytes.Buffer
}

// update is one change of a ref, as it is written down before it is made.
type update struct {
	Ref string `json:"ref"`
	New string `json:"new,omitempty"` // an object, or the ref that a symbolic ref names; empty: it is deleted

	Created bool `json:"created,omitempty"` // it must not have existed
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
	t.updates = append(t.updates, update{Ref: ref, New: id, Created: old == ""})
	if old == "" {
		fmt.Fprintf(&t.input, "create %s\x00%s\x00", ref, id)
	} else {
		fmt.Fprintf(&t.input, "update %s\x00%s\x00%s\x00", ref, id, old)
	}
}

// SetDetached makes HEAD itself hold id, not the branch that it may name.
func (t *Transaction) SetDetached(id, old string) {
	t.updates = append(t.updates, update{Ref: "HEAD", New: id})
	fmt.Fprintf(&t.input, "option no-deref\x00update HEAD\x00%s\x00%s\x00", id, old)
}

// Delete removes ref; old is the value that it must have now.
func (t *Transaction) Delete(ref, old string) {
	t.updates = append(t.updates, update{Ref: ref})
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
	return t.repo.noted(ctx, t.updates, func() error { return t.attempt(ctx) })
}

// attempt applies the updates.
func (t *Transaction) attempt(ctx context.Context) error {
	// What is cut off, because we are killed, is not committed.
	input := slices.Concat([]byte("start\x00"), t.input.Bytes(), []byte("commit\x00"))
	err := t.repo.writeRefs(ctx, input, updateRef(t.message)...)
	var failed *git.Error
	if !errors.As(err, &failed) || failed.Code < 0 {
		return err
	}
	said, reason := failed.Stderr, strings.TrimPrefix(failed.Reason(), "commit: ")
	if strings.Contains(said, "but expected") || strings.Contains(said, "reference already exists") ||
		strings.Contains(said, "unable to resolve reference") {
		e := fault.New(fault.Conflict, "ref-moved", "update refs: %s", reason).
			WithHint("something else changed the repository at the same time; look again and retry")
		e.Cause = ErrStale
		return e
	}
	return fault.New(fault.Fatal, "ref-write", "update refs: %s", reason).
		WithHint("git checkpoint verify lists what is damaged")
}

// updateRef is the call of git that applies a transaction.
func updateRef(message string) []string {
	return []string{"-c", "core.packedRefsTimeout=5000", "update-ref", "--stdin", "-z", "-m", message}
}

// refCommand is a call of git that writes refs. It is not ended before its time,
// which would leave its locks: it takes milliseconds.
func (r *Repository) refCommand(ctx context.Context, args []string) *git.Cmd {
	c := r.git.Command(context.WithoutCancel(ctx), append([]string{"-c", "core.filesRefLockTimeout=1000"}, args...)...)
	c.Hold = true
	return c.WithEnv("LC_ALL", "C")
}

// writeRefs starts git to write refs, and again while somebody else holds a
// lock on one of them; after two seconds that is ErrConflict. What else git
// fails with is a *git.Error.
func (r *Repository) writeRefs(ctx context.Context, input []byte, args ...string) error {
	deadline := time.Now().Add(2 * time.Second)
	for pause := 5 * time.Millisecond; ; pause = min(2*pause, 200*time.Millisecond) {
		var err error
		if p := r.started(args); p != nil {
			p.Stdin.Write(input) // what fails here git has a reason for
			err = p.Wait()
		} else {
			err = r.refCommand(ctx, args).WithInput(input).Run()
		}
		var failed *git.Error
		if !errors.As(err, &failed) || !strings.Contains(failed.Stderr, ".lock': File exists") {
			return err
		}
		if time.Now().Before(deadline) {
			select {
			case <-time.After(pause):
				continue
			case <-ctx.Done():
			}
		}
		return fault.New(fault.Conflict, "ref-locked", "update refs: %s", failed.Reason()).
			WithHint("another git process holds the lock, or crashed and left it; if none runs, remove the file")
	}
}

// CheckRefName says whether a name can be a ref of ours, so that what a file
// says never leads outside the git directory.
func CheckRefName(ref string) error {
	switch ref {
	case "HEAD", Current, "CHERRY_PICK_HEAD", "REVERT_HEAD":
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
