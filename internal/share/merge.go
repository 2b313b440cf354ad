package share

import (
	"context"
	"errors"
	"fmt"
	"sort"
	"strings"
	"time"

	"github.com/git-checkpoint/git-checkpoint/internal/fault"
	"github.com/git-checkpoint/git-checkpoint/internal/object"
	"github.com/git-checkpoint/git-checkpoint/lineage"
	"github.com/git-checkpoint/git-checkpoint/notes"
	"github.com/git-checkpoint/git-checkpoint/refs"
)

// merge brings everything that was fetched into our own refs, run by run, so
// that one run which cannot be merged does not keep the others.
func (x *exchange) merge(ctx context.Context) error {
	theirs, err := x.there(ctx)
	if err != nil {
		return err
	}
	ours, err := x.here(ctx)
	if err != nil {
		return err
	}
	gone, err := x.mergePruned(ctx, ours, theirs)
	x.gone = gone
	if err != nil {
		return err
	}
	var runs []string
	for run := range theirs.runs {
		runs = append(runs, run)
	}
	sort.Strings(runs)
	for _, run := range runs {
		if err := x.mergeRetrying(ctx, run); err != nil {
			return err
		}
	}
	return nil
}

func (x *exchange) mergeRetrying(ctx context.Context, run string) error {
	for attempt := 1; ; attempt++ {
		err := x.mergeRun(ctx, run)
		if errors.Is(err, refs.ErrStale) && attempt < 8 {
			continue
		}
		return err
	}
}

// mergeRun merges one run: its chain by fast-forward, its notes by union, its
// seed if there is none yet.
func (x *exchange) mergeRun(ctx context.Context, run string) error {
	theirs, err := x.repo.Ref(ctx, x.remoteRef("runs", run))
	if err != nil || theirs == "" {
		return err
	}
	ours, err := x.repo.Ref(ctx, refs.RunRef(run))
	if err != nil {
		return err
	}
	if ours == "" {
		if x.staysPruned(ctx, run, theirs) {
			x.result.Pruned = append(x.result.Pruned, run)
			return nil
		}
		if err := x.onlyByCase(ctx, run); err != nil {
			return err
		}
	}
	tx := x.repo.Begin("checkpoint: pull")
	m := &merging{exchange: x, tx: tx, run: run, ours: ours, theirs: theirs}
	if err := m.chain(ctx); err != nil {
		return err
	}
	if err := m.notes(ctx); err != nil {
		return err
	}
	if err := m.seed(ctx); err != nil {
		return err
	}
	m.last()
	if err := tx.Commit(ctx); err != nil {
		return err
	}
	return m.settle(ctx)
}

// staysPruned says whether a tip is of a run that was pruned and has not grown
// since. Another run of the same name has another start commit.
func (x *exchange) staysPruned(ctx context.Context, run, tip string) bool {
	for _, p := range x.gone {
		if p.Run != run {
			continue
		}
		if p.Start != "" {
			start, err := x.repo.StartOf(ctx, tip)
			if err == nil && start.ID != p.Start {
				continue
			}
		}
		if tip == p.Tip || !x.ancestor(ctx, p.Tip, tip) {
			return true
		}
	}
	return false
}

// onlyByCase refuses a run whose name this disk may take for another's.
func (x *exchange) onlyByCase(ctx context.Context, run string) error {
	err := x.repo.CheckNewRun(ctx, run)
	if errors.Is(err, fault.Conflict) {
		return fault.New(fault.Conflict, "same-name", "take run '%s' from '%s': %w", run, x.o.Remote, err)
	}
	return err
}

// ancestor says whether a is reached from b.
func (x *exchange) ancestor(ctx context.Context, a, b string) bool {
	return a == b || x.repo.Git().Command(ctx, "merge-base", "--is-ancestor", a, b).Run() == nil
}

// merging is one run being merged.
type merging struct {
	*exchange
	tx           *refs.Transaction
	run          string
	ours, theirs string // tips
	tip          string // what ours becomes
	fork         string // the run that ours becomes, where the two diverged
	forkTip      string
}

// chain decides what becomes of our tip. Where both went on, the one that was
// pushed first keeps the name, and ours is a run of its own.
func (m *merging) chain(ctx context.Context) error {
	switch {
	case m.ours == "", m.ours != m.theirs && m.ancestor(ctx, m.ours, m.theirs):
		m.tip = m.theirs
		m.result.Pulled = append(m.result.Pulled, m.run)
	case m.ours == m.theirs, m.ancestor(ctx, m.theirs, m.ours):
		m.tip = m.ours
	default:
		m.tip = m.theirs
		return m.diverge(ctx)
	}
	return nil
}

