// Package scripttest runs the scripts of testdata/script with the real programs.
package scripttest

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/git-checkpoint/git-checkpoint/internal/output"
)

// Part is a part of the scripts, those that one package runs: all at once would
// take a slow machine longer than "go test" gives a package.
type Part bool

const (
	// Plans are those about plans, runs of them, reruns, and what is shared.
	Plans Part = true
	// Others are all others.
	Others Part = false
)

// plans is how the names of the scripts of Plans begin.
var plans = []string{"plan", "prune", "react", "rerun", "run", "secrets", "share"}

// Run runs a part of testdata/script. Beside the commands of testscript a script
// has:
//
//	exit CODE COMMAND…   run a command, which must end with this exit code
//	tree FILE [DIR]      list every file of a working tree, for cmp
//
// and the conditions [git:2.45] (git is that version or newer) and [root].
// The identity, dates, time zone and configuration are fixed, so commit ids
// can be expected.
func Run(t *testing.T, part Part) {
	t.Cleanup(func() { os.RemoveAll(programs) })
	if err := lookAtSources(); err != nil {
		t.Fatal(err)
	}
	all, err := filepath.Glob(filepath.Join(root, "testdata", "script", "*.txtar"))
	if err != nil || len(all) == 0 {
		t.Fatalf("there are no scripts: %v", err)
	}
	scripts := slices.DeleteFunc(all, func(file string) bool {
		first, _, _ := strings.Cut(strings.TrimSuffix(filepath.Base(file), ".txtar"), "-")
		return slices.Contains(plans, first) != bool(part)
	})
	testscript.Run(t, testscript.Params{
		Files:               scripts,
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		Setup:               setUpScript,
		Condition:           scriptCondition,
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"exit": scriptExit,
			"tree": scriptTree,
		},
	})
}

// UserConfig is the user's configuration of git in a test.
const UserConfig = `[user]
	name = A Person
	email = person@example.org
[init]
	defaultBranch = main
[core]
	autocrlf = false
[protocol "file"]
	allow = always
`

func setUpScript(e *testscript.Env) error {
	home := filepath.Join(e.WorkDir, "home")
	if err := os.MkdirAll(home, 0o777); err != nil {
		return err
	}
	config := filepath.Join(home, ".gitconfig")
	if err := os.WriteFile(config, []byte(UserConfig), 0o666); err != nil {
		return err
	}
	for _, v := range [][2]string{
		{"HOME", home},
		{"USERPROFILE", home},
		{"GIT_CONFIG_NOSYSTEM", "1"},
		{"GIT_CONFIG_GLOBAL", config},
		{"GIT_CEILING_DIRECTORIES", e.WorkDir}, // a script without a repository is in none
		{"GIT_AUTHOR_DATE", "2026-11-30T11:00:00Z"},
		{"GIT_COMMITTER_DATE", "2026-11-30T11:00:00Z"},
		{"GIT_CHECKPOINT_DATE", "2026-11-30T12:00:00Z"},
		{"TZ", "UTC"},
		{"LC_ALL", "C"},
	} {
		e.Setenv(v[0], v[1])
	}
	path, err := checkpoint()
	if err != nil {
		return err
	}
	if strings.HasPrefix(filepath.Base(e.WorkDir), "script-secrets") {
		dir, err := scanner()
		if err != nil {
			return err
		}
		path += string(filepath.ListSeparator) + dir
	}
	e.Setenv("PATH", path+string(filepath.ListSeparator)+e.Getenv("PATH"))
	return nil
}

// root is the root of the repository, from the packages that run scripts.
var root = filepath.Join("..", "..", "..")

// programs is where what is tested was built.
var programs string

func build(program string) (dir string, err error) {
	if programs == "" {
		if programs, err = os.MkdirTemp("", "checkpoint-test-"); err != nil {
			return "", err
		}
	}
	dir = filepath.Join(programs, program)
	pkg := filepath.Join(root, "cmd", program)
	if out, err := exec.Command("go", "build", "-tags", "urfave_cli_no_docs", "-o", dir+string(filepath.Separator), pkg).CombinedOutput(); err != nil {
		return "", fmt.Errorf("build %s: %w\n%s", program, err, out)
	}
	return dir, nil
}

