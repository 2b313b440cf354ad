package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/git-checkpoint/git-checkpoint/lineage"
	"github.com/git-checkpoint/git-checkpoint/notes"
	"github.com/git-checkpoint/git-checkpoint/refs"
)

// repository is how one is built, and how many pairs a row takes in it.
type repository struct {
	fill  func(dir string) error
	pairs int
	keep  bool // it is good for another run
}

var repositories = map[string]repository{
	"small": {fill: func(dir string) error { return generate(dir, 20) }, pairs: 21, keep: true},
	"r1":    {fill: copyGo, pairs: 9, keep: true},
	"r2":    {fill: func(dir string) error { return generate(dir, 100_000) }, pairs: 5, keep: true},
	"big":   {fill: func(string) error { return nil }, pairs: 1},
}

// repository builds a repository, or finds it: one commit with all files, and
// everything packed, as after a clone.
func (b *bench) repository(repo repository, name string) (string, error) {
	dir := filepath.Join(b.dir, name)
	if _, err := os.Stat(filepath.Join(dir, ".git", "built")); err == nil {
		// Whatever a row left.
		return dir, errors.Join(command(dir, "git", "reset", "-q", "--hard", "main").run(), command(dir, "git", "clean", "-fdxq").run())
	}
	begun := time.Now()
	err := errors.Join(
		os.RemoveAll(dir),
		os.MkdirAll(dir, 0o777),
		repo.fill(dir),
		command(dir, "git", "init", "-q", "-b", "main").run(),
		command(dir, "git", "add", "-A").run(),
		command(dir, "git", "-c", "gc.auto=0", "commit", "-q", "--allow-empty", "-m", "all files").run(),
		command(dir, "git", "gc", "-q").run(),
	)
	if err == nil && repo.keep {
		err = os.WriteFile(filepath.Join(dir, ".git", "built"), nil, 0o666)
	}
	fmt.Fprintf(os.Stderr, "bench: built '%s' in %v\n", name, time.Since(begun).Round(time.Second))
	return dir, err
}

// generate makes files of a few hundred bytes, a hundred a directory.
func generate(dir string, count int) error {
	for i := range count {
		file := filepath.Join(dir, generated(i))
		if i%100 == 0 {
			if err := os.MkdirAll(filepath.Dir(file), 0o777); err != nil {
				return err
			}
		}
		text := strings.Repeat(fmt.Sprintf("line of file %d\n", i), 10+i%20)
		if err := os.WriteFile(file, []byte(text), 0o666); err != nil {
			return err
		}
	}
	return nil
}

func generated(i int) string {
	return fmt.Sprintf("d%02d/d%03d/file%06d.txt", i/10_000, i/100, i)
}

// copyGo copies the Go tree that this was built with.
func copyGo(dir string) error {
	root, err := command("", "go", "env", "GOROOT").output()
	if err != nil {
		return err
	}
	return os.CopyFS(dir, os.DirFS(strings.TrimSpace(root)))
}

// some picks files all over a repository.
func some(dir string, count int) ([]string, error) {
	var all []string
	err := filepath.WalkDir(dir, func(file string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && d.Name() == ".git":
			return fs.SkipDir
		case d.Type().IsRegular() && !strings.HasPrefix(d.Name(), "."):
			all = append(all, file)
		}
		return nil
	})
	if err != nil || len(all) < count {
		return all, err
	}
	picked := make([]string, count)
	for i := range picked {
		picked[i] = all[i*len(all)/count]
	}
	return picked, nil
}

// change gives files a content that they never had.
func change(files []string) error {
	for i, file := range files {
		if err := os.WriteFile(file, fmt.Appendf(nil, "changed at %d, file %d\n", time.Now().UnixNano(), i), 0o666); err != nil {
			return err
		}
	}
	return nil
}

// longRun makes a run of many checkpoints in a repository, and packs it.
func longRun(dir, run string, count int) error {
	ctx := context.Background()
	repo, err := refs.Open(ctx, dir)
	if err != nil {
		return err
	}
	defer repo.Close()
	if tip, err := repo.Ref(ctx, refs.RunRef(run)); err != nil || tip != "" {
		return err
	}
	head, err := repo.Head(ctx)
	if err != nil {
		return err
	}
	book, err := notes.OpenBook(ctx, repo, run)
	if err != nil {
		return err
	}
	by := refs.Identity{Name: "A", Email: "a@example.com", When: time.Now()}
	previous, err := lineage.Create(ctx, repo, book, lineage.NewRun{Name: run, Head: head, Worktree: "0123456789abcdef", By: by})
	if err != nil {
		return err
	}
	for i := range count {
		c := &refs.Checkpoint{
			Tree: previous.Tree, Parents: []string{previous.ID}, Run: run, Step: fmt.Sprint("step ", i%50), Kind: refs.KindAgent, Outcome: refs.Succeeded,
			Session: "session", Turn: fmt.Sprint("turn-", i), Head: head.Commit, Branch: head.Branch, Start: previous.Start, Number: i + 1,
			Subject: fmt.Sprint("checkpoint ", i+1),
		}
		repo.PutCheckpoint(c, by)
		record := notes.Record{StepName: c.Step, StepKind: c.Kind, Outcome: c.Outcome, SessionID: c.Session, TurnID: c.Turn, GitCommit: c.Head, By: by.String()}
		if err := book.Add(ctx, c.ID, by.When, notes.EventCheckpoint, record); err != nil {
			return err
		}
		previous = c
	}
	tx := repo.Begin("bench")
	if err := book.Commit(ctx, tx, "bench", by); err != nil {
		return err
	}
	tx.Set(refs.RunRef(run), previous.ID, "")
	if err := tx.Commit(ctx); err != nil {
		return err
	}
	return command(dir, "git", "gc", "-q").run()
}
