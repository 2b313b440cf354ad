// Package restore knows how the files of a working tree become those of a
// checkpoint: what differs, what must be safe before anything is touched,
// and how to write it so that a kill at any moment leaves each file either
// as it was or as it will be. It never writes through a symbolic link.
package restore

import (
	"context"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"sort"
	"strings"
	"sync/atomic"

	"github.com/git-checkpoint/git-checkpoint/internal/fault"
	"github.com/git-checkpoint/git-checkpoint/internal/git"
	"github.com/git-checkpoint/git-checkpoint/internal/index"
	"github.com/git-checkpoint/git-checkpoint/internal/object"
	"github.com/git-checkpoint/git-checkpoint/internal/snapshot"
)

// Target is the files to restore.
type Target struct {
	// Files are the entries of the checkpoint's tree, sorted by path.
	Files []index.Entry
	// Raw are the exact bytes, as blobs, of files whose stored form would
	// not come back the same.
	Raw map[string]string
	// Absent are paths of Files that are not to be on disk (skip-worktree).
	Absent map[string]bool
	// Leave are paths, of files or directories, that the checkpoint did not
	// take (skipped) and that are therefore not deleted.
	Leave map[string]bool
	// Gone are paths that are known not to have been on disk, so that they are
	// deleted even where the ignore rules of Files cover them.
	Gone map[string]bool
	// Interrupted are paths for which a killed restore may have made
	// directories; where these are empty they go.
	Interrupted []string
}

// Plan is what a restore will do. Make one with Prepare, which touches
// nothing outside the git directory, then Apply and Verify it.
type Plan struct {
	Write       []string // paths to create or replace, sorted
	Delete      []string // paths to delete, sorted
	Kept        []string // files that the checkpoint's own ignore rules cover: left
	Unprotected []string // submodules and nested repositories that differ: left
	IgnoreRules bool     // the .gitignore files differ between now and then

	repo    *git.Repo
	store   object.Store
	snap    *snapshot.Snapshot
	target  Target
	have    entries // what is on disk, as the snapshot has it
	want    entries // what shall be
	stage   string
	plain   bool                  // no file is another on disk than stored
	written map[string]bool       // files in stage that we wrote, not git
	flat    map[string]string     // where in stage those are that do not lie there by their paths
	held    map[string][]byte     // the content of files that do not lie there at all
	stats   map[string]index.Stat // of files written
	others  chan looked           // what came of the look at the files that are not touched
	steps   atomic.Int64
}

// Steps is how many changes Apply has made.
func (p *Plan) Steps() int { return int(p.steps.Load()) }

// entries are sorted by path, each path once.
type entries []index.Entry

// without leaves out entries, without a copy where there are none of them.
func without(list []index.Entry, drop func(e *index.Entry) bool) entries {
	for i := range list {
		if drop(&list[i]) {
			kept := slices.Clone(list[:i])
			for _, e := range list[i:] {
				if !drop(&e) {
					kept = append(kept, e)
				}
			}
			return kept
		}
	}
	return list
}

func (l entries) search(p string) int {
	return sort.Search(len(l), func(i int) bool { return l[i].Path >= p })
}

// get returns the entry of a path, nil if there is none.
func (l entries) get(p string) *index.Entry {
	if i := l.search(p); i < len(l) && l[i].Path == p {
		return &l[i]
	}
	return nil
}

// under returns the first entry below a directory, nil if there is none.
func (l entries) under(dir string) *index.Entry {
	if i := l.search(dir + "/"); i < len(l) && strings.HasPrefix(l[i].Path, dir+"/") {
		return &l[i]
	}
	return nil
}

// each goes through two lists at once; an entry that is in one alone is given
// with nil.
func each(a, b entries, visit func(a, b *index.Entry) error) error {
	for len(a) > 0 || len(b) > 0 {
		var x, y *index.Entry
		order := 0
		switch {
		case len(a) == 0:
			order = 1
		case len(b) == 0:
			order = -1
		default:
			order = strings.Compare(a[0].Path, b[0].Path)
		}
		if order <= 0 {
			x, a = &a[0], a[1:]
		}
		if order >= 0 {
			y, b = &b[0], b[1:]
		}
		if err := visit(x, y); err != nil {
			return err
		}
	}
	return nil
}

