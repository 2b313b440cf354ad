package worktree

import (
	"context"
	"errors"
	"io"
	"slices"
	"strings"

	"github.com/git-checkpoint/git-checkpoint/internal/fault"
	"github.com/git-checkpoint/git-checkpoint/internal/git"
	"github.com/git-checkpoint/git-checkpoint/internal/object"
	"github.com/git-checkpoint/git-checkpoint/internal/snapshot"
	"github.com/git-checkpoint/git-checkpoint/lineage"
	"github.com/git-checkpoint/git-checkpoint/notes"
	"github.com/git-checkpoint/git-checkpoint/refs"
	"github.com/git-checkpoint/git-checkpoint/rerun"
)

// List returns the runs, oldest first; archived ones only with all. With
// childrenOf, only the runs that descend directly from that one, which may be
// gone.
func (w *Worktree) List(ctx context.Context, all bool, childrenOf string) ([]RunInfo, error) {
	if childrenOf != "" {
		if err := refs.CheckRun(childrenOf); err != nil {
			return nil, err
		}
	}
	graph, err := lineage.Load(ctx, w.repo)
	if err != nil {
		return nil, err
	}
	infos, err := w.describeRuns(ctx, graph)
	if err != nil {
		return nil, err
	}
	if childrenOf == "" {
		return slices.DeleteFunc(infos, func(r RunInfo) bool { return r.Archived && !all }), nil
	}
	if graph.Node(childrenOf) == nil {
		_, err := w.repo.Tip(ctx, childrenOf) // it names the nearest
		return nil, err
	}
	return slices.DeleteFunc(infos, func(r RunInfo) bool { return r.Lineage == nil || r.Lineage.Run != childrenOf }), nil
}

// describeRuns lists the runs of a graph that are there.
func (w *Worktree) describeRuns(ctx context.Context, graph *lineage.Graph) ([]RunInfo, error) {
	current, err := w.repo.CurrentRun(ctx)
	if err != nil {
		return nil, err
	}
	var pruned map[string]bool // read when the first source is missing
	var infos []RunInfo
	for _, n := range graph.Nodes() {
		if n.Missing {
			continue
		}
		r := RunInfo{
			Run: n.Run, Tip: n.Tip, Status: graph.Status(n.Run), Archived: graph.Archived(n.Run), Checkpoints: n.Checkpoints,
			Lineage: n.Lineage, CreatedAt: n.At, RequestDigest: n.State.Created.Digest, Current: n.Run == current,
			Worktree: n.State.Created.Worktree, Here: w.id != "" && n.State.Created.Worktree == w.id,
			Fault: n.Fault, start: n.Start, state: n.State,
		}
		if n.Lineage != nil {
			source := graph.Node(n.Lineage.Run)
			r.SourceGone = source == nil || source.Missing
			if r.SourceGone && pruned == nil {
				pruned = w.prunedRuns(ctx)
			}
			r.SourcePruned = r.SourceGone && pruned[n.Lineage.Run]
		}
		if r.Status == notes.Running {
			// Whoever executes it holds it; a holder that is gone was interrupted.
			holder, err := lineage.Holder(w.repo, n.Run)
			if err != nil {
				return nil, err
			}
			if holder == "" {
				r.Status = notes.Interrupted
			}
		}
		infos = append(infos, r)
	}
	return infos, nil
}

// derive builds the graph of runs.
func (w *Worktree) derive(infos []RunInfo) *lineage.Graph {
	nodes := make([]lineage.Node, len(infos))
	for i, r := range infos {
		nodes[i] = lineage.Node{Run: r.Run, Tip: r.Tip, Start: r.start, At: r.CreatedAt, State: r.state, Lineage: r.Lineage, Checkpoints: r.Checkpoints, Fault: r.Fault}
	}
	return lineage.NewGraph(nodes)
}

