//go:build unix

package worktree_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// binary builds the program once for all tests.
var binary = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "checkpoint-test-")
	if err != nil {
		return "", err
	}
	file := filepath.Join(dir, "git-checkpoint")
	out, err := exec.Command("go", "build", "-o", file, "../../cmd/git-checkpoint").CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("%w\n%s", err, out)
	}
	return file, nil
})

func TestMain(m *testing.M) {
	code := m.Run()
	if file, err := binary(); err == nil {
		os.RemoveAll(filepath.Dir(file))
	}
	os.Exit(code)
}

// sandbox is a repository that a test works on with the real program and
// the real git.
type sandbox struct {
	*testing.T
	dir string
}

var environment = []string{
	"PATH=" + os.Getenv("PATH"), "HOME=/nonexistent", "LC_ALL=C", "TZ=UTC", "TMPDIR=" + os.TempDir(),
	"GIT_CONFIG_NOSYSTEM=1", "GIT_CONFIG_GLOBAL=" + os.DevNull, "GIT_OPTIONAL_LOCKS=0",
	"GIT_AUTHOR_NAME=A", "GIT_AUTHOR_EMAIL=a@example.com", "GIT_COMMITTER_NAME=A", "GIT_COMMITTER_EMAIL=a@example.com",
}

func (s sandbox) command(name string, args ...string) (*exec.Cmd, *bytes.Buffer, *bytes.Buffer) {
	var stdout, stderr bytes.Buffer
	cmd := exec.Command(name, args...)
	cmd.Dir, cmd.Env, cmd.Stdout, cmd.Stderr = s.dir, environment, &stdout, &stderr
	return cmd, &stdout, &stderr
}

// git runs git and fails the test where it fails.
func (s sandbox) git(args ...string) string {
	s.Helper()
	cmd, stdout, stderr := s.command("git", args...)
	if err := cmd.Run(); err != nil {
		s.Fatalf("git %s: %v\n%s", strings.Join(args, " "), err, stderr)
	}
	return stdout.String()
}

// ask runs git for an answer that may be no.
func (s sandbox) ask(args ...string) string {
	cmd, stdout, _ := s.command("git", args...)
	cmd.Run()
	return stdout.String()
}

// try runs git checkpoint and returns its exit code.
func (s sandbox) try(args ...string) (stdout, stderr string, code int) {
	s.Helper()
	cmd, out, errors := s.checkpointCommand(args...)
	err := cmd.Run()
	if err != nil && cmd.ProcessState == nil {
		s.Fatal(err)
	}
	return out.String(), errors.String(), cmd.ProcessState.ExitCode()
}

func (s sandbox) checkpointCommand(args ...string) (*exec.Cmd, *bytes.Buffer, *bytes.Buffer) {
	s.Helper()
	file, err := binary()
	if err != nil {
		s.Fatal(err)
	}
	return s.command(file, args...)
}

// checkpoint runs git checkpoint and fails the test where it fails.
func (s sandbox) checkpoint(args ...string) string {
	s.Helper()
	stdout, stderr, code := s.try(args...)
	if code != 0 {
		s.Fatalf("git checkpoint %s: exit code %d\n%s%s", strings.Join(args, " "), code, stdout, stderr)
	}
	return stdout
}

// steps runs git checkpoint and returns the durable steps that it went
// through; it is killed at the n-th.
func (s sandbox) steps(n int, args ...string) (steps []string, killed bool) {
	s.Helper()
	cmd, stdout, stderr := s.checkpointCommand(args...)
	cmd.Env = append(slices.Clone(environment), "GIT_CHECKPOINT_TRACE=1", "GIT_CHECKPOINT_KILL="+strconv.Itoa(n))
	err := cmd.Run()
	for line := range strings.Lines(stderr.String()) {
		if step, ok := strings.CutPrefix(line, "trace: step "); ok {
			steps = append(steps, strings.TrimSpace(step))
		}
	}
	status, _ := cmd.ProcessState.Sys().(syscall.WaitStatus)
	if status.Signaled() {
		return steps, true
	}
	if err != nil {
		s.Fatalf("git checkpoint %s, to be killed at step %d: %v\n%s%s", strings.Join(args, " "), n, err, stdout, stderr)
	}
	return steps, false
}

// killAfter runs git checkpoint and kills it, with the gits that it started,
// after a while.
func (s sandbox) killAfter(wait time.Duration, args ...string) {
	s.Helper()
	cmd, _, _ := s.checkpointCommand(args...)
	cmd.Stdout, cmd.Stderr = nil, nil // nothing to wait for when the children live longer
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		s.Fatal(err)
	}
	time.Sleep(wait)
	group := -cmd.Process.Pid
	syscall.Kill(group, syscall.SIGKILL)
	cmd.Wait()
	for syscall.Kill(group, 0) == nil {
		time.Sleep(time.Millisecond)
	}
}

// clone copies the repository, working tree and all.
func (s sandbox) clone() sandbox {
	s.Helper()
	to := filepath.Join(s.TempDir(), "repo")
	if out, err := exec.Command("cp", "-a", s.dir, to).CombinedOutput(); err != nil {
		s.Fatalf("copy: %v\n%s", err, out)
	}
	return sandbox{s.T, to}
}

func (s sandbox) write(path, content string) {
	s.Helper()
	file := filepath.Join(s.dir, path)
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		s.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(content), 0o644); err != nil {
		s.Fatal(err)
	}
}

