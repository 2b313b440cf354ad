package worktree

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/git-checkpoint/git-checkpoint/internal/fault"
	"github.com/git-checkpoint/git-checkpoint/internal/git"
	"github.com/git-checkpoint/git-checkpoint/internal/object"
	"github.com/git-checkpoint/git-checkpoint/internal/output"
	"github.com/git-checkpoint/git-checkpoint/internal/snapshot"
	"github.com/git-checkpoint/git-checkpoint/lineage"
	"github.com/git-checkpoint/git-checkpoint/notes"
	"github.com/git-checkpoint/git-checkpoint/refs"
)

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

// target is the run that a save goes to.
type target struct {
	run     string
	tip     *refs.Checkpoint // nil: the run is to be made
	state   notes.State
	status  string
	hidden  bool             // archived
	from    *refs.Checkpoint // the run is to be forked from here
	lineage *refs.Lineage
	current bool // CHECKPOINT_HEAD is to name it
	create  bool // make the run even if there is nothing to record in it
}

// forSave finds the run that a save goes to, by the rules of the current run.
func (w *Worktree) forSave(ctx context.Context, req SaveRequest, head refs.Head, at time.Time) (*target, error) {
	current, err := w.repo.CurrentRun(ctx)
	if err != nil {
		return nil, err
	}
	if req.Run == "" {
		return w.bareTarget(ctx, current, head, at)
	}
	t, err := w.existing(ctx, req.Run)
	if err != nil {
		return nil, err
	}
	if t == nil {
		if err := w.repo.CheckNewRun(ctx, req.Run); err != nil {
			return nil, err
		}
		t = &target{run: req.Run}
	} else if err := w.mayWrite(t); err != nil {
		return nil, err
	}
	if current != req.Run {
		old, err := w.existing(ctx, current)
		if err != nil {
			w.warn("the current run '%s' cannot be read: %v", current, err)
		}
		t.current = old == nil || old.hidden || notes.Ended(old.status)
	}
	return t, nil
}

// foreign says whether a run belongs to another worktree. One that a program
// made without a worktree belongs to whoever goes on with it.
func (w *Worktree) foreign(s notes.State) bool {
	return s.Created.Worktree != "" && s.Created.Worktree != w.id
}

// mayWrite refuses an explicit run that is closed or not ours.
func (w *Worktree) mayWrite(t *target) error {
	switch {
	case t.hidden:
		return fault.New(fault.Conflict, "run-archived", "run '%s' is archived", t.run).
			WithHint("git checkpoint save without --run goes on elsewhere")
	case notes.Ended(t.status):
		return fault.New(fault.Conflict, "run-ended", "run '%s' has ended: %s", t.run, t.status).
			WithHint("git checkpoint start opens a new one")
	case w.foreign(t.state):
		e := fault.New(fault.Conflict, "foreign-run", "run '%s' belongs to another worktree", t.run)
		if t.state.Created.Path != "" {
			e.Message += ": " + t.state.Created.Path
		}
		return e.WithHint("git checkpoint switch %s, then save, makes a fork of it here", t.run)
	}
	return nil
}

// bareTarget is where a save without --run goes.
func (w *Worktree) bareTarget(ctx context.Context, current string, head refs.Head, at time.Time) (*target, error) {
	t, err := w.existing(ctx, current)
	if err != nil {
		return nil, err
	}
	switch {
	case t == nil, t.hidden, notes.Ended(t.status):
		return &target{run: refs.GenerateRun(head.Branch, at), current: true}, nil
	case w.foreign(t.state):
		from := t.tip
		if from.Kind == refs.KindStart && from.Lineage != nil {
			if from, err = w.repo.Resolve(ctx, t.run); err != nil {
				return nil, err
			}
		}
		return &target{
			run: refs.GenerateChild(t.run), from: from, current: true,
			lineage: &refs.Lineage{Kind: refs.ForkedFrom, Run: t.run, Step: from.Step, Checkpoint: from.ID},
		}, nil
	}
	return t, nil
}

// existing reads a run, nil if there is none of that name.
func (w *Worktree) existing(ctx context.Context, run string) (*target, error) {
	if run == "" {
		return nil, nil
	}
	tip, err := w.repo.Ref(ctx, refs.RunRef(run))
	if err != nil || tip == "" {
		return nil, err
	}
	c, err := w.repo.ReadCheckpoint(ctx, tip)
	if err != nil {
		return nil, err
	}
	book, err := notes.OpenBook(ctx, w.repo, run)
	if err != nil {
		return nil, err
	}
	start, err := w.startOf(ctx, c)
	if err != nil {
		return nil, err
	}
	state, err := book.State(ctx, start)
	if err != nil {
		return nil, err
	}
	return &target{run: run, tip: c, state: state, status: state.Status(w.rewoundFrom(ctx, run)), hidden: state.Archived(w.rewoundFrom(ctx, run))}, nil
}

