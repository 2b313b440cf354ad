package worktree

import (
	"cmp"
	"context"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/git-checkpoint/git-checkpoint/internal/fault"
	"github.com/git-checkpoint/git-checkpoint/internal/git"
	"github.com/git-checkpoint/git-checkpoint/internal/index"
	"github.com/git-checkpoint/git-checkpoint/internal/object"
	"github.com/git-checkpoint/git-checkpoint/internal/pages"
	"github.com/git-checkpoint/git-checkpoint/internal/restore"
	"github.com/git-checkpoint/git-checkpoint/internal/snapshot"
	"github.com/git-checkpoint/git-checkpoint/notes"
	"github.com/git-checkpoint/git-checkpoint/refs"
)

// goal is the state that an operation goes to. What it holds of files and of
// the index is listed when there is a snapshot to compare with; see list.
type goal struct {
	checkpoint *refs.Checkpoint
	stored     *snapshot.StoredIndex
	skipped    map[string]bool // what the checkpoint did not take
	force      []string        // what may be on disk though no snapshot takes it by itself

	files restore.Target
	state *snapshot.IndexState // its Index may be nil; see listIndex
	cache *index.CacheTree     // of the index, nil: unknown

	changed, different *object.Difference // what the files, and what the index, have other than the snapshot
}

// goal reads what has to be known before the snapshot is taken.
func (w *Worktree) goal(ctx context.Context, op *operation) (*goal, error) {
	c, err := w.repo.ReadCommit(ctx, op.Target)
	if err != nil {
		return nil, err
	}
	g := &goal{checkpoint: c}
	g.files.Raw = op.targetRaw
	var indexTree, headTree string
	if c.Index != "" {
		if indexTree, err = w.repo.CommitTree(ctx, c.Index); err != nil {
			return nil, err
		}
	} else if c.Head != "" {
		if headTree, err = w.repo.CommitTree(ctx, c.Head); err != nil {
			return nil, err
		}
	}
	if g.stored, err = snapshot.OpenIndexTree(ctx, w.git, w.repo.Objects(), indexTree, headTree); err != nil {
		return nil, err
	}
	if g.skipped, err = w.skippedBy(ctx, c, op); err != nil {
		return nil, err
	}
	// What another restore un-ignored is no part of any checkpoint yet.
	g.files.Leave = maps.Clone(g.skipped)
	for p := range w.unignored() {
		g.files.Leave[p] = true
	}
	if g.files.Gone, err = w.goneBefore(ctx, op, c); err != nil {
		return nil, err
	}
	g.force = slices.Collect(maps.Keys(g.files.Gone))
	// What was tracked and not on disk then is deleted, even where it is
	// ignored now, and so in no snapshot unless asked for.
	tracked, err := w.compare(ctx, c.Tree, g.stored.Entries)
	if err != nil {
		return nil, err
	}
	beyond := g.stored.Beyond()
	for _, change := range tracked.Changes {
		if change.FromMode == 0 {
			beyond = append(beyond, change.Path)
		}
	}
	for _, p := range beyond {
		g.files.Gone[p] = true
		g.force = append(g.force, p)
	}
	return g, nil
}

// compare says how the second tree differs from the first.
func (w *Worktree) compare(ctx context.Context, from, to string) (*object.Difference, error) {
	return object.Compare(ctx, w.repo.Objects(), w.git.ObjectFormat, from, to)
}

// list lists the files of the goal, from those of the snapshot and what is
// different in them, and the index too where that has to be known before it is
// written: where some paths are picked of it, or there are flags or conflicts.
func (w *Worktree) list(ctx context.Context, g *goal, now *captured, pick bool) (err error) {
	if g.changed, err = now.snap.Compare(ctx, w.repo.Objects(), w.git.ObjectFormat, g.checkpoint.Tree); err != nil {
		return err
	}
	g.files.Files, g.different = snapshot.Apply(now.snap.Files.Entries, g.changed), g.changed
	if g.stored.Entries != g.checkpoint.Tree {
		if g.different, err = now.snap.Compare(ctx, w.repo.Objects(), w.git.ObjectFormat, g.stored.Entries); err != nil {
			return err
		}
	}
	g.state = &snapshot.IndexState{Operation: g.stored.Operation, Absent: map[string]bool{}}
	if pick || !g.stored.Plain() || g.checkpoint.Kind == "" || !now.snap.Reindexes() {
		if err := w.listIndex(g, now); err != nil {
			return err
		}
	}
	if g.checkpoint.Kind == "" {
		if err := w.keepSparse(g, now); err != nil {
			return err
		}
	}
	g.files.Absent = g.state.Absent
	for p := range g.state.Absent {
		g.files.Gone[p] = true
	}
	return nil
}

// listIndex lists the index of the goal.
func (w *Worktree) listIndex(g *goal, now *captured) (err error) {
	entries := snapshot.Apply(now.snap.Files.Entries, g.different)
	if g.stored.Plain() {
		g.cache = snapshot.CacheTree(entries, g.different, now.snap.Files.Tree)
	}
	g.state, err = g.stored.State(entries, w.git.ObjectFormat)
	return err
}

