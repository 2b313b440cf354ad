//go:build linux && !amd64 && !arm64

package snapshot

import "golang.org/x/sys/unix"

// fstatat looks at a name, which has a NUL after it, in a directory.
func fstatat(fd int, name *byte, st *unix.Stat_t, _ bool) error {
	return unix.Fstatat(fd, unix.BytePtrToString(name), st, unix.AT_SYMLINK_NOFOLLOW)
}

// openat opens a path, which has a NUL after it, in a directory.
func openat(fd int, path *byte, flags int, _ bool) (int, error) {
	return unix.Openat(fd, unix.BytePtrToString(path), flags, 0)
}

// closeDir closes a directory.
func closeDir(fd int, _ bool) { unix.Close(fd) }
