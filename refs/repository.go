// Package refs knows where checkpoints live: the names of refs, the
// addresses people type, the chain of commits that is a run, and the
// transactions that write refs. The storage format is public and described
// in docs/format.md.
//
// It is the lowest of the packages an orchestrator imports; notes, lineage
// and rerun build on it. Errors match the kinds ErrNotFound, ErrConflict,
// ErrIntegrity and ErrInvalid with errors.Is.
package refs

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/git-checkpoint/git-checkpoint/internal/fault"
	"github.com/git-checkpoint/git-checkpoint/internal/git"
	"github.com/git-checkpoint/git-checkpoint/internal/object"
)

// The kinds of error of this module, each with one exit code of the command.
var (
	ErrConflict  = fault.Conflict  // conflict or stale state
	ErrIntegrity = fault.Integrity // a chain, note or seed is not what was recorded
	ErrNotFound  = fault.NotFound  // no such run, step or checkpoint
	ErrInvalid   = fault.Invalid   // a name or request that cannot be
)

// Repository is a git repository seen as a place of checkpoints. It is not
// safe for concurrent use; open one for each goroutine.
type Repository struct {
	git     *git.Repo
	objects object.Store
	files   bool // refs are files, which are read without asking git
	packed  packedRefs
	ahead   *ahead // see Ahead
}

// packedRefs is what packed-refs held when it was last read. git writes a new
// file for each change, so the file tells whether that still holds.
type packedRefs struct {
	file os.FileInfo
	data []byte
}

// Open opens the repository that dir lies in, as git would find it from
// there. An empty dir is the current directory, and then the variables by
// which git's hooks name a repository count too.
func Open(ctx context.Context, dir string) (*Repository, error) {
	g, err := git.Open(ctx, dir)
	if err != nil {
		return nil, err
	}
	r := &Repository{git: g, objects: object.Open(g)}
	r.files = g.RefFormat() == "files"
	return r, nil
}

// Close ends what the repository started.
func (r *Repository) Close() error {
	r.Abandon()
	return r.objects.Close()
}

// Git is the repository as git resolved it, for packages of this module.
func (r *Repository) Git() *git.Repo { return r.git }

// Objects is the repository's object store, for packages of this module.
func (r *Repository) Objects() object.Store { return r.objects }

// Ref returns the object id that a ref holds, empty when there is no such
// ref. A ref that git could not read is ErrIntegrity.
func (r *Repository) Ref(ctx context.Context, name string) (string, error) {
	if !r.files {
		// A pattern stands for what is below it too.
		out, err := r.git.Command(ctx, "for-each-ref", "--format=%(refname) %(objectname)", "--count=1", name).Text()
		id, ok := strings.CutPrefix(out, name+" ")
		if !ok {
			id = ""
		}
		return id, err
	}
	// The file first: it is newer than what packed-refs says, and one that is
	// empty or unreadable is damage, not absence.
	data, err := os.ReadFile(filepath.Join(r.git.CommonDir, filepath.FromSlash(name)))
	if err == nil {
		return r.looseRef(ctx, name, string(data))
	}
	if !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, syscall.ENOTDIR) && !isDir(r.git.CommonDir, name) {
		return "", damagedRef(name, err)
	}
	return r.packedRef(name)
}

// packedRef looks a ref up in packed-refs, which a repository with many runs
// makes large: it is searched, not parsed.
func (r *Repository) packedRef(name string) (string, error) {
	data, err := r.readPacked()
	if err != nil {
		return "", damagedRef(name, err)
	}
	length, line := 2*r.git.HashLen(), []byte(" "+name+"\n")
	for from := 0; ; {
		i := bytes.Index(data[from:], line)
		if i < 0 {
			return "", nil
		}
		i += from
		begin := i - length
		if begin == 0 || begin > 0 && data[begin-1] == '\n' {
			id := string(data[begin:i])
			if !object.IsID(id) {
				return "", damagedRef(name, errors.New("packed-refs holds no object id for it"))
			}
			return id, nil
		}
		from = i + 1
	}
}

// readPacked reads packed-refs, where it is not known already; nothing where
// there is none.
func (r *Repository) readPacked() ([]byte, error) {
	path := filepath.Join(r.git.CommonDir, "packed-refs")
	before, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	if have := r.packed.file; have != nil && os.SameFile(have, before) && have.ModTime().Equal(before.ModTime()) && have.Size() == before.Size() {
		return r.packed.data, nil
	}
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	// What was read may be newer than before; then it is read once more.
	r.packed = packedRefs{before, data}
	return data, nil
}

// looseRef reads what a ref's file holds.
func (r *Repository) looseRef(ctx context.Context, name, content string) (string, error) {
	if strings.HasPrefix(content, "ref:") {
		// A symbolic ref where none belongs; git knows how to follow it.
		return r.followRef(ctx, name)
	}
	id, _, _ := strings.Cut(strings.TrimRight(content, " \t\r\n"), "\n")
	if len(id) != 2*r.git.HashLen() || !object.IsID(id) || strings.Trim(id, "0") == "" {
		return "", damagedRef(name, errors.New("it holds no object id"))
	}
	return id, nil
}