// Obstacles lists the paths on disk that stand where the target has a file
// or a directory and that the snapshot does not hold, such as ignored files.
// They have to be in the safety checkpoint, so the snapshot must be taken
// again with them. A repository, or a directory that cannot be read, in the
// way is a fault.Conflict.
func Obstacles(repo *git.Repo, target Target, snap *snapshot.Snapshot) ([]string, error) {
	have := entries(snap.Files.Entries)
	unread := map[string]bool{} // files and directories of which nothing can be said
	for _, s := range snap.Skipped {
		if s.Reason == snapshot.ReasonUnreadable {
			unread[s.Path] = true
			if e := firstWanted(target, s.Path); e != nil {
				return nil, fault.New(fault.Conflict, "directory-in-the-way", "the directory '%s' cannot be read, and the checkpoint has '%s'", s.Path, e.Path).
					WithHint("make it readable or move it away first")
			}
		}
	}
	look := snapshot.NewLstat(repo)
	found := map[string]bool{}
	checkedDirs := map[string]bool{"": true, ".": true}
	err := each(have, target.Files, func(h, e *index.Entry) error {
		// Where the snapshot has a file, its directories are real ones.
		if e == nil || h != nil && !h.SkipWorktree || target.Absent[e.Path] {
			return nil
		}
		// A file where the target has a directory.
		for dir := path.Dir(e.Path); !checkedDirs[dir]; dir = path.Dir(dir) {
			checkedDirs[dir] = true
			fi, err := look.Get(dir)
			if err != nil {
				return err
			}
			if fi == nil {
				continue
			}
			saved := have.get(dir)
			if !fi.IsDir() && saved == nil {
				found[dir] = true
			}
			// What git itself takes for no repository (its .git leads
			// nowhere) is in the snapshot, file by file.
			if fi.IsDir() && (saved != nil && saved.Mode == index.ModeGitlink || have.under(dir) == nil && isRepository(repo, dir)) {
				return repositoryInTheWay(dir, e.Path)
			}
		}
		if h != nil || unread[e.Path] {
			return nil
		}
		fi, err := look.Get(e.Path)
		if err != nil {
			return err
		}
		switch {
		case fi == nil:
		case !fi.IsDir():
			found[e.Path] = true
		case e.Mode == index.ModeGitlink:
		default:
			return filesBelow(repo, e.Path, have, unread, found)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	list := make([]string, 0, len(found))
	for p := range found {
		list = append(list, p)
	}
	sort.Strings(list)
	return list, nil
}

// firstWanted is a file that the target has on disk below a directory, nil if
// there is none.
func firstWanted(target Target, dir string) *index.Entry {
	files := entries(target.Files)
	for i := files.search(dir + "/"); i < len(files) && strings.HasPrefix(files[i].Path, dir+"/"); i++ {
		if !target.Absent[files[i].Path] {
			return &files[i]
		}
	}
	return nil
}

func isRepository(repo *git.Repo, dir string) bool {
	_, err := os.Lstat(filepath.Join(snapshot.DiskPath(repo, dir), ".git"))
	return err == nil
}

func repositoryInTheWay(dir, p string) error {
	return fault.New(fault.Conflict, "repository-in-the-way", "'%s' is a repository of its own and stands where the checkpoint has '%s'", dir, p).
		WithHint("its files are in no checkpoint; move it away first")
}

// filesBelow finds the files of a directory that stands where the target has
// a file.
func filesBelow(repo *git.Repo, dir string, have entries, unread, found map[string]bool) error {
	root := snapshot.DiskPath(repo, dir)
	return filepath.WalkDir(root, func(file string, d fs.DirEntry, err error) error {
		if err != nil {
			return fault.New(fault.Conflict, "directory-in-the-way", "read the directory '%s', which stands in the way: %w", dir, err).
				WithHint("move it away first")
		}
		rel, err := filepath.Rel(repo.Top, file)
		if err != nil {
			return err
		}
		p := filepath.ToSlash(rel)
		if d.Name() == ".git" {
			return repositoryInTheWay(path.Dir(p), dir)
		}
		if d.IsDir() {
			return nil
		}
		if have.get(p) == nil && !unread[p] {
			found[p] = true
		}
		return nil
	})
}

// Prepare compares the target with what is on disk and makes ready all that
// will be written, so that what cannot work fails here.
func Prepare(ctx context.Context, repo *git.Repo, store object.Store, target Target, snap *snapshot.Snapshot) (*Plan, error) {
	p := &Plan{
		repo: repo, store: store, snap: snap, target: target,
		have:  without(snap.Files.Entries, func(e *index.Entry) bool { return e.SkipWorktree }),
		want:  without(target.Files, func(e *index.Entry) bool { return target.Absent[e.Path] }),
		stats: map[string]index.Stat{},
	}
	if err := p.compare(); err != nil {
		return nil, err
	}
	if err := p.unreadable(); err != nil {
		return nil, err
	}
	var err error
	if p.plain, err = p.plainFiles(ctx); err != nil {
		return nil, err
	}
	stage, err := os.MkdirTemp(filepath.Join(repo.Dir, "checkpoint"), "stage-")
	if err != nil {
		return nil, fault.New(fault.Fatal, "io", "write to the git directory: %w", err)
	}
	git.Step("stage made")
	p.stage = stage
	if err := p.makeReady(ctx); err != nil {
		p.Discard()
		return nil, err
	}
	return p, nil
}

// Discard removes what Prepare made ready.
func (p *Plan) Discard() {
	if p.stage != "" {
		os.RemoveAll(p.stage)
	}
}

func (p *Plan) compare() error {
	repositories := map[string]bool{}
	err := each(p.have, p.want, func(h, w *index.Entry) error {
		if h != nil && w != nil && h.Mode == w.Mode && h.ID == w.ID && (len(p.target.Raw) == 0 || p.target.Raw[w.Path] == "") {
			return nil
		}
		if w == nil {
			p.remove(h, repositories)
			return nil
		}
		return p.replace(h, w)
	})
	slices.Sort(p.Unprotected)
	p.Unprotected = slices.Compact(p.Unprotected)
	return err
}

// replace plans to write a file; h is what is there, nil if nothing is.
func (p *Plan) replace(h, w *index.Entry) error {
	name := w.Path
	same := h != nil && h.Mode == w.Mode && h.ID == w.ID
	p.IgnoreRules = p.IgnoreRules || path.Base(name) == ".gitignore" && (h == nil || h.ID != w.ID)
	switch {
	case w.Mode == index.ModeGitlink && h != nil && h.Mode == index.ModeGitlink:
		if !same {
			p.Unprotected = append(p.Unprotected, name)
		}
		return nil
	case h != nil && h.Mode == index.ModeGitlink:
		return repositoryInTheWay(name, name)
	case w.Mode == index.ModeGitlink && h == nil:
		// An empty directory stands for it, as after git checkout. One
		// with files in it goes with them, and is made again.
		if fi, err := os.Lstat(snapshot.DiskPath(p.repo, name)); err == nil && fi.IsDir() && p.have.under(name) == nil {
			return nil
		}
	case p.target.Raw[name] != "":
		if h != nil && h.Mode == w.Mode && p.onDisk(h) == p.target.Raw[name] {
			return nil
		}
	}
	p.Write = append(p.Write, name)
	return nil
}

// remove plans to delete a file that the target does not have.
func (p *Plan) remove(h *index.Entry, repositories map[string]bool) {
	name := h.Path
	p.IgnoreRules = p.IgnoreRules || path.Base(name) == ".gitignore"
	if p.left(name) {
		return
	}
	if h.Mode == index.ModeGitlink {
		p.Unprotected = append(p.Unprotected, name)
		return
	}
	if dir := p.repositoryAbove(name, repositories); dir != "" {
		p.Unprotected = append(p.Unprotected, dir)
		return
	}
	p.Delete = append(p.Delete, name)
}

// repositoryAbove returns the directory above a path that holds a .git, even
// one that leads nowhere: a worktree or submodule that may be mended.
func (p *Plan) repositoryAbove(name string, known map[string]bool) string {
	for dir := path.Dir(name); dir != "."; dir = path.Dir(dir) {
		is, ok := known[dir]
		if !ok {
			is = isRepository(p.repo, dir)
			known[dir] = is
		}
		if is && !p.below(name) {
			return dir
		}
	}
	return ""
}

// left says whether the checkpoint did not take a path, or a directory above
// it, and needs its place for nothing else.
func (p *Plan) left(name string) bool {
	if len(p.target.Leave) == 0 || p.place(name) || p.below(name) {
		return false
	}
	for ; name != "."; name = path.Dir(name) {
		if p.target.Leave[name] {
			return true
		}
	}
	return false
}

// place says whether the target needs a directory at a path.
func (p *Plan) place(name string) bool { return p.want.under(name) != nil }

// unreadable refuses to replace or delete what could not be saved.
func (p *Plan) unreadable() error {
	touched := map[string]bool{}
	for _, list := range [][]string{p.Write, p.Delete} {
		for _, name := range list {
			touched[name] = true
		}
	}
	for _, s := range p.snap.Skipped {
		inTheWay := touched[s.Path] || p.below(s.Path)
		fi, err := os.Lstat(snapshot.DiskPath(p.repo, s.Path))
		if err == nil && !fi.IsDir() {
			inTheWay = inTheWay || p.place(s.Path)
		}
		if inTheWay {
			return fault.New(fault.Conflict, "file-in-the-way", "'%s' cannot be saved (%s), and would be replaced", s.Path, s.Reason).
				WithHint("make it readable or move it away first")
		}
	}
	return nil
}

// below says whether the target has a file where a path has a directory.
func (p *Plan) below(name string) bool {
	for dir := path.Dir(name); dir != "."; dir = path.Dir(dir) {
		if w := p.want.get(dir); w != nil && w.Mode != index.ModeGitlink {
			return true
		}
	}
	return false
}

// keepCandidates are files that would be deleted and whose place no path of
// the checkpoint needs.
func (p *Plan) keepCandidates() []string {
	var candidates []string
	for _, name := range p.Delete {
		if !p.place(name) && !p.below(name) && !p.target.Gone[name] {
			candidates = append(candidates, name)
		}
	}
	return candidates
}

// keepIgnored takes what the checkpoint ignores out of what is deleted: it
// may have been there then, unseen.
func (p *Plan) keepIgnored(ctx context.Context, candidates []string) error {
	if len(candidates) == 0 {
		return nil
	}
	// A name that begins with ':' would be pathspec magic.
	const here = "./"
	c := p.repo.Command(ctx, "check-ignore", "--no-index", "-z", "--stdin").
		WithInput([]byte(here+strings.Join(candidates, "\x00"+here)+"\x00")).
		WithEnv("GIT_DIR", p.repo.Dir).WithEnv("GIT_WORK_TREE", p.stage)
	c.Dir = p.stage
	ignored, err := c.Lines()
	if err != nil && !exitedWith(err, 1) {
		return fault.New(fault.Fatal, "git", "ask for the checkpoint's ignore rules: %w", err)
	}
	keep := map[string]bool{}
	for _, name := range ignored {
		keep[strings.TrimPrefix(name, here)] = true
	}
	p.Delete = slices.DeleteFunc(p.Delete, func(name string) bool {
		if keep[name] {
			p.Kept = append(p.Kept, name)
		}
		return keep[name]
	})
	return nil
}
