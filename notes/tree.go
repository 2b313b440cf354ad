package notes

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/git-checkpoint/git-checkpoint/internal/fault"
	"github.com/git-checkpoint/git-checkpoint/internal/object"
)

// maxFlat is how many notes a directory may hold before Write moves them
// into subdirectories, one for each of the 256 values of the next byte.
const maxFlat = 256

// Tree is the tree of a notes ref (gitnotes): the note on an object is a file
// whose path is the object's id, cut by '/' behind any number of leading
// bytes ("abcdef…", "ab/cdef…", "ab/cd/ef…"). All such forms are read, side
// by side too. Anything else in the tree is somebody else's and stays as it
// is, also ids in capitals, which git would read but never writes.
//
// Directories are read when they are needed. Changes stay in memory until
// Write. A Tree is not safe for concurrent use.
type Tree struct {
	store object.Store
	empty string // the id of the tree without entries; others are as long
	root  *dir
	id    string // of the root as it was read or last written; empty: nowhere yet
}

// dir is a directory that was read.
type dir struct {
	entries map[string]*entry
	changed bool // here or below, since it was read or written
}

type entry struct {
	mode uint32
	id   string // of a directory that changed: as it was before
	sub  *dir   // of a directory that was read
}

func newDir() *dir { return &dir{entries: map[string]*entry{}, changed: true} }

func (e *entry) isTree() bool { return e != nil && e.mode&0o170000 == object.ModeTree }

// isNote says whether an entry is a note, where digits of an object's id are
// left for its name. As git does, it asks for a file of any permissions.
func isNote(name string, e *entry, digits int) bool {
	return e != nil && e.mode&0o170000 == 0o100000 && len(name) == digits && isHex(name)
}

// isFanOut says whether an entry is a directory of notes.
func isFanOut(name string, e *entry, digits int) bool {
	return e.isTree() && len(name) == 2 && digits > 2 && isHex(name)
}

func isHex(s string) bool {
	return strings.Trim(s, "0123456789abcdef") == ""
}

// LoadTree reads the notes tree with the given id; the empty id stands for a
// tree without entries. A tree that is missing or damaged is an error that
// matches fault.Integrity; so it is with the directories in it, which the
// methods read when they need them.
func LoadTree(ctx context.Context, store object.Store, objectFormat string, root string) (*Tree, error) {
	t := &Tree{store: store, empty: object.EmptyTree(objectFormat), root: newDir(), id: root}
	if root == "" {
		return t, nil
	}
	d, err := t.read(ctx, root)
	if err != nil {
		return nil, err
	}
	t.root = d
	return t, nil
}

// digits is the length of an object id.
func (t *Tree) digits() int { return len(t.empty) }

func (t *Tree) read(ctx context.Context, id string) (*dir, error) {
	d := &dir{entries: map[string]*entry{}}
	if id == t.empty {
		return d, nil // git knows it without having it
	}
	kind, data, err := t.store.Read(ctx, id)
	if err != nil {
		return nil, fmt.Errorf("read a notes tree: %w", err)
	}
	damaged := func(err error) error {
		return fault.New(fault.Integrity, "notes-tree-damaged", "read notes tree %s: %w", id, err)
	}
	if kind != object.Tree {
		return nil, damaged(fmt.Errorf("it is a %s", kind))
	}
	entries, err := object.ParseTree(data, t.digits()/2)
	if err != nil {
		return nil, damaged(err)
	}
	for _, e := range entries {
		if d.entries[e.Name] != nil {
			return nil, damaged(fmt.Errorf("it has two entries '%s'", e.Name))
		}
		d.entries[e.Name] = &entry{mode: e.Mode, id: e.ID}
	}
	return d, nil
}

// open returns the directory that an entry stands for.
func (t *Tree) open(ctx context.Context, e *entry) (*dir, error) {
	if e.sub == nil {
		d, err := t.read(ctx, e.id)
		if err != nil {
			return nil, err
		}
		e.sub = d
	}
	return e.sub, nil
}

