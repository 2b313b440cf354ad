package restore

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/git-checkpoint/git-checkpoint/internal/fault"
	"github.com/git-checkpoint/git-checkpoint/internal/git"
	"github.com/git-checkpoint/git-checkpoint/internal/index"
	"github.com/git-checkpoint/git-checkpoint/internal/object"
	"github.com/git-checkpoint/git-checkpoint/internal/snapshot"
)

func TestMain(m *testing.M) {
	for name, value := range map[string]string{
		"HOME": os.TempDir(), "XDG_CONFIG_HOME": os.TempDir(), "GIT_CONFIG_NOSYSTEM": "1", "GIT_CONFIG_GLOBAL": os.DevNull,
		"GIT_AUTHOR_NAME": "A", "GIT_AUTHOR_EMAIL": "a@example.com", "GIT_COMMITTER_NAME": "A", "GIT_COMMITTER_EMAIL": "a@example.com",
	} {
		os.Setenv(name, value)
	}
	os.Exit(m.Run())
}

// place is a repository with a working tree.
type place struct {
	*testing.T
	dir   string
	repo  *git.Repo
	store object.Store
}

func newPlace(t *testing.T, settings ...string) *place {
	t.Helper()
	p := &place{T: t, dir: t.TempDir()}
	p.git("", "init", "-q", "-b", "main")
	for i := 0; i+1 < len(settings); i += 2 {
		p.git("", "config", settings[i], settings[i+1])
	}
	if err := os.Mkdir(filepath.Join(p.dir, ".git", "checkpoint"), 0o777); err != nil {
		t.Fatal(err)
	}
	var err error
	if p.repo, err = git.Open(t.Context(), p.dir); err != nil {
		t.Fatal(err)
	}
	p.store = object.Open(p.repo)
	t.Cleanup(func() { p.store.Close() })
	return p
}

func (p *place) git(input string, args ...string) string {
	p.Helper()
	cmd := exec.Command("git", args...)
	var stderr bytes.Buffer
	cmd.Dir, cmd.Stdin, cmd.Stderr = p.dir, strings.NewReader(input), &stderr
	out, err := cmd.Output()
	if err != nil {
		p.Fatalf("git %s: %v\n%s", args, err, &stderr)
	}
	return strings.TrimSpace(string(out))
}

func (p *place) write(name, content string) {
	p.Helper()
	file := filepath.Join(p.dir, name)
	if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o777), os.WriteFile(file, []byte(content), 0o666)); err != nil {
		p.Fatal(err)
	}
}

// blob stores content and returns the entry of a file that has it.
func (p *place) blob(path, content string) index.Entry {
	p.Helper()
	return index.Entry{Path: path, Mode: index.ModeFile, ID: p.git(content, "hash-object", "-w", "--stdin")}
}

func (p *place) prepare(files ...index.Entry) (*Plan, error) {
	p.Helper()
	snap, err := (&snapshot.ByGit{Repo: p.repo}).Take(p.Context(), snapshot.Options{Exact: true})
	if err != nil {
		p.Fatal(err)
	}
	p.Cleanup(snap.Discard)
	plan, err := Prepare(p.Context(), p.repo, p.store, Target{Files: files}, snap)
	if err == nil {
		p.Cleanup(plan.Discard)
	}
	return plan, err
}

func code(err error) string {
	var f *fault.Error
	if errors.As(err, &f) {
		return f.Code
	}
	return ""
}

func TestVerifyFindsWhatSomebodyElseChanged(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		before, after map[string]string // what is written before and after Apply
		remove        string
		want          string
	}{
		"nothing":                       {},
		"a file that is left":           {before: map[string]string{"dir/left": "other\n"}, want: "dir/left"},
		"a file that was written":       {after: map[string]string{"changed": "other\n"}, want: "changed"},
		"a file that was deleted":       {after: map[string]string{"deleted": "again\n"}, want: "deleted"},
		"a file that is left, removed":  {remove: "dir/left", want: "dir/left"},
		"two files that were written":   {after: map[string]string{"changed": "other\n", "new": "other\n"}, want: "'changed' and 1 more"},
		"a file that the tree does not": {before: map[string]string{"elsewhere": "new\n"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newPlace(t)
			p.write("changed", "one\n")
			p.write("deleted", "gone\n")
			p.write("dir/left", "left\n")
			p.git("", "add", "-A")
			plan, err := p.prepare(p.blob("changed", "two\n"), p.blob("dir/left", "left\n"), p.blob("new", "new\n"))
			if err != nil {
				t.Fatal(err)
			}
			for name, content := range c.before {
				p.write(name, content)
			}
			if c.remove != "" {
				os.Remove(filepath.Join(p.dir, c.remove))
			}
			if err := plan.Apply(); err != nil {
				t.Fatal(err)
			}
			for name, content := range c.after {
				p.write(name, content)
			}
			err = plan.Verify()
			if c.want == "" && err != nil || c.want != "" && (code(err) != "file-changed" || !strings.Contains(err.Error(), c.want)) {
				t.Errorf("verify: %v", err)
			}
		})
	}
}

