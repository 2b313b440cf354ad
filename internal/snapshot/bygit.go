package snapshot

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"sort"
	"strings"

	"github.com/git-checkpoint/git-checkpoint/internal/fault"
	"github.com/git-checkpoint/git-checkpoint/internal/git"
	"github.com/git-checkpoint/git-checkpoint/internal/index"
)

// ByGit takes snapshots with git's own commands on a private index: it lists
// untracked files (ls-files), finds what changed (diff-files), stores that
// (update-index) and writes the tree (write-tree).
//
// The private index is a cache. What makes it right is that every entry which
// is not known to equal the file on disk has no stat data, so that git looks
// at the content; see merge.
type ByGit struct {
	Repo *git.Repo
}

// work is one Take under way.
type work struct {
	*private
	o    Options
	look *Lstat

	user    *index.Index
	cache   *index.Index    // nil: none
	found   cacheKey        // its key
	seen    userKey         // what the user's index is
	settled bool            // it is as it was when the private one was made
	plain   map[string]bool // the paths whose content was stored by the rules alone; see private
	out     *Snapshot
}

// Take implements Taker.
func (g *ByGit) Take(ctx context.Context, o Options) (*Snapshot, error) {
	s, again, err := g.take(ctx, o)
	if err == nil && again {
		// The rules that decide how files are stored changed with the files
		// (.gitattributes): what the cache knows was stored by the old ones.
		s.Discard()
		o.Key = ""
		s, _, err = g.take(ctx, o)
	}
	return s, err
}

func (g *ByGit) take(ctx context.Context, o Options) (_ *Snapshot, again bool, err error) {
	p, err := openPrivate(g.Repo, o.Scratch)
	if err != nil {
		return nil, false, err
	}
	w := &work{private: p, o: o, out: &Snapshot{Env: p.env, discard: p.discard}, look: NewLstat(g.Repo), plain: map[string]bool{}}
	defer func() {
		if err != nil {
			w.out.Discard()
		}
	}()

	w.loadCache()
	if err := w.readUser(ctx); err != nil {
		return nil, false, err
	}

	untracked, err := w.listUntracked(ctx)
	if err != nil {
		return nil, false, err
	}
	files, added, err := w.merge(ctx, untracked)
	if err != nil {
		return nil, false, err
	}
	changed, err := w.update(ctx, files, added)
	if err != nil {
		return nil, false, err
	}
	var tree string
	if err := stubbornly(func() (err error) {
		tree, err = w.git(ctx, "write-tree", "--missing-ok").WithEnv("LC_ALL", "C").Text()
		return err
	}); err != nil {
		return nil, false, failed("write the tree", err)
	}
	git.Step("tree written")
	w.out.Tree = tree
	if w.out.Files, err = index.Read(w.index, g.Repo.HashLen()); err != nil {
		return nil, false, failed("read the private index", err)
	}
	for p := range changed {
		if _, ok := w.out.Files.Lookup(p, 0); ok {
			continue
		}
		if fi, err := w.look.Get(p); err == nil && fi != nil {
			w.skip(p, ReasonName) // all that git said was that it ignores the path
		}
	}
	for _, e := range w.out.Files.Entries {
		if e.Mode == index.ModeGitlink {
			w.out.Unprotected = append(w.out.Unprotected, e.Path)
		}
	}
	if !o.Scratch {
		w.findPlain(changed)
		w.out.keep = w.keepWritten
	}
	return w.out, w.cache != nil && w.attributesChanged(changed), nil
}

// stubbornly tries again what git fails to write because a "git gc" beside it
// removes directories of objects as they become empty.
func stubbornly(write func() error) (err error) {
	for range 5 {
		err = write()
		var failed *git.Error
		if !errors.As(err, &failed) ||
			!strings.Contains(failed.Stderr, "No such file or directory") && !strings.Contains(failed.Stderr, "error building trees") {
			return err
		}
	}
	return err
}

