package object

import (
	"bytes"
	"cmp"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/git-checkpoint/git-checkpoint/internal/fault"
)

// Difference is what makes one tree another, down to their files.
type Difference struct {
	// Changes are the files, links and gitlinks that differ, sorted by path,
	// byte by byte.
	Changes []Change
	// Trees are the directories that the second tree has and that differ, or
	// are not there, in the first: their ids, by path. The top is "".
	Trees map[string]string
}

// Change is one path that differs. A side that does not have it has no mode
// and no id.
type Change struct {
	Path             string
	FromMode, ToMode uint32
	FromID, ToID     string
}

// Compare compares two trees. It reads only those directories of them whose
// ids differ, level by level. An empty id stands for a tree without entries.
// Modes are normalised as git does. A tree that no working tree can hold (a
// name twice, or one with a '/', or ".git") is an error that matches
// fault.Integrity, as is one that is missing or damaged.
func Compare(ctx context.Context, store Store, objectFormat, from, to string) (*Difference, error) {
	return CompareListed(ctx, store, objectFormat, from, nil, to)
}

// CompareListed is Compare where the first tree need not be read: list gives
// the content of the tree that each of its directories is, by the path, "" for
// the top.
func CompareListed(ctx context.Context, store Store, objectFormat, from string, list func(dir string) ([]byte, error), to string) (*Difference, error) {
	c := comparison{Difference: Difference{Trees: map[string]string{}}, empty: EmptyTree(objectFormat)}
	c.descend("", from, to)
	for len(c.next) > 0 {
		level := c.next
		c.next = nil
		var ids []string
		asked := map[string]bool{"": true, c.empty: true}
		for _, p := range level {
			for i, id := range []string{p.to, p.from} {
				if !asked[id] && (i == 0 || list == nil) {
					asked[id] = true
					ids = append(ids, id)
				}
			}
		}
		trees, err := readTrees(ctx, store, objectFormat, ids)
		if errors.Is(err, ErrMissing) {
			return nil, fault.New(fault.Integrity, "tree-damaged", "list the files of tree %s: %w", cmp.Or(to, from), err).
				WithHint("git fsck tells what is missing")
		}
		if err != nil {
			return nil, err
		}
		for _, p := range level {
			before := trees[p.from]
			if list != nil && p.from != "" && p.from != c.empty {
				content, err := list(p.dir)
				if err == nil {
					before, err = parseRaw(content, len(from)/2)
				}
				if err != nil {
					return nil, err
				}
			}
			c.directory(p.dir, before, trees[p.to])
		}
	}
	slices.SortFunc(c.Changes, func(a, b Change) int { return strings.Compare(a.Path, b.Path) })
	return &c.Difference, nil
}

type comparison struct {
	Difference
	empty string
	next  []pair // directories to look into
}

type pair struct{ dir, from, to string }

// descend goes into a directory that may differ; an empty id: it is not there.
func (c *comparison) descend(dir, from, to string) {
	if from == to {
		return
	}
	if to != "" {
		c.Trees[dir] = to
	}
	c.next = append(c.next, pair{dir, from, to})
}

// directory compares the entries of one directory, both sorted by name.
func (c *comparison) directory(dir string, from, to []rawEntry) {
	if dir != "" {
		dir += "/"
	}
	for len(from) > 0 || len(to) > 0 {
		var f, t rawEntry
		order := 0
		switch {
		case len(from) == 0:
			order = 1
		case len(to) == 0:
			order = -1
		default:
			order = bytes.Compare(from[0].name, to[0].name)
		}
		if order <= 0 {
			f, from = from[0], from[1:]
		}
		if order >= 0 {
			t, to = to[0], to[1:]
		}
		if f.mode != t.mode || !bytes.Equal(f.id, t.id) {
			c.entry(dir, f, t)
		}
	}
}

// entry adds an entry that differs.
func (c *comparison) entry(dir string, f, t rawEntry) {
	change := Change{Path: dir + cmp.Or(string(f.name), string(t.name))}
	var fromTree, toTree string
	if f.mode == ModeTree {
		fromTree = hex.EncodeToString(f.id)
	} else {
		change.FromMode, change.FromID = f.mode, hex.EncodeToString(f.id)
	}
	if t.mode == ModeTree {
		toTree = hex.EncodeToString(t.id)
	} else {
		change.ToMode, change.ToID = t.mode, hex.EncodeToString(t.id)
	}
	if change.FromMode != 0 || change.ToMode != 0 {
		c.Changes = append(c.Changes, change)
	}
	c.descend(change.Path, fromTree, toTree)
}

// rawEntry is an entry of a tree as it stands there: most are alike on both
// sides and need no more.
type rawEntry struct {
	mode     uint32
	name, id []byte
}

// parseRaw reads a tree's content, sorts it by the names alone (in a tree a
// directory sorts as if its name ended in '/'), normalises modes, and checks
// the names.
func parseRaw(data []byte, hashLen int) ([]rawEntry, error) {
	entries := make([]rawEntry, 0, len(data)/(hashLen+16))
	sorted := true
	for len(data) > 0 {
		space, end := bytes.IndexByte(data, ' '), bytes.IndexByte(data, 0)
		if space < 0 || end < space+2 || len(data) < end+1+hashLen {
			return nil, errors.New("it ends in the middle of an entry, or one has no mode or no name")
		}
		mode := uint32(0)
		for _, c := range data[:space] {
			if c < '0' || c > '7' {
				return nil, errors.New("an entry has no mode")
			}
			mode = mode<<3 | uint32(c-'0')
		}
		e := rawEntry{canonical(mode), data[space+1 : end], data[end+1 : end+1+hashLen]}
		if bytes.IndexByte(e.name, '/') >= 0 || e.name[0] == '.' && reserved(string(e.name)) {
			return nil, fmt.Errorf("it holds '%s'", e.name)
		}
		if n := len(entries); n > 0 && bytes.Compare(entries[n-1].name, e.name) >= 0 {
			sorted = false
		}
		entries, data = append(entries, e), data[end+1+hashLen:]
	}
	if sorted {
		return entries, nil
	}
	slices.SortFunc(entries, func(a, b rawEntry) int { return bytes.Compare(a.name, b.name) })
	for i := 1; i < len(entries); i++ {
		if bytes.Equal(entries[i-1].name, entries[i].name) {
			return nil, fmt.Errorf("it holds '%s' twice", entries[i].name)
		}
	}
	return entries, nil
}

// reserved are the names that no working tree has for its own.
func reserved(name string) bool {
	return name == "." || name == ".." || strings.EqualFold(name, ".git")
}

// canonical is the mode that git takes an entry's for: trees made by old
// programs have others.
func canonical(mode uint32) uint32 {
	switch mode & 0o170000 {
	case 0o100000:
		if mode&0o100 != 0 {
			return ModeExecutable
		}
		return ModeFile
	case ModeLink, ModeTree:
		return mode & 0o170000
	}
	return ModeCommit
}
