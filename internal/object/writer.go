package object

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/adler32"
	"io"
	"io/fs"
	"os"
	"runtime"
	"sync"

	"github.com/git-checkpoint/git-checkpoint/internal/fault"
	"github.com/git-checkpoint/git-checkpoint/internal/git"
	"github.com/git-checkpoint/git-checkpoint/internal/pages"
)

// ErrChanged is matched by the error of a file that is not what it was when
// it was looked at, or that changes while it is read.
var ErrChanged = errors.New("file changed while it was read")

const (
	// From as many objects, or bytes of them, on they go into a pack. git
	// takes longer to write 64 loose objects than one pack.
	looseObjects = 64
	looseBytes   = 8 << 20

	// A larger file is not held in memory. Below, files are read and
	// deflated side by side; from here on each takes all cores for itself.
	streamFrom = 16 << 20
	// chunk is how much of such a file is deflated at a time.
	chunk = 1 << 20
)

// Writer stores many new objects of a SHA-1 repository; Native says in which
// it is exact. Few objects are kept in memory and become loose at Close; many
// go into one pack. An object that exists is not written again but freshened,
// so that a "git gc" does not take it for old.
//
// File, Put and Has may be called by several goroutines; each hashes and
// deflates in its own. After an error of writing, everything fails.
type Writer struct {
	dir directory
	all []*directory // in which an object counts as existing

	later sync.WaitGroup // PutLater
	free  chan struct{}  // how many of those may work at once

	mu   sync.Mutex
	put  map[Hash]bool // what was put, or found to exist
	held []heldObject
	size int // of what is held
	pack *packWriter
	err  error
}

type heldObject struct {
	id Hash
	deflated
}

// NewWriter returns a writer to an objects directory. What is in one of the
// other directories counts as existing as well. Nothing is opened before the
// first object. In a repository of another format than SHA-1 everything fails.
func NewWriter(repo *git.Repo, dir string, also ...string) *Writer {
	w := &Writer{dir: directory{path: dir}, put: map[Hash]bool{}, free: make(chan struct{}, runtime.GOMAXPROCS(0))}
	if repo.ObjectFormat != "sha1" {
		w.err = fault.New(fault.Fatal, "object-write", "write objects to '%s': its format is %s, not sha1", dir, repo.ObjectFormat)
	}
	w.all = []*directory{&w.dir}
	for _, d := range also {
		w.all = append(w.all, &directory{path: d})
	}
	return w
}

// Has says whether an object exists, or was put and will.
func (w *Writer) Has(id Hash) bool {
	w.mu.Lock()
	put := w.put[id]
	w.mu.Unlock()
	if put {
		return true
	}
	for _, d := range w.all {
		if d.has(id) {
			return true
		}
	}
	return false
}

// buffers are for contents of files and what they deflate to.
var buffers = sync.Pool{New: func() any { return new(bytes.Buffer) }}

// File stores the bytes of a regular file as a blob. fi is what it was when
// it was last looked at; a file that is no longer regular, or of another size,
// is an error that matches ErrChanged. Other errors are those of opening and
// reading it (fs.ErrNotExist, fs.ErrPermission), of Put, or of writing.
func (w *Writer) File(path string, fi fs.FileInfo) (Hash, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|openFlags, 0)
	if err != nil {
		if now, lost := os.Lstat(path); lost == nil && !now.Mode().IsRegular() {
			return Hash{}, changed(path)
		}
		return Hash{}, err
	}
	defer f.Close()
	now, err := f.Stat()
	if err != nil {
		return Hash{}, err
	}
	size := fi.Size()
	if !now.Mode().IsRegular() || now.Size() != size {
		return Hash{}, changed(path)
	}
	if size > streamFrom {
		return w.stream(f, size)
	}
	b := buffers.Get().(*bytes.Buffer)
	defer buffers.Put(b)
	b.Reset()
	grow(b, int(size)+1)
	data := b.AvailableBuffer()[:size+1] // one more, to see that there is no more
	n, err := io.ReadFull(f, data)
	switch {
	case err == nil || int64(n) < size && err == io.ErrUnexpectedEOF || size > 0 && err == io.EOF:
		return Hash{}, changed(path)
	case err != io.ErrUnexpectedEOF && err != io.EOF:
		return Hash{}, err
	}
	return w.Put(Blob, data[:size])
}

