package index

import (
	"bytes"
	"fmt"
	"sort"
	"strconv"
	"strings"
)

// TreeEntry is a file, symbolic link or gitlink for BuildTrees.
type TreeEntry struct {
	// Mode is any mode of stat(2); it is normalised as git does, by type and
	// the owner's execute bit.
	Mode uint32
	// ID is the object id, 40 or 64 lower-case hexadecimal digits.
	ID string
	// Path is as in Entry.
	Path string
}

// BuildTrees makes the git trees of entries that are sorted by path, byte by
// byte, and returns the id of the root. It calls put for the content of each
// new tree, subdirectories first; put returns the tree's id, or "" to make
// BuildTrees give up, and may keep the slice.
//
// A directory whose number of entries is the EntryCount of its directory in
// cache has the id that is there, and put is not called for it or below it. The
// caller answers for the cache being about these entries (see Invalidate), and
// for its trees being in the object database. cache may be nil.
//
// A path that is there twice, or is both a file and a directory, and one that
// no index may have, is an error. No entries make the empty tree, for which put
// is always called.
func BuildTrees(entries []TreeEntry, cache *CacheTree, hashLen int, put func(tree []byte) string) (root string, err error) {
	if err := checkHashLen(hashLen); err != nil {
		return "", fmt.Errorf("build trees: %w", err)
	}
	if err := checkTreeEntries(entries, hashLen); err != nil {
		return "", fmt.Errorf("build trees: %w", err)
	}
	b := treeBuilder{hashLen: hashLen, put: put}
	root, err = b.build(entries, 0, cache, 0)
	if err != nil {
		return "", fmt.Errorf("build trees: %w", err)
	}
	return root, nil
}

// treeBuilder makes trees in one buffer: that of a subdirectory grows behind
// the half-made one of its parent.
type treeBuilder struct {
	hashLen int
	put     func(tree []byte) string
	buf     []byte
}

// build makes the tree of the entries, which all are in one directory whose
// path, with the '/' at its end, has prefix bytes.
func (b *treeBuilder) build(entries []TreeEntry, prefix int, cache *CacheTree, depth int) (string, error) {
	if len(entries) > 0 && cache != nil && cache.EntryCount == len(entries) {
		if !isID(cache.ID, b.hashLen) {
			return "", fmt.Errorf("cache tree of %q: object id %q", entries[0].Path[:prefix], cache.ID)
		}
		return cache.ID, nil
	}
	if depth > maxDepth {
		return "", fmt.Errorf("directories nest more than %d deep", maxDepth)
	}

	// The order of the paths is that of the trees, where a directory sorts as
	// if its name ended in '/'.
	start := len(b.buf)
	for len(entries) > 0 {
		path := entries[0].Path
		name, _, isDir := strings.Cut(path[prefix:], "/")
		if !isDir {
			mode, _ := treeMode(entries[0].Mode)
			b.add(mode, name, entries[0].ID)
			entries = entries[1:]
			continue
		}
		below := path[:prefix+len(name)+1]
		n := sort.Search(len(entries), func(i int) bool {
			return !strings.HasPrefix(entries[i].Path, below)
		})
		id, err := b.build(entries[:n], len(below), cache.Child(name), depth+1)
		if err != nil {
			return "", err
		}
		b.add(ModeDir, name, id)
		entries = entries[n:]
	}

	id := b.put(bytes.Clone(b.buf[start:]))
	b.buf = b.buf[:start]
	if !isID(id, b.hashLen) {
		return "", fmt.Errorf("a tree was not stored: its object id is %q", id)
	}
	return id, nil
}

func (b *treeBuilder) add(mode uint32, name, id string) {
	b.buf = appendHex(appendTreeName(b.buf, mode, name), id)
}

// appendTreeName appends an entry of a tree up to its id.
func appendTreeName[S string | []byte](buf []byte, mode uint32, name S) []byte {
	buf = strconv.AppendUint(buf, uint64(mode), 8)
	buf = append(buf, ' ')
	buf = append(buf, name...)
	return append(buf, 0)
}

// checkTreeEntries checks each entry, their order, and that no path is both a
// file and a directory.
func checkTreeEntries(entries []TreeEntry, hashLen int) error {
	// The file "a" can be far from "a/b": "a-" and "a.c" sort between them.
	// open has the files whose path starts the current one.
	var open []string
	for i := range entries {
		e := &entries[i]
		if err := checkPath(e.Path); err != nil {
			return err
		}
		if _, ok := treeMode(e.Mode); !ok {
			return fmt.Errorf("entry %q has the mode %06o", e.Path, e.Mode)
		}
		if !isID(e.ID, hashLen) {
			return fmt.Errorf("entry %q has the object id %q", e.Path, e.ID)
		}
		if i > 0 {
			switch c := strings.Compare(entries[i-1].Path, e.Path); {
			case c > 0:
				return fmt.Errorf("entry %q is not in order after %q", e.Path, entries[i-1].Path)
			case c == 0:
				return fmt.Errorf("entry %q is there more than once", e.Path)
			}
		}
		for len(open) > 0 && !strings.HasPrefix(e.Path, open[len(open)-1]) {
			open = open[:len(open)-1]
		}
		// The longest is enough: had it been below a shorter one, that would
		// have been an error.
		if len(open) > 0 && e.Path[len(open[len(open)-1])] == '/' {
			return fmt.Errorf("%q is both a file and the directory of %q", open[len(open)-1], e.Path)
		}
		open = append(open, e.Path)
	}
	return nil
}

// treeMode returns the mode that git writes into a tree for a mode of stat(2).
func treeMode(mode uint32) (uint32, bool) {
	switch mode & 0o170000 {
	case 0o100000:
		if mode&0o100 != 0 {
			return ModeExecutable, true
		}
		return ModeFile, true
	case ModeSymlink, ModeGitlink:
		return mode & 0o170000, true
	}
	return 0, false
}