// lookAtSources tells "go test" what the programs come from, so that it runs
// the scripts again after a change: it takes down which files a test looks at.
func lookAtSources() error {
	return filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if name := d.Name(); err == nil && d.IsDir() && (name == ".git" || name == "testdata") {
			return filepath.SkipDir
		}
		if err == nil && (filepath.Ext(path) == ".go" || filepath.Ext(path) == ".mod") {
			_, err = os.Stat(path)
		}
		return err
	})
}

// checkpoint builds git-checkpoint as users do. On the PATH, it lets scripts and
// hooks say `git checkpoint`.
var checkpoint = sync.OnceValues(func() (dir string, err error) { return build("git-checkpoint") })

// scanner builds the program that looks for secrets, whose rules are too heavy
// for the other. Only the scripts secrets-* have it on their PATH.
var scanner = sync.OnceValues(func() (dir string, err error) { return build("git-checkpoint-secrets") })

func scriptCondition(cond string) (bool, error) {
	if want, ok := strings.CutPrefix(cond, "git:"); ok {
		have, err := gitVersion()
		return !versionLess(have, want), err
	}
	if cond == "root" {
		return os.Geteuid() == 0, nil
	}
	return false, fmt.Errorf("unknown condition %q", cond)
}

var gitVersion = sync.OnceValues(func() (string, error) {
	out, err := exec.Command("git", "version").Output()
	if err != nil {
		return "", fmt.Errorf("ask git for its version: %w", err)
	}
	fields := strings.Fields(string(out))
	if len(fields) < 3 {
		return "", fmt.Errorf("ask git for its version: it said %q", out)
	}
	return fields[2], nil
})

// versionLess compares dotted versions number by number; what is missing or
// no number counts as 0.
func versionLess(a, b string) bool {
	as, bs := strings.Split(a, "."), strings.Split(b, ".")
	for i := range max(len(as), len(bs)) {
		var x, y int
		if i < len(as) {
			x, _ = strconv.Atoi(as[i])
		}
		if i < len(bs) {
			y, _ = strconv.Atoi(bs[i])
		}
		if x != y {
			return x < y
		}
	}
	return false
}

func scriptExit(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: exit CODE COMMAND [ARGUMENT…]")
	}
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	got := 0
	if err := ts.Exec(args[1], args[2:]...); err != nil {
		var ended interface{ ExitCode() int }
		if !errors.As(err, &ended) {
			ts.Fatalf("run %s: %v", args[1], err)
		}
		got = ended.ExitCode()
	}
	if got != want {
		ts.Fatalf("%s: exit code %d, want %d", strings.Join(args[1:], " "), got, want)
	}
}

// scriptTree lists a directory without .git: type, mode, content, path.
func scriptTree(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 1 || len(args) > 2 {
		ts.Fatalf("usage: tree FILE [DIR]")
	}
	file, dir := ts.MkAbs(args[0]), ts.MkAbs(".")
	if len(args) > 1 {
		dir = ts.MkAbs(args[1])
	}
	var list strings.Builder
	ts.Check(filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case path == dir || path == file:
			return nil
		case d.Name() == ".git" && d.IsDir():
			return filepath.SkipDir
		case d.Name() == ".git":
			return nil
		}
		line, err := treeLine(path, d)
		rel, _ := filepath.Rel(dir, path)
		fmt.Fprintf(&list, "%s %s\n", line, output.Path(filepath.ToSlash(rel)))
		return err
	}))
	ts.Check(os.WriteFile(file, []byte(list.String()), 0o666))
}

func treeLine(path string, d fs.DirEntry) (string, error) {
	info, err := d.Info()
	if err != nil {
		return "", err
	}
	switch info.Mode().Type() {
	case 0:
		data, err := os.ReadFile(path)
		return fmt.Sprintf("file %04o %x", info.Mode().Perm(), sha256.Sum256(data)), err
	case fs.ModeSymlink:
		target, err := os.Readlink(path)
		return "link " + strconv.Quote(target), err
	case fs.ModeDir:
		return "dir", nil
	}
	return "other " + info.Mode().String(), nil
}
