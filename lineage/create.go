// Package lineage knows how runs descend from each other: how a run is
// created, and which checkpoint of which run it goes on from.
package lineage

import (
	"context"
	"fmt"
	"time"

	"github.com/git-checkpoint/git-checkpoint/internal/fault"
	"github.com/git-checkpoint/git-checkpoint/internal/object"
	"github.com/git-checkpoint/git-checkpoint/notes"
	"github.com/git-checkpoint/git-checkpoint/refs"
)

// NewRun says what a run starts from. Exactly one of Head and Source counts:
// a run with lineage starts from its source's checkpoint, any other from HEAD.
type NewRun struct {
	Name    string
	Head    refs.Head
	Source  *refs.Checkpoint // with Lineage
	Lineage *refs.Lineage

	Worktree string // the id of the worktree that will write it
	Path     string // where that is
	Session  string
	By       refs.Identity

	Instructions string // of a rewind or fork, for the step that is entered again
	ResumeStep   string // that step
	Pin          *notes.Pin
	Digest       string // of the request for a rerun
}

// Start makes a run that starts from n.Head or n.Source, in one transaction:
// its journal first, its ref last. A name that is taken is ErrConflict, one
// that cannot be is ErrInvalid.
func Start(ctx context.Context, repo *refs.Repository, n NewRun) (*refs.Checkpoint, error) {
	if err := checkIdentity(&n.By); err != nil {
		return nil, err
	}
	if err := repo.CheckNewRun(ctx, n.Name); err != nil {
		return nil, err
	}
	book, err := notes.OpenBook(ctx, repo, n.Name)
	if err != nil {
		return nil, err
	}
	start, err := Create(ctx, repo, book, n)
	if err != nil {
		return nil, err
	}
	tx := repo.Begin("checkpoint: start")
	if err := book.Commit(ctx, tx, "start of run "+n.Name, n.By); err != nil {
		return nil, err
	}
	tx.Set(refs.RunRef(n.Name), start.ID, "")
	return start, tx.Commit(ctx)
}

// checkIdentity refuses to write commits of nobody; without a time it is now.
func checkIdentity(by *refs.Identity) error {
	if by.Name == "" || by.Email == "" {
		return fault.New(fault.Invalid, "no-identity", "make a run: who makes it is not given")
	}
	if by.When.IsZero() {
		by.When = time.Now().Truncate(time.Second)
	}
	return nil
}

// Create puts the start commit of a run and begins its journal. The caller
// commits the book and then, last, sets the run's ref.
func Create(ctx context.Context, repo *refs.Repository, book *notes.Book, n NewRun) (*refs.Checkpoint, error) {
	start := &refs.Checkpoint{
		Run: n.Name, Kind: refs.KindStart, Session: n.Session, Lineage: n.Lineage,
		Subject: fmt.Sprintf("start of run '%s'", n.Name),
	}
	switch {
	case n.Source != nil:
		s := n.Source
		start.Tree, start.Parents = s.Tree, []string{s.ID}
		start.Head, start.Branch, start.Index, start.State = s.Head, s.Branch, s.Index, s.State
	case n.Head.Unborn():
		start.Tree = repo.Objects().Put(object.Tree, nil)
		start.Branch = n.Head.Branch
	default:
		tree, err := repo.CommitTree(ctx, n.Head.Commit)
		if err != nil {
			return nil, err
		}
		start.Tree, start.Parents = tree, []string{n.Head.Commit}
		start.Head, start.Branch = n.Head.Commit, n.Head.Branch
	}
	repo.PutCheckpoint(start, n.By)
	start.Start = start.ID
	err := book.Add(ctx, start.ID, n.By.When, notes.EventCreated, notes.Created{
		Lineage: n.Lineage, Worktree: n.Worktree, Path: n.Path, Session: n.Session, By: n.By.String(),
		Instructions: n.Instructions, ResumeStep: n.ResumeStep, Pin: n.Pin, Digest: n.Digest,
	})
	return start, err
}
