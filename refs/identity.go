package refs

import (
	"context"
	"time"

	"github.com/git-checkpoint/git-checkpoint/internal/object"
)

// Identity is who makes a commit, and when.
type Identity struct {
	Name  string
	Email string
	When  time.Time // to the second, with its zone
}

func (i Identity) String() string { return i.Name + " <" + i.Email + ">" }

// PutCommit makes a commit object and returns its id. It is written by the
// next Transaction.
func (r *Repository) PutCommit(tree string, parents []string, message string, by Identity) string {
	sig := object.Signature{Name: by.Name, Email: by.Email, When: by.When}
	c := object.CommitObject{Tree: tree, Parents: parents, Author: sig, Committer: sig, Message: message}
	return r.objects.Put(object.Commit, c.Encode())
}

// PutCheckpoint makes the commit of a checkpoint from its Tree, Parents,
// Subject, Body and what goes into trailers, sets its ID and time, and
// returns the id.
func (r *Repository) PutCheckpoint(c *Checkpoint, by Identity) string {
	c.At, c.Author = by.When, by.Name
	c.ID = r.PutCommit(c.Tree, c.Parents, c.Message(), by)
	return c.ID
}

// CommitTree returns the tree of a commit.
func (r *Repository) CommitTree(ctx context.Context, id string) (string, error) {
	c, _, err := r.readCommit(ctx, id)
	if err != nil {
		return "", err
	}
	return c.Tree, nil
}
