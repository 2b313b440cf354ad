package restore

import (
	"runtime"
	"sync"
)

// parallel calls do for 0 to n-1, in stretches, one a processor. What fails
// ends its stretch.
func parallel(n int, do func(i int) error) error {
	count := min(runtime.NumCPU(), 8, max(n, 1))
	errs := make([]error, count)
	var running sync.WaitGroup
	for s := range count {
		running.Go(func() {
			for i := s * n / count; i < (s+1)*n/count && errs[s] == nil; i++ {
				errs[s] = do(i)
			}
		})
	}
	running.Wait()
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}
