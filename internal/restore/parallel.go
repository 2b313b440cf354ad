package restore

import (
	"runtime"
	"sync"
)

// parallel calls do for 0 to n-1, in stretches, one a processor, and returns
// an error of theirs, that of the first stretch that has one.
func parallel(n int, do func(i int) error) error {
	return stretches(n, func(from, to int) error {
		for i := from; i < to; i++ {
			if err := do(i); err != nil {
				return err
			}
		}
		return nil
	})
}

// stretches divides 0 to n-1 into one stretch a processor.
func stretches(n int, do func(from, to int) error) error {
	count := min(runtime.NumCPU(), 8, max(n, 1))
	errs := make([]error, count)
	var running sync.WaitGroup
	for i := range count {
		running.Go(func() { errs[i] = do(i*n/count, (i+1)*n/count) })
	}
	running.Wait()
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}
