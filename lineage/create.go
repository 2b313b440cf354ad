// Package lineage knows how runs descend from each other: how a run is
// created, and which checkpoint of which run it goes on from.
package lineage

import (
	"context"
	"fmt"

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
		Instructions: n.Instructions, ResumeStep: n.ResumeStep, Pin: n.Pin,
	})
	return start, err
}
