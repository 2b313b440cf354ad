package worktree

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/git-checkpoint/git-checkpoint/internal/fault"
	"github.com/git-checkpoint/git-checkpoint/internal/share"
	"github.com/git-checkpoint/git-checkpoint/lineage"
	"github.com/git-checkpoint/git-checkpoint/notes"
	"github.com/git-checkpoint/git-checkpoint/refs"
	"github.com/git-checkpoint/git-checkpoint/rerun"
)

// PruneRequest says which runs to drop: those that it names, or all that every
// bound which is given lets go.
type PruneRequest struct {
	Runs      []string
	OlderThan time.Duration // since the last checkpoint; 0: of any age
	Keep      int           // all but the newest so many; 0: no matter how many
	Statuses  []string      // of these only; "archived" is one; empty: of any
	MaxSize   int64         // the oldest, until what runs alone hold is not more; bytes; 0: no bound
	Safety    time.Duration // drop what undo could go back to that is older; 0: keep
	DryRun    bool
}

// PrunedRun is a run that was, or would be, dropped.
type PrunedRun struct {
	Run    string `json:"run"`
	Tip    string `json:"tip"`
	Status string `json:"status"`
	Size   int64  `json:"size"` // bytes that only this run holds
}

// PruneResult says what a prune did.
type PruneResult struct {
	DryRun    bool        `json:"dry_run,omitempty"`
	Pruned    []PrunedRun `json:"pruned"`
	Kept      []string    `json:"kept"`      // runs that were asked for and are needed, with the reason
	Safety    int         `json:"safety"`    // local refs that were dropped
	Worktrees []string    `json:"worktrees"` // of tasks, removed
	Debris    []string    `json:"debris"`    // notes and seeds of runs that are not there
}

// Prune drops runs, and what is left over from work that is done.
func (w *Worktree) Prune(ctx context.Context, req PruneRequest) (*PruneResult, error) {
	if len(req.Runs) == 0 && req.OlderThan == 0 && req.Keep == 0 && len(req.Statuses) == 0 && req.MaxSize == 0 && req.Safety == 0 {
		return nil, fault.New(fault.Invalid, "missing-argument", "git checkpoint prune needs to know what to drop").
			WithHint("name runs, or give --older-than, --keep, --status, --max-size or --safety")
	}
	if w.git.Top != "" {
		if err := w.hold(ctx, "prune"); err != nil {
			return nil, err
		}
		defer w.unlock()
	}
	result := &PruneResult{DryRun: req.DryRun, Pruned: []PrunedRun{}, Kept: []string{}, Worktrees: []string{}, Debris: []string{}}
	runs, err := w.List(ctx, true, "")
	if err != nil {
		return nil, err
	}
	chosen, err := w.choose(ctx, req, runs, result)
	if err != nil {
		return nil, err
	}
	for _, r := range chosen {
		size, err := w.size(ctx, r, runs)
		if err != nil {
			return nil, err
		}
		result.Pruned = append(result.Pruned, PrunedRun{Run: r.Run, Tip: r.Tip, Status: r.Status, Size: size})
		if req.DryRun {
			continue
		}
		if err := w.drop(ctx, r); err != nil {
			return nil, err
		}
	}
	if err := w.pruneSafety(ctx, req, result); err != nil {
		return nil, err
	}
	return result, w.clearLeftovers(ctx, req, runs, result)
}

// choose finds the runs to drop, oldest first, without those that are needed.
func (w *Worktree) choose(ctx context.Context, req PruneRequest, runs []RunInfo, result *PruneResult) ([]RunInfo, error) {
	for _, name := range req.Runs {
		if _, err := w.repo.Tip(ctx, name); err != nil {
			return nil, err
		}
	}
	now := time.Now()
	newest := slices.Clone(runs)
	last := map[string]time.Time{}
	for _, r := range runs {
		c, err := w.repo.ReadCheckpoint(ctx, r.Tip)
		if err != nil {
			last[r.Run] = r.CreatedAt
			continue
		}
		last[r.Run] = c.At
	}
	slices.SortFunc(newest, func(a, b RunInfo) int { return last[b.Run].Compare(last[a.Run]) })
	var chosen []RunInfo
	for i, r := range newest {
		switch {
		case len(req.Runs) > 0:
			if !slices.Contains(req.Runs, r.Run) {
				continue
			}
		case req.OlderThan == 0 && req.Keep == 0 && len(req.Statuses) == 0:
			continue // by size or safety only
		case req.OlderThan > 0 && now.Sub(last[r.Run]) < req.OlderThan,
			req.Keep > 0 && i < req.Keep,
			len(req.Statuses) > 0 && !slices.Contains(req.Statuses, r.Status) && !(r.Archived && slices.Contains(req.Statuses, "archived")):
			continue
		}
		needed, err := w.needed(ctx, r)
		if err != nil {
			return nil, err
		}
		if needed != "" {
			result.Kept = append(result.Kept, fmt.Sprintf("%s: %s", r.Run, needed))
			continue
		}
		chosen = append(chosen, r)
	}
	slices.Reverse(chosen)
	if req.MaxSize > 0 {
		return w.chooseBySize(ctx, req, newest, chosen, result)
	}
	return chosen, nil
}

