//go:build amd64 || arm64

package snapshot

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// fstatat looks at a name, which has a NUL after it, in a directory. Such a
// call is over in a microsecond where the answer is in memory: telling the
// scheduler of it, so that it can put another thread to work, costs a quarter
// of that and keeps its watching thread awake. waits says that the answers
// come from a disk, and that this is worth it.
func fstatat(fd int, name *byte, st *unix.Stat_t, waits bool) error {
	call := unix.RawSyscall6
	if waits {
		call = unix.Syscall6
	}
	_, _, errno := call(sysFstatat, uintptr(fd), uintptr(unsafe.Pointer(name)), uintptr(unsafe.Pointer(st)), unix.AT_SYMLINK_NOFOLLOW, 0, 0)
	if errno != 0 {
		return errno
	}
	return nil
}
