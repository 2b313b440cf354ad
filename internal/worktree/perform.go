package worktree

import (
	"context"
	"errors"
	"os"
	"slices"
	"strings"

	"github.com/git-checkpoint/git-checkpoint/internal/fault"
	"github.com/git-checkpoint/git-checkpoint/internal/git"
	"github.com/git-checkpoint/git-checkpoint/internal/index"
	"github.com/git-checkpoint/git-checkpoint/internal/restore"
	"github.com/git-checkpoint/git-checkpoint/lineage"
	"github.com/git-checkpoint/git-checkpoint/refs"
)

// stepOf is how an operation is performed, by its kind.
func stepOf(op *operation) step {
	switch op.Kind {
	case opUndo:
		return step{push: redoName, pop: op.Undoes}
	case opRedo:
		return step{push: undoName, pop: op.Undoes, keepRedo: true}
	case opRollback, opFork:
		return step{push: safetyName}
	}
	return step{push: undoName}
}

// step is how one operation is performed.
type step struct {
	pathspecs []string // limit to these
	dryRun    bool
	resumes   *operation // the killed operation that this one goes on from or rolls back
	push      string     // the stack that the finished operation goes to
	pop       string     // the ref that it takes off a stack
	keepRedo  bool       // it leaves what can be redone
	// with adds to the transaction that writes the operation down.
	with func(ctx context.Context, tx *refs.Transaction) error
}

// perform does an operation in the order that a kill at any moment can be
// finished or taken back from: refuse what cannot work, make everything
// ready, write down the safety checkpoint and the operation, change files,
// index, state and HEAD, verify, and write down that it is done.
func (w *Worktree) perform(ctx context.Context, op *operation, s step) (*RestoreResult, error) {
	by, err := w.config.Identity()
	if err != nil {
		return nil, err
	}
	if s.resumes != nil {
		now, err := w.point0(ctx)
		if err != nil {
			return nil, err
		}
		if w.elsewhere(now, s.resumes.Before) && w.elsewhere(now, s.resumes.After) {
			return nil, fault.New(fault.Conflict, "head-moved", "HEAD has moved since the %s was interrupted: it is at %s", s.resumes.Kind, describe(now)).
				WithHint("move it back with git checkout or git reset --soft, then try again")
		}
	}
	lock, err := restore.LockIndex(ctx, w.git)
	if err != nil {
		return nil, err
	}
	defer lock.Release()

	end := git.Span("restore: read the goal")
	goal, err := w.goal(ctx, op)
	end()
	if err != nil {
		return nil, err
	}
	now, plan, err := w.plan(ctx, op, goal, s)
	if err != nil {
		return nil, err
	}
	defer now.snap.Discard()
	defer plan.Discard()
	result := w.describeResult(op, plan, now)
	if s.dryRun {
		result.DryRun = true
		return result, nil
	}
	end = git.Span("restore: write down what is to be done")
	err = w.begin(ctx, op, plan, now, s, by)
	end()
	if err != nil {
		return nil, err
	}
	result.Safety = op.Safety
	if err := w.change(ctx, op, goal, now, plan, lock, s, by); err != nil {
		return nil, w.unfinished(ctx, op, plan, s, err)
	}
	w.recordUnignored(ctx, plan, goal, result)
	return result, nil
}

func (w *Worktree) describeResult(op *operation, plan *restore.Plan, now *captured) *RestoreResult {
	r := &RestoreResult{
		Operation: op.Kind, Run: op.After.Run, Checkpoint: op.Target,
		Written: orEmpty(plan.Write), Deleted: orEmpty(plan.Delete), Kept: plan.Kept, Unprotected: plan.Unprotected, Skipped: now.snap.Skipped,
	}
	if op.MovesHead && (op.Before.Head != op.After.Head || op.Before.Branch != op.After.Branch) {
		r.Head = &HeadMove{From: op.Before.Head, To: op.After.Head, Branch: strings.TrimPrefix(op.After.Branch, "refs/heads/")}
	}
	return r
}

