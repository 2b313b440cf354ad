//go:build unix

package object

import (
	"errors"
	"io"
	"os"
	"runtime/debug"

	"golang.org/x/sys/unix"
)

// openFlags are for a file that was regular when it was looked at: whatever
// has taken its place is not followed or waited for.
const openFlags = unix.O_NOFOLLOW | unix.O_NONBLOCK

// mapped is a file in memory.
type mapped []byte

func openMapped(name string) (file, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if info.Size() == 0 || info.Size() != int64(int(info.Size())) {
		return nil, &os.PathError{Op: "map", Path: name, Err: errors.New("its size is out of range")}
	}
	m, err := unix.Mmap(int(f.Fd()), 0, int(info.Size()), unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		return nil, &os.PathError{Op: "map", Path: name, Err: err}
	}
	return mapped(m), nil
}

func (m mapped) Size() int64 { return int64(len(m)) }

// ReadAt implements io.ReaderAt. A file that was cut after it was mapped, or
// a disk that does not answer, is an error and not the end of the program.
func (m mapped) ReadAt(b []byte, offset int64) (n int, err error) {
	if offset < 0 || offset >= int64(len(m)) {
		return 0, io.EOF
	}
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if recover() != nil {
			n, err = 0, io.ErrUnexpectedEOF
		}
	}()
	if n = copy(b, m[offset:]); n < len(b) {
		return n, io.EOF
	}
	return n, nil
}

func (m mapped) Close() error { return unix.Munmap(m) }
