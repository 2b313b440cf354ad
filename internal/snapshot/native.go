package snapshot

import (
	"context"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"os"
	"path"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/git-checkpoint/git-checkpoint/internal/fault"
	"github.com/git-checkpoint/git-checkpoint/internal/git"
	"github.com/git-checkpoint/git-checkpoint/internal/ignore"
	"github.com/git-checkpoint/git-checkpoint/internal/index"
	"github.com/git-checkpoint/git-checkpoint/internal/object"
	"github.com/git-checkpoint/git-checkpoint/internal/parallel"
)

// New returns the way to take snapshots of a working tree.
func New(repo *git.Repo) Taker { return &Native{Repo: repo} }

// Native takes snapshots without git, in one walk over the working tree; see
// walk. What it is not certain to do exactly as git does it leaves to git:
// single files whose content git may convert, and else the whole snapshot.
//
// Its private index is that of ByGit: either goes on from what the other kept.
type Native struct {
	Repo *git.Repo
}

// Take implements Taker.
func (n *Native) Take(ctx context.Context, o Options) (*Snapshot, error) {
	s, err := n.take(ctx, o)
	var a aside
	if errors.As(err, &a) {
		git.Trace("snapshot: by git (%s)", a.why)
		return (&ByGit{Repo: n.Repo}).Take(ctx, o)
	}
	return s, err
}

// unfit says why a whole repository is left to git.
func unfit(repo *git.Repo) error {
	if os.Getenv("GIT_CHECKPOINT_SNAPSHOT") == "git" {
		return asidef("GIT_CHECKPOINT_SNAPSHOT says so")
	}
	if runtime.GOOS == "windows" {
		return asidef("this is Windows")
	}
	if why := object.Native(repo); why != "" {
		return asidef("%s", why)
	}
	for key, fit := range map[string]bool{"core.ignorecase": false, "core.precomposeunicode": false, "core.symlinks": true} {
		if repo.Config.Bool(key, fit) != fit {
			return asidef("%s = %v", key, !fit)
		}
	}
	return nil
}

// native is one snapshot under way.
type native struct {
	*private
	o       Options
	out     *Snapshot
	user    *index.View // nil until needUser
	base    *index.View // the private index of the last save; without one, what the user's says
	cached  bool        // there is one
	settled bool        // and the user's index is as it was then
	reread  bool        // all directories are to be read
	found   cacheKey    // its key
	seen    userKey     // what is to be kept of the user's index
	writer  *object.Writer
	convert *converter
	changes []change
	modes   bool   // core.fileMode
	start   uint32 // the second in which the walk began, on the clock of the git directory

	needUser func() error // reads the user's index
	userTime time.Time    // when it was written
	trust    func() error // whether it has the right checksum
	after    *index.View  // the private index as it is to be
	data     []byte       // its bytes, nil if they are those of base
	tree     *index.CacheTree
	blur     []int // where in data the sizes of racy entries are
	news     bool  // it is worth keeping

	rules     [32]byte        // stands for the ignore rules that are in no file of the tree
	known     dirTable        // the directories that the private index knows
	same      []int32         // those that it is to know as before
	states    []dirState      // the others that it is to know
	unsettled map[string]bool // but not these
}

func (n *Native) take(ctx context.Context, o Options) (*Snapshot, error) {
	if err := unfit(n.Repo); err != nil {
		return nil, err
	}
	p, err := openPrivate(n.Repo, o.Scratch)
	if err != nil {
		return nil, err
	}
	t := &native{private: p, o: o, out: &Snapshot{Env: p.env, discard: p.discard}}
	if err := t.run(ctx); err != nil {
		t.discard()
		return nil, err
	}
	return t.out, nil
}