// diverge makes our side a run of its own, with our tip as what it goes on
// from. Every clone that holds that tip makes the same commits of it.
func (m *merging) diverge(ctx context.Context) error {
	source, err := m.repo.ReadCheckpoint(ctx, m.ours)
	if err != nil {
		return err
	}
	m.fork = forkName(m.run, m.ours)
	if m.forkTip, err = m.repo.Ref(ctx, refs.RunRef(m.fork)); err != nil || m.forkTip != "" {
		return err // it is there already: pulled from somebody with the same tip
	}
	by := refs.Identity{Name: "git-checkpoint", Email: "git-checkpoint@localhost", When: source.At.UTC()}
	start, err := m.repo.StartOf(ctx, m.ours)
	if err != nil {
		return err
	}
	old, err := notes.OpenBook(ctx, m.repo, m.run)
	if err != nil {
		return err
	}
	state, err := old.State(ctx, start.ID)
	if err != nil {
		return err
	}
	book, err := notes.OpenBook(ctx, m.repo, m.fork)
	if err != nil {
		return err
	}
	begin, err := lineage.Create(ctx, m.repo, book, lineage.NewRun{
		Name: m.fork, Source: source, Worktree: state.Created.Worktree, Path: state.Created.Path, Session: state.Created.Session, By: by,
		Lineage: &refs.Lineage{Kind: refs.ForkedFrom, Run: m.run, Step: source.Step, Checkpoint: source.ID},
	})
	if err != nil {
		return err
	}
	if err := book.Commit(ctx, m.tx, "run "+m.fork+": diverged from "+m.run, by); err != nil {
		return err
	}
	m.forkTip = begin.ID
	m.tx.Set(refs.RunRef(m.fork), begin.ID, "")
	return nil
}

// forkName is what our side of a diverged run is called: every clone that
// holds the tip calls it so.
func forkName(run, tip string) string {
	if limit := 100 - len(".") - 12; len(run) > limit {
		run = strings.TrimRight(run[:limit], ".")
	}
	return run + "." + tip[:12]
}

// notes merges the notes of the run.
func (m *merging) notes(ctx context.Context) error {
	ref := refs.NotesRef(m.run)
	ours, err := m.repo.Ref(ctx, ref)
	if err != nil {
		return err
	}
	theirs, err := m.repo.Ref(ctx, m.remoteRef("notes", m.run))
	if err != nil || theirs == "" || ours == theirs {
		return err
	}
	joined, err := m.join(ctx, ours, theirs, func(a, b string) (string, error) {
		return notes.MergeTrees(ctx, m.repo.Objects(), m.repo.Git().ObjectFormat, a, b)
	})
	if err != nil {
		return fault.New(fault.Integrity, "notes-differ", "merge the notes of run '%s' with those of '%s': %w", m.run, m.o.Remote, err)
	}
	m.tx.Set(ref, joined, ours)
	return nil
}

// join is a deterministic merge of two commits' trees: the same two sides give
// the same commit, in whatever order. Where one goes on from the other it is
// that one.
func (x *exchange) join(ctx context.Context, a, b string, merge func(a, b string) (string, error)) (string, error) {
	switch {
	case a == "", a == b:
		return b, nil
	case b == "":
		return a, nil
	case x.ancestor(ctx, a, b):
		return b, nil
	case x.ancestor(ctx, b, a):
		return a, nil
	}
	sides := []string{a, b}
	sort.Strings(sides)
	var trees [2]string
	var when time.Time
	for i, id := range sides {
		c, err := x.repo.ReadCommit(ctx, id)
		if err != nil {
			return "", err
		}
		trees[i] = c.Tree
		if c.At.After(when) {
			when = c.At
		}
	}
	tree, err := merge(trees[0], trees[1])
	if err != nil {
		return "", err
	}
	by := refs.Identity{Name: "git-checkpoint", Email: "git-checkpoint@localhost", When: when.UTC()}
	return x.repo.PutCommit(tree, sides, "merge\n", by), nil
}

