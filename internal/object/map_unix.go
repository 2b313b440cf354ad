//go:build unix

package object

import (
	"errors"
	"io"
	"os"
	"runtime/debug"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// openFlags are for a file that was regular when it was looked at: whatever
// has taken its place is not followed or waited for.
const openFlags = unix.O_NOFOLLOW | unix.O_NONBLOCK

const (
	// seldom is how often a file is read by calls before it is mapped: to map
	// it and to touch its pages takes as long as so many of them, and most
	// files are asked for an object or two.
	seldom = 64
	// mostOpen is how many files at most are open for that at a time, in the
	// whole program: those that it may have are for more than this.
	mostOpen = 16
)

// openNow is how many are.
var openNow atomic.Int32

// opened is a file that is read by calls, and from some reads on in memory.
type opened struct {
	size  int64
	reads atomic.Int32

	mu   sync.RWMutex
	fd   int    // -1 once it is mapped
	data []byte // once it is
}

func openFile(name string) (file, error) {
	o := &opened{}
	err := retried(func() (err error) {
		o.fd, err = unix.Open(name, unix.O_RDONLY|unix.O_CLOEXEC, 0)
		return err
	})
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: name, Err: err}
	}
	openNow.Add(1)
	var st unix.Stat_t
	if err := unix.Fstat(o.fd, &st); err != nil {
		o.Close()
		return nil, &os.PathError{Op: "stat", Path: name, Err: err}
	}
	if o.size = st.Size; o.size == 0 || o.size != int64(int(o.size)) {
		o.Close()
		return nil, &os.PathError{Op: "read", Path: name, Err: errors.New("its size is out of range")}
	}
	if openNow.Load() > mostOpen {
		o.mapAll()
	}
	return o, nil
}

// retried calls f again as long as a signal comes between.
func retried(f func() error) (err error) {
	for err = unix.EINTR; err == unix.EINTR; {
		err = f()
	}
	return err
}

// mapAll maps the file and closes it. Where that cannot be it stays open.
func (o *opened) mapAll() {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.fd < 0 {
		return
	}
	if data, err := unix.Mmap(o.fd, 0, int(o.size), unix.PROT_READ, unix.MAP_SHARED); err == nil {
		o.data = data
		o.closeFile()
	}
}

func (o *opened) Size() int64 { return o.size }

// ReadAt implements io.ReaderAt. A file that was cut after it was opened, or
// a disk that does not answer, is an error and not the end of the program.
func (o *opened) ReadAt(b []byte, offset int64) (n int, err error) {
	if offset < 0 || offset >= o.size {
		return 0, io.EOF
	}
	if o.reads.Add(1) == seldom {
		o.mapAll()
	}
	o.mu.RLock()
	defer o.mu.RUnlock()
	switch want := min(int64(len(b)), o.size-offset); {
	case o.data != nil:
		n, err = copyOut(b, o.data[offset:])
	case o.fd < 0:
		return 0, os.ErrClosed
	default:
		for int64(n) < want && err == nil {
			var got int
			if err = retried(func() (err error) {
				got, err = unix.Pread(o.fd, b[n:want], offset+int64(n))
				return err
			}); err == nil && got == 0 {
				err = io.ErrUnexpectedEOF
			}
			n += max(0, got)
		}
	}
	if err == nil && n < len(b) {
		err = io.EOF
	}
	return n, err
}

// copyOut copies from a file in memory.
func copyOut(b, data []byte) (n int, err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if recover() != nil {
			n, err = 0, io.ErrUnexpectedEOF
		}
	}()
	return copy(b, data), nil
}

func (o *opened) closeFile() error {
	if o.fd < 0 {
		return nil
	}
	fd := o.fd
	o.fd = -1
	openNow.Add(-1)
	return unix.Close(fd)
}

func (o *opened) Close() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	err := o.closeFile()
	if o.data != nil {
		err = errors.Join(err, unix.Munmap(o.data))
		o.data = nil
	}
	return err
}
