package index

import (
	"io/fs"
	"syscall"
)

// StatOf returns what git would remember of a file. fi must come from Lstat,
// since git does not follow symbolic links. If it does not come from the
// operating system, only the size and the modification time are filled in.
func StatOf(fi fs.FileInfo) Stat {
	st, ok := fi.Sys().(*syscall.Stat_t)
	if !ok {
		return portableStatOf(fi)
	}
	return Stat{
		CTimeSec: uint32(st.Ctim.Sec), CTimeNsec: uint32(st.Ctim.Nsec),
		MTimeSec: uint32(st.Mtim.Sec), MTimeNsec: uint32(st.Mtim.Nsec),
		Dev: uint32(st.Dev), Ino: uint32(st.Ino),
		UID: st.Uid, GID: st.Gid,
		Size: SizeOf(st.Size),
	}
}
