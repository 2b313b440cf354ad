package index

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/git-checkpoint/git-checkpoint/internal/gittest"
)

// repo is a repository of the real git, which judges what this package does.
type repo struct {
	t       testing.TB
	dir     string
	hashLen int
	env     []string
}

func newRepo(t testing.TB, hashLen int) *repo {
	t.Helper()
	base := t.TempDir()
	r := &repo{t: t, dir: filepath.Join(base, "work"), hashLen: hashLen}
	r.env = gittest.Env(base,
		"TZ=UTC", "GIT_CONFIG_GLOBAL="+os.DevNull, "GIT_OPTIONAL_LOCKS=0",
		"GIT_CONFIG_COUNT=1", "GIT_CONFIG_KEY_0=core.fsync", "GIT_CONFIG_VALUE_0=none",
		"GIT_AUTHOR_NAME=a", "GIT_AUTHOR_EMAIL=a@example.com", "GIT_AUTHOR_DATE=1700000000 +0000",
		"GIT_COMMITTER_NAME=c", "GIT_COMMITTER_EMAIL=c@example.com", "GIT_COMMITTER_DATE=1700000000 +0000",
	)
	if err := os.Mkdir(r.dir, 0o777); err != nil {
		t.Fatal(err)
	}
	r.git("init", "-q", "--template=", "--initial-branch=main", "--object-format="+map[int]string{20: "sha1", 32: "sha256"}[hashLen])
	return r
}

// run runs git and returns its output, whatever its exit status.
func (r *repo) run(stdin string, args ...string) (string, error) {
	cmd := exec.Command("git", args...)
	cmd.Dir, cmd.Env = r.dir, r.env
	cmd.Stdin = strings.NewReader(stdin)
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		err = fmt.Errorf("git %s: %w: %s", strings.Join(args, " "), err, stderr.String())
	}
	return string(out), err
}

func (r *repo) git(args ...string) string {
	r.t.Helper()
	return r.gitIn("", args...)
}

func (r *repo) gitIn(stdin string, args ...string) string {
	r.t.Helper()
	out, err := r.run(stdin, args...)
	if err != nil {
		r.t.Fatal(err)
	}
	return out
}

func (r *repo) write(path, content string) {
	r.t.Helper()
	gittest.Write(r.t, r.dir, path, content)
}

func (r *repo) commit(message string) {
	r.t.Helper()
	r.git("add", "-A")
	r.git("commit", "-q", "-m", message)
}

// indexInfo adds entries without files and objects.
func (r *repo) indexInfo(lines ...string) {
	r.t.Helper()
	r.gitIn(strings.Join(lines, "\x00")+"\x00", "update-index", "-z", "--index-info")
}

func (r *repo) indexPath() string { return filepath.Join(r.dir, ".git", "index") }

func (r *repo) indexBytes() []byte {
	r.t.Helper()
	data, err := os.ReadFile(r.indexPath())
	if err != nil {
		r.t.Fatal(err)
	}
	return data
}

func (r *repo) read() *Index {
	r.t.Helper()
	x, err := Read(r.indexPath(), r.hashLen)
	if err != nil {
		r.t.Fatal(err)
	}
	return x
}

func (r *repo) id(digit string) string { return strings.Repeat(digit, 2*r.hashLen) }

// entries returns the entries of the index as git sees them.
func (r *repo) entries() []Entry {
	r.t.Helper()
	return parseListing(r.t, r.git("ls-files", "--stage", "--debug", "-z"))
}

