package worktree

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path"
	"slices"
	"sort"
	"strings"

	"github.com/git-checkpoint/git-checkpoint/internal/fault"
	"github.com/git-checkpoint/git-checkpoint/internal/git"
	"github.com/git-checkpoint/git-checkpoint/internal/index"
	"github.com/git-checkpoint/git-checkpoint/internal/object"
	"github.com/git-checkpoint/git-checkpoint/internal/restore"
	"github.com/git-checkpoint/git-checkpoint/internal/snapshot"
	"github.com/git-checkpoint/git-checkpoint/lineage"
	"github.com/git-checkpoint/git-checkpoint/notes"
	"github.com/git-checkpoint/git-checkpoint/refs"
)

// Restore makes files, index and single-step state equal to a checkpoint's.
func (w *Worktree) Restore(ctx context.Context, req RestoreRequest) (*RestoreResult, error) {
	if req.Reset && len(req.Paths) > 0 {
		return nil, fault.New(fault.Invalid, "reset-with-paths", "--reset moves the branch to the whole checkpoint, not to some paths of it")
	}
	if err := w.hold(ctx, "restore"); err != nil {
		return nil, err
	}
	defer w.unlock()
	if err := w.refuseInProgress(ctx); err != nil {
		return nil, err
	}
	c, err := w.repo.Resolve(ctx, req.Checkpoint)
	if err != nil {
		return nil, err
	}
	before, err := w.point0(ctx)
	if err != nil {
		return nil, err
	}
	op := &operation{Kind: opRestore, Target: c.ID, Before: before, After: before}
	if req.Reset {
		if err := w.planReset(op, c); err != nil {
			return nil, err
		}
	}
	s := stepOf(op)
	s.pathspecs, s.dryRun = req.Paths, req.DryRun
	result, err := w.perform(ctx, op, s)
	if err != nil {
		return nil, err
	}
	if !req.Reset && c.Head != before.Head && !req.DryRun {
		result.HeadDiffers = c.Head
	}
	return result, nil
}

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

