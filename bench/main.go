// Bench measures git checkpoint against what git needs for the same work, and
// prints the table of DESIGN.md, "Speed": run it by hand.
//
//	go run ./bench                                # the small repository, seconds
//	go run ./bench -repo r1,small                 # the Go tree too
//	go run ./bench -repo r2 -rows restore -n 7    # 100,000 generated files
//	go run ./bench -repo untracked,ignored        # many files that no commit has
//	go run ./bench -repo big                      # 1 GB untracked, minutes
//	go run ./bench -stores                        # the two object stores, for ARCHITECTURE.md
//
// Every row has two sides, each a whole process (or, for git, the processes
// that the work takes) that is started anew, warm unless the row says cold.
// The sides take turns, each pair gives one ratio, and the median of the ratios
// is what counts: it stays what it is on a machine that is busy with other
// things, where times do not. Rows that take snapshots are then measured once
// more, against git again, with snapshots by git: GIT_CHECKPOINT_SNAPSHOT=git.
//
// The rows save-1-… are what others do to save a working tree: an index made
// anew for each save, a git directory elsewhere, the stash (without untracked
// files). Cold rows need root on Linux, and slow down whatever else runs there.
//
// The repositories are built in a temporary directory that is removed, or in
// -dir, where they are kept and found again: small (20 files), r1 (a copy of
// `go env GOROOT`), r2 (100,000 files), untracked and ignored (r1 with 20,000
// small untracked files or 50,000 ignored ones, half of them in a directory of
// their own), log (a run of 10,000 checkpoints, for the row of that name) and
// big (1 GB untracked, never kept).
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run() error {
	repos := flag.String("repo", "small", "which repositories, of small, r1, r2, untracked, ignored and big, with commas")
	only := flag.String("rows", "", "which rows, by their names in the table; all of a repository's if empty")
	n := flag.Int("n", 0, "how many pairs a row; 0: as many as fit the size of the repository")
	dir := flag.String("dir", "", "where the repositories are kept; a temporary directory if empty")
	byGit := flag.Bool("by-git", true, "measure rows that take snapshots with snapshots by git too")
	stores := flag.Bool("stores", false, "measure the two object stores instead")
	flag.Parse()

	b := &bench{dir: *dir, pairs: *n}
	if b.dir == "" {
		temporary, err := os.MkdirTemp("", "git-checkpoint-bench-")
		if err != nil {
			return err
		}
		defer os.RemoveAll(temporary)
		b.dir = temporary
	}
	if err := os.MkdirAll(b.dir, 0o777); err != nil {
		return err
	}
	isolate()
	if *stores {
		return b.stores()
	}
	if err := b.build(); err != nil {
		return err
	}
	fmt.Printf("%s, %d cores, %s, %s\n\n", runtime.GOOS+"/"+runtime.GOARCH, runtime.NumCPU(), b.gitVersion(), time.Now().Format(time.DateOnly))
	fmt.Println("| repository | row | git checkpoint | git | ratio | of the pairs | target | snapshots by git | ratio |")
	fmt.Println("|---|---|---|---|---|---|---|---|---|")
	for _, name := range strings.Split(*repos, ",") {
		repo, ok := repositories[name]
		if !ok {
			return fmt.Errorf("there is no repository '%s'", name)
		}
		for _, row := range rows {
			if !slices.Contains(row.in, name) || *only != "" && !slices.Contains(strings.Split(*only, ","), row.name) {
				continue
			}
			line, err := b.line(repo, name, row, *byGit)
			switch {
			case errors.Is(err, errSkip):
				fmt.Fprintf(os.Stderr, "bench: %s in %s: %v\n", row.name, name, err)
			case err != nil:
				return fmt.Errorf("%s in %s: %w", row.name, name, err)
			default:
				fmt.Println(line)
			}
		}
	}
	fmt.Println("\nWhere the time of a start goes: GODEBUG=inittrace=1 git-checkpoint version")
	return nil
}

// bench is what all rows share.
type bench struct {
	dir    string
	pairs  int
	binary string // git checkpoint, as built for this run
	empty  string // a Go program that does nothing
	way    string // of taking snapshots: GIT_CHECKPOINT_SNAPSHOT
}

// build builds the programs.
func (b *bench) build() error {
	programs := filepath.Join(b.dir, "programs")
	b.binary, b.empty = filepath.Join(programs, "git-checkpoint"), filepath.Join(programs, "empty")
	source := filepath.Join(programs, "empty.go")
	if err := errors.Join(os.MkdirAll(programs, 0o777), os.WriteFile(source, []byte("package main\n\nfunc main() {}\n"), 0o666)); err != nil {
		return err
	}
	return errors.Join(
		command("", "go", "build", "-tags", "urfave_cli_no_docs", "-o", b.binary, "github.com/git-checkpoint/git-checkpoint/cmd/git-checkpoint").run(),
		command("", "go", "build", "-o", b.empty, source).run(),
	)
}

func (b *bench) gitVersion() string {
	out, err := command("", "git", "version").output()
	if err != nil {
		return "git ?"
	}
	return strings.Replace(strings.TrimSpace(out), "git version", "git", 1)
}
