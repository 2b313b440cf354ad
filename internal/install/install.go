// Package install puts git's hooks in place that make checkpoints, beside
// whatever hooks are there, and takes them away again without a trace.
//
// Where git knows hooks by configuration (2.54) they are two sections of the
// repository's own; otherwise files in the folder where git looks for hooks.
// A hook that is there already is kept beside ours, which calls it first. A
// folder that a hook manager writes, or that is part of the project, or that
// other repositories use too, is not touched: there is a line to add instead.
package install

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/git-checkpoint/git-checkpoint/internal/fault"
	"github.com/git-checkpoint/git-checkpoint/internal/git"
)

// Hooks are those that are put in place.
var Hooks = []string{"post-commit", "pre-push"}

// State is what became of a hook.
type State string

// The states. Blocked and Left need somebody to look; Manual needs a line to
// be added, or taken out.
const (
	Installed State = "installed"
	Updated   State = "updated"   // it was there, for another place of the program
	Unchanged State = "unchanged" // it was there, as it is to be
	Present   State = "present"   // something else calls git-checkpoint already
	Manual    State = "manual"
	Blocked   State = "blocked" // install: nothing was done, see Reason
	Removed   State = "removed"
	Restored  State = "restored" // removed, and what was there before is back
	Absent    State = "absent"   // uninstall: there was none
	Left      State = "left"     // uninstall: nothing was done, see Reason
)

// Result is what became of one hook, or would.
type Result struct {
	Hook    string `json:"hook"`
	State   State  `json:"state"`
	DryRun  bool   `json:"dry_run,omitempty"`
	Path    string `json:"path,omitempty"`     // the hook's file
	Config  string `json:"config,omitempty"`   // the section of git's configuration instead
	Kept    string `json:"kept,omitempty"`     // where the hook is that was there, which ours calls
	Manager string `json:"manager,omitempty"`  // who writes the folder or the hook
	File    string `json:"file,omitempty"`     // where the lines go
	Lines   string `json:"lines,omitempty"`    // what to add there
	TakeOut bool   `json:"take_out,omitempty"` // uninstall: what calls us is to be taken out of there
	Reason  string `json:"reason,omitempty"`
}

// Settled says whether nobody has to look at it.
func (r Result) Settled() bool { return r.State != Blocked && r.State != Left }

// Options are how to install.
type Options struct {
	Program string // absolute path of git-checkpoint
	DryRun  bool
}

// Install puts the hooks of a repository in place.
func Install(ctx context.Context, repo *git.Repo, o Options) ([]Result, error) {
	i, err := look(ctx, repo, o.DryRun)
	if err != nil {
		return nil, err
	}
	return i.each(func(hook string) (Result, error) { return i.install(ctx, hook, o.Program) })
}

// Uninstall takes the hooks of a repository away.
func Uninstall(ctx context.Context, repo *git.Repo, dryRun bool) ([]Result, error) {
	i, err := look(ctx, repo, dryRun)
	if err != nil {
		return nil, err
	}
	results, err := i.each(func(hook string) (Result, error) { return i.uninstall(ctx, hook) })
	if err == nil && i.made && !dryRun {
		os.Remove(i.folder.path) // succeeds only if it is empty
	}
	return results, err
}

// installer knows the place of a repository's hooks.
type installer struct {
	repo   *git.Repo
	folder *folder
	byName bool // git knows hooks by configuration
	dryRun bool
	made   bool // the folder was made for a hook that is removed
}

func look(ctx context.Context, repo *git.Repo, dryRun bool) (*installer, error) {
	f, err := findFolder(ctx, repo)
	if err != nil {
		return nil, err
	}
	byName, err := knowsHooksByName(ctx, repo)
	return &installer{repo: repo, folder: f, byName: byName, dryRun: dryRun}, err
}

func (i *installer) each(do func(hook string) (Result, error)) ([]Result, error) {
	var results []Result
	for _, hook := range Hooks {
		r, err := do(hook)
		if err != nil {
			return results, err
		}
		r.Hook, r.DryRun = hook, i.dryRun
		results = append(results, r)
	}
	return results, nil
}

