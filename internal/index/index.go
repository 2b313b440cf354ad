// Package index knows git's index file: the format of gitformat-index(5),
// which entries git believes without looking at the file (the racy rule), and
// how the trees of git-write-tree(1) follow from the entries.
//
// It reads versions 2, 3 and 4 and writes version 2 or 3. Of the extensions it
// keeps the cache tree; the others that may be ignored are dropped, so an
// index that was read and written again has lost its resolve-undo
// information, untracked cache and file system monitor state, all of which
// git rebuilds or does without.
package index

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"sort"
	"strings"
	"time"
)

var (
	// ErrCorrupt is wrapped by the errors about bytes that are not an index,
	// and about entries that no index may have.
	ErrCorrupt = errors.New("corrupt index")

	// ErrUnsupported is wrapped by the errors about an index that git may well
	// understand and this package does not: a split index, a sparse index, a
	// newer version, an unknown mandatory extension.
	ErrUnsupported = errors.New("unsupported index")
)

// The modes an entry can have, and the mode a tree has for a directory.
const (
	ModeFile       uint32 = 0o100644
	ModeExecutable uint32 = 0o100755
	ModeSymlink    uint32 = 0o120000
	ModeGitlink    uint32 = 0o160000
	ModeDir        uint32 = 0o040000
)

// Index is the content of an index file.
type Index struct {
	// Entries are sorted by path, byte by byte, then by stage.
	Entries []Entry
	// Tree is the cache tree, nil if the file has none.
	Tree *CacheTree
	// ModTime is the modification time of the file that Read read, zero for an
	// index that comes from elsewhere or whose file is missing.
	ModTime time.Time
	// Version is the version of the file that was read. Encode ignores it.
	Version int
}

// Entry is one path at one stage.
type Entry struct {
	// Stat is zero when git did not take the content from a file.
	Stat Stat
	// Mode is one of ModeFile, ModeExecutable, ModeSymlink and ModeGitlink.
	Mode uint32
	// ID is the object id, 40 or 64 lower-case hexadecimal digits.
	ID string
	// Stage is 0, or 1 to 3 for the base, our and their side of a conflict.
	Stage int

	AssumeUnchanged bool
	SkipWorktree    bool
	IntentToAdd     bool

	// Path is relative to the top of the working tree, with '/' between its
	// components whatever the operating system. It may hold any other byte
	// except NUL.
	Path string
}

// Stat is what git remembers of stat(2) to tell a changed file, each field cut
// to 32 bits as git cuts it. Two values can be compared with ==.
//
// Size 0 with an id that is not the empty blob's marks an entry that git wants
// compared by content (see SmudgeRacy): such an entry is not clean, even when
// its Stat is equal to that of the file.
type Stat struct {
	CTimeSec, CTimeNsec uint32 // seconds since 1970, nanoseconds
	MTimeSec, MTimeNsec uint32 // seconds since 1970, nanoseconds
	Dev, Ino            uint32
	UID, GID            uint32
	Size                uint32 // bytes
}

// Read reads the index file at path in a repository whose object ids have
// hashLen bytes, 20 or 32. A missing file is an empty index, as for git.
// An error about the content wraps ErrCorrupt or ErrUnsupported.
func Read(path string, hashLen int) (*Index, error) {
	if err := checkHashLen(hashLen); err != nil {
		return nil, fmt.Errorf("read index '%s': %w", path, err)
	}
	data, modTime, err := readFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return &Index{Version: 2}, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read index '%s': %w", path, withoutPath(err))
	}
	x, err := parse(data, hashLen)
	if err != nil {
		return nil, fmt.Errorf("read index '%s': %w", path, err)
	}
	x.ModTime = modTime
	return x, nil
}

// readFile returns the content and the modification time of one and the same
// file, also while git renames a new index into place.
func readFile(path string) ([]byte, time.Time, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, time.Time{}, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, time.Time{}, err
	}
	if !info.Mode().IsRegular() {
		return nil, time.Time{}, errors.New("not a regular file")
	}
	data := make([]byte, info.Size())
	if _, err := io.ReadFull(f, data); err != nil {
		return nil, time.Time{}, err
	}
	return data, info.ModTime(), nil
}

// withoutPath takes the operation and the path out of an error of package os,
// for messages that name them already.
func withoutPath(err error) error {
	if pathErr, ok := errors.AsType[*fs.PathError](err); ok {
		return pathErr.Err
	}
	if linkErr, ok := errors.AsType[*os.LinkError](err); ok {
		return linkErr.Err
	}
	return err
}