// goneBefore are the paths that an operation which is taken back now may have
// written where nothing was. Whatever stood in its way is in its safety
// checkpoint, so what is not in there was not on disk, ignored as it may be.
// What c has as well is written anyway.
func (w *Worktree) goneBefore(ctx context.Context, op *operation, c *refs.Checkpoint) (map[string]bool, error) {
	gone := map[string]bool{}
	target := cmp.Or(op.Reverses, op.RolledBack)
	if target == "" {
		return gone, nil
	}
	tree, err := w.repo.CommitTree(ctx, target)
	if err != nil {
		return nil, err
	}
	written, err := w.compare(ctx, c.Tree, tree)
	if err != nil {
		return nil, err
	}
	only := make(map[string]bool, len(op.wrote))
	for _, p := range op.wrote {
		only[p] = true
	}
	for _, change := range written.Changes {
		if change.ToMode != 0 && (len(only) == 0 || only[change.Path]) {
			gone[change.Path] = true
		}
	}
	for _, p := range op.leave {
		delete(gone, p)
	}
	return gone, nil
}

// keepSparse leaves out of a plain commit what the user's sparse checkout
// leaves out.
func (w *Worktree) keepSparse(g *goal, now *captured) error {
	look := snapshot.NewLstat(w.git)
	skip := map[string]bool{}
	user, err := now.snap.User()
	if err != nil {
		return err
	}
	for _, e := range user.Entries {
		if !e.SkipWorktree {
			continue
		}
		if fi, err := look.Get(e.Path); err == nil && fi == nil {
			skip[e.Path] = true
		}
	}
	for i := range g.state.Index.Entries {
		e := &g.state.Index.Entries[i]
		if skip[e.Path] {
			e.SkipWorktree = true
			g.state.Absent[e.Path] = true
		}
	}
	return nil
}

// skippedBy reads which files a checkpoint did not take.
func (w *Worktree) skippedBy(ctx context.Context, c *refs.Checkpoint, op *operation) (map[string]bool, error) {
	leave := map[string]bool{}
	for _, p := range op.leave {
		leave[p] = true
	}
	if c.Run == "" {
		return leave, nil
	}
	book, err := notes.OpenBook(ctx, w.repo, c.Run)
	if err != nil {
		return nil, err
	}
	record, err := book.Record(ctx, c.ID)
	if err != nil || record.Skipped == nil {
		return leave, err
	}
	list, err := snapshot.DecodeSkips(record.Skipped)
	if err != nil {
		return nil, fault.New(fault.Integrity, "record-damaged", "read what checkpoint %s skipped: %w", c.ID, err)
	}
	for _, s := range list {
		leave[s.Path] = true
	}
	return leave, nil
}

// listsOfFiles is how many times the size of the index it takes about to list
// the files that there are, those that are to be, and the difference.
const listsOfFiles = 12

// plan takes the snapshot that becomes the safety checkpoint, together with
// all that stands in the way, and compares it with the goal.
func (w *Worktree) plan(ctx context.Context, op *operation, g *goal, s step) (*captured, *restore.Plan, error) {
	options := w.options()
	options.Exact = true
	var err error
	if options.Key, err = w.repo.Ref(ctx, w.localRef(indexName)); err != nil {
		return nil, nil, err
	}
	if g.files.Interrupted, err = w.interruptedPaths(ctx, s.resumes); err != nil {
		return nil, nil, err
	}
	leftovers := restore.Leftovers(w.git, g.files.Interrupted)
	options.Force = slices.Concat(g.files.Interrupted, leftovers, g.force)
	if info, err := os.Stat(filepath.Join(w.git.Dir, "index")); err == nil {
		pages.Expect(listsOfFiles * int(info.Size()))
	}
	end := git.Span("restore: snapshot")
	now, err := w.capture(ctx, options, nil)
	end()
	if err != nil {
		return nil, nil, err
	}
	discard := func(err error) (*captured, *restore.Plan, error) {
		now.snap.Discard()
		return nil, nil, err
	}
	end = git.Span("restore: compare")
	err = w.list(ctx, g, now, len(s.pathspecs)+len(op.Paths) > 0)
	end()
	if err != nil {
		return discard(err)
	}
	if len(s.pathspecs)+len(op.Paths) == 0 { // of some paths, the operation stays as it is
		if err := compatible(op, now.op, g.state.Operation); err != nil {
			return discard(err)
		}
	}
	if len(s.pathspecs) > 0 {
		if op.Paths, err = w.matching(ctx, s.pathspecs, now, g); err != nil {
			return discard(err)
		}
	}
	if len(op.Paths) > 0 {
		if op.Paths, err = limit(g, now, op.Paths); err != nil {
			return discard(err)
		}
	}
	obstacles, err := restore.Obstacles(w.git, g.files, now.snap)
	if err != nil {
		return discard(err)
	}
	if len(obstacles) > 0 {
		// What is different is so in the snapshot that is given up.
		if g.state.Index == nil {
			if err := w.listIndex(g, now); err != nil {
				return discard(err)
			}
		}
		now.snap.Discard()
		options.Force = append(options.Force, obstacles...)
		if now, err = w.capture(ctx, options, nil); err != nil {
			return nil, nil, err
		}
		if len(op.Paths) > 0 {
			if op.Paths, err = limit(g, now, append(op.Paths, obstacles...)); err != nil {
				return discard(err)
			}
		}
	}
	if s.resumes != nil {
		if err := w.leaveNew(ctx, g, now, s.resumes, leftovers); err != nil {
			return discard(err)
		}
	}
	defer git.Span("restore: make ready")()
	plan, err := restore.Prepare(ctx, w.git, w.repo.Objects(), g.files, now.snap)
	if err != nil {
		return discard(err)
	}
	return now, plan, nil
}

