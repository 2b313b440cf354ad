// Package snapshot knows how a working tree becomes a tree object: exactly
// as git would store it, with every file that the user's index lists or that
// is untracked and not ignored, and without touching the user's index. It
// also knows how the index itself, with what is staged, in conflict, flagged
// or under way, becomes a commit.
package snapshot

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/git-checkpoint/git-checkpoint/internal/fault"
	"github.com/git-checkpoint/git-checkpoint/internal/git"
	"github.com/git-checkpoint/git-checkpoint/internal/index"
	"github.com/git-checkpoint/git-checkpoint/internal/object"
)

// Taker takes snapshots of one working tree. It is the one interface between
// saving and the way in which it is done.
type Taker interface {
	// Take stores the working tree's files and returns the tree. The user's
	// index is read, never written.
	Take(ctx context.Context, o Options) (*Snapshot, error)
}

// Options say what a snapshot is to hold.
type Options struct {
	// MaxFileSize is the size in bytes above which an untracked file is
	// skipped; 0 means no limit.
	MaxFileSize int64
	// Exclude are patterns, in gitignore(5) form, of untracked files to leave out.
	Exclude []string
	// Force are paths to take if they are on disk, ignored or too large as
	// they may be.
	Force []string
	// Exact asks for Snapshot.Files, with the stat data of the files on disk to
	// the last field. git lets the nanoseconds differ.
	Exact bool
	// Omit are untracked paths to leave out.
	Omit map[string]bool
	// Scratch keeps everything, objects too, in a temporary directory, so
	// that looking changes nothing.
	Scratch bool
	// Key is what the cache from the last save must be tied to; empty means
	// that there is no usable cache. See Snapshot.Keep.
	Key string
	// Changing and Changed, if they are there, may be called by another
	// goroutine, one after the other, until Take returns: Changing as soon as
	// it is certain that the tree is not going to be that of the key, Changed
	// as soon as there is a tree that may be another.
	Changing func()
	Changed  func(tree string)
}

// Skip is a path that a snapshot leaves out.
type Skip struct {
	Path   string `json:"path"`
	Reason string `json:"reason"`
}

// Snapshot is what Take found.
type Snapshot struct {
	Tree        string
	Files       *index.Index // what the tree holds, with the stat data of the files on disk; see Options.Exact
	Skipped     []Skip
	Unprotected []string // submodules and nested repositories: only their commit is in the tree
	Env         []string // what git needs to see the objects of a scratch snapshot
	Behind      bool     // the cache is good for the next Take as it is, with the key that it has; Keep does nothing

	keep      func(key string) error
	discard   func()
	content   func(dir string) ([]byte, error) // the trees of Tree by their paths; nil: they have to be read
	user      func() (*index.Index, error)     // see User
	named     func(name string) ([]string, error)
	reindex   func(edits []index.Edit, differs func(path, id string) bool) (data []byte, tree string, err error)
	indexTree func(op *Operation, headTree string, repo *git.Repo, store object.Store) (string, error)
}

// IndexTree is IndexTree of the user's index as the snapshot saw it. Call it
// before Discard, and before Keep, which remembers it.
func (s *Snapshot) IndexTree(op *Operation, headTree string, repo *git.Repo, store object.Store) (string, error) {
	if s.indexTree != nil {
		return s.indexTree(op, headTree, repo, store)
	}
	state, err := s.state(op)
	if err != nil {
		return "", err
	}
	return IndexTree(state, headTree, repo.ObjectFormat, store)
}

// User is the user's index as the snapshot saw it. Call it before Discard.
func (s *Snapshot) User() (*index.Index, error) { return s.user() }

// Named says whether a path is that of a file of a name, in whatever directory.
func Named(p, name string) bool { return strings.HasSuffix(p, name) && path.Base(p) == name }

// UserNamed lists the ids of the files of a name, in whatever directory, that
// are in the user's index. Call it before Discard.
func (s *Snapshot) UserNamed(name string) ([]string, error) {
	if s.named != nil {
		return s.named(name)
	}
	x, err := s.User()
	if err != nil {
		return nil, err
	}
	var ids []string
	for i := range x.Entries {
		if e := &x.Entries[i]; Named(e.Path, name) {
			ids = append(ids, e.ID)
		}
	}
	return ids, nil
}

// Reindex returns what an index file holds that has the files of the snapshot
// with edits, sorted by path, and their tree. differs is asked about files that
// may have changed in the second in which the snapshot saw them; their entries
// are marked for git to look at. Call it where Reindexes says so, before
// Discard, and after Compare.
func (s *Snapshot) Reindex(edits []index.Edit, differs func(path, id string) bool) (data []byte, tree string, err error) {
	return s.reindex(edits, differs)
}

// Reindexes says whether the snapshot knows how to Reindex.
func (s *Snapshot) Reindexes() bool { return s.reindex != nil }

// Keep makes the snapshot's index the cache of the next Take that gives the
// same key: the id of the checkpoint that the snapshot became. See Behind.
func (s *Snapshot) Keep(key string) error {
	if s.keep == nil {
		return nil
	}
	return s.keep(key)
}

