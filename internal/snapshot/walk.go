package snapshot

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/git-checkpoint/git-checkpoint/internal/git"
	"github.com/git-checkpoint/git-checkpoint/internal/ignore"
	"github.com/git-checkpoint/git-checkpoint/internal/index"
)

// kind is what a name in a directory is.
type kind uint8

const (
	kindUnknown kind = iota // the file system does not tell without a stat
	kindFile
	kindLink
	kindDir
	kindOther
)

// dirent is one name in a directory.
type dirent struct {
	name []byte
	kind kind
}

// fileStat is what a file is now, as an index entry would have it.
type fileStat struct {
	record [index.RecordSize]byte // without a mode for what git does not track
	kind   kind
	size   int64
}

// aside is the error for what only git itself knows how to do.
type aside struct{ why string }

func (a aside) Error() string { return a.why }

func asidef(format string, args ...any) error { return aside{fmt.Sprintf(format, args...)} }

// change is how an entry of the private index is to become another.
type change struct {
	index.Edit
	hash kind // kindFile, kindLink: the content has to be stored; else the edit is complete
	user int  // the user's entry of the path, -1 if there is none; see unasked
	base int  // the private index's, -1 if there is none

	byGit      bool // git has to store the content
	unreadable bool // there is none to be had
	keep       bool // the private index keeps what it has
}

// unasked stands for a user's entry that there is, and of which nobody asked
// where. See userOf.
const unasked = -2

// walk compares the working tree with two indexes in one go: the user's, which
// says what is tracked, and the private one of the last save, which knows what
// the files were then.
type walk struct {
	root      string
	cache     *index.View
	users     func() (*index.View, error)
	userTime  uint32 // seconds: an entry whose file is not older is racy
	cacheTime uint32
	settled   bool // the user's index is as it was when the private one was made
	alike     bool // and what that says of directories holds
	rule      statRule
	fileMode  bool // core.fileMode
	o         *Options
	force     map[string]bool
	rules     *ignore.Stack // that hold everywhere
	emptyBlob []byte
	head      func(dir string, tracked bool) (string, error) // the commit of a nested repository

	known  *dirTable     // directories whose names need not be read while their times are the same
	dev    atomic.Uint64 // of the top
	unread atomic.Int32  // how many were not
	stray  atomic.Bool   // ignore rules are in files that are no part of the snapshot

	mu      sync.Mutex
	wake    sync.Cond
	stack   []visit // what whoever has nothing to do may take
	busy    int     // how many workers have something to do
	err     error
	workers []*worker
	others  sync.WaitGroup
	idle    atomic.Int32 // how many workers wait for something to do
	failed  atomic.Bool  // there is an error
	waited  atomic.Int32 // how often a directory was slow
	reads   atomic.Int64 // see waitsForDisk
}

// span is a range of entries.
type span struct{ lo, hi int }

// unknown stands for the user's entries below a directory where nobody asked
// for them yet.
var unknown = span{-1, -1}

func (s span) empty() bool { return s.lo >= s.hi }

// visit is a directory to look at.
type visit struct {
	place     *place
	user      span // the entries below it; see need
	cache     span
	untracked bool // nothing below it is tracked
	probe     bool // only whether it is a repository is of interest
	was       int  // the private index's entry of the directory's own path, -1
}

// place is a directory.
type place struct {
	parent *place
	path   string                // from the top, with '/' at the end; empty at the top
	rules  atomic.Pointer[rules] // of most directories nobody asks for them
}

// rules are the ignore rules that hold in a directory.
type rules struct {
	read    sync.Once
	stack   *ignore.Stack // with its own .gitignore
	readErr error

	judged   sync.Once
	ignored  bool
	judgeErr error
}

// worker is one of the goroutines of a walk, with what it found.
type worker struct {
	*walk
	*folder
	own     []visit // what it is to visit itself, unless another has nothing to do
	changes []change
	skips   []Skip
	same    []int32     // directories that are as they are known
	dirs    []dirState  // others
	pushed  int         // by the visit under way: directories to be looked at
	probed  bool        // or where there may be a repository that is to be named
	user    *index.View // nil until need
	inUser  []child
	inCache []child
	path    []byte
}

// child is a name in a directory, as an index has it.
type child struct {
	name  []byte
	file  span // entries of the name itself: several in a conflict
	below span
}

