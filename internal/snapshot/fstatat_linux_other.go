//go:build linux && !amd64 && !arm64

package snapshot

import "golang.org/x/sys/unix"

// fstatat looks at a name, which has a NUL after it, in a directory.
func fstatat(fd int, name *byte, st *unix.Stat_t, _ bool) error {
	return unix.Fstatat(fd, unix.BytePtrToString(name), st, unix.AT_SYMLINK_NOFOLLOW)
}
