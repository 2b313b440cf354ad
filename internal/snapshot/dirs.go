package snapshot

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
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
}

// before says whether a directory was last changed before a second: changes
// from then on set other times.
func (t *dirTimes) before(second uint32) bool {
	return t[0] < uint64(second) && t[2] < uint64(second)
}

// encodeDirs is the form in which the private index keeps directories: 32
// bytes that stand for the rules, and for each directory the length of its
// path, the path, the six numbers, and subs, all numbers but those of the
// times as uvarint.
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
		data = binary.AppendUvarint(data, uint64(d.subs))
	}
	return data
}

// decodeDirs reads what encodeDirs made, if it was made with the same rules.
func decodeDirs(data []byte, rules [32]byte) map[string]dirState {
	if len(data) < 32 || string(data[:32]) != string(rules[:]) {
		return nil
	}
	dirs := map[string]dirState{}
	for data = data[32:]; len(data) > 0; {
		n, size := binary.Uvarint(data)
		if size <= 0 || n > uint64(len(data)-size) {
			return nil
		}
		d := dirState{path: string(data[size : size+int(n)])}
		if data = data[size+int(n):]; len(data) < 48 {
			return nil
		}
		for i := range d.times {
			d.times[i] = binary.BigEndian.Uint64(data[8*i:])
		}
		subs, size := binary.Uvarint(data[48:])
		if size <= 0 {
			return nil
		}
		d.subs = int(subs)
		data = data[48+size:]
		dirs[d.path] = d
	}
	return dirs
}

// digestRules stands for the ignore rules that are in no file of the tree.
func digestRules(o *Options, files [][]byte) (sum [32]byte) {
	h := sha256.New()
	fmt.Fprintf(h, "%q %d\n", o.Exclude, o.MaxFileSize)
	for _, data := range files {
		fmt.Fprintf(h, "%d\n%s", len(data), data)
	}
	h.Sum(sum[:0])
	return sum
}

// keepDirs decides which directories are kept: those that are certain, and
// none where ignore rules are in files that no snapshot has.
func (t *native) keepDirs(w *walk) {
	t.states = nil
	if w.stray.Load() || t.o.Omit != nil || t.o.Force != nil || t.start == 0 {
		return
	}
	for _, worker := range w.workers {
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
	t.states = slices.DeleteFunc(t.states, func(d dirState) bool { return t.unsettled[d.path] })
	news := 0
	for _, d := range t.states {
		if t.known[d.path] != d {
			news++
		}
	}
	return news > 10+len(t.states)/10
}

// unsettle lets the directory of a path be read the next time.
func (t *native) unsettle(path string) {
	if t.unsettled == nil {
		t.unsettled = map[string]bool{}
	}
	t.unsettled[path[:strings.LastIndexByte(path, '/')+1]] = true
}
