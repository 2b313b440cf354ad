package restore

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/git-checkpoint/git-checkpoint/internal/fault"
	"github.com/git-checkpoint/git-checkpoint/internal/git"
	"github.com/git-checkpoint/git-checkpoint/internal/index"
	"github.com/git-checkpoint/git-checkpoint/internal/object"
	"github.com/git-checkpoint/git-checkpoint/internal/parallel"
	"github.com/git-checkpoint/git-checkpoint/internal/snapshot"
)

func exitedWith(err error, code int) bool {
	var failed *git.Error
	return errors.As(err, &failed) && failed.Code == code
}

// hashFile computes the blob id of a file's bytes as they are.
func hashFile(file, objectFormat string) (string, error) {
	f, err := os.Open(file)
	if err != nil {
		return "", err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return "", err
	}
	h := object.NewHash(objectFormat)
	io.WriteString(h, "blob "+strconv.FormatInt(info.Size(), 10)+"\x00")
	// Most files are small, and a buffer for each would be most of the work.
	left := info.Size()
	buffer := buffers.Get().(*[]byte)
	defer buffers.Put(buffer)
	for {
		n, err := f.Read(*buffer)
		h.Write((*buffer)[:n])
		left -= int64(n)
		if err == io.EOF || left == 0 {
			return hex.EncodeToString(h.Sum(nil)), nil
		}
		if err != nil {
			return "", err
		}
	}
}

var buffers = sync.Pool{New: func() any {
	b := make([]byte, 64<<10)
	return &b
}}

// onDisk is the blob id of what is on disk, as it is; empty if it cannot be read.
func (p *Plan) onDisk(e *index.Entry) string {
	file := snapshot.DiskPath(p.repo, e.Path)
	if e.Mode == index.ModeSymlink {
		target, err := os.Readlink(file)
		if err != nil {
			return ""
		}
		return object.ID(p.repo.ObjectFormat, object.Blob, []byte(target))
	}
	id, err := hashFile(file, p.repo.ObjectFormat)
	if err != nil {
		return ""
	}
	return id
}

// SaveRaw stores the exact bytes of the files that Apply will replace or
// delete and whose stored form would not come back the same, because of line
// endings or a filter. It returns blobs by path, for the safety checkpoint.
func (p *Plan) SaveRaw(ctx context.Context) (map[string]string, error) {
	var names, converted []string
	for _, list := range [][]string{p.Write, p.Delete} {
		for _, name := range list {
			h := p.have.get(name)
			if h == nil || h.Mode != index.ModeFile && h.Mode != index.ModeExecutable {
				continue
			}
			names = append(names, name)
		}
	}
	outward, err := p.convertedOut(ctx, names)
	if err != nil {
		return nil, err
	}
	ids := make([]string, len(names))
	if err := parallel.Each(len(names), func(i int) (err error) {
		if ids[i], err = hashFile(snapshot.DiskPath(p.repo, names[i]), p.repo.ObjectFormat); err != nil {
			return p.changed(names[i])
		}
		return nil
	}); err != nil {
		return nil, err
	}
	for i, name := range names {
		if ids[i] != p.have.get(name).ID || outward[name] {
			converted = append(converted, name)
		}
	}
	if len(converted) == 0 {
		return nil, nil
	}
	return p.storeRaw(ctx, converted)
}

// convertedOut finds the files that git may convert when it writes them, by
// the attributes of now. A file that is stored as it is on disk is one of them
// too: LF comes back as CRLF where that is asked for.
func (p *Plan) convertedOut(ctx context.Context, names []string) (map[string]bool, error) {
	if len(names) == 0 || p.plain {
		return nil, nil
	}
	found := map[string]bool{}
	eol, _ := p.repo.Config.Get("core.eol")
	autocrlf, _ := p.repo.Config.Get("core.autocrlf")
	if runtime.GOOS == "windows" || strings.EqualFold(eol, "crlf") || p.repo.Config.Bool("core.autocrlf", false) && !strings.EqualFold(autocrlf, "input") {
		for _, name := range names {
			found[name] = true
		}
		return found, nil
	}
	c := p.repo.Command(ctx, "check-attr", "-z", "--stdin", "eol", "filter", "ident", "working-tree-encoding").
		WithInput([]byte(strings.Join(names, "\x00") + "\x00"))
	fields, err := c.Lines()
	if err != nil {
		return nil, fault.New(fault.Fatal, "git", "ask for the attributes of files: %w", err)
	}
	for i := 0; i+2 < len(fields); i += 3 {
		if value := fields[i+2]; value != "unspecified" && value != "unset" && value != "lf" {
			found[fields[i]] = true
		}
	}
	return found, nil
}