func failed(what string, err error) error {
	return fault.New(fault.Fatal, "snapshot", "%s: %w", what, err)
}

func (w *work) loadCache() {
	k, ok := w.loadKey(w.o.Key)
	if !ok {
		return
	}
	x, err := index.Read(w.kept, w.repo.HashLen())
	if err != nil {
		git.Trace("private index: %v", err)
		return
	}
	w.cache, w.found = x, k
}

// readUser reads the user's index.
func (w *work) readUser(ctx context.Context) error {
	seen, unknown := w.userKey()
	var err error
	if w.user, err = ReadUserIndex(ctx, w.repo); err != nil {
		return err
	}
	w.out.user = func() (*index.Index, error) { return w.user, nil }
	if again, err := w.userKey(); err != nil || unknown != nil || again != seen {
		seen.Size = -1 // it may be neither of the two
	}
	w.seen, w.settled = seen, w.cache != nil && w.found.User.sameFile(seen)
	return nil
}

// keepWritten keeps the index that git wrote.
func (w *work) keepWritten(key string) error {
	if err := w.markPlain(); err != nil {
		return failed("keep the private index", err)
	}
	sum, err := indexChecksum(w.index, w.repo.HashLen())
	if err != nil {
		return failed("keep the private index", err)
	}
	return w.keep(cacheKey{Key: key, Checksum: sum, Tree: w.out.Tree, User: w.seen}, true)
}

// markPlain marks the entries whose content was stored by the rules alone.
func (w *work) markPlain() error {
	if len(w.plain) == 0 {
		return nil
	}
	x := *w.out.Files
	x.Entries = slices.Clone(x.Entries)
	x.SmudgeRacy() // it is written anew
	for i := range x.Entries {
		x.Entries[i].AssumeUnchanged = w.plain[x.Entries[i].Path]
	}
	return x.WriteFile(w.index, w.repo.HashLen())
}

// findPlain finds out which of the paths that git stored are plain.
func (w *work) findPlain(stored map[string]bool) {
	for p := range stored {
		delete(w.plain, p)
	}
	for _, e := range w.user.Entries {
		if path.Base(e.Path) != ".gitattributes" {
			continue
		}
		if fi, err := w.look.Get(e.Path); err != nil || fi == nil {
			return // git reads it from the index
		}
	}
	c, err := newConverter(w.repo, func(path string) (bool, error) { return w.below(path), nil })
	for p := range stored {
		if e, ok := w.out.Files.Lookup(p, 0); ok && (e.Mode == index.ModeSymlink || err == nil && c.plain(p)) {
			w.plain[p] = true
		}
	}
}

// attributesChanged says whether a .gitattributes file is another than in the cache.
func (w *work) attributesChanged(changed map[string]bool) bool {
	for p := range changed {
		if path.Base(p) == ".gitattributes" {
			return true
		}
	}
	isAttributes := func(e index.Entry) bool { return path.Base(e.Path) == ".gitattributes" }
	old := slices.DeleteFunc(slices.Clone(w.cache.Entries), func(e index.Entry) bool { return !isAttributes(e) })
	now := slices.DeleteFunc(slices.Clone(w.out.Files.Entries), func(e index.Entry) bool { return !isAttributes(e) })
	return !slices.EqualFunc(old, now, func(a, b index.Entry) bool { return a.Path == b.Path && a.ID == b.ID && a.Mode == b.Mode })
}

