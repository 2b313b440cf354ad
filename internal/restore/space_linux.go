package restore

import (
	"math"
	"os"

	"golang.org/x/sys/unix"
)

// spaceLeft is how many blocks and files there is room for on the file system
// of a directory, less a margin for what they take beside, and the size of a
// block.
func spaceLeft(dir string) space {
	var fs unix.Statfs_t
	if unix.Statfs(dir, &fs) != nil || fs.Bsize <= 0 {
		return space{}
	}
	files := int64(fs.Ffree) / 2
	if fs.Files == 0 {
		files = math.MaxInt64 // as many as there is room for (btrfs)
	}
	return space{blocks: int64(fs.Bavail) / 2, block: int64(fs.Bsize), files: files}
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