func (t *native) run(ctx context.Context) error {
	end := git.Span("snapshot: native, read the indexes")
	if err := t.readIndexes(ctx); err != nil {
		return err
	}
	end()
	if err := t.clock(); err != nil {
		return err
	}
	end = git.Span("snapshot: look at the files")
	if err := t.look(ctx); err != nil {
		return err
	}
	if t.cached && slices.ContainsFunc(t.changes, func(c change) bool { return path.Base(c.Path) == ".gitattributes" }) {
		// The rules that decide how files are stored changed with the files:
		// what the cache knows was stored by the old ones.
		t.out.Skipped = nil
		if err := t.standIn(); err != nil {
			return err
		}
		if err := t.look(ctx); err != nil {
			return err
		}
	}
	if err := t.trust(); err != nil {
		return t.unreadable(ctx, err)
	}
	if err := t.check(); err != nil {
		return err
	}
	end()
	git.Trace("snapshot: %d changes", len(t.changes))
	var alternates []string
	if t.env != nil {
		alternates = []string{filepath.Join(t.repo.CommonDir, "objects")}
	}
	t.writer = object.NewWriter(t.repo, t.objects(), alternates...)
	defer t.writer.Abort()
	end = git.Span("snapshot: store the files")
	if err := t.store(ctx); err != nil {
		return err
	}
	end()
	var told parallel.Beside
	defer told.Wait()
	if t.o.Changing != nil && t.cached && t.found.Tree != "" && slices.ContainsFunc(t.changes, func(c change) bool { return t.alters(&c) }) {
		told.Go(t.o.Changing)
	}
	end = git.Span("snapshot: store the trees")
	if err := t.assemble(); err != nil {
		return err
	}
	if t.o.Changed != nil && len(t.changes) > 0 {
		told.Go(func() { t.o.Changed(t.out.Tree) })
	}
	if err := t.writer.Close(ctx); err != nil {
		return err
	}
	end()
	return t.finish()
}

// large is the size of an index, in bytes, from which on it is worth a
// goroutine to read another one beside it.
const large = 1 << 20

// readIndexes reads the user's index and the private one.
func (t *native) readIndexes(ctx context.Context) error {
	t.found, t.cached = t.loadKey(t.o.Key)
	var kept sync.WaitGroup
	var unmap func()
	var unfit error
	if read := func() { t.base, unmap, unfit = readKept(t.kept) }; t.cached && t.found.User.Size > large {
		kept.Go(read)
	} else if t.cached {
		read()
	}
	err := t.readUser(ctx)
	kept.Wait()
	if unmap != nil {
		t.unmap = append(t.unmap, unmap)
	}
	switch {
	case err != nil:
		return err
	case t.base != nil:
		return nil
	case unfit != nil:
		git.Trace("private index: %v", unfit)
	}
	return t.standIn()
}

// readUser reads the user's index. Its checksum is compared beside the walk,
// unless this was done before. Where it is the one that the private index was
// made with, it is only looked into if it is asked for: see needUser.
func (t *native) readUser(ctx context.Context) error {
	t.trust = func() error { return nil }
	t.needUser = func() error { return nil }
	data, info, err := t.read(filepath.Join(t.repo.Dir, "index"))
	switch {
	case errors.Is(err, os.ErrNotExist):
		t.user, err = (&index.Index{}).View()
		return err
	case err != nil:
		return t.unreadable(ctx, err)
	}
	t.userTime = info.ModTime()
	t.seen = userKey{Checksum: hex.EncodeToString(data[max(0, len(data)-20):]), Size: info.Size(), Time: info.ModTime().UnixNano()}
	t.settled = t.cached && t.found.User.sameFile(t.seen)
	view := func() (err error) {
		if t.user, err = index.NewView(data, t.settled); err != nil {
			x, err := ReadUserIndex(ctx, t.repo) // by git, or the error that it has
			if err != nil {
				return err
			}
			if t.user, err = x.View(); err != nil {
				return asidef("the index: %v", err)
			}
		}
		t.user.ModTime = info.ModTime()
		return nil
	}
	if t.settled {
		t.seen = t.found.User
		t.needUser = sync.OnceValue(view)
		return nil
	}
	if err := view(); err != nil {
		return err
	}
	checked := make(chan error, 1)
	user := t.user
	go func() { checked <- user.Check() }()
	t.trust = sync.OnceValue(func() error { return <-checked })
	t.unmap = append(t.unmap, func() { t.trust() }) // it reads what is mapped
	return nil
}

// unreadable is the error for an index that is not one, as everywhere.
func (t *native) unreadable(ctx context.Context, err error) error {
	if _, known := ReadUserIndex(ctx, t.repo); known != nil {
		return known
	}
	return asidef("the index: %v", err)
}

// readKept reads a private index that was kept. It is good until unmap is called.
func readKept(file string) (v *index.View, unmap func(), err error) {
	data, info, unmap, err := mapFile(file)
	if err != nil {
		return nil, nil, err
	}
	if v, err = index.NewKept(data); err == nil && v.Unmerged {
		err = errors.New("it has conflicts")
	}
	if err != nil {
		unmap()
		return nil, nil, err
	}
	v.ModTime = info.ModTime()
	return v, unmap, nil
}

