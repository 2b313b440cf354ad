package restore

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"

	"github.com/git-checkpoint/git-checkpoint/internal/fault"
	"github.com/git-checkpoint/git-checkpoint/internal/git"
	"github.com/git-checkpoint/git-checkpoint/internal/index"
	"github.com/git-checkpoint/git-checkpoint/internal/object"
)

// makeReady writes the files to a directory of its own and looks at what came
// of it: by git with the checkpoint's attributes where it may convert any.
func (p *Plan) makeReady(ctx context.Context) error {
	var list []index.Entry
	for _, name := range p.Write {
		w := p.want.get(name)
		if w.Mode != index.ModeGitlink && p.target.Raw[name] == "" {
			list = append(list, index.Entry{Path: name, Mode: w.Mode, ID: w.ID})
		}
	}
	candidates := p.keepCandidates()
	if p.plain {
		if err := p.writeStage(ctx, list); err != nil {
			return err
		}
		list = nil
	}
	rules := map[string]bool{}
	if !p.plain || len(candidates) > 0 {
		for i := range p.target.Files {
			// git takes them from the index where they are absent by skip-worktree.
			w := &p.target.Files[i]
			if !p.plain && isAttributes(w.Path) || len(candidates) > 0 && path.Base(w.Path) == ".gitignore" {
				rules[w.Path] = true
				list = append(list, index.Entry{Path: w.Path, Mode: w.Mode, ID: w.ID})
			}
		}
		slices.SortFunc(list, func(a, b index.Entry) int { return strings.Compare(a.Path, b.Path) })
		list = slices.CompactFunc(list, func(a, b index.Entry) bool { return a.Path == b.Path })
	}
	if err := checkOut(ctx, p.repo, p.stage, list); err != nil {
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

// staged is where a file lies ready.
func (p *Plan) staged(name string) string {
	if flat, ok := p.flat[name]; ok {
		name = flat
	}
	return filepath.Join(p.stage, filepath.FromSlash(name))
}

// checkStaged looks at a file that git wrote: what was converted cannot be
// proven by its hash, and is git's word.
func (p *Plan) checkStaged(ctx context.Context, name string) error {
	w, staged := p.want.get(name), p.staged(name)
	if w.Mode == index.ModeGitlink {
		return nil
	}
	if raw := p.target.Raw[name]; raw != "" {
		if err := p.stageRaw(ctx, name, raw); err != nil {
			return err
		}
	}
	if p.written[name] {
		return nil
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
	file := p.staged(name)
	if err := os.MkdirAll(filepath.Dir(file), 0o777); err != nil {
		return fault.New(fault.Fatal, "io", "prepare '%s': %w", name, err)
	}
	if err := os.WriteFile(file, data, permOf(p.want.get(name).Mode)); err != nil {
		return fault.New(fault.Fatal, "io", "prepare '%s': %w", name, err)
	}
	return nil
}

// holdMost is how many bytes of files are kept in memory until Apply writes
// them. What is more lies ready on disk: that takes twice the time, since each
// file is made in one directory and moved to another.
const holdMost = 32 << 20

// writeStage makes files ready as they are stored, several at once: in memory,
// and what is too much for that on disk. Each is hashed on the way, so that
// what is ready is what the checkpoint says. Objects that are several files
// are read once.
func (p *Plan) writeStage(ctx context.Context, list []index.Entry) error {
	if len(list) == 0 {
		return nil
	}
	w := &stageWriter{plan: p, files: map[string][]index.Entry{}, made: map[string]bool{p.stage: true}}
	p.written = make(map[string]bool, len(list))
	// Without directories there is less to make and to remove. Where the disk
	// may take two names for one they are needed to find that out.
	flat := runtime.GOOS == "linux" && !p.repo.Config.Bool("core.ignorecase", false)
	p.flat, p.held = map[string]string{}, map[string][]byte{}
	if flat {
		w.room, w.disk = holdMost, spaceLeft(p.repo.Top)
	}
	var ids []string
	for i, e := range list {
		if flat {
			p.flat[e.Path] = strconv.Itoa(i)
		}
		p.written[e.Path] = true
		if w.files[e.ID] == nil {
			ids = append(ids, e.ID)
		}
		w.files[e.ID] = append(w.files[e.ID], e)
	}
	if err := object.ReadParallel(ctx, p.store, ids, func(i int, kind object.Kind, size int64, body io.Reader) error {
		if kind != object.Blob {
			return fault.New(fault.Integrity, "not-a-blob", "read %s: it is a %s", ids[i], kind)
		}
		return w.write(ids[i], size, body)
	}); err != nil {
		var known *fault.Error
		switch {
		case ctx.Err() != nil:
			return fault.New(fault.Fatal, "interrupted", "prepare the files of the checkpoint: %w", context.Cause(ctx))
		case errors.Is(err, fault.Integrity):
			return fault.New(fault.Integrity, "files-unavailable", "prepare the files of the checkpoint: %w", err).
				WithHint("nothing was changed; git fsck tells whether objects are missing")
		case errors.As(err, &known):
			return err
		}
		return fault.New(fault.Fatal, "io", "prepare the files of the checkpoint: %w", err).
			WithHint("nothing was changed; the disk may be full")
	}
	git.Step("files staged")
	return nil
}

// stageWriter writes objects as files.
type stageWriter struct {
	plan  *Plan
	files map[string][]index.Entry // by id

	mu   sync.Mutex
	made map[string]bool // directories
	room int64           // how many more bytes of files may be kept in memory
	disk space           // and what there will be room for on disk
}

// space is what there is room for on a file system.
type space struct{ blocks, block, files int64 }

// take takes room for files of a size. It is false where there is none: then
// they are made ready on disk, and it is found out whether that can be.
func (s *space) take(size, count int64) bool {
	if s.block == 0 {
		return false
	}
	blocks := (size + s.block - 1) / s.block * count
	if blocks > s.blocks || count > s.files {
		return false
	}
	s.blocks, s.files = s.blocks-blocks, s.files-count
	return true
}

// write writes all files that an object is: the first from body, the others
// from the first.
func (w *stageWriter) write(id string, size int64, body io.Reader) error {
	h := object.NewHash(w.plan.repo.ObjectFormat)
	fmt.Fprintf(h, "blob %d\x00", size)
	body = io.TeeReader(body, h)
	files := w.files[id]
	if w.takes(size, int64(len(files))) {
		data := make([]byte, size)
		if _, err := io.ReadFull(body, data); err != nil {
			return err
		}
		if hex.EncodeToString(h.Sum(nil)) != id {
			return mismatch(id)
		}
		w.mu.Lock()
		defer w.mu.Unlock()
		for _, e := range files {
			w.plan.held[e.Path] = data
		}
		return nil
	}
	for i, e := range files {
		if err := w.one(e, size, body); err != nil {
			return err
		}
		if i == 0 && hex.EncodeToString(h.Sum(nil)) != id {
			return mismatch(id)
		}
		if i+1 < len(files) {
			again, err := w.again(e)
			if err != nil {
				return err
			}
			defer again.Close()
			body = again
		}
	}
	return nil
}

func mismatch(id string) error {
	return fault.New(fault.Integrity, "object-unreadable", "read object %s: its content does not match its id", id)
}

// takes says whether a number of files of a size may be kept in memory.
func (w *stageWriter) takes(size, count int64) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if size > w.room || !w.disk.take(size, count) {
		return false
	}
	w.room -= size
	return true
}

// again opens what was written.
func (w *stageWriter) again(e index.Entry) (io.ReadCloser, error) {
	file := w.plan.staged(e.Path)
	if e.Mode == index.ModeSymlink {
		target, err := os.Readlink(file)
		return io.NopCloser(strings.NewReader(target)), err
	}
	return os.Open(file)
}

func (w *stageWriter) one(e index.Entry, size int64, body io.Reader) error {
	file := w.plan.staged(e.Path)
	if err := w.directory(filepath.Dir(file)); err != nil {
		return w.explain(e.Path, err)
	}
	if e.Mode == index.ModeSymlink {
		target := make([]byte, size)
		if _, err := io.ReadFull(body, target); err != nil {
			return err
		}
		return w.explain(e.Path, os.Symlink(string(target), file))
	}
	f, err := os.OpenFile(file, os.O_WRONLY|os.O_CREATE|os.O_EXCL, permOf(e.Mode))
	if err != nil {
		return w.explain(e.Path, err)
	}
	n, err := io.Copy(f, body)
	if closed := f.Close(); err == nil {
		err = closed
	}
	if err == nil && n != size {
		err = io.ErrUnexpectedEOF
	}
	return err
}

// directory makes a directory of the stage and those above it.
func (w *stageWriter) directory(dir string) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.made[dir] {
		return nil
	}
	err := os.MkdirAll(dir, 0o777)
	w.made[dir] = err == nil
	return err
}

// explain says what it means that a file cannot be made.
func (w *stageWriter) explain(name string, err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, fs.ErrExist), errors.Is(err, syscall.ENOTDIR):
		return fault.New(fault.Conflict, "files-collide", "prepare '%s': two files of the checkpoint have one name here", name).
			WithHint("nothing was changed; this file system does not tell the case of names")
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, fs.ErrPermission):
		return err
	}
	return fault.New(fault.Conflict, "files-collide", "prepare '%s': %w", name, err).
		WithHint("nothing was changed; this file system may not be able to hold the name")
}
