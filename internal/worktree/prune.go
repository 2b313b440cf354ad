package worktree

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/git-checkpoint/git-checkpoint/internal/fault"
	"github.com/git-checkpoint/git-checkpoint/internal/object"
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
	Size   int64  `json:"size"` // bytes that no branch, tag or newer run holds
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
	if len(chosen) > 0 {
		sizes, err := w.sizes(ctx, runs)
		if err != nil {
			return nil, err
		}
		for part := range slices.Chunk(chosen, dropMany) {
			if !req.DryRun {
				if part, err = w.drop(ctx, part, result); err != nil {
					return nil, err
				}
			}
			for _, r := range part {
				result.Pruned = append(result.Pruned, PrunedRun{Run: r.Run, Tip: r.Tip, Status: r.Status, Size: sizes[r.Run]})
			}
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
	slices.SortStableFunc(newest, func(a, b RunInfo) int { return last[b.Run].Compare(last[a.Run]) })
	keeping, err := w.keeping(ctx)
	if err != nil {
		return nil, err
	}
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
		stays, err := keeping.stays(ctx, r, result)
		if err != nil {
			return nil, err
		}
		if !stays {
			chosen = append(chosen, r)
		}
	}
	slices.Reverse(chosen)
	if req.MaxSize > 0 {
		return w.chooseBySize(ctx, req, keeping, newest, chosen, result)
	}
	return chosen, nil
}

// chooseBySize adds the oldest runs until what all hold is within the bound.
func (w *Worktree) chooseBySize(ctx context.Context, req PruneRequest, keeping *keeping, newest, chosen []RunInfo, result *PruneResult) ([]RunInfo, error) {
	sizes, err := w.sizes(ctx, newest)
	if err != nil {
		return nil, err
	}
	total := int64(0)
	for _, size := range sizes {
		total += size
	}
	going := map[string]bool{}
	for _, r := range chosen {
		going[r.Run] = true
		total -= sizes[r.Run]
	}
	for _, r := range slices.Backward(newest) {
		if total <= req.MaxSize {
			break
		}
		if going[r.Run] {
			continue
		}
		stays, err := keeping.stays(ctx, r, result)
		if err != nil {
			return nil, err
		}
		if !stays {
			chosen = append(chosen, r)
			total -= sizes[r.Run]
		}
	}
	return chosen, nil
}

// keeping is what makes runs stay.
type keeping struct {
	w       *Worktree
	current map[string]bool
	pushed  map[string][]string // tips that remotes are known to have, by run; nil: no matter
}

func (w *Worktree) keeping(ctx context.Context) (k *keeping, err error) {
	k = &keeping{w: w}
	if k.current, err = w.currentRuns(ctx); err != nil || !w.config.RequirePushed {
		return k, err
	}
	pushed, err := w.repo.List(ctx, "what was pushed", refs.RemotePrefix)
	if err != nil {
		return nil, err
	}
	k.pushed = map[string][]string{}
	for _, r := range pushed {
		if i := strings.LastIndex(r.Name, "/runs/"); i >= 0 {
			run := r.Name[i+len("/runs/"):]
			k.pushed[run] = append(k.pushed[run], r.ID)
		}
	}
	return k, nil
}

// stays says whether a run must stay, and tells why in the result.
func (k *keeping) stays(ctx context.Context, r RunInfo, result *PruneResult) (bool, error) {
	needed, err := k.needed(ctx, r)
	if needed != "" {
		result.Kept = append(result.Kept, fmt.Sprintf("%s: %s", r.Run, needed))
	}
	return needed != "", err
}

// needed says why a run must stay, "" if it may go.
func (k *keeping) needed(ctx context.Context, r RunInfo) (string, error) {
	holder, err := lineage.Holder(k.w.repo, r.Run)
	switch {
	case err != nil:
		return "", err
	case holder != "":
		return "it is held by " + holder, nil
	case k.current[r.Run]:
		return "it is the current run of a worktree", nil
	case k.pushed == nil, slices.Contains(k.pushed[r.Run], r.Tip):
		return "", nil
	}
	for _, id := range k.pushed[r.Run] {
		if k.w.git.Command(ctx, "merge-base", "--is-ancestor", r.Tip, id).Run() == nil {
			return "", nil
		}
	}
	return "it was not pushed", nil
}

// currentRuns are the current runs of all worktrees.
func (w *Worktree) currentRuns(ctx context.Context) (map[string]bool, error) {
	current := map[string]bool{}
	err := w.repo.EachWorktree(ctx, func(there *refs.Repository) error {
		run, err := there.CurrentRun(ctx)
		current[run] = true
		return err
	})
	return current, err
}