func (r *Repository) followRef(ctx context.Context, name string) (string, error) {
	id, err := r.git.Command(ctx, "rev-parse", "--verify", "--quiet", name).Text()
	if err != nil {
		return "", damagedRef(name, err)
	}
	return id, nil
}

func isDir(dir, name string) bool {
	info, err := os.Stat(filepath.Join(dir, filepath.FromSlash(name)))
	return err == nil && info.IsDir()
}

func damagedRef(name string, err error) error {
	e := fault.New(fault.Integrity, "ref-damaged", "read ref '%s': %w", name, err)
	if strings.HasPrefix(name, branchPrefix) || name == "HEAD" {
		return e.WithHint("git fsck and git reflog tell what it may have held") // the user's own
	}
	return e.WithHint("git checkpoint verify lists what is damaged; git update-ref -d '%s' removes the ref", name)
}

// Head says what HEAD is.
type Head struct {
	Branch string // full ref name, empty when detached
	Commit string // empty when unborn
}

// Unborn says whether the branch has no commit yet.
func (h Head) Unborn() bool { return h.Commit == "" }

// Head returns HEAD of this worktree.
func (r *Repository) Head(ctx context.Context) (Head, error) {
	branch, err := r.symbolic(ctx, "HEAD")
	if err != nil {
		return Head{}, err
	}
	if branch == "" {
		id, err := r.git.Command(ctx, "rev-parse", "--verify", "--quiet", "HEAD^{commit}").Text()
		if err != nil {
			return Head{}, fault.New(fault.Integrity, "head-damaged", "read HEAD: it is neither a branch nor a commit").
				WithHint("git checkout <branch> mends it")
		}
		return Head{Commit: id}, nil
	}
	if strings.HasPrefix(branch, branchPrefix) {
		id, err := r.Ref(ctx, branch)
		return Head{Branch: branch, Commit: id}, err
	}
	id, _ := r.git.Command(ctx, "rev-parse", "--verify", "--quiet", "HEAD^{commit}").Text()
	return Head{Branch: branch, Commit: id}, nil
}

// symbolic returns what a per-worktree symbolic ref points at, "" if it is
// none or absent.
func (r *Repository) symbolic(ctx context.Context, name string) (string, error) {
	if r.files {
		data, err := os.ReadFile(filepath.Join(r.git.Dir, name))
		if errors.Is(err, os.ErrNotExist) {
			return "", nil
		}
		if err != nil {
			return "", damagedRef(name, err)
		}
		target, ok := strings.CutPrefix(string(data), "ref:")
		if !ok {
			return "", nil
		}
		return strings.TrimSpace(target), nil
	}
	out, err := r.git.Command(ctx, "symbolic-ref", "--quiet", name).Text()
	var failed *git.Error
	if errors.As(err, &failed) && failed.Code == 1 {
		return "", nil
	}
	return out, err
}

// CurrentRun returns the run that CHECKPOINT_HEAD names, "" when it names
// none. The run may be gone: CHECKPOINT_HEAD is a hint.
func (r *Repository) CurrentRun(ctx context.Context) (string, error) {
	target, err := r.symbolic(ctx, Current)
	if err != nil {
		return "", err
	}
	run, ok := strings.CutPrefix(target, RunPrefix)
	if !ok || CheckRun(run) != nil {
		return "", nil
	}
	return run, nil
}

// CheckCurrent returns ErrIntegrity where CHECKPOINT_HEAD is there but names no
// run. A run that it names may be gone.
func (r *Repository) CheckCurrent(ctx context.Context) error {
	target, err := r.symbolic(ctx, Current)
	if err != nil {
		return err
	}
	run, ok := strings.CutPrefix(target, RunPrefix)
	if ok && CheckRun(run) == nil {
		return nil
	}
	if _, err := os.Lstat(filepath.Join(r.git.Dir, Current)); target == "" && err != nil {
		return nil
	}
	return damagedRef(Current, errors.New("it names no run"))
}

// SetCurrentRun points CHECKPOINT_HEAD at a run; an empty run removes it.
func (r *Repository) SetCurrentRun(ctx context.Context, run string) error {
	now, err := r.symbolic(ctx, Current)
	if err != nil {
		return err
	}
	if run == "" {
		if now == "" {
			return nil
		}
		return r.setSymbolic(ctx, Current, "", "")
	}
	if now == RunRef(run) {
		return nil
	}
	return r.setSymbolic(ctx, Current, RunRef(run), "")
}

// SetHead makes HEAD a symbolic ref to a branch, with a reflog message.
func (r *Repository) SetHead(ctx context.Context, branch, message string) error {
	return r.setSymbolic(ctx, "HEAD", branch, message)
}

// setSymbolic points a symbolic ref at another; an empty target deletes it.
func (r *Repository) setSymbolic(ctx context.Context, name, target, message string) error {
	args := []string{"symbolic-ref"}
	if message != "" {
		args = append(args, "-m", message)
	}
	if target == "" {
		args = append(args, "--delete", name)
	} else {
		args = append(args, name, target)
	}
	err := r.noted(ctx, []update{{Ref: name, New: target}}, func() error { return r.writeRefs(ctx, nil, args...) })
	var failed *git.Error
	if errors.As(err, &failed) {
		return fault.New(fault.Fatal, "ref-write", "set %s: %s", name, failed.Reason()).
			WithHint("git checkpoint verify lists what is damaged")
	}
	return err
}