// RunStatus tells everything about a run.
func (w *Worktree) RunStatus(ctx context.Context, run string) (*RunInfo, error) {
	if _, err := w.repo.Tip(ctx, run); err != nil {
		return nil, err
	}
	runs, err := w.List(ctx, true, "")
	if err != nil {
		return nil, err
	}
	i := slices.IndexFunc(runs, func(r RunInfo) bool { return r.Run == run })
	if i < 0 {
		return nil, fault.New(fault.NotFound, "no-such-run", "no run is named '%s'", run)
	}
	info := &runs[i]
	plan, live, err := w.planStatus(ctx, run)
	if err != nil {
		return nil, err
	}
	info.PlanStatus = plan
	if live && info.Status == notes.Interrupted {
		info.Status = notes.Running
	}
	err = w.Log(ctx, run, func(e *Entry) bool {
		info.Entries = append(info.Entries, *e)
		return true
	})
	return info, err
}

// Log visits the checkpoints of a run, newest first, inherited ones too. An
// empty run is the current one. An entry is good until yield returns.
func (w *Worktree) Log(ctx context.Context, run string, yield func(*Entry) bool) error {
	tip, err := w.tipOf(ctx, run)
	if err != nil {
		return err
	}
	begun, err := w.beginRecords(ctx, tip)
	if err != nil {
		return err
	}
	chain, _, err := w.repo.Chain(ctx, tip)
	have := map[string]records{}
	if begun != nil {
		read, failed := begun.wait(err == nil)
		have[begun.run] = read
		if err == nil && failed != nil {
			w.warn("the notes of run '%s' cannot be read: %v", begun.run, failed)
		}
	}
	if err != nil {
		return err
	}
	return w.entries(ctx, chain, len(chain), have, yield)
}

// Outline is Log without the records, for those who show nothing of them: what
// entries have from their notes alone, Artifacts and Skipped, may be missing.
// Only the newest records are looked at, so that damage done lately is warned
// of; Verify looks at all.
func (w *Worktree) Outline(ctx context.Context, run string, yield func(*Entry) bool) error {
	tip, err := w.tipOf(ctx, run)
	if err != nil {
		return err
	}
	chain, _, err := w.repo.Chain(ctx, tip)
	if err != nil {
		return err
	}
	return w.entries(ctx, chain, fewRecords, map[string]records{}, yield)
}

// entries visits the checkpoints of a chain, newest first, with the records of
// the newest count. have are those that were read already, by run.
func (w *Worktree) entries(ctx context.Context, chain []*refs.Checkpoint, count int, have map[string]records, yield func(*Entry) bool) error {
	slices.Reverse(chain)
	if err := w.chainRecords(ctx, chain[:min(len(chain), count)], have); err != nil {
		return err
	}
	var e Entry
	for _, c := range chain {
		e = entryOf(c)
		if r, ok := have[c.Run][c.ID]; ok {
			w.apply(&e, r)
		}
		if !yield(&e) {
			break
		}
	}
	return nil
}

// tipOf is the tip of a run, or of the current one.
func (w *Worktree) tipOf(ctx context.Context, run string) (string, error) {
	if run == "" {
		current, err := w.repo.CurrentRun(ctx)
		if err != nil {
			return "", err
		}
		if current == "" {
			return "", refs.NoCurrentRun()
		}
		run = current
	}
	return w.repo.Tip(ctx, run)
}

func entryOf(c *refs.Checkpoint) Entry {
	return Entry{
		Run: c.Run, Checkpoint: c.ID, StepName: c.Step, StepKind: c.Kind, Outcome: c.Outcome, Visit: c.Visit, Number: c.Number,
		TurnID: c.Turn, SessionID: c.Session, GitCommit: c.Head, Branch: strings.TrimPrefix(c.Branch, "refs/heads/"),
		Subject: c.Subject, At: c.At.UTC(), Inherited: c.Inherited, State: c.State, Tree: c.Tree, Replay: c.Replay,
	}
}

