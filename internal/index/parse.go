package index

import (
	"bytes"
	"crypto/sha1"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"strings"
)

const (
	signature  = "DIRC"
	headerSize = 12
	statSize   = 40 // of an entry: the mode and the fields of Stat

	flagAssumeUnchanged = 0x8000
	flagExtended        = 0x4000
	flagStageShift      = 12
	flagNameMask        = 0x0fff

	flagSkipWorktree = 0x4000 // these two in the extended flags
	flagIntentToAdd  = 0x2000

	// maxExpansion bounds the bytes of all paths per byte of the file. Version
	// 4 can express far longer paths than it stores; with paths that a file
	// system can hold the factor is less than 64, because an entry has more
	// than 64 bytes and a path at most 4096.
	maxExpansion = 64
)

// Parse reads the content of an index file in a repository whose object ids
// have hashLen bytes, 20 or 32. The checksum at the end must be right or all
// zero (index.skipHash). Errors about the content wrap ErrCorrupt or
// ErrUnsupported. The result does not refer to data.
func Parse(data []byte, hashLen int) (*Index, error) {
	if err := checkHashLen(hashLen); err != nil {
		return nil, fmt.Errorf("parse index: %w", err)
	}
	x, err := parse(data, hashLen)
	if err != nil {
		return nil, fmt.Errorf("parse index: %w", err)
	}
	return x, nil
}

func parse(data []byte, hashLen int) (*Index, error) {
	if len(data) < headerSize+hashLen {
		return nil, corruptf("%d bytes are too few", len(data))
	}
	if string(data[:4]) != signature {
		return nil, corruptf("signature %q", data[:4])
	}
	version := binary.BigEndian.Uint32(data[4:])
	if version < 2 || version > 4 {
		return nil, unsupportedf("version %d", version)
	}
	body, sum := data[:len(data)-hashLen], data[len(data)-hashLen:]
	if !bytes.Equal(sum, checksum(body, hashLen)) && !bytes.Equal(sum, make([]byte, hashLen)) {
		return nil, corruptf("the checksum is not that of the content")
	}

	x := &Index{Version: int(version)}
	rest, err := x.parseEntries(body[headerSize:], binary.BigEndian.Uint32(data[8:]), hashLen)
	if err != nil {
		return nil, err
	}
	if err := x.parseExtensions(rest, hashLen); err != nil {
		return nil, err
	}
	// Only now, because the entries of a split or sparse index, which an
	// extension reveals, do not follow these rules.
	if err := checkEntries(x.Entries, hashLen); err != nil {
		return nil, corruptf("%w", err)
	}
	return x, nil
}

// parseEntries reads the entries at the start of data and returns what follows
// them. It does not check that they make sense.
func (x *Index) parseEntries(data []byte, count uint32, hashLen int) ([]byte, error) {
	fixed := statSize + hashLen + 2
	if uint64(count)*uint64(fixed) > uint64(len(data)) {
		return nil, corruptf("%d entries do not fit into %d bytes", count, len(data))
	}
	x.Entries = make([]Entry, count)

	// Each id takes hashLen bytes more as digits, and the paths less than
	// what is left of the file, unless version 4 has cut them.
	var strs arena
	strs.grow(len(data) - int(count)*(fixed-2*hashLen))
	budget := maxExpansion * int64(len(data))
	path := ""
	for i := range x.Entries {
		entry := data
		if len(data) < fixed {
			return nil, corruptf("entry %d is cut off", i)
		}
		e := &x.Entries[i]
		field := func(n int) uint32 { return binary.BigEndian.Uint32(entry[4*n:]) }
		e.Stat = Stat{
			CTimeSec: field(0), CTimeNsec: field(1),
			MTimeSec: field(2), MTimeNsec: field(3),
			Dev: field(4), Ino: field(5),
			UID: field(7), GID: field(8),
			Size: field(9),
		}
		e.Mode = field(6)
		e.ID = strs.hex(data[statSize : statSize+hashLen])

		flags := binary.BigEndian.Uint16(data[statSize+hashLen:])
		data = data[fixed:]
		e.AssumeUnchanged = flags&flagAssumeUnchanged != 0
		e.Stage = int(flags >> flagStageShift & 3)
		if flags&flagExtended != 0 {
			if x.Version < 3 {
				return nil, corruptf("entry %d of version 2 has extended flags", i)
			}
			if len(data) < 2 {
				return nil, corruptf("entry %d is cut off", i)
			}
			extended := binary.BigEndian.Uint16(data)
			data = data[2:]
			if extended&^(flagSkipWorktree|flagIntentToAdd) != 0 {
				return nil, corruptf("entry %d has the extended flags %04x", i, extended)
			}
			e.SkipWorktree = extended&flagSkipWorktree != 0
			e.IntentToAdd = extended&flagIntentToAdd != 0
		}

		keep := 0
		if x.Version == 4 {
			cut, n := uvarint(data)
			if n == 0 || cut > uint64(len(path)) {
				return nil, corruptf("entry %d has a bad prefix length", i)
			}
			data = data[n:]
			keep = len(path) - int(cut)
		}
		n := bytes.IndexByte(data, 0)
		if n < 0 {
			return nil, corruptf("entry %d is cut off", i)
		}
		if budget -= int64(keep + n); budget < 0 {
			return nil, unsupportedf("the paths are more than %d times as long as the file", maxExpansion)
		}
		path = strs.concat(path[:keep], data[:n])
		if want := min(len(path), flagNameMask); int(flags&flagNameMask) != want {
			return nil, corruptf("entry %q has the name length %d", path, flags&flagNameMask)
		}
		e.Path = path

		data = data[n:]
		nuls := 1
		if x.Version < 4 {
			nuls = padding(len(entry) - len(data))
		}
		if len(data) < nuls {
			return nil, corruptf("entry %q is cut off", path)
		}
		data = data[nuls:]
	}
	return data, nil
}

