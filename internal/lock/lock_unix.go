//go:build unix

package lock

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// tryLock uses flock(2), not fcntl: its lock belongs to the open file, so it
// passes to children and is not dropped when another descriptor is closed.
func tryLock(f *os.File) (bool, error) { return flock(f, unix.LOCK_EX) }

// tryShared takes a lock that others may share.
func tryShared(f *os.File) (bool, error) { return flock(f, unix.LOCK_SH) }

func flock(f *os.File, how int) (bool, error) {
	for {
		err := unix.Flock(int(f.Fd()), how|unix.LOCK_NB)
		switch {
		case err == nil:
			return true, nil
		case errors.Is(err, unix.EWOULDBLOCK):
			return false, nil
		case !errors.Is(err, unix.EINTR):
			return false, err
		}
	}
}
