package object

import (
	"bufio"
	"bytes"
	"crypto/rand"
	"crypto/sha1"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"io"
	"os"
	"path/filepath"
	"slices"

	"github.com/git-checkpoint/git-checkpoint/internal/git"
)

// packWriter writes a pack of version 2 without deltas, and its index
// (gitformat-pack), next to the packs of a directory of objects.
type packWriter struct {
	dir     string // where packs are
	f       *os.File
	out     *bufio.Writer
	end     int64 // of what was written
	begun   int64 // how much of it the disk has begun to write
	crc     uint32
	entries []packEntry
}

type packEntry struct {
	id     Hash
	crc    uint32
	offset int64
}

const packHeaderLen = 12

// writeEarly is after how many bytes the disk begins to write.
const writeEarly = 16 << 20

func newPackWriter(objects string) (*packWriter, error) {
	dir := filepath.Join(objects, "pack")
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return nil, err
	}
	f, err := createTemporary(dir, "tmp_pack_")
	if err != nil {
		return nil, err
	}
	p := &packWriter{dir: dir, f: f, out: bufio.NewWriterSize(f, 256<<10)}
	_, err = p.Write(make([]byte, packHeaderLen)) // the number of objects is known at the end
	return p, err
}

// createTemporary makes a file that "git prune" knows by its name as one that
// a dead process left.
func createTemporary(dir, prefix string) (*os.File, error) {
	return os.OpenFile(filepath.Join(dir, prefix+rand.Text()[:8]), os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o444)
}

// Write appends a part of an entry.
func (p *packWriter) Write(b []byte) (int, error) {
	n, err := p.out.Write(b)
	p.end += int64(n)
	if there := p.end - int64(p.out.Buffered()); there-p.begun >= writeEarly {
		startWriting(p.f, p.begun, there-p.begun)
		p.begun = there
	}
	p.crc = crc32.Update(p.crc, crc32.IEEETable, b)
	return n, err
}

// begin starts an entry and returns where it begins.
func (p *packWriter) begin() int64 {
	p.crc = 0
	return p.end
}

// complete says which object was written from offset on.
func (p *packWriter) complete(id Hash, offset int64) {
	p.entries = append(p.entries, packEntry{id, p.crc, offset})
}

// takeBack forgets what was written from offset on.
func (p *packWriter) takeBack(offset int64) error {
	if err := p.out.Flush(); err != nil {
		return err
	}
	if err := p.f.Truncate(offset); err != nil {
		return err
	}
	p.end, p.begun = offset, min(p.begun, offset)
	_, err := p.f.Seek(offset, io.SeekStart)
	return err
}

// finish makes the pack durable and visible, the index last: git looks for
// packs by their indexes.
func (p *packWriter) finish() (err error) {
	defer p.abort()
	if len(p.entries) == 0 {
		return nil
	}
	sum, err := p.seal()
	if err != nil {
		return err
	}
	name := filepath.Join(p.dir, "pack-"+sum.String())
	idx, err := createTemporary(p.dir, "tmp_idx_")
	if err != nil {
		return err
	}
	defer os.Remove(idx.Name())
	defer idx.Close()
	if _, err := idx.Write(encodePackIndex(p.entries, sum)); err != nil {
		return err
	}
	if err := errors.Join(idx.Sync(), idx.Close()); err != nil {
		return err
	}
	if err := errors.Join(p.f.Sync(), p.f.Close()); err != nil {
		return err
	}
	if err := os.Rename(p.f.Name(), name+".pack"); err != nil {
		return err
	}
	git.Step("pack")
	if err := os.Rename(idx.Name(), name+".idx"); err != nil {
		return err
	}
	git.Step("pack index")
	return nil
}

// seal writes the head and the checksum, for which it reads the file once
// more: the checksum begins with the number of objects.
func (p *packWriter) seal() (sum Hash, err error) {
	if err := p.out.Flush(); err != nil {
		return sum, err
	}
	head := binary.BigEndian.AppendUint32([]byte("PACK\x00\x00\x00\x02"), uint32(len(p.entries)))
	if _, err := p.f.WriteAt(head, 0); err != nil {
		return sum, err
	}
	// No collision detection: git has none either for this checksum since 2.48.
	h := sha1.New()
	if _, err := io.CopyBuffer(h, io.NewSectionReader(p.f, 0, p.end), make([]byte, 1<<20)); err != nil {
		return sum, err
	}
	h.Sum(sum[:0])
	_, err = p.f.WriteAt(sum[:], p.end)
	return sum, err
}

// abort removes the temporary file, unless it has become a pack.
func (p *packWriter) abort() {
	p.f.Close()
	os.Remove(p.f.Name())
}

// encodePackIndex returns an index of version 2.
func encodePackIndex(entries []packEntry, pack Hash) []byte {
	entries = slices.Clone(entries)
	slices.SortFunc(entries, func(a, b packEntry) int { return bytes.Compare(a.id[:], b.id[:]) })
	idx := make([]byte, 0, int(idxIDs)+len(entries)*(20+4+4)+2*20)
	idx = append(idx, idxMagic...)
	i := 0
	for first := range 256 {
		for i < len(entries) && int(entries[i].id[0]) == first {
			i++
		}
		idx = binary.BigEndian.AppendUint32(idx, uint32(i))
	}
	for _, e := range entries {
		idx = append(idx, e.id[:]...)
	}
	for _, e := range entries {
		idx = binary.BigEndian.AppendUint32(idx, e.crc)
	}
	var large []byte
	for _, e := range entries {
		if e.offset < 1<<31 {
			idx = binary.BigEndian.AppendUint32(idx, uint32(e.offset))
			continue
		}
		idx = binary.BigEndian.AppendUint32(idx, 1<<31|uint32(len(large)/8))
		large = binary.BigEndian.AppendUint64(large, uint64(e.offset))
	}
	idx = append(idx, large...)
	idx = append(idx, pack[:]...)
	sum := sha1.Sum(idx)
	return append(idx, sum[:]...)
}