// Show describes one checkpoint; an empty address is the newest of the
// current run.
func (w *Worktree) Show(ctx context.Context, address string) (*Entry, error) {
	c, err := w.repo.Resolve(ctx, address)
	if err != nil {
		return nil, err
	}
	e := entryOf(c)
	if c.Run == "" || c.Kind == refs.KindStart {
		return &e, nil
	}
	if c.Step != "" && c.Visit == 0 {
		// Which visit it is shows the chain.
		chain, _, err := w.repo.Chain(ctx, c.ID)
		if err != nil {
			return nil, err
		}
		e.Visit = chain[len(chain)-1].Visit
	}
	have := map[string]records{}
	if err := w.chainRecords(ctx, []*refs.Checkpoint{c}, have); err != nil {
		return nil, err
	}
	if r, ok := have[c.Run][c.ID]; ok {
		w.apply(&e, r)
	}
	// Of a record that cannot be read there was a warning.
	e.Log, _ = rerun.LogOf(ctx, w.repo, c)
	return &e, nil
}

// ShowChanges prints, as git does, what a checkpoint's step changed: a
// summary, or with patch the patch.
func (w *Worktree) ShowChanges(ctx context.Context, address string, patch, colour bool, out io.Writer) error {
	c, err := w.repo.Resolve(ctx, address)
	if err != nil {
		return err
	}
	before := object.EmptyTree(w.git.ObjectFormat)
	if previous := c.Previous(); previous != "" {
		if before, err = w.repo.CommitTree(ctx, previous); err != nil {
			return err
		}
	}
	args := []string{"diff-tree", "-r", "--stat", "--summary"}
	if patch {
		args = []string{"diff-tree", "-r", "-p", "--binary"}
	}
	if colour {
		args = append(args, "--color")
	}
	cmd := w.git.Command(ctx, append(args, "-M", before, c.Tree)...)
	cmd.Stdout = out
	return printing("show the changes", cmd.Run())
}

// printing explains git's failure to print, but not that nobody reads on.
func printing(what string, err error) error {
	var failed *git.Error
	if errors.As(err, &failed) && failed.Code == -1 {
		return nil
	}
	if err != nil {
		return fault.New(fault.Fatal, "git", "%s: %w", what, err)
	}
	return nil
}

// Diff prints, as git diff does and with the user's settings for it, what
// differs between two checkpoints. An empty a is the last checkpoint, an empty
// b the working tree.
func (w *Worktree) Diff(ctx context.Context, a, b string, paths []string, out io.Writer, tty bool) error {
	from, to, env, done, err := w.sides(ctx, a, b)
	if err != nil {
		return err
	}
	defer done()
	args := []string{"diff"}
	if tty {
		args = []string{"--paginate", "diff"}
	}
	cmd := w.git.Command(ctx, append(append(args, from, to, "--"), paths...)...)
	cmd.Env, cmd.Plain, cmd.Stdout, cmd.Dir = env, true, out, w.diffDir()
	return printing("show the difference", cmd.Run())
}

func (w *Worktree) diffDir() string {
	if w.git.Top == "" {
		return w.git.Dir
	}
	return w.git.CurrentDir()
}

// DiffPaths lists what differs between two checkpoints.
func (w *Worktree) DiffPaths(ctx context.Context, a, b string, paths []string) ([]Change, error) {
	from, to, env, done, err := w.sides(ctx, a, b)
	if err != nil {
		return nil, err
	}
	defer done()
	return w.changes(ctx, from, to, env, paths)
}

func (w *Worktree) changes(ctx context.Context, from, to string, env []string, paths []string) ([]Change, error) {
	cmd := w.git.Command(ctx, append([]string{"diff-tree", "-r", "--name-status", "--no-renames", "-z", from, to, "--"}, paths...)...)
	cmd.Env, cmd.Dir = env, w.diffDir()
	list, err := cmd.Lines()
	if err != nil {
		return nil, fault.New(fault.Fatal, "git", "compare: %w", err)
	}
	changes := []Change{}
	for i := 0; i+1 < len(list); i += 2 {
		changes = append(changes, Change{Path: list[i+1], Status: list[i]})
	}
	return changes, nil
}

