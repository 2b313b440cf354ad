package object

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"sync"

	"github.com/git-checkpoint/git-checkpoint/internal/fault"
	"github.com/git-checkpoint/git-checkpoint/internal/parallel"
)

// few is how many objects a program's start is not worth: a process with all
// of them in its pipe costs as much as that many questions one after the other.
const few = 32

// ReadEach reads many objects and hands each to visit, in order. body holds
// size bytes and is good until visit returns; what visit leaves of it is
// passed over. The content is not compared with the id: that is for visit,
// which may not want it all at once. An object that is not there is an error
// that matches ErrMissing; an error from visit ends it.
func ReadEach(ctx context.Context, store Store, ids []string, visit func(i int, kind Kind, size int64, body io.Reader) error) error {
	if s, ok := store.(bulkStore); ok && len(ids) > few {
		if b := s.bulk(ctx, ids); b != nil {
			return b.each(ids, visit)
		}
	}
	for i, id := range ids {
		kind, data, err := store.Read(ctx, id)
		if err != nil {
			return err
		}
		if err := visit(i, kind, int64(len(data)), bytes.NewReader(data)); err != nil {
			return err
		}
	}
	return nil
}

// ReadParallel is ReadEach in no certain order: visit is called by several
// goroutines at once where the store reads in process, since most of the work
// is to inflate.
func ReadParallel(ctx context.Context, store Store, ids []string, visit func(i int, kind Kind, size int64, body io.Reader) error) error {
	s, ok := store.(*InProcess)
	if !ok || len(ids) <= few {
		return ReadEach(ctx, store, ids, visit)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	err := parallel.Stretches(len(ids), few, func(lo, hi int) error {
		own := NewInProcess(s.repo)
		defer own.Close()
		for i := lo; i < hi && ctx.Err() == nil; i++ {
			kind, data, waits := s.queued(ids[i])
			var err error
			if !waits {
				kind, data, err = own.Read(ctx, ids[i])
			}
			if err == nil {
				err = visit(i, kind, int64(len(data)), bytes.NewReader(data))
			}
			if err != nil {
				cancel()
				return err
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	return context.Cause(ctx)
}

// bulkStore is a store that reads many objects faster by asking git for all
// of them at once than for one after the other.
type bulkStore interface {
	// bulk returns the git to ask; nil where some of the objects are not
	// written yet, or where it would be no faster.
	bulk(ctx context.Context, ids []string) *Batch
}

func (s *Program) bulk(ctx context.Context, ids []string) *Batch {
	for _, id := range ids {
		if _, _, waits := s.queued(id); waits {
			return nil
		}
	}
	if s.start(ctx) != nil {
		return nil // Read says what is wrong
	}
	return s.batch
}

// each asks for all objects at once and hands over the answers as they come.
func (b *Batch) each(ids []string, visit func(i int, kind Kind, size int64, body io.Reader) error) error {
	asked := make(chan error, 1)
	go func() {
		for _, id := range ids {
			b.in.WriteString(id + "\n")
		}
		asked <- b.in.Flush()
	}()
	for i, id := range ids {
		_, kind, size, err := b.head(id)
		if err == nil {
			body := &io.LimitedReader{R: b.out, N: size}
			if err = visit(i, kind, size, body); err == nil {
				if _, err = io.CopyN(io.Discard, b.out, body.N+1); err != nil {
					return b.fail(id, err)
				}
				continue
			}
		}
		if b.broken == nil {
			// The answers that are still to come are nobody's.
			b.broken = fmt.Errorf("read objects: an earlier read was given up: %w", err)
			b.process.Stop()
		}
		return err
	}
	return <-asked
}

// readTrees reads trees and checks that each is the one that its id says.
func readTrees(ctx context.Context, store Store, objectFormat string, ids []string) (map[string][]rawEntry, error) {
	var mu sync.Mutex
	trees := make(map[string][]rawEntry, len(ids))
	err := ReadParallel(ctx, store, ids, func(i int, kind Kind, size int64, body io.Reader) error {
		id := ids[i]
		if kind != Tree {
			return fault.New(fault.Integrity, "not-a-tree", "read tree %s: it is a %s", id, kind)
		}
		data := make([]byte, size)
		if _, err := io.ReadFull(body, data); err != nil {
			return unreadable(id, err)
		}
		if ID(objectFormat, Tree, data) != id {
			return unreadable(id, errMismatch)
		}
		entries, err := parseRaw(data, len(id)/2)
		if err != nil {
			return fault.New(fault.Integrity, "tree-damaged", "read tree %s: %w", id, err)
		}
		mu.Lock()
		defer mu.Unlock()
		trees[id] = entries
		return nil
	})
	return trees, err
}