// Another thread is worth its start only where there is something to do.
const (
	// queue is how many directories have to wait before there are workers for
	// all processors.
	queue = 8
	// slow is the time a name from which on the disk lets us wait. Where it
	// does so again, there are many workers, so that it has many questions to
	// answer at once.
	slow  = 50 * time.Microsecond
	again = 4
	many  = 16
)

// run walks the whole tree and returns all that is not as the private index has it.
func (w *walk) run() (changes []change, skips []Skip, err error) {
	w.wake.L = &w.mu
	w.stack = []visit{{place: &place{}, user: unknown, cache: span{0, w.cache.Len()}, was: -1}}
	w.hire(1).work()
	w.others.Wait()
	if w.err != nil {
		return nil, nil, w.err
	}
	for _, worker := range w.workers {
		changes = append(changes, worker.changes...)
		skips = append(skips, worker.skips...)
	}
	slices.SortFunc(changes, func(a, b change) int { return strings.Compare(a.Path, b.Path) })
	return changes, skips, nil
}

// work visits directories until there are none left.
func (w *worker) work() {
	var err error
	if w.folder, err = newFolder(w.root); err == nil {
		defer w.folder.close()
		w.waitsForDisk() // from now on
	}
	for {
		if err != nil {
			w.fail(err)
		}
		v, ok := w.next()
		if !ok {
			return
		}
		w.folder.waits = w.waited.Load() >= again
		begun := time.Now()
		err = w.visit(&v)
		if took := time.Since(begun); took > slow*time.Duration(10+len(w.entries)) && w.waited.Load() < again && w.waitsForDisk() && w.waited.Add(1) == again {
			w.staff(many)
		}
		if len(w.own) >= queue {
			w.staff(max(2, min(runtime.GOMAXPROCS(0), many)))
		}
	}
}

// next takes the directory to visit next: one of the worker's own, as long as
// it has any, so that the workers do not wake each other for every one.
func (w *worker) next() (v visit, ok bool) {
	if n := len(w.own); n > 0 && !w.failed.Load() {
		if n > 1 && w.idle.Load() > 0 {
			w.share(n / 2)
		}
		n = len(w.own) - 1
		v, w.own = w.own[n], w.own[:n]
		return v, true
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.busy-- // see hire
	for len(w.stack) == 0 && w.busy > 0 && w.err == nil {
		w.idle.Add(1)
		w.wake.Wait()
		w.idle.Add(-1)
	}
	n := len(w.stack) - 1
	if n < 0 || w.err != nil {
		w.wake.Broadcast()
		return v, false
	}
	v, w.stack = w.stack[n], w.stack[:n]
	w.busy++
	return v, true
}

// share gives the first directories of the worker's own away: those that are
// highest up, as a rule, and so have most below them.
func (w *worker) share(n int) {
	w.mu.Lock()
	w.stack = append(w.stack, w.own[:n]...)
	w.mu.Unlock()
	w.own = slices.Delete(w.own, 0, n)
	w.wake.Broadcast()
}

// waitsForDisk says whether what took long was the disk, as far as the system
// tells: where nothing was read from one meanwhile, the machine is busy with
// other things, and more workers would make that worse.
func (w *worker) waitsForDisk() bool {
	reads, ok := w.folder.blocksRead()
	return !ok || w.reads.Swap(reads) != reads
}

func (w *walk) fail(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.err == nil {
		w.err = err
	}
	w.failed.Store(true)
}

func (w *worker) push(v visit) {
	if v.probe {
		w.probed = true
	} else {
		w.pushed++
	}
	w.own = append(w.own, v)
}

// staff sees to it that there are as many workers.
func (w *walk) staff(count int) {
	for range count {
		if worker := w.hire(count); worker != nil {
			w.others.Go(worker.work)
		}
	}
}

// hire adds a worker, unless there are as many already.
func (w *walk) hire(count int) *worker {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.workers) >= count {
		return nil
	}
	worker := &worker{walk: w}
	w.workers = append(w.workers, worker)
	w.busy++ // until it finds out that it has nothing to do yet
	return worker
}

