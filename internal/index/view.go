package index

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"hash/crc32"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// RecordSize is the size of what an entry has of stat(2): the fields of Stat
// and the mode, as the file has them (gitformat-index(5)).
const RecordSize = statSize

// hashSize is that of SHA-1, the only object format that a View knows.
const hashSize = 20

// entrySize is that of an entry up to its extended flags or its path.
const entrySize = statSize + hashSize + 2

// View reads an index file of a SHA-1 repository where it lies, without
// taking it apart: with a hundred thousand entries, making an Index of it
// takes longer than looking at all their files. Its slices are parts of the
// file's bytes.
type View struct {
	// ModTime is the modification time of the file, zero for an index that
	// comes from elsewhere.
	ModTime time.Time
	// Gitlinks are the entries of submodules and nested repositories.
	Gitlinks []int
	// Special says that an entry is in conflict or has a flag but for
	// assume-unchanged.
	Special bool
	// Assumed says that an entry has the flag assume-unchanged.
	Assumed bool
	// Unmerged says that an entry is in conflict.
	Unmerged bool

	data    []byte
	version uint32
	table   []byte // where the entries are, 4 bytes each
	end     int    // where they end
	tree    []byte // the content of the cache tree extension, nil if there is none
	dirs    []byte // that of our own; see Dirs
	trusted bool   // the checksum was compared
}

// NewView looks through an index. What is wrong with its form is found here,
// but for the checksum: see Check. The order of the entries is not looked at
// where known says that this was done before with the same bytes. The error
// wraps ErrCorrupt or ErrUnsupported.
func NewView(data []byte, known bool) (*View, error) {
	if len(data) < headerSize+hashSize {
		return nil, corruptf("%d bytes are too few", len(data))
	}
	if string(data[:4]) != signature {
		return nil, corruptf("signature %q", data[:4])
	}
	v := &View{data: data, version: binary.BigEndian.Uint32(data[4:])}
	switch v.version {
	case 2, 3:
	case 4:
		return newView4(data)
	default:
		return nil, unsupportedf("version %d", v.version)
	}
	count := binary.BigEndian.Uint32(data[8:])
	if uint64(count)*entrySize > uint64(len(data)) || uint64(len(data)) > 1<<32-1 {
		return nil, corruptf("%d entries do not fit into %d bytes", count, len(data))
	}
	v.table = make([]byte, 4*count)
	if err := v.scan(known); err != nil {
		return nil, err
	}
	return v, v.extensions()
}

// newView4 makes a View of an index of version 4, whose paths are cut.
func newView4(data []byte) (*View, error) {
	x, err := parse(data, hashSize)
	if err != nil {
		return nil, err
	}
	v, err := x.View()
	if err != nil {
		return nil, corruptf("%w", err)
	}
	v.trusted = true
	return v, nil
}

// View encodes x and returns a View of it.
func (x *Index) View() (*View, error) {
	data, err := x.encode(hashSize)
	if err != nil {
		return nil, err
	}
	v, err := NewView(data, true)
	if err != nil {
		return nil, err
	}
	v.ModTime, v.trusted = x.ModTime, true
	return v, nil
}