// Switch makes a run the current one and restores its newest checkpoint.
func (w *Worktree) Switch(ctx context.Context, run string) (*RestoreResult, error) {
	if err := w.hold(ctx, "switch"); err != nil {
		return nil, err
	}
	defer w.unlock()
	if err := w.refuseInProgress(ctx); err != nil {
		return nil, err
	}
	if _, err := w.repo.Tip(ctx, run); err != nil {
		return nil, err
	}
	c, err := w.repo.Resolve(ctx, run)
	if err != nil {
		return nil, err
	}
	before, err := w.point0(ctx)
	if err != nil {
		return nil, err
	}
	op := &operation{Kind: opSwitch, Target: c.ID, Before: before, After: before, MovesHead: true}
	op.After.Run = run
	if err := w.planHead(ctx, op, c, run); err != nil {
		return nil, err
	}
	return w.perform(ctx, op, stepOf(op))
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

// branchFits refuses a branch that git could not make: refs are paths, and
// one cannot be below another.
func (w *Worktree) branchFits(ctx context.Context, branch string) error {
	name := strings.TrimPrefix(branch, "refs/heads/")
	if _, err := w.git.Command(ctx, "check-ref-format", branch).Text(); err != nil {
		return fault.New(fault.Invalid, "invalid-branch", "'%s' is no branch name", name).
			WithHint("checkpoint.branchPrefix is what it begins with")
	}
	taken, err := w.git.Command(ctx, "for-each-ref", "--count=1", "--format=%(refname)", branch+"/").Text()
	for i := len("refs/heads"); err == nil && taken == ""; {
		next := strings.IndexByte(branch[i+1:], '/')
		if next < 0 {
			return nil
		}
		i += 1 + next
		var id string
		if id, err = w.repo.Ref(ctx, branch[:i]); id != "" {
			taken = branch[:i]
		}
	}
	if err != nil {
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

// Continue finishes an operation that was killed.
func (w *Worktree) Continue(ctx context.Context) (*RestoreResult, error) {
	if err := w.hold(ctx, "restore --continue"); err != nil {
		return nil, err
	}
	defer w.unlock()
	op, err := w.inProgress(ctx)
	if err != nil {
		return nil, err
	}
	if op == nil {
		return nil, fault.New(fault.NotFound, "nothing-in-progress", "no restore is in progress")
	}
	return w.goOn(ctx, op)
}

// goOn does an operation again from whatever state it was left in.
func (w *Worktree) goOn(ctx context.Context, op *operation) (*RestoreResult, error) {
	s := stepOf(op)
	s.resumes = op
	again := *op
	return w.perform(ctx, &again, s)
}

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

// Undo goes back to before the last restore, rewind or switch; one that was
// killed is rolled back.
func (w *Worktree) Undo(ctx context.Context) (*RestoreResult, error) {
	if err := w.hold(ctx, "undo"); err != nil {
		return nil, err
	}
	defer w.unlock()
	op, err := w.inProgress(ctx)
	if err != nil {
		return nil, err
	}
	if op != nil {
		if op.Kind == opUndo || op.Kind == opRollback {
			return w.goOn(ctx, op)
		}
		back := &operation{
			Kind: opRollback, Target: op.Safety, targetRaw: op.raw, Safety: op.Safety, raw: op.raw, Paths: op.Paths,
			Before: op.After, After: op.Before, Created: op.Created, MovesHead: op.MovesHead,
			HalfDone: append(op.HalfDone, op.Target), RolledBack: op.Target,
			wrote: op.Paths, skipped: op.skipped, leave: op.skipped,
		}
		if op.Kind == opRewind {
			back.Rewound = op.Rewound
		}
		s := stepOf(back)
		s.resumes = op
		return w.perform(ctx, back, s)
	}
	done, err := w.stack(ctx, undoName)
	if err != nil {
		return nil, err
	}
	if len(done) == 0 {
		return nil, fault.New(fault.NotFound, "nothing-to-undo", "there is nothing to undo").
			WithHint("git checkpoint restore @{1} takes back what was done since the last checkpoint but one")
	}
	return w.reverse(ctx, opUndo, done[len(done)-1])
}

// Redo goes forward again after undo.
func (w *Worktree) Redo(ctx context.Context) (*RestoreResult, error) {
	if err := w.hold(ctx, "redo"); err != nil {
		return nil, err
	}
	defer w.unlock()
	op, err := w.inProgress(ctx)
	if err != nil {
		return nil, err
	}
	if op != nil && op.Kind == opRedo {
		return w.goOn(ctx, op)
	}
	if err := w.refuseInProgress(ctx); err != nil {
		return nil, err
	}
	undone, err := w.stack(ctx, redoName)
	if err != nil {
		return nil, err
	}
	if len(undone) == 0 {
		return nil, fault.New(fault.NotFound, "nothing-to-redo", "there is nothing to redo")
	}
	return w.reverse(ctx, opRedo, undone[len(undone)-1])
}

// reverse takes an operation back: its safety checkpoint is the target.
func (w *Worktree) reverse(ctx context.Context, kind string, top numbered) (*RestoreResult, error) {
	done, err := w.readOperation(ctx, top.commit)
	if err != nil {
		return nil, err
	}
	now, err := w.point0(ctx)
	if err != nil {
		return nil, err
	}
	op := &operation{
		Kind: kind, Target: done.Safety, targetRaw: done.raw, Before: now, After: now, Undoes: top.ref, MovesHead: done.MovesHead, Rewound: done.Rewound,
		Reverses: done.Target, wrote: done.Paths, leave: done.skipped,
	}
	if done.MovesHead {
		if now.Branch != done.After.Branch || now.Head != done.After.Head {
			return nil, fault.New(fault.Conflict, "head-moved", "HEAD has moved since the %s: it is at %s", done.Kind, describe(now)).
				WithHint("git checkpoint restore rev:%s brings back the files alone", done.Safety)
		}
		op.After = done.Before
		op.Created = done.Created
	}
	return w.perform(ctx, op, stepOf(op))
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

	goal, err := w.goal(ctx, op)
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
	if err := w.begin(ctx, op, plan, now, s, by); err != nil {
		return nil, err
	}
	result.Safety = op.Safety
	if err := w.change(ctx, op, goal, plan, lock, s, by); err != nil {
		return nil, w.unfinished(ctx, op, plan, s, err)
	}
	w.recordUnignored(ctx, plan, goal, result)
	return result, nil
}

// elsewhere says whether HEAD is somewhere that an operation did not put it.
func (w *Worktree) elsewhere(now, p point) bool { return now.Branch != p.Branch || now.Head != p.Head }

// goal is the state that an operation goes to.
type goal struct {
	checkpoint *refs.Checkpoint
	files      restore.Target
	state      *snapshot.IndexState
	skipped    map[string]bool // what the checkpoint did not take
	force      []string        // what may be on disk by the operation that is taken back
}

func (w *Worktree) goal(ctx context.Context, op *operation) (*goal, error) {
	c, err := w.repo.ReadCommit(ctx, op.Target)
	if err != nil {
		return nil, err
	}
	g := &goal{checkpoint: c}
	if g.files.Files, err = snapshot.ListTree(ctx, w.git, c.Tree); err != nil {
		return nil, err
	}
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
	if g.state, err = snapshot.ReadIndexTree(ctx, w.git, w.repo.Objects(), indexTree, headTree); err != nil {
		return nil, err
	}
	if c.Kind == "" {
		if err := w.keepSparse(ctx, g); err != nil {
			return nil, err
		}
	}
	g.files.Absent = g.state.Absent
	if g.skipped, err = w.skippedBy(ctx, c, op); err != nil {
		return nil, err
	}
	// What another restore un-ignored is no part of any checkpoint yet.
	g.files.Leave = maps.Clone(g.skipped)
	for p := range w.unignored() {
		g.files.Leave[p] = true
	}
	if g.files.Gone, err = w.goneBefore(ctx, op); err != nil {
		return nil, err
	}
	for p, gone := range g.files.Gone {
		if gone {
			g.force = append(g.force, p)
		}
	}
	// What was tracked and not on disk then is deleted, even where it is
	// ignored now, and so in no snapshot unless asked for.
	for _, e := range g.state.Index.Entries {
		g.files.Gone[e.Path] = true
		if !has(g.files.Files, e.Path) {
			g.force = append(g.force, e.Path)
		}
	}
	return g, nil
}

// goneBefore are the paths that an operation which is taken back now may have
// written where nothing was. Whatever stood in its way is in its safety
// checkpoint, so what is not in there was not on disk, ignored as it may be.
func (w *Worktree) goneBefore(ctx context.Context, op *operation) (map[string]bool, error) {
	target := cmp.Or(op.Reverses, op.RolledBack)
	if target == "" {
		return map[string]bool{}, nil
	}
	tree, err := w.repo.CommitTree(ctx, target)
	if err != nil {
		return nil, err
	}
	entries, err := snapshot.ListTree(ctx, w.git, tree)
	if err != nil {
		return nil, err
	}
	only := make(map[string]bool, len(op.wrote))
	for _, p := range op.wrote {
		only[p] = true
	}
	gone := make(map[string]bool, len(entries))
	for _, e := range entries {
		gone[e.Path] = len(only) == 0 || only[e.Path]
	}
	for _, p := range op.leave {
		delete(gone, p)
	}
	return gone, nil
}

// keepSparse leaves out of a plain commit what the user's sparse checkout
// leaves out.
func (w *Worktree) keepSparse(ctx context.Context, g *goal) error {
	user, err := snapshot.ReadUserIndex(ctx, w.git)
	if err != nil {
		return err
	}
	look := snapshot.NewLstat(w.git)
	skip := map[string]bool{}
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
	list, err := decodeSkips(record.Skipped)
	if err != nil {
		return nil, fault.New(fault.Integrity, "record-damaged", "read what checkpoint %s skipped: %w", c.ID, err)
	}
	for _, s := range list {
		leave[s.Path] = true
	}
	return leave, nil
}

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
	now, err := w.capture(ctx, options)
	if err != nil {
		return nil, nil, err
	}
	discard := func(err error) (*captured, *restore.Plan, error) {
		now.snap.Discard()
		return nil, nil, err
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
		op.Paths = limit(g, now, op.Paths)
	}
	obstacles, err := restore.Obstacles(w.git, g.files, now.snap)
	if err != nil {
		return discard(err)
	}
	if len(obstacles) > 0 {
		now.snap.Discard()
		options.Force = append(options.Force, obstacles...)
		if now, err = w.capture(ctx, options); err != nil {
			return nil, nil, err
		}
		if len(op.Paths) > 0 {
			op.Paths = limit(g, now, append(op.Paths, obstacles...))
		}
	}
	if s.resumes != nil {
		if err := w.leaveNew(ctx, g, now, s.resumes, leftovers); err != nil {
			return discard(err)
		}
	}
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

// matching resolves pathspecs, as git understands them from where the command
// runs, to paths of now and then.
func (w *Worktree) matching(ctx context.Context, pathspecs []string, now *captured, g *goal) ([]string, error) {
	all := map[string]index.Entry{}
	for _, list := range [][]index.Entry{now.snap.Files.Entries, g.files.Files, now.snap.User.Entries, g.state.Index.Entries} {
		for _, e := range list {
			all[e.Path] = index.Entry{Path: e.Path, Mode: index.ModeFile, ID: object.ID(w.git.ObjectFormat, object.Blob, nil)}
		}
	}
	// One list cannot hold a path both as file and directory; ask twice.
	lists := [2]map[string]index.Entry{{}, {}}
	for p, e := range all {
		i := 0
		for q := p; strings.Contains(q, "/"); {
			q = q[:strings.LastIndexByte(q, '/')]
			if _, clash := all[q]; clash {
				i = 1
			}
		}
		lists[i][p] = e
	}
	var files []string
	for i, list := range lists {
		x := &index.Index{}
		for _, e := range list {
			x.Entries = append(x.Entries, e)
		}
		file := w.home(fmt.Sprintf("index.%d.paths%d", os.Getpid(), i))
		defer os.Remove(file)
		if err := x.WriteFile(file, w.git.HashLen()); err != nil {
			return nil, fault.New(fault.Fatal, "io", "match paths: %w", err)
		}
		files = append(files, file)
	}
	paths, err := w.listMatching(ctx, files, pathspecs)
	if err != nil {
		return nil, err
	}
	return paths, w.matchEach(ctx, files, pathspecs)
}

// listMatching lists what pathspecs match in any of some index files.
func (w *Worktree) listMatching(ctx context.Context, files, pathspecs []string) ([]string, error) {
	found := map[string]bool{}
	for _, file := range files {
		names, err := w.lsFiles(ctx, file, nil, pathspecs).Lines()
		if err != nil {
			return nil, fault.New(fault.Invalid, "invalid-path", "match paths: %w", err)
		}
		for _, name := range names {
			found[name] = true
		}
	}
	if len(found) == 0 {
		return nil, fault.New(fault.NotFound, "no-such-path", "no file of the checkpoint or of the working tree matches '%s'", strings.Join(pathspecs, " "))
	}
	return slices.Sorted(maps.Keys(found)), nil
}

// matchEach refuses a pathspec that matches nothing: most likely it is a slip.
func (w *Worktree) matchEach(ctx context.Context, files, pathspecs []string) error {
	if w.lsFiles(ctx, files[0], []string{"--error-unmatch"}, pathspecs).Run() == nil {
		return nil
	}
	for _, p := range pathspecs {
		if strings.HasPrefix(p, ":!") || strings.HasPrefix(p, ":^") || strings.HasPrefix(p, ":(") && strings.Contains(p, "exclude") {
			continue
		}
		if _, err := w.listMatching(ctx, files, []string{p}); err != nil {
			return err
		}
	}
	return nil
}

func (w *Worktree) lsFiles(ctx context.Context, index string, options, pathspecs []string) *git.Cmd {
	args := append([]string{"ls-files", "-z", "--full-name"}, options...)
	c := w.git.Command(ctx, append(append(args, "--"), pathspecs...)...).WithIndex(index)
	c.Dir = w.git.CurrentDir()
	return c
}

// limit makes the goal equal to what is there, but for some paths. It returns
// these and those that have to go since a chosen path needs their place.
func limit(g *goal, now *captured, paths []string) []string {
	in := make(map[string]bool, len(paths))
	for _, p := range paths {
		in[p] = true
	}
	pick := func(then, here []index.Entry) []index.Entry {
		var list []index.Entry
		for _, e := range then {
			if in[e.Path] {
				list = append(list, e)
			}
		}
		for _, e := range here {
			if !in[e.Path] {
				list = append(list, e)
			}
		}
		return dropClashes(list, in)
	}
	absent := map[string]bool{}
	for p := range g.state.Absent {
		absent[p] = in[p]
	}
	g.files.Files = pick(g.files.Files, now.snap.Files.Entries)
	g.state = &snapshot.IndexState{
		Index:     &index.Index{Entries: pick(g.state.Index.Entries, now.snap.User.Entries)},
		Operation: now.op,
		Absent:    absent,
	}
	for _, e := range now.snap.Files.Entries {
		if e.SkipWorktree && !in[e.Path] {
			g.state.Absent[e.Path] = true
		}
	}
	g.files.Absent = g.state.Absent
	for _, e := range now.snap.Files.Entries {
		if !has(g.files.Files, e.Path) {
			in[e.Path] = true
		}
	}
	for _, e := range now.snap.User.Entries {
		if !has(g.state.Index.Entries, e.Path) {
			in[e.Path] = true
		}
	}
	return slices.Sorted(maps.Keys(in))
}

// dropClashes sorts entries and removes those that a chosen path makes
// impossible: a file where it has a directory, or the other way round.
func dropClashes(list []index.Entry, chosen map[string]bool) []index.Entry {
	have := map[string]bool{}
	for _, e := range list {
		have[e.Path] = true
	}
	drop := map[string]bool{}
	for p := range have {
		for q := p; strings.Contains(q, "/"); {
			q = q[:strings.LastIndexByte(q, '/')]
			if !have[q] {
				continue
			}
			if chosen[p] {
				drop[q] = true
			} else {
				drop[p] = true
			}
		}
	}
	list = slices.DeleteFunc(list, func(e index.Entry) bool { return drop[e.Path] })
	sort.SliceStable(list, func(i, j int) bool {
		return list[i].Path < list[j].Path || list[i].Path == list[j].Path && list[i].Stage < list[j].Stage
	})
	return list
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
func (w *Worktree) change(ctx context.Context, op *operation, g *goal, plan *restore.Plan, lock *restore.IndexLock, s step, by refs.Identity) error {
	if err := plan.Apply(); err != nil {
		return err
	}
	if err := lock.Write(w.indexOf(g, plan)); err != nil {
		return err
	}
	if err := w.changeHead(ctx, op, g); err != nil {
		return err
	}
	if err := plan.Verify(); err != nil {
		return err
	}
	return w.finish(ctx, op, s)
}

// indexOf is the user's index as the goal has it, with the stat data of the
// files that equal their entries, so that git need not look at them again.
func (w *Worktree) indexOf(g *goal, plan *restore.Plan) *index.Index {
	files := make(map[string]*index.Entry, len(g.files.Files))
	for i := range g.files.Files {
		files[g.files.Files[i].Path] = &g.files.Files[i]
	}
	x := &index.Index{Entries: slices.Clone(g.state.Index.Entries)}
	for i := range x.Entries {
		e := &x.Entries[i]
		e.Stat = index.Stat{}
		f := files[e.Path]
		if e.Stage != 0 || e.IntentToAdd || f == nil || f.ID != e.ID || f.Mode != e.Mode {
			continue
		}
		if s, ok := plan.Stat(e.Path); ok {
			e.Stat = s
		}
	}
	return x
}

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
	id, err := w.git.Command(ctx, "rev-parse", "--verify", "--quiet", name).Text()
	var failed *git.Error
	if errors.As(err, &failed) && failed.Code == 1 {
		return "", nil
	}
	return id, err
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
	if plan.Steps == 0 && s.resumes == nil && op.Kind == opRestore && !op.MovesHead && errors.Is(err, fault.Conflict) {
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