func (i *installer) install(ctx context.Context, hook, program string) (Result, error) {
	at := i.folder.file(hook)
	there, err := readHook(at)
	if err != nil {
		return Result{}, err
	}
	if !there.ours && bytes.Contains(there.data, []byte(preCommitMark)) {
		// pre-commit moves a hook that it finds there, and calls it.
		if moved, err := readHook(at + ".legacy"); err == nil && moved.ours {
			return Result{State: Present, Path: at + ".legacy", Manager: "pre-commit"}, nil
		}
	}
	switch {
	case there.ours:
		return i.rewrite(hook, program, there)
	case i.byName:
		return i.configure(ctx, hook, program)
	}
	if s, err := i.section(ctx, hook); err != nil || s.there {
		// A newer git put it there, and this one does not know it.
		if err == nil && s.ours && !i.dryRun {
			err = i.removeSection(ctx, hook)
		}
		if err != nil {
			return Result{}, err
		}
	}
	if m := i.folder.managerOf(i.repo, hook, there); m != nil {
		return m.result(hook), nil
	}
	return i.put(hook, program, there)
}

// rewrite brings a hook of ours up to date.
func (i *installer) rewrite(hook, program string, there *found) (Result, error) {
	at := i.folder.file(hook)
	r := Result{State: Unchanged, Path: at}
	if kept := keptFile(at, hook); exists(kept) {
		r.Kept = kept
	}
	if there.changed {
		r.State, r.Reason = Blocked, "it is ours, and somebody has changed it"
		return r, nil
	}
	text := script(hook, program, there.made)
	if text == string(there.data) {
		return r, nil
	}
	r.State = Updated
	if i.dryRun {
		return r, nil
	}
	return r, replace(at, text)
}

// put writes a new hook, and keeps what was there.
func (i *installer) put(hook, program string, there *found) (Result, error) {
	at := i.folder.file(hook)
	kept := keptFile(at, hook)
	r := Result{State: Installed, Path: at}
	block := func(reason string) (Result, error) {
		r.State, r.Reason = Blocked, reason
		return r, nil
	}
	switch {
	case i.folder.off:
		return block("core.hooksPath says that there are no hooks")
	case there.directory:
		return block("it is a directory")
	case there.calls(hook):
		r.State = Present
		return r, nil
	case !there.exists && exists(kept):
		return block("'" + kept + "' is left from an earlier hook: rename it to '" + hook + "', or remove it")
	case there.exists && exists(kept) && !sameContent(at, kept):
		return block("'" + kept + "' is left from an earlier hook, and another one is in its place: keep one of them")
	}
	if there.exists {
		r.Kept, r.Manager = kept, there.tool
	}
	if i.dryRun {
		return r, nil
	}
	made := there.made
	if _, err := os.Lstat(i.folder.path); errors.Is(err, os.ErrNotExist) {
		if err := os.MkdirAll(i.folder.path, 0o777); err != nil {
			return Result{}, fault.New(fault.Fatal, "io", "make the folder of hooks: %w", err)
		}
		i.made, made = true, true
	}
	if there.exists && !exists(kept) {
		if err := keep(at, kept); err != nil {
			return Result{}, err
		}
	}
	return r, replace(at, script(hook, program, made || i.made))
}