// visit compares one directory.
func (w *worker) visit(v *visit) error {
	dir := v.place.path
	w.enter(dir)
	w.pushed, w.probed = 0, false
	var times dirTimes
	certain := false
	if !v.untracked {
		if times, certain = w.times(); certain {
			certain = w.sameDevice(dir, times)
		}
		if certain {
			if done, err := w.sameNames(v, times); done || err != nil {
				return err
			}
		}
	}
	err := w.list()
	if unread := w.need(v); unread != nil {
		return unread
	}
	switch {
	case err == nil:
	case gone(err):
		w.drop(v.was)
		return w.vanished(v.user, v.cache, false)
	case errors.Is(err, fs.ErrPermission) && v.untracked:
		w.drop(v.was)
		w.skip(strings.TrimSuffix(dir, "/"), ReasonUnreadable)
		w.dropAll(v.cache)
		return nil
	default:
		return asidef("read directory '%s': %v", dir, err)
	}
	if v.untracked {
		if done, err := w.nested(v); done || err != nil {
			return err
		}
		w.drop(v.was)
		if v.probe {
			w.dropAll(v.cache)
			return nil
		}
	}
	slices.SortFunc(w.entries, func(a, b dirent) int { return bytes.Compare(a.name, b.name) })
	w.inUser = children(w.inUser[:0], w.user, v.user, len(dir))
	w.inCache = children(w.inCache[:0], w.cache, v.cache, len(dir))
	skipped, changed, alike := len(w.skips), len(w.changes), true
	d, u, c := w.entries, w.inUser, w.inCache
	for len(d)+len(u)+len(c) > 0 {
		if len(d) > 0 && len(u) > 0 && len(c) > 0 && bytes.Equal(d[0].name, u[0].name) && bytes.Equal(d[0].name, c[0].name) {
			// Nearly always: the rest is not to slow this down.
			same := w.settled && single(&d[0], &u[0], &c[0])
			if same {
				_, same = w.asBefore(d[0].name, c[0].file.lo)
			}
			if !same {
				if err := w.compare(v, d[0].name, &d[0], &u[0], &c[0]); err != nil {
					return err
				}
			}
			alike = alike && u[0].alike(&c[0])
			d, u, c = d[1:], u[1:], c[1:]
			continue
		}
		name := least(d, u, c)
		entry, user, cache := (*dirent)(nil), &nothing, &nothing
		if len(d) > 0 && bytes.Equal(d[0].name, name) {
			entry, d = &d[0], d[1:]
		}
		if len(u) > 0 && bytes.Equal(u[0].name, name) {
			user, u = &u[0], u[1:]
		}
		if len(c) > 0 && bytes.Equal(c[0].name, name) {
			cache, c = &c[0], c[1:]
		}
		if string(name) == ".git" {
			continue
		}
		alike = alike && user.alike(cache)
		if err := w.compare(v, name, entry, user, cache); err != nil {
			return err
		}
	}
	if certain && len(w.skips) == skipped && !w.probed {
		w.dirs = append(w.dirs, dirState{dir, times, w.pushed, alike && !namesChange(w.changes[changed:])})
	}
	return nil
}

// need sees to it that the user's index is read, and finds the entries below a
// directory in it.
func (w *worker) need(v *visit) (err error) {
	if w.user == nil {
		if w.user, err = w.users(); err != nil {
			return err
		}
	}
	if v.user == unknown {
		path := []byte(v.place.path)
		v.user.lo = w.user.Search(0, path)
		v.user.hi = w.user.Below(v.user.lo, w.user.Len(), path)
	}
	return nil
}

// alike says whether both indexes have a name, as a file or as a directory.
func (c *child) alike(other *child) bool {
	return c.file.empty() == other.file.empty() && c.below.empty() == other.below.empty() && c.file.empty() != c.below.empty()
}

// namesChange says whether changes are of more than what files are.
func namesChange(changes []change) bool {
	return slices.ContainsFunc(changes, func(c change) bool { return c.Drop || c.base < 0 })
}

// sameDevice says whether a directory is on the file system of the top, of
// which it is known what it does.
func (w *worker) sameDevice(dir string, times dirTimes) bool {
	if dir == "" {
		w.dev.Store(times[5])
	}
	return w.dev.Load() == times[5]
}

