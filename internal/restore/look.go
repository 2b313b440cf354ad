package restore

import (
	"slices"
	"sync"

	"github.com/git-checkpoint/git-checkpoint/internal/git"
	"github.com/git-checkpoint/git-checkpoint/internal/index"
	"github.com/git-checkpoint/git-checkpoint/internal/snapshot"
)

// expectation is what a file must be like.
type expectation struct {
	path string
	stat index.Stat
}

// looked is what differing found.
type looked struct {
	changed []string
	err     error
}

// differing looks at files, sorted by path, and returns those that are not
// there, or not as expected, in order. Nothing beyond a symbolic link counts.
func differing(repo *git.Repo, files []expectation) ([]string, error) {
	var mu sync.Mutex
	var changed []string
	err := stretches(len(files), func(from, to int) error {
		here, err := look(repo, files[from:to])
		mu.Lock()
		defer mu.Unlock()
		changed = append(changed, here...)
		return err
	})
	slices.Sort(changed)
	return changed, err
}

// lookByPath is look on any system.
func lookByPath(repo *git.Repo, files []expectation) (changed []string, err error) {
	l := snapshot.NewLstat(repo)
	for _, f := range files {
		fi, err := l.Get(f.path)
		if err != nil {
			return changed, err
		}
		if fi == nil || !sameStat(f.stat, index.StatOf(fi)) {
			changed = append(changed, f.path)
		}
	}
	return changed, nil
}
