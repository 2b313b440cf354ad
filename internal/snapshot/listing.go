package snapshot

import (
	"slices"
	"sort"
	"strings"

	"github.com/git-checkpoint/git-checkpoint/internal/index"
	"github.com/git-checkpoint/git-checkpoint/internal/object"
)

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
		var old *index.CacheTree
		if base != nil {
			if i, ok := slices.BinarySearchFunc(base.Children, part, func(c *index.CacheTree, name string) int { return byLength(c.Name, name) }); ok {
				old = base.Children[i]
			}
		}
		child := cacheTree(part, len(path), entries[:n], changed, old)
		if child == nil {
			return nil
		}
		node.Children = append(node.Children, child)
		entries = entries[n:]
	}
	slices.SortFunc(node.Children, func(a, b *index.CacheTree) int { return byLength(a.Name, b.Name) })
	return node
}

// byLength is the order of the directories of a cache tree.
func byLength(a, b string) int {
	if len(a) != len(b) {
		return len(a) - len(b)
	}
	return strings.Compare(a, b)
}
