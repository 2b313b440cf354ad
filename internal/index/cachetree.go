package index

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
)

// maxDepth bounds how deep directories nest, here and in BuildTrees. A path of
// 4096 bytes, the most that file systems take, has half as many components.
const maxDepth = 4096

// CacheTree is one directory of the cache tree, the extension that remembers
// the ids of the trees that the entries would make.
type CacheTree struct {
	// Name is the last component of the directory's path, empty at the root.
	Name string
	// EntryCount is the number of index entries below the directory, or -1
	// when one of them changed since the tree was made.
	EntryCount int
	// ID is the id of the tree, 40 or 64 lower-case hexadecimal digits; empty
	// when EntryCount is -1.
	ID string
	// Children are the subdirectories, in git's order: by the length of the
	// name, then byte by byte.
	Children []*CacheTree
}

// Invalidate marks the directories above a path as changed, as git does for
// each entry it adds, changes or removes.
func (t *CacheTree) Invalidate(path string) {
	for t != nil {
		t.EntryCount, t.ID = -1, ""
		dir, rest, below := strings.Cut(path, "/")
		i, found := t.find(dir)
		if !below {
			if found { // a file takes the place of a directory
				t.Children = slices.Delete(t.Children, i, i+1)
			}
			return
		}
		if !found {
			return
		}
		t, path = t.Children[i], rest
	}
}

func (t *CacheTree) find(name string) (int, bool) {
	return slices.BinarySearchFunc(t.Children, name, func(child *CacheTree, name string) int {
		return compareNames(child.Name, name)
	})
}

// Child returns the subdirectory of a name, nil if there is none or t is nil.
func (t *CacheTree) Child(name string) *CacheTree {
	if t == nil {
		return nil
	}
	i, found := t.find(name)
	if !found {
		return nil
	}
	return t.Children[i]
}

// Sort puts the subdirectories in git's order.
func (t *CacheTree) Sort() {
	slices.SortFunc(t.Children, func(a, b *CacheTree) int { return compareNames(a.Name, b.Name) })
}

func compareNames(a, b string) int {
	if len(a) != len(b) {
		return len(a) - len(b)
	}
	return strings.Compare(a, b)
}

func parseCacheTree(data []byte, hashLen int) (*CacheTree, error) {
	t, rest, err := parseCacheTreeNode(data, hashLen, 0)
	if err != nil {
		return nil, err
	}
	if t.Name != "" {
		return nil, fmt.Errorf("the root has the name %q", t.Name)
	}
	if len(rest) > 0 {
		return nil, fmt.Errorf("%d bytes follow the last directory", len(rest))
	}
	return t, nil
}

func parseCacheTreeNode(data []byte, hashLen, depth int) (t *CacheTree, rest []byte, err error) {
	if depth > maxDepth {
		return nil, nil, fmt.Errorf("directories nest more than %d deep", maxDepth)
	}
	name, data, ok := bytes.Cut(data, []byte{0})
	if !ok {
		return nil, nil, errors.New("a directory is cut off")
	}
	numbers, data, ok := bytes.Cut(data, []byte{'\n'})
	if !ok {
		return nil, nil, fmt.Errorf("directory %q is cut off", name)
	}
	first, second, _ := strings.Cut(string(numbers), " ")
	entries, err1 := strconv.ParseInt(first, 10, 32)
	children, err2 := strconv.ParseUint(second, 10, 32)
	if err1 != nil || err2 != nil {
		return nil, nil, fmt.Errorf("directory %q has the counts %q", name, numbers)
	}
	t = &CacheTree{Name: string(name), EntryCount: max(int(entries), -1)}
	if t.EntryCount >= 0 {
		if len(data) < hashLen {
			return nil, nil, fmt.Errorf("directory %q is cut off", name)
		}
		t.ID = hex.EncodeToString(data[:hashLen])
		data = data[hashLen:]
	}
	for range children {
		var child *CacheTree
		if child, data, err = parseCacheTreeNode(data, hashLen, depth+1); err != nil {
			return nil, nil, err
		}
		t.Children = append(t.Children, child)
	}
	t.Sort() // git accepts any order here, and sorts too
	if err := t.check(hashLen); err != nil {
		return nil, nil, err
	}
	return t, data, nil
}

// check checks one directory and the names and order of its children.
func (t *CacheTree) check(hashLen int) error {
	if t.EntryCount < -1 || t.EntryCount > math.MaxInt32 {
		return fmt.Errorf("directory %q has the entry count %d", t.Name, t.EntryCount)
	}
	if t.EntryCount >= 0 && !isID(t.ID, hashLen) {
		return fmt.Errorf("directory %q has the object id %q", t.Name, t.ID)
	}
	for i, child := range t.Children {
		if child.Name == "" || strings.ContainsAny(child.Name, "/\x00") {
			return fmt.Errorf("directory %q has a subdirectory %q", t.Name, child.Name)
		}
		if i > 0 && compareNames(t.Children[i-1].Name, child.Name) >= 0 {
			return fmt.Errorf("directory %q has a subdirectory %q after %q",
				t.Name, child.Name, t.Children[i-1].Name)
		}
	}
	return nil
}

func appendCacheTree(data []byte, t *CacheTree, hashLen int) ([]byte, error) {
	if t.Name != "" {
		return nil, fmt.Errorf("the root has the name %q", t.Name)
	}
	return appendCacheTreeNode(data, t, hashLen, 0)
}

func appendCacheTreeNode(data []byte, t *CacheTree, hashLen, depth int) ([]byte, error) {
	if depth > maxDepth {
		return nil, fmt.Errorf("directories nest more than %d deep", maxDepth)
	}
	if err := t.check(hashLen); err != nil {
		return nil, err
	}
	data = append(data, t.Name...)
	data = append(data, 0)
	data = strconv.AppendInt(data, int64(t.EntryCount), 10)
	data = append(data, ' ')
	data = strconv.AppendInt(data, int64(len(t.Children)), 10)
	data = append(data, '\n')
	if t.EntryCount >= 0 {
		data = appendHex(data, t.ID)
	}
	for _, child := range t.Children {
		var err error
		if data, err = appendCacheTreeNode(data, child, hashLen, depth+1); err != nil {
			return nil, err
		}
	}
	return data, nil
}