// Run is a run's name and the tip of its chain.
type Run struct {
	Name string
	Tip  string
}

// InTheWay returns a branch that keeps another one from being made, "" if none
// does: refs are paths, and one cannot be below another. Names are full.
func (r *Repository) InTheWay(ctx context.Context, branch string) (string, error) {
	for i := len(branchPrefix); i < len(branch); i++ {
		if branch[i] != '/' {
			continue
		}
		if id, err := r.Ref(ctx, branch[:i]); err != nil || id != "" {
			return branch[:i], err
		}
	}
	return r.git.Command(ctx, "for-each-ref", "--count=1", "--format=%(refname)", branch+"/").Text()
}

// NamedRef is a ref's full name and the id of the object that it holds.
type NamedRef struct {
	Name string
	ID   string
}

// List lists the refs that git's patterns name, in the order of their names:
// a full name, or a prefix that ends in a slash. what is what they are, for the
// error.
func (r *Repository) List(ctx context.Context, what string, patterns ...string) ([]NamedRef, error) {
	args := append([]string{"for-each-ref", "--format=%(objectname) %(refname)"}, patterns...)
	out, err := r.git.Command(ctx, args...).Output()
	if err != nil {
		return nil, fault.New(fault.Fatal, "git", "list %s: %w", what, err)
	}
	var list []NamedRef
	for line := range strings.Lines(string(out)) {
		if id, name, ok := strings.Cut(strings.TrimSuffix(line, "\n"), " "); ok {
			list = append(list, NamedRef{Name: name, ID: id})
		}
	}
	return list, nil
}

// Runs lists all runs in the order of their names.
func (r *Repository) Runs(ctx context.Context) ([]Run, error) {
	list, err := r.List(ctx, "runs", RunPrefix)
	if err != nil {
		return nil, err
	}
	var runs []Run
	for _, ref := range list {
		runs = append(runs, Run{Name: strings.TrimPrefix(ref.Name, RunPrefix), Tip: ref.ID})
	}
	return runs, nil
}

// EachWorktree opens the repository in each of its worktrees and calls do with
// it, until one fails. A worktree whose directory is gone is passed over.
func (r *Repository) EachWorktree(ctx context.Context, do func(there *Repository) error) error {
	list, err := r.git.Command(ctx, "worktree", "list", "--porcelain", "-z").Lines()
	if err != nil {
		return fault.New(fault.Fatal, "git", "list the worktrees: %w", err)
	}
	for _, line := range list {
		path, ok := strings.CutPrefix(line, "worktree ")
		if !ok {
			continue
		}
		there, err := Open(ctx, path)
		if err != nil {
			continue
		}
		err = do(there)
		there.Close()
		if err != nil {
			return err
		}
	}
	return nil
}

// Tip returns the tip of a run's chain. An unknown run is ErrNotFound, with
// the nearest name as a hint.
func (r *Repository) Tip(ctx context.Context, run string) (string, error) {
	if err := CheckRun(run); err != nil {
		return "", err
	}
	id, err := r.Ref(ctx, RunRef(run))
	if err != nil {
		return "", err
	}
	if id == "" {
		return "", r.noSuchRun(ctx, run)
	}
	return id, nil
}

func (r *Repository) noSuchRun(ctx context.Context, run string) error {
	e := fault.New(fault.NotFound, "no-such-run", "no run is named '%s'", run)
	runs, err := r.Runs(ctx)
	if err != nil {
		return err // whether there is one cannot be told
	}
	names := make([]string, len(runs))
	for i := range runs {
		names[i] = runs[i].Name
	}
	if near := Nearest(run, names); near != "" {
		return e.WithHint("did you mean '%s'?", near)
	}
	if _, err := r.git.Command(ctx, "rev-parse", "--verify", "--quiet", "--end-of-options", run+"^{commit}").Text(); err == nil {
		return e.WithHint("for the git revision write rev:%s", run)
	}
	return e.WithHint("git checkpoint list shows the runs")
}

// CheckNewRun says whether a run of this name can be made: the name is valid,
// and no run has it, in whatever case, since refs may be files on a disk that
// does not tell case.
func (r *Repository) CheckNewRun(ctx context.Context, run string) error {
	if err := CheckRun(run); err != nil {
		return err
	}
	runs, err := r.Runs(ctx)
	if err != nil {
		return err
	}
	for _, other := range runs {
		if other.Name == run {
			return fault.New(fault.Conflict, "run-exists", "a run named '%s' exists", run).
				WithHint("git checkpoint switch %s makes it the current one", run)
		}
		if strings.EqualFold(other.Name, run) {
			return fault.New(fault.Conflict, "run-exists", "run '%s' differs from '%s' by case only", run, other.Name).
				WithHint("choose another name")
		}
	}
	return nil
}
