package restore

import (
	"strings"

	"golang.org/x/sys/unix"

	"github.com/git-checkpoint/git-checkpoint/internal/git"
	"github.com/git-checkpoint/git-checkpoint/internal/index"
)

// look goes from directory to directory and asks for files by their names in
// them, so that the system does not walk whole paths. Whatever is out of the
// ordinary lookByPath looks at.
func look(repo *git.Repo, files []expectation) (changed []string, err error) {
	top, err := unix.Open(repo.Top, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return lookByPath(repo, files)
	}
	defer unix.Close(top)
	dir, prefix := top, ""
	defer func() { closeDir(dir, top) }()
	var odd []expectation
	for _, f := range files {
		end := strings.LastIndexByte(f.path, '/') + 1
		if f.path[:end] != prefix {
			closeDir(dir, top)
			dir, prefix = openDir(top, f.path[:end]), f.path[:end]
		}
		var st unix.Stat_t
		if dir < 0 || unix.Fstatat(dir, f.path[end:], &st, unix.AT_SYMLINK_NOFOLLOW) != nil || st.Size>>32 != 0 {
			odd = append(odd, f)
			continue
		}
		now := index.Stat{MTimeSec: uint32(st.Mtim.Sec), MTimeNsec: uint32(st.Mtim.Nsec), Ino: uint32(st.Ino), Size: uint32(st.Size)}
		if !sameStat(f.stat, now) {
			changed = append(changed, f.path)
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
		closeDir(dir, top)
		if err != nil {
			return -1
		}
		dir = next
	}
	return dir
}

func closeDir(dir, top int) {
	if dir >= 0 && dir != top {
		unix.Close(dir)
	}
}
