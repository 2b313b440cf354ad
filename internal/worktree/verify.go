package worktree

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/git-checkpoint/git-checkpoint/internal/fault"
	"github.com/git-checkpoint/git-checkpoint/internal/git"
	"github.com/git-checkpoint/git-checkpoint/internal/object"
	"github.com/git-checkpoint/git-checkpoint/internal/snapshot"
	"github.com/git-checkpoint/git-checkpoint/notes"
	"github.com/git-checkpoint/git-checkpoint/refs"
	"github.com/git-checkpoint/git-checkpoint/rerun"
)

// verifier checks everything that checkpoints consist of.
type verifier struct {
	w     *Worktree
	yield func(Finding)
	tips  []string          // what is sound so far, for the check of objects
	names map[string]string // runs by their name in lower case
	// planned are the runs that have, or by their journal should have, a plan.
	planned map[string]bool
	own     map[string][]own // the commits of each run that can be walked, newest first

	damaged  map[string]bool // refs with a fault
	unlisted bool            // git cannot list refs at all
}

// own is a commit of a run's own, on which there must be a note.
type own struct {
	id    string
	start bool
	step  string
	kind  string
}

// Verify checks every ref, chain, note and object of checkpoints and hands
// over each fault. The error is for what kept it from checking.
func (w *Worktree) Verify(ctx context.Context, yield func(Finding)) error {
	v := &verifier{w: w, yield: yield, names: map[string]string{}, own: map[string][]own{}, planned: map[string]bool{}, damaged: map[string]bool{}}
	list, err := v.refs(ctx)
	if err != nil {
		return err
	}
	v.surroundings(ctx)
	runs, noted := map[string]bool{}, map[string]bool{}
	for _, r := range list {
		if run, ok := strings.CutPrefix(r.name, refs.RunPrefix); ok {
			runs[run] = true
			v.run(ctx, run, r)
		}
	}
	for _, r := range list {
		switch {
		case strings.HasPrefix(r.name, refs.RunPrefix):
		case strings.HasPrefix(r.name, refs.NotesPrefix):
			run := strings.TrimPrefix(r.name, refs.NotesPrefix)
			noted[run] = true
			v.notes(ctx, run, r, runs)
		case strings.HasPrefix(r.name, refs.SeedPrefix):
			run := strings.TrimPrefix(r.name, refs.SeedPrefix)
			v.planned[run] = true
			if !runs[run] {
				v.found("debris", r.name, r.id, "it is the seed of a run that is not there")
			}
			v.tips = append(v.tips, r.id)
		case strings.HasPrefix(r.name, refs.LocalPrefix):
			v.local(ctx, r)
		case r.name == refs.PrunedRef:
			v.tips = append(v.tips, r.id)
			if _, err := w.pruned(ctx, r.id); err != nil {
				v.found(code(err, "pruned-damaged"), r.name, r.id, "%v", err)
			}
		default: // what was fetched from a remote
			v.tips = append(v.tips, r.id)
		}
	}
	for run := range v.own {
		if !noted[run] {
			v.found("no-journal", refs.RunRef(run), "", "the run has no notes")
		}
	}
	for _, run := range slices.Sorted(maps.Keys(v.own)) {
		if !v.planned[run] {
			continue
		}
		// Of a run whose journal is damaged, that was said.
		if err := rerun.Verify(ctx, v.w.repo, run); err != nil && noted[run] && !v.damaged[refs.NotesRef(run)] {
			v.found(code(err, "plan-damaged"), refs.SeedRef(run), "", "%v", err)
		}
	}
	v.lineage(ctx)
	return v.objects(ctx)
}

// surroundings checks what stands beside the refs: settings, this worktree's
// own files, its index, the list of worktrees.
func (v *verifier) surroundings(ctx context.Context) {
	for _, f := range v.w.faults {
		v.found(code(f, "settings"), "", "", "%v", f)
	}
	for _, name := range []string{"lock", "refs-lock", "transaction", "index", "index.key", "setup", "unignored"} {
		if info, err := os.Lstat(v.w.home(name)); err == nil && !info.Mode().IsRegular() {
			v.found("file-damaged", "", "", "'%s' is no file; it can be removed", v.w.home(name))
		}
	}
	if err := v.w.repo.CheckCurrent(ctx); err != nil {
		v.found(code(err, "ref-damaged"), refs.Current, "", "%v", err)
	}
	if v.w.git.Top != "" {
		if _, err := snapshot.ReadUserIndex(ctx, v.w.git); err != nil {
			v.found("index-damaged", "", "", "%v", err)
		}
	}
	if v.unlisted {
		return // these would only say it again
	}
	if _, err := v.w.repo.Head(ctx); err != nil {
		v.found(code(err, "head-damaged"), "HEAD", "", "%v", err)
	}
	if err := v.w.git.Command(ctx, "worktree", "list", "--porcelain").Run(); err != nil {
		v.found("worktrees-damaged", "", "", "list the worktrees: %v", err)
	}
}

