package git

import (
	"os"
	"strconv"
	"sync/atomic"
)

// Step marks a point at which something durable was done: an object, a ref, a
// file. With GIT_CHECKPOINT_KILL=n the process ends at the n-th one, without
// any cleaning up, as a kill would end it; the tests go through every n. A
// trace names the steps.
func Step(what string) {
	if killAt == 0 {
		return
	}
	n := steps.Add(1)
	Trace("step %d: %s", n, what)
	if n == killAt {
		kill()
	}
}

var (
	steps  atomic.Int64
	killAt = func() int64 {
		n, _ := strconv.ParseInt(os.Getenv("GIT_CHECKPOINT_KILL"), 10, 64)
		return n
	}()
)
