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
	"syscall"

	"github.com/git-checkpoint/git-checkpoint/internal/output"
)

//go:generate go test -run TestManPageIsUpToDate . -update

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends us at once
	os.Exit(run(ctx, os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}

// run does what args ask for and returns the exit code.
func run(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	p := output.New(stdout, stderr)
	err := guarded(func() error { return dispatch(ctx, p, args, stdin) })
	return finish(p, err)
}