func (s sandbox) link(target, path string) {
	s.Helper()
	if err := os.Symlink(target, filepath.Join(s.dir, path)); err != nil {
		s.Fatal(err)
	}
}

func (s sandbox) remove(paths ...string) {
	s.Helper()
	for _, p := range paths {
		if err := os.RemoveAll(filepath.Join(s.dir, p)); err != nil {
			s.Fatal(err)
		}
	}
}

func (s sandbox) chmod(path string, mode fs.FileMode) {
	s.Helper()
	if err := os.Chmod(filepath.Join(s.dir, path), mode); err != nil {
		s.Fatal(err)
	}
}

// world is everything that a save must not touch and a restore must bring
// back: by what it is, what it was found to be.
type world map[string]string

func (s sandbox) world() world {
	s.Helper()
	w := world{}
	err := filepath.WalkDir(s.dir, func(file string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			if d.Name() == ".git" {
				return fs.SkipDir
			}
			if entries, err := os.ReadDir(file); err == nil && len(entries) == 0 {
				w["empty directory "+file[len(s.dir):]] = ""
			}
			return nil
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		content, err := "", error(nil)
		if info.Mode()&fs.ModeSymlink != 0 {
			content, err = os.Readlink(file)
		} else {
			var data []byte
			data, err = os.ReadFile(file)
			content = string(data)
		}
		name, _ := filepath.Rel(s.dir, file)
		w["file "+name] = info.Mode().String() + " " + content
		return err
	})
	if err != nil {
		s.Fatal(err)
	}
	for _, line := range strings.Split(s.git("ls-files", "--stage", "-t", "-v", "-z"), "\x00") {
		if line != "" {
			w["index "+line] = ""
		}
	}
	for _, line := range strings.Split(s.git("status", "--porcelain=v2", "--untracked-files=all", "--ignored", "-z"), "\x00") {
		w["status "+line] = ""
	}
	for _, name := range []string{"MERGE_HEAD", "MERGE_MSG", "MERGE_MODE", "SQUASH_MSG", "CHERRY_PICK_HEAD", "REVERT_HEAD"} {
		data, err := os.ReadFile(filepath.Join(s.dir, ".git", name))
		if err == nil {
			w["state "+name] = string(data)
		} else if !errors.Is(err, fs.ErrNotExist) {
			s.Fatal(err)
		}
	}
	for line := range strings.Lines(s.git("for-each-ref", "--format=%(refname) %(objectname)", "refs/heads", "refs/tags", "refs/stash")) {
		w["ref "+line] = ""
	}
	w["HEAD"] = s.ask("symbolic-ref", "-q", "HEAD") + s.ask("rev-parse", "HEAD")
	w["CHECKPOINT_HEAD"] = s.ask("symbolic-ref", "-q", "CHECKPOINT_HEAD")
	return w
}

// differences lists what two worlds do not have in common.
func differences(got, want world) string {
	var b strings.Builder
	for _, key := range slices.Sorted(maps.Keys(want)) {
		if have, ok := got[key]; !ok {
			fmt.Fprintf(&b, "  missing: %q %q\n", key, want[key])
		} else if have != want[key] {
			fmt.Fprintf(&b, "  %q is %q, not %q\n", key, have, want[key])
		}
	}
	for _, key := range slices.Sorted(maps.Keys(got)) {
		if _, ok := want[key]; !ok {
			fmt.Fprintf(&b, "  too much: %q %q\n", key, got[key])
		}
	}
	lines := strings.SplitAfter(b.String(), "\n")
	if len(lines) > 20 {
		lines = append(lines[:20], "  …\n")
	}
	return strings.Join(lines, "")
}

// sound checks the repository, by verify and so by git fsck, and that git can
// work in it: no lock and nothing temporary of ours is left.
func (s sandbox) sound() {
	s.Helper()
	allowed := []string{"held", "lock", "refs-lock", "worktree-id", "index", "index.key", "unignored", "setup"}
	entries, _ := os.ReadDir(filepath.Join(s.dir, ".git", "checkpoint"))
	for _, e := range entries {
		if !slices.Contains(allowed, e.Name()) {
			s.Errorf("'%s' is left in .git/checkpoint", e.Name())
		}
	}
	filepath.WalkDir(filepath.Join(s.dir, ".git"), func(file string, d fs.DirEntry, err error) error {
		if strings.HasSuffix(file, ".lock") || d != nil && d.Name() == "packed-refs.new" {
			s.Errorf("'%s' is left", file)
		}
		return nil
	})
	if stdout, stderr, code := s.try("verify"); code != 0 {
		s.Errorf("git checkpoint verify: exit code %d\n%s%s", code, stdout, stderr)
	}
}

func (s sandbox) fsck() {
	s.Helper()
	cmd, stdout, stderr := s.command("git", "fsck", "--strict", "--no-dangling", "--no-progress")
	if err := cmd.Run(); err != nil || strings.Contains(stderr.String(), "error") {
		s.Errorf("git fsck: %v\n%s%s", err, stdout, stderr)
	}
}

// status is what git checkpoint status says of operations.
type status struct {
	Run        string
	Checkpoint string
	InProgress *struct{ Operation string } `json:"restore_in_progress"`
	Undo       int                         `json:"undo_available"`
	Redo       int                         `json:"redo_available"`
}

func (s sandbox) status() (st status) {
	s.Helper()
	if err := json.Unmarshal([]byte(s.checkpoint("status", "--json")), &st); err != nil {
		s.Fatal(err)
	}
	return st
}
