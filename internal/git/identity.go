package git

import (
	"io/fs"
	"os"
	"strconv"
	"time"
)

// identity tells a file from what it was before, and from another one in its place.
type identity struct {
	Device, Inode  uint64
	Owner          uint32
	Size           int64
	Written, Moved time.Time // when its content and when anything of it changed
}

// String is what tells identities apart.
func (i identity) String() string {
	b := make([]byte, 0, 128)
	b = strconv.AppendUint(b, i.Device, 10)
	for _, n := range [...]int64{
		int64(i.Inode), int64(i.Owner), i.Size,
		i.Written.Unix(), int64(i.Written.Nanosecond()), i.Moved.Unix(), int64(i.Moved.Nanosecond()),
	} {
		b = strconv.AppendInt(append(b, ' '), n, 10)
	}
	return string(b)
}

// ours says whether a file belongs to whoever runs this.
func ours(fi fs.FileInfo) bool { return identify(fi).Owner == uint32(os.Geteuid()) }