// storeRaw checks the files out as they are stored, and stores the bytes of
// those that differ from what is on disk.
func (p *Plan) storeRaw(ctx context.Context, names []string) (map[string]string, error) {
	dir, err := os.MkdirTemp(filepath.Join(p.repo.Dir, "checkpoint"), "stage-")
	if err != nil {
		return nil, fault.New(fault.Fatal, "io", "write to the git directory: %w", err)
	}
	defer os.RemoveAll(dir)
	var entries []index.Entry
	wanted := map[string]bool{}
	for _, name := range names {
		wanted[name] = true
	}
	for _, h := range p.snap.Files.Entries {
		if wanted[h.Path] || path.Base(h.Path) == ".gitattributes" {
			entries = append(entries, index.Entry{Path: h.Path, Mode: h.Mode, ID: h.ID})
		}
	}
	// Where git cannot even write it (a filter fails), the bytes are all there is.
	if err := checkOut(ctx, p.repo, dir, entries); err != nil && ctx.Err() != nil {
		return nil, err
	}
	raw := map[string]string{}
	for _, name := range names {
		disk := snapshot.DiskPath(p.repo, name)
		now, err := hashFile(disk, p.repo.ObjectFormat)
		if err != nil {
			return nil, p.changed(name)
		}
		back, err := hashFile(filepath.Join(dir, filepath.FromSlash(name)), p.repo.ObjectFormat)
		if err == nil && back == now {
			continue
		}
		f, err := os.Open(disk)
		if err != nil {
			return nil, p.changed(name)
		}
		c := p.repo.Command(ctx, "hash-object", "-w", "--no-filters", "--stdin")
		c.Stdin = f
		raw[name], err = c.Text()
		f.Close()
		if err != nil {
			return nil, fault.New(fault.Fatal, "object-write", "save the bytes of '%s': %w", name, err)
		}
		git.Step("raw bytes stored")
	}
	return raw, nil
}

func (p *Plan) changed(name string) error {
	return fault.New(fault.Conflict, "file-changed", "'%s' changed while it was being restored", name).
		WithHint("stop what writes to it and try again")
}

// Apply deletes and writes. A file that is no longer as the snapshot saw it
// ends it with a fault.Conflict, so that nothing unsaved is lost; what was
// done until then is undone or finished by doing the restore again.
//
// Files that are not touched are looked at beside it; see Verify.
func (p *Plan) Apply() error {
	p.others = make(chan looked, 1)
	go func() {
		changed, err := snapshot.Differing(p.repo, p.untouched())
		p.others <- looked{changed, err}
	}()
	for _, name := range p.Delete {
		if err := p.delete(name); err != nil {
			return err
		}
	}
	if err := p.writeAll(); err != nil {
		return err
	}
	for _, name := range p.target.Interrupted {
		if p.want.get(name) == nil {
			p.removeEmpty(path.Dir(name))
		}
	}
	return nil
}

// unchanged fails unless a path is as the snapshot saw it. It looks afresh at
// every directory above, so that nothing beyond a link is touched.
func (p *Plan) unchanged(name string) (fs.FileInfo, error) {
	fi, err := snapshot.NewLstat(p.repo).Get(name)
	if err != nil || fi == nil {
		return nil, err
	}
	return fi, p.known(name, fi)
}

// known fails unless a file is the one that the snapshot saw.
func (p *Plan) known(name string, fi fs.FileInfo) error {
	if fi == nil || fi.IsDir() {
		return nil
	}
	h := p.have.get(name)
	if h == nil || !h.Stat.Same(index.StatOf(fi)) {
		return p.changed(name)
	}
	return nil
}

func (p *Plan) delete(name string) error {
	fi, err := p.unchanged(name)
	if err != nil {
		return err
	}
	if fi != nil {
		if fi.IsDir() {
			return p.changed(name)
		}
		if err := os.Remove(snapshot.DiskPath(p.repo, name)); err != nil {
			return fault.New(fault.Fatal, "io", "delete '%s': %w", name, err)
		}
		p.step("file deleted")
	}
	p.removeEmpty(path.Dir(name))
	return nil
}

