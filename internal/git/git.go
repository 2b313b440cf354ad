// Package git starts the git program; no other package of this module starts
// a process. It resolves a repository and its configuration with git itself,
// and sees to it that nothing a caller's environment or a user's
// configuration holds (hooks, identities, an index of somebody else's) leaks
// into what we ask of git, and that no hook is fired.
package git

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/git-checkpoint/git-checkpoint/internal/fault"
)

// MinimumVersion is the oldest git whose options this package uses
// (`git add --sparse`, `cat-file --batch -z` is not required).
const MinimumVersion = "2.34"

// Repo is a repository as git resolved it. It does not change after Open and
// may be used by several goroutines.
type Repo struct {
	Top          string // absolute path of the working tree; empty in a bare repository or inside a git directory
	Dir          string // absolute path of this worktree's git directory
	CommonDir    string // absolute path of the git directory that all worktrees share
	Prefix       string // where Open was called, relative to Top, with '/' at the end; empty at Top
	Bare         bool
	Shallow      bool
	ObjectFormat string // "sha1" or "sha256"
	Config       Config // the effective configuration

	env      []string
	settings []string // -c arguments for every call

	mu      sync.Mutex
	inherit []*os.File
}

// HashLen is the length of an object id in bytes: 20 or 32.
func (r *Repo) HashLen() int {
	if r.ObjectFormat == "sha256" {
		return 32
	}
	return 20
}

// RefFormat is "files" or "reftable".
func (r *Repo) RefFormat() string {
	if v, ok := r.Config.Get("extensions.refstorage"); ok {
		// The value may carry a location: "reftable://path".
		name, _, _ := strings.Cut(v, ":")
		return strings.ToLower(name)
	}
	return "files"
}

// Linked says whether this is a linked worktree.
func (r *Repo) Linked() bool { return r.Dir != r.CommonDir }

// NeedTop returns an error, for commands that work on files, where there is
// no working tree.
func (r *Repo) NeedTop() error {
	switch {
	case r.Top != "":
		return nil
	case r.Bare:
		return fault.New(fault.Fatal, "bare-repository", "'%s' is a bare repository: it has no working tree to save or restore", r.Dir).
			WithHint("run the command in a worktree of it: git worktree add <path>")
	default:
		return fault.New(fault.Fatal, "no-worktree", "'%s' is a git directory, not a working tree", r.Dir).
			WithHint("change to the working tree first")
	}
}

// foreignVariables describe somebody else's call of git. The location of the
// repository (GIT_DIR, GIT_WORK_TREE, …) is kept, since it is how a user or a
// hook says which repository is meant; so is GIT_QUARANTINE_PATH, by which git
// keeps refs from naming objects of a push that may yet be refused.
var foreignVariables = map[string]bool{
	"GIT_INDEX_FILE": true, "GIT_INDEX_VERSION": true, "GIT_PREFIX": true, "GIT_CONFIG": true,
	"GIT_AUTHOR_NAME": true, "GIT_AUTHOR_EMAIL": true, "GIT_AUTHOR_DATE": true,
	"GIT_COMMITTER_NAME": true, "GIT_COMMITTER_EMAIL": true, "GIT_COMMITTER_DATE": true,
	"GIT_LITERAL_PATHSPECS": true, "GIT_GLOB_PATHSPECS": true, "GIT_NOGLOB_PATHSPECS": true, "GIT_ICASE_PATHSPECS": true,
	"GIT_REFLOG_ACTION": true, "GIT_NOTES_REF": true, "GIT_NOTES_DISPLAY_REF": true, "GIT_NOTES_REWRITE_REF": true,
	"GIT_EXTERNAL_DIFF": true, "GIT_DIFF_OPTS": true, "GIT_ATTR_SOURCE": true, "GIT_DEFAULT_HASH": true,
	"GIT_INTERNAL_SUPER_PREFIX": true, "GIT_SHALLOW_FILE": true, "GIT_GRAFT_FILE": true,
	"GIT_NAMESPACE": true, "GIT_REPLACE_REF_BASE": true, "GIT_IMPLICIT_WORK_TREE": true,
}