// grow gives an empty buffer room, in huge pages where it is much.
func grow(b *bytes.Buffer, n int) {
	if b.Cap() < n {
		room := make([]byte, 0, n)
		pages.Large(room)
		*b = *bytes.NewBuffer(room)
	}
}

func changed(path string) error {
	return fault.New(fault.Conflict, "file-changed", "read '%s': %w", path, ErrChanged)
}

// Put stores an object. It does not keep data. A content that is made to have
// the id of another one is an error that matches fault.Integrity.
func (w *Writer) Put(kind Kind, data []byte) (Hash, error) {
	id, known, err := w.claim(kind, data)
	if known || err != nil || w.freshen(id) {
		return id, err
	}
	return id, w.deflate(id, kind, data)
}

// PutLater is Put, but leaves all that comes after the id to another
// goroutine, where one is free; Close returns what goes wrong there. The data
// may be changed afterwards.
func (w *Writer) PutLater(kind Kind, data []byte) (Hash, error) {
	id, known, err := w.claim(kind, data)
	if known || err != nil {
		return id, err
	}
	select {
	case w.free <- struct{}{}:
		data = bytes.Clone(data)
		w.later.Go(func() {
			if !w.freshen(id) {
				w.deflate(id, kind, data) // it remembers its error
			}
			<-w.free
		})
		return id, nil
	default:
		if w.freshen(id) {
			return id, nil
		}
		return id, w.deflate(id, kind, data)
	}
}

// claim computes an id, and says whether the object was put before.
func (w *Writer) claim(kind Kind, data []byte) (id Hash, known bool, err error) {
	h := newHasher(kind, int64(len(data)))
	h.Write(data)
	if id, err = h.id(); err != nil {
		return id, false, err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	known = w.put[id]
	w.put[id] = true
	return id, known, w.err
}

func (w *Writer) deflate(id Hash, kind Kind, data []byte) error {
	b := buffers.Get().(*bytes.Buffer)
	defer buffers.Put(b)
	return w.add(id, deflate(b, kind, data))
}

func (w *Writer) freshen(id Hash) bool {
	for _, d := range w.all {
		if d.freshen(id) {
			return true
		}
	}
	return false
}

func (w *Writer) add(id Hash, d deflated) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.err != nil {
		return w.err
	}
	if w.pack == nil && len(w.held) < looseObjects && w.size+len(d.blocks) <= looseBytes {
		d.blocks = bytes.Clone(d.blocks)
		w.held = append(w.held, heldObject{id, d})
		w.size += len(d.blocks)
		return nil
	}
	if err := w.openPack(); err != nil {
		return err
	}
	return w.failed(w.addPacked(id, d))
}

// openPack starts the pack with what was held, unless it is there.
func (w *Writer) openPack() (err error) {
	if w.pack != nil {
		return nil
	}
	if w.pack, err = newPackWriter(w.dir.path); err != nil {
		return w.failed(err)
	}
	for _, h := range w.held {
		if err := w.addPacked(h.id, h.deflated); err != nil {
			return w.failed(err)
		}
	}
	w.held = nil
	return nil
}

func (w *Writer) addPacked(id Hash, d deflated) error {
	at := w.pack.begin()
	if err := d.writePacked(w.pack); err != nil {
		return err
	}
	w.pack.complete(id, at)
	return nil
}

// failed remembers the first error of writing.
func (w *Writer) failed(err error) error {
	if err != nil && w.err == nil {
		w.err = fault.New(fault.Fatal, "object-write", "write objects to '%s': %w", w.dir.path, err)
	}
	return w.err
}