// rewoundFrom tells whether a run is there and was rewound from another. One
// that cannot be read counts.
func (w *Worktree) rewoundFrom(ctx context.Context, source string) func(run string) bool {
	return func(run string) bool {
		tip, err := w.repo.Ref(ctx, refs.RunRef(run))
		if err != nil || tip == "" {
			return err != nil
		}
		start, err := w.repo.StartOf(ctx, tip)
		return err != nil || start.Lineage != nil && start.Lineage.Kind == refs.RewoundFrom && start.Lineage.Run == source
	}
}

// startOf finds the start commit of a checkpoint's run.
func (w *Worktree) startOf(ctx context.Context, c *refs.Checkpoint) (string, error) {
	if c.Start != "" {
		return c.Start, nil
	}
	start, err := w.repo.StartOf(ctx, c.ID)
	if err != nil {
		return "", err
	}
	return start.ID, nil
}

// choose finds a target anew at each attempt.
type choose func(ctx context.Context, req SaveRequest, head refs.Head, at time.Time) (*target, error)

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
	state, err := w.capture(ctx, options)
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

func (w *Worktree) options() snapshot.Options {
	return snapshot.Options{MaxFileSize: w.config.MaxFileSize, Exclude: w.config.Exclude}
}

// captured is the whole state of the worktree at one moment.
type captured struct {
	snap  *snapshot.Snapshot
	op    *snapshot.Operation
	head  refs.Head
	tree  string // HEAD's tree
	index string // the tree of the index commit, empty if there is none
}

// capture takes the snapshot and reads HEAD and the operation under way.
// When HEAD moves meanwhile it looks again, so that index and HEAD belong
// together.
func (w *Worktree) capture(ctx context.Context, options snapshot.Options) (*captured, error) {
	head, err := w.repo.Head(ctx)
	if err != nil {
		return nil, err
	}
	for {
		c := &captured{head: head}
		if c.op, err = snapshot.ReadOperation(ctx, w.git); err != nil {
			return nil, err
		}
		if c.snap, err = w.taker().Take(ctx, options); err != nil {
			return nil, err
		}
		now, err := w.repo.Head(ctx)
		if err != nil {
			c.snap.Discard()
			return nil, err
		}
		if now != head {
			c.snap.Discard()
			head = now
			continue
		}
		if err := w.captureIndex(ctx, c); err != nil {
			c.snap.Discard()
			return nil, err
		}
		return c, nil
	}
}

func (w *Worktree) captureIndex(ctx context.Context, c *captured) (err error) {
	if c.head.Unborn() {
		c.tree = object.EmptyTree(w.git.ObjectFormat)
	} else if c.tree, err = w.repo.CommitTree(ctx, c.head.Commit); err != nil {
		return err
	}
	c.index, err = snapshot.IndexTree(c.snap.State(c.op), c.tree, w.git.ObjectFormat, w.repo.Objects())
	return err
}

// indexCommit returns the commit for the captured index: none, the one of the
// checkpoint before if it holds the same, or a new one.
func (w *Worktree) indexCommit(ctx context.Context, c *captured, before string, by refs.Identity) (string, error) {
	if c.index == "" {
		return "", nil
	}
	if before != "" {
		old, err := w.repo.ReadCommit(ctx, before)
		if err == nil && old.Tree == c.index && slices.Equal(old.Parents, c.op.Commits) {
			return before, nil
		}
	}
	return w.repo.PutCommit(c.index, c.op.Commits, "index of a checkpoint\n", by), nil
}

// commit writes one checkpoint to its run, and the run itself if need be.
func (w *Worktree) commit(ctx context.Context, req SaveRequest, t *target, state *captured, artifacts []Artifact, by refs.Identity, begun time.Time, key string) (*SaveResult, error) {
	book, err := notes.OpenBook(ctx, w.repo, t.run)
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
	tx := w.repo.Begin("checkpoint: save")
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
	tx.Set(w.localRef(indexName), c.ID, key)
	tx.Set(refs.RunRef(t.run), c.ID, old)
	if err := tx.Commit(ctx); err != nil {
		return nil, err
	}
	result.Saved, result.Checkpoint, result.Number = true, c.ID, c.Number
	w.settle(state, c.ID)
	w.point(ctx, t)
	return result, nil
}

// createOnly makes a run that has nothing but its start commit yet.
func (w *Worktree) createOnly(ctx context.Context, tx *refs.Transaction, book *notes.Book, t *target, start *refs.Checkpoint, by refs.Identity) error {
	if err := book.Commit(ctx, tx, "start of run "+t.run, by); err != nil {
		return err
	}
	tx.Set(refs.RunRef(t.run), start.ID, "")
	return tx.Commit(ctx)
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
	if key == tip.ID {
		w.settle(state, tip.ID)
	}
	w.point(ctx, t)
	return result, nil
}