// locationVariables hold paths that git takes relative to where it was
// started; they are made absolute because we start it elsewhere.
var locationVariables = map[string]bool{
	"GIT_DIR": true, "GIT_WORK_TREE": true, "GIT_COMMON_DIR": true, "GIT_OBJECT_DIRECTORY": true,
}

func cleanEnvironment(environ []string, cwd string) []string {
	env := make([]string, 0, len(environ)+4)
	for _, kv := range environ {
		name, value, _ := strings.Cut(kv, "=")
		if foreignVariables[name] {
			continue
		}
		if locationVariables[name] && value != "" && !filepath.IsAbs(value) {
			kv = name + "=" + filepath.Join(cwd, value)
		}
		if name == "GIT_ALTERNATE_OBJECT_DIRECTORIES" && value != "" && !strings.HasPrefix(value, `"`) {
			list := filepath.SplitList(value)
			for i, dir := range list {
				if dir != "" && !filepath.IsAbs(dir) {
					list[i] = filepath.Join(cwd, dir)
				}
			}
			kv = name + "=" + strings.Join(list, string(filepath.ListSeparator))
		}
		env = append(env, kv)
	}
	return append(env, "GIT_OPTIONAL_LOCKS=0", "GIT_NO_REPLACE_OBJECTS=1", "GIT_TERMINAL_PROMPT=0", "GIT_ADVICE=0")
}

// baseSettings hold for every call: no hook, no daemon, no maintenance, no
// refusal over line endings, no untracked cache or split in an index of ours,
// and commits as they are.
var baseSettings = []string{
	"core.hooksPath=" + os.DevNull,
	"core.fsmonitor=false",
	"core.untrackedCache=false",
	"core.splitIndex=false",
	"core.safecrlf=false",
	"core.logAllRefUpdates=false",
	"i18n.logOutputEncoding=UTF-8",
	"gc.auto=0",
	"maintenance.auto=false",
	"index.sparse=false",
	"index.skipHash=false",
	"advice.addEmbeddedRepo=false",
}

// Open resolves the repository that dir lies in, as git would from there; an
// empty dir is the current one. The error is Fatal when there is none, or
// when git refuses it (for example safe.directory), in git's words.
func Open(ctx context.Context, dir string) (*Repo, error) {
	cwd, err := filepath.Abs(dir)
	if err != nil {
		return nil, fault.New(fault.Fatal, "io", "resolve '%s': %w", dir, err)
	}
	environ := os.Environ()
	if dir != "" && dir != "." {
		// Another directory was named: what a hook says of its own
		// repository does not hold there.
		environ = withoutLocation(environ)
	}
	return open(ctx, cwd, environ)
}

func open(ctx context.Context, cwd string, environ []string) (*Repo, error) {
	r := &Repo{env: cleanEnvironment(environ, cwd)}
	located := slices.ContainsFunc(r.env, func(kv string) bool { return strings.HasPrefix(kv, "GIT_DIR=") && kv != "GIT_DIR=" })
	for _, s := range baseSettings {
		r.settings = append(r.settings, "-c", s)
	}
	known, ok := r.search(cwd)
	if !ok || !r.recall(known) {
		begun := time.Now()
		settings, located, err := r.ask(ctx, cwd)
		if err != nil {
			return nil, err
		}
		if ok && located {
			r.remember(known, settings, begun)
		}
	}
	r.disableConfiguredHooks()
	if r.Top != "" && !located {
		// With core.worktree the working tree may hold no way back to the
		// git directory; then it has to be named.
		if _, err := os.Lstat(filepath.Join(r.Top, ".git")); err != nil {
			r.env = append(r.env, "GIT_DIR="+r.Dir, "GIT_WORK_TREE="+r.Top)
		}
	}
	return r, nil
}

