package object

import (
	"os"

	"golang.org/x/sys/unix"
)

// startWriting lets the system begin to write a part of a file to the disk, so
// that less is left for fsync to wait for.
func startWriting(f *os.File, from, count int64) {
	// Where that is not possible fsync does it all.
	_ = unix.SyncFileRange(int(f.Fd()), from, count, unix.SYNC_FILE_RANGE_WRITE)
}
