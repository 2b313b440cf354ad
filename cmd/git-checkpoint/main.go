// Git-checkpoint saves the full state of a working tree after every step of a
// run, and goes back to it. git runs it as `git checkpoint`.
//
// The commands parse and print, one file a command; internal/worktree decides.
package main

import (
	"context"
	"io"
	"os"
	"os/signal"
	"runtime/debug"
	"syscall"
	"time"

	"github.com/git-checkpoint/git-checkpoint/internal/output"
)

//go:generate go test -run TestManPageIsUpToDate . -update

func main() {
	if os.Getenv("GOGC") == "" {
		// Most commands end before collecting garbage pays; a long log took a
		// tenth of its time for it.
		debug.SetGCPercent(400)
	}
	ctx, cancel := context.WithCancelCause(context.Background())
	time.AfterFunc(watchFrom, func() { watchSignals(cancel) })
	os.Exit(run(ctx, os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}

// watchFrom is how long a command runs before signals are watched for: a hook's
// is mostly over by then, and to begin with it takes a thread of its own. A
// signal before ends us at once, as a kill at any moment may.
const watchFrom = 20 * time.Millisecond

// watchSignals ends what runs at the first signal; a second one ends us at once.
func watchSignals(cancel context.CancelCauseFunc) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	<-ctx.Done()
	stop()
	cancel(context.Cause(ctx))
}

// run does what args ask for and returns the exit code.
func run(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	p := output.New(stdout, stderr)
	err := guarded(func() error { return dispatch(ctx, p, args, stdin) })
	return finish(p, err)
}