// sameNames visits a directory that was just entered and that, for all that is
// known of it, has no other names that count than those that the private index
// has. Nearly all directories are such ones, as a rule: neither they nor the
// indexes are made lists of, and where the user's is known to be like the
// private one it is not even read.
func (w *worker) sameNames(v *visit, times dirTimes) (done bool, err error) {
	if !w.settled {
		return false, nil
	}
	known := w.known.find(v.place.path)
	if known < 0 {
		return false, nil
	}
	was := w.known.state(known)
	if was.times != times {
		return false, nil
	}
	alike := w.alike && was.alike
	if !alike {
		if err := w.need(v); err != nil {
			return false, err
		}
		if w.user.Unmerged {
			return false, nil
		}
	}
	is := dirState{path: v.place.path, times: times, alike: true}
	own, changes, skips := len(w.own), len(w.changes), len(w.skips)
	same, dirs, prefix := true, 0, len(v.place.path)
	for u, c := v.user.lo, v.cache.lo; same && (c < v.cache.hi || !alike && u < v.user.hi); {
		var path []byte
		order := 0 // as of the cache's path to the user's
		switch {
		case c == v.cache.hi:
			path, order = w.user.Path(u), 1
		case !alike && u == v.user.hi:
			path, order = w.cache.Path(c), -1
		default:
			path = w.cache.Path(c)
			if alike {
				break
			}
			if other := w.user.Path(u); !bytes.Equal(path, other) {
				if order = bytes.Compare(path, other); order > 0 {
					path = other
				}
			}
		}
		is.alike = is.alike && order == 0
		name := path[prefix:]
		slash := bytes.IndexByte(name, '/')
		switch {
		case order == 0 && slash < 0:
			if st, unchanged := w.asBefore(name, c); !unchanged {
				if alike && w.rewritten(st, c) {
					w.changes = append(w.changes, change{
						Edit: index.Edit{Path: string(path), Record: st.record},
						hash: kindFile, user: unasked, base: c,
					})
				} else {
					err = w.compareKept(v, path, w.cached(name, c), span{c, c + 1})
				}
			}
			u, c = u+1, c+1
		case order == 0:
			below := path[:prefix+slash+1]
			sub := visit{place: w.below(v.place, name[:slash]), user: unknown, cache: span{c, w.cache.Below(c, v.cache.hi, below)}, was: -1}
			if !alike {
				sub.user = span{u, w.user.Below(u, v.user.hi, below)}
			}
			w.push(sub)
			dirs++
			u, c = sub.user.hi, sub.cache.hi
		case slash >= 0:
			same = false
		case order < 0:
			if same = !w.user.Holds(u, v.user.hi, path); same {
				err = w.compareKept(v, path, w.cached(name, c), span{c, c + 1})
			}
			c++
		default:
			if same = !w.cache.Holds(c, v.cache.hi, path); same {
				err = w.compareKept(v, path, nil, span{})
			}
			u++
		}
		if err != nil {
			return false, err
		}
	}
	if !same || dirs != was.subs {
		w.own, w.changes, w.skips = w.own[:own], w.changes[:changes], w.skips[:skips]
		w.pushed, w.probed = 0, false
		return false, nil
	}
	w.unread.Add(1)
	is.subs, is.alike = w.pushed, is.alike && !namesChange(w.changes[changes:])
	switch {
	case len(w.skips) > skips || w.probed:
	case is.subs == was.subs && is.alike == was.alike:
		w.same = append(w.same, int32(known))
	default:
		w.dirs = append(w.dirs, is)
	}
	return true, nil
}

// compareKept is compare for a path that the private index has as a file, or
// has not.
func (w *worker) compareKept(v *visit, path []byte, entry *dirent, cache span) error {
	if err := w.need(v); err != nil {
		return err
	}
	name := path[len(v.place.path):]
	user := filed(w.user, v.user, path)
	return w.compare(v, name, entry, &child{name: name, file: user}, &child{name: name, file: cache})
}

// filed are the entries of a path among others.
func filed(v *index.View, s span, path []byte) span {
	at := span{v.Search(s.lo, path), 0}
	for at.hi = at.lo; at.hi < s.hi && bytes.Equal(v.Path(at.hi), path); at.hi++ {
	}
	return at
}

// cached is what a name was when the private index was made; nil if it was absent.
func (w *worker) cached(name []byte, c int) *dirent {
	switch {
	case w.cache.SkipWorktree(c):
		return nil
	case w.cache.Mode(c) == index.ModeSymlink:
		return &dirent{name, kindLink}
	case w.cache.Mode(c) == index.ModeGitlink:
		return &dirent{name, kindDir}
	}
	return &dirent{name, kindFile}
}

