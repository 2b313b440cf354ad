package refs

import (
	"context"
	"slices"

	"github.com/git-checkpoint/git-checkpoint/internal/git"
	"github.com/git-checkpoint/git-checkpoint/internal/lock"
)

// ahead is a git that waits for what it is to write: it starts while that is
// still being made. It has inherited the file of the lock that is to be taken.
type ahead struct {
	lock    *lock.Lock
	end     func() // of the lock's inheritance
	args    []string
	process *git.Process // nil: it was used
}

// Ahead starts the git that the Commit of a transaction with this message is
// going to need. Without such a Commit nothing comes of it; see Abandon.
func (r *Repository) Ahead(ctx context.Context, message string) {
	if r.ahead != nil {
		return
	}
	l, err := lock.Open(r.lockPath())
	if err != nil {
		return // Commit says what is wrong
	}
	a := &ahead{lock: l, end: r.git.Inherit(l.File()), args: updateRef(message)}
	if a.process, err = r.refCommand(ctx, a.args).Start(); err != nil {
		a.process = nil
	}
	r.ahead = a
}

// Abandon ends what Ahead began, if nothing has come of it.
func (r *Repository) Abandon() {
	a := r.ahead
	if a == nil {
		return
	}
	r.ahead = nil
	if a.process != nil {
		a.process.Wait() // without a word it changes nothing
	}
	a.end()
	a.lock.Release()
}

// started is the process that was started for a call of git, nil if none was.
func (r *Repository) started(args []string) *git.Process {
	if r.ahead == nil || r.ahead.process == nil || !slices.Equal(args, r.ahead.args) {
		return nil
	}
	p := r.ahead.process
	r.ahead.process = nil
	return p
}
