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
	go watchSignals(cancel)
	os.Exit(run(ctx, os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}

// watchSignals ends what runs at the first signal; a second one ends us at
// once, as does one that comes before this has begun. It runs beside the rest
// because its beginning takes longer than that of most commands: 0.3 ms.
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