// asBefore says whether a tracked file is as the private index has it, where
// the user's index has not changed since: then that says nothing else. st is
// nil if there is no such file.
func (w *worker) asBefore(name []byte, c int) (st *fileStat, same bool) {
	st, err := w.stat(name)
	if err != nil {
		return nil, false
	}
	return st, w.rule.same(w.cache.Record(c), st.record[:]) && !w.cache.SkipWorktree(c) && w.believed(w.cache, c, w.cacheTime)
}

// rewritten says whether a tracked file, as it is, can only be news to the
// user's index too, if that has not changed since the private one was made: the
// time of its last change, which nobody can set back, is another now. Then its
// content has to be stored, whatever that index says of it, and that need not
// be read.
func (w *worker) rewritten(st *fileStat, c int) bool {
	if st == nil || st.kind != kindFile || w.rule != statDefault && w.rule != statExact || !w.fileMode {
		return false
	}
	r := w.cache.Record(c)
	return regular(w.cache.Mode(c)) && !w.cache.SkipWorktree(c) && r[36]|r[37]|r[38]|r[39] != 0 && string(r[:8]) != string(st.record[:8])
}

// nothing is what an index has of a name that it does not have.
var nothing child

// single says whether a name is a file, on disk and for two indexes.
func single(entry *dirent, user, cache *child) bool {
	return entry.kind == kindFile && user.file.lo+1 == user.file.hi && cache.file.lo+1 == cache.file.hi && user.below.empty() && cache.below.empty()
}

func least(d []dirent, u, c []child) []byte {
	var name []byte
	take := func(other []byte) {
		if name == nil || bytes.Compare(other, name) < 0 {
			name = other
		}
	}
	if len(d) > 0 {
		take(d[0].name)
	}
	if len(u) > 0 {
		take(u[0].name)
	}
	if len(c) > 0 {
		take(c[0].name)
	}
	return name
}

// children are the names that entries have in a directory whose path has
// prefix bytes, sorted.
func children(list []child, v *index.View, s span, prefix int) []child {
	sorted := true
	for i := s.lo; i < s.hi; {
		path := v.Path(i)
		c := child{name: path[prefix:]}
		end := i + 1
		if slash := bytes.IndexByte(c.name, '/'); slash >= 0 {
			c.name = c.name[:slash]
			end = v.Below(i, s.hi, path[:prefix+slash+1])
			c.below = span{i, end}
		} else {
			c.file = span{i, end}
		}
		i = end
		if n := len(list); n > 0 {
			switch order := bytes.Compare(list[n-1].name, c.name); {
			case order == 0 && !c.file.empty() && !list[n-1].file.empty():
				list[n-1].file.hi = end
				continue
			case order >= 0:
				// "a-" comes before "a/", but after "a".
				sorted = false
			}
		}
		list = append(list, c)
	}
	if sorted {
		return list
	}
	slices.SortStableFunc(list, func(a, b child) int { return bytes.Compare(a.name, b.name) })
	kept := list[:0]
	for _, c := range list {
		n := len(kept)
		if n == 0 || !bytes.Equal(kept[n-1].name, c.name) {
			kept = append(kept, c)
			continue
		}
		// A file in one stage of a conflict, a directory in another.
		if kept[n-1].file.empty() {
			kept[n-1].file = c.file
		}
		if kept[n-1].below.empty() {
			kept[n-1].below = c.below
		}
	}
	return kept
}

// compare looks at one name of a directory.
func (w *worker) compare(v *visit, name []byte, entry *dirent, user, cache *child) error {
	what := kindUnknown // nothing
	if entry != nil {
		what = entry.kind
		if what == kindUnknown {
			st, err := w.stat(name)
			if err != nil && !gone(err) {
				return asidef("look at '%s%s': %v", v.place.path, name, err)
			}
			if err != nil {
				entry = nil
			} else {
				what = st.kind
			}
		}
	}
	switch {
	case !user.file.empty() && !user.below.empty():
		return asidef("'%s%s' is a file and a directory", v.place.path, name)
	case !user.file.empty():
		return w.tracked(v, name, entry, what, user, cache)
	case !user.below.empty():
		if what == kindDir {
			w.drop(first(cache.file))
			w.push(visit{place: w.below(v.place, name), user: user.below, cache: cache.below, was: -1})
			return nil
		}
		included, err := w.untracked(v, name, entry, what, cache)
		if err != nil {
			return err
		}
		if what == kindLink && !included {
			if err := w.beyond(user.below); err != nil {
				return err
			}
		}
		return w.vanished(user.below, cache.below, included)
	case what == kindDir:
		return w.untrackedDir(v, name, cache, false)
	default:
		w.dropAll(cache.below)
		_, err := w.untracked(v, name, entry, what, cache)
		return err
	}
}

