package object

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"
)

// file is a file that is read here and there: mapped, where that can be and is
// worth it.
type file interface {
	io.ReaderAt
	io.Closer
	Size() int64
}

// packIndex finds objects in one pack, by its index of version 2
// (gitformat-pack). It may be used by several goroutines.
type packIndex struct {
	pack  string // the path of the pack
	cruft bool   // it holds what waits to be deleted
	idx   file
	upTo  [256]uint32 // the fan-out: how many ids begin with this byte or a lower one

	freshened func() bool // once
}

const (
	idxMagic = "\xfftOc\x00\x00\x00\x02"
	idxIDs   = int64(len(idxMagic) + 256*4) // where the ids begin
)

var errIndex = errors.New("the pack index is damaged")

// newPackIndex reads the head of an index.
func newPackIndex(pack string, idx file) (*packIndex, error) {
	head := make([]byte, idxIDs)
	if _, err := idx.ReadAt(head, 0); err != nil {
		return nil, errIndex
	}
	if !bytes.HasPrefix(head, []byte(idxMagic)) {
		return nil, errors.New("the pack index is not of version 2")
	}
	p := &packIndex{pack: pack, idx: idx}
	last := uint32(0)
	for i := range p.upTo {
		p.upTo[i] = binary.BigEndian.Uint32(head[len(idxMagic)+4*i:])
		if p.upTo[i] < last {
			return nil, errIndex
		}
		last = p.upTo[i]
	}
	if idx.Size() < p.offsets64()+2*int64(len(Hash{})) {
		return nil, errIndex
	}
	p.freshened = sync.OnceValue(func() bool {
		now := time.Now()
		return os.Chtimes(pack, now, now) == nil
	})
	return p, nil
}

func (p *packIndex) count() int64 { return int64(p.upTo[255]) }

// Behind the ids come a CRC and an offset of 4 bytes each, then the offsets
// of 8 bytes.
func (p *packIndex) offsets32() int64 { return idxIDs + p.count()*(20+4) }
func (p *packIndex) offsets64() int64 { return idxIDs + p.count()*(20+4+4) }

// find returns where in the pack an object begins.
func (p *packIndex) find(id Hash) (offset int64, ok bool) {
	low, high := int64(0), int64(p.upTo[id[0]])
	if id[0] > 0 {
		low = int64(p.upTo[id[0]-1])
	}
	var b Hash
	for low < high {
		middle := (low + high) / 2
		if _, err := p.idx.ReadAt(b[:], idxIDs+20*middle); err != nil {
			return 0, false
		}
		switch c := bytes.Compare(b[:], id[:]); {
		case c == 0:
			return p.offset(middle)
		case c < 0:
			low = middle + 1
		default:
			high = middle
		}
	}
	return 0, false
}

func (p *packIndex) offset(i int64) (int64, bool) {
	var b [8]byte
	if _, err := p.idx.ReadAt(b[:4], p.offsets32()+4*i); err != nil {
		return 0, false
	}
	offset := binary.BigEndian.Uint32(b[:])
	if offset>>31 == 0 {
		return int64(offset), true
	}
	at := p.offsets64() + 8*int64(offset&^(1<<31))
	if at+8 > p.idx.Size()-40 {
		return 0, false
	}
	if _, err := p.idx.ReadAt(b[:], at); err != nil {
		return 0, false
	}
	large := int64(binary.BigEndian.Uint64(b[:]))
	return large, large >= 0
}

// directory is one directory of objects. It may be used by several goroutines.
type directory struct {
	path string

	mu     sync.RWMutex
	packs  []*packIndex
	listed bool
	closed []*packIndex // packs that are gone; somebody may still look into them
}

// list looks which packs there are. One that cannot be used is left out: git
// says what is wrong with it when it is asked for an object.
func (d *directory) list() {
	d.mu.Lock()
	defer d.mu.Unlock()
	known := map[string]*packIndex{}
	for _, p := range d.packs {
		known[p.pack] = p
	}
	var packs []*packIndex
	// A directory that is not there has no packs.
	entries, _ := os.ReadDir(filepath.Join(d.path, "pack"))
	names := map[string]bool{}
	for _, e := range entries {
		names[e.Name()] = true
	}
	for _, e := range entries {
		base, ok := strings.CutSuffix(e.Name(), ".idx")
		if !ok || !names[base+".pack"] {
			continue
		}
		pack := filepath.Join(d.path, "pack", base+".pack")
		if p := known[pack]; p != nil {
			delete(known, pack)
			packs = append(packs, p)
			continue
		}
		f, err := openFile(filepath.Join(d.path, "pack", e.Name()))
		if err != nil {
			continue
		}
		p, err := newPackIndex(pack, f)
		if err != nil {
			f.Close()
			continue
		}
		p.cruft = names[base+".mtimes"]
		packs = append(packs, p)
	}
	for _, p := range known {
		d.closed = append(d.closed, p)
	}
	d.packs, d.listed = packs, true
}

func (d *directory) current() []*packIndex {
	d.mu.RLock()
	packs, listed := d.packs, d.listed
	d.mu.RUnlock()
	if listed {
		return packs
	}
	d.list()
	return d.current()
}

// has says whether an object is there, loose or packed.
func (d *directory) has(id Hash) bool {
	for _, p := range d.current() {
		if _, ok := p.find(id); ok {
			return true
		}
	}
	_, err := os.Lstat(loosePath(d.path, id.String()))
	return err == nil
}

// freshen marks an object as used now, so that a gc does not take it for old.
// It is false where the object is not there, or is on its way out, or cannot
// be marked; git writes it in all these cases.
func (d *directory) freshen(id Hash) bool {
	for _, p := range d.current() {
		if p.cruft {
			continue
		}
		if _, ok := p.find(id); ok && p.freshened() {
			return true
		}
	}
	now := time.Now()
	return os.Chtimes(loosePath(d.path, id.String()), now, now) == nil
}

func (d *directory) close() {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, p := range append(d.packs, d.closed...) {
		p.idx.Close()
	}
	d.packs, d.closed, d.listed = nil, nil, false
}
