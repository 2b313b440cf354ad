//go:build unix

package worktree_test

import (
	"fmt"
	"maps"
	"math/rand"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
)

// generated are files by path: "<mode> <content>".
type generated map[string]string

// generate makes up files whose paths are near to each other, so that files
// and directories take each other's places.
func generate(r *rand.Rand, from generated) generated {
	parts := []string{"a", "a-", "a.b", "a0", "b", "-c", " sp ace", "new\nline", "\x01", "q\"'\\", ":(top)"}
	if runtime.GOOS == "linux" {
		parts = append(parts, "\xff\xfe", "A") // other file systems may not take these
	}
	path := func() string {
		list := make([]string, 1+r.Intn(4))
		for i := range list {
			list[i] = parts[r.Intn(len(parts))]
		}
		return strings.Join(list, "/")
	}
	file := func() string {
		return []string{"100644", "100755", "120000"}[r.Intn(3)] + " " + strings.Repeat(fmt.Sprint("text ", r.Intn(5), "\n"), 1+r.Intn(3))
	}
	g := maps.Clone(from)
	for p := range from {
		switch r.Intn(6) {
		case 0:
			delete(g, p)
		case 1:
			g[p] = file()
		}
	}
	for range 40 {
		g.put(path(), file())
	}
	g.put("empty", "100644 ")
	return g
}

// put adds a file in the place of whatever is in its way.
func (g generated) put(path, file string) {
	for p := range g {
		if strings.HasPrefix(p, path+"/") || strings.HasPrefix(path, p+"/") {
			delete(g, p)
		}
	}
	g[path] = file
}

// commit makes a commit of files, without a look at the working tree.
func (s sandbox) commit(g generated) string {
	s.Helper()
	var input strings.Builder
	for _, path := range slices.Sorted(maps.Keys(g)) {
		mode, content, _ := strings.Cut(g[path], " ")
		cmd, id, stderr := s.command("git", "hash-object", "-w", "--stdin")
		cmd.Stdin = strings.NewReader(content)
		if err := cmd.Run(); err != nil {
			s.Fatalf("%v\n%s", err, stderr)
		}
		fmt.Fprintf(&input, "%s %s 0\t%s\x00", mode, strings.TrimSpace(id.String()), path)
	}
	index := "GIT_INDEX_FILE=" + filepath.Join(s.TempDir(), "index")
	add, _, stderr := s.command("git", "update-index", "-z", "--index-info")
	add.Env, add.Stdin = append(slices.Clone(environment), index), strings.NewReader(input.String())
	if err := add.Run(); err != nil {
		s.Fatalf("%v\n%s", err, stderr)
	}
	write, tree, stderr := s.command("git", "write-tree")
	write.Env = add.Env
	if err := write.Run(); err != nil {
		s.Fatalf("%v\n%s", err, stderr)
	}
	return strings.TrimSpace(s.git("commit-tree", "-m", "generated", strings.TrimSpace(tree.String())))
}

// checkedOut is what git makes of a commit, elsewhere.
func (s sandbox) checkedOut(commit string) world {
	s.Helper()
	there := sandbox{s.T, filepath.Join(s.TempDir(), "judge")}
	if err := os.CopyFS(filepath.Join(there.dir, ".git"), os.DirFS(filepath.Join(s.dir, ".git"))); err != nil {
		s.Fatal(err)
	}
	there.remove(".git/index")
	there.git("checkout", "-q", "--force", "--detach", commit)
	return there.onlyFiles()
}

// onlyFiles are the files of a world, and what the index has of them.
func (s sandbox) onlyFiles() world {
	w := s.world()
	maps.DeleteFunc(w, func(key, _ string) bool {
		return !strings.HasPrefix(key, "file ") && !strings.HasPrefix(key, "index ") && !strings.HasPrefix(key, "empty ")
	})
	return w
}

// restoreTraced restores a revision and says whether git wrote the files.
func (s sandbox) restoreTraced(args ...string) (byGit bool) {
	s.Helper()
	cmd, stdout, stderr := s.checkpointCommand(append([]string{"restore"}, args...)...)
	cmd.Env = append(slices.Clone(environment), "GIT_CHECKPOINT_TRACE=1")
	if err := cmd.Run(); err != nil {
		s.Fatalf("git checkpoint restore %s: %v\n%s%s", args, err, stdout, stderr)
	}
	return strings.Contains(stderr.String(), " git checkout-index ")
}