// Discard removes what a scratch snapshot left, and the index of one that is
// not to be kept.
func (s *Snapshot) Discard() {
	if s.discard != nil {
		s.discard()
	}
}

// SkipReasons of Skip.Reason.
const (
	ReasonTooLarge   = "too large"
	ReasonUnreadable = "unreadable"
	ReasonSpecial    = "not a regular file"
	ReasonNoCommit   = "a repository without a commit"
	ReasonName       = "a name that git refuses"
)

// ReadUserIndex reads the user's index, whatever form git keeps it in. The
// index file is that of the worktree, not one that GIT_INDEX_FILE names.
func ReadUserIndex(ctx context.Context, repo *git.Repo) (*index.Index, error) {
	x, err := index.Read(filepath.Join(repo.Dir, "index"), repo.HashLen())
	if errors.Is(err, index.ErrUnsupported) {
		// A split or sparse index: git shows it whole.
		git.Trace("index: by git (%v)", err)
		x, err = listIndex(ctx, repo)
	}
	if err != nil {
		if errors.Is(err, fault.Fatal) {
			return nil, err
		}
		return nil, fault.New(fault.Fatal, "index-unreadable", "%w", err).
			WithHint("git status tells more; git read-tree HEAD makes a new index")
	}
	return x, nil
}

// listIndex reads the index as `git ls-files --stage --debug` prints it.
func listIndex(ctx context.Context, repo *git.Repo) (*index.Index, error) {
	info, err := os.Stat(filepath.Join(repo.Dir, "index"))
	if err != nil {
		return nil, fmt.Errorf("read index: %w", err)
	}
	out, err := repo.Command(ctx, "ls-files", "--stage", "--debug", "-z").Output()
	if err != nil {
		return nil, fmt.Errorf("read index: %w", err)
	}
	x := &index.Index{ModTime: info.ModTime()}
	for text := string(out); text != ""; {
		head, rest, ok := strings.Cut(text, "\x00")
		meta, path, tabbed := strings.Cut(head, "\t")
		e := index.Entry{Path: path}
		if _, err := fmt.Sscanf(meta, "%o %s %d", &e.Mode, &e.ID, &e.Stage); err != nil || !ok || !tabbed {
			return nil, fmt.Errorf("read index: git printed '%.80s'", head)
		}
		var flags uint32
		s := &e.Stat
		n, err := fmt.Sscanf(rest, "  ctime: %d:%d\n  mtime: %d:%d\n  dev: %d\tino: %d\n  uid: %d\tgid: %d\n  size: %d\tflags: %x\n",
			&s.CTimeSec, &s.CTimeNsec, &s.MTimeSec, &s.MTimeNsec, &s.Dev, &s.Ino, &s.UID, &s.GID, &s.Size, &flags)
		if err != nil || n != 10 {
			return nil, fmt.Errorf("read index: git printed no stat data for '%s'", path)
		}
		e.AssumeUnchanged, e.IntentToAdd, e.SkipWorktree = flags&(1<<15) != 0, flags&(1<<29) != 0, flags&(1<<30) != 0
		x.Entries = append(x.Entries, e)
		for range 5 {
			_, rest, _ = strings.Cut(rest, "\n")
		}
		text = rest
	}
	return x, nil
}

// DiskPath is where a path of the tree is on disk.
func DiskPath(repo *git.Repo, path string) string { return diskPath(repo.Top, path) }

func diskPath(top, path string) string { return filepath.Join(top, filepath.FromSlash(path)) }

// Lstat looks at a path of the tree without following any symbolic link, not
// in its directories either: what lies beyond a link is not there.
type Lstat struct {
	top   string
	known map[string]bool // directories: is it a real one
}

// NewLstat returns a fresh look at a working tree. It remembers directories,
// so it is good for one pass during which they stay.
func NewLstat(repo *git.Repo) *Lstat {
	return &Lstat{top: repo.Top, known: map[string]bool{"": true}}
}

// Get returns what is at path, nil where nothing is.
func (l *Lstat) Get(path string) (fs.FileInfo, error) {
	if i := strings.LastIndexByte(path, '/'); i >= 0 && !l.realDir(path[:i]) {
		return nil, nil
	}
	fi, err := os.Lstat(filepath.Join(l.top, filepath.FromSlash(path)))
	if err != nil {
		if git.Missing(err) {
			return nil, nil
		}
		return nil, fault.New(fault.Fatal, "io", "look at '%s': %w", path, err)
	}
	return fi, nil
}

func (l *Lstat) realDir(dir string) bool {
	real, ok := l.known[dir]
	if !ok {
		if i := strings.LastIndexByte(dir, '/'); i < 0 || l.realDir(dir[:i]) {
			fi, err := os.Lstat(filepath.Join(l.top, filepath.FromSlash(dir)))
			real = err == nil && fi.IsDir()
		}
		l.known[dir] = real
	}
	return real
}
