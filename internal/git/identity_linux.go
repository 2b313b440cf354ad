package git

import (
	"io/fs"
	"syscall"
	"time"
)

// recalls says whether files can be identified here.
const recalls = true

func identify(fi fs.FileInfo) identity {
	st := fi.Sys().(*syscall.Stat_t)
	return identity{uint64(st.Dev), st.Ino, st.Uid, st.Size, time.Unix(st.Mtim.Unix()).UTC(), time.Unix(st.Ctim.Unix()).UTC()}
}
