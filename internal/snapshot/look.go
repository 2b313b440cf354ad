package snapshot

import (
	"slices"
	"sync"

	"github.com/git-checkpoint/git-checkpoint/internal/git"
	"github.com/git-checkpoint/git-checkpoint/internal/index"
	"github.com/git-checkpoint/git-checkpoint/internal/parallel"
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
	var mu sync.Mutex
	var all []string
	err := parallel.Stretches(len(files), 1000, func(lo, hi int) error {
		changed, err := look(repo, files[lo:hi])
		mu.Lock()
		all = append(all, changed...)
		mu.Unlock()
		return err
	})
	slices.Sort(all)
	return all, err
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
