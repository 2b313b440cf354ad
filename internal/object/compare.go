package object

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
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
	c := comparison{Difference: Difference{Trees: map[string]string{}}, empty: EmptyTree(objectFormat)}
	c.descend("", from, to)
	hashLen := 20
	if objectFormat == "sha256" {
		hashLen = 32
	}
	for len(c.next) > 0 {
		level := c.next
		c.next = nil
		var ids []string
		asked := map[string]bool{"": true, c.empty: true}
		for _, p := range level {
			for _, id := range []string{p.from, p.to} {
				if !asked[id] {
					asked[id] = true
					ids = append(ids, id)
				}
			}
		}
		trees, err := readTrees(ctx, store, objectFormat, hashLen, ids)
		if err != nil {
			return nil, err
		}
		for id, entries := range trees {
			if err := sortByName(entries); err != nil {
				return nil, damagedTree(id, err)
			}
		}
		for _, p := range level {
			c.directory(p.dir, trees[p.from], trees[p.to])
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
func (c *comparison) directory(dir string, from, to []TreeEntry) {
	if dir != "" {
		dir += "/"
	}
	for len(from) > 0 || len(to) > 0 {
		var f, t TreeEntry
		order := 0
		switch {
		case len(from) == 0:
			order = 1
		case len(to) == 0:
			order = -1
		default:
			order = strings.Compare(from[0].Name, to[0].Name)
		}
		if order <= 0 {
			f, from = from[0], from[1:]
		}
		if order >= 0 {
			t, to = to[0], to[1:]
		}
		c.entry(dir, f, t)
	}
}

func (c *comparison) entry(dir string, f, t TreeEntry) {
	if f.Mode == t.Mode && f.ID == t.ID {
		return
	}
	path := dir + f.Name
	if f.Name == "" {
		path = dir + t.Name
	}
	change := Change{Path: path}
	var fromTree, toTree string
	if f.Mode == ModeTree {
		fromTree = f.ID
	} else {
		change.FromMode, change.FromID = f.Mode, f.ID
	}
	if t.Mode == ModeTree {
		toTree = t.ID
	} else {
		change.ToMode, change.ToID = t.Mode, t.ID
	}
	if change.FromMode != 0 || change.ToMode != 0 {
		c.Changes = append(c.Changes, change)
	}
	c.descend(path, fromTree, toTree)
}

// sortByName sorts the entries of a tree by their names alone (in a tree a
// directory sorts as if its name ended in '/'), normalises their modes, and
// checks the names.
func sortByName(entries []TreeEntry) error {
	for i := range entries {
		e := &entries[i]
		if e.Name == "." || e.Name == ".." || strings.Contains(e.Name, "/") || strings.EqualFold(e.Name, ".git") {
			return fmt.Errorf("it holds '%s'", e.Name)
		}
		e.Mode = canonical(e.Mode)
	}
	byName := func(a, b TreeEntry) int { return strings.Compare(a.Name, b.Name) }
	if !slices.IsSortedFunc(entries, byName) {
		slices.SortFunc(entries, byName)
	}
	for i := 1; i < len(entries); i++ {
		if entries[i-1].Name == entries[i].Name {
			return errors.New("it holds '" + entries[i].Name + "' twice")
		}
	}
	return nil
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
