package object

import (
	"bytes"
	"encoding/binary"
	"hash/adler32"
	"io"
	"sync"

	"github.com/klauspost/compress/flate"
)

// deflated is an object that is compressed once and can be stored either way:
// loose, where its header is compressed with it, or in a pack.
type deflated struct {
	kind   Kind
	size   int64
	blocks []byte // RFC 1951: the content, without the frame of zlib
	adler  uint32 // RFC 1950: the checksum of the content
}

// zlibHeader begins a zlib stream of the fastest level (RFC 1950), as git's
// loose objects begin.
const zlibHeader = "\x78\x01"

// deflaters are writers of the fastest level; one takes half a megabyte.
var deflaters = sync.Pool{New: func() any {
	w, err := flate.NewWriter(nil, flate.BestSpeed)
	if err != nil {
		panic(err) // the level is a constant
	}
	return w
}}

// deflateTo appends the compressed data to out, as the last of its stream or
// so that more can follow.
func deflateTo(out *bytes.Buffer, data []byte, last bool) {
	w := deflaters.Get().(*flate.Writer)
	w.Reset(out)
	w.Write(data) // to a buffer: it does not fail
	if last {
		w.Close()
	} else {
		w.Flush()
	}
	deflaters.Put(w)
}

// large is the size of a content that may be larger than any buffer yet, which
// would grow step by step.
const large = 1 << 20

// deflate compresses a content into out.
func deflate(out *bytes.Buffer, kind Kind, data []byte) deflated {
	out.Reset()
	if len(data) >= large {
		grow(out, len(data)+len(data)/1000+64) // more it cannot become
	}
	deflateTo(out, data, true)
	return deflated{kind, int64(len(data)), out.Bytes(), adler32.Checksum(data)}
}

// loose returns the file of a loose object. The header goes into a block that
// is stored, not compressed, before the others.
func (d deflated) loose() []byte {
	header := objectHeader(d.kind, d.size)
	file := make([]byte, 0, len(zlibHeader)+5+len(header)+len(d.blocks)+4)
	file = append(file, zlibHeader...)
	file = append(file, 0) // not the last block, stored
	file = binary.LittleEndian.AppendUint16(file, uint16(len(header)))
	file = binary.LittleEndian.AppendUint16(file, ^uint16(len(header)))
	file = append(file, header...)
	file = append(file, d.blocks...)
	return binary.BigEndian.AppendUint32(file, joinAdler(adler32.Checksum(header), d.adler, d.size))
}

// writePacked writes the entry of a pack.
func (d deflated) writePacked(w io.Writer) error {
	for _, part := range [][]byte{packHeader(d.kind, d.size), []byte(zlibHeader), d.blocks, binary.BigEndian.AppendUint32(nil, d.adler)} {
		if _, err := w.Write(part); err != nil {
			return err
		}
	}
	return nil
}

// joinAdler is the checksum of two contents, one after the other, of their
// checksums and the length of the second.
func joinAdler(a, b uint32, length int64) uint32 {
	const base = 65521
	a1, a2, b1, b2 := uint64(a&0xffff), uint64(a>>16), uint64(b&0xffff), uint64(b>>16)
	n := uint64(length) % base
	// Each byte of the second finds a1 where its own checksum began with 1.
	s1 := (a1 + b1 + base - 1) % base
	s2 := (a2 + b2 + n*(a1+base-1)) % base
	return uint32(s2<<16 | s1)
}
