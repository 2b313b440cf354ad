package worktree

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/git-checkpoint/git-checkpoint/internal/object"
	"github.com/git-checkpoint/git-checkpoint/internal/snapshot"
	"github.com/git-checkpoint/git-checkpoint/notes"
	"github.com/git-checkpoint/git-checkpoint/refs"
)

// fewRecords is how many records are read one by one, by the object store,
// before a process is started that reads all of a run.
const fewRecords = 16

// record is what the note of a checkpoint says beyond its trailers, or why it
// cannot be read.
type record struct {
	notes.Record
	fault string
}

// records are those of a run by checkpoint. Of one that says no more than the
// trailers do, as most, there is none.
type records map[string]record

// add takes in a checkpoint's note.
func (r records) add(checkpoint string, lines []notes.Line, err error) {
	var add record
	switch {
	case errors.Is(err, object.ErrMissing):
		add.fault = fmt.Sprintf("the record of checkpoint %.12s is missing", checkpoint)
	case err != nil:
		add.fault = fmt.Sprintf("the record of checkpoint %.12s is damaged: %v", checkpoint, err)
	default:
		if add.Record, err = notes.DecodeRecord(checkpoint, lines); err != nil {
			add.fault = err.Error()
		}
	}
	if add.fault != "" || add.Replay != "" || add.Artifacts != nil || add.Skipped != nil {
		r[checkpoint] = add
	}
}

// bulk reads all records that a commit of notes holds, in one process. It
// uses nothing that others change, so that it can run beside them.
func (w *Worktree) bulk(ctx context.Context, commit string) (records, error) {
	batch, err := object.OpenBatch(ctx, w.git)
	if err != nil {
		return nil, err
	}
	defer batch.Close()
	objects, blobs, err := listNotes(batch, commit, w.git.HashLen())
	if err != nil {
		return nil, err
	}
	read := records{}
	err = batch.ReadAll(blobs, func(i int, _ string, _ object.Kind, data []byte, err error) error {
		var lines []notes.Line
		if err == nil {
			lines, err = notes.Parse(data)
		}
		if _, twice := read[objects[i]]; !twice {
			read.add(objects[i], lines, err)
		}
		return nil
	})
	return read, err
}

// listNotes lists the notes of a commit at any fan-out, those at the top
// first: the objects that have one, and the blob of each.
func listNotes(batch *object.Batch, commit string, hashLen int) (objects, blobs []string, err error) {
	prefixes, trees := []string{""}, []string{commit + "^{tree}"}
	for len(trees) > 0 {
		var below, subtrees []string
		err := batch.ReadAll(trees, func(i int, _ string, kind object.Kind, data []byte, err error) error {
			if err == nil && kind != object.Tree {
				err = fmt.Errorf("%s is no tree", trees[i])
			}
			if err != nil {
				return err
			}
			entries, err := object.ParseTree(data, hashLen)
			for _, e := range entries {
				path := prefixes[i] + e.Name
				switch {
				case e.Mode == object.ModeTree && len(e.Name) == 2:
					below, subtrees = append(below, path), append(subtrees, e.ID)
				case e.Mode != object.ModeTree && object.IsID(path):
					objects, blobs = append(objects, path), append(blobs, e.ID)
				}
			}
			return err
		})
		if err != nil {
			return nil, nil, err
		}
		prefixes, trees = below, subtrees
	}
	return objects, blobs, nil
}

// few reads the records of some checkpoints of a run.
func (w *Worktree) few(ctx context.Context, run string, checkpoints []string) (records, error) {
	book, err := notes.OpenBook(ctx, w.repo, run)
	if err != nil {
		return nil, err
	}
	read := records{}
	for _, id := range checkpoints {
		lines, err := book.Lines(ctx, id)
		read.add(id, lines, err)
	}
	return read, nil
}

// chainRecords reads the records of a chain, by run. have are those that were
// read already. Of a run whose notes cannot be read there is a warning.
func (w *Worktree) chainRecords(ctx context.Context, chain []*refs.Checkpoint, have map[string]records) error {
	wanted := map[string][]string{}
	var runs []string
	for _, c := range chain {
		if _, ok := have[c.Run]; ok {
			continue
		}
		if wanted[c.Run] == nil {
			runs = append(runs, c.Run)
		}
		wanted[c.Run] = append(wanted[c.Run], c.ID)
	}
	for _, run := range runs {
		commit, err := w.repo.Ref(ctx, refs.NotesRef(run))
		if err != nil {
			return err
		}
		if commit == "" {
			continue
		}
		if len(wanted[run]) <= fewRecords {
			have[run], err = w.few(ctx, run, wanted[run])
		} else {
			have[run], err = w.bulk(ctx, commit)
		}
		if err != nil {
			w.warn("the notes of run '%s' cannot be read: %v", run, err)
		}
	}
	return nil
}

// early is a bulk that runs in the background.
type early struct {
	run  string
	done chan struct{}
	stop context.CancelFunc
	read records
	err  error
}

// beginRecords begins to read the records of a run of which many will be
// wanted; nil where that is not worth while.
func (w *Worktree) beginRecords(ctx context.Context, tip string) (*early, error) {
	c, err := w.repo.ReadCheckpoint(ctx, tip)
	if err != nil || c.Number <= fewRecords {
		return nil, nil // the chain will say what is wrong
	}
	commit, err := w.repo.Ref(ctx, refs.NotesRef(c.Run))
	if err != nil || commit == "" {
		return nil, err
	}
	b := &early{run: c.Run, done: make(chan struct{})}
	ctx, b.stop = context.WithCancel(ctx)
	go func() {
		defer close(b.done)
		b.read, b.err = w.bulk(ctx, commit)
	}()
	return b, nil
}

// wait returns the records. Where they will not be wanted it ends the reading.
func (b *early) wait(wanted bool) (records, error) {
	if !wanted {
		b.stop()
	}
	<-b.done
	b.stop()
	return b.read, b.err
}

// apply adds what a record says to an entry.
func (w *Worktree) apply(e *Entry, r record) {
	if r.fault != "" {
		w.warn("%s", r.fault)
		return
	}
	if r.Replay != "" {
		e.Replay = r.Replay
	}
	if r.Artifacts != nil && json.Unmarshal(r.Artifacts, &e.Artifacts) != nil {
		w.warn("the artifacts of checkpoint %.12s cannot be read", e.Checkpoint)
	}
	if r.Skipped == nil {
		return
	}
	var err error
	if e.Skipped, err = snapshot.DecodeSkips(r.Skipped); err != nil {
		w.warn("what checkpoint %.12s skipped cannot be read", e.Checkpoint)
	}
}
