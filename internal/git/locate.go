package git

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"runtime"
	"strings"
)

// configure asks git for its configuration and, with GIT_TRACE_SETUP (git(1)),
// where it found the repository: in the common case that is all that Open has
// to know, from one process. What git says of the place is in setup.
func (r *Repo) configure(ctx context.Context, cwd string) (config []byte, setup string, err error) {
	var said bytes.Buffer
	c := r.in(ctx, cwd, "config", "--list", "-z", "--show-origin").WithEnv("GIT_TRACE_SETUP", "1")
	c.Echo = &said
	config, err = c.Output()
	return config, said.String(), err
}

// locate sets the location from what git said of it, and from its
// configuration. It changes nothing and is false where that does not say all:
// outside of a working tree, where the working tree is not around the
// current directory, where a path holds what the trace quotes, or where the
// object format is not the usual one. Then rev-parse has to be asked.
func (r *Repo) locate(setup string) bool {
	if runtime.GOOS == "windows" {
		return false // how git prints a physical path there is its own matter
	}
	if _, ok := r.Config.Get("extensions.objectformat"); ok {
		return false
	}
	places, ok := parseSetup(setup)
	if !ok || places["worktree"] != places["cwd"] || !filepath.IsAbs(places["worktree"]) {
		return false
	}
	top := places["worktree"]
	dir, err := physical(top, places["git_dir"])
	if err != nil {
		return false
	}
	common, err := physical(top, places["git_common_dir"])
	if err != nil {
		return false
	}
	prefix := places["prefix"]
	if prefix == noPlace {
		prefix = ""
	}
	r.Top, r.Dir, r.CommonDir, r.Prefix = top, dir, common, prefix
	r.ObjectFormat = "sha1"
	r.Shallow = isShallow(common)
	return true
}

// isShallow is what git says of it, whatever the file holds.
func isShallow(common string) bool {
	f, err := os.Open(filepath.Join(common, "shallow"))
	if err == nil {
		f.Close()
	}
	return err == nil
}

// noPlace is how the trace says that there is none.
const noPlace = "(null)"

// parseSetup reads the lines "… setup: <what>: <value>" of a trace. It is
// false unless each stands there once and none is quoted.
func parseSetup(trace string) (map[string]string, bool) {
	places := map[string]string{}
	for line := range strings.Lines(trace) {
		_, said, ok := strings.Cut(strings.TrimSuffix(line, "\n"), " setup: ")
		if !ok {
			continue
		}
		what, value, ok := strings.Cut(said, ": ")
		if _, twice := places[what]; !ok || twice || strings.ContainsRune(value, '\\') {
			return nil, false
		}
		places[what] = value
	}
	for _, what := range []string{"git_dir", "git_common_dir", "worktree", "cwd", "prefix"} {
		if places[what] == "" {
			return nil, false
		}
	}
	return places, true
}

// physical is a path as rev-parse prints it: absolute, without symbolic links.
func physical(top, path string) (string, error) {
	if !filepath.IsAbs(path) {
		path = filepath.Join(top, path)
	}
	return filepath.EvalSymlinks(path)
}