// lineage checks that runs descend from each other as their journals and
// their commits say.
func (v *verifier) lineage(ctx context.Context) {
	runs, err := v.w.List(ctx, true, "")
	if err != nil {
		if !v.unlisted {
			v.found(code(err, "lineage-unreadable"), "", "", "read the lineage: %v", err)
		}
		return
	}
	graph := v.w.derive(runs)
	parents := map[string]string{}
	for _, r := range runs {
		start, err := v.w.repo.StartOf(ctx, r.Tip)
		if err != nil || r.Fault != "" {
			continue // reported with the chain
		}
		parents[start.ID] = start.Previous()
		if said := start.Lineage; (said == nil) != (r.Lineage == nil) || said != nil && *said != *r.Lineage {
			v.found("lineage-differs", refs.RunRef(r.Run), start.ID, "its journal and its start commit tell different lineages")
		}
	}
	for _, f := range graph.Check(func(start string) string { return parents[start] }) {
		v.found(f.Code, refs.RunRef(f.Run), "", "%s", f.Message)
	}
}

func (v *verifier) found(code, ref, object, format string, args ...any) {
	v.damaged[ref] = true
	v.yield(Finding{Code: code, Ref: ref, Object: object, Message: fmt.Sprintf(format, args...)})
}

// code of an error, for a finding.
func code(err error, otherwise string) string {
	var e *fault.Error
	if errors.As(err, &e) {
		return e.Code
	}
	return otherwise
}

type namedRef struct{ name, id, kind string }

// refs lists our refs. Those that git cannot read it names on stderr, and
// leaves out; each of them is a fault.
func (v *verifier) refs(ctx context.Context) ([]namedRef, error) {
	var list []namedRef
	var stderr strings.Builder
	c := v.w.git.Command(ctx, "for-each-ref", "--format=%(objectname) %(objecttype) %(refname)", "refs/checkpoints/", refs.NotesPrefix)
	c.Stderr = &stderr
	out, err := c.Output()
	if err != nil {
		// A ref to an object that is missing makes git give up on the types.
		stderr.Reset()
		c = v.w.git.Command(ctx, "for-each-ref", "--format=%(objectname) unknown %(refname)", "refs/checkpoints/", refs.NotesPrefix)
		c.Stderr = &stderr
		if out, err = c.Output(); err != nil {
			if ctx.Err() != nil {
				return nil, err
			}
			v.unlisted = true
			v.found("refs-unreadable", "", "", "git cannot list refs: %s", strings.TrimSpace(stderr.String()))
			return nil, nil
		}
	}
	for _, line := range strings.Split(stderr.String(), "\n") {
		if _, name, ok := strings.Cut(line, "broken ref "); ok {
			v.found("ref-damaged", strings.TrimSpace(name), "", "git cannot read the ref")
		}
	}
	for _, line := range strings.Split(string(out), "\n") {
		fields := strings.SplitN(line, " ", 3)
		if len(fields) != 3 {
			continue
		}
		r := namedRef{name: fields[2], id: fields[0], kind: fields[1]}
		if r.kind == "unknown" {
			kind, _, err := v.w.repo.Objects().Read(ctx, r.id)
			if err != nil {
				v.found(code(err, "object-missing"), r.name, r.id, "%v", err)
				continue
			}
			r.kind = string(kind)
		}
		if r.kind != string(object.Commit) {
			v.found("not-a-commit", r.name, r.id, "the ref holds a %s, not a commit", r.kind)
			continue
		}
		list = append(list, r)
	}
	return list, nil
}

