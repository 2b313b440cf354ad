package object

import "context"

// followed is how many objects are handed over at once: to wake the other
// goroutine for every one would take longer than to read it.
const followed = 64

// slots is how many bases of deltas are kept: a chain does not come back to
// what it has passed, and its commits lie beside each other in a pack.
const slots = 128

// batch is what was read, up to an error or the end.
type batch struct {
	list []object
	data []byte // the content of all of them
	err  error
}

type object struct {
	id   string
	kind Kind
	end  int // where in data its content ends
}

// Follow reads objects of which each says which is the next: next returns its
// id, "" at the end. visit gets them in order and returns false to end it; data
// is good until it returns. Another goroutine reads ahead, so next and visit
// must not change the same things.
func (s *InProcess) Follow(ctx context.Context, first string, next func(data []byte) string, visit func(id string, kind Kind, data []byte) (more bool)) error {
	if len(s.order) > 0 { // what waits to be written is for this goroutine alone
		for id := first; id != ""; {
			kind, data, _, err := s.peek(ctx, id)
			if err != nil || !visit(id, kind, data) {
				return err
			}
			id = next(data)
		}
		return nil
	}
	ctx, cancel := context.WithCancel(ctx)
	read, free, done := make(chan *batch), make(chan *batch, 2), make(chan struct{})
	free <- &batch{}
	free <- &batch{}
	go func() {
		defer close(done)
		defer close(read)
		own := NewInProcess(s.repo)
		own.packs.cache.slots = make([]slot, slots)
		defer own.Close()
		for id := first; id != ""; {
			var b *batch
			select {
			case b = <-free:
			case <-ctx.Done():
				return
			}
			b.list, b.data = b.list[:0], b.data[:0]
			for id != "" && len(b.list) < followed && b.err == nil {
				var kind Kind
				var data []byte
				if kind, data, _, b.err = own.peek(ctx, id); b.err == nil {
					b.data = append(b.data, data...)
					b.list = append(b.list, object{id, kind, len(b.data)})
					id = next(data)
				}
			}
			if b.err != nil {
				id = ""
			}
			select {
			case read <- b:
			case <-ctx.Done():
				return
			}
		}
	}()
	defer func() {
		cancel()
		<-done
	}()
	for b := range read {
		begin := 0
		for _, o := range b.list {
			if !visit(o.id, o.kind, b.data[begin:o.end]) {
				return nil
			}
			begin = o.end
		}
		if b.err != nil {
			return b.err
		}
		free <- b
	}
	return context.Cause(ctx)
}