// scan finds the entries and checks that they are what an index may hold, in order.
func (v *View) scan(known bool) error {
	body := v.data[:len(v.data)-hashSize]
	at := headerSize
	var before []byte
	for i := range v.Len() {
		if len(body)-at < entrySize {
			return corruptf("entry %d is cut off", i)
		}
		e := body[at:]
		flags := binary.BigEndian.Uint16(e[entrySize-2:])
		head := entrySize
		if flags&flagExtended != 0 {
			head += 2
			if v.version < 3 || len(e) < head {
				return corruptf("entry %d has extended flags where none can be", i)
			}
			if extended := binary.BigEndian.Uint16(e[entrySize:]); extended != 0 {
				if extended&^(flagSkipWorktree|flagIntentToAdd) != 0 {
					return corruptf("entry %d has the extended flags %04x", i, extended)
				}
				v.Special = true
			}
		}
		n := int(flags & flagNameMask)
		if n == flagNameMask {
			n = bytes.IndexByte(e[head:], 0)
			if n < flagNameMask {
				return corruptf("entry %d has a bad name length", i)
			}
		}
		size := head + n
		size += padding(size)
		if len(e) < size || e[head+n] != 0 {
			return corruptf("entry %d is cut off", i)
		}
		path := e[head : head+n]
		if flags&(flagAssumeUnchanged|3<<flagStageShift) != 0 {
			v.Assumed = v.Assumed || flags&flagAssumeUnchanged != 0
			v.Unmerged = v.Unmerged || flags&(3<<flagStageShift) != 0
			v.Special = v.Special || v.Unmerged
		}
		if !known {
			if err := v.check(i, path, before, flags); err != nil {
				return err
			}
		}
		switch binary.BigEndian.Uint32(e[24:]) {
		case ModeFile, ModeExecutable, ModeSymlink:
		case ModeGitlink:
			v.Gitlinks = append(v.Gitlinks, i)
		case ModeDir:
			return unsupportedf("it is sparse (index.sparse)")
		default:
			return corruptf("entry %q has the mode %06o", path, binary.BigEndian.Uint32(e[24:]))
		}
		binary.BigEndian.PutUint32(v.table[4*i:], uint32(at))
		before = path
		at += size
	}
	v.end = at
	return nil
}

// check compares an entry with the one before.
func (v *View) check(i int, path, before []byte, flags uint16) error {
	if bytes.IndexByte(path, 0) >= 0 || len(path) == 0 || path[0] == '/' || path[len(path)-1] == '/' {
		return corruptf("entry %d has the path %q", i, path)
	}
	if i == 0 {
		return nil
	}
	switch c := bytes.Compare(before, path); {
	case c > 0:
		return corruptf("entry %q is not in order after %q", path, before)
	case c == 0 && (v.Stage(i-1) == 0 || v.Stage(i-1) >= int(flags>>flagStageShift&3)):
		return corruptf("entry %q is there more than once", path)
	}
	return nil
}

func (v *View) extensions() error {
	for data := v.data[v.end : len(v.data)-hashSize]; len(data) > 0; {
		if len(data) < 8 || uint64(binary.BigEndian.Uint32(data[4:])) > uint64(len(data)-8) {
			return corruptf("an extension is cut off")
		}
		name, size := string(data[:4]), binary.BigEndian.Uint32(data[4:])
		content := data[8 : 8+size]
		data = data[8+size:]
		switch {
		case name == "TREE":
			v.tree = content
		case name == dirsName:
			v.dirs = content
		case name[0] < 'A' || name[0] > 'Z':
			return unsupportedf("extension %q", name)
		}
	}
	return nil
}

// Check compares the checksum, which NewView does not: it costs as much again.
func (v *View) Check() error {
	body := v.data[:len(v.data)-hashSize]
	if v.trusted || bytes.Equal(v.Checksum(), make([]byte, hashSize)) || bytes.Equal(v.Checksum(), checksum(body, hashSize)) {
		v.trusted = true
		return nil
	}
	return corruptf("the checksum is not that of the content")
}

// Checksum is what the file has at its end: the checksum of its content, or
// zeros (index.skipHash).
func (v *View) Checksum() []byte { return v.data[len(v.data)-hashSize:] }

// Len is the number of entries.
func (v *View) Len() int { return len(v.table) / 4 }

// Size is that of the file.
func (v *View) Size() int { return len(v.data) }

// at is where an entry is in data.
func (v *View) at(i int) int { return int(binary.BigEndian.Uint32(v.table[4*i:])) }

// Record is what an entry has of its file: see RecordSize.
func (v *View) Record(i int) []byte {
	at := v.at(i)
	return v.data[at : at+statSize : at+statSize]
}

// Mode is the mode of an entry.
func (v *View) Mode(i int) uint32 { return binary.BigEndian.Uint32(v.data[v.at(i)+24:]) }

// ID is the object id of an entry, 20 bytes.
func (v *View) ID(i int) []byte {
	at := v.at(i) + statSize
	return v.data[at : at+hashSize : at+hashSize]
}