func (x *Index) parseExtensions(data []byte, hashLen int) error {
	for len(data) > 0 {
		if len(data) < 8 {
			return corruptf("%d bytes follow the last extension", len(data))
		}
		name, size := string(data[:4]), binary.BigEndian.Uint32(data[4:])
		data = data[8:]
		if uint64(size) > uint64(len(data)) {
			return corruptf("extension %q is cut off", name)
		}
		content := data[:size]
		data = data[size:]

		switch {
		case name == "TREE":
			if x.Tree != nil {
				return corruptf("extension %q is there more than once", name)
			}
			tree, err := parseCacheTree(content, hashLen)
			if err != nil {
				return corruptf("extension %q: %w", name, err)
			}
			x.Tree = tree
		case name == "link":
			return unsupportedf("it is split (core.splitIndex)")
		case name == "sdir":
			return unsupportedf("it is sparse (index.sparse)")
		case 'a' <= name[0] && name[0] <= 'z':
			return unsupportedf("extension %q", name)
		case name[0] < 'A' || name[0] > 'Z':
			return corruptf("extension %q", name)
		}
	}
	return nil
}

// uvarint reads the variable width encoding of the offsets of OFS_DELTA (see
// gitformat-pack(5)) and returns the value and its length in bytes, 0 if it is
// cut off or longer than any path.
func uvarint(data []byte) (value uint64, n int) {
	for i, c := range data {
		if i == 5 {
			break
		}
		value = value<<7 | uint64(c&0x7f)
		if c&0x80 == 0 {
			return value, i + 1
		}
		value++
	}
	return 0, 0
}

// padding returns how many NUL bytes follow an entry of size bytes, the NUL
// that ends the path included.
func padding(size int) int {
	return 8 - size%8
}

func checksum(data []byte, hashLen int) []byte {
	if hashLen == sha256.Size {
		sum := sha256.Sum256(data)
		return sum[:]
	}
	sum := sha1.Sum(data)
	return sum[:]
}

// arena makes strings that share few allocations: an index has hundreds of
// thousands of short ones, which live and die together.
type arena struct {
	b strings.Builder
}

// grow makes room for n bytes. Strings that were made before stay valid.
func (a *arena) grow(n int) {
	if a.b.Cap()-a.b.Len() >= n {
		return
	}
	a.b.Reset()
	a.b.Grow(max(n, 1<<16))
}

func (a *arena) hex(id []byte) string {
	var digits [2 * sha256.Size]byte
	return a.concat("", digits[:hex.Encode(digits[:], id)])
}

func (a *arena) concat(head string, tail []byte) string {
	a.grow(len(head) + len(tail))
	start := a.b.Len()
	a.b.WriteString(head)
	a.b.Write(tail)
	return a.b.String()[start:]
}

func corruptf(format string, args ...any) error {
	return fmt.Errorf("%w: %w", ErrCorrupt, fmt.Errorf(format, args...))
}

func unsupportedf(format string, args ...any) error {
	return fmt.Errorf("%w: %w", ErrUnsupported, fmt.Errorf(format, args...))
}
