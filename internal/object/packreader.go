package object

import (
	"bufio"
	"encoding/binary"
	"errors"
	"io"
	"math"
	"os"

	"github.com/go-git/go-git/v5/plumbing/format/packfile"

	"github.com/klauspost/compress/zlib"
)

var (
	errEntry = errors.New("the pack entry is damaged")
	errBase  = errors.New("the base of a delta is not in the pack")
	errChain = errors.New("the chain of deltas is too long")
)

// maxChain is how many deltas git makes at most on top of each other.
const maxChain = 4095

// The types of entries that are deltas (gitformat-pack).
const (
	ofsDelta = 6
	refDelta = 7
)

// entryKinds are the types of entries that are whole objects.
var entryKinds = [8]Kind{1: Commit, 2: Tree, 3: Blob, 4: Tag}

// entry is the head of an entry of a pack.
type entry struct {
	kind   byte  // an index of entryKinds, or one of the deltas
	size   int64 // of what the entry inflates to
	back   int64 // ofsDelta: how far back the base begins
	base   Hash  // refDelta: the base
	length int64 // of the head itself
}

// maxEntryHead is the length of the longest head.
const maxEntryHead = 10 + 20

// parseEntry reads the head of the entry that b begins with.
func parseEntry(b []byte) (e entry, err error) {
	rest := b
	next := func() (c byte) {
		if len(rest) == 0 {
			err = errEntry
			return 0
		}
		c, rest = rest[0], rest[1:]
		return c
	}
	c := next()
	e.kind, e.size = c>>4&7, int64(c&0x0f)
	for shift := 4; c&0x80 != 0; shift += 7 {
		if c = next(); shift > 60-7 {
			return e, errEntry
		}
		e.size |= int64(c&0x7f) << shift
	}
	switch e.kind {
	case ofsDelta:
		c = next()
		e.back = int64(c & 0x7f)
		for c&0x80 != 0 {
			if c = next(); e.back > math.MaxInt64>>8 {
				return e, errEntry
			}
			e.back = (e.back+1)<<7 | int64(c&0x7f)
		}
	case refDelta:
		if len(rest) < len(e.base) {
			return e, errEntry
		}
		rest = rest[copy(e.base[:], rest):]
	default:
		if entryKinds[e.kind] == "" {
			return e, errEntry
		}
	}
	e.length = int64(len(b) - len(rest))
	return e, err
}

// packReader reads objects from the packs of one directory. It is not safe
// for concurrent use.
type packReader struct {
	packs directory
	files map[*packIndex]file
	cache packCache
	in    *bufio.Reader
	zlib  io.ReadCloser
	head  [maxEntryHead]byte
}

func newPackReader(objects string) *packReader {
	return &packReader{packs: directory{path: objects}, files: map[*packIndex]file{}, in: bufio.NewReaderSize(nil, 4<<10)}
}

// read returns an object of a pack; the error is ErrMissing if none has it.
// Its id is for the caller to check. The cache has the same data.
func (r *packReader) read(id Hash) (kind Kind, data []byte, err error) {
	err = ErrMissing
	for _, p := range r.packs.current() {
		offset, ok := p.find(id)
		if !ok {
			continue
		}
		if kind, data, err = r.at(p, offset); err == nil {
			return kind, data, nil
		}
	}
	return "", nil, err
}

// at returns the object whose entry begins at an offset: it goes down to the
// base that is whole, or known, and puts the deltas onto it.
func (r *packReader) at(p *packIndex, offset int64) (kind Kind, data []byte, err error) {
	type delta struct {
		offset int64
		data   []byte
	}
	var deltas []delta
	for kind == "" {
		if kind, data = r.cache.get(p, offset); kind != "" {
			break
		}
		if len(deltas) > maxChain {
			return "", nil, errChain
		}
		e, content, err := r.inflate(p, offset)
		if err != nil {
			return "", nil, err
		}
		kind = entryKinds[e.kind]
		if kind != "" {
			data = content
			r.cache.put(p, offset, kind, data)
			break
		}
		deltas = append(deltas, delta{offset, content})
		base, ok := offset-e.back, e.back > 0 && e.back < offset
		if e.kind == refDelta {
			base, ok = p.find(e.base)
		}
		if !ok {
			return "", nil, errBase
		}
		offset = base
	}
	for i := len(deltas) - 1; i >= 0; i-- {
		if data, err = packfile.PatchDelta(data, deltas[i].data); err != nil {
			return "", nil, err
		}
		r.cache.put(p, deltas[i].offset, kind, data)
	}
	return kind, data, nil
}