// ask asks git where the repository is and how it is configured. located says
// that it told in one answer.
func (r *Repo) ask(ctx context.Context, cwd string) (settings []setting, located bool, err error) {
	listing, setup, err := r.configure(ctx, cwd)
	r.Config, settings = parseListing(string(listing))
	if err == nil && r.locate(setup) {
		return settings, true, nil
	}
	if err := r.resolve(ctx, cwd); err != nil {
		return nil, false, err
	}
	if err != nil {
		return nil, false, fault.New(fault.Fatal, "git-config", "read the configuration: %w", err)
	}
	return settings, false, nil
}

func withoutLocation(environ []string) []string {
	kept := environ[:0:0]
	for _, kv := range environ {
		name, _, _ := strings.Cut(kv, "=")
		if locationVariables[name] || name == "GIT_ALTERNATE_OBJECT_DIRECTORIES" {
			continue
		}
		kept = append(kept, kv)
	}
	return kept
}

// resolve asks rev-parse for everything about the location, in one call.
func (r *Repo) resolve(ctx context.Context, cwd string) error {
	out, err := r.in(ctx, cwd, "rev-parse", "--path-format=absolute", "--show-object-format", "--is-bare-repository",
		"--is-inside-work-tree", "--is-shallow-repository", "--git-dir", "--git-common-dir", "--show-toplevel", "--show-prefix").Output()
	lines := strings.Split(strings.TrimSuffix(string(out), "\n"), "\n")
	if len(lines) < 6 {
		return openError(cwd, err)
	}
	r.ObjectFormat, r.Bare, r.Shallow = lines[0], lines[1] == "true", lines[3] == "true"
	if err != nil && lines[2] == "true" {
		return openError(cwd, err)
	}
	// git prints what it knows up to the first question that has no answer:
	// outside of a working tree that is where its top is. With GIT_WORK_TREE
	// or core.worktree it knows that from anywhere.
	places := []*string{&r.Dir, &r.CommonDir, &r.Top, &r.Prefix}
	if err != nil {
		places = places[:2]
	}
	if len(lines) == 4+len(places) {
		for i, to := range places {
			*to = lines[4+i]
		}
	} else {
		// A path holds a newline: ask one by one.
		for i, to := range places {
			option := []string{"--git-dir", "--git-common-dir", "--show-toplevel", "--show-prefix"}[i]
			out, err := r.in(ctx, cwd, "rev-parse", "--path-format=absolute", option).Output()
			if err != nil {
				return openError(cwd, err)
			}
			*to = strings.TrimSuffix(string(out), "\n")
		}
	}
	r.Dir, r.CommonDir = filepath.FromSlash(r.Dir), filepath.FromSlash(r.CommonDir)
	if r.Top != "" {
		r.Top = filepath.FromSlash(r.Top)
	}
	return nil
}

func openError(cwd string, err error) error {
	var failed *Error
	if errors.As(err, &failed) {
		e := fault.New(fault.Fatal, "not-a-repository", "open the repository at '%s': %s", cwd, failed.Reason()).
			WithHint("git itself cannot work there; git status says the same until it is mended")
		if strings.Contains(failed.Stderr, "not a git repository") {
			e.Message = "not a git repository: '" + cwd + "'"
			e.WithHint("git init makes one; checkpoints live in the repository")
			if dir := os.Getenv("GIT_DIR"); dir != "" {
				e.Message = "not a git repository: '" + dir + "', which GIT_DIR names"
				e.WithHint("unset GIT_DIR, or let it name a repository")
			}
		}
		if _, command, ok := strings.Cut(failed.Stderr, "git config --global --add safe.directory "); ok {
			command, _, _ = strings.Cut(command, "\n")
			e.WithHint("git config --global --add safe.directory %s", command)
		}
		return e
	}
	return fault.New(fault.Fatal, "git", "start git: %w", err).WithHint("git %s or newer must be on the PATH", MinimumVersion)
}

// disableConfiguredHooks switches config-based hooks (git 2.54) off by name.
func (r *Repo) disableConfiguredHooks() {
	for _, name := range r.Config.Subsections("hook") {
		r.settings = append(r.settings, "-c", "hook."+name+".enabled=false")
	}
}