// way returns the directories in which the note on an object may stand: the
// i-th is that of the first 2·i digits, where the note is named by the rest.
func (t *Tree) way(ctx context.Context, id string) ([]*dir, error) {
	if !object.IsID(id) || len(id) != t.digits() {
		return nil, fault.New(fault.Invalid, "bad-object-id", "find a note: '%s' is not the id of an object", id)
	}
	way := []*dir{t.root}
	for rest := id; ; rest = rest[2:] {
		e := way[len(way)-1].entries[rest[:2]]
		if !isFanOut(rest[:2], e, len(rest)) {
			return way, nil
		}
		d, err := t.open(ctx, e)
		if err != nil {
			return nil, err
		}
		way = append(way, d)
	}
}

// Get returns the note on an object, and whether there is one. An object that
// stands at two paths, which a merge by path can bring about, has the union
// of what is found there.
func (t *Tree) Get(ctx context.Context, id string) ([]byte, bool, error) {
	way, err := t.way(ctx, id)
	if err != nil {
		return nil, false, err
	}
	var blobs []string
	for i, d := range way {
		if e := d.entries[id[2*i:]]; isNote(id[2*i:], e, len(id)-2*i) && !slices.Contains(blobs, e.id) {
			blobs = append(blobs, e.id)
		}
	}
	if len(blobs) == 0 {
		return nil, false, nil
	}
	content, err := t.union(ctx, id, blobs)
	return content, err == nil, err
}

// union returns the union of an object's notes; a single one is not parsed.
func (t *Tree) union(ctx context.Context, id string, blobs []string) ([]byte, error) {
	contents := make([][]byte, len(blobs))
	for i, blob := range blobs {
		kind, data, err := t.store.Read(ctx, blob)
		if err != nil {
			return nil, fmt.Errorf("read the note on %s: %w", id, err)
		}
		if kind != object.Blob {
			return nil, fault.New(fault.Integrity, "notes-tree-damaged", "read the note on %s: %s is a %s", id, blob, kind)
		}
		contents[i] = data
	}
	if len(contents) == 1 {
		return contents[0], nil
	}
	merged, err := Union(contents...)
	if err != nil {
		return nil, fmt.Errorf("note on %s: %w", id, err)
	}
	return merged, nil
}

// Set replaces the note on an object where it stands, or adds it: in the
// directory for its prefix if there is one, else beside the others. Copies at
// other paths go. The content is put in the store at once, the trees with Write.
func (t *Tree) Set(ctx context.Context, id string, content []byte) error {
	way, err := t.way(ctx, id)
	if err != nil {
		return err
	}
	blob := t.store.Put(object.Blob, content)
	at := -1
	for i := len(way) - 1; i >= 0; i-- {
		d, name := way[i], id[2*i:]
		e := d.entries[name]
		if !isNote(name, e, len(name)) {
			continue
		}
		if at >= 0 {
			// A copy. The deepest stays, so that no directory on the way to it becomes empty.
			delete(d.entries, name)
			touch(way[:at+1])
			continue
		}
		at = i
		if e.id != blob {
			e.mode, e.id = object.ModeFile, blob
			touch(way[:at+1])
		}
	}
	if at >= 0 {
		return nil
	}
	return place(way, id, blob)
}

// place adds a note to the last directory on its way. Where something else
// has taken its name there, it goes one directory deeper.
func place(way []*dir, id, blob string) error {
	last := way[len(way)-1]
	name := id[2*(len(way)-1):]
	note := &entry{mode: object.ModeFile, id: blob}
	switch {
	case last.entries[name] == nil:
		last.entries[name] = note
	case last.entries[name[:2]] == nil:
		sub := newDir()
		sub.entries[name[2:]] = note
		last.entries[name[:2]] = &entry{mode: object.ModeTree, sub: sub}
	default:
		return fault.New(fault.Integrity, "notes-tree-blocked", "add the note on %s: other entries of the notes tree stand in its place", id)
	}
	touch(way)
	return nil
}

