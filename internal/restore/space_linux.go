package restore

import (
	"os"

	"golang.org/x/sys/unix"
)

// spaceLeft is how many bytes may be written to the file system of a
// directory, less a margin for what files take beside their content.
func spaceLeft(dir string) int64 {
	var fs unix.Statfs_t
	if unix.Statfs(dir, &fs) != nil {
		return 0
	}
	return int64(fs.Bavail) * int64(fs.Bsize) / 2
}

// reserve takes the room that a file needs. ext4 writes what is moved into the
// place of another file to the disk there and then, 100 microseconds for each,
// unless its blocks are there already (ext4(5), auto_da_alloc). Without that a
// file is on the disk as soon as one that git checked out. Where a file system
// does not know how, there is nothing to be gained.
func reserve(f *os.File, size int) {
	if size > 0 {
		unix.Fallocate(int(f.Fd()), 0, 0, int64(size))
	}
}