func first(s span) int {
	if s.empty() {
		return -1
	}
	return s.lo
}

func (w *walk) below(p *place, name []byte) *place {
	return &place{parent: p, path: p.path + string(name) + "/"}
}

// tracked compares a path that the user's index has.
func (w *worker) tracked(v *visit, name []byte, entry *dirent, what kind, user, cache *child) error {
	u, c := ours(w.user, user.file), first(cache.file)
	if what == kindDir {
		if w.user.Mode(u) == index.ModeGitlink {
			w.dropAll(cache.below)
			return w.submodule(v.place.path+string(name), u, c)
		}
		// The directory's own files are untracked; that it is a repository
		// counts even where it is ignored, as git sees the path as tracked.
		return w.untrackedDir(v, name, cache, true)
	}
	w.dropAll(cache.below)
	if entry == nil {
		return w.absent(u, c)
	}
	st, err := w.stat(name)
	switch {
	case err != nil && gone(err):
		return w.absent(u, c)
	case err != nil:
		return asidef("look at '%s%s': %v", v.place.path, name, err)
	case st.kind == kindDir:
		return asidef("'%s%s' changes", v.place.path, name)
	case st.kind == kindOther:
		w.skip(v.place.path+string(name), ReasonSpecial)
		w.drop(c)
		return nil
	}
	return w.file(v.place.path, name, st, u, c)
}

// ours is the entry that stands for a path: in a conflict, that of our side.
func ours(user *index.View, s span) int {
	for i := s.lo; i < s.hi; i++ {
		if stage := user.Stage(i); stage == 0 || stage == 2 {
			return i
		}
	}
	return s.hi - 1
}

// file compares a file or symbolic link that is to be in the snapshot. u and c
// are its entries, -1 where it has none.
func (w *worker) file(dir string, name []byte, st *fileStat, u, c int) error {
	if !w.fileMode && st.kind == kindFile {
		mode := index.ModeFile
		if c >= 0 && regular(w.cache.Mode(c)) {
			mode = w.cache.Mode(c)
		}
		if u >= 0 && regular(w.user.Mode(u)) {
			mode = w.user.Mode(u)
		}
		binary.BigEndian.PutUint32(st.record[24:], mode)
	}
	ofUser := u >= 0 && w.rule.same(w.user.Record(u), st.record[:]) && w.believedOfUser(u)
	if c >= 0 && !w.cache.SkipWorktree(c) && w.rule.same(w.cache.Record(c), st.record[:]) && w.believed(w.cache, c, w.cacheTime) &&
		(w.settled || ofUser || w.cache.AssumeUnchanged(c)) {
		if ofUser && !bytes.Equal(w.user.ID(u), w.cache.ID(c)) {
			// Both know the file as it is; git's word on its content counts.
			w.take(u, c)
		}
		return nil
	}
	if ofUser {
		w.take(u, c)
		return nil
	}
	w.changes = append(w.changes, change{
		Edit: index.Edit{Path: dir + string(name), Record: st.record},
		hash: st.kind, user: u, base: c,
	})
	return nil
}

func regular(mode uint32) bool { return mode == index.ModeFile || mode == index.ModeExecutable }

// believed says whether an entry that has the stat data of its file also has
// its content: it is not racy, and git has not marked it to be looked at.
func (w *walk) believed(v *index.View, i int, written uint32) bool {
	r := v.Record(i)
	if written != 0 && seconds(r) >= written {
		return false
	}
	return r[36]|r[37]|r[38]|r[39] != 0 || bytes.Equal(v.ID(i), w.emptyBlob)
}

func (w *worker) believedOfUser(u int) bool {
	return w.user.Stage(u) == 0 && !w.user.IntentToAdd(u) && w.believed(w.user, u, w.userTime)
}

// seconds is the modification time in a record.
func seconds(r []byte) uint32 {
	return uint32(r[8])<<24 | uint32(r[9])<<16 | uint32(r[10])<<8 | uint32(r[11])
}

