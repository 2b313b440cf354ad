package snapshot

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"os"
	"slices"
	"strings"
)

// dirTimes are the times of a directory, seconds and nanoseconds of its
// modification and its change, and which directory it is. The system sets them
// when a name comes or goes.
type dirTimes [6]uint64

// dirState is what is known of a directory with tracked files whose names were
// all looked at: as long as its times are the same, and the ignore rules too,
// it has no other names that count than those that the private index has.
type dirState struct {
	path  string // from the top, with '/' at the end; empty at the top
	times dirTimes
	subs  int // how many directories in it were looked at
	// alike says that these names are also those that the user's index has.
	alike bool
}

// before says whether a directory was last changed before a second: changes
// from then on set other times.
func (t *dirTimes) before(second uint32) bool {
	return t[0] < uint64(second) && t[2] < uint64(second)
}

// encodeDirs is the form in which the private index keeps directories: 32
// bytes that stand for the rules, and for each directory the length of its
// path, the path, the six numbers, and twice subs and one more if alike, all
// numbers but those of the times as uvarint.
func encodeDirs(rules [32]byte, dirs []dirState) []byte {
	if len(dirs) == 0 {
		return nil
	}
	slices.SortFunc(dirs, func(a, b dirState) int { return strings.Compare(a.path, b.path) })
	data := rules[:]
	for i := range dirs {
		d := &dirs[i]
		data = binary.AppendUvarint(data, uint64(len(d.path)))
		data = append(data, d.path...)
		for _, n := range d.times {
			data = binary.BigEndian.AppendUint64(data, n)
		}
		subs := uint64(d.subs) << 1
		if d.alike {
			subs |= 1
		}
		data = binary.AppendUvarint(data, subs)
	}
	return data
}

// dirTable reads the directories that encodeDirs wrote where they lie: there
// may be thousands, of which the walk asks for each once.
type dirTable struct {
	data []byte
	at   []uint32 // where each begins
}

// decodeDirs looks through what encodeDirs made, if it was made with the same
// rules; else there are none.
func decodeDirs(data []byte, rules [32]byte) (t dirTable) {
	if len(data) < 32 || string(data[:32]) != string(rules[:]) || uint64(len(data)) > 1<<32-1 {
		return t
	}
	t.data, t.at = data, make([]uint32, 0, len(data)/64)
	var before []byte
	for at := 32; at < len(data); {
		path, rest := cutPath(data[at:])
		if len(rest) < 8*len(dirTimes{}) || len(t.at) > 0 && bytes.Compare(before, path) >= 0 {
			return dirTable{}
		}
		_, size := binary.Uvarint(rest[8*len(dirTimes{}):])
		if size <= 0 {
			return dirTable{}
		}
		t.at, before = append(t.at, uint32(at)), path
		at = len(data) - len(rest) + 8*len(dirTimes{}) + size
	}
	return t
}

// cutPath takes a path with its length before it off; rest is nil if there is none.
func cutPath(data []byte) (path, rest []byte) {
	n, size := binary.Uvarint(data)
	if size <= 0 || n > uint64(len(data)-size) {
		return nil, nil
	}
	return data[size : size+int(n)], data[size+int(n):]
}

// get returns a directory.
func (t *dirTable) get(i int) dirState {
	path, _ := cutPath(t.data[t.at[i]:])
	d := t.state(i)
	d.path = string(path)
	return d
}

// state is get without the path.
func (t *dirTable) state(i int) (d dirState) {
	_, data := cutPath(t.data[t.at[i]:])
	for i := range d.times {
		d.times[i] = binary.BigEndian.Uint64(data[8*i:])
	}
	n, _ := binary.Uvarint(data[8*len(d.times):])
	d.subs, d.alike = int(n>>1), n&1 != 0
	return d
}

// find returns the number of a directory, -1 if it is not known.
func (t *dirTable) find(path string) int {
	i, found := slices.BinarySearchFunc(t.at, path, func(at uint32, path string) int {
		switch p, _ := cutPath(t.data[at:]); {
		case string(p) < path:
			return -1
		case string(p) == path:
			return 0
		}
		return 1
	})
	if !found {
		return -1
	}
	return i
}

// digestRules stands for the ignore rules that are in no file of the tree.
func digestRules(o *Options, files [][]byte) (sum [32]byte) {
	h := sha256.New()
	// Another user may not be able to read the same directories.
	fmt.Fprintf(h, "2 %q %d %d\n", o.Exclude, o.MaxFileSize, os.Geteuid())
	for _, data := range files {
		fmt.Fprintf(h, "%d\n%s", len(data), data)
	}
	h.Sum(sum[:0])
	return sum
}

// keepDirs decides which directories are kept: those that are certain, and
// none where ignore rules are in files that no snapshot has.
func (t *native) keepDirs(w *walk) {
	t.same, t.states = nil, nil
	if w.stray.Load() || t.o.Omit != nil || t.o.Force != nil || t.start == 0 {
		return
	}
	for _, worker := range w.workers {
		t.same = append(t.same, worker.same...)
		for _, d := range worker.dirs {
			if d.times.before(t.start) {
				t.states = append(t.states, d)
			}
		}
	}
}

// manyNew says whether so many of the directories to keep are not known yet
// that the private index is worth writing for them alone.
func (t *native) manyNew() bool {
	if len(t.unsettled) > 0 {
		t.states = slices.DeleteFunc(t.states, func(d dirState) bool { return t.unsettled[d.path] })
		t.same = slices.DeleteFunc(t.same, func(i int32) bool { return t.unsettled[t.known.get(int(i)).path] })
	}
	news := 0
	for _, d := range t.states {
		if i := t.known.find(d.path); i < 0 || t.known.get(i) != d {
			news++
		}
	}
	return news > 10+(len(t.states)+len(t.same))/10
}

// dirsToKeep are all of them, as encodeDirs has them.
func (t *native) dirsToKeep() []byte {
	list := slices.Grow(t.states, len(t.same))
	for _, i := range t.same {
		list = append(list, t.known.get(int(i)))
	}
	return encodeDirs(t.rules, list)
}

// dirsHold says whether what the private index says of directories, which is
// not written anew, is right for another index of the user's: each with the
// same names in both still has them, or will be read since its times changed.
func (t *native) dirsHold() bool {
	if t.settled {
		return t.found.User.Dirs
	}
	doubtful := 0
	for i := range t.known.at {
		if t.known.state(i).alike {
			doubtful++
		}
	}
	for _, d := range t.states {
		if i := t.known.find(d.path); i >= 0 {
			if was := t.known.state(i); was.alike && (d.alike || d.times != was.times) {
				doubtful--
			}
		}
	}
	return len(t.known.at) > 0 && doubtful == 0
}

// unsettle lets the directory of a path be read the next time.
func (t *native) unsettle(path string) {
	if t.unsettled == nil {
		t.unsettled = map[string]bool{}
	}
	t.unsettled[path[:strings.LastIndexByte(path, '/')+1]] = true
}