// settle keeps the private index for the next save. That it cannot be kept
// costs time only.
func (w *Worktree) settle(state *captured, checkpoint string) {
	if err := state.snap.Keep(checkpoint); err != nil {
		git.Trace("private index: %v", err)
	}
}

// point makes the run the current one where it is to be. The checkpoint is
// there by then, and CHECKPOINT_HEAD only a hint, so that it cannot be set is
// no failure of the save.
func (w *Worktree) point(ctx context.Context, t *target) {
	if !t.current {
		return
	}
	if err := w.repo.SetCurrentRun(ctx, t.run); err != nil {
		w.warn("make '%s' the current run: %v; git checkpoint switch %s does it", t.run, err, t.run)
	}
}

func orEmpty[T any](list []T) []T {
	if list == nil {
		return []T{}
	}
	return list
}

// message makes subject and body of a checkpoint's commit.
func (w *Worktree) message(req SaveRequest, c *refs.Checkpoint) (subject, body string) {
	subject, body, _ = strings.Cut(strings.TrimSpace(req.Message), "\n")
	switch {
	case subject != "":
	case w.config.CommitMessage != "":
		subject = strings.NewReplacer("{turn_id}", c.Turn, "{run}", c.Run, "{step_name}", c.Step, "{step_kind}", c.Kind,
			"{session_id}", c.Session, "{number}", fmt.Sprint(c.Number)).Replace(w.config.CommitMessage)
	case c.Step != "":
		subject = "checkpoint: " + c.Step
	default:
		subject = fmt.Sprintf("checkpoint %d", c.Number)
	}
	return subject, strings.TrimSpace(body)
}

func (w *Worktree) record(req SaveRequest, c *refs.Checkpoint, state *captured, artifacts []Artifact, by refs.Identity, begun time.Time) notes.Record {
	r := notes.Record{
		StepName: c.Step, StepKind: c.Kind, Outcome: c.Outcome, Replay: req.Replay, SessionID: c.Session, Transcript: transcriptPath(req.Transcript), TurnID: c.Turn,
		GitCommit: c.Head, Branch: strings.TrimPrefix(c.Branch, "refs/heads/"), By: by.String(), Worktree: w.id,
		TookMS: time.Since(begun).Milliseconds(),
	}
	if os.Getenv("GIT_CHECKPOINT_DATE") != "" {
		r.TookMS = 0 // time stands still
	}
	if len(artifacts) > 0 {
		r.Artifacts, _ = json.Marshal(artifacts)
	}
	if len(state.snap.Skipped) > 0 {
		r.Skipped = encodeSkips(state.snap.Skipped)
	}
	return r
}

// transcriptPath makes a transcript's path good wherever it is read.
func transcriptPath(file string) string {
	if file == "" {
		return ""
	}
	if abs, err := filepath.Abs(file); err == nil {
		return abs
	}
	return file
}

// encodeSkips is how a record holds what was skipped: paths that JSON cannot
// hold are quoted (output.Name).
func encodeSkips(list []snapshot.Skip) []byte {
	named := slices.Clone(list)
	for i := range named {
		named[i].Path = output.Name(named[i].Path)
	}
	data, _ := json.Marshal(named)
	return data
}

func decodeSkips(data []byte) ([]snapshot.Skip, error) {
	var list []snapshot.Skip
	if err := json.Unmarshal(data, &list); err != nil {
		return nil, err
	}
	for i := range list {
		p, err := output.Unname(list[i].Path)
		if err != nil {
			return nil, err
		}
		list[i].Path = p
	}
	return list, nil
}

// artifacts completes what the request says: paths from the top of the
// worktree, with a digest where the file is there.
func (w *Worktree) artifacts(list []Artifact) ([]Artifact, error) {
	done := slices.Clone(list)
	for i := range done {
		a := &done[i]
		if a.Path == "" {
			if u, err := url.Parse(a.URI); err != nil || u.Scheme == "" {
				return nil, fault.New(fault.Invalid, "invalid-artifact", "artifact '%s': '%s' is no URI", a.Name, a.URI)
			}
			continue
		}
		file := a.Path
		if !filepath.IsAbs(file) {
			file = filepath.Join(w.git.Top, filepath.FromSlash(w.git.Prefix), file)
		}
		rel, err := filepath.Rel(w.git.Top, file)
		if err != nil || rel == ".." || strings.HasPrefix(rel, ".."+string(filepath.Separator)) {
			return nil, fault.New(fault.Invalid, "invalid-artifact", "artifact '%s': '%s' is outside the working tree", a.Name, a.Path).
				WithHint("name it by a URI such as file:///…")
		}
		a.Path = filepath.ToSlash(rel)
		f, err := os.Open(file)
		if err != nil {
			return nil, fault.New(fault.Invalid, "invalid-artifact", "artifact '%s': %w", a.Name, err)
		}
		h := sha256.New()
		_, err = io.Copy(h, f)
		f.Close()
		if err != nil {
			continue // a directory: a pointer without a digest
		}
		a.Digest = "sha256:" + hex.EncodeToString(h.Sum(nil))
	}
	return done, nil
}