// take makes the user's entry that of the snapshot.
func (w *worker) take(u, c int) {
	e := change{Edit: index.Edit{Path: string(w.user.Path(u))}, user: u, base: c}
	copy(e.Record[:], w.user.Record(u))
	copy(e.ID[:], w.user.ID(u))
	w.changes = append(w.changes, e)
}

// absent decides about a tracked path that is not on disk: it is gone, or is
// meant to be absent.
func (w *worker) absent(u, c int) error {
	if !w.user.SkipWorktree(u) || w.user.Stage(u) != 0 || w.user.IntentToAdd(u) {
		w.drop(c)
		return nil
	}
	path := string(w.user.Path(u))
	if base := path[strings.LastIndexByte(path, '/')+1:]; base == ".gitignore" || base == ".gitattributes" {
		return asidef("'%s' is meant to be absent", path) // git reads it from the index
	}
	if c >= 0 && w.cache.SkipWorktree(c) && w.cache.Mode(c) == w.user.Mode(u) && bytes.Equal(w.cache.ID(c), w.user.ID(u)) {
		return nil
	}
	w.take(u, c)
	w.changes[len(w.changes)-1].SkipWorktree = true
	return nil
}

// vanished decides about all entries below a directory that is not there;
// shadowed says that a file took its place.
func (w *worker) vanished(user, cache span, shadowed bool) error {
	c := cache.lo
	for u := user.lo; u < user.hi; u++ {
		if shadowed || !w.user.SkipWorktree(u) {
			continue
		}
		path := w.user.Path(u)
		at := min(w.cache.Search(c, path), cache.hi)
		w.dropAll(span{c, at})
		c = at
		base := -1
		if c < cache.hi && bytes.Equal(w.cache.Path(c), path) {
			base = c
			c++
		}
		if err := w.absent(u, base); err != nil {
			return err
		}
	}
	w.dropAll(span{c, cache.hi})
	return nil
}

// beyond looks for entries beyond a link that git keeps, since it cannot look
// at them: the link leads to itself.
func (w *worker) beyond(user span) error {
	for u := user.lo; u < user.hi; u++ {
		path := string(w.user.Path(u))
		if _, err := os.Lstat(diskPath(w.root, path)); err != nil && !git.Missing(err) {
			return asidef("look at '%s': %v", path, err)
		}
	}
	return nil
}

// drop removes an entry of the private index.
func (w *worker) drop(c int) {
	if c >= 0 {
		w.changes = append(w.changes, change{Edit: index.Edit{Path: string(w.cache.Path(c)), Drop: true}, user: -1, base: c})
	}
}

func (w *worker) dropAll(s span) {
	for c := s.lo; c < s.hi; c++ {
		w.drop(c)
	}
}

func (w *worker) skip(path, reason string) { w.skips = append(w.skips, Skip{path, reason}) }

// untracked decides about a file or link that the user's index does not have,
// and says whether it is part of the snapshot. There may be nothing.
func (w *worker) untracked(v *visit, name []byte, entry *dirent, what kind, cache *child) (bool, error) {
	c := first(cache.file)
	if entry == nil || what == kindOther {
		w.drop(c)
		return false, nil
	}
	path := append(append(w.path[:0], v.place.path...), name...)
	w.path = path
	if w.o.Omit[string(path)] {
		w.drop(c)
		return false, nil
	}
	forced := w.force[string(path)]
	if !forced {
		ignored, err := w.excluded(v.place, path, false)
		if err != nil {
			return false, err
		}
		if ignored {
			if string(name) == ".gitignore" {
				w.stray.Store(true)
			}
			w.drop(c)
			return false, nil
		}
	}
	st, err := w.stat(name)
	switch {
	case err != nil && gone(err):
		w.drop(c)
		return false, nil
	case err != nil:
		return false, asidef("look at '%s': %v", path, err)
	case st.kind != what:
		return false, asidef("'%s' changes", path)
	}
	if !forced && w.o.MaxFileSize > 0 && st.kind == kindFile && st.size > w.o.MaxFileSize {
		w.skip(string(path), ReasonTooLarge)
		if string(name) == ".gitignore" {
			w.stray.Store(true)
		}
		w.drop(c)
		return false, nil
	}
	return true, w.file(v.place.path, name, st, -1, c)
}

