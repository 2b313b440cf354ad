package share

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sort"
	"strconv"
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
	x.result.Left, x.result.Pruned = nil, nil
	if err := x.mergePruned(ctx, ours, theirs); err != nil {
		if !errors.Is(err, fault.Integrity) {
			return err
		}
		x.leave(refs.PrunedRef, err)
	}
	if err := x.takeNew(ctx, ours, theirs); err != nil {
		return err
	}
	for _, run := range slices.Sorted(maps.Keys(theirs.runs)) {
		if ours.runs[run] == theirs.runs[run] && (theirs.notes[run] == "" || ours.notes[run] == theirs.notes[run]) &&
			(theirs.seeds[run] == "" || ours.seeds[run] == theirs.seeds[run]) {
			continue
		}
		err := x.mergeRetrying(ctx, run)
		switch {
		case err == nil:
		case ctx.Err() != nil:
			return err
		case errors.Is(err, fault.Integrity), errors.Is(err, fault.Conflict):
			x.leave(refs.RunRef(run), err)
		default:
			return err
		}
	}
	return nil
}

func (x *exchange) leave(ref string, err error) {
	x.result.Left = append(x.result.Left, Refusal{Ref: ref, Reason: err.Error()})
}

// takeMany bounds how many runs are taken in one transaction.
const takeMany = 500

// takeNew takes the runs of which nothing is here, many at a time, and notes
// in ours what it took. A run that needs a closer look is left to mergeRun.
func (x *exchange) takeNew(ctx context.Context, ours, theirs *state) error {
	folded := map[string]int{}
	for run := range theirs.runs {
		folded[strings.ToLower(run)]++
	}
	for run := range ours.runs {
		folded[strings.ToLower(run)]++
	}
	var fresh []string
	for _, run := range slices.Sorted(maps.Keys(theirs.runs)) {
		if ours.runs[run] == "" && ours.notes[run] == "" && ours.seeds[run] == "" && len(x.gone[run]) == 0 && folded[strings.ToLower(run)] == 1 {
			fresh = append(fresh, run)
		}
	}
	for part := range slices.Chunk(fresh, takeMany) {
		tx := x.repo.Begin("checkpoint: pull")
		var taken []string
		for _, run := range part {
			if x.isRun(ctx, run, theirs.runs[run]) != nil {
				continue
			}
			if id := theirs.notes[run]; id != "" {
				tx.Set(refs.NotesRef(run), id, "")
			}
			if id := theirs.seeds[run]; id != "" {
				tx.Set(refs.SeedRef(run), id, "")
			}
			tx.Set(refs.RunRef(run), theirs.runs[run], "")
			taken = append(taken, run)
		}
		err := tx.Commit(ctx)
		if errors.Is(err, refs.ErrStale) {
			continue
		}
		if err != nil {
			return err
		}
		for _, run := range taken {
			ours.runs[run], ours.notes[run], ours.seeds[run] = theirs.runs[run], theirs.notes[run], theirs.seeds[run]
			x.pulled(run)
		}
	}
	return nil
}

func (x *exchange) pulled(run string) {
	if !slices.Contains(x.result.Pulled, run) {
		x.result.Pulled = append(x.result.Pulled, run)
	}
}