// interruptedPaths are the paths that a killed operation may have written:
// they are on disk because of it, ignored as they may be.
func (w *Worktree) interruptedPaths(ctx context.Context, op *operation) ([]string, error) {
	if op == nil {
		return nil, nil
	}
	limited := make(map[string]bool, len(op.Paths))
	for _, p := range op.Paths {
		limited[p] = true
	}
	var paths []string
	for _, id := range append([]string{op.Target, op.Safety}, op.HalfDone...) {
		tree, err := w.repo.CommitTree(ctx, id)
		if err != nil {
			return nil, err
		}
		entries, err := snapshot.ListTree(ctx, w.git, tree)
		if err != nil {
			return nil, err
		}
		for _, e := range entries {
			if e.Mode != index.ModeGitlink && (len(limited) == 0 || limited[e.Path]) {
				paths = append(paths, e.Path)
			}
		}
	}
	return paths, nil
}

// leaveNew keeps what neither the safety checkpoint of a killed operation nor
// its target holds: it was ignored when the operation began and is not any
// more, or somebody made it since, so undo would not bring it back. What
// stands in the way has to go; the half-done state holds it.
func (w *Worktree) leaveNew(ctx context.Context, g *goal, now *captured, op *operation, leftovers []string) error {
	known := map[string]bool{}
	for _, p := range leftovers {
		known[p] = true
	}
	for _, id := range []string{op.Safety, op.Target, op.RolledBack} {
		if id == "" {
			continue
		}
		tree, err := w.repo.CommitTree(ctx, id)
		if err != nil {
			return err
		}
		entries, err := snapshot.ListTree(ctx, w.git, tree)
		if err != nil {
			return err
		}
		for _, e := range entries {
			known[e.Path] = true
		}
	}
	wanted := map[string]bool{} // the goal's paths, and the directories above them
	for _, e := range g.files.Files {
		for p := e.Path; p != "." && !wanted[p]; p = path.Dir(p) {
			wanted[p] = true
		}
	}
	leave := maps.Clone(g.files.Leave)
	if leave == nil {
		leave = map[string]bool{}
	}
	for _, e := range now.snap.Files.Entries {
		if known[e.Path] || wanted[e.Path] || leave[e.Path] {
			continue
		}
		free := true
		for dir := path.Dir(e.Path); dir != "." && free; dir = path.Dir(dir) {
			free = !has(g.files.Files, dir)
		}
		if free {
			leave[e.Path] = true
			w.warn("left '%s' alone: it was not there to be saved when the %s began", e.Path, op.Kind)
		}
	}
	g.files.Leave = leave
	return nil
}

// has says whether a path is in a sorted list of entries.
func has(entries []index.Entry, p string) bool {
	_, ok := slices.BinarySearchFunc(entries, p, func(e index.Entry, p string) int { return strings.Compare(e.Path, p) })
	return ok
}

// compatible refuses to restore out of, or into, an operation of several
// steps: its own files are not saved.
func compatible(op *operation, now, then *snapshot.Operation) error {
	several := func(op *snapshot.Operation) bool { return op.Kind != "" && !op.Single }
	same := now.Kind == then.Kind && now.Identity == then.Identity
	switch {
	case several(now) && !same:
		return fault.New(fault.Conflict, "operation-in-progress", "%s is under way, and the checkpoint is not of it", underWay(now.Kind)).
			WithHint("finish it or give it up first: %s", endHint(now.Kind))
	case several(now) && op.After.Branch != op.Before.Branch:
		return fault.New(fault.Conflict, "operation-in-progress", "%s is under way, which a change of branch would break", underWay(now.Kind)).
			WithHint("finish it or give it up first: %s", endHint(now.Kind))
	case several(then) && !same:
		return fault.New(fault.Conflict, "operation-over", "the checkpoint was made during %s that is not under way now", underWay(then.Kind)).
			WithHint("git checkpoint diff shows it; restore -- <path> takes single files from it")
	}
	return nil
}

// underWay names an operation with its article.
func underWay(kind string) string {
	switch kind {
	case snapshot.Am:
		return "an am"
	case snapshot.Sequence:
		return "a sequence of picks"
	}
	return "a " + kind
}

func endHint(kind string) string {
	switch kind {
	case snapshot.Bisect:
		return "git bisect reset"
	case snapshot.Sequence:
		return "git cherry-pick --abort or git revert --abort"
	}
	return "git " + kind + " --abort or --continue"
}