// Inherit makes every Cmd with Hold set keep f open in its process, so that
// an advisory lock on f lives as long as the process does, even when we are
// killed. The function that it returns ends it.
func (r *Repo) Inherit(f *os.File) (end func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.inherit = append(r.inherit, f)
	return func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.inherit = slices.DeleteFunc(r.inherit, func(other *os.File) bool { return other == f })
	}
}

// Cmd is one call of git. Set the fields, then call Output, Run or Start.
type Cmd struct {
	Args   []string
	Dir    string
	Env    []string  // added to the clean environment
	Stdin  io.Reader // nil: none
	Stdout io.Writer // for Run; nil: discarded
	Stderr io.Writer // nil: kept for the error
	Echo   io.Writer // gets a copy of what is kept for the error; may be nil
	Hold   bool      // see Repo.Inherit
	Plain  bool      // with the user's own settings: pager, colour, external diff
	Group  bool      // in a process group of its own, which ends with it when the context does

	ctx  context.Context
	repo *Repo
}

// Command returns a call of git in the working tree (in the git directory
// where there is none), with hooks off and a clean environment.
func (r *Repo) Command(ctx context.Context, args ...string) *Cmd {
	dir := r.Top
	if dir == "" {
		dir = r.Dir
	}
	return r.in(ctx, dir, args...)
}

func (r *Repo) in(ctx context.Context, dir string, args ...string) *Cmd {
	return &Cmd{Args: args, Dir: dir, ctx: ctx, repo: r}
}

// WithIndex makes the call use another index file.
func (c *Cmd) WithIndex(path string) *Cmd {
	c.Env = append(c.Env, "GIT_INDEX_FILE="+path)
	return c
}

// WithEnv adds one variable.
func (c *Cmd) WithEnv(name, value string) *Cmd {
	c.Env = append(c.Env, name+"="+value)
	return c
}

// WithInput gives the call its standard input.
func (c *Cmd) WithInput(data []byte) *Cmd {
	c.Stdin = bytes.NewReader(data)
	return c
}

func (c *Cmd) command() (*exec.Cmd, *bytes.Buffer) {
	var args []string
	if !c.Plain {
		args = append(args, c.repo.settings...)
	}
	cmd := exec.CommandContext(c.ctx, "git", append(args, c.Args...)...)
	cmd.Dir, cmd.Stdin, cmd.Stdout = c.Dir, c.Stdin, c.Stdout
	cmd.Env = append(c.repo.env[:len(c.repo.env):len(c.repo.env)], c.Env...)
	cmd.WaitDelay = 5 * time.Second
	if c.Group {
		group(cmd)
	}
	c.repo.mu.Lock()
	if c.Hold && runtime.GOOS != "windows" {
		cmd.ExtraFiles = slices.Clone(c.repo.inherit)
	}
	c.repo.mu.Unlock()
	stderr := &bytes.Buffer{}
	if c.Stderr != nil {
		cmd.Stderr = c.Stderr
	} else {
		cmd.Stderr = stderr
		if c.Echo != nil {
			cmd.Stderr = io.MultiWriter(stderr, c.Echo)
		}
	}
	return cmd, stderr
}

// Run runs the call. A failure is an *Error.
func (c *Cmd) Run() error {
	cmd, stderr := c.command()
	start := time.Now()
	err := cmd.Run()
	trace(c.Args, start)
	return c.failure(err, stderr)
}

// Output runs the call and returns its standard output, also what there was
// of it before a failure.
func (c *Cmd) Output() ([]byte, error) {
	var out bytes.Buffer
	c.Stdout = &out
	err := c.Run()
	return out.Bytes(), err
}

// Lines is Output split at NUL, for calls with -z.
func (c *Cmd) Lines() ([]string, error) {
	out, err := c.Output()
	if len(out) == 0 {
		return nil, err
	}
	return strings.Split(strings.TrimSuffix(string(out), "\x00"), "\x00"), err
}

