// Package sample makes a small repository with a run, for the examples of the
// library's packages.
package sample

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"time"

	"github.com/git-checkpoint/git-checkpoint/internal/object"
	"github.com/git-checkpoint/git-checkpoint/lineage"
	"github.com/git-checkpoint/git-checkpoint/notes"
	"github.com/git-checkpoint/git-checkpoint/refs"
)

// Person makes everything in the repository.
var Person = refs.Identity{Name: "A Person", Email: "person@example.org", When: time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)}

// steps are those of the run "task".
var steps = []struct{ name, kind, session string }{
	{"plan", refs.KindAgent, "session-1"},
	{"fetch", refs.KindDeterministic, ""},
	{"implement", refs.KindAgent, "session-2"},
	{"test", refs.KindDeterministic, ""},
}

// Repository makes a repository with the run "task" in a new directory. It
// panics where it cannot: an example has nobody to tell.
func Repository() (dir string, remove func()) {
	dir, err := os.MkdirTemp("", "sample-")
	if err == nil {
		err = fill(context.Background(), dir)
	}
	if err != nil {
		panic(fmt.Sprintf("make a sample repository: %v", err))
	}
	return dir, func() { os.RemoveAll(dir) }
}

func fill(ctx context.Context, dir string) error {
	if err := exec.Command("git", "init", "-q", "--initial-branch=main", dir).Run(); err != nil {
		return err
	}
	repo, err := refs.Open(ctx, dir)
	if err != nil {
		return err
	}
	defer repo.Close()
	if err := commit(ctx, repo); err != nil {
		return err
	}
	head, err := repo.Head(ctx)
	if err != nil {
		return err
	}
	tip, err := lineage.Start(ctx, repo, lineage.NewRun{Name: "task", Head: head, By: Person})
	if err != nil {
		return err
	}
	for i, s := range steps {
		c := &refs.Checkpoint{
			Run: "task", Step: s.name, Kind: s.kind, Outcome: refs.Succeeded, Session: s.session,
			Tree: tree(repo, s.name), Parents: []string{tip.ID}, Head: head.Commit, Branch: head.Branch,
			Start: tip.Start, Number: i + 1, Subject: "checkpoint: " + s.name,
		}
		if err := save(ctx, repo, c); err != nil {
			return err
		}
		tip = c
	}
	return nil
}

// commit makes the first commit of the branch.
func commit(ctx context.Context, repo *refs.Repository) error {
	tx := repo.Begin("sample")
	tx.Set("refs/heads/main", repo.PutCommit(tree(repo, "base"), nil, "base\n", Person), "")
	return tx.Commit(ctx)
}

func tree(repo *refs.Repository, content string) string {
	store := repo.Objects()
	file := store.Put(object.Blob, []byte(content+"\n"))
	return store.Put(object.Tree, object.EncodeTree([]object.TreeEntry{{Mode: object.ModeFile, Name: "code", ID: file}}))
}

// save adds a checkpoint to its run, with its record.
func save(ctx context.Context, repo *refs.Repository, c *refs.Checkpoint) error {
	repo.PutCheckpoint(c, Person)
	book, err := notes.OpenBook(ctx, repo, c.Run)
	if err != nil {
		return err
	}
	record := notes.Record{
		StepName: c.Step, StepKind: c.Kind, Outcome: c.Outcome, SessionID: c.Session, GitCommit: c.Head, Branch: "main", By: Person.String(),
	}
	if err := book.Add(ctx, c.ID, Person.When, notes.EventCheckpoint, record); err != nil {
		return err
	}
	tx := repo.Begin("sample")
	if err := book.Commit(ctx, tx, "checkpoint "+c.ID, Person); err != nil {
		return err
	}
	tx.Set(refs.RunRef(c.Run), c.ID, c.Parents[0])
	return tx.Commit(ctx)
}
