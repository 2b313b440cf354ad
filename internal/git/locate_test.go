package git

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
)

// place is a directory in a situation, and what the environment adds there.
type place struct {
	name string
	dir  string
	env  []string
	one  bool // one process tells all
}

// Wherever it is opened, a repository is what rev-parse says it is, or none;
// and in the common places it takes one process.
func TestOpenFindsWhatRevParseFinds(t *testing.T) {
	t.Parallel()
	root, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	at := func(parts ...string) string { return filepath.Join(append([]string{root}, parts...)...) }
	for _, place := range situations(t, root, at) {
		t.Run(place.name, func(t *testing.T) {
			t.Parallel()
			environ := append(testEnvironment(root), place.env...)
			asked := askRevParse(place.dir, environ)
			r, err := open(t.Context(), place.dir, environ)
			if asked == nil {
				if err == nil {
					t.Fatalf("opened %s, where git finds no repository", r.Dir)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			for option, got := range map[string]string{
				"--git-dir": r.Dir, "--git-common-dir": r.CommonDir, "--show-object-format": r.ObjectFormat,
				"--show-toplevel": r.Top, "--show-prefix": r.Prefix,
				"--is-bare-repository": yes(r.Bare), "--is-shallow-repository": yes(r.Shallow),
			} {
				if want := asked[option]; got != want {
					t.Errorf("rev-parse %s: got %q, git says %q", option, got, want)
				}
			}
			whole := slices.DeleteFunc(slices.Clone(environ), func(kv string) bool { return strings.HasPrefix(kv, "GIT_CONFIG=") })
			listed := runGit(t, place.dir, whole, "config", "--list", "-z")
			for key, want := range parseList(listed) {
				// Settings of ours come last.
				if got := r.Config[key]; len(got) < len(want) || !slices.Equal(got[:len(want)], want) {
					t.Errorf("%s: got %q, git lists %q", key, got, want)
				}
			}
			if runtime.GOOS != "windows" {
				if one := oneProcess(t.Context(), place.dir, environ); one != place.one {
					t.Errorf("one process told all: %t, want %t", one, place.one)
				}
			}
		})
	}
}

// situations makes the repositories, and says where to open them.
func situations(t *testing.T, root string, at func(...string) string) []place {
	git := func(dir string, args ...string) {
		t.Helper()
		runGit(t, dir, testEnvironment(root), args...)
	}
	mkdir := func(parts ...string) string {
		t.Helper()
		if err := os.MkdirAll(at(parts...), 0o777); err != nil {
			t.Fatal(err)
		}
		return at(parts...)
	}
	link := func(to string, parts ...string) string {
		t.Helper()
		if err := os.Symlink(to, at(parts...)); err != nil {
			t.Skip(err)
		}
		return at(parts...)
	}
	write := func(file, content string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(content), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	made := func(name string, args ...string) string {
		git(root, append(append([]string{"init", "-q"}, args...), at(name))...)
		git(at(name), "commit", "-q", "--allow-empty", "-m", "first")
		return at(name)
	}
	plain := made("plain")
	git(plain, "branch", "shelf")
	sub := mkdir("plain", "sub", "deep 'er")
	nested := mkdir("plain", "nested")
	git(nested, "init", "-q")
	git(plain, "worktree", "add", "-q", "-b", "linked", at("linked"))
	linkedSub := mkdir("linked", "x")
	odd := mkdir("plain", "a\\b")
	newline := made("new\nline")

	made("module")
	parent := made("parent")
	git(parent, "-c", "protocol.file.allow=always", "submodule", "add", "-q", at("module"), "sub")
	separate := made("separate", "--separate-git-dir="+at("elsewhere.git"))
	git(root, "init", "-q", "--bare", at("bare.git"))
	git(root, "clone", "-q", "--bare", plain, at("shared.git"))
	git(at("shared.git"), "config", "extensions.worktreeConfig", "true")
	git(root, "clone", "-q", "--bare", plain, at("mixed.git"))
	git(at("mixed.git"), "worktree", "add", "-q", at("ofmixed"), "shelf")
	git(at("mixed.git"), "config", "extensions.worktreeConfig", "true")
	git(at("shared.git"), "config", "--worktree", "core.bare", "true")
	git(at("shared.git"), "config", "--file", at("shared.git", "config"), "--unset", "core.bare")
	git(at("shared.git"), "worktree", "add", "-q", at("ofbare"), "shelf")
	git(root, "clone", "-q", "--depth=1", "file://"+plain, at("shallow"))
	git(root, "init", "-q", "--object-format=sha256", at("sha256"))

	moved := made("moved")
	mkdir("tree", "sub")
	git(moved, "config", "core.worktree", at("tree"))
	around := made("around")
	git(around, "config", "core.worktree", root)

	linkedCwd := link(sub, "to-sub")
	linkedTop := link(plain, "to-plain")
	mkdir("bylink")
	link(filepath.Join(plain, ".git"), "bylink", ".git")
	mkdir("byfile")
	write(at("byfile", ".git"), "gitdir: ../plain/.git\n")
	mkdir("badfile")
	write(at("badfile", ".git"), "gitdir: ../nowhere\n")
	damaged := made("damaged")
	write(filepath.Join(damaged, ".git", "HEAD"), "nothing\n")
	future := made("future")
	git(future, "config", "core.repositoryformatversion", "7")
	unread := made("unread")
	write(filepath.Join(unread, ".git", "config"), "[core\n")
	unset := made("unset")
	write(filepath.Join(unset, ".git", "config"), "")
	mkdir("false", ".git")
	other := mkdir("other")
	inGit := filepath.Join(plain, ".git")

	places := []place{
		{"top", plain, nil, true},
		{"sub-directory", sub, nil, true},
		{"nested repository", nested, nil, true},
		{"linked worktree", at("linked"), nil, true},
		{"below a linked worktree", linkedSub, nil, true},
		{"submodule", filepath.Join(parent, "sub"), nil, true},
		{"parent of a submodule", parent, nil, true},
		{"separate git directory", separate, nil, true},
		{"bare", at("bare.git"), nil, false},
		{"below a bare one", at("bare.git", "refs"), nil, false},
		{"bare with worktreeConfig", at("shared.git"), nil, false},
		{"worktree of a bare one", at("ofbare"), nil, true},
		{"worktree that is said to be bare", at("ofmixed"), nil, false},
		{"inside of the git directory", inGit, nil, false},
		{"below the git directory", filepath.Join(inGit, "refs"), nil, false},
		{"git directory of a linked worktree", filepath.Join(inGit, "worktrees", "linked"), nil, false},
		{"shallow clone", at("shallow"), nil, true},
		{"SHA-256", at("sha256"), nil, false},
		{"core.worktree, at the git directory", moved, nil, false},
		{"core.worktree, in the tree", at("tree", "sub"), nil, false},
		{"core.worktree around", around, nil, true},
		{"symbolic link to a sub-directory", linkedCwd, nil, true},
		{"symbolic link to the top", linkedTop, nil, true},
		{"below a symbolic link to the top", filepath.Join(linkedTop, "sub"), nil, true},
		{"git directory by a symbolic link", at("bylink"), nil, true},
		{"git directory by a file", at("byfile"), nil, true},
		{"git file that leads nowhere", at("badfile"), nil, false},
		{"damaged HEAD", damaged, nil, false},
		{"unknown version", future, nil, false},
		{"configuration that cannot be read", unread, nil, false},
		{"empty configuration", unset, nil, true},
		{"empty .git", at("false"), nil, false},
		{"backslash", odd, nil, false},
		{"newline", newline, nil, false},
		{"none", other, nil, false},
		{"ceiling below", sub, []string{"GIT_CEILING_DIRECTORIES=" + at("plain", "sub")}, false},
		{"ceiling above", sub, []string{"GIT_CEILING_DIRECTORIES=" + root}, true},
		{"ceiling by a symbolic link", sub, []string{"GIT_CEILING_DIRECTORIES=" + at("to-plain", "sub")}, false},
		{"another owner", plain, []string{"GIT_TEST_ASSUME_DIFFERENT_OWNER=1"}, false},
		{"GIT_DIR as a hook has it", plain, []string{"GIT_DIR=.git"}, true},
		{"GIT_DIR as a hook of a linked worktree has it", at("linked"), []string{"GIT_DIR=" + filepath.Join(inGit, "worktrees", "linked")}, true},
		{"GIT_DIR elsewhere", other, []string{"GIT_DIR=" + inGit}, true},
		{"GIT_DIR in a sub-directory", sub, []string{"GIT_DIR=../../.git"}, true},
		{"GIT_DIR and GIT_WORK_TREE", sub, []string{"GIT_DIR=" + inGit, "GIT_WORK_TREE=" + plain}, true},
		{"GIT_WORK_TREE elsewhere", other, []string{"GIT_DIR=" + inGit, "GIT_WORK_TREE=" + plain}, false},
		{"GIT_DIR and GIT_COMMON_DIR", plain, []string{"GIT_DIR=.git", "GIT_COMMON_DIR=" + filepath.Join(nested, ".git")}, true},
		{"GIT_DIR that is none", plain, []string{"GIT_DIR=nothing"}, false},
		{"GIT_CONFIG", plain, []string{"GIT_CONFIG=" + os.DevNull}, true},
		{"a trace of one's own", sub, []string{"GIT_TRACE=1", "GIT_TRACE_SETUP=0"}, true},
	}
	return places
}

// askRevParse asks git one question at a time; nil where it finds none.
func askRevParse(dir string, environ []string) map[string]string {
	asked := map[string]string{}
	for _, option := range []string{"--git-dir", "--git-common-dir", "--show-object-format", "--is-bare-repository", "--is-shallow-repository", "--show-toplevel", "--show-prefix"} {
		cmd := exec.Command("git", "rev-parse", "--path-format=absolute", option)
		cmd.Dir, cmd.Env = dir, environ
		out, err := cmd.Output()
		if err != nil && option != "--show-toplevel" {
			return nil
		}
		asked[option] = strings.TrimSuffix(string(out), "\n")
	}
	return asked
}

// oneProcess says whether what git traces is enough.
func oneProcess(ctx context.Context, dir string, environ []string) bool {
	r := &Repo{env: cleanEnvironment(environ, dir)}
	config, setup, err := r.configure(ctx, dir)
	r.Config, _ = parseListing(string(config))
	return err == nil && r.locate(setup)
}

// parseList reads what `git config --list -z` prints.
func parseList(out string) Config {
	c := Config{}
	for item := range strings.SplitSeq(out, "\x00") {
		if item == "" {
			continue
		}
		key, value, assigned := strings.Cut(item, "\n")
		if !assigned {
			value = "true"
		}
		c[key] = append(c[key], value)
	}
	return c
}

func testEnvironment(root string) []string {
	return []string{
		"PATH=" + os.Getenv("PATH"), "HOME=" + root, "GIT_CONFIG_NOSYSTEM=1", "GIT_CONFIG_GLOBAL=" + os.DevNull,
		"GIT_AUTHOR_NAME=A", "GIT_AUTHOR_EMAIL=a@example.org", "GIT_COMMITTER_NAME=A", "GIT_COMMITTER_EMAIL=a@example.org",
		"GIT_CEILING_DIRECTORIES=" + filepath.Dir(root),
	}
}

func runGit(t *testing.T, dir string, environ []string, args ...string) string {
	t.Helper()
	cmd := exec.Command("git", args...)
	cmd.Dir, cmd.Env = dir, environ
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("git %s in %s: %v", strings.Join(args, " "), dir, err)
	}
	return string(out)
}

func yes(b bool) string {
	if b {
		return "true"
	}
	return "false"
}