func (p *Plan) step(what string) {
	p.steps.Add(1)
	git.Step(what)
}

// removeEmpty removes a directory and those above it that became empty, but
// not the one that the command was started in.
func (p *Plan) removeEmpty(dir string) {
	look := snapshot.NewLstat(p.repo)
	for ; dir != "." && !strings.HasPrefix(p.repo.Prefix, dir+"/"); dir = path.Dir(dir) {
		fi, err := look.Get(dir)
		if err == nil && fi == nil {
			continue
		}
		// os.Remove would take a file or a link too.
		if err != nil || !fi.IsDir() || os.Remove(snapshot.DiskPath(p.repo, dir)) != nil {
			return
		}
		p.step("directory removed")
	}
}

// writeAll writes all files, several at once: no two have to do with each other.
func (p *Plan) writeAll() error {
	stats := make([]*index.Stat, len(p.Write))
	err := parallel.Stretches(len(p.Write), 32, func(lo, hi int) (err error) {
		beside := fmt.Sprintf("%s%d%d", besidePrefix, os.Getpid(), lo)
		for i := lo; i < hi && err == nil; i++ {
			stats[i], err = p.write(p.Write[i], beside)
		}
		return err
	})
	for i, s := range stats {
		if s != nil {
			p.stats[p.Write[i]] = *s
		}
	}
	return err
}

// write writes a file and returns its stat data; nil where it made a directory
// for a repository. beside is the name for what is to be moved into its place.
func (p *Plan) write(name, beside string) (stat *index.Stat, err error) {
	// Its directories are real ones after this, not links.
	if err := p.makeParents(name); err != nil {
		return nil, err
	}
	to, mode := snapshot.DiskPath(p.repo, name), p.want.get(name).Mode
	failed := func(err error) (*index.Stat, error) {
		return nil, fault.New(fault.Fatal, "io", "write '%s': %w", name, err)
	}
	beside = filepath.Join(filepath.Dir(to), beside)
	from := p.staged(name)
	if data, held := p.held[name]; held {
		if err := writeNew(beside, data, mode); err != nil {
			return failed(err)
		}
		git.Step("written beside its place")
		from = beside
		defer func() {
			if err != nil {
				os.Remove(beside)
			}
		}()
	}
	fi, err := os.Lstat(to)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fault.New(fault.Fatal, "io", "look at '%s': %w", name, err)
	}
	if err := p.known(name, fi); err != nil {
		return nil, err
	}
	if mode == index.ModeGitlink {
		return nil, p.makeGitlink(name, to, fi)
	}
	if fi != nil && fi.IsDir() {
		if err := removeEmptyTree(to); err != nil {
			return nil, fault.New(fault.Conflict, "directory-in-the-way", "write '%s': a directory with files in it stands there: %w", name, err).
				WithHint("move it away and try again")
		}
	}
	if err := moveInto(from, to, beside); err != nil {
		return failed(err)
	}
	p.step("file written")
	now, err := os.Lstat(to)
	if err != nil {
		return nil, fault.New(fault.Fatal, "io", "look at '%s': %w", name, err)
	}
	s := index.StatOf(now)
	return &s, nil
}

// makeGitlink makes the directory that stands for a repository.
func (p *Plan) makeGitlink(name, to string, fi fs.FileInfo) error {
	if fi != nil && fi.IsDir() {
		return nil
	}
	if fi != nil {
		if err := os.Remove(to); err != nil {
			return fault.New(fault.Fatal, "io", "write '%s': %w", name, err)
		}
		p.step("file deleted")
	}
	if err := os.Mkdir(to, 0o777); err != nil && !errors.Is(err, fs.ErrExist) {
		return fault.New(fault.Fatal, "io", "write '%s': %w", name, err)
	}
	p.step("directory made")
	return nil
}

// makeParents makes the directories above a path. What stands in their place
// was deleted before, so anything that does is new.
func (p *Plan) makeParents(name string) error {
	parent := path.Dir(name)
	if parent == "." {
		return nil
	}
	done := ""
	for _, part := range strings.Split(parent, "/") {
		done = path.Join(done, part)
		file := snapshot.DiskPath(p.repo, done)
		fi, err := os.Lstat(file)
		switch {
		case err == nil && fi.IsDir():
		case err == nil:
			return p.changed(done)
		default:
			if err := os.Mkdir(file, 0o777); err != nil && !errors.Is(err, fs.ErrExist) {
				return fault.New(fault.Fatal, "io", "make the directory '%s': %w", done, err)
			}
			p.step("directory made")
		}
	}
	return nil
}