// listUntracked lists what is untracked and not ignored, and of the forced
// paths those on disk. A nested repository has a '/' at the end.
func (w *work) listUntracked(ctx context.Context) ([]string, error) {
	args := []string{"ls-files", "-z", "--others", "--exclude-standard"}
	for _, pattern := range w.o.Exclude {
		args = append(args, "--exclude="+pattern)
	}
	// The user's own index says what is tracked.
	c := w.repo.Command(ctx, args...).WithIndex(filepath.Join(w.repo.Dir, "index")).WithEnv("LC_ALL", "C")
	var warnings strings.Builder
	c.Stderr = &warnings
	list, err := c.Lines()
	if err != nil {
		if said := strings.TrimSpace(warnings.String()); said != "" {
			err = fmt.Errorf("%w: %s", err, said)
		}
		return nil, failed("list untracked files", err)
	}
	// git passes over a directory that it cannot read.
	for line := range strings.Lines(warnings.String()) {
		if dir, ok := strings.CutPrefix(line, "warning: could not open directory '"); ok {
			i := strings.LastIndex(dir, "/': ")
			if i < 0 {
				i = strings.LastIndex(dir, "/") // git cuts a long line off
			}
			if i > 0 {
				w.skip(dir[:i], ReasonUnreadable)
			}
		}
	}
	if len(w.o.Omit) > 0 {
		list = slices.DeleteFunc(list, func(p string) bool { return w.o.Omit[p] })
	}
	return list, nil
}

// merge makes the private index to start from: the user's index without its
// flags and conflicts, and of the cache what the user's index knows less well.
// added are the paths that no index has yet.
func (w *work) merge(ctx context.Context, untracked []string) (files *index.Index, added []string, err error) {
	w.user.SmudgeRacy()
	cached := map[string]index.Entry{}
	if w.cache != nil {
		w.cache.SmudgeRacy()
		for _, e := range w.cache.Entries {
			cached[e.Path] = e
		}
	}
	tracked := make(map[string]bool, len(w.user.Entries))
	merged := map[string]index.Entry{}
	for _, e := range w.user.Entries {
		tracked[e.Path] = true
		entry, keep, err := w.fromUser(e, cached)
		if err != nil {
			return nil, nil, err
		}
		if !keep {
			continue
		}
		if _, ok := merged[e.Path]; ok && e.Stage == 3 {
			continue // of an unmerged path, keep our side
		}
		merged[e.Path] = entry
	}

	force := map[string]bool{}
	for _, p := range w.o.Force {
		fi, err := w.look.Get(p)
		if err != nil {
			return nil, nil, err
		}
		if !tracked[p] && fi != nil && !fi.IsDir() && !inRepository(w.repo, p, func(dir string) bool { return w.below(dir + "/") }) {
			force[p] = true
			untracked = append(untracked, p)
		}
	}
	sort.Strings(untracked)
	untracked = slices.Compact(untracked)
	// Where the user's index has a file, and a directory is on disk, or the
	// other way round, what is on disk counts.
	for _, p := range untracked {
		p = strings.TrimSuffix(p, "/")
		for dir := path.Dir(p); dir != "."; dir = path.Dir(dir) {
			delete(merged, dir)
		}
	}
	for _, p := range untracked {
		name, nested := strings.CutSuffix(p, "/")
		entry, ok, isNew, err := w.fromDisk(ctx, name, nested, force[p], cached)
		if err != nil {
			return nil, nil, err
		}
		if ok && !isNew {
			merged[name] = entry
		}
		if isNew {
			added = append(added, name)
		}
	}
	files = &index.Index{Entries: make([]index.Entry, 0, len(merged))}
	for _, e := range merged {
		files.Entries = append(files.Entries, e)
	}
	sort.Slice(files.Entries, func(i, j int) bool { return files.Entries[i].Path < files.Entries[j].Path })
	files.Entries = dropShadowed(files.Entries)
	return files, added, nil
}

// below says whether the user's index has paths with a prefix.
func (w *work) below(prefix string) bool {
	i, _ := slices.BinarySearchFunc(w.user.Entries, prefix, func(e index.Entry, p string) int { return strings.Compare(e.Path, p) })
	return i < len(w.user.Entries) && strings.HasPrefix(w.user.Entries[i].Path, prefix)
}

