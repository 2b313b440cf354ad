package index

import "io/fs"

// ModeOf returns the mode that git gives a file: ModeFile, ModeExecutable if
// the owner may execute it, ModeSymlink, or ModeDir for a directory, of which
// it cannot be seen here whether git takes it for a gitlink. It is 0 for what
// git does not track: sockets, FIFOs, devices.
func ModeOf(fi fs.FileInfo) uint32 {
	switch mode := fi.Mode(); mode.Type() {
	case 0:
		if mode.Perm()&0o100 != 0 {
			return ModeExecutable
		}
		return ModeFile
	case fs.ModeSymlink:
		return ModeSymlink
	case fs.ModeDir:
		return ModeDir
	}
	return 0
}

// SizeOf cuts a size to 32 bits. Multiples of 4 GiB do not become 0, which
// would mark the entry as smudged; 1<<31 is what git takes since 2.43.
func SizeOf(size int64) uint32 {
	if size != 0 && uint32(size) == 0 {
		return 1 << 31
	}
	return uint32(size)
}

func portableStatOf(fi fs.FileInfo) Stat {
	mtime := fi.ModTime()
	return Stat{
		MTimeSec: uint32(mtime.Unix()), MTimeNsec: uint32(mtime.Nanosecond()),
		Size: SizeOf(fi.Size()),
	}
}

// Same says whether two files are the same by what every system and every git
// records: modification time, size, and, where both are known, nanoseconds and inode.
func (s Stat) Same(other Stat) bool {
	if s.MTimeSec != other.MTimeSec || s.Size != other.Size {
		return false
	}
	if s.MTimeNsec != 0 && other.MTimeNsec != 0 && s.MTimeNsec != other.MTimeNsec {
		return false
	}
	return s.Ino == 0 || other.Ino == 0 || s.Ino == other.Ino
}