// cleanIndex checks that git finds the files as the index says, and that the
// cache tree of the index is that of its entries.
func (s sandbox) cleanIndex(commit string) {
	s.Helper()
	if out := s.git("diff-files", "--name-only"); out != "" {
		s.Errorf("git takes files for changed:\n%s", out)
	}
	if got, want := s.git("write-tree"), s.git("rev-parse", commit+"^{tree}"); got != want {
		s.Errorf("the index is tree %s, not %s", got, want)
	}
	data, err := os.ReadFile(filepath.Join(s.dir, ".git", "index"))
	if err != nil {
		s.Fatal(err)
	}
	if !strings.Contains(string(data), "TREE") {
		s.Error("the index has no cache tree")
	}
	again := filepath.Join(s.TempDir(), "index")
	if err := os.WriteFile(again, data, 0o666); err != nil {
		s.Fatal(err)
	}
	cmd, _, stderr := s.command("git", "update-index", "--force-write-index")
	cmd.Env = append(slices.Clone(environment), "GIT_INDEX_FILE="+again, "GIT_TEST_CHECK_CACHE_TREE=1")
	if err := cmd.Run(); err != nil {
		s.Errorf("git does not like the cache tree: %v\n%s", err, stderr)
	}
}

// TestRestoreIsWhatGitChecksOut restores generated trees and compares with
// what git makes of them: modes, links, bytes, names, directories in the
// place of files, and the index.
func TestRestoreIsWhatGitChecksOut(t *testing.T) {
	t.Parallel()
	for _, format := range []string{"sha1", "sha256"} {
		t.Run(format, func(t *testing.T) {
			t.Parallel()
			s := sandbox{t, t.TempDir()}
			s.git("init", "-q", "-b", "main", "--object-format="+format)
			r := rand.New(rand.NewSource(8))
			first := generate(r, generated{})
			second := generate(r, first)
			for i, g := range []generated{first, second, first, {}, second} {
				commit := s.commit(g)
				if s.restoreTraced("rev:" + commit) {
					t.Error("the files were written by git")
				}
				if d := differences(s.onlyFiles(), sandbox{t, s.dir}.checkedOut(commit)); d != "" {
					t.Fatalf("restore %d is not what git checks out:\n%s", i, d)
				}
				if len(g) > 0 {
					s.cleanIndex(commit)
				}
			}
			// And back, four times; the fifth was made from nothing.
			for i, g := range []generated{{}, first, second, first, {}} {
				s.checkpoint("undo")
				if d := differences(s.onlyFiles(), s.checkedOut(s.commit(g))); d != "" {
					t.Fatalf("undo %d is not what git checks out:\n%s", i, d)
				}
			}
		})
	}
}

// TestRestoreConvertsAsGitDoes has the attributes and settings that make git
// write other bytes than it stored.
func TestRestoreConvertsAsGitDoes(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		attributes, attributesPath string
		setting                    []string
		byGit                      bool
	}{
		"eol":              {"*.txt text eol=crlf\n", ".gitattributes", nil, true},
		"eol below":        {"b.txt eol=crlf\n", "dir/.gitattributes", nil, true},
		"ident":            {"# a comment\n*.txt ident\n", ".gitattributes", nil, true},
		"encoding":         {"*.txt working-tree-encoding=UTF-16LE\n", ".gitattributes", nil, true},
		"macro":            {"[attr]mine text eol=crlf\n*.txt mine\n", ".gitattributes", nil, true},
		"filter":           {"*.txt filter=rot\n", ".gitattributes", []string{"filter.rot.smudge", "tr a-zA-Z n-za-mN-ZA-M", "filter.rot.clean", "tr a-zA-Z n-za-mN-ZA-M"}, true},
		"autocrlf":         {"", "", []string{"core.autocrlf", "true"}, true},
		"none":             {"# text=auto is what we do not want\n*.txt -text diff=word !eol\n*.png binary\n", ".gitattributes", nil, false},
		"in git directory": {"*.txt text eol=crlf\n", ".git/info/attributes", nil, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := sandbox{t, t.TempDir()}
			s.git("init", "-q", "-b", "main")
			g := generated{"a.txt": "100644 one\ntwo $Id$\n", "dir/b.txt": "100755 three\nfour\n"}
			if c.attributesPath == ".git/info/attributes" {
				s.write(c.attributesPath, c.attributes)
			} else if c.attributesPath != "" {
				g[c.attributesPath] = "100644 " + c.attributes
			}
			for i := 0; i+1 < len(c.setting); i += 2 {
				s.git("config", c.setting[i], c.setting[i+1])
			}
			commit := s.commit(g)
			if byGit := s.restoreTraced("rev:" + commit); byGit != c.byGit {
				t.Errorf("written by git: %v", byGit)
			}
			if d := differences(s.onlyFiles(), s.checkedOut(commit)); d != "" {
				t.Errorf("this is not what git checks out:\n%s", d)
			}
			s.cleanIndex(commit)
		})
	}
}