func (i *installer) uninstall(ctx context.Context, hook string) (Result, error) {
	r, err := i.unconfigure(ctx, hook)
	if err != nil || r.State != Absent {
		return r, err
	}
	at := i.folder.file(hook)
	// Where a manager has moved it aside: pre-commit calls what it finds in
	// its .legacy, lefthook forgets its .old.
	for _, file := range []string{at, at + ".legacy", at + ".old"} {
		there, err := readHook(file)
		if err != nil {
			return Result{}, err
		}
		if there.ours {
			return i.remove(hook, file, there)
		}
	}
	if m := i.folder.managerOf(i.repo, hook, nil); m != nil && m.present(hook) {
		r := m.result(hook)
		r.State, r.Reason, r.Lines, r.TakeOut = Manual, m.why, "", true
		return r, nil
	}
	there, err := readHook(at)
	if err != nil {
		return Result{}, err
	}
	if there.calls(hook) {
		return Result{State: Manual, File: at, TakeOut: true, Reason: "it is not ours"}, nil
	}
	if kept := keptFile(at, hook); exists(kept) {
		if there.exists && sameContent(at, kept) {
			// What ours kept has been put back by its owner.
			return i.drop(kept, at)
		}
		r := Result{State: Left, Path: at, Kept: kept, Reason: "ours is gone, and what it kept is still there: rename it to '" + hook + "', or remove it"}
		if there.exists {
			r.Reason = "another hook has been written since, and what ours kept is still there: keep one of them"
		}
		return r, nil
	}
	return Result{State: Absent, Path: at}, nil
}

// drop removes what ours kept of a hook that is there by itself.
func (i *installer) drop(kept, at string) (Result, error) {
	r := Result{State: Restored, Path: at, Kept: kept}
	if i.dryRun {
		return r, nil
	}
	if err := os.Remove(kept); err != nil {
		return Result{}, fault.New(fault.Fatal, "io", "remove the hook that was kept: %w", err)
	}
	return r, nil
}

// remove takes a hook of ours away and puts back what it kept.
func (i *installer) remove(hook, file string, there *found) (Result, error) {
	r := Result{State: Removed, Path: file}
	kept := keptFile(file, hook)
	if there.changed {
		r.State, r.Reason = Left, "it is ours, and somebody has changed it"
		return r, nil
	}
	if exists(kept) {
		r.State, r.Kept = Restored, kept
	}
	i.made = i.made || there.made
	if i.dryRun {
		return r, nil
	}
	var err error
	if r.State == Restored {
		err = os.Rename(kept, file)
	} else {
		err = os.Remove(file)
	}
	if err != nil {
		return Result{}, fault.New(fault.Fatal, "io", "remove the hook: %w", err)
	}
	return r, nil
}

// Program finds the path to call us by: the one on the PATH, if that is us,
// since an upgrade keeps it; otherwise where we run from.
func Program() (string, error) {
	self, err := os.Executable()
	if err != nil {
		return "", fault.New(fault.Fatal, "io", "find the program's own path: %w", err)
	}
	if found, err := exec.LookPath("git-checkpoint"); err == nil {
		if abs, err := filepath.Abs(found); err == nil && sameFile(abs, self) {
			return filepath.ToSlash(abs), nil
		}
	}
	return filepath.ToSlash(self), nil
}

func sameFile(a, b string) bool {
	ai, err := os.Stat(a)
	if err != nil {
		return false
	}
	bi, err := os.Stat(b)
	return err == nil && os.SameFile(ai, bi)
}

// keep gives a hook its second name. There is no moment without it.
func keep(at, kept string) error {
	err := second(at, kept)
	switch {
	case err == nil:
		return nil
	case errors.Is(err, os.ErrExist):
		return fault.New(fault.Conflict, "hook-in-the-way", "keep the hook that is there: '%s' has just been written", kept).
			WithHint("is another git checkpoint install running? try again")
	}
	// A file system without hard links.
	if err := os.Rename(at, kept); err != nil {
		return fault.New(fault.Fatal, "io", "keep the hook that is there: %w", err)
	}
	return nil
}

// second gives a file a second name. Of a link it makes a second link: not
// every system can name the link itself.
func second(at, name string) error {
	if target, err := os.Readlink(at); err == nil {
		return os.Symlink(target, name)
	}
	return os.Link(at, name)
}

// replace writes a hook in one step.
func replace(at, text string) error {
	temporary := fmt.Sprintf("%s.checkpoint-%d", at, os.Getpid())
	err := os.WriteFile(temporary, []byte(text), 0o777)
	if err == nil {
		err = os.Rename(temporary, at)
	}
	if err != nil {
		os.Remove(temporary)
		return fault.New(fault.Fatal, "io", "write the hook: %w", err)
	}
	return nil
}