// chooseBySize adds the oldest runs until what all hold is within the bound.
func (w *Worktree) chooseBySize(ctx context.Context, req PruneRequest, newest, chosen []RunInfo, result *PruneResult) ([]RunInfo, error) {
	total := int64(0)
	sizes := map[string]int64{}
	for _, r := range newest {
		if slices.ContainsFunc(chosen, func(c RunInfo) bool { return c.Run == r.Run }) {
			continue
		}
		size, err := w.size(ctx, r, newest)
		if err != nil {
			return nil, err
		}
		sizes[r.Run] = size
		total += size
	}
	for _, r := range slices.Backward(newest) {
		if total <= req.MaxSize {
			break
		}
		size, candidate := sizes[r.Run]
		if !candidate {
			continue
		}
		needed, err := w.needed(ctx, r)
		if err != nil {
			return nil, err
		}
		if needed != "" {
			result.Kept = append(result.Kept, fmt.Sprintf("%s: %s", r.Run, needed))
			continue
		}
		chosen = append(chosen, r)
		total -= size
	}
	return chosen, nil
}

// needed says why a run must stay, "" if it may go.
func (w *Worktree) needed(ctx context.Context, r RunInfo) (string, error) {
	holder, err := lineage.Holder(w.repo, r.Run)
	if err != nil {
		return "", err
	}
	if holder != "" {
		return "it is held by " + holder, nil
	}
	current, err := w.currentRuns(ctx)
	if err != nil {
		return "", err
	}
	if current[r.Run] {
		return "it is the current run of a worktree", nil
	}
	if w.config.RequirePushed {
		pushed, err := w.pushed(ctx, r)
		if err != nil || !pushed {
			return "it was not pushed", err
		}
	}
	return "", nil
}

// currentRuns are the current runs of all worktrees.
func (w *Worktree) currentRuns(ctx context.Context) (map[string]bool, error) {
	current := map[string]bool{}
	out, err := w.git.Command(ctx, "worktree", "list", "--porcelain", "-z").Output()
	if err != nil {
		return nil, fault.New(fault.Fatal, "git", "list the worktrees: %w", err)
	}
	for _, line := range strings.Split(string(out), "\x00") {
		path, ok := strings.CutPrefix(line, "worktree ")
		if !ok {
			continue
		}
		there, err := refs.Open(ctx, path)
		if err != nil {
			continue // its directory is gone
		}
		run, err := there.CurrentRun(ctx)
		there.Close()
		if err != nil {
			return nil, err
		}
		current[run] = true
	}
	return current, nil
}

// pushed says whether some remote is known to have all of a run.
func (w *Worktree) pushed(ctx context.Context, r RunInfo) (bool, error) {
	out, err := w.git.Command(ctx, "for-each-ref", "--format=%(objectname) %(refname)", refs.RemotePrefix).Output()
	if err != nil {
		return false, fault.New(fault.Fatal, "git", "list what was pushed: %w", err)
	}
	for line := range strings.Lines(string(out)) {
		id, ref, _ := strings.Cut(strings.TrimSpace(line), " ")
		if strings.HasSuffix(ref, "/runs/"+r.Run) && (id == r.Tip || w.git.Command(ctx, "merge-base", "--is-ancestor", r.Tip, id).Run() == nil) {
			return true, nil
		}
	}
	return false, nil
}

// size is how many bytes only this run holds: neither a branch, nor a tag, nor
// any other run.
func (w *Worktree) size(ctx context.Context, r RunInfo, all []RunInfo) (int64, error) {
	var input strings.Builder
	input.WriteString(r.Tip + "\n")
	for _, other := range all {
		if other.Run != r.Run {
			input.WriteString("^" + other.Tip + "\n")
		}
	}
	out, err := w.git.Command(ctx, "rev-list", "--objects", "--disk-usage", "--ignore-missing", "--stdin", "--not", "--branches", "--tags", "--remotes").
		WithInput([]byte(input.String())).Text()
	if err != nil {
		return 0, fault.New(fault.Integrity, "chain-broken", "measure run '%s': %w", r.Run, err)
	}
	size, _ := strconv.ParseInt(strings.TrimSpace(out), 10, 64)
	return size, nil
}

// drop deletes a run and leaves a tombstone: first the list of pruned runs,
// then the run's own ref, by which it stops to exist, then the rest.
func (w *Worktree) drop(ctx context.Context, r RunInfo) error {
	for attempt := 1; ; attempt++ {
		err := w.dropOnce(ctx, r)
		if errors.Is(err, refs.ErrStale) && attempt < attempts {
			continue
		}
		return err
	}
}

