// Package parallel does the same to many things, with all processors.
package parallel

import (
	"runtime"
	"sync"
	"sync/atomic"
)

// most is how many goroutines there are at the most.
const most = 8

// Each calls do for 0 to n-1, several at once. After an error no more calls
// are begun; the first error is returned.
func Each(n int, do func(i int) error) error {
	var next atomic.Int64
	var failed atomic.Pointer[error]
	work := func() {
		for failed.Load() == nil {
			i := int(next.Add(1)) - 1
			if i >= n {
				return
			}
			if err := do(i); err != nil {
				failed.CompareAndSwap(nil, &err)
			}
		}
	}
	var others sync.WaitGroup
	for range min(n, runtime.GOMAXPROCS(0), most) - 1 {
		others.Go(work)
	}
	work()
	others.Wait()
	if err := failed.Load(); err != nil {
		return *err
	}
	return nil
}

// Stretches cuts 0 to n-1 into stretches, one a processor, but not many that
// are shorter than least, and calls do for each: lo to hi-1.
func Stretches(n, least int, do func(lo, hi int) error) error {
	count := min(runtime.GOMAXPROCS(0), most, n/least+1)
	return Each(count, func(i int) error { return do(i*n/count, (i+1)*n/count) })
}
