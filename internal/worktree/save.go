package worktree

import (
	"context"
	"errors"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/git-checkpoint/git-checkpoint/internal/fault"
	"github.com/git-checkpoint/git-checkpoint/lineage"
	"github.com/git-checkpoint/git-checkpoint/notes"
	"github.com/git-checkpoint/git-checkpoint/refs"
)

// saveMessage is what a save's transaction goes by.
const saveMessage = "checkpoint: save"

// attempts is how often a save starts again when a ref moved under it.
const attempts = 8

// Save makes one checkpoint of the working tree.
func (w *Worktree) Save(ctx context.Context, req SaveRequest) (*SaveResult, error) {
	if err := req.check(); err != nil {
		return nil, err
	}
	if err := w.hold(ctx, "save"); err != nil {
		return nil, err
	}
	defer w.unlock()
	if err := w.refuseInProgress(ctx); err != nil {
		return nil, err
	}
	return w.save(ctx, req, w.forSave)
}

// check finds what is wrong with a request before anything is touched.
func (req *SaveRequest) check() error {
	if req.Run != "" {
		if err := refs.CheckRun(req.Run); err != nil {
			return err
		}
	}
	if req.Step != "" {
		if err := refs.CheckStep(req.Step); err != nil {
			return err
		}
	}
	if req.Kind == "" {
		req.Kind = refs.KindManual
	}
	if !slices.Contains(refs.Kinds, req.Kind) {
		return fault.New(fault.Invalid, "invalid-kind", "'%s' is no kind of checkpoint", req.Kind).
			WithHint("the kinds are %s", strings.Join(refs.Kinds, ", "))
	}
	if req.Outcome != "" && !slices.Contains(refs.Outcomes, req.Outcome) {
		return fault.New(fault.Invalid, "invalid-outcome", "'%s' is no outcome", req.Outcome).
			WithHint("the outcomes are %s", strings.Join(refs.Outcomes, ", "))
	}
	if req.Outcome == "" && req.Step != "" {
		req.Outcome = refs.Succeeded
	}
	if req.Replay != "" && req.Replay != "always" {
		return fault.New(fault.Invalid, "invalid-replay", "'%s' is no replay: the only one is 'always'", req.Replay)
	}
	if req.Transcript != "" && req.Session == "" {
		return fault.New(fault.Invalid, "invalid-transcript", "a transcript belongs to a session: --session is missing")
	}
	for _, a := range req.Artifacts {
		if a.Name == "" || a.Path == "" && a.URI == "" {
			return fault.New(fault.Invalid, "invalid-artifact", "an artifact needs a name and a path or URI").
				WithHint("write --artifact NAME=PATH or NAME=URI")
		}
	}
	return nil
}

// save takes the snapshot and writes the checkpoint. Where a ref moves under
// it, the commit is made anew on the new value; the snapshot stays.
func (w *Worktree) save(ctx context.Context, req SaveRequest, pick choose) (*SaveResult, error) {
	begun := time.Now()
	by, err := w.config.Identity()
	if err != nil {
		return nil, err
	}
	artifacts, err := w.artifacts(req.Artifacts)
	if err != nil {
		return nil, err
	}
	key, err := w.repo.Ref(ctx, w.localRef(indexName))
	if err != nil {
		return nil, err
	}
	options := w.options()
	options.Key = key
	if req.Automatic {
		options.Omit = w.unignored()
	}
	options.Changing = func() {
		if w.known != nil && w.known.tip == key { // else the tree may be that of the newest checkpoint
			w.repo.Ahead(ctx, saveMessage)
		}
	}
	options.Changed = func(tree string) {
		if !w.holdsTree(ctx, req.Run, tree) {
			w.repo.Ahead(ctx, saveMessage)
		}
	}
	defer w.repo.Abandon()
	state, err := w.capture(ctx, options, func() { w.foresee(ctx, req.Run) })
	if err != nil {
		return nil, err
	}
	defer state.snap.Discard()

	for attempt := 1; ; attempt++ {
		t, err := pick(ctx, req, state.head, by.When)
		if err != nil {
			return nil, err
		}
		result, err := w.commit(ctx, req, t, state, artifacts, by, begun, key)
		if err == nil && !req.Automatic {
			os.Remove(w.home(unignoredName)) // they are part of the run from now on
		}
		if errors.Is(err, refs.ErrStale) && attempt < attempts {
			if key, err = w.repo.Ref(ctx, w.localRef(indexName)); err != nil {
				return nil, err
			}
			continue
		}
		return result, err
	}
}

// foresee reads a run, the current one if it is empty, so that it is known when
// it is asked for. What goes wrong goes wrong again then.
func (w *Worktree) foresee(ctx context.Context, run string) {
	if run == "" {
		run, _ = w.repo.CurrentRun(ctx)
	}
	w.existing(ctx, run)
}