// A change just before a file is replaced must not be lost.
func TestApplyStopsAtAChange(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	p.write("a", "one\n")
	plan, err := p.prepare(p.blob("a", "two\n"))
	if err != nil {
		t.Fatal(err)
	}
	p.write("a", "three\n") // what was written beside it goes again
	if err := plan.Apply(); code(err) != "file-changed" {
		t.Errorf("apply: %v", err)
	}
	if data, _ := os.ReadFile(filepath.Join(p.dir, "a")); string(data) != "three\n" {
		t.Errorf("'a' holds %q", data)
	}
	if list := p.git("", "ls-files", "--others"); list != "a" {
		t.Errorf("the working tree holds %q", list)
	}
}

func TestStage(t *testing.T) {
	t.Parallel()
	big := strings.Repeat("0123456789abcdef", holdMost/16/2+1) // twice that does not fit
	t.Run("large files and copies", func(t *testing.T) {
		t.Parallel()
		p := newPlace(t)
		exec := p.blob("big-tool", big)
		exec.Mode = index.ModeExecutable
		plan, err := p.prepare(p.blob("big", big), exec, p.blob("small", "x"), p.blob("small-too", "x"))
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(plan.Apply(), plan.Verify()); err != nil {
			t.Fatal(err)
		}
		p.git("", "add", "-A")
		if got, want := p.git("", "ls-files", "-s"), "100644 "+exec.ID+" 0\tbig\n100755 "+exec.ID+" 0\tbig-tool\n"; !strings.HasPrefix(got, want) {
			t.Errorf("git has\n%s\nnot\n%s", got, want)
		}
	})
	t.Run("two names that are one", func(t *testing.T) {
		t.Parallel()
		// A disk that does not tell case gives the second name the first
		// one's place; so does the same name.
		p := newPlace(t, "core.ignorecase", "true")
		plan := &Plan{repo: p.repo, store: p.store, stage: t.TempDir()}
		err := plan.writeStage(t.Context(), []index.Entry{p.blob("dir/a", "1"), p.blob("dir/a", "2")})
		if code(err) != "files-collide" {
			t.Errorf("stage: %v", err)
		}
	})
	t.Run("a file that is missing", func(t *testing.T) {
		t.Parallel()
		p := newPlace(t)
		if _, err := p.prepare(index.Entry{Path: "a", Mode: index.ModeFile, ID: strings.Repeat("12", 20)}); code(err) != "files-unavailable" {
			t.Errorf("prepare: %v", err)
		}
		if left, _ := filepath.Glob(filepath.Join(p.dir, ".git", "checkpoint", "stage-*")); len(left) > 0 {
			t.Errorf("left: %q", left)
		}
	})
	t.Run("a file that is damaged", func(t *testing.T) {
		t.Parallel()
		p := newPlace(t)
		e, other := p.blob("a", "one"), p.blob("b", "two")
		loose := func(id string) string { return filepath.Join(p.dir, ".git", "objects", id[:2], id[2:]) }
		os.Remove(loose(e.ID))
		if err := os.MkdirAll(filepath.Dir(loose(e.ID)), 0o777); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(loose(other.ID), loose(e.ID)); err != nil {
			t.Fatal(err)
		}
		if _, err := p.prepare(e); code(err) != "files-unavailable" {
			t.Errorf("prepare: %v", err)
		}
	})
}

// A file takes whole blocks, and one of the files that there is room for.
func TestSpace(t *testing.T) {
	t.Parallel()
	s := space{blocks: 5, block: 4096, files: 4}
	for i, c := range []struct {
		size, count int64
		want        bool
	}{{1, 2, true}, {4097, 2, false}, {4097, 1, true}, {0, 2, false}, {0, 1, true}, {1, 1, false}} {
		if got := s.take(c.size, c.count); got != c.want {
			t.Errorf("%d: %d files of %d bytes fit: %t; %+v is left", i, c.count, c.size, got, s)
		}
	}
	if (&space{}).take(0, 1) {
		t.Error("where nothing is known there is no room")
	}
}
