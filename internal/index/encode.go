package index

import (
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"slices"
)

// Encode returns the content of an index file for a repository whose object
// ids have hashLen bytes, 20 or 32: version 3 if an entry has SkipWorktree or
// IntentToAdd set, which version 2 cannot express, and version 2 otherwise.
// Entries that are not sorted are written sorted; x itself stays as it is.
// Entries that git would refuse, and a path that is there twice or both at
// stage 0 and another, are errors.
//
// The cache tree is written as it is: the caller has called Invalidate for the
// paths that changed since it was read.
func (x *Index) Encode(hashLen int) ([]byte, error) {
	data, err := x.encode(hashLen)
	if err != nil {
		return nil, fmt.Errorf("encode index: %w", err)
	}
	return data, nil
}

func (x *Index) encode(hashLen int) ([]byte, error) {
	if err := checkHashLen(hashLen); err != nil {
		return nil, err
	}
	if uint64(len(x.Entries)) > math.MaxUint32 {
		return nil, fmt.Errorf("%d entries are too many", len(x.Entries))
	}
	entries := x.Entries
	if !slices.IsSortedFunc(entries, compareEntries) {
		entries = slices.Clone(entries)
		slices.SortFunc(entries, compareEntries)
	}
	if err := checkEntries(entries, hashLen); err != nil {
		return nil, err
	}

	version, size := uint32(2), headerSize+hashLen
	for i := range entries {
		if entries[i].SkipWorktree || entries[i].IntentToAdd {
			version = 3
		}
		size += statSize + hashLen + 4 + len(entries[i].Path) + 8
	}
	data := make([]byte, 0, size)
	data = append(data, signature...)
	data = binary.BigEndian.AppendUint32(data, version)
	data = binary.BigEndian.AppendUint32(data, uint32(len(entries)))
	for i := range entries {
		data = appendEntry(data, &entries[i])
	}
	if x.Tree != nil {
		var err error
		if data, err = appendExtension(data, x.Tree, hashLen); err != nil {
			return nil, err
		}
	}
	return append(data, checksum(data, hashLen)...), nil
}

// appendExtension appends the extension that holds a cache tree.
func appendExtension(data []byte, t *CacheTree, hashLen int) ([]byte, error) {
	data = append(data, "TREE\x00\x00\x00\x00"...)
	start := len(data)
	data, err := appendCacheTree(data, t, hashLen)
	if err != nil {
		return nil, fmt.Errorf("cache tree: %w", err)
	}
	if uint64(len(data)-start) > math.MaxUint32 {
		return nil, fmt.Errorf("a cache tree of %d bytes is too large", len(data)-start)
	}
	binary.BigEndian.PutUint32(data[start-4:], uint32(len(data)-start))
	return data, nil
}

func compareEntries(a, b Entry) int {
	return comparePathStage(a.Path, a.Stage, b.Path, b.Stage)
}

func appendEntry(data []byte, e *Entry) []byte {
	start := len(data)
	for _, field := range [...]uint32{
		e.Stat.CTimeSec, e.Stat.CTimeNsec,
		e.Stat.MTimeSec, e.Stat.MTimeNsec,
		e.Stat.Dev, e.Stat.Ino,
		e.Mode,
		e.Stat.UID, e.Stat.GID,
		e.Stat.Size,
	} {
		data = binary.BigEndian.AppendUint32(data, field)
	}
	data = appendHex(data, e.ID)

	flags := uint16(min(len(e.Path), flagNameMask)) | uint16(e.Stage)<<flagStageShift
	if e.AssumeUnchanged {
		flags |= flagAssumeUnchanged
	}
	var extended uint16
	if e.SkipWorktree {
		extended |= flagSkipWorktree
	}
	if e.IntentToAdd {
		extended |= flagIntentToAdd
	}
	if extended != 0 {
		data = binary.BigEndian.AppendUint16(data, flags|flagExtended)
		data = binary.BigEndian.AppendUint16(data, extended)
	} else {
		data = binary.BigEndian.AppendUint16(data, flags)
	}

	data = append(data, e.Path...)
	return append(data, make([]byte, padding(len(data)-start))...)
}

// appendHex appends the bytes of an id that isID has accepted.
func appendHex(data []byte, id string) []byte {
	data, err := hex.AppendDecode(data, []byte(id))
	if err != nil {
		panic(err)
	}
	return data
}

// WriteFile encodes the index and puts it at path: it writes a new file next to
// it and renames that, so that a reader sees the old or the new content and
// nothing between. It takes no lock; path+".lock" is up to the caller where git
// may write the same file.
func (x *Index) WriteFile(path string, hashLen int) error {
	data, err := x.encode(hashLen)
	if err != nil {
		return fmt.Errorf("write index '%s': %w", path, err)
	}
	temp := fmt.Sprintf("%s.tmp-%d-%08x", path, os.Getpid(), rand.Uint32())
	if err := createFile(temp, data); err != nil {
		return fmt.Errorf("write index '%s': %w", temp, withoutPath(err))
	}
	if err := os.Rename(temp, path); err != nil {
		os.Remove(temp)
		return fmt.Errorf("write index '%s': rename '%s': %w", path, temp, withoutPath(err))
	}
	return nil
}

// createFile writes a file that must not be there, and leaves none on failure.
func createFile(path string, data []byte) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o666)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	if closeErr := f.Close(); err == nil {
		err = closeErr
	}
	if err != nil {
		os.Remove(path)
	}
	return err
}