// removeEmptyTree removes a directory that holds nothing but directories.
func removeEmptyTree(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if !e.IsDir() {
			return fmt.Errorf("it holds '%s'", e.Name())
		}
		if err := removeEmptyTree(filepath.Join(dir, e.Name())); err != nil {
			return err
		}
	}
	if err := os.Remove(dir); err != nil {
		return err
	}
	git.Step("directory removed")
	return nil
}

// writeNew makes a file or link as a tree has it, or leaves nothing.
func writeNew(file string, data []byte, mode uint32) error {
	if mode == index.ModeSymlink {
		return os.Symlink(string(data), file)
	}
	f, err := os.OpenFile(file, os.O_WRONLY|os.O_CREATE|os.O_EXCL, permOf(mode))
	if err != nil {
		return err
	}
	reserve(f, len(data))
	_, err = f.Write(data)
	if closed := f.Close(); err == nil {
		err = closed
	}
	if err != nil {
		os.Remove(file)
	}
	return err
}

// permOf is what git makes a file with, before the umask.
func permOf(mode uint32) fs.FileMode {
	if mode == index.ModeExecutable {
		return 0o777
	}
	return 0o666
}

// besidePrefix, with a number, names what is written beside its place.
const besidePrefix = ".git-checkpoint-"

// Leftovers lists the copies that a killed restore left beside the files that
// it was to write.
func Leftovers(repo *git.Repo, paths []string) []string {
	look := snapshot.NewLstat(repo)
	seen := map[string]bool{}
	var left []string
	for _, p := range paths {
		dir := path.Dir(p)
		if seen[dir] {
			continue
		}
		seen[dir] = true
		if fi, err := look.Get(dir); dir != "." && (err != nil || fi == nil || !fi.IsDir()) {
			continue
		}
		entries, _ := os.ReadDir(snapshot.DiskPath(repo, dir))
		for _, e := range entries {
			number, ok := strings.CutPrefix(e.Name(), besidePrefix)
			if _, err := strconv.Atoi(number); ok && err == nil && !e.IsDir() {
				left = append(left, path.Join(dir, e.Name()))
			}
		}
	}
	return left
}

// moveInto moves a file into place at once. Where the two are on different
// file systems it is copied beside its place first.
func moveInto(from, to, beside string) error {
	err := os.Rename(from, to)
	if err == nil || !crossesDevices(err) {
		return err
	}
	defer os.Remove(beside)
	if link, err := os.Readlink(from); err == nil {
		if err := os.Symlink(link, beside); err != nil {
			return err
		}
		git.Step("copied beside its place")
		return os.Rename(beside, to)
	}
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	info, err := in.Stat()
	if err != nil {
		return err
	}
	out, err := os.OpenFile(beside, os.O_WRONLY|os.O_CREATE|os.O_EXCL, info.Mode().Perm())
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	if closed := out.Close(); err == nil {
		err = closed
	}
	if err != nil {
		return err
	}
	git.Step("copied beside its place")
	return os.Rename(beside, to)
}

// Stats sets the stat data of entries of an index, sorted, that are as the
// target has them on disk: written, or left because they were so already. git
// has to look at the others itself.
func (p *Plan) Stats(list []index.Entry) {
	have, want := p.have, p.want
	if len(list) > 0 {
		have, want = have[have.search(list[0].Path):], want[want.search(list[0].Path):]
	}
	for i := range list {
		e := &list[i]
		e.Stat = index.Stat{}
		if e.Stage != 0 || e.IntentToAdd {
			continue
		}
		for len(want) > 0 && want[0].Path < e.Path {
			want = want[1:]
		}
		if len(want) == 0 || want[0].Path != e.Path || want[0].ID != e.ID || want[0].Mode != e.Mode {
			continue
		}
		if s, ok := p.stats[e.Path]; ok {
			e.Stat = s
			continue
		}
		for len(have) > 0 && have[0].Path < e.Path {
			have = have[1:]
		}
		if len(have) == 0 || have[0].Path != e.Path || have[0].ID != e.ID || have[0].Mode != e.Mode {
			continue
		}
		e.Stat = have[0].Stat
		// The file may have changed within the second in which the snapshot
		// saw it; that the new index is younger must not hide it.
		if p.snap.Files.Racy(e) && p.onDisk(e) != e.ID {
			e.Stat.Size = 0 // as git marks it; see Index.SmudgeRacy
		}
	}
}