// inflate reads one entry as it is.
func (r *packReader) inflate(p *packIndex, offset int64) (e entry, content []byte, err error) {
	f, err := r.open(p)
	if err != nil {
		return e, nil, err
	}
	n, err := f.ReadAt(r.head[:], offset)
	if err != nil && err != io.EOF {
		return e, nil, err
	}
	if e, err = parseEntry(r.head[:n]); err != nil {
		return e, nil, err
	}
	begin := offset + e.length
	r.in.Reset(io.NewSectionReader(f, begin, f.Size()-begin))
	if r.zlib == nil {
		r.zlib, err = zlib.NewReader(r.in)
	} else {
		err = r.zlib.(zlib.Resetter).Reset(r.in, nil)
	}
	if err != nil {
		return e, nil, err
	}
	content, err = readExactly(r.zlib, e.size)
	return e, content, err
}

func (r *packReader) open(p *packIndex) (file, error) {
	if f := r.files[p]; f != nil {
		return f, nil
	}
	f, err := openFile(p.pack)
	if err != nil {
		return nil, err
	}
	head := make([]byte, 8)
	if _, err := f.ReadAt(head, 0); err != nil || string(head[:4]) != "PACK" || binary.BigEndian.Uint32(head[4:]) != 2 {
		f.Close()
		return nil, &os.PathError{Op: "read", Path: p.pack, Err: errors.New("it is not a pack of version 2")}
	}
	r.files[p] = f
	return f, nil
}

func (r *packReader) close() {
	for _, f := range r.files {
		f.Close()
	}
	clear(r.files)
	r.cache = packCache{}
	r.packs.close()
}

// packCache keeps objects that may be the bases of others: those used last,
// between one and two times the limit. Or it has a number of slots, which keep
// copies, and takes no more memory than these need.
type packCache struct {
	young, old map[place]cached
	size       int // of the young
	slots      []slot
}

type place struct {
	pack   *packIndex
	offset int64
}

type cached struct {
	kind Kind
	data []byte
}

type slot struct {
	place
	cached
}

// cacheLimit holds the trees and commits of a command; cacheLargest keeps one
// object from taking the place of all others.
const (
	cacheLimit   = 8 << 20
	cacheLargest = 1 << 20
)

func (c *packCache) get(p *packIndex, offset int64) (Kind, []byte) {
	at := place{p, offset}
	if c.slots != nil {
		if s := c.slot(offset); s.place == at {
			return s.kind, s.data
		}
		return "", nil
	}
	if o, ok := c.young[at]; ok {
		return o.kind, o.data
	}
	o, ok := c.old[at]
	if ok {
		c.put(p, offset, o.kind, o.data)
	}
	return o.kind, o.data
}

func (c *packCache) put(p *packIndex, offset int64, kind Kind, data []byte) {
	if len(data) > cacheLargest {
		return
	}
	if c.slots != nil {
		s := c.slot(offset)
		*s = slot{place{p, offset}, cached{kind, append(s.data[:0], data...)}}
		return
	}
	if c.young == nil || c.size > cacheLimit {
		c.young, c.old, c.size = map[place]cached{}, c.young, 0
	}
	c.young[place{p, offset}] = cached{kind, data}
	c.size += len(data)
}

// slot is where an object is kept, if it is.
func (c *packCache) slot(offset int64) *slot {
	return &c.slots[uint64(offset)*0x9e3779b97f4a7c15>>32%uint64(len(c.slots))]
}
