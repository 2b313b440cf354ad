package snapshot

import (
	"strings"

	"golang.org/x/sys/unix"

	"github.com/git-checkpoint/git-checkpoint/internal/git"
)

// look goes from directory to directory and asks for files by their names in
// them, so that the system does not walk whole paths. Whatever is out of the
// ordinary lookByPath looks at.
func look(repo *git.Repo, files []Expectation) (changed []string, err error) {
	top, err := unix.Open(repo.Top, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return lookByPath(repo, files)
	}
	defer unix.Close(top)
	dir, prefix := top, ""
	defer func() { closeBelow(dir, top) }()
	var odd []Expectation
	var st unix.Stat_t
	name := make([]byte, 0, 256)
	for _, f := range files {
		end := strings.LastIndexByte(f.Path, '/') + 1
		if f.Path[:end] != prefix {
			closeBelow(dir, top)
			dir, prefix = openDir(top, f.Path[:end]), f.Path[:end]
		}
		name = append(append(name[:0], f.Path[end:]...), 0)
		if dir < 0 || fstatat(dir, &name[0], &st, false) != nil {
			odd = append(odd, f)
			continue
		}
		if !f.Stat.Same(statOf(&st)) {
			changed = append(changed, f.Path)
		}
	}
	more, err := lookByPath(repo, odd)
	return append(changed, more...), err
}

// openDir opens a directory below top, "a/b/", step by step so that no
// symbolic link is followed; -1 where that fails.
func openDir(top int, path string) int {
	dir := top
	for path != "" {
		var name string
		name, path, _ = strings.Cut(path, "/")
		next, err := unix.Openat(dir, name, unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
		closeBelow(dir, top)
		if err != nil {
			return -1
		}
		dir = next
	}
	return dir
}

func closeBelow(dir, top int) {
	if dir >= 0 && dir != top {
		unix.Close(dir)
	}
}