func parseListing(t testing.TB, out string) []Entry {
	t.Helper()
	var entries []Entry
	for out != "" {
		var e Entry
		head, rest, ok := strings.Cut(out, "\x00")
		if !ok {
			t.Fatalf("git ls-files: no end of the path in %q", out)
		}
		info, path, _ := strings.Cut(head, "\t")
		e.Path = path
		if _, err := fmt.Sscanf(info, "%o %s %d", &e.Mode, &e.ID, &e.Stage); err != nil {
			t.Fatalf("git ls-files: %q: %v", info, err)
		}
		var flags uint32
		s := &e.Stat
		lines := strings.SplitAfterN(rest, "\n", 6)
		if len(lines) != 6 {
			t.Fatalf("git ls-files: %q", rest)
		}
		if _, err := fmt.Sscanf(strings.Join(strings.Fields(strings.Join(lines[:5], " ")), " "),
			"ctime: %d:%d mtime: %d:%d dev: %d ino: %d uid: %d gid: %d size: %d flags: %x",
			&s.CTimeSec, &s.CTimeNsec, &s.MTimeSec, &s.MTimeNsec,
			&s.Dev, &s.Ino, &s.UID, &s.GID, &s.Size, &flags); err != nil {
			t.Fatalf("git ls-files: %q: %v", lines[:5], err)
		}
		e.AssumeUnchanged = flags&0x8000 != 0
		e.IntentToAdd = flags&(1<<29) != 0
		e.SkipWorktree = flags&(1<<30) != 0
		entries = append(entries, e)
		out = lines[5]
	}
	return entries
}

// symlink makes a symbolic link, and skips the test where the user may make none.
func (r *repo) symlink(target, path string) {
	r.t.Helper()
	if err := os.Symlink(target, filepath.Join(r.dir, path)); err != nil {
		r.t.Skip(err)
	}
}