// Text is Output without the final newline.
func (c *Cmd) Text() (string, error) {
	out, err := c.Output()
	return strings.TrimSuffix(string(out), "\n"), err
}

func (c *Cmd) failure(err error, stderr *bytes.Buffer) error {
	if err == nil {
		return nil
	}
	if c.ctx.Err() != nil {
		return fault.New(fault.Fatal, "interrupted", "git %s: %w", c.Args[0], context.Cause(c.ctx))
	}
	code := -1
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		code = exit.ExitCode()
	} else if errors.Is(err, exec.ErrNotFound) {
		return fault.New(fault.Fatal, "no-git", "start git: %w", err).WithHint("git %s or newer must be on the PATH", MinimumVersion)
	}
	return &Error{Args: c.Args, Code: code, Stderr: stderr.String(), Err: err}
}

// Process is a call of git that runs beside us.
type Process struct {
	Stdin  io.WriteCloser
	Stdout io.ReadCloser

	cmd    *exec.Cmd
	call   *Cmd
	stderr *bytes.Buffer
	begun  time.Time
}

// Start starts the call with pipes on both sides.
func (c *Cmd) Start() (*Process, error) {
	c.Stdin, c.Stdout = nil, nil
	cmd, stderr := c.command()
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, fault.New(fault.Fatal, "io", "open a pipe to git: %w", err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, fault.New(fault.Fatal, "io", "open a pipe from git: %w", err)
	}
	if err := cmd.Start(); err != nil {
		return nil, c.failure(err, stderr)
	}
	return &Process{Stdin: in, Stdout: out, cmd: cmd, call: c, stderr: stderr, begun: time.Now()}, nil
}

// Wait closes standard input and waits for the end.
func (p *Process) Wait() error {
	p.Stdin.Close()
	err := p.cmd.Wait()
	trace(p.call.Args, p.begun)
	return p.call.failure(err, p.stderr)
}

// Stop ends the call early, when no more of its output is wanted.
func (p *Process) Stop() {
	p.Stdin.Close()
	p.Stdout.Close()
	p.cmd.Process.Kill()
	p.cmd.Wait()
	trace(p.call.Args, p.begun)
}

// Error is a call of git that failed. It is of kind fault.Fatal unless a
// caller makes something else of it.
type Error struct {
	Args   []string
	Code   int    // git's exit code, -1 if it was not started or was killed
	Stderr string // what it said
	Err    error
}

// Reason is the line in which git says what was fatal, else the first one,
// without its "fatal: " or "error: ".
func (e *Error) Reason() string {
	line, _, _ := strings.Cut(strings.TrimSpace(e.Stderr), "\n")
	for l := range strings.Lines(e.Stderr) {
		if strings.HasPrefix(l, "fatal: ") {
			line = strings.TrimSpace(l)
			break
		}
	}
	for _, p := range []string{"fatal: ", "error: "} {
		line = strings.TrimPrefix(line, p)
	}
	if line == "" {
		line = e.Err.Error()
	}
	return line
}

func (e *Error) Error() string {
	return fmt.Sprintf("git %s: %s", e.Args[0], e.Reason())
}

// Unwrap makes a failed call match fault.Fatal.
func (e *Error) Unwrap() []error { return []error{fault.Fatal, e.Err} }

var traceTo = os.Getenv("GIT_CHECKPOINT_TRACE")

// Trace prints a line to standard error when GIT_CHECKPOINT_TRACE is set.
func Trace(format string, args ...any) {
	if traceTo == "" || traceTo == "0" {
		return
	}
	fmt.Fprintf(os.Stderr, "trace: "+format+"\n", args...)
}

func trace(args []string, start time.Time) {
	if traceTo == "" || traceTo == "0" {
		return
	}
	Trace("%6.1f ms git %s", float64(time.Since(start).Microseconds())/1000, strings.Join(args, " "))
}

// CurrentDir is the directory that Open was called in, for pathspecs.
func (r *Repo) CurrentDir() string { return filepath.Join(r.Top, filepath.FromSlash(r.Prefix)) }