// run checks a chain: that it can be walked, and that each commit says what
// its place in the chain says.
func (v *verifier) run(ctx context.Context, run string, r namedRef) {
	if err := refs.CheckRun(run); err != nil {
		v.found("invalid-run", r.name, r.id, "%v", err)
	}
	if other, ok := v.names[strings.ToLower(run)]; ok {
		v.found("same-name", r.name, r.id, "it differs from run '%s' by case only", other)
	}
	v.names[strings.ToLower(run)] = run
	var after *refs.Checkpoint
	var commits []own
	err := v.w.repo.Walk(ctx, r.id, func(c *refs.Checkpoint) bool {
		v.checkpoint(ctx, r.name, run, c, after)
		after = c
		if c.Run == run {
			commits = append(commits, own{c.ID, c.Kind == refs.KindStart, c.Step, c.Kind})
		}
		return true
	})
	if err != nil {
		v.found(code(err, "chain-broken"), r.name, r.id, "%v", err)
		return
	}
	v.own[run] = commits
	v.tips = append(v.tips, r.id)
}

func (v *verifier) checkpoint(ctx context.Context, ref, run string, c, after *refs.Checkpoint) {
	wrong := func(code, format string, args ...any) { v.found(code, ref, c.ID, format, args...) }
	switch {
	case after == nil && c.Run != run:
		wrong("wrong-run", "the tip says that it belongs to run '%s'", c.Run)
	case after != nil && after.Kind != refs.KindStart && c.Run != after.Run:
		wrong("wrong-run", "it belongs to run '%s', and the next to '%s' without a start commit between", c.Run, after.Run)
	case after != nil && after.Kind != refs.KindStart && after.Number != 0 && c.Number+1 != after.Number:
		wrong("wrong-number", "it is number %d, and the next is number %d", c.Number, after.Number)
	}
	if after != nil && after.Kind == refs.KindStart && after.Lineage != nil && after.Lineage.Checkpoint != c.ID {
		v.found("wrong-lineage", ref, after.ID, "its lineage names checkpoint %s, its parent is %s", after.Lineage.Checkpoint, c.ID)
	}
	parents := map[string]bool{}
	for _, p := range c.Parents {
		parents[p] = true
	}
	if c.Index != "" && c.Kind != refs.KindStart {
		if !parents[c.Index] {
			wrong("index-not-kept", "its index commit %s is no parent, so gc may take it", c.Index)
		}
		if tree, err := v.w.repo.CommitTree(ctx, c.Index); err != nil {
			wrong(code(err, "index-commit-damaged"), "its index commit: %v", err)
		} else if _, err := snapshot.ReadIndexTree(ctx, v.w.git, v.w.repo.Objects(), tree, ""); err != nil {
			wrong(code(err, "index-commit-damaged"), "its index commit: %v", err)
		}
	}
	if c.Step != "" && refs.CheckStep(c.Step) != nil {
		wrong("invalid-step", "'%s' is no step name", c.Step)
	}
}

// notes checks the notes of a run: every line, the journal, a record for each
// checkpoint, one note an object.
func (v *verifier) notes(ctx context.Context, run string, r namedRef, runs map[string]bool) {
	v.tips = append(v.tips, r.id)
	if !runs[run] {
		v.found("debris", r.name, r.id, "they are the notes of a run that is not there")
		return
	}
	tree, err := v.w.repo.CommitTree(ctx, r.id)
	if err != nil {
		v.found(code(err, "notes-damaged"), r.name, r.id, "%v", err)
		return
	}
	t, err := notes.LoadTree(ctx, v.w.repo.Objects(), v.w.git.ObjectFormat, tree)
	if err != nil {
		v.found(code(err, "notes-damaged"), r.name, r.id, "%v", err)
		return
	}
	if twice, err := t.Duplicates(ctx); err == nil {
		for _, id := range twice {
			v.found("note-twice", r.name, id, "the object has two notes")
		}
	}
	chain := map[string]own{}
	for _, c := range v.own[run] {
		chain[c.id] = c
	}
	seen := map[string]bool{}
	err = t.Walk(ctx, func(id, blob string) error {
		seen[id] = true
		_, data, err := v.w.repo.Objects().Read(ctx, blob)
		if err != nil {
			v.found(code(err, "note-damaged"), r.name, id, "%v", err)
			return nil
		}
		faults := notes.Check(data)
		for _, fault := range faults {
			v.found(code(fault, "note-damaged"), r.name, id, "%v", fault)
		}
		if len(faults) > 0 {
			return nil
		}
		lines, err := notes.Parse(data)
		for _, l := range lines {
			if l.Event == rerun.EventPlanned {
				v.planned[run] = true
			}
		}
		if err == nil {
			var state notes.State
			if state, err = notes.Derive(lines); err == nil && chain[id].start && !state.Known {
				v.found("no-journal", r.name, id, "the journal does not say how the run was created")
			}
		}
		var record notes.Record
		if err == nil {
			record, err = notes.DecodeRecord(id, lines)
		}
		if err != nil {
			v.found(code(err, "note-damaged"), r.name, id, "%v", err)
			return nil
		}
		if c, ok := chain[id]; ok && !c.start && record.StepKind != "" && (record.StepName != c.step || record.StepKind != c.kind) {
			v.found("record-differs", r.name, id, "its record tells of another step: '%s', of kind %s", record.StepName, record.StepKind)
		}
		return nil
	})
	if err != nil {
		v.found(code(err, "notes-damaged"), r.name, r.id, "%v", err)
	}
	v.setBack(ctx, run, chain, seen)
	for _, c := range v.own[run] {
		switch {
		case seen[c.id] || err != nil:
		case c.start:
			v.found("no-journal", r.name, c.id, "the run has no journal")
		default:
			v.found("no-record", r.name, c.id, "the checkpoint has no record")
		}
	}
}