func touch(way []*dir) {
	for _, d := range way {
		d.changed = true
	}
}

// Write puts the trees that changed in the store and returns the id of the
// root. Of the directories among them, one with more than 256 notes hands
// them to subdirectories, so that the trees that a change rewrites stay small.
// A tree without entries is git's empty tree.
func (t *Tree) Write(ctx context.Context) (root string, err error) {
	if !t.root.changed {
		return t.id, nil
	}
	if err := t.spread(ctx, t.root, t.digits()); err != nil {
		return "", err
	}
	t.id = t.put(t.root)
	return t.id, nil
}

// spread moves the notes of changed directories that are too full down a
// level. A note whose place there is taken stays.
func (t *Tree) spread(ctx context.Context, d *dir, digits int) error {
	var full []string
	for name, e := range d.entries {
		if isNote(name, e, digits) {
			full = append(full, name)
		}
	}
	if len(full) > maxFlat {
		for _, name := range full {
			if err := t.lower(ctx, d, name); err != nil {
				return err
			}
		}
	}
	for name, e := range d.entries {
		if isFanOut(name, e, digits) && e.sub != nil && e.sub.changed {
			if err := t.spread(ctx, e.sub, digits-2); err != nil {
				return err
			}
		}
	}
	return nil
}

func (t *Tree) lower(ctx context.Context, d *dir, name string) error {
	e := d.entries[name[:2]]
	if e == nil {
		e = &entry{mode: object.ModeTree, sub: newDir()}
		d.entries[name[:2]] = e
	}
	if !e.isTree() {
		return nil
	}
	sub, err := t.open(ctx, e)
	if err != nil {
		return err
	}
	if sub.entries[name[2:]] == nil {
		sub.entries[name[2:]] = d.entries[name]
		sub.changed = true
		delete(d.entries, name)
	}
	return nil
}

func (t *Tree) put(d *dir) string {
	entries := make([]object.TreeEntry, 0, len(d.entries))
	for name, e := range d.entries {
		if e.sub != nil && e.sub.changed {
			e.id = t.put(e.sub)
		}
		entries = append(entries, object.TreeEntry{Mode: e.mode, Name: name, ID: e.id})
	}
	d.changed = false
	return t.store.Put(object.Tree, object.EncodeTree(entries))
}

// note is where the note on an object was found.
type note struct{ id, blob string }

// all returns the notes at every path, in the order of their ids.
func (t *Tree) all(ctx context.Context) ([]note, error) {
	var notes []note
	if err := t.collect(ctx, t.root, "", &notes); err != nil {
		return nil, err
	}
	slices.SortFunc(notes, func(a, b note) int {
		return cmp.Or(strings.Compare(a.id, b.id), strings.Compare(a.blob, b.blob))
	})
	return notes, nil
}

func (t *Tree) collect(ctx context.Context, d *dir, prefix string, notes *[]note) error {
	digits := t.digits() - len(prefix)
	for name, e := range d.entries {
		switch {
		case isNote(name, e, digits):
			*notes = append(*notes, note{prefix + name, e.id})
		case isFanOut(name, e, digits):
			sub, err := t.open(ctx, e)
			if err != nil {
				return err
			}
			if err := t.collect(ctx, sub, prefix+name, notes); err != nil {
				return err
			}
		}
	}
	return nil
}

// Walk calls fn for every note, in the order of the annotated objects' ids,
// with the id of the blob that holds it. An object that stands at two paths
// (see Duplicates) comes twice, one after the other. An error from fn ends
// the walk and is returned.
func (t *Tree) Walk(ctx context.Context, fn func(id string, blob string) error) error {
	notes, err := t.all(ctx)
	if err != nil {
		return err
	}
	for _, n := range notes {
		if err := fn(n.id, n.blob); err != nil {
			return err
		}
	}
	return nil
}

