//go:build !linux

package snapshot

import (
	"cmp"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"github.com/git-checkpoint/git-checkpoint/internal/index"
)

// folder reads one directory after the other.
type folder struct {
	top     string
	path    string
	entries []dirent
	found   fileStat
	waits   bool // only the system of folder_linux.go heeds it
}

// newFolder opens the working tree.
func newFolder(top string) (*folder, error) { return &folder{top: top}, nil }

func (f *folder) close() {}

// enter makes a directory of the working tree, "" for its top, else with '/' at
// the end, the one that is looked at.
func (f *folder) enter(path string) {
	f.path, f.entries = filepath.Join(f.top, filepath.FromSlash(path)), f.entries[:0]
}

// times are those of the directory, where they can tell whether names have
// come or gone since.
func (f *folder) times() (t dirTimes, ok bool) { return t, false }

// list fills entries, in no order.
func (f *folder) list() error {
	if fi, err := os.Lstat(f.path); err != nil || !fi.IsDir() {
		return cmp.Or(err, error(syscall.ENOTDIR))
	}
	list, err := os.ReadDir(f.path)
	for _, e := range list {
		d := dirent{name: []byte(e.Name()), kind: kindOf(e.Type())}
		f.entries = append(f.entries, d)
	}
	return err
}

func kindOf(mode fs.FileMode) kind {
	switch mode.Type() {
	case 0:
		return kindFile
	case fs.ModeSymlink:
		return kindLink
	case fs.ModeDir:
		return kindDir
	}
	return kindOther
}

// stat looks at a name in the directory. The result is good
// until the next one.
func (f *folder) stat(name []byte) (*fileStat, error) {
	fi, err := os.Lstat(filepath.Join(f.path, string(name)))
	if err != nil {
		return nil, err
	}
	s := &f.found
	s.kind, s.size = kindOf(fi.Mode()), fi.Size()
	mode := index.ModeOf(fi)
	if s.kind == kindDir {
		mode = 0
	}
	stat := index.StatOf(fi)
	s.record = stat.Record(mode)
	return s, nil
}

// gone says that there is no such thing any more, or something else.
func gone(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR)
}

// readNoFollow reads a file that is not a symbolic link.
func readNoFollow(path string) ([]byte, error) {
	fi, err := os.Lstat(path)
	if err != nil {
		return nil, err
	}
	if !fi.Mode().IsRegular() && !fi.IsDir() {
		return nil, fs.ErrNotExist
	}
	return os.ReadFile(path)
}

// blocksRead is not known here.
func (f *folder) blocksRead() (int64, bool) { return 0, false }
