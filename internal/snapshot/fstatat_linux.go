//go:build amd64 || arm64

package snapshot

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// These calls are over in a microsecond or two where the answer is in memory:
// telling the scheduler of one, so that it can put another thread to work,
// costs a good part of that and keeps its watching thread awake. waits says
// that the answers come from a disk, and that this is worth it.

// fstatat looks at a name, which has a NUL after it, in a directory.
func fstatat(fd int, name *byte, st *unix.Stat_t, waits bool) error {
	_, err := call(waits, sysFstatat, uintptr(fd), uintptr(unsafe.Pointer(name)), uintptr(unsafe.Pointer(st)), unix.AT_SYMLINK_NOFOLLOW)
	return err
}

// openat opens a path, which has a NUL after it, in a directory.
func openat(fd int, path *byte, flags int, waits bool) (int, error) {
	n, err := call(waits, unix.SYS_OPENAT, uintptr(fd), uintptr(unsafe.Pointer(path)), uintptr(flags), 0)
	return int(n), err
}

// closeDir closes a directory, for which nothing is to be written.
func closeDir(fd int, waits bool) { call(waits, unix.SYS_CLOSE, uintptr(fd), 0, 0, 0) }

//go:uintptrescapes
func call(waits bool, trap, a, b, c, d uintptr) (n uintptr, err error) {
	var errno unix.Errno
	if waits {
		n, _, errno = unix.Syscall6(trap, a, b, c, d, 0, 0)
	} else {
		n, _, errno = unix.RawSyscall6(trap, a, b, c, d, 0, 0)
	}
	if errno != 0 {
		return n, errno
	}
	return n, nil
}