// dropShadowed removes entries below a path that is an entry itself, which an
// index cannot hold: an untracked file stands where the directory was.
func dropShadowed(entries []index.Entry) []index.Entry {
	have := make(map[string]bool, len(entries))
	for _, e := range entries {
		have[e.Path] = true
	}
	return slices.DeleteFunc(entries, func(e index.Entry) bool {
		for dir := path.Dir(e.Path); dir != "."; dir = path.Dir(dir) {
			if have[dir] {
				return true
			}
		}
		return false
	})
}

// fromUser makes an entry of the private index from one of the user's.
func (w *work) fromUser(e index.Entry, cached map[string]index.Entry) (entry index.Entry, keep bool, err error) {
	skip := e.SkipWorktree
	if skip {
		fi, err := w.look.Get(e.Path)
		if err != nil {
			return e, false, err
		}
		skip = fi == nil
	}
	old, ok := cached[e.Path]
	switch {
	case skip && e.Stage == 0:
		// Absent, and meant to be: its content is what the index says. What
		// was only meant to be added has none.
		e.AssumeUnchanged = false
		return e, !e.IntentToAdd, nil
	case e.Stage != 0 || e.IntentToAdd:
		e.Stat = index.Stat{}
	case ok && old.Stat == e.Stat && e.Stat != (index.Stat{}):
		// Both know the file as it is; git's word on its content counts.
	case ok && !old.SkipWorktree && e.Mode != index.ModeGitlink && w.trusts(old):
		e.Stat, e.ID, e.Mode = old.Stat, old.ID, old.Mode
	}
	e.Stage, e.AssumeUnchanged, e.SkipWorktree, e.IntentToAdd = 0, false, false, false
	if w.o.Exact && e.Mode != index.ModeGitlink {
		fi, err := w.look.Get(e.Path)
		if err != nil {
			return e, false, err
		}
		if fi != nil && e.Stat != index.StatOf(fi) {
			e.Stat = index.Stat{}
		}
	}
	return e, true, nil
}

// fromDisk decides about an untracked path: taken as the cache has it (ok),
// to be added (isNew), or neither.
func (w *work) fromDisk(ctx context.Context, p string, nested, forced bool, cached map[string]index.Entry) (e index.Entry, ok, isNew bool, err error) {
	if nested {
		head := nestedRevision(ctx, w.repo, DiskPath(w.repo, p), "HEAD^{commit}")
		if head == "" {
			w.skip(p, ReasonNoCommit)
			return e, false, false, nil
		}
		if !plainName(p) {
			return e, false, true, nil // git looks at the name
		}
		return index.Entry{Path: p, Mode: index.ModeGitlink, ID: head}, true, false, nil
	}
	fi, err := w.look.Get(p)
	if err != nil || fi == nil {
		return e, false, false, err
	}
	old, known := cached[p]
	switch {
	case fi.IsDir():
		return e, false, false, nil
	case index.ModeOf(fi) == 0:
		w.skip(p, ReasonSpecial)
	case !forced && w.o.MaxFileSize > 0 && fi.Mode().IsRegular() && fi.Size() > w.o.MaxFileSize:
		w.skip(p, ReasonTooLarge)
	case known && old.Stat.Size != 0 && old.Stat == index.StatOf(fi) && old.Mode == w.modeOf(fi, old.Mode) && w.trusts(old):
		old.AssumeUnchanged = false
		return old, true, false, nil
	case fi.Mode().IsRegular() && !readable(DiskPath(w.repo, p)):
		w.skip(p, ReasonUnreadable)
	default:
		return e, false, true, nil
	}
	return e, false, false, nil
}

// trusts says whether an entry of the cache is good for a file with its stat data.
func (w *work) trusts(old index.Entry) bool {
	if old.AssumeUnchanged {
		w.plain[old.Path] = true
	}
	return w.settled || old.AssumeUnchanged
}

