package snapshot

import (
	"errors"
	"runtime"
	"slices"
	"sync"

	"github.com/git-checkpoint/git-checkpoint/internal/git"
	"github.com/git-checkpoint/git-checkpoint/internal/index"
)

// Expectation is what a file must be like.
type Expectation struct {
	Path string
	Stat index.Stat
}

// Differing looks at files and returns those that are not there, or not as
// expected, sorted. Nothing beyond a symbolic link counts. It is fastest where
// files that are in one directory follow each other.
func Differing(repo *git.Repo, files []Expectation) ([]string, error) {
	var running sync.WaitGroup
	count := min(runtime.NumCPU(), 8, len(files)/1000+1)
	changed, errs := make([][]string, count), make([]error, count)
	for i := range count {
		running.Go(func() {
			changed[i], errs[i] = look(repo, files[i*len(files)/count:(i+1)*len(files)/count])
		})
	}
	running.Wait()
	all := slices.Concat(changed...)
	slices.Sort(all)
	return all, errors.Join(errs...)
}

// lookByPath is look on any system.
func lookByPath(repo *git.Repo, files []Expectation) (changed []string, err error) {
	l := NewLstat(repo)
	for _, f := range files {
		fi, err := l.Get(f.Path)
		if err != nil {
			return changed, err
		}
		if fi == nil || !f.Stat.Same(index.StatOf(fi)) {
			changed = append(changed, f.Path)
		}
	}
	return changed, nil
}
