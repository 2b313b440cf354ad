package parallel

// Beside is work that another goroutine does, one piece after the other. Who
// waits for it gets its panic, if it ends by one, as if it had been done there.
type Beside struct {
	done     chan struct{} // closed when what was begun last is over; nil if nothing was
	panicked any
}

// Go begins a piece of work as soon as those begun before are over.
func (b *Beside) Go(do func()) {
	before, done := b.done, make(chan struct{})
	b.done = done
	go func() {
		defer close(done)
		if before != nil {
			<-before
		}
		if b.panicked == nil {
			defer func() { b.panicked = recover() }()
			do()
		}
	}()
}

// Wait waits until all is done. Several goroutines may, but not beside Go.
func (b *Beside) Wait() {
	if b.done == nil {
		return
	}
	<-b.done
	if b.panicked != nil {
		panic(b.panicked)
	}
}
