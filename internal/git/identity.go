package git

import (
	"io/fs"
	"os"
	"time"
)

// identity tells a file from what it was before, and from another one in its place.
type identity struct {
	Device, Inode  uint64
	Owner          uint32
	Size           int64
	Written, Moved time.Time // when its content and when anything of it changed
}

// ours says whether a file belongs to whoever runs this.
func ours(fi fs.FileInfo) bool { return identify(fi).Owner == uint32(os.Geteuid()) }