// sizes tell how many bytes each run holds that neither a branch, nor a tag,
// nor a newer run does: what is freed by dropping it after all older ones.
func (w *Worktree) sizes(ctx context.Context, runs []RunInfo) (map[string]int64, error) {
	var tips strings.Builder
	for _, r := range runs {
		tips.WriteString(r.Tip + "\n")
	}
	list, err := w.git.Command(ctx, "rev-list", "--objects", "--no-object-names", "--in-commit-order", "--parents", "--ignore-missing", "--missing=allow-any", "--stdin",
		"--not", "--branches", "--tags", "--remotes").WithInput([]byte(tips.String())).Output()
	if err != nil {
		return nil, fault.New(fault.Integrity, "chain-broken", "measure the runs: %w", err)
	}
	var ids strings.Builder
	parents := map[string][]string{}
	for line := range strings.Lines(string(list)) {
		fields := strings.Fields(line)
		ids.WriteString(fields[0] + "\n")
		parents[fields[0]] = fields[1:]
	}
	newest := slices.Clone(runs)
	slices.SortStableFunc(newest, func(a, b RunInfo) int { return b.CreatedAt.Compare(a.CreatedAt) })
	holder := map[string]string{}
	for _, r := range newest {
		for left := []string{r.Tip}; len(left) > 0; {
			id := left[len(left)-1]
			left = left[:len(left)-1]
			if more, listed := parents[id]; listed && holder[id] == "" {
				holder[id] = r.Run
				left = append(left, more...)
			}
		}
	}
	measured, err := w.git.Command(ctx, "cat-file", "--batch-check=%(objecttype) %(objectsize:disk) %(objectname)").WithInput([]byte(ids.String())).Output()
	if err != nil {
		return nil, fault.New(fault.Fatal, "git", "measure the runs: %w", err)
	}
	sizes := map[string]int64{}
	of := "" // the run of the last commit, after which its objects come
	for line := range strings.Lines(string(measured)) {
		fields := strings.Fields(line)
		if len(fields) != 3 {
			continue
		}
		if fields[0] == string(object.Commit) {
			of = holder[fields[2]]
		}
		size, _ := strconv.ParseInt(fields[1], 10, 64)
		sizes[of] += size
	}
	return sizes, nil
}

// dropMany bounds how many runs are dropped in one transaction.
const dropMany = 500

// drop deletes runs and leaves tombstones: first the list of pruned runs, then
// each run's own ref, by which it stops to exist, then the rest. It returns
// those that it dropped; one that went on meanwhile is kept.
func (w *Worktree) drop(ctx context.Context, runs []RunInfo, result *PruneResult) ([]RunInfo, error) {
	for attempt := 1; ; attempt++ {
		var still []RunInfo
		for _, r := range runs {
			tip, err := w.repo.Ref(ctx, refs.RunRef(r.Run))
			switch {
			case err != nil:
				return nil, err
			case tip == r.Tip:
				still = append(still, r)
			case tip != "":
				result.Kept = append(result.Kept, r.Run+": somebody went on with it")
			}
		}
		if runs = still; len(runs) == 0 {
			return nil, nil
		}
		err := w.dropOnce(ctx, runs)
		if errors.Is(err, refs.ErrStale) && attempt < attempts {
			continue
		}
		return runs, err
	}
}

func (w *Worktree) dropOnce(ctx context.Context, runs []RunInfo) error {
	by, err := w.config.Identity()
	if err != nil {
		return err
	}
	old, err := w.repo.Ref(ctx, refs.PrunedRef)
	if err != nil {
		return err
	}
	list, err := w.pruned(ctx, old)
	if err != nil {
		return err
	}
	var parents []string
	if old != "" {
		parents = []string{old}
	}
	message := "pruned run " + runs[0].Run + "\n"
	if len(runs) > 1 {
		message = fmt.Sprintf("pruned %d runs\n", len(runs))
	}
	tx := w.repo.Begin("checkpoint: prune")
	for _, r := range runs {
		list = append(list, share.Pruned{Run: r.Run, Tip: r.Tip, Start: r.start, Number: r.Checkpoints})
	}
	tx.Set(refs.PrunedRef, w.repo.PutCommit(share.PutPruned(w.repo, list), parents, message, by), old)
	for _, r := range runs {
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
	}
	return tx.Commit(ctx)
}

// pruned reads the list of pruned runs in a commit; none where that is empty.
func (w *Worktree) pruned(ctx context.Context, commit string) ([]share.Pruned, error) {
	if commit == "" {
		return nil, nil
	}
	tree, err := w.repo.CommitTree(ctx, commit)
	if err != nil {
		return nil, err
	}
	return share.ReadPruned(ctx, w.repo, tree)
}

// prunedRuns are the names of the runs that were pruned. A list that cannot be
// read says nothing; verify tells of it.
func (w *Worktree) prunedRuns(ctx context.Context) map[string]bool {
	names := map[string]bool{}
	id, err := w.repo.Ref(ctx, refs.PrunedRef)
	if err != nil {
		return names
	}
	list, err := w.pruned(ctx, id)
	if err != nil {
		w.warn("%v", err)
	}
	for _, p := range list {
		names[p.Run] = true
	}
	return names
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
		rerun.RemoveHome(ctx, w.repo, home)
	}
	kept, err := w.repo.List(ctx, "notes", refs.NotesPrefix, refs.SeedPrefix)
	if err != nil {
		return err
	}
	tx := w.repo.Begin("checkpoint: prune debris")
	for _, r := range kept {
		run := strings.TrimPrefix(strings.TrimPrefix(r.Name, refs.NotesPrefix), refs.SeedPrefix)
		_, there := status[run]
		dropped := slices.ContainsFunc(result.Pruned, func(p PrunedRun) bool { return p.Run == run })
		if there || dropped || refs.CheckRun(run) != nil {
			continue
		}
		result.Debris = append(result.Debris, r.Name)
		tx.Verify(refs.RunRef(run), "")
		tx.Delete(r.Name, r.ID)
	}
	if req.DryRun {
		return nil
	}
	return tx.Commit(ctx)
}

func escapeGlob(dir string) string {
	return strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`).Replace(filepath.ToSlash(dir))
}