func (v *View) flags(i int) uint16 {
	return binary.BigEndian.Uint16(v.data[v.at(i)+statSize+hashSize:])
}

func (v *View) extended(i int) uint16 {
	if v.flags(i)&flagExtended == 0 {
		return 0
	}
	return binary.BigEndian.Uint16(v.data[v.at(i)+entrySize:])
}

// Path is the path of an entry.
func (v *View) Path(i int) []byte {
	at := v.at(i) + entrySize
	flags := binary.BigEndian.Uint16(v.data[at-2:])
	if flags&flagExtended != 0 {
		at += 2
	}
	n := int(flags & flagNameMask)
	if n == flagNameMask {
		n = bytes.IndexByte(v.data[at:], 0)
	}
	return v.data[at : at+n : at+n]
}

// Stage is 0, or 1 to 3 in a conflict.
func (v *View) Stage(i int) int { return int(v.flags(i) >> flagStageShift & 3) }

// SkipWorktree says whether the entry has that flag.
func (v *View) SkipWorktree(i int) bool { return v.extended(i)&flagSkipWorktree != 0 }

// IntentToAdd says whether the entry has that flag.
func (v *View) IntentToAdd(i int) bool { return v.extended(i)&flagIntentToAdd != 0 }

// Plain says that no entry is in conflict or has any flag.
func (v *View) Plain() bool { return !v.Special && !v.Assumed }

// AssumeUnchanged says whether the entry has that flag.
func (v *View) AssumeUnchanged(i int) bool { return v.flags(i)&flagAssumeUnchanged != 0 }

// Flagged says whether the entry is in conflict or has any flag.
func (v *View) Flagged(i int) bool {
	return v.flags(i)&(flagAssumeUnchanged|3<<flagStageShift) != 0 || v.extended(i) != 0
}

// Find returns the first entry of a path, -1 if there is none.
func (v *View) Find(path string) int {
	i := v.Search(0, []byte(path))
	if i == v.Len() || string(v.Path(i)) != path {
		return -1
	}
	return i
}

