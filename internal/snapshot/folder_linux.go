package snapshot

import (
	"encoding/binary"
	"errors"
	"io"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"

	"github.com/git-checkpoint/git-checkpoint/internal/index"
)

// folder reads directories by the system calls themselves: os.ReadDir and
// os.Lstat take twice the time, most of it for what they allocate. It is used
// for one directory after the other.
type folder struct {
	top     int    // the working tree
	fd      int    // the directory, -1 as long as it was not opened
	name    []byte // its path, with '/' at the end, and room for a name in it
	path    int    // the length of the path
	asked   int    // how often it was looked into by paths
	entries []dirent
	buf     []byte
	st      unix.Stat_t
	found   fileStat
	keeps   bool // see times
	waits   bool // the disk lets us wait; see fstatat
}

// byPath is for how many names in a directory it is not opened: up to about
// there, to open and close it takes longer than to find it for each of them.
const byPath = 8

// newFolder opens the working tree.
func newFolder(top string) (*folder, error) {
	fd, err := unix.Open(top, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: top, Err: err}
	}
	f := &folder{top: fd, fd: -1, buf: make([]byte, 32<<10)}
	var fs unix.Statfs_t
	if unix.Fstatfs(fd, &fs) == nil {
		switch uint32(fs.Type) { // its type differs from one architecture to the next
		case unix.EXT4_SUPER_MAGIC, unix.XFS_SUPER_MAGIC, unix.BTRFS_SUPER_MAGIC, unix.F2FS_SUPER_MAGIC, unix.TMPFS_MAGIC:
			f.keeps = true
		}
	}
	return f, nil
}

func (f *folder) close() {
	f.leave()
	unix.Close(f.top)
}

func (f *folder) leave() {
	if f.fd >= 0 {
		closeDir(f.fd, f.waits)
		f.fd = -1
	}
}

// enter makes a directory of the working tree, "" for its top, else with '/' at
// the end, the one that is looked at.
func (f *folder) enter(path string) {
	f.leave()
	f.entries, f.asked = f.entries[:0], 0
	f.name, f.path = append(f.name[:0], path...), len(path)
}

// self is the path of the directory itself, for a system call.
func (f *folder) self() *byte {
	if f.path == 0 {
		f.name = append(f.name[:0], '.', 0)
	} else {
		f.name = append(f.name[:f.path-1], 0)
	}
	return &f.name[0]
}

// open opens the directory, unless it is.
func (f *folder) open() (err error) {
	for f.fd < 0 {
		f.fd, err = openat(f.top, f.self(), unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, f.waits)
		if err == nil {
			break
		}
		f.fd = -1
		if err != unix.EINTR {
			return err
		}
	}
	return nil
}

// times are those of the directory. They tell whether names have come or gone
// since, on the file systems of which that is known; ok is false on others.
func (f *folder) times() (t dirTimes, ok bool) {
	if !f.keeps || fstatat(f.top, f.self(), &f.st, f.waits) != nil || f.st.Mode&unix.S_IFMT != unix.S_IFDIR {
		return t, false
	}
	st := &f.st
	return dirTimes{uint64(st.Mtim.Sec), uint64(st.Mtim.Nsec), uint64(st.Ctim.Sec), uint64(st.Ctim.Nsec), uint64(st.Ino), uint64(st.Dev)}, true
}

// list fills entries, in no order. Their names are good until the next enter.
func (f *folder) list() error {
	if err := f.open(); err != nil {
		return err
	}
	buf := f.buf
	for {
		if len(buf) < 8<<10 {
			buf = make([]byte, 32<<10) // the names in the one before stay where they are
		}
		n, err := unix.Getdents(f.fd, buf)
		switch {
		case err == unix.EINTR:
			continue
		case err != nil:
			return err
		case n == 0:
			return nil
		}
		f.parse(buf[:n])
		buf = buf[n:]
	}
}

// parse reads what getdents64(2) returned: inode and offset, 8 bytes each, the
// record's length, 2, the type, 1, and the name with a NUL.
func (f *folder) parse(buf []byte) {
	for len(buf) > 19 {
		size := int(binary.NativeEndian.Uint16(buf[16:]))
		if size < 20 || size > len(buf) {
			return
		}
		name := buf[19:size]
		for i, c := range name {
			if c == 0 {
				name = name[:i]
				break
			}
		}
		if !(len(name) <= 2 && name[0] == '.' && (len(name) == 1 || name[1] == '.')) {
			f.entries = append(f.entries, dirent{name, kindOfDirent(buf[18])})
		}
		buf = buf[size:]
	}
}

func kindOfDirent(t byte) kind {
	switch t {
	case unix.DT_REG:
		return kindFile
	case unix.DT_LNK:
		return kindLink
	case unix.DT_DIR:
		return kindDir
	case unix.DT_UNKNOWN:
		return kindUnknown
	}
	return kindOther
}

// stat looks at a name in the directory, with a NUL behind it. The result is good
// until the next one.
func (f *folder) stat(name []byte) (*fileStat, error) {
	dir, path := f.fd, &name[0] // followed by a NUL, where getdents64(2) or an index put it
	if f.fd < 0 && f.asked < byPath {
		f.asked++
		if f.path > 0 {
			f.name[f.path-1] = '/'
		}
		f.name = append(append(f.name[:f.path], name...), 0)
		dir, path = f.top, &f.name[0]
	} else if f.fd < 0 {
		if err := f.open(); err != nil {
			return nil, err
		}
		dir = f.fd
	}
	err := fstatat(dir, path, &f.st, f.waits)
	for err == unix.EINTR {
		err = fstatat(dir, path, &f.st, f.waits)
	}
	if err != nil {
		return nil, err
	}
	st, s := &f.st, &f.found
	s.size = st.Size
	mode := uint32(0)
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFREG:
		s.kind, mode = kindFile, index.ModeFile
		if st.Mode&0o100 != 0 {
			mode = index.ModeExecutable
		}
	case unix.S_IFLNK:
		s.kind, mode = kindLink, index.ModeSymlink
	case unix.S_IFDIR:
		s.kind = kindDir
	default:
		s.kind = kindOther
	}
	stat := statOf(st)
	s.record = stat.Record(mode)
	return s, nil
}

// statOf is index.StatOf of what the system call gave.
func statOf(st *unix.Stat_t) index.Stat {
	return index.Stat{
		CTimeSec: uint32(st.Ctim.Sec), CTimeNsec: uint32(st.Ctim.Nsec),
		MTimeSec: uint32(st.Mtim.Sec), MTimeNsec: uint32(st.Mtim.Nsec),
		Dev: uint32(st.Dev), Ino: uint32(st.Ino), UID: st.Uid, GID: st.Gid,
		Size: index.SizeOf(st.Size),
	}
}

// gone says that there is no such thing any more, or something else.
func gone(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENOTDIR) || errors.Is(err, unix.ELOOP)
}

// blocksRead counts what the process has read from disks. It is false where
// that does not tell, as on a file system of the network.
func (f *folder) blocksRead() (n int64, ok bool) {
	if !f.keeps {
		return 0, false
	}
	var u unix.Rusage
	err := unix.Getrusage(unix.RUSAGE_SELF, &u)
	return int64(u.Inblock), err == nil
}

// readNoFollow reads a file that is not a symbolic link, nor a FIFO, which
// would let us wait for ever.
func readNoFollow(path string) ([]byte, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if fi, err := f.Stat(); err != nil || !fi.Mode().IsRegular() && !fi.IsDir() {
		return nil, errors.Join(err, fs.ErrNotExist)
	}
	return io.ReadAll(f)
}
