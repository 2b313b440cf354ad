package snapshot

import (
	"context"
	"encoding/hex"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/git-checkpoint/git-checkpoint/internal/git"
	"github.com/git-checkpoint/git-checkpoint/internal/object"
)

// isRepository says whether a directory of the working tree that holds a
// ".git" is a repository of its own for git (is_nonbare_repository_dir in its
// dir.c), which then keeps out of it.
func isRepository(dir string) (bool, error) {
	dotGit := filepath.Join(dir, ".git")
	fi, err := os.Stat(dotGit)
	if err != nil {
		return false, nil
	}
	if fi.Mode().IsRegular() {
		place, err := readGitFile(dotGit)
		if err != nil {
			return false, asidef("read '%s': %v", dotGit, err)
		}
		return place != "" && isGitDir(place), nil
	}
	return isGitDir(dotGit), nil
}

// inRepository says whether a path is in a repository inside the working tree,
// into which git does not look. It does where tracked files are in it: tracked
// says whether the user's index has paths below a directory.
func inRepository(repo *git.Repo, p string, tracked func(dir string) bool) bool {
	for dir := path.Dir(p); dir != "."; dir = path.Dir(dir) {
		if is, err := isRepository(DiskPath(repo, dir)); (is || err != nil) && !tracked(dir) {
			return true
		}
	}
	return false
}

// readGitFile returns the place that a file ".git" names, "" if it names none.
func readGitFile(file string) (string, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return "", err
	}
	place, ok := strings.CutPrefix(string(data), "gitdir: ")
	if place = strings.TrimRight(place, "\r\n"); !ok || place == "" {
		return "", nil
	}
	if !filepath.IsAbs(place) {
		place = filepath.Join(filepath.Dir(file), place)
	}
	return place, nil
}

// isGitDir says whether git takes a directory for that of a repository.
func isGitDir(dir string) bool {
	if !validHead(filepath.Join(dir, "HEAD")) {
		return false
	}
	common := dir
	if data, err := os.ReadFile(filepath.Join(dir, "commondir")); err == nil {
		common = strings.TrimRight(string(data), "\r\n")
		if !filepath.IsAbs(common) {
			common = filepath.Join(dir, common)
		}
	}
	for _, name := range []string{"objects", "refs"} {
		if _, err := os.Stat(filepath.Join(common, name)); err != nil {
			return false
		}
	}
	return true
}

func validHead(file string) bool {
	if target, err := os.Readlink(file); err == nil {
		return strings.HasPrefix(target, "refs/")
	}
	data, err := os.ReadFile(file)
	if err != nil {
		return false
	}
	if ref, ok := strings.CutPrefix(string(data), "ref:"); ok {
		return strings.HasPrefix(strings.TrimLeft(ref, " \t\r\n"), "refs/")
	}
	return len(data) >= 40 && object.IsID(strings.ToLower(string(data[:40])))
}

// headOf returns the commit that a repository inside the working tree is at:
// "" if it has none. Where the index has it (tracked), git does not ask
// whether the commit exists.
func headOf(ctx context.Context, repo *git.Repo, path string, tracked bool) (string, error) {
	dir := DiskPath(repo, path)
	if is, err := isRepository(dir); err != nil || !is {
		return "", err
	}
	revision := "HEAD^{commit}"
	if tracked {
		revision = "HEAD"
	}
	return nestedRevision(ctx, repo, dir, revision), nil
}

// nestedRevision asks git for a revision of a repository inside the working tree.
func nestedRevision(ctx context.Context, repo *git.Repo, dir, revision string) string {
	nested := repo.Command(ctx, "rev-parse", "--verify", "--quiet", revision)
	nested.Dir = dir
	nested.Env = append(nested.Env, "GIT_DIR="+filepath.Join(dir, ".git"), "GIT_WORK_TREE="+dir)
	id, err := nested.Text()
	if err != nil || len(id) != 2*repo.HashLen() {
		return ""
	}
	return id
}

// mustID is the id that git printed, as bytes.
func mustID(id string) (b [20]byte) {
	hex.Decode(b[:], []byte(id))
	return b
}
