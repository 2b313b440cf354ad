package object

import (
	"bufio"
	"crypto/rand"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/klauspost/compress/zlib"
)

// loosePath is the file of a loose object in a directory of objects.
func loosePath(dir, id string) string { return filepath.Join(dir, id[:2], id[2:]) }

// looseReader is what it takes to read a loose file. It is kept for the next:
// to make one takes longer than to read most objects.
type looseReader struct {
	file    *bufio.Reader
	inflate io.ReadCloser
	content *bufio.Reader
}

var looseReaders sync.Pool

// newLooseReader begins to read a file.
func newLooseReader(f io.Reader) (r *looseReader, err error) {
	r, _ = looseReaders.Get().(*looseReader)
	if r == nil {
		r = &looseReader{file: bufio.NewReaderSize(f, 16<<10)}
		if r.inflate, err = zlib.NewReader(r.file); err == nil {
			r.content = bufio.NewReaderSize(r.inflate, 16<<10)
		}
		return r, err
	}
	r.file.Reset(f)
	err = r.inflate.(zlib.Resetter).Reset(r.file, nil)
	r.content.Reset(r.inflate)
	return r, err
}

// readLoose returns the object of a loose file.
func readLoose(file string) (Kind, []byte, error) {
	f, err := os.Open(file)
	if err != nil {
		return "", nil, err
	}
	defer f.Close()
	r, err := newLooseReader(f)
	if err != nil {
		return "", nil, err
	}
	defer looseReaders.Put(r)
	head, err := r.content.ReadSlice(0)
	if err != nil {
		return "", nil, errHead
	}
	kind, digits, _ := strings.Cut(strings.TrimSuffix(string(head), "\x00"), " ")
	size, err := strconv.ParseInt(digits, 10, 64)
	if err != nil || !slices.Contains(entryKinds[1:5], Kind(kind)) {
		return "", nil, errHead
	}
	data, err := readExactly(r.content, size)
	return Kind(kind), data, err
}

var errHead = errors.New("it does not begin as a loose object does")

// readExactly reads to the end, which must come after size bytes. It does not
// make as much room at once as a damaged file may ask for.
func readExactly(r io.Reader, size int64) ([]byte, error) {
	if size < 0 {
		return nil, errSize
	}
	data := make([]byte, 0, min(size, 16<<20)+1) // one more, to find the end
	for {
		n, err := r.Read(data[len(data):cap(data)])
		data = data[:len(data)+n]
		switch {
		case int64(len(data)) > size || err == io.EOF && int64(len(data)) < size:
			return nil, errSize
		case err == io.EOF:
			return data, nil
		case err != nil:
			return nil, err
		}
		if len(data) == cap(data) {
			data = slices.Grow(data, len(data))
		}
	}
}

var errSize = errors.New("its size is not what it says")

// writeLoose makes a loose object as git does, by a temporary file and a
// rename. A "git gc" beside us removes directories as they become empty:
// then it is tried again.
func writeLoose(file string, data []byte) (err error) {
	for range 10 {
		if err = writeNew(file, data); !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return err
}

func writeNew(file string, data []byte) error {
	dir := filepath.Dir(file)
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return err
	}
	temporary := filepath.Join(dir, "tmp_obj_"+rand.Text()[:8])
	f, err := os.OpenFile(temporary, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o444)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	if closed := f.Close(); err == nil {
		err = closed
	}
	if err == nil {
		err = os.Rename(temporary, file)
	}
	if err != nil {
		os.Remove(temporary)
	}
	return err
}
