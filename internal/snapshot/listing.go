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
	if s.content == nil {
		return object.Compare(ctx, store, objectFormat, s.Tree, to)
	}
	d, err := object.CompareListed(ctx, store, objectFormat, s.Tree, s.content, to)
	if errors.Is(err, index.ErrCacheTree) {
		return object.Compare(ctx, store, objectFormat, s.Tree, to)
	}
	return d, err
}

// contents returns a function that gives the content of the trees of a view,
// by their paths, whose cache tree is known. A directory is asked for after
// those above it.
func contents(v *index.View, tree *index.CacheTree) func(dir string) ([]byte, error) {
	known := map[string]*index.CacheTree{"": tree}
	return func(dir string) ([]byte, error) {
		node := known[dir]
		if node == nil {
			return nil, index.ErrCacheTree
		}
		if dir != "" {
			dir += "/"
		}
		for _, child := range node.Children {
			known[dir+child.Name] = child
		}
		return v.TreeContent(node, dir)
	}
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
