package restore

import (
	"bytes"
	"context"
	"io"
	"os"
	"path"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/git-checkpoint/git-checkpoint/internal/git"
	"github.com/git-checkpoint/git-checkpoint/internal/object"
	"github.com/git-checkpoint/git-checkpoint/internal/snapshot"
)

// plainFiles says whether every file is on disk as it is stored, now and in
// the target, so that it can be written without git: no setting and no
// attribute, wherever attributes may stand, asks for a conversion of any path.
// Where that is not certain, git does it.
func (p *Plan) plainFiles(ctx context.Context) (bool, error) {
	if why := convertsBySettings(p.repo); why != "" {
		git.Trace("restore: files by git (%s)", why)
		return false, nil
	}
	for _, file := range attributeFiles(p.repo) {
		data, err := os.ReadFile(file)
		if err != nil && !os.IsNotExist(err) || setsConversion(data) {
			git.Trace("restore: files by git (%s)", file)
			return false, nil
		}
	}
	var ids []string
	seen := map[string]bool{}
	for _, list := range []entries{p.have, p.want, p.snap.User.Entries} {
		for i := range list {
			if e := &list[i]; isAttributes(e.Path) && !seen[e.ID] {
				seen[e.ID] = true
				ids = append(ids, e.ID)
			}
		}
	}
	found := false
	err := object.ReadEach(ctx, p.store, ids, func(i int, _ object.Kind, _ int64, body io.Reader) error {
		data, err := io.ReadAll(body)
		found = found || setsConversion(data)
		return err
	})
	if err != nil || found || p.convertsOnDisk() {
		git.Trace("restore: files by git (.gitattributes)")
		return false, err
	}
	return true, nil
}

func isAttributes(name string) bool {
	return strings.HasSuffix(name, ".gitattributes") && path.Base(name) == ".gitattributes"
}

// convertsOnDisk looks at attributes that no index and no snapshot has, such
// as ignored ones, for the files that will be replaced or deleted.
func (p *Plan) convertsOnDisk() bool {
	seen := map[string]bool{}
	for _, list := range [][]string{p.Write, p.Delete} {
		for _, name := range list {
			for dir := path.Dir(name); !seen[dir]; dir = path.Dir(dir) {
				seen[dir] = true
				data, err := os.ReadFile(filepath.Join(snapshot.DiskPath(p.repo, dir), ".gitattributes"))
				if err == nil && setsConversion(data) {
					return true
				}
			}
		}
	}
	return false
}

// convertsBySettings says which setting makes git write files in its own way.
func convertsBySettings(repo *git.Repo) string {
	autocrlf, _ := repo.Config.Get("core.autocrlf")
	switch {
	case runtime.GOOS == "windows":
		return "windows"
	case strings.EqualFold(autocrlf, "input") || repo.Config.Bool("core.autocrlf", false):
		return "core.autocrlf"
	case !repo.Config.Bool("core.symlinks", true):
		return "core.symlinks"
	}
	if file, _ := repo.Config.Get("core.attributesfile"); strings.HasPrefix(file, "~") && !strings.HasPrefix(file, "~/") {
		return "core.attributesFile"
	}
	return ""
}

// attributeFiles are those outside the working tree: the repository's, the
// user's and the system's, which lies where git was built for.
func attributeFiles(repo *git.Repo) []string {
	files := []string{filepath.Join(repo.CommonDir, "info", "attributes"), "/etc/gitattributes"}
	for _, dir := range git.Places() {
		files = append(files, filepath.Join(dir, "etc", "gitattributes"))
	}
	home, _ := os.UserHomeDir()
	file, set := repo.Config.Get("core.attributesfile")
	if rest, ok := strings.CutPrefix(file, "~/"); ok {
		file = filepath.Join(home, rest)
	}
	if !set {
		base := os.Getenv("XDG_CONFIG_HOME")
		if base == "" {
			base = filepath.Join(home, ".config")
		}
		file = filepath.Join(base, "git", "attributes")
	}
	if file != "" {
		if !filepath.IsAbs(file) {
			file = filepath.Join(repo.Top, file)
		}
		files = append(files, file)
	}
	return files
}

// setsConversion says whether a file of attributes (gitattributes(5)) may ask
// for a conversion of some path. Every word is looked at, patterns too, and no
// macro is resolved: it may say so of a file that does not, not the reverse.
func setsConversion(data []byte) bool {
	for line := range bytes.Lines(data) {
		words := strings.FieldsFunc(string(line), func(r rune) bool { return strings.ContainsRune(" \t\r\n", r) })
		if len(words) == 0 || strings.HasPrefix(words[0], "#") {
			continue
		}
		for _, word := range words {
			name, _, _ := strings.Cut(word, "=")
			switch name {
			case "text", "eol", "crlf", "ident", "filter", "working-tree-encoding":
				return true
			}
		}
	}
	return false
}