// sides finds the two trees to compare. The working tree is stored in a
// temporary place; done removes it.
func (w *Worktree) sides(ctx context.Context, a, b string) (from, to string, env []string, done func(), err error) {
	first, err := w.repo.Resolve(ctx, a)
	if err != nil {
		return "", "", nil, nil, err
	}
	if b != "" {
		second, err := w.repo.Resolve(ctx, b)
		if err != nil {
			return "", "", nil, nil, err
		}
		return first.Tree, second.Tree, nil, func() {}, nil
	}
	snap, err := w.look(ctx)
	if err != nil {
		return "", "", nil, nil, err
	}
	return first.Tree, snap.Tree, snap.Env, snap.Discard, nil
}

// look takes a snapshot that changes nothing in the repository.
func (w *Worktree) look(ctx context.Context) (*snapshot.Snapshot, error) {
	if err := w.git.NeedTop(); err != nil {
		return nil, err
	}
	options := w.options()
	options.Scratch = true
	if w.id != "" {
		key, err := w.repo.Ref(ctx, w.localRef(indexName))
		if err != nil {
			return nil, err
		}
		options.Key = key
	}
	return w.taker().Take(ctx, options)
}

// Status tells where this worktree is.
func (w *Worktree) Status(ctx context.Context) (*Status, error) {
	if err := w.git.NeedTop(); err != nil {
		return nil, err
	}
	s := &Status{Changed: []string{}}
	var err error
	if s.RestoreInProgress, err = w.progress(ctx); err != nil {
		return nil, err
	}
	for name, count := range map[string]*int{undoName: &s.UndoAvailable, redoName: &s.RedoAvailable} {
		list, err := w.stack(ctx, name)
		if err != nil {
			return nil, err
		}
		*count = len(list)
	}
	run, err := w.repo.CurrentRun(ctx)
	if err != nil || run == "" {
		return s, err
	}
	t, err := w.existing(ctx, run)
	if err != nil {
		return nil, err
	}
	if t == nil {
		w.warn("the current run '%s' is gone", run)
		return s, nil
	}
	s.Run, s.RunStatus, s.Archived = run, t.status, t.hidden
	last, err := w.repo.Resolve(ctx, run)
	if err != nil {
		return nil, err
	}
	s.Checkpoint = last.ID
	e := entryOf(last)
	s.Entry = &e
	return s, w.changedSince(ctx, last, s)
}

func (w *Worktree) progress(ctx context.Context) (*RestoreInProgress, error) {
	op, err := w.inProgress(ctx)
	if err != nil || op == nil {
		return nil, err
	}
	if done, err := w.finished(ctx, op); err != nil || done {
		return nil, err
	}
	return &RestoreInProgress{Operation: op.Kind, Checkpoint: op.Target, Safety: op.Safety, At: op.At}, nil
}

func (w *Worktree) changedSince(ctx context.Context, last *refs.Checkpoint, s *Status) error {
	snap, err := w.look(ctx)
	if err != nil {
		return err
	}
	defer snap.Discard()
	s.Skipped = snap.Skipped
	changes, err := w.changes(ctx, last.Tree, snap.Tree, snap.Env, nil)
	if err != nil {
		return err
	}
	for _, c := range changes {
		s.Changed = append(s.Changed, c.Path)
	}
	head, err := w.repo.Head(ctx)
	if err != nil {
		return err
	}
	op, err := snapshot.ReadOperation(ctx, w.git)
	if err != nil {
		return err
	}
	c := &captured{snap: snap, head: head, op: op}
	if err := w.captureIndex(ctx, c); err != nil {
		return err
	}
	before := ""
	if last.Index != "" {
		if before, err = w.repo.CommitTree(ctx, last.Index); err != nil {
			return err
		}
	}
	s.IndexChanged = c.index != before
	return nil
}
