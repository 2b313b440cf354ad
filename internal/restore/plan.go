// Package restore knows how the files of a working tree become those of a
// checkpoint: what differs, what must be safe before anything is touched,
// and how to write it so that a kill at any moment leaves each file either
// as it was or as it will be. It never writes through a symbolic link.
package restore

import (
	"context"
	"errors"
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

	repo   *git.Repo
	store  object.Store
	snap   *snapshot.Snapshot
	target Target
	have   map[string]index.Entry // what is on disk, as the snapshot has it
	want   map[string]index.Entry
	places map[string]bool // directories that the target needs
	stage  string
	stats  map[string]index.Stat // of files written
	Steps  int                   // how many changes Apply has made
}

// Obstacles lists the paths on disk that stand where the target has a file
// or a directory and that the snapshot does not hold, such as ignored files.
// They have to be in the safety checkpoint, so the snapshot must be taken
// again with them. A repository, or a directory that cannot be read, in the
// way is a fault.Conflict.
func Obstacles(repo *git.Repo, target Target, snap *snapshot.Snapshot) ([]string, error) {
	have := map[string]uint32{}
	filled := map[string]bool{} // directories that the snapshot has files in
	for _, e := range snap.Files.Entries {
		have[e.Path] = e.Mode
		for dir := path.Dir(e.Path); dir != "." && !filled[dir]; dir = path.Dir(dir) {
			filled[dir] = true
		}
	}
	closed := map[string]bool{} // also directories, of which nothing can be said
	for _, s := range snap.Skipped {
		if s.Reason == snapshot.ReasonUnreadable {
			have[s.Path], closed[s.Path] = 0, true
		}
	}
	look := snapshot.NewLstat(repo)
	found := map[string]bool{}
	checkedDirs := map[string]bool{"": true, ".": true}
	for _, e := range target.Files {
		if target.Absent[e.Path] {
			continue
		}
		// A file where the target has a directory.
		for dir := path.Dir(e.Path); !checkedDirs[dir]; dir = path.Dir(dir) {
			checkedDirs[dir] = true
			if closed[dir] {
				return nil, fault.New(fault.Conflict, "directory-in-the-way", "the directory '%s' cannot be read, and the checkpoint has '%s'", dir, e.Path).
					WithHint("make it readable or move it away first")
			}
			fi, err := look.Get(dir)
			if err != nil {
				return nil, err
			}
			if fi == nil {
				continue
			}
			mode, saved := have[dir]
			if !fi.IsDir() && !saved {
				found[dir] = true
			}
			// What git itself takes for no repository (its .git leads
			// nowhere) is in the snapshot, file by file.
			if fi.IsDir() && (mode == index.ModeGitlink || !filled[dir] && isRepository(repo, dir)) {
				return nil, repositoryInTheWay(dir, e.Path)
			}
		}
		if _, saved := have[e.Path]; saved {
			continue
		}
		fi, err := look.Get(e.Path)
		if err != nil {
			return nil, err
		}
		switch {
		case fi == nil:
		case !fi.IsDir():
			found[e.Path] = true
		case e.Mode == index.ModeGitlink:
		default:
			if err := filesBelow(repo, e.Path, have, found); err != nil {
				return nil, err
			}
		}
	}
	list := make([]string, 0, len(found))
	for p := range found {
		list = append(list, p)
	}
	sort.Strings(list)
	return list, nil
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
func filesBelow(repo *git.Repo, dir string, have map[string]uint32, found map[string]bool) error {
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
		if _, saved := have[p]; !saved {
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
		have:  make(map[string]index.Entry, len(snap.Files.Entries)),
		want:  make(map[string]index.Entry, len(target.Files)),
		stats: map[string]index.Stat{},
	}
	for _, e := range snap.Files.Entries {
		if !e.SkipWorktree {
			p.have[e.Path] = e
		}
	}
	for _, e := range target.Files {
		if !target.Absent[e.Path] {
			p.want[e.Path] = e
		}
	}
	p.places = directories(p.want)
	if err := p.compare(); err != nil {
		return nil, err
	}
	if err := p.unreadable(); err != nil {
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

func directories(files map[string]index.Entry) map[string]bool {
	found := map[string]bool{}
	for name := range files {
		for dir := path.Dir(name); dir != "." && !found[dir]; dir = path.Dir(dir) {
			found[dir] = true
		}
	}
	return found
}

// Discard removes what Prepare made ready.
func (p *Plan) Discard() {
	if p.stage != "" {
		os.RemoveAll(p.stage)
	}
}

func (p *Plan) compare() error {
	now, then := map[string]string{}, map[string]string{}
	filled := directories(p.have)
	repositories := map[string]bool{}
	for name, w := range p.want {
		h, ok := p.have[name]
		if path.Base(name) == ".gitignore" {
			then[name] = w.ID
		}
		switch {
		case w.Mode == index.ModeGitlink && ok && h.Mode == index.ModeGitlink:
			if h.ID != w.ID {
				p.Unprotected = append(p.Unprotected, name)
			}
			continue
		case ok && h.Mode == index.ModeGitlink:
			return repositoryInTheWay(name, name)
		case w.Mode == index.ModeGitlink && !ok:
			// An empty directory stands for it, as after git checkout. One
			// with files in it goes with them, and is made again.
			if fi, err := os.Lstat(snapshot.DiskPath(p.repo, name)); err == nil && fi.IsDir() && !filled[name] {
				continue
			}
		case p.target.Raw[name] != "":
			if ok && h.Mode == w.Mode && p.rawOnDisk(name) == p.target.Raw[name] {
				continue
			}
		case ok && h.Mode == w.Mode && h.ID == w.ID:
			continue
		}
		p.Write = append(p.Write, name)
	}
	for name, h := range p.have {
		if path.Base(name) == ".gitignore" {
			now[name] = h.ID
		}
		if _, ok := p.want[name]; ok || p.left(name) {
			continue
		}
		if h.Mode == index.ModeGitlink {
			p.Unprotected = append(p.Unprotected, name)
			continue
		}
		if dir := p.repositoryAbove(name, repositories); dir != "" {
			p.Unprotected = append(p.Unprotected, dir)
			continue
		}
		p.Delete = append(p.Delete, name)
	}
	p.IgnoreRules = !mapsEqual(now, then)
	slices.Sort(p.Write)
	slices.Sort(p.Delete)
	slices.Sort(p.Unprotected)
	p.Unprotected = slices.Compact(p.Unprotected)
	return nil
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
	if len(p.target.Leave) == 0 || p.places[name] || p.below(name) {
		return false
	}
	for ; name != "."; name = path.Dir(name) {
		if p.target.Leave[name] {
			return true
		}
	}
	return false
}

func mapsEqual(a, b map[string]string) bool {
	if len(a) != len(b) {
		return false
	}
	for k, v := range a {
		if b[k] != v {
			return false
		}
	}
	return true
}

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
			inTheWay = inTheWay || p.places[s.Path]
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
		if w, ok := p.want[dir]; ok && w.Mode != index.ModeGitlink {
			return true
		}
	}
	return false
}

func (p *Plan) rawOnDisk(name string) string {
	id, err := hashFile(snapshot.DiskPath(p.repo, name), p.repo.ObjectFormat)
	if err != nil {
		return ""
	}
	return id
}

// makeReady lets git write the files to a directory of its own, with the
// checkpoint's attributes, and looks at what came of it.
func (p *Plan) makeReady(ctx context.Context) error {
	var entries []index.Entry
	for _, name := range p.Write {
		w := p.want[name]
		if w.Mode != index.ModeGitlink && p.target.Raw[name] == "" {
			entries = append(entries, index.Entry{Path: name, Mode: w.Mode, ID: w.ID})
		}
	}
	candidates := p.keepCandidates()
	rules := map[string]bool{}
	for _, w := range p.target.Files {
		// git takes them from the index where they are absent by skip-worktree.
		base := path.Base(w.Path)
		if base == ".gitattributes" || base == ".gitignore" && len(candidates) > 0 {
			rules[w.Path] = true
		}
	}
	entries = slices.DeleteFunc(entries, func(e index.Entry) bool { return rules[e.Path] })
	for _, w := range p.target.Files {
		if rules[w.Path] {
			entries = append(entries, index.Entry{Path: w.Path, Mode: w.Mode, ID: w.ID})
		}
	}
	if err := checkOut(ctx, p.repo, p.stage, entries); err != nil {
		return err
	}
	for _, name := range p.Write {
		if err := p.checkStaged(ctx, name); err != nil {
			return err
		}
	}
	return p.keepIgnored(ctx, candidates)
}

// checkOut writes entries to a directory by `git checkout-index`, with all
// conversions.
func checkOut(ctx context.Context, repo *git.Repo, dir string, entries []index.Entry) error {
	if len(entries) == 0 {
		return nil
	}
	file := filepath.Join(filepath.Dir(dir), filepath.Base(dir)+".index")
	defer os.Remove(file)
	x := &index.Index{Entries: entries}
	if err := x.WriteFile(file, repo.HashLen()); err != nil {
		return fault.New(fault.Fatal, "io", "prepare the files: %w", err)
	}
	c := repo.Command(ctx, "checkout-index", "--all", "--force", "--quiet").WithIndex(file).
		WithEnv("GIT_DIR", repo.Dir).WithEnv("GIT_WORK_TREE", dir)
	c.Dir = dir
	if err := c.Run(); err != nil {
		if ctx.Err() != nil {
			return fault.New(fault.Fatal, "interrupted", "prepare the files of the checkpoint: %w", err)
		}
		if unwritable(err) {
			return fault.New(fault.Fatal, "io", "prepare the files of the checkpoint: %w", err).
				WithHint("nothing was changed; the disk may be full")
		}
		return fault.New(fault.Integrity, "files-unavailable", "prepare the files of the checkpoint: %w", err).
			WithHint("nothing was changed; git fsck tells whether objects are missing")
	}
	git.Step("files staged")
	return nil
}

// unwritable says whether git had the content but could not write it. git
// does not translate these two messages.
func unwritable(err error) bool {
	var failed *git.Error
	return errors.As(err, &failed) &&
		(strings.Contains(failed.Stderr, "unable to write file") || strings.Contains(failed.Stderr, "unable to create file"))
}

func (p *Plan) staged(name string) string { return filepath.Join(p.stage, filepath.FromSlash(name)) }

// checkStaged proves a file that will be written: by its hash where git
// stores it as it is. What was converted cannot be proven so, and is git's word.
func (p *Plan) checkStaged(ctx context.Context, name string) error {
	w, staged := p.want[name], p.staged(name)
	if w.Mode == index.ModeGitlink {
		return nil
	}
	if raw := p.target.Raw[name]; raw != "" {
		if err := p.stageRaw(ctx, name, raw); err != nil {
			return err
		}
	}
	fi, err := os.Lstat(staged)
	if err != nil {
		return fault.New(fault.Conflict, "files-collide", "prepare '%s': %w", name, err).
			WithHint("nothing was changed; this file system may not be able to hold the name")
	}
	if (w.Mode == index.ModeSymlink) != (fi.Mode()&fs.ModeSymlink != 0) && p.repo.Config.Bool("core.symlinks", true) {
		return fault.New(fault.Conflict, "files-collide", "prepare '%s': two files of the checkpoint have one name here", name).
			WithHint("nothing was changed; this file system does not tell the case of names")
	}
	return nil
}

func (p *Plan) stageRaw(ctx context.Context, name, raw string) error {
	_, data, err := p.store.Read(ctx, raw)
	if err != nil {
		return err
	}
	mode := os.FileMode(0o666)
	if p.want[name].Mode == index.ModeExecutable {
		mode = 0o777
	}
	file := p.staged(name)
	if err := os.MkdirAll(filepath.Dir(file), 0o777); err != nil {
		return fault.New(fault.Fatal, "io", "prepare '%s': %w", name, err)
	}
	if err := os.WriteFile(file, data, mode); err != nil {
		return fault.New(fault.Fatal, "io", "prepare '%s': %w", name, err)
	}
	return nil
}

// keepCandidates are files that would be deleted and whose place no path of
// the checkpoint needs.
func (p *Plan) keepCandidates() []string {
	var candidates []string
	for _, name := range p.Delete {
		if !p.places[name] && !p.below(name) && !p.target.Gone[name] {
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