// Lookup finds the entry of a path at a stage. The pointer is into x.Entries.
func (x *Index) Lookup(path string, stage int) (*Entry, bool) {
	i := sort.Search(len(x.Entries), func(i int) bool {
		e := &x.Entries[i]
		return comparePathStage(e.Path, e.Stage, path, stage) >= 0
	})
	if i == len(x.Entries) || x.Entries[i].Path != path || x.Entries[i].Stage != stage {
		return nil, false
	}
	return &x.Entries[i], true
}

// Racy tells whether the file of an entry may have changed after git looked at
// it without a change of its Stat, because the index was written within the
// second of the file's modification. The content has to be compared then.
//
// Whole seconds count, although Stat has nanoseconds: git does not compare
// those unless it was built with USE_NSEC, and a file system may not have them.
func (x *Index) Racy(e *Entry) bool {
	if x.ModTime.IsZero() || e.Mode == ModeGitlink {
		return false
	}
	written := uint32(x.ModTime.Unix())
	return written != 0 && written <= e.Stat.MTimeSec
}

// SmudgeRacy sets the size of each racy entry to 0, which makes git compare its
// content the next time. An index that is written anew needs this, even when
// nothing else is changed: the new file is younger than the one that was read,
// and git would no longer see that those entries are racy. Without a ModTime it
// does nothing.
func (x *Index) SmudgeRacy() {
	for i := range x.Entries {
		if x.Racy(&x.Entries[i]) {
			x.Entries[i].Stat.Size = 0
		}
	}
}

func comparePathStage(path1 string, stage1 int, path2 string, stage2 int) int {
	if c := strings.Compare(path1, path2); c != 0 {
		return c
	}
	return stage1 - stage2
}

// checkEntries checks what must hold for the entries of any index, and that
// they are in order. Read and Encode share it, so that what was read can be
// written.
func checkEntries(entries []Entry, hashLen int) error {
	for i := range entries {
		e := &entries[i]
		if err := checkEntry(e, hashLen); err != nil {
			return err
		}
		if i == 0 {
			continue
		}
		prev := &entries[i-1]
		switch c := strings.Compare(prev.Path, e.Path); {
		case c > 0:
			return fmt.Errorf("entry %q is not in order after %q", e.Path, prev.Path)
		case c == 0 && prev.Stage == 0:
			return fmt.Errorf("entry %q is there more than once", e.Path)
		case c == 0 && prev.Stage >= e.Stage:
			return fmt.Errorf("stage %d of entry %q is not in order after stage %d", e.Stage, e.Path, prev.Stage)
		}
	}
	return nil
}

func checkEntry(e *Entry, hashLen int) error {
	if err := checkPath(e.Path); err != nil {
		return err
	}
	switch e.Mode {
	case ModeFile, ModeExecutable, ModeSymlink, ModeGitlink:
	default:
		return fmt.Errorf("entry %q has the mode %06o", e.Path, e.Mode)
	}
	if e.Stage < 0 || e.Stage > 3 {
		return fmt.Errorf("entry %q has the stage %d", e.Path, e.Stage)
	}
	if !isID(e.ID, hashLen) {
		return fmt.Errorf("entry %q has the object id %q", e.Path, e.ID)
	}
	return nil
}

// checkPath refuses the paths that gitformat-index(5) rules out. ".git" is
// ruled out in upper case as well, as git does on every system.
func checkPath(path string) error {
	start := 0
	for i := 0; i <= len(path); i++ {
		if i < len(path) && path[i] != '/' {
			if path[i] == 0 {
				return fmt.Errorf("path %q has a NUL byte", path)
			}
			continue
		}
		component := path[start:i]
		start = i + 1
		switch {
		case component == "":
			return fmt.Errorf("path %q has an empty component", path)
		case component[0] != '.':
		case component == ".", component == "..", len(component) == 4 && strings.EqualFold(component, ".git"):
			return fmt.Errorf("path %q has the component %q", path, component)
		}
	}
	return nil
}

// isID tells whether s is an object id, and not the null id, which git refuses
// to write into an index or a tree.
func isID(s string, hashLen int) bool {
	if len(s) != 2*hashLen {
		return false
	}
	// One bit for each that is no digit, and one for each but '0': an index
	// has a hundred thousand ids, and each is looked at when it is written.
	var wrong, some byte
	for i := 0; i < len(s); i++ {
		wrong |= notHex[s[i]]
		some |= s[i] ^ '0'
	}
	return wrong == 0 && some != 0
}

// notHex is 1 for each byte that is no lower-case hexadecimal digit.
var notHex = func() (table [256]byte) {
	for i := range table {
		if c := byte(i); (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			table[i] = 1
		}
	}
	return table
}()

func checkHashLen(hashLen int) error {
	if hashLen != 20 && hashLen != 32 {
		return fmt.Errorf("object ids of %d bytes are not known", hashLen)
	}
	return nil
}