// Search returns the first entry from from on from whose path is not less than path.
func (v *View) Search(from int, path []byte) int {
	// What is looked for is near as a rule: gallop before cutting in halves.
	lo, step := from, 1
	for lo+step < v.Len() && bytes.Compare(v.Path(lo+step), path) < 0 {
		lo, step = lo+step, step*2
	}
	hi := min(lo+step, v.Len())
	for lo < hi {
		mid := int(uint(lo+hi) / 2)
		if bytes.Compare(v.Path(mid), path) < 0 {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	return lo
}

// Below returns the end of the entries, from from on, whose paths start with prefix.
func (v *View) Below(from, end int, prefix []byte) int {
	lo, step := from, 1
	for lo+step < end && bytes.HasPrefix(v.Path(lo+step), prefix) {
		lo, step = lo+step, step*2
	}
	hi := min(lo+step, end)
	for lo < hi {
		mid := int(uint(lo+hi) / 2)
		if bytes.HasPrefix(v.Path(mid), prefix) {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	return lo
}

// Holds says whether there are entries below a path, as a directory, from from
// on and before end.
func (v *View) Holds(from, end int, path []byte) bool {
	prefix := append(path[:len(path):len(path)], '/')
	i := v.Search(from, prefix)
	return i < end && bytes.HasPrefix(v.Path(i), prefix)
}

// CacheTree takes the cache tree apart; nil if there is none or it is damaged.
func (v *View) CacheTree() *CacheTree {
	if v.tree == nil {
		return nil
	}
	t, err := parseCacheTree(v.tree, hashSize)
	if err != nil {
		return nil
	}
	return t
}

// dirsName is the name of an extension of ours, which git passes over.
const dirsName = "GCKD"

// Dirs is what Keep was given, nil if there is nothing.
func (v *View) Dirs() []byte { return v.dirs }

// Root returns the tree of all entries, as the cache tree has it; nil where it
// is not known. Such an id is good only after a Check.
func (v *View) Root() []byte {
	line := bytes.IndexByte(v.tree, '\n')
	if line < 1 || v.tree[0] != 0 || len(v.tree) < line+1+hashSize {
		return nil
	}
	count, _, _ := bytes.Cut(v.tree[1:line], []byte(" "))
	if string(count) != strconv.Itoa(v.Len()) {
		return nil
	}
	return v.tree[line+1 : line+1+hashSize]
}

// Index takes the whole index apart.
func (v *View) Index() (*Index, error) {
	body := v.data[:len(v.data)-hashSize]
	x := &Index{Version: int(v.version), ModTime: v.ModTime}
	rest, err := x.parseEntries(body[headerSize:], uint32(v.Len()), hashSize)
	if err == nil {
		err = x.parseExtensions(rest, hashSize)
	}
	if err == nil {
		err = checkEntries(x.Entries, hashSize)
	}
	if err != nil {
		return nil, corruptf("%w", err)
	}
	return x, nil
}

// Edit is one difference between an index and the one that Splice makes of it.
type Edit struct {
	Path            string
	Drop            bool // no such entry
	Record          [RecordSize]byte
	ID              [hashSize]byte
	SkipWorktree    bool
	AssumeUnchanged bool
}

// Splice returns the bytes of an index with the entries of v and the edits,
// which are sorted by path, and where the entries of the edits are in it. It
// has no cache tree, and zeros for a checksum: see Seal.
func (v *View) Splice(edits []Edit) (data []byte, at []int) {
	size := len(v.data) + len(v.data)/16 + hashSize // with room for what Keep adds
	version := max(v.version, 2)
	for i := range edits {
		size += entrySize + 2 + len(edits[i].Path) + 8
		if edits[i].SkipWorktree {
			version = 3
		}
	}
	data = make([]byte, headerSize, size)
	at = make([]int, len(edits))
	count, from := 0, 0
	for i := range edits {
		e := &edits[i]
		to := v.Search(from, []byte(e.Path))
		count += to - from
		data = append(data, v.entries(from, to)...)
		from = to
		for from < v.Len() && string(v.Path(from)) == e.Path {
			from++
		}
		if !e.Drop {
			at[i] = len(data)
			data = e.append(data)
			count++
		}
	}
	count += v.Len() - from
	data = append(data, v.entries(from, v.Len())...)
	copy(data, signature)
	binary.BigEndian.PutUint32(data[4:], version)
	binary.BigEndian.PutUint32(data[8:], uint32(count))
	return append(data, make([]byte, hashSize)...), at
}

// Unmark takes the flag assume-unchanged from the entries of what Splice made.
func Unmark(data []byte) error {
	v, err := NewView(data, true)
	if err != nil {
		return err
	}
	for i := range v.Len() {
		at := v.at(i)
		binary.BigEndian.PutUint16(data[at+entrySize-2:], v.flags(i)&^flagAssumeUnchanged)
	}
	return nil
}

// entries are the bytes of some entries.
func (v *View) entries(from, to int) []byte {
	if from == to {
		return nil
	}
	end := v.end
	if to < v.Len() {
		end = v.at(to)
	}
	return v.data[v.at(from):end]
}

func (e *Edit) append(data []byte) []byte {
	start := len(data)
	data = append(data, e.Record[:]...)
	data = append(data, e.ID[:]...)
	flags := uint16(min(len(e.Path), flagNameMask))
	if e.AssumeUnchanged {
		flags |= flagAssumeUnchanged
	}
	if e.SkipWorktree {
		data = binary.BigEndian.AppendUint16(data, flags|flagExtended)
		data = binary.BigEndian.AppendUint16(data, flagSkipWorktree)
	} else {
		data = binary.BigEndian.AppendUint16(data, flags)
	}
	data = append(data, e.Path...)
	return append(data, make([]byte, padding(len(data)-start))...)
}

// Seal gives what Splice made a cache tree, where there is one, and a checksum.
func Seal(data []byte, tree *CacheTree) ([]byte, error) {
	data, err := appendTree(data[:len(data)-hashSize], tree)
	if err != nil {
		return nil, err
	}
	return append(data, checksum(data, hashSize)...), nil
}

func appendTree(data []byte, tree *CacheTree) ([]byte, error) {
	if tree == nil {
		return data, nil
	}
	return appendExtension(data, tree, hashSize)
}

// tableName is the name of another extension of ours, the last one of an index
// file, by which NewKept finds the entries without looking for them. All
// numbers in it have 4 bytes, the highest first: where the entries end; 1 if
// Special, and 2 if Assumed; how many Gitlinks, and these; where each entry is;
// the size of all this with the next; and the CRC-32C of the file so far.
const tableName = "GCKO"

var castagnoli = sync.OnceValue(func() *crc32.Table { return crc32.MakeTable(crc32.Castagnoli) })

// Keep is Seal for an index that NewKept is to read: dirs is what Dirs is to
// return. v is a View of what Splice made, whose bytes may be used.
func (v *View) Keep(tree *CacheTree, dirs []byte) ([]byte, error) {
	data, err := appendTree(v.data[:len(v.data)-hashSize], tree)
	if err != nil {
		return nil, err
	}
	put := func(n int) { data = binary.BigEndian.AppendUint32(data, uint32(n)) }
	if len(dirs) > 0 {
		data = append(data, dirsName...)
		put(len(dirs))
		data = append(data, dirs...)
	}
	flags, size := 0, 3*4+4*len(v.Gitlinks)+len(v.table)+2*4
	if v.Special {
		flags |= 1
	}
	if v.Assumed {
		flags |= 2
	}
	data = slices.Grow(data, 8+size+hashSize)
	data = append(data, tableName...)
	put(size)
	put(v.end)
	put(flags)
	put(len(v.Gitlinks))
	for _, i := range v.Gitlinks {
		put(i)
	}
	data = append(data, v.table...)
	put(size)
	put(int(crc32.Checksum(data, castagnoli())))
	return append(data, checksum(data, hashSize)...), nil
}

// NewKept is NewView for an index that Keep made. One that git wrote since has
// no table, and is looked through.
func NewKept(data []byte) (*View, error) {
	body := data[:max(0, len(data)-hashSize)]
	number := func(at int) int { return int(binary.BigEndian.Uint32(body[at:])) }
	if len(body) < headerSize+8 {
		return NewView(data, true)
	}
	size := number(len(body) - 8)
	start := len(body) - size
	if size < 5*4 || start < headerSize+8 || string(body[start-8:start-4]) != tableName || number(start-4) != size {
		return NewView(data, true)
	}
	if crc32.Checksum(body[:len(body)-4], castagnoli()) != uint32(number(len(body)-4)) {
		return nil, corruptf("the CRC is not that of the content")
	}
	// From here on it is what Keep wrote.
	v := &View{data: data, version: binary.BigEndian.Uint32(data[4:]), end: number(start), trusted: true}
	flags, links := number(start+4), number(start+8)
	v.Special, v.Assumed = flags&1 != 0, flags&2 != 0
	for i := range links {
		v.Gitlinks = append(v.Gitlinks, number(start+12+4*i))
	}
	v.table = body[start+12+4*links : len(body)-8]
	return v, v.extensions()
}

// Record returns what an entry has of a file with this mode: see RecordSize.
func (s *Stat) Record(mode uint32) (r [RecordSize]byte) {
	for i, field := range [...]uint32{s.CTimeSec, s.CTimeNsec, s.MTimeSec, s.MTimeNsec, s.Dev, s.Ino, mode, s.UID, s.GID, s.Size} {
		binary.BigEndian.PutUint32(r[4*i:], field)
	}
	return r
}

// WriteTrees makes the trees that tree does not know, and completes it: those
// of the entries of v with edits, which are sorted by path and whose
// directories tree does not know. put gets the content of each and returns its
// id. It is to the entries of v what BuildTrees is to a list.
func (v *View) WriteTrees(tree *CacheTree, edits []Edit, put func(content []byte) ([hashSize]byte, error)) error {
	w := treeWriter{view: v, edits: edits, put: put}
	_, err := w.write(tree, nil, 0)
	return err
}

// ErrCacheTree says that a cache tree is not that of the entries.
var ErrCacheTree = errors.New("the cache tree does not fit")

// TreeContent is the content of the tree that a directory is, whose path ends
// in '/' or is empty. t is its node in the cache tree, in which it and what is
// below it are known; ErrCacheTree, if it is not that.
func (v *View) TreeContent(t *CacheTree, dir string) ([]byte, error) {
	from := v.Search(0, []byte(dir))
	if t.EntryCount < 0 || from+t.EntryCount > v.Len() {
		return nil, ErrCacheTree
	}
	var content []byte
	for i, end := from, from+t.EntryCount; i < end; {
		path := v.Path(i)
		if !bytes.HasPrefix(path, []byte(dir)) {
			return nil, ErrCacheTree
		}
		name := path[len(dir):]
		slash := bytes.IndexByte(name, '/')
		if slash < 0 {
			content = append(appendTreeName(content, v.Mode(i), name), v.ID(i)...)
			i++
			continue
		}
		child := t.Child(string(name[:slash]))
		if child == nil || child.EntryCount < 1 || i+child.EntryCount > end || !bytes.HasPrefix(v.Path(i+child.EntryCount-1), path[:len(dir)+slash+1]) {
			return nil, ErrCacheTree
		}
		content = appendHex(appendTreeName(content, ModeDir, name[:slash]), child.ID)
		i += child.EntryCount
	}
	return content, nil
}

type treeWriter struct {
	view  *View
	edits []Edit
	put   func([]byte) ([hashSize]byte, error)
	buf   []byte
	i, k  int // the next entry and the next edit
}

// write makes the tree of the entries that come next and are in one directory,
// whose path ends in '/', and returns how many there are.
func (w *treeWriter) write(t *CacheTree, dir []byte, depth int) (count int, err error) {
	if depth > maxDepth {
		return 0, corruptf("directories nest more than %d deep", maxDepth)
	}
	start := len(w.buf)
	var children []*CacheTree
	for {
		path, edit, replaced := w.next(dir)
		if path == nil {
			break
		}
		name := path[len(dir):]
		slash := bytes.IndexByte(name, '/')
		if slash < 0 {
			switch {
			case edit == nil:
				w.buf = append(appendTreeName(w.buf, w.view.Mode(w.i), name), w.view.ID(w.i)...)
				count++
			case !edit.Drop:
				w.buf = append(appendTreeName(w.buf, binary.BigEndian.Uint32(edit.Record[24:]), name), edit.ID[:]...)
				count++
			}
			if edit == nil || replaced {
				w.i++
			}
			if edit != nil {
				w.k++
			}
			continue
		}
		name = name[:slash]
		child := t.Child(string(name))
		if child == nil {
			child = &CacheTree{Name: string(name), EntryCount: -1}
		}
		n := child.EntryCount
		if n < 0 || w.i+n > w.view.Len() {
			if n, err = w.write(child, path[:len(dir)+slash+1], depth+1); err != nil {
				return 0, err
			}
		} else {
			w.i += n
		}
		if count += n; n == 0 {
			continue // nothing is left of it
		}
		children = append(children, child)
		w.buf = appendHex(appendTreeName(w.buf, ModeDir, name), child.ID)
	}
	if count > 0 || depth == 0 {
		id, err := w.put(w.buf[start:])
		if err != nil {
			return 0, err
		}
		t.ID = hex.EncodeToString(id[:])
	}
	w.buf = w.buf[:start]
	t.EntryCount, t.Children = count, children
	t.Sort()
	return count, nil
}

// next is the path of what comes next in a directory, nil at its end, and its
// edit, if there is one; replaced says that an entry has the same path.
func (w *treeWriter) next(dir []byte) (path []byte, edit *Edit, replaced bool) {
	if w.i < w.view.Len() {
		if path = w.view.Path(w.i); !bytes.HasPrefix(path, dir) {
			path = nil
		}
	}
	if w.k == len(w.edits) || !strings.HasPrefix(w.edits[w.k].Path, string(dir)) {
		return path, nil, false
	}
	own := []byte(w.edits[w.k].Path)
	if path != nil {
		switch c := bytes.Compare(path, own); {
		case c < 0:
			return path, nil, false
		case c == 0:
			return path, &w.edits[w.k], true
		}
	}
	return own, &w.edits[w.k], false
}