// begin writes the safety checkpoint and the operation down.
func (w *Worktree) begin(ctx context.Context, op *operation, plan *restore.Plan, now *captured, s step, by refs.Identity) error {
	raw, err := plan.SaveRaw(ctx)
	if err != nil {
		return err
	}
	safety, err := w.putSafety(ctx, op, now, by)
	if err != nil {
		return err
	}
	op.At = by.When.UTC()
	old := ""
	if s.resumes != nil {
		// What was there before stays what undo goes back to; this is only
		// the half-done state.
		op.Safety, old = s.resumes.Safety, s.resumes.commit
		op.HalfDone, op.halfRaw = append(op.HalfDone, safety), raw
	} else {
		op.Safety, op.raw = safety, raw
		for _, s := range now.snap.Skipped {
			op.skipped = append(op.skipped, s.Path)
		}
	}
	if err := w.put(op, by); err != nil {
		return err
	}
	tx := w.repo.Begin("checkpoint: " + op.Kind)
	tx.Set(w.localRef(restoringName), op.commit, old)
	if s.with != nil {
		if err := s.with(ctx, tx); err != nil {
			return err
		}
	}
	return tx.Commit(ctx)
}

// putSafety makes the safety checkpoint: a checkpoint in no chain.
func (w *Worktree) putSafety(ctx context.Context, op *operation, now *captured, by refs.Identity) (string, error) {
	index, err := w.indexCommit(ctx, now, "", by)
	if err != nil {
		return "", err
	}
	c := &refs.Checkpoint{
		Tree: now.snap.Tree, Kind: refs.KindSafety, Head: now.head.Commit, Branch: now.head.Branch, Index: index, State: now.op.Kind,
		Subject: "before " + op.Kind,
	}
	if now.head.Commit != "" {
		c.Parents = append(c.Parents, now.head.Commit)
	}
	if index != "" {
		c.Parents = append(c.Parents, index)
	}
	return w.repo.PutCheckpoint(c, by), nil
}

// change does what cannot be done at once, in the order in which a kill does
// the least harm, and at the end writes down that it is done.
func (w *Worktree) change(ctx context.Context, op *operation, g *goal, now *captured, plan *restore.Plan, lock *restore.IndexLock, s step, by refs.Identity) error {
	for _, part := range []struct {
		what string
		do   func() error
	}{
		{"files", plan.Apply},
		{"index", func() error {
			data, err := w.indexOf(g, now, plan)
			if err != nil {
				return err
			}
			return lock.Write(data)
		}},
		{"HEAD", func() error { return w.changeHead(ctx, op, g) }},
		{"verify", plan.Verify},
		{"write down that it is done", func() error { return w.finish(ctx, op, s) }},
	} {
		end := git.Span("restore: " + part.what)
		err := part.do()
		end()
		if err != nil {
			return err
		}
	}
	return nil
}

// indexOf is the user's index as the goal has it, as a file holds it, with the
// stat data of the files that equal their entries, so that git need not look
// at them again.
func (w *Worktree) indexOf(g *goal, now *captured, plan *restore.Plan) ([]byte, error) {
	failed := func(err error) ([]byte, error) {
		return nil, fault.New(fault.Fatal, "index-write", "write the index: %w", err)
	}
	if g.state.Index == nil {
		edits, err := plan.Edits(g.different, g.changed)
		if err != nil {
			return failed(err)
		}
		data, tree, err := now.snap.Reindex(edits, plan.Differs)
		if err != nil {
			return failed(err)
		}
		if tree == g.stored.Entries {
			return data, nil
		}
		if err := w.listIndex(g, now); err != nil {
			return nil, err
		}
		g.cache = nil
	}
	x := &index.Index{Entries: g.state.Index.Entries, Tree: g.cache}
	plan.Stats(x.Entries)
	data, err := x.Encode(w.git.HashLen())
	if err != nil {
		return failed(err)
	}
	return data, nil
}