// unignoredName is the file that lists them, each with a NUL after it.
const unignoredName = "unignored"

// unignored are the files that a restore un-ignored: the user did not make
// them part of the run, so automatic saves leave them out.
func (w *Worktree) unignored() map[string]bool {
	data, err := os.ReadFile(w.home(unignoredName))
	if err != nil {
		return nil
	}
	set := map[string]bool{}
	for _, p := range strings.Split(strings.TrimSuffix(string(data), "\x00"), "\x00") {
		set[p] = true
	}
	return set
}

// Start opens a run and makes it the current one; what the user had changed
// since the last commit is saved as its first checkpoint.
func (w *Worktree) Start(ctx context.Context, run, session string) (*StartResult, error) {
	if run != "" {
		if err := refs.CheckRun(run); err != nil {
			return nil, err
		}
	}
	if err := w.hold(ctx, "start"); err != nil {
		return nil, err
	}
	defer w.unlock()
	if err := w.refuseInProgress(ctx); err != nil {
		return nil, err
	}
	req := SaveRequest{Run: run, Kind: refs.KindUser, Session: session, IfChanged: true, Message: "what the user had changed before the run"}
	saved, err := w.save(ctx, req, w.forStart)
	if err != nil {
		return nil, err
	}
	result := &StartResult{Run: saved.Run, Checkpoint: saved.Checkpoint}
	if saved.Saved {
		result.Save = saved
	}
	return result, nil
}

// forStart is a new run, whatever is current.
func (w *Worktree) forStart(ctx context.Context, req SaveRequest, head refs.Head, at time.Time) (*target, error) {
	run := req.Run
	if run == "" {
		run = refs.GenerateRun(head.Branch, at)
	}
	return &target{run: run, current: true, create: true}, w.repo.CheckNewRun(ctx, run)
}

// End closes a run with a status: completed, failed or stopped.
func (w *Worktree) End(ctx context.Context, run, status string) (*EndResult, error) {
	if !notes.Ended(status) {
		return nil, fault.New(fault.Invalid, "invalid-status", "'%s' is no status that a run can end with", status).
			WithHint("the statuses are completed, failed and stopped")
	}
	if err := w.hold(ctx, "end"); err != nil {
		return nil, err
	}
	defer w.unlock()
	if run == "" {
		current, err := w.repo.CurrentRun(ctx)
		if err != nil {
			return nil, err
		}
		if run = current; run == "" {
			return nil, refs.NoCurrentRun()
		}
	}
	for attempt := 1; ; attempt++ {
		result, err := w.end(ctx, run, status)
		if errors.Is(err, refs.ErrStale) && attempt < attempts {
			continue
		}
		return result, err
	}
}

func (w *Worktree) end(ctx context.Context, run, status string) (*EndResult, error) {
	if _, err := w.repo.Tip(ctx, run); err != nil {
		return nil, err
	}
	t, err := w.existing(ctx, run)
	if err != nil {
		return nil, err
	}
	result := &EndResult{Run: run, Status: status}
	switch {
	case t.status == status:
		return result, nil
	case notes.Ended(t.status):
		return nil, fault.New(fault.Conflict, "run-ended", "run '%s' has ended already: %s", run, t.status)
	case w.foreign(t.state):
		return nil, w.mayWrite(t)
	}
	result.Changed = true
	return result, w.setStatus(ctx, t, status)
}

// setStatus adds a status to a run's journal.
func (w *Worktree) setStatus(ctx context.Context, t *target, status string) error {
	by, err := w.config.Identity()
	if err != nil {
		return err
	}
	book, err := notes.OpenBook(ctx, w.repo, t.run)
	if err != nil {
		return err
	}
	start, err := w.startOf(ctx, t.tip)
	if err != nil {
		return err
	}
	fields := struct {
		Status string `json:"status"`
		By     string `json:"by"`
	}{status, by.String()}
	if err := book.Add(ctx, start, by.When, notes.EventStatus, fields); err != nil {
		return err
	}
	tx := w.repo.Begin("checkpoint: " + status)
	if err := book.Commit(ctx, tx, "run "+t.run+": "+status, by); err != nil {
		return err
	}
	tx.Verify(refs.RunRef(t.run), t.tip.ID)
	return tx.Commit(ctx)
}
