package snapshot

import (
	"context"
	"errors"
	"sort"
	"strings"

	"github.com/git-checkpoint/git-checkpoint/internal/index"
	"github.com/git-checkpoint/git-checkpoint/internal/object"
)

// Compare says how another tree differs from the snapshot's, which is known
// and not read.
func (s *Snapshot) Compare(ctx context.Context, store object.Store, objectFormat, to string) (*object.Difference, error) {
	if s.Files.Tree == nil || s.Files.Tree.ID != s.Tree {
		return object.Compare(ctx, store, objectFormat, s.Tree, to)
	}
	dirs := map[string]*index.CacheTree{"": s.Files.Tree}
	d, err := object.CompareListed(ctx, store, objectFormat, s.Tree, func(dir string) ([]object.TreeEntry, error) {
		return listDirectory(s.Files.Entries, dirs, dir)
	}, to)
	if errors.Is(err, errCacheTree) {
		return object.Compare(ctx, store, objectFormat, s.Tree, to)
	}
	return d, err
}

// errCacheTree says that a cache tree is not that of the entries.
var errCacheTree = errors.New("the cache tree does not fit")

// listDirectory lists the entries of a directory. dirs are the cache trees of
// directories by path: its own, and it adds those of the ones below.
func listDirectory(entries []index.Entry, dirs map[string]*index.CacheTree, dir string) ([]object.TreeEntry, error) {
	node := dirs[dir]
	if dir != "" {
		dir += "/"
		entries = entries[sort.Search(len(entries), func(i int) bool { return entries[i].Path >= dir }):]
	}
	if node.EntryCount > len(entries) {
		return nil, errCacheTree
	}
	// The cache tree says how many entries a directory has, so that those of
	// its own directories are passed over.
	var list []object.TreeEntry
	for entries = entries[:node.EntryCount]; len(entries) > 0; {
		e := &entries[0]
		if !strings.HasPrefix(e.Path, dir) {
			return nil, errCacheTree
		}
		name, _, below := strings.Cut(e.Path[len(dir):], "/")
		if !below {
			list = append(list, object.TreeEntry{Mode: e.Mode, Name: name, ID: e.ID})
			entries = entries[1:]
			continue
		}
		path := e.Path[:len(dir)+len(name)+1]
		child := node.Child(name)
		if child == nil || child.EntryCount < 1 || child.EntryCount > len(entries) || !strings.HasPrefix(entries[child.EntryCount-1].Path, path) {
			return nil, errCacheTree
		}
		dirs[dir+name] = child
		list = append(list, object.TreeEntry{Mode: object.ModeTree, Name: name, ID: child.ID})
		entries = entries[child.EntryCount:]
	}
	return list, nil
}

// Apply returns the files of a tree from those of another, sorted as theirs
// are, and from what is different in it. The entries of paths that are the
// same keep their stat data, which is that of the files on disk where base
// is a snapshot's; flags are cleared.
func Apply(base []index.Entry, d *object.Difference) []index.Entry {
	list := make([]index.Entry, 0, len(base)+len(d.Changes))
	for _, c := range d.Changes {
		n := sort.Search(len(base), func(i int) bool { return base[i].Path >= c.Path })
		list, base = append(list, base[:n]...), base[n:]
		if len(base) > 0 && base[0].Path == c.Path {
			base = base[1:]
		}
		if c.ToMode != 0 {
			list = append(list, index.Entry{Mode: c.ToMode, ID: c.ToID, Path: c.Path})
		}
	}
	list = append(list, base...)
	for i := range list {
		list[i].SkipWorktree, list[i].AssumeUnchanged, list[i].IntentToAdd = false, false, false
	}
	return list
}

// CacheTree is the cache tree of an index that holds just the files of a tree:
// entries, which Apply made from d and from those of an index with the cache
// tree base. It is nil where base does not know all of its directories.
func CacheTree(entries []index.Entry, d *object.Difference, base *index.CacheTree) *index.CacheTree {
	if base == nil {
		return nil
	}
	return cacheTree("", 0, entries, d.Trees, base)
}

func cacheTree(name string, prefix int, entries []index.Entry, changed map[string]string, base *index.CacheTree) *index.CacheTree {
	node := &index.CacheTree{Name: name, EntryCount: len(entries)}
	dir := ""
	if prefix > 0 {
		dir = entries[0].Path[:prefix-1]
	}
	id, different := changed[dir]
	if !different {
		if base == nil || base.EntryCount != len(entries) {
			return nil
		}
		return base
	}
	node.ID = id
	for len(entries) > 0 {
		part, _, below := strings.Cut(entries[0].Path[prefix:], "/")
		if !below {
			entries = entries[1:]
			continue
		}
		path := entries[0].Path[:prefix+len(part)+1]
		n := sort.Search(len(entries), func(i int) bool { return !strings.HasPrefix(entries[i].Path, path) })
		child := cacheTree(part, len(path), entries[:n], changed, base.Child(part))
		if child == nil {
			return nil
		}
		node.Children = append(node.Children, child)
		entries = entries[n:]
	}
	node.Sort()
	return node
}