// Duplicates returns the ids of the objects whose notes stand at more than
// one path, in order.
func (t *Tree) Duplicates(ctx context.Context) ([]string, error) {
	notes, err := t.all(ctx)
	if err != nil {
		return nil, err
	}
	var twice []string
	for i := 1; i < len(notes); i++ {
		if notes[i].id == notes[i-1].id {
			twice = append(twice, notes[i].id)
		}
	}
	return slices.Compact(twice), nil
}

// MergeTrees puts the union of two notes trees (ids, or empty for none) in
// the store and returns its id. It is the same whichever comes first: notes
// on one object become their Union, equal ones stay unread, and each note
// stands where the number of notes puts it (up to 256 flat, more by their
// first byte, a directory of more than 256 by the next byte), however it
// stood before. Other entries are merged by path; where two differ, the one
// with the greater id stays.
//
// The error matches fault.Integrity where two notes differ and one of them
// cannot be parsed; it names the object.
func MergeTrees(ctx context.Context, store object.Store, objectFormat string, a, b string) (root string, err error) {
	merged, err := LoadTree(ctx, store, objectFormat, "")
	if err != nil {
		return "", err
	}
	blobs := map[string][]string{}
	for _, id := range []string{a, b} {
		side, err := LoadTree(ctx, store, objectFormat, id)
		if err != nil {
			return "", err
		}
		notes, err := side.all(ctx)
		if err != nil {
			return "", err
		}
		for _, n := range notes {
			if !slices.Contains(blobs[n.id], n.blob) {
				blobs[n.id] = append(blobs[n.id], n.blob)
			}
		}
		side.removeNotes(side.root, side.digits())
		if err := merged.join(ctx, merged.root, side.root); err != nil {
			return "", err
		}
	}
	for _, id := range slices.Sorted(maps.Keys(blobs)) {
		blob := blobs[id][0]
		if len(blobs[id]) > 1 {
			content, err := merged.union(ctx, id, blobs[id])
			if err != nil {
				return "", err
			}
			blob = store.Put(object.Blob, content)
		}
		if err := merged.placeFlat(ctx, id, blob); err != nil {
			return "", err
		}
	}
	return merged.Write(ctx)
}

// removeNotes leaves only the entries that are not ours. All directories of
// notes have been read.
func (t *Tree) removeNotes(d *dir, digits int) {
	d.changed = true
	for name, e := range d.entries {
		switch {
		case isNote(name, e, digits):
			delete(d.entries, name)
		case isFanOut(name, e, digits):
			t.removeNotes(e.sub, digits-2)
			if len(e.sub.entries) == 0 {
				delete(d.entries, name)
			}
		}
	}
}

// join adds the entries of from to those of to.
func (t *Tree) join(ctx context.Context, to, from *dir) error {
	for name, theirs := range from.entries {
		ours := to.entries[name]
		switch {
		case ours == nil:
			to.entries[name] = theirs
		case ours.id == theirs.id && ours.mode == theirs.mode:
			// Directories that were equal are so without their notes, too.
		case ours.isTree() && theirs.isTree():
			sub, err := t.open(ctx, ours)
			if err != nil {
				return err
			}
			other, err := t.open(ctx, theirs)
			if err != nil {
				return err
			}
			sub.changed = true
			if err := t.join(ctx, sub, other); err != nil {
				return err
			}
		case t.rank(theirs) > t.rank(ours):
			to.entries[name] = theirs
		}
	}
	return nil
}

// rank orders entries that stand at one path and are not both directories.
func (t *Tree) rank(e *entry) string {
	if e.sub != nil && e.sub.changed {
		e.id = t.put(e.sub)
	}
	return fmt.Sprintf("%s %o", e.id, e.mode)
}

// placeFlat adds a note at the root if it can.
func (t *Tree) placeFlat(ctx context.Context, id, blob string) error {
	way := []*dir{t.root}
	if t.root.entries[id] != nil {
		var err error
		if way, err = t.way(ctx, id); err != nil {
			return err
		}
	}
	return place(way, id, blob)
}