// finish writes down that the operation is done: first that it is, by its
// place on a stack, then what that makes obsolete. So it can be done again
// where it was only half done; see settleFinished.
func (w *Worktree) finish(ctx context.Context, op *operation, s step) error {
	stacks := map[string][]numbered{undoName: nil, redoName: nil, s.push: nil}
	for name := range stacks {
		list, err := w.stack(ctx, name)
		if err != nil {
			return err
		}
		stacks[name] = list
	}
	tx := w.repo.Begin("checkpoint: " + op.Kind)
	if to := stacks[s.push]; !onTop(to, op) {
		tx.Set(w.next(s.push, to), op.commit, "")
	}
	for _, n := range slices.Concat(stacks[undoName], stacks[redoName]) {
		if n.ref == s.pop || s.push == undoName && !s.keepRedo && strings.HasPrefix(n.ref, w.localRef(redoName)) {
			tx.Delete(n.ref, n.commit)
		}
	}
	if (op.Kind == opUndo || op.Kind == opRollback) && op.Created != "" && op.Created != op.After.Branch {
		if id, err := w.repo.Ref(ctx, op.Created); err == nil && id != "" && id == op.Before.Head {
			tx.Delete(op.Created, id)
		}
	}
	if op.Rewound != nil && op.Kind != opRewind {
		by, err := w.config.Identity()
		if err != nil {
			return err
		}
		if err := lineage.Unwind(ctx, w.repo, tx, op.Rewound.Source, op.Rewound.Child, op.Kind == opRedo, by); err != nil {
			return err
		}
	}
	tx.Delete(w.localRef(restoringName), op.commit)
	return tx.Commit(ctx)
}

// onTop says whether an operation is the last one of a stack.
func onTop(list []numbered, op *operation) bool {
	return len(list) > 0 && list[len(list)-1].commit == op.commit
}

// settleFinished completes what finish had begun when it was killed: git
// changes ref by ref, and the operation's place on a stack is the first.
func (w *Worktree) settleFinished(ctx context.Context) error {
	op, err := w.inProgress(ctx)
	if err != nil || op == nil {
		return nil // a command that needs it reports it
	}
	done, err := w.finished(ctx, op)
	if err != nil || !done {
		return err
	}
	return w.finish(ctx, op, stepOf(op))
}

// finished says whether everything but the end of finish is done.
func (w *Worktree) finished(ctx context.Context, op *operation) (bool, error) {
	list, err := w.stack(ctx, stepOf(op).push)
	return err == nil && onTop(list, op), err
}

// unfinished explains an operation that failed on the way. Where nothing was
// changed yet it is called off.
func (w *Worktree) unfinished(ctx context.Context, op *operation, plan *restore.Plan, s step, err error) error {
	if plan.Steps() == 0 && s.resumes == nil && op.Kind == opRestore && !op.MovesHead && errors.Is(err, fault.Conflict) {
		tx := w.repo.Begin("checkpoint: called off")
		tx.Delete(w.localRef(restoringName), op.commit)
		if tx.Commit(context.WithoutCancel(ctx)) == nil {
			return err
		}
	}
	kind, code := fault.Fatal, "restore-unfinished"
	if errors.Is(err, fault.Conflict) {
		kind = fault.Conflict
	}
	e := fault.New(kind, code, "the %s was not finished: %w", op.Kind, err)
	return e.WithHint("nothing is lost: git checkpoint restore --continue finishes it, git checkpoint undo takes it back")
}

// recordUnignored finds what was ignored before and is not any more, so that
// automatic saves leave it out.
func (w *Worktree) recordUnignored(ctx context.Context, plan *restore.Plan, g *goal, result *RestoreResult) {
	if !plan.IgnoreRules {
		return
	}
	list, err := w.git.Command(ctx, "ls-files", "-z", "--others", "--exclude-standard").Lines()
	if err != nil {
		w.warn("list files that are no longer ignored: %v", err)
		return
	}
	have := make(map[string]bool, len(g.files.Files))
	for _, e := range g.files.Files {
		have[e.Path] = true
	}
	for _, p := range list {
		if !have[p] && !g.skipped[p] && !strings.HasSuffix(p, "/") {
			result.Unignored = append(result.Unignored, p)
		}
	}
	data := ""
	if len(result.Unignored) > 0 {
		data = strings.Join(result.Unignored, "\x00") + "\x00"
	}
	if err := os.WriteFile(w.home(unignoredName), []byte(data), 0o666); err != nil {
		w.warn("remember files that are no longer ignored: %v", err)
	}
	git.Step("unignored written")
}