// modeOf is the mode of a file, as far as the file system can tell it.
func (w *work) modeOf(fi fs.FileInfo, known uint32) uint32 {
	mode := index.ModeOf(fi)
	if mode == index.ModeExecutable || mode == index.ModeFile {
		if !w.repo.Config.Bool("core.filemode", true) && (known == index.ModeExecutable || known == index.ModeFile) {
			return known
		}
	}
	return mode
}

func readable(file string) bool {
	f, err := os.Open(file)
	if err != nil {
		return false
	}
	f.Close()
	return true
}

func (w *work) skip(p, reason string) {
	w.out.Skipped = append(w.out.Skipped, Skip{p, reason})
}

// update writes the private index and lets git bring it up to the files on
// disk. It returns the paths whose content was stored anew.
func (w *work) update(ctx context.Context, files *index.Index, added []string) (map[string]bool, error) {
	if err := files.WriteFile(w.index, w.repo.HashLen()); err != nil {
		return nil, failed("write the private index", err)
	}
	git.Step("private index written")
	list, err := w.git(ctx, "diff-files", "-z", "--name-status", "--no-renames", "--ignore-submodules=dirty").Lines()
	if err != nil {
		return nil, failed("look for changed files", err)
	}
	changed := map[string]bool{}
	gone := map[string]bool{}
	for i := 0; i+1 < len(list); i += 2 {
		status, p := list[i], list[i+1]
		fi, err := w.look.Get(p)
		if err != nil {
			return nil, err
		}
		isDir := fi != nil && fi.IsDir()
		if status == "D" {
			gone[p] = true
			// The list of untracked files does not have a repository without a
			// commit in the place of a tracked file.
			if isDir {
				if is, _ := isRepository(DiskPath(w.repo, p)); is {
					w.skip(p, ReasonNoCommit)
				}
			}
			continue
		}
		take, remove := w.tracked(p, fi)
		if e, ok := files.Lookup(p, 0); isDir && ok && e.Mode != index.ModeGitlink {
			remove = true // where a file is left, update-index does not take a repository
		}
		if take {
			changed[p] = true
		}
		if remove {
			gone[p] = true
		}
	}
	if len(gone) > 0 || len(changed) > 0 {
		// Whether a file's CRs are kept can depend on what the index holds
		// (gitattributes(5), text=auto), so git has to see the user's entry.
		users := map[string]index.Entry{}
		for _, e := range w.user.Entries {
			if changed[e.Path] && (e.Stage == 0 || e.Stage == 2) {
				users[e.Path] = e
			}
		}
		files.Entries = slices.DeleteFunc(files.Entries, func(e index.Entry) bool { return gone[e.Path] })
		for i := range files.Entries {
			e := &files.Entries[i]
			if u, ok := users[e.Path]; ok {
				e.ID, e.Mode, e.Stat = u.ID, u.Mode, index.Stat{}
			}
		}
		if err := files.WriteFile(w.index, w.repo.HashLen()); err != nil {
			return nil, failed("write the private index", err)
		}
	}
	if len(changed)+len(added) == 0 {
		return changed, nil
	}
	var input strings.Builder
	for p := range changed {
		input.WriteString(p + "\x00")
	}
	for _, p := range added {
		changed[p] = true
		input.WriteString(p + "\x00")
	}
	if err := updateIndex(w.git, ctx, input.String()); err != nil {
		return nil, err
	}
	return changed, nil
}

// tracked decides about a tracked path that is not as the index has it: take
// its content, or remove the entry since there is nothing to take. fi is what
// is there, nil if nothing is.
func (w *work) tracked(p string, fi fs.FileInfo) (take, remove bool) {
	switch {
	case fi == nil:
		return false, true
	case fi.IsDir():
		// A submodule at another commit, or a repository where a file was.
		return true, false
	case index.ModeOf(fi) == 0:
		w.skip(p, ReasonSpecial)
		return false, true
	case fi.Mode().IsRegular() && !readable(DiskPath(w.repo, p)):
		w.skip(p, ReasonUnreadable)
		return false, false
	}
	return true, false
}