// setBack tells of a run that once went further than it does now: a note is on
// a commit that goes on from its tip.
func (v *verifier) setBack(ctx context.Context, run string, chain map[string]own, noted map[string]bool) {
	if len(v.own[run]) == 0 {
		return
	}
	tip, walked := v.own[run][0].id, map[string]bool{}
	for _, id := range slices.Sorted(maps.Keys(noted)) {
		_, ours := chain[id]
		for at := id; !ours && !walked[at]; {
			walked[at] = true
			c, err := v.w.repo.ReadCheckpoint(ctx, at)
			if err != nil || c.Run != run || c.Kind == refs.KindStart {
				break // of what a run that parted from it left, or collected by git
			}
			if at = c.Previous(); at != tip {
				_, ours = chain[at]
				continue
			}
			// A save may have come to its end meanwhile.
			if now, err := v.w.repo.Ref(ctx, refs.RunRef(run)); err == nil && now == tip {
				v.found("run-set-back", refs.RunRef(run), id, "the run's notes tell of this checkpoint, which goes on from its tip")
			}
			return
		}
	}
}

// local checks a worktree's own refs.
func (v *verifier) local(ctx context.Context, r namedRef) {
	v.tips = append(v.tips, r.id)
	parts := strings.Split(strings.TrimPrefix(r.name, refs.LocalPrefix), "/")
	// Only operations have a form of their own to check.
	isOperation := func(name string) bool {
		return name == restoringName || name+"/" == undoName || name+"/" == redoName || name+"/" == safetyName
	}
	if len(parts) < 2 || parts[0] == rerun.LocalTasks || !isOperation(parts[1]) {
		return
	}
	if _, err := v.w.readOperation(ctx, r.id); err != nil {
		v.found(code(err, "operation-damaged"), r.name, r.id, "%v", err)
		return
	}
	if parts[1] == restoringName && parts[0] == v.w.id {
		v.found("restore-in-progress", r.name, r.id, "a restore is unfinished; git checkpoint restore --continue or undo")
	}
}

// objects checks that everything the sound refs reach is there and is what
// its id says.
func (v *verifier) objects(ctx context.Context) error {
	if len(v.tips) == 0 {
		return nil
	}
	c := v.w.git.Command(ctx, append([]string{"fsck", "--no-dangling", "--no-reflogs", "--no-progress", "--full"}, v.tips...)...)
	var out strings.Builder
	c.Stdout, c.Stderr = &out, &out
	err := c.Run()
	var failed *git.Error
	if err != nil && !errors.As(err, &failed) {
		return err
	}
	lines := bufio.NewScanner(strings.NewReader(out.String()))
	lines.Buffer(nil, 1<<20)
	reported := false
	for lines.Scan() {
		line := lines.Text()
		fields := strings.Fields(line)
		switch {
		case len(fields) == 3 && fields[0] == "missing":
			v.found("object-missing", "", fields[2], "%s is missing", fields[1])
			reported = true
		case strings.HasPrefix(line, "error") && strings.Contains(line, ": "):
			v.found("object-damaged", "", idIn(fields), "%s", line)
			reported = true
		}
	}
	if err != nil && !reported {
		v.found("object-damaged", "", "", "git fsck: %s", strings.TrimSpace(out.String()))
	}
	return nil
}

func idIn(fields []string) string {
	for _, f := range fields {
		f = strings.Trim(f, ":,'()")
		if object.IsID(f) {
			return f
		}
	}
	return ""
}
