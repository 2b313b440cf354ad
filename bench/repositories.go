package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand"
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
	fill  func(dir string) error // what is committed
	more  func(dir string) error // what is not; may be nil
	pairs int
	keep  bool // it is good for another run
}

var repositories = map[string]repository{
	"small":     {fill: func(dir string) error { return generate(dir, 20) }, pairs: 21, keep: true},
	"r1":        {fill: copyGo, pairs: 9, keep: true},
	"r2":        {fill: func(dir string) error { return generate(dir, 100_000) }, pairs: 5, keep: true},
	"untracked": {fill: copyGo, more: beside("new", "new-%d.txt", 20_000), pairs: 9, keep: true},
	"ignored":   {fill: copyGoIgnoring("/build/\n*.o\n"), more: beside("build", "file%d.o", 50_000), pairs: 9, keep: true},
	"big":       {fill: func(string) error { return nil }, more: gigabyte, pairs: 3},
}

// repository builds a repository, or finds it, and adds what is not committed.
func (b *bench) repository(repo repository, name string) (string, error) {
	dir := filepath.Join(b.dir, name)
	err := b.committed(repo, name, dir)
	if err == nil && repo.more != nil {
		err = repo.more(dir)
	}
	return dir, err
}

// committed is one commit with all files, and everything packed, as after a
// clone.
func (b *bench) committed(repo repository, name, dir string) error {
	if _, err := os.Stat(filepath.Join(dir, ".git", "built")); err == nil {
		return errors.Join(command(dir, "git", "reset", "-q", "--hard", "main").run(), command(dir, "git", "clean", "-fdxq").run(), forget(dir))
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
	return err
}

// forget takes out of a repository what rows left in it, so that none is
// measured among the packs and loose objects of others.
func forget(dir string) error {
	out, err := command(dir, "git", "for-each-ref", "--format=delete %(refname)", "refs/checkpoints", "refs/notes").output()
	if err != nil || out == "" {
		return err
	}
	return errors.Join(
		command(dir, "git", "update-ref", "--stdin").input(out).run(),
		os.RemoveAll(filepath.Join(dir, ".git", "checkpoint")),
		os.RemoveAll(filepath.Join(dir, ".git", "CHECKPOINT_HEAD")),
		command(dir, "git", "gc", "-q", "--prune=now").run(),
	)
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

// copyGoIgnoring is the Go tree with ignore rules.
func copyGoIgnoring(rules string) func(dir string) error {
	return func(dir string) error {
		return errors.Join(copyGo(dir), os.WriteFile(filepath.Join(dir, ".gitignore"), []byte(rules), 0o666))
	}
}

// beside puts small files beside those of a repository: half of them in a
// directory of their own, at which git status only has to glance, the others
// spread over the directories that there are.
func beside(own, name string, count int) func(dir string) error {
	return func(dir string) error {
		dirs, err := directories(dir)
		if err != nil {
			return err
		}
		for i := range count {
			in := dirs[i/2%len(dirs)]
			if i%2 == 0 {
				in = filepath.Join(dir, own, fmt.Sprint(i/200))
			}
			if i%200 == 0 {
				err = os.MkdirAll(in, 0o777)
			}
			if err = errors.Join(err, os.WriteFile(filepath.Join(in, fmt.Sprintf(name, i)), fmt.Appendf(nil, "file %d\n", i), 0o666)); err != nil {
				return err
			}
		}
		return nil
	}
}

func directories(dir string) (all []string, err error) {
	err = filepath.WalkDir(dir, func(file string, d fs.DirEntry, err error) error {
		if err != nil || !d.IsDir() {
			return err
		}
		if d.Name() == ".git" {
			return fs.SkipDir
		}
		all = append(all, file)
		return nil
	})
	return all, err
}

// gigabyte makes 1 GiB of random bytes, half of it in files above the limit
// for untracked ones.
func gigabyte(dir string) (err error) {
	random := rand.New(rand.NewSource(1))
	data := make([]byte, 64<<20)
	for i := range 40 {
		if i == 8 {
			data = data[:16<<20]
		}
		random.Read(data)
		err = errors.Join(err, os.WriteFile(filepath.Join(dir, fmt.Sprintf("file%02d", i)), data, 0o666))
	}
	return err
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