// Edits are the entries of an index that are other than those of the snapshot's
// files: of what is different in its tree and in that of the target, each
// compared with the snapshot's. They are sorted, and have the stat data that
// Stats would give them.
func (p *Plan) Edits(different, files *object.Difference) ([]index.Edit, error) {
	type entry struct {
		mode uint32
		id   string
	}
	all := make(map[string]entry, len(different.Changes))
	has := func(name string) {
		if h := p.have.get(name); h != nil {
			all[name] = entry{h.Mode, h.ID}
		}
	}
	for name := range p.stats {
		has(name)
	}
	for i := range files.Changes {
		has(files.Changes[i].Path)
	}
	for i := range different.Changes {
		c := &different.Changes[i]
		all[c.Path] = entry{c.ToMode, c.ToID}
	}
	edits := make([]index.Edit, 0, len(all))
	for _, name := range slices.Sorted(maps.Keys(all)) {
		to := all[name]
		if to.mode == 0 {
			edits = append(edits, index.Edit{Path: name, Drop: true})
			continue
		}
		list := []index.Entry{{Path: name, Mode: to.mode, ID: to.id}}
		p.Stats(list)
		e := index.Edit{Path: name, Record: list[0].Stat.Record(to.mode)}
		if _, err := hex.Decode(e.ID[:], []byte(to.id)); err != nil {
			return nil, err
		}
		edits = append(edits, e)
	}
	return edits, nil
}

// Differs says whether a file is not as it is stored.
func (p *Plan) Differs(name, id string) bool {
	h := p.have.get(name)
	return h != nil && p.onDisk(h) != id
}

// looked is what Differing found.
type looked struct {
	changed []string
	err     error
}

// untouched lists what the snapshot saw as the target has it.
func (p *Plan) untouched() []snapshot.Expectation {
	unseen := map[string]bool{} // tracked, but not to be read
	for _, s := range p.snap.Skipped {
		unseen[s.Path] = true
	}
	written := p.Write
	list := make([]snapshot.Expectation, 0, len(p.want))
	each(p.have, p.want, func(h, w *index.Entry) error {
		if w == nil {
			return nil
		}
		for len(written) > 0 && written[0] < w.Path {
			written = written[1:]
		}
		if h == nil || w.Mode == index.ModeGitlink || len(written) > 0 && written[0] == w.Path || len(unseen) > 0 && unseen[w.Path] {
			return nil
		}
		list = append(list, snapshot.Expectation{Path: w.Path, Stat: h.Stat})
		return nil
	})
	return list
}

// Verify looks at every path of the target and of the snapshot once more:
// each must be as it was written or left, each deleted one gone. A difference
// is a fault.Conflict, since only somebody else can have made it.
//
// What was written or deleted it looks at now. All other files, which may be a
// hundred times as many, were looked at again while those were written, so
// that they cost next to no time: nobody has changed them since the snapshot
// saw them.
func (p *Plan) Verify() error {
	var written []snapshot.Expectation
	for _, name := range p.Write {
		if s, ok := p.stats[name]; ok {
			written = append(written, snapshot.Expectation{Path: name, Stat: s})
		}
	}
	changed, err := snapshot.Differing(p.repo, written)
	if err != nil {
		return err
	}
	look := snapshot.NewLstat(p.repo)
	for _, name := range p.Delete {
		fi, err := look.Get(name)
		if err != nil {
			return err
		}
		if fi != nil && !fi.IsDir() {
			changed = append(changed, name)
		}
	}
	others := <-p.others
	if others.err != nil {
		return others.err
	}
	changed = append(changed, others.changed...)
	switch len(changed) {
	case 0:
		return nil
	case 1:
		return p.changed(changed[0])
	}
	slices.Sort(changed)
	return fault.New(fault.Conflict, "file-changed", "'%s' and %d more changed while they were being restored", changed[0], len(changed)-1).
		WithHint("stop what writes to them and try again")
}