// situations are indexes that git makes, each in a repository of its own.
var situations = []struct {
	title string
	// tracked says that all objects are there and the files are as in the
	// index, or differ from it in a way that git status tells.
	tracked bool
	make    func(r *repo)
	// holds is part of the file, to know that the situation is what it says.
	holds string
}{
	{"an index without entries", true, func(r *repo) {
		r.git("commit", "-q", "--allow-empty", "-m", "empty")
		r.git("read-tree", "--empty")
	}, "DIRC"},
	{"files, directories, a program and a symbolic link", true, func(r *repo) {
		makeFiles(r)
		r.git("add", "-A")
	}, "dir/sub/deep.txt"},
	{"a commit, after which the cache tree is valid", true, func(r *repo) {
		makeFiles(r)
		r.commit("one")
	}, "TREE"},
	{"a cache tree with invalid directories", true, func(r *repo) {
		makeFiles(r)
		r.commit("one")
		r.write("dir/sub/deep.txt", "changed")
		r.git("add", "-A")
	}, "TREE"},
	{"the flags that need version 3", true, func(r *repo) {
		makeFiles(r)
		r.commit("one")
		r.write("new.txt", "new")
		r.git("add", "-N", "new.txt")
		r.git("update-index", "--skip-worktree", "dir/b.txt")
	}, "\x00\x00\x00\x03"},
	{"a file assumed unchanged", true, func(r *repo) {
		makeFiles(r)
		r.commit("one")
		r.git("update-index", "--assume-unchanged", "a.txt")
		r.write("a.txt", "changed all the same")
	}, "a.txt"},
	{"a merge with conflicts", true, func(r *repo) {
		makeConflict(r)
	}, "both.txt"},
	{"a resolved conflict that git remembers", true, func(r *repo) {
		makeConflict(r)
		r.git("add", "-A")
	}, "REUC"},
	{"an untracked cache", true, func(r *repo) {
		makeFiles(r)
		r.commit("one")
		r.git("update-index", "--force-untracked-cache")
		r.env = append(r.env, "GIT_OPTIONAL_LOCKS=1")
		r.git("status")
		r.env = append(r.env, "GIT_OPTIONAL_LOCKS=0")
	}, "UNTR"},
	{"a record of where the entries end", true, func(r *repo) {
		makeFiles(r)
		r.git("config", "index.recordEndOfIndexEntries", "true")
		r.git("add", "-A")
	}, "EOIE"},
	{"a gitlink", false, func(r *repo) {
		r.indexInfo("160000 "+r.id("1")+"\tmodule", "100644 "+r.id("2")+"\tmodule.txt")
	}, "module"},
	{"names of bytes that are not letters", false, func(r *repo) {
		var lines []string
		for _, name := range []string{
			"new\nline", "tab\there", "quote\"back\\slash", " ", "-", "...", ".git1", ".gi", "a.git", "日本/語.txt",
			"\xff\xfe/\x80", "\x01\x7f", "a b/c d", "café", "cafe\u0301", "a-b", "a/b", "a0b", "a.b",
		} {
			lines = append(lines, "100644 "+r.id("a")+"\t"+name)
		}
		r.indexInfo(lines...)
	}, "new\nline"},
	{"names longer than the field for their length", false, func(r *repo) {
		var lines []string
		for _, n := range []int{1, 127, 128, 4094, 4095, 4096, 5000, 70000} {
			lines = append(lines, "100644 "+r.id("b")+"\t"+strings.Repeat("n", n), "100755 "+r.id("c")+"\tz"+fmt.Sprint(n))
		}
		lines = append(lines, "100644 "+r.id("b")+"\t"+strings.Repeat("d/", 2500)+"f")
		r.indexInfo(lines...)
	}, "nnnn"},
	{"names of every length up to the alignment and over", false, func(r *repo) {
		var lines []string
		for n := 1; n < 40; n++ {
			lines = append(lines, "100644 "+r.id("d")+"\t"+strings.Repeat("p", n))
		}
		r.indexInfo(lines...)
	}, "pppp"},
	{"stages without a merge", false, func(r *repo) {
		r.indexInfo(
			"100644 "+r.id("1")+" 1\tdeleted by us and them",
			"100644 "+r.id("1")+" 2\tfile", "100644 "+r.id("2")+" 1\tfile/directory",
			"120000 "+r.id("1")+" 3\tx", "100755 "+r.id("2")+" 1\tx", "160000 "+r.id("3")+" 2\tx",
		)
	}, "deleted by us"},
	{"blocks of entries for several threads", false, func(r *repo) {
		r.git("config", "index.threads", "2")
		var lines []string
		for i := range 500 {
			lines = append(lines, fmt.Sprintf("100644 %040x\tdir%d/sub/file%d", i+1, i%100, i))
		}
		if r.hashLen == 32 {
			for i := range lines {
				lines[i] = strings.Replace(lines[i], "\t", strings.Repeat("0", 24)+"\t", 1)
			}
		}
		r.indexInfo(lines...)
	}, "IEOT"},
}

func makeFiles(r *repo) {
	r.t.Helper()
	r.write("a.txt", "a")
	r.write("dir/b.txt", "bb")
	r.write("dir/sub/deep.txt", "ccc")
	r.write("dir.txt", "sorts between dir and its files")
	r.write("empty", "")
	r.write("other/e.txt", "e")
	r.write("run.sh", "#!/bin/sh\n")
	if err := os.Chmod(filepath.Join(r.dir, "run.sh"), 0o755); err != nil {
		r.t.Fatal(err)
	}
	r.symlink("dir/b.txt", "link")
}

func makeConflict(r *repo) {
	r.t.Helper()
	r.write("both.txt", "base\n")
	r.write("gone.txt", "base\n")
	r.write("same/same.txt", "same\n")
	r.commit("base")
	r.git("checkout", "-q", "-b", "side")
	r.write("both.txt", "theirs\n")
	r.write("added.txt", "theirs\n")
	r.write("gone.txt", "theirs\n")
	r.commit("theirs")
	r.git("checkout", "-q", "main")
	r.write("both.txt", "ours\n")
	r.write("added.txt", "ours\n")
	r.git("rm", "-q", "gone.txt")
	r.commit("ours")
	if out, err := r.run("", "merge", "side"); err == nil {
		r.t.Fatalf("git merge had no conflict: %s", out)
	}
}