// isRun refuses a tip that is no checkpoint of the run.
func (x *exchange) isRun(ctx context.Context, run, tip string) error {
	c, err := x.repo.ReadCheckpoint(ctx, tip)
	if err == nil && c.Run != run {
		err = fault.New(fault.Integrity, "wrong-run", "its tip is a checkpoint of run '%s'", c.Run)
	}
	if err != nil {
		return fault.New(fault.Integrity, "not-a-run", "take run '%s' from '%s': %w", run, x.o.Remote, err)
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
	if ours != theirs {
		if err := x.isRun(ctx, run, theirs); err != nil {
			return err
		}
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
	m := &merging{exchange: x, tx: x.repo.Begin("checkpoint: pull"), run: run, ours: ours, theirs: theirs}
	if err := m.chain(ctx); err != nil {
		return err
	}
	if err := m.notes(ctx); err != nil {
		return err
	}
	if err := m.seed(ctx); err != nil {
		return err
	}
	// The run's own ref comes last.
	m.tx.Set(refs.RunRef(m.run), m.tip, m.ours)
	if err := m.tx.Commit(ctx); err != nil {
		return err
	}
	if m.fork != "" {
		m.result.Diverged = append(m.result.Diverged, Diverged{Run: m.run, New: m.fork})
	}
	if m.ours != m.tip {
		m.pulled(m.run)
	}
	return nil
}

// staysPruned says whether a tip holds nothing beyond what was pruned of its
// run. Another run of the same name has another start commit.
func (x *exchange) staysPruned(ctx context.Context, run, tip string) bool {
	for _, p := range x.gone[run] {
		if tip == p.Tip {
			return true
		}
		c, err := x.repo.ReadCheckpoint(ctx, tip)
		if err != nil {
			continue
		}
		if start, err := x.repo.StartOf(ctx, tip); p.Start != "" && (err != nil || start.ID != p.Start) {
			continue
		}
		if _, err := x.repo.ReadCommit(ctx, p.Tip); err != nil {
			// Its tip is not here, so what is not longer is taken for a part of it.
			if c.Number <= p.Number {
				return true
			}
		} else if x.ancestor(ctx, tip, p.Tip) {
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
	other        bool   // and the two are not even of one start
}

// chain decides what becomes of our tip. Where both went on, the one that was
// pushed first keeps the name, and ours is a run of its own.
func (m *merging) chain(ctx context.Context) error {
	switch {
	case m.ours == "", m.ours != m.theirs && m.ancestor(ctx, m.ours, m.theirs):
		m.tip = m.theirs
	case m.ours == m.theirs, m.ancestor(ctx, m.theirs, m.ours):
		m.tip = m.ours
	default:
		m.tip = m.theirs
		return m.diverge(ctx)
	}
	return nil
}

// diverge makes our side a run of its own, with our tip as what it goes on
// from. Every clone that holds that tip makes the same commits of it. The new
// run is there, and whoever worked on the old one works on it, before the old
// one's ref moves: a pull that was killed in between is finished by the next.
func (m *merging) diverge(ctx context.Context) error {
	source, err := m.repo.ReadCheckpoint(ctx, m.ours)
	if err != nil {
		return err
	}
	start, err := m.repo.StartOf(ctx, m.ours)
	if err != nil {
		return err
	}
	theirStart, err := m.repo.StartOf(ctx, m.theirs)
	if err != nil {
		return err
	}
	m.other = start.ID != theirStart.ID
	m.fork = forkName(m.run, m.ours)
	there, err := m.repo.Ref(ctx, refs.RunRef(m.fork))
	if err != nil {
		return err
	}
	if there == "" { // else it was pulled from somebody with the same tip
		if err := m.makeFork(ctx, source, start); err != nil {
			return err
		}
	}
	return m.follow(ctx)
}

func (m *merging) makeFork(ctx context.Context, source, start *refs.Checkpoint) error {
	by := refs.Identity{Name: "git-checkpoint", Email: "git-checkpoint@localhost", When: source.At.UTC()}
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
	if notes.Ended(state.Said) {
		if err := book.Add(ctx, begin.ID, by.When, notes.EventStatus, map[string]string{"status": state.Said}); err != nil {
			return err
		}
	}
	tx := m.repo.Begin("checkpoint: pull")
	if err := book.Commit(ctx, tx, "run "+m.fork+": diverged from "+m.run, by); err != nil {
		return err
	}
	seed, err := m.repo.Ref(ctx, refs.SeedRef(m.run))
	if err != nil {
		return err
	}
	theirs, err := m.repo.Ref(ctx, m.remoteRef("seeds", m.run))
	if err != nil {
		return err
	}
	if seed != "" && seed != theirs && (theirs != "" || m.other) {
		tx.Set(refs.SeedRef(m.fork), seed, "") // it was that of our run
	}
	tx.Set(refs.RunRef(m.fork), begin.ID, "")
	return tx.Commit(ctx)
}

// follow lets the current run of every worktree follow its chain to its new
// name.
func (m *merging) follow(ctx context.Context) error {
	return m.repo.EachWorktree(ctx, func(there *refs.Repository) error {
		current, err := there.CurrentRun(ctx)
		if err == nil && current == m.run {
			err = there.SetCurrentRun(ctx, m.fork)
		}
		return err
	})
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
	if err != nil {
		return err
	}
	ours, err := m.repo.Ref(ctx, refs.SeedRef(m.run))
	switch {
	case err != nil:
		return err
	case ours == theirs:
	case m.other && theirs == "":
		m.tx.Delete(refs.SeedRef(m.run), ours) // it went with our run
	case theirs == "":
	case ours == "" || m.fork != "":
		m.tx.Set(refs.SeedRef(m.run), theirs, ours)
	default:
		m.leave(refs.SeedRef(m.run), errors.New("the remote has another seed under this name; ours is kept"))
	}
	return nil
}

// prunedFile is the list in the tree of refs.PrunedRef: lines "<run> <tip>
// <start> <number of checkpoints>", sorted.
const prunedFile = "pruned"

// mergePruned joins the lists of pruned runs.
func (x *exchange) mergePruned(ctx context.Context, ours, theirs *state) error {
	x.gone = map[string][]Pruned{}
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
		return err
	}
	if joined != ours.pruned {
		tx := x.repo.Begin("checkpoint: pruned runs")
		tx.Set(refs.PrunedRef, joined, ours.pruned)
		if err := tx.Commit(ctx); err != nil {
			return err
		}
	}
	tree, err := x.repo.CommitTree(ctx, joined)
	if err != nil {
		return err
	}
	list, err := ReadPruned(ctx, x.repo, tree)
	for _, p := range list {
		x.gone[p.Run] = append(x.gone[p.Run], p)
	}
	return err
}

// Pruned is a run that was pruned, and its tip then.
type Pruned struct {
	Run   string `json:"run"`
	Tip   string `json:"tip"`
	Start string `json:"start,omitempty"` // its start commit

	Number int `json:"checkpoints,omitempty"` // how many it had of its own
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
	if !slices.ContainsFunc(entries, func(e object.TreeEntry) bool { return e.Name == prunedFile }) {
		return nil, damaged(fmt.Errorf("there is no '%s'", prunedFile))
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
			if len(fields) > 3 {
				p.Number, _ = strconv.Atoi(fields[3])
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
		line := p.Run + " " + p.Tip
		if p.Start != "" {
			line += fmt.Sprintf(" %s %d", p.Start, p.Number)
		}
		set[line+"\n"] = true
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