// untrackedDir decides about a directory with nothing tracked in it. wasFile
// says that the user's index has a file of its name.
func (w *worker) untrackedDir(v *visit, name []byte, cache *child, wasFile bool) error {
	path := append(append(w.path[:0], v.place.path...), name...)
	w.path = path
	ignored, err := w.excluded(v.place, path, true)
	if err != nil {
		return err
	}
	if ignored && !wasFile {
		w.drop(first(cache.file))
		w.dropAll(cache.below)
		return nil
	}
	w.push(visit{place: w.below(v.place, name), cache: cache.below, untracked: true, probe: ignored, was: first(cache.file)})
	return nil
}

// nested makes a repository inside the working tree, whose directory was just
// listed, one entry.
func (w *worker) nested(v *visit) (done bool, err error) {
	if !slices.ContainsFunc(w.entries, func(d dirent) bool { return string(d.name) == ".git" }) {
		return false, nil
	}
	path := strings.TrimSuffix(v.place.path, "/")
	if is, err := isRepository(diskPath(w.root, path)); err != nil || !is {
		return false, err
	}
	w.dropAll(v.cache)
	head, err := w.head(path, false)
	if err != nil {
		return true, err
	}
	if head == "" {
		w.skip(path, ReasonNoCommit)
		w.drop(v.was)
		return true, nil
	}
	w.gitlink(path, head, -1, v.was)
	return true, nil
}

// submodule compares a directory that the user's index has as a commit.
func (w *worker) submodule(path string, u, c int) error {
	head, err := w.head(path, true)
	if err != nil {
		return err
	}
	if head == "" {
		// Not checked out: it stays what it was.
		if c < 0 || w.cache.Mode(c) != index.ModeGitlink || !bytes.Equal(w.cache.ID(c), w.user.ID(u)) {
			w.take(u, c)
		}
		return nil
	}
	w.gitlink(path, head, u, c)
	return nil
}

func (w *worker) gitlink(path, head string, u, c int) {
	e := change{Edit: index.Edit{Path: path, ID: mustID(head), Record: (&index.Stat{}).Record(index.ModeGitlink)}, user: u, base: c}
	switch {
	case c >= 0 && w.cache.Mode(c) == index.ModeGitlink && bytes.Equal(w.cache.ID(c), e.ID[:]):
	case u >= 0 && w.user.Stage(u) == 0 && bytes.Equal(w.user.ID(u), e.ID[:]):
		w.take(u, c)
	default:
		w.changes = append(w.changes, e)
	}
}

// excluded says whether an untracked path, in a directory, is ignored.
func (w *worker) excluded(in *place, path []byte, isDir bool) (bool, error) {
	if in.parent != nil {
		ignored, err := w.judge(in)
		if ignored || err != nil {
			return true, err
		}
	}
	return w.match(in, path, isDir)
}

// judge says whether a directory itself is ignored: then all is that is
// untracked below it.
func (w *worker) judge(p *place) (bool, error) {
	r := p.lazily()
	r.judged.Do(func() {
		if p.parent.parent != nil {
			if r.ignored, r.judgeErr = w.judge(p.parent); r.ignored || r.judgeErr != nil {
				return
			}
		}
		r.ignored, r.judgeErr = w.match(p.parent, []byte(strings.TrimSuffix(p.path, "/")), true)
	})
	return r.ignored, r.judgeErr
}

// match asks the rules that hold in a directory.
func (w *worker) match(in *place, path []byte, isDir bool) (bool, error) {
	rules, err := w.rulesOf(in)
	if err != nil {
		return false, err
	}
	return rules.Match(path, isDir) == ignore.Ignored, nil
}

// rulesOf are those that hold in a directory.
func (w *worker) rulesOf(p *place) (*ignore.Stack, error) {
	r := p.lazily()
	r.read.Do(func() {
		above := w.rules
		if p.parent != nil {
			if above, r.readErr = w.rulesOf(p.parent); r.readErr != nil {
				return
			}
		}
		data, err := readNoFollow(diskPath(w.root, p.path+".gitignore"))
		if err != nil && !gone(err) {
			r.readErr = asidef("read '%s.gitignore': %v", p.path, err)
			return
		}
		own := ignore.Parse(data, p.path, false)
		if own.Disputed() {
			r.readErr = asidef("a pattern in '%s.gitignore' depends on git's version", p.path)
		}
		r.stack = above.Push(own)
	})
	return r.stack, r.readErr
}

func (p *place) lazily() *rules {
	if p.rules.Load() == nil {
		p.rules.CompareAndSwap(nil, new(rules))
	}
	return p.rules.Load()
}