// standIn makes what the user's index says of its files stand for a private
// index, where none is kept that fits.
func (t *native) standIn() (err error) {
	if err := t.needUser(); err != nil {
		return err
	}
	t.cached, t.settled = false, false
	t.base = t.user
	if t.user.Plain() {
		return nil
	}
	var special []index.Edit
	for i := range t.user.Len() {
		if t.user.Flagged(i) && (i == 0 || string(t.user.Path(i-1)) != string(t.user.Path(i))) {
			special = append(special, index.Edit{Path: string(t.user.Path(i)), Drop: true})
		}
	}
	data, _ := t.user.Splice(special)
	if t.base, err = index.NewView(data, true); err != nil {
		return asidef("the index: %v", err)
	}
	t.base.ModTime = t.user.ModTime
	return nil
}

// clock makes the file that the index is written to, for its time: files that
// are changed from now on are not older, on the clock that counts for them.
func (t *native) clock() error {
	if t.o.Scratch {
		return nil
	}
	f, err := os.OpenFile(t.index, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o666)
	if err != nil {
		return fault.New(fault.Fatal, "io", "write to the git directory: %w", err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return fault.New(fault.Fatal, "io", "write to the git directory: %w", err)
	}
	t.start = uint32(info.ModTime().Unix())
	return nil
}

// look walks over the files.
func (t *native) look(ctx context.Context) error {
	t.modes = t.repo.Config.Bool("core.filemode", true)
	w := &walk{
		root: t.repo.Top, cache: t.base, userTime: secondsOf(t.userTime), cacheTime: secondsOf(t.base.ModTime),
		settled: t.settled, known: &t.known, rule: statRuleOf(t.repo.Config, t.o.Exact), fileMode: t.modes,
		o: &t.o, force: map[string]bool{}, emptyBlob: emptyBlobID[:],
		users: func() (*index.View, error) { err := t.needUser(); return t.user, err }, alike: t.settled && t.found.User.Dirs,
		head: func(dir string, tracked bool) (string, error) { return headOf(ctx, t.repo, dir, tracked) },
	}
	for _, p := range t.o.Force {
		w.force[p] = true
	}
	files, err := sharedRules(t.repo)
	if err != nil {
		return err
	}
	command, info, global := &ignore.List{}, ignore.Parse(files[0], "", false), ignore.Parse(files[1], "", false)
	for _, pattern := range t.o.Exclude {
		command.Add(pattern)
	}
	if command.Disputed() || info.Disputed() || global.Disputed() {
		return asidef("an ignore pattern for all directories depends on git's version")
	}
	w.rules = ignore.NewStack(command, info, global)
	t.rules, t.known = digestRules(&t.o, files[:]), dirTable{}
	if t.cached && t.o.Omit == nil && t.o.Force == nil && !t.reread {
		t.known = decodeDirs(t.base.Dirs(), t.rules)
	}
	var skips []Skip
	if t.changes, skips, err = w.run(); err != nil {
		return err
	}
	isRules := func(c change) bool { return path.Base(c.Path) == ".gitignore" }
	if n := w.unread.Load(); n > 0 {
		git.Trace("snapshot: %d directories needed not be read", n)
		if w.stray.Load() || slices.ContainsFunc(t.changes, isRules) {
			t.reread = true
			return t.look(ctx)
		}
	}
	t.keepDirs(w)
	t.out.Skipped = append(t.out.Skipped, skips...)
	return t.addForced()
}

func secondsOf(at time.Time) uint32 {
	if at.IsZero() {
		return 0
	}
	return uint32(at.Unix())
}

// statRule is which stat data tells that a file is the same, as the
// configuration wants it.
type statRule uint8

const (
	// statDefault leaves out the device, as git does: it changes with a mount.
	// Nanoseconds count, other than for git: where they differ, git has not looked.
	statDefault statRule = iota
	statExact
	statMinimal // core.checkStat
	statNoCTime // core.trustCTime
)

func statRuleOf(config git.Config, exact bool) statRule {
	check, _ := config.Get("core.checkstat")
	switch {
	case exact:
		return statExact
	case check == "minimal":
		return statMinimal
	case !config.Bool("core.trustctime", true):
		return statNoCTime
	}
	return statDefault
}

// same compares two records.
func (r statRule) same(a, b []byte) bool {
	switch r {
	case statExact:
		return string(a) == string(b)
	case statMinimal:
		return string(a[8:16]) == string(b[8:16]) && string(a[24:28]) == string(b[24:28]) && string(a[36:]) == string(b[36:])
	case statNoCTime:
		return string(a[8:16]) == string(b[8:16]) && string(a[20:]) == string(b[20:])
	}
	return string(a[:16]) == string(b[:16]) && string(a[20:]) == string(b[20:])
}

// sharedRules are the files of ignore rules that hold everywhere: info/exclude
// and the user's own.
func sharedRules(repo *git.Repo) (files [2][]byte, err error) {
	global, err := globalFile(repo, "core.excludesfile", "ignore")
	if err != nil {
		return files, err
	}
	for i, file := range []string{filepath.Join(repo.CommonDir, "info", "exclude"), global} {
		if files[i], err = readRules(file); err != nil {
			return files, err
		}
	}
	return files, nil
}

// globalFile is a file of the user's that a key of the configuration names, or
// else that of the name in git's directory of the user's configuration.
func globalFile(repo *git.Repo, key, name string) (string, error) {
	home, _ := os.UserHomeDir()
	if file, ok := repo.Config.Get(key); ok {
		rest, ofHome := strings.CutPrefix(file, "~/")
		switch {
		case ofHome && home != "":
			return filepath.Join(home, rest), nil
		case strings.HasPrefix(file, "~"), strings.HasPrefix(file, "%("):
			return "", asidef("%s = %s", key, file)
		case file != "" && !filepath.IsAbs(file):
			return filepath.Join(repo.Top, file), nil
		}
		return file, nil
	}
	if xdg := os.Getenv("XDG_CONFIG_HOME"); xdg != "" {
		return filepath.Join(xdg, "git", name), nil
	}
	if home == "" {
		return "", nil
	}
	return filepath.Join(home, ".config", "git", name), nil
}

// addForced adds the forced paths that the walk did not come by.
func (t *native) addForced() error {
	if len(t.o.Force) == 0 {
		return nil
	}
	if err := t.needUser(); err != nil {
		return err
	}
	at := make(map[string]int, len(t.changes))
	for i, c := range t.changes {
		at[c.Path] = i
	}
	look := NewLstat(t.repo)
	for _, p := range t.o.Force {
		i, known := at[p]
		base := t.base.Find(p)
		if known && !t.changes[i].Drop || !known && base >= 0 || t.user.Find(p) >= 0 || t.inNested(p, at) {
			continue // it is decided about
		}
		fi, err := look.Get(p)
		if err != nil {
			return err
		}
		if fi == nil || fi.IsDir() {
			continue
		}
		mode := index.ModeOf(fi)
		if mode == 0 {
			t.out.Skipped = append(t.out.Skipped, Skip{p, ReasonSpecial})
			continue
		}
		c := change{user: -1, base: base, hash: kindFile, Edit: index.Edit{Path: p}}
		if mode == index.ModeSymlink {
			c.hash = kindLink
		} else if !t.modes {
			mode = index.ModeFile
		}
		stat := index.StatOf(fi)
		c.Record = stat.Record(mode)
		if known {
			t.changes[i] = c
		} else {
			t.changes = append(t.changes, c)
		}
	}
	slices.SortFunc(t.changes, func(a, b change) int { return strings.Compare(a.Path, b.Path) })
	return nil
}

// inNested says whether a path is in a repository inside the working tree.
func (t *native) inNested(p string, at map[string]int) bool {
	if inRepository(t.repo, p, func(dir string) bool { return t.user.Holds(0, t.user.Len(), []byte(dir)) }) {
		return true
	}
	for i := strings.LastIndexByte(p, '/'); i > 0; i = strings.LastIndexByte(p[:i], '/') {
		dir := p[:i]
		if i, ok := at[dir]; ok {
			if !t.changes[i].Drop && modeOf(t.changes[i].Record[:]) == index.ModeGitlink {
				return true
			}
		} else if i := t.base.Find(dir); i >= 0 && t.base.Mode(i) == index.ModeGitlink {
			return true
		}
	}
	return false
}

// modeOf is the mode in a record.
func modeOf(record []byte) uint32 { return binary.BigEndian.Uint32(record[24:]) }