// seed takes the remote's seed where we have none. Two that differ cannot
// both be right.
func (m *merging) seed(ctx context.Context) error {
	theirs, err := m.repo.Ref(ctx, m.remoteRef("seeds", m.run))
	if err != nil || theirs == "" {
		return err
	}
	ours, err := m.repo.Ref(ctx, refs.SeedRef(m.run))
	switch {
	case err != nil:
		return err
	case ours == "":
		m.tx.Set(refs.SeedRef(m.run), theirs, "")
	case ours != theirs && m.fork == "":
		m.result.Refused = append(m.result.Refused, Refusal{Ref: refs.SeedRef(m.run), Reason: "the remote has another seed under this name; ours is kept"})
	}
	return nil
}

// last puts the run's own ref at the end of the transaction.
func (m *merging) last() { m.tx.Set(refs.RunRef(m.run), m.tip, m.ours) }

// settle lets this worktree's current run follow its chain to its new name.
func (m *merging) settle(ctx context.Context) error {
	if m.fork == "" {
		return nil
	}
	m.result.Diverged = append(m.result.Diverged, Diverged{Run: m.run, New: m.fork})
	current, err := m.repo.CurrentRun(ctx)
	if err != nil || current != m.run {
		return err
	}
	return m.repo.SetCurrentRun(ctx, m.fork)
}

// prunedFile is the list in the tree of refs.PrunedRef: lines "<run> <tip>
// <start>", sorted.
const prunedFile = "pruned"

// mergePruned joins the lists of pruned runs and returns ours as it is then.
func (x *exchange) mergePruned(ctx context.Context, ours, theirs *state) ([]Pruned, error) {
	joined, err := x.join(ctx, ours.pruned, theirs.pruned, func(a, b string) (string, error) {
		one, err := ReadPruned(ctx, x.repo, a)
		if err != nil {
			return "", err
		}
		two, err := ReadPruned(ctx, x.repo, b)
		if err != nil {
			return "", err
		}
		return PutPruned(x.repo, append(one, two...)), nil
	})
	if err != nil || joined == "" {
		return nil, err
	}
	if joined != ours.pruned {
		tx := x.repo.Begin("checkpoint: pruned runs")
		tx.Set(refs.PrunedRef, joined, ours.pruned)
		if err := tx.Commit(ctx); err != nil {
			return nil, err
		}
	}
	tree, err := x.repo.CommitTree(ctx, joined)
	if err != nil {
		return nil, err
	}
	return ReadPruned(ctx, x.repo, tree)
}

// Pruned is a run that was pruned, and its tip then.
type Pruned struct {
	Run   string `json:"run"`
	Tip   string `json:"tip"`
	Start string `json:"start,omitempty"` // its start commit
}

// ReadPruned reads the list in a tree of refs.PrunedRef.
func ReadPruned(ctx context.Context, repo *refs.Repository, tree string) ([]Pruned, error) {
	damaged := func(err error) error {
		return fault.New(fault.Integrity, "pruned-damaged", "read the list of pruned runs: %w", err)
	}
	_, data, err := repo.Objects().Read(ctx, tree)
	if err != nil {
		return nil, err
	}
	entries, err := object.ParseTree(data, repo.Git().HashLen())
	if err != nil {
		return nil, damaged(err)
	}
	var list []Pruned
	for _, e := range entries {
		if e.Name != prunedFile {
			continue
		}
		_, text, err := repo.Objects().Read(ctx, e.ID)
		if err != nil {
			return nil, err
		}
		for line := range strings.Lines(string(text)) {
			fields := strings.Fields(line)
			if len(fields) < 2 || refs.CheckRun(fields[0]) != nil || !object.IsID(fields[1]) {
				return nil, damaged(fmt.Errorf("'%.80s' is no entry", line))
			}
			p := Pruned{Run: fields[0], Tip: fields[1]}
			if len(fields) > 2 {
				p.Start = fields[2]
			}
			list = append(list, p)
		}
	}
	return list, nil
}

// PutPruned puts a list, sorted and unique, as a tree of refs.PrunedRef.
func PutPruned(repo *refs.Repository, list []Pruned) string {
	set := map[string]bool{}
	for _, p := range list {
		set[strings.TrimRight(p.Run+" "+p.Tip+" "+p.Start, " ")+"\n"] = true
	}
	var lines []string
	for line := range set {
		lines = append(lines, line)
	}
	sort.Strings(lines)
	store := repo.Objects()
	blob := store.Put(object.Blob, []byte(strings.Join(lines, "")))
	return store.Put(object.Tree, object.EncodeTree([]object.TreeEntry{{Mode: object.ModeFile, Name: prunedFile, ID: blob}}))
}
