package worktree

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/git-checkpoint/git-checkpoint/internal/fault"
	"github.com/git-checkpoint/git-checkpoint/internal/git"
	"github.com/git-checkpoint/git-checkpoint/internal/object"
	"github.com/git-checkpoint/git-checkpoint/internal/snapshot"
	"github.com/git-checkpoint/git-checkpoint/refs"
)

// planReset makes the current branch, or a detached HEAD, go to the
// checkpoint's commit.
func (w *Worktree) planReset(op *operation, c *refs.Checkpoint) error {
	if c.Head == "" && op.Before.Head == "" {
		return nil
	}
	if c.Head == "" {
		return fault.New(fault.Conflict, "unborn-head", "checkpoint %.12s was made before the first commit: there is no commit to reset to", c.ID).
			WithHint("restore without --reset leaves the branch where it is")
	}
	op.After.Head, op.MovesHead = c.Head, op.Before.Head != c.Head
	return nil
}

// planHead decides where HEAD goes for a checkpoint: it stays where it is the
// checkpoint's commit; otherwise a branch of the run's own is made there and
// checked out, so that commits made since stay on their branch.
func (w *Worktree) planHead(ctx context.Context, op *operation, c *refs.Checkpoint, run string) error {
	if op.Before.Head == c.Head {
		return nil
	}
	for n := 1; ; n++ {
		branch := "refs/heads/" + w.config.BranchPrefix + run
		if n > 1 {
			branch = fmt.Sprintf("%s-%d", branch, n)
		}
		id, err := w.repo.Ref(ctx, branch)
		if err != nil {
			return err
		}
		if id != "" && id != c.Head || branch == op.Before.Branch || w.checkedOut(ctx, branch) {
			continue
		}
		if id == "" {
			if err := w.branchFits(ctx, branch); err != nil {
				return err
			}
			if c.Head != "" {
				op.Created = branch
			}
		}
		op.After.Branch, op.After.Head = branch, c.Head
		return nil
	}
}

// branchFits refuses a branch that git could not make.
func (w *Worktree) branchFits(ctx context.Context, branch string) error {
	name := strings.TrimPrefix(branch, "refs/heads/")
	if _, err := w.git.Command(ctx, "check-ref-format", branch).Text(); err != nil {
		return fault.New(fault.Invalid, "invalid-branch", "'%s' is no branch name", name).
			WithHint("checkpoint.branchPrefix is what it begins with")
	}
	taken, err := w.repo.InTheWay(ctx, branch)
	if err != nil || taken == "" {
		return err
	}
	return fault.New(fault.Conflict, "branch-exists", "branch '%s' cannot be made: there is a branch '%s'", name, strings.TrimPrefix(taken, "refs/heads/")).
		WithHint("choose what such branches begin with: git config checkpoint.branchPrefix run-")
}

// checkedOut says whether a worktree of the repository has the branch.
func (w *Worktree) checkedOut(ctx context.Context, branch string) bool {
	out, err := w.git.Command(ctx, "worktree", "list", "--porcelain").Output()
	return err != nil || slices.Contains(strings.Split(string(out), "\n"), "branch "+branch)
}

func describe(p point) string {
	switch {
	case p.Head == "":
		return "the unborn branch " + strings.TrimPrefix(p.Branch, "refs/heads/")
	case p.Branch == "":
		return fmt.Sprintf("%.12s, detached", p.Head)
	}
	return fmt.Sprintf("%.12s on %s", p.Head, strings.TrimPrefix(p.Branch, "refs/heads/"))
}

// elsewhere says whether HEAD is somewhere that an operation did not put it.
func (w *Worktree) elsewhere(now, p point) bool { return now.Branch != p.Branch || now.Head != p.Head }

// changeHead brings the state of a single step, branches and HEAD to where
// the operation says, then the current run.
func (w *Worktree) changeHead(ctx context.Context, op *operation, g *goal) error {
	tx := w.repo.Begin("checkpoint: " + op.Kind + " " + op.Target)
	if g.state.Operation.Kind == "" || g.state.Operation.Single {
		pseudo, err := snapshot.WriteState(w.git, g.state.Operation)
		if err != nil {
			return err
		}
		for name, id := range pseudo {
			old, err := w.pseudoRef(ctx, name)
			if err != nil {
				return err
			}
			switch {
			case id == old:
			case id == "":
				tx.Delete(name, old)
			default:
				tx.Set(name, id, old)
			}
		}
	}
	if !op.MovesHead {
		return tx.Commit(ctx)
	}
	now, err := w.point0(ctx)
	if err != nil {
		return err
	}
	to := op.After
	if now.Branch == to.Branch && now.Head != to.Head {
		// Before the first commit there is nothing to move.
		switch {
		case to.Branch == "":
			tx.SetDetached(to.Head, now.Head)
		case to.Head == "":
			tx.Delete(to.Branch, now.Head)
		default:
			tx.Set(to.Branch, to.Head, now.Head)
		}
	}
	if now.Branch != to.Branch && to.Branch != "" && to.Head != "" {
		have, err := w.repo.Ref(ctx, to.Branch)
		if err != nil {
			return err
		}
		if have != "" && have != to.Head {
			return fault.New(fault.Conflict, "branch-moved", "branch '%s' has moved to %.12s", strings.TrimPrefix(to.Branch, "refs/heads/"), have).
				WithHint("git checkpoint restore brings back the files alone")
		}
		tx.Set(to.Branch, to.Head, have)
	}
	if now.Branch != to.Branch && to.Branch == "" {
		// Leave the branch first, so that it is not moved.
		if err := w.detach(ctx, to.Head, op); err != nil {
			return err
		}
	}
	if err := tx.Commit(ctx); err != nil {
		return err
	}
	if now.Branch != to.Branch && to.Branch != "" {
		if err := w.repo.SetHead(ctx, to.Branch, "checkpoint: "+op.Kind+" to "+strings.TrimPrefix(to.Branch, "refs/heads/")); err != nil {
			return err
		}
	}
	return w.repo.SetCurrentRun(ctx, to.Run)
}

// detach makes HEAD hold a commit itself.
func (w *Worktree) detach(ctx context.Context, commit string, op *operation) error {
	now, err := w.repo.Head(ctx)
	if err != nil {
		return err
	}
	tx := w.repo.Begin("checkpoint: " + op.Kind)
	tx.SetDetached(commit, now.Commit)
	return tx.Commit(ctx)
}

func (w *Worktree) pseudoRef(ctx context.Context, name string) (string, error) {
	if w.git.RefFormat() == "files" {
		data, err := os.ReadFile(filepath.Join(w.git.Dir, name))
		if errors.Is(err, fs.ErrNotExist) {
			return "", nil
		}
		if id, _, _ := strings.Cut(string(data), "\n"); err == nil && object.IsID(id) {
			return id, nil
		}
	}
	id, err := w.git.Command(ctx, "rev-parse", "--verify", "--quiet", name).Text()
	var failed *git.Error
	if errors.As(err, &failed) && failed.Code == 1 {
		return "", nil
	}
	return id, err
}