func (w *Worktree) dropOnce(ctx context.Context, r RunInfo) error {
	by, err := w.config.Identity()
	if err != nil {
		return err
	}
	old, err := w.repo.Ref(ctx, refs.PrunedRef)
	if err != nil {
		return err
	}
	var list []share.Pruned
	var parents []string
	if old != "" {
		tree, err := w.repo.CommitTree(ctx, old)
		if err != nil {
			return err
		}
		if list, err = share.ReadPruned(ctx, w.repo, tree); err != nil {
			return err
		}
		parents = []string{old}
	}
	list = append(list, share.Pruned{Run: r.Run, Tip: r.Tip, Start: r.start, Number: r.Checkpoints})
	tx := w.repo.Begin("checkpoint: prune " + r.Run)
	tx.Set(refs.PrunedRef, w.repo.PutCommit(share.PutPruned(w.repo, list), parents, "pruned run "+r.Run+"\n", by), old)
	tx.Delete(refs.RunRef(r.Run), r.Tip)
	for _, ref := range []string{refs.NotesRef(r.Run), refs.SeedRef(r.Run)} {
		id, err := w.repo.Ref(ctx, ref)
		if err != nil {
			return err
		}
		if id != "" {
			tx.Delete(ref, id)
		}
	}
	return tx.Commit(ctx)
}

// pruneSafety drops what undo and redo could go back to, as far as it is old,
// and what killed attempts at tasks left.
func (w *Worktree) pruneSafety(ctx context.Context, req PruneRequest, result *PruneResult) error {
	if req.Safety == 0 {
		return nil
	}
	out, err := w.git.Command(ctx, "for-each-ref", "--format=%(objectname) %(committerdate:unix) %(refname)", refs.LocalPrefix).Output()
	if err != nil {
		return fault.New(fault.Fatal, "git", "list safety checkpoints: %w", err)
	}
	tx := w.repo.Begin("checkpoint: prune safety checkpoints")
	for line := range strings.Lines(string(out)) {
		fields := strings.SplitN(strings.TrimSpace(line), " ", 3)
		if len(fields) != 3 {
			continue
		}
		at, err := strconv.ParseInt(fields[1], 10, 64)
		name := strings.TrimPrefix(fields[2], refs.LocalPrefix)
		_, kind, _ := strings.Cut(name, "/")
		keeps := kind == indexName || kind == restoringName
		if err != nil || keeps || time.Since(time.Unix(at, 0)) < req.Safety {
			continue
		}
		tx.Delete(fields[2], fields[0])
		result.Safety++
	}
	if req.DryRun {
		return nil
	}
	return tx.Commit(ctx)
}

// clearLeftovers removes kept worktrees of tasks whose run has ended or is
// gone, and notes and seeds without a run.
func (w *Worktree) clearLeftovers(ctx context.Context, req PruneRequest, runs []RunInfo, result *PruneResult) error {
	status := map[string]string{}
	for _, r := range runs {
		status[r.Run] = r.Status
	}
	for _, p := range result.Pruned {
		delete(status, p.Run)
	}
	dir, err := filepath.Abs(w.config.WorktreeDir)
	if err != nil {
		return fault.New(fault.Fatal, "io", "find the directory for worktrees: %w", err)
	}
	homes, _ := filepath.Glob(filepath.Join(escapeGlob(filepath.Dir(rerun.Home(dir, w.repo, "x"))), "*"))
	for _, home := range homes {
		s, there := status[filepath.Base(home)]
		if there && !notes.Ended(s) {
			continue
		}
		result.Worktrees = append(result.Worktrees, home)
		if req.DryRun {
			continue
		}
		trees, _ := filepath.Glob(filepath.Join(escapeGlob(home), "*", "tree"))
		for _, tree := range trees {
			w.git.Command(ctx, "worktree", "remove", "--force", tree).Run()
		}
		os.RemoveAll(home)
	}
	out, err := w.git.Command(ctx, "for-each-ref", "--format=%(objectname) %(refname)", refs.NotesPrefix, refs.SeedPrefix).Output()
	if err != nil {
		return fault.New(fault.Fatal, "git", "list notes: %w", err)
	}
	tx := w.repo.Begin("checkpoint: prune debris")
	for line := range strings.Lines(string(out)) {
		id, ref, _ := strings.Cut(strings.TrimSpace(line), " ")
		run := strings.TrimPrefix(strings.TrimPrefix(ref, refs.NotesPrefix), refs.SeedPrefix)
		_, there := status[run]
		dropped := slices.ContainsFunc(result.Pruned, func(p PrunedRun) bool { return p.Run == run })
		if there || dropped || refs.CheckRun(run) != nil {
			continue
		}
		result.Debris = append(result.Debris, ref)
		tx.Verify(refs.RunRef(run), "")
		tx.Delete(ref, id)
	}
	if req.DryRun {
		return nil
	}
	return tx.Commit(ctx)
}