// holdsTree says whether the newest checkpoint of a run, the current one if it
// is empty, has a tree.
func (w *Worktree) holdsTree(ctx context.Context, run, tree string) bool {
	if run == "" {
		run, _ = w.repo.CurrentRun(ctx)
	}
	if run == "" {
		return false
	}
	tip, err := w.repo.Ref(ctx, refs.RunRef(run))
	if err != nil || tip == "" {
		return false
	}
	held, err := w.repo.CommitTree(ctx, tip)
	return err == nil && held == tree
}

// commit writes one checkpoint to its run, and the run itself if need be.
func (w *Worktree) commit(ctx context.Context, req SaveRequest, t *target, state *captured, artifacts []Artifact, by refs.Identity, begun time.Time, key string) (*SaveResult, error) {
	book, err := w.bookOf(ctx, t)
	if err != nil {
		return nil, err
	}
	created := t.tip == nil
	tip := t.tip
	if created {
		if tip, err = lineage.Create(ctx, w.repo, book, lineage.NewRun{
			Name: t.run, Head: state.head, Source: t.from, Lineage: t.lineage,
			Worktree: w.id, Path: w.git.Top, Session: req.Session, By: by,
		}); err != nil {
			return nil, err
		}
	}
	index, err := w.indexCommit(ctx, state, tip.Index, by)
	if err != nil {
		return nil, err
	}
	result := &SaveResult{
		Run: t.run, Tree: state.snap.Tree, StepName: req.Step, StepKind: req.Kind, Started: created, Lineage: t.lineage,
		Skipped: orEmpty(state.snap.Skipped), Unprotected: state.snap.Unprotected,
	}
	same := tip.Tree == state.snap.Tree && tip.Index == index && tip.Head == state.head.Commit && tip.Branch == state.head.Branch && tip.State == state.op.Kind
	record := !same || !req.IfChanged && (req.Step != "" || created && t.lineage == nil)
	tx := w.repo.Begin(saveMessage)
	old := ""
	if !created {
		old = t.tip.ID
	}
	if !record {
		if created && t.create {
			if err := w.createOnly(ctx, tx, book, t, tip, by); err != nil {
				return nil, err
			}
			t.tip = tip
		}
		return w.unchanged(ctx, result, t, tip, state, key)
	}
	c := &refs.Checkpoint{
		Tree: state.snap.Tree, Parents: []string{tip.ID}, Run: t.run, Step: req.Step, Kind: req.Kind, Outcome: req.Outcome,
		Session: req.Session, Turn: req.Turn, Head: state.head.Commit, Branch: state.head.Branch, Index: index, State: state.op.Kind, Replay: req.Replay,
		Start: tip.Start, Number: tip.Number + 1,
	}
	if c.Start == "" {
		if c.Start, err = w.startOf(ctx, tip); err != nil {
			return nil, err
		}
	}
	if state.head.Commit != "" && state.head.Commit != tip.Head {
		c.Parents = append(c.Parents, state.head.Commit)
	}
	if index != "" {
		c.Parents = append(c.Parents, index)
	}
	c.Subject, c.Body = w.message(req, c)
	w.repo.PutCheckpoint(c, by)
	if err := book.Add(ctx, c.ID, by.When, notes.EventCheckpoint, w.record(req, c, state, artifacts, by, begun)); err != nil {
		return nil, err
	}
	if err := book.Commit(ctx, tx, "checkpoint "+c.ID, by); err != nil {
		return nil, err
	}
	if !state.snap.Behind {
		tx.Set(w.localRef(indexName), c.ID, key)
	}
	tx.Set(refs.RunRef(t.run), c.ID, old)
	if err := tx.Commit(ctx); err != nil {
		return nil, err
	}
	result.Saved, result.Checkpoint, result.Number = true, c.ID, c.Number
	w.settle(state, c.ID)
	w.point(ctx, t)
	return result, nil
}

// unchanged answers a save that has nothing to record.
func (w *Worktree) unchanged(ctx context.Context, result *SaveResult, t *target, tip *refs.Checkpoint, state *captured, key string) (*SaveResult, error) {
	if t.tip == nil {
		// A run is not made for nothing.
		result.Run, result.Started, result.Lineage = "", false, nil
		if t.lineage != nil {
			result.Run, result.Checkpoint = t.lineage.Run, t.lineage.Checkpoint
		}
		return result, nil
	}
	result.Checkpoint, result.Number, result.StepName, result.StepKind = tip.ID, tip.Number, tip.Step, tip.Kind
	w.settleAgain(ctx, state, tip.ID, key)
	w.point(ctx, t)
	return result, nil
}

func orEmpty[T any](list []T) []T {
	if list == nil {
		return []T{}
	}
	return list
}