// stream stores a large file in one pass; others wait meanwhile. This
// goroutine hashes, others deflate a chunk each, one more writes. It is taken
// back if the file changes or the object exists.
func (w *Writer) stream(f *os.File, size int64) (id Hash, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.err != nil {
		return id, w.err
	}
	if err := w.openPack(); err != nil {
		return id, err
	}
	at := w.pack.begin()
	h := newHasher(Blob, size)
	if _, err := io.WriteString(w.pack, string(packHeader(Blob, size))+zlibHeader); err != nil {
		return id, w.failed(err)
	}
	read, adler, written := w.pump(f, size, h)
	if written != nil {
		return id, w.failed(written)
	}
	if _, err := w.pack.Write(binary.BigEndian.AppendUint32(nil, adler)); err != nil {
		return id, w.failed(err)
	}
	id, err = h.id()
	if read != nil {
		err = read
	}
	if err != nil || w.put[id] || w.freshen(id) {
		if back := w.pack.takeBack(at); back != nil {
			return id, w.failed(back)
		}
		w.put[id] = w.put[id] || err == nil
		return id, err
	}
	w.pack.complete(id, at)
	w.put[id] = true
	return id, nil
}

// piece is a chunk of a file on its way into the pack.
type piece struct {
	data []byte
	out  bytes.Buffer
	sum  uint32
	done chan struct{}
}

// pump hashes size bytes of a file and appends them, deflated, to the pack.
func (w *Writer) pump(f *os.File, size int64, h io.Writer) (read error, adler uint32, written error) {
	pieces := make(chan *piece, runtime.GOMAXPROCS(0))
	free := sync.Pool{New: func() any { return &piece{data: make([]byte, chunk)} }}
	finished := make(chan struct{})
	adler = 1
	go func() {
		defer close(finished)
		for p := range pieces {
			<-p.done
			if written == nil {
				_, written = w.pack.Write(p.out.Bytes())
			}
			adler = joinAdler(adler, p.sum, int64(len(p.data)))
			free.Put(p)
		}
	}()
	for left := size; left > 0 && read == nil; {
		p := free.Get().(*piece)
		p.done = make(chan struct{})
		p.data = p.data[:min(left, chunk)]
		p.out.Reset()
		if _, read = io.ReadFull(f, p.data); read != nil {
			break
		}
		left -= int64(len(p.data))
		last := left == 0
		go func() {
			defer close(p.done)
			deflateTo(&p.out, p.data, last)
			p.sum = adler32.Checksum(p.data)
		}()
		pieces <- p
		h.Write(p.data)
	}
	close(pieces)
	<-finished
	if read == nil {
		if n, _ := f.Read(make([]byte, 1)); n > 0 {
			read = io.EOF
		}
	}
	if read == io.EOF || read == io.ErrUnexpectedEOF {
		read = changed(f.Name())
	}
	return read, adler, written
}

// Close makes everything that was put durable and visible. Where something
// failed before, that error is returned and nothing is left behind but loose
// objects that were complete.
func (w *Writer) Close(ctx context.Context) error {
	w.later.Wait()
	w.mu.Lock()
	defer w.mu.Unlock()
	defer w.abort()
	if w.err == nil && ctx.Err() != nil {
		w.err = fault.New(fault.Fatal, "interrupted", "write objects: %w", context.Cause(ctx))
	}
	if w.err != nil {
		return w.err
	}
	if w.pack != nil {
		p := w.pack
		w.pack = nil
		return w.failed(p.finish())
	}
	for _, h := range w.held {
		id := h.id.String()
		if err := writeLoose(loosePath(w.dir.path, id), h.loose()); err != nil {
			return w.failed(fmt.Errorf("%s %s: %w", h.kind, id, err))
		}
		git.Step("object")
	}
	return nil
}

// Abort removes temporary files; nothing that was put is stored. After Close
// it does nothing.
func (w *Writer) Abort() {
	w.later.Wait()
	w.mu.Lock()
	defer w.mu.Unlock()
	w.abort()
}

func (w *Writer) abort() {
	if w.pack != nil {
		w.pack.abort()
	}
	for _, d := range w.all {
		d.close()
	}
	w.held, w.pack = nil, nil
	if w.err == nil {
		w.err = errors.New("write objects: the writer is closed")
	}
}
