package restore

import (
	"context"
	"io"
	"os"
	"path"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/git-checkpoint/git-checkpoint/internal/attributes"
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
	files, err := snapshot.AttributeFiles(p.repo)
	if err != nil {
		git.Trace("restore: files by git (%v)", err)
		return false, nil
	}
	for _, file := range files {
		data, err := snapshot.ReadRules(file)
		if err != nil && !os.IsNotExist(err) || !attributes.Plain(data) {
			git.Trace("restore: files by git (%s)", file)
			return false, nil
		}
	}
	var ids []string
	seen := map[string]bool{}
	add := func(id string) {
		if !seen[id] {
			seen[id] = true
			ids = append(ids, id)
		}
	}
	for _, list := range []entries{p.have, p.want} {
		for i := range list {
			if e := &list[i]; isAttributes(e.Path) {
				add(e.ID)
			}
		}
	}
	ofUser, err := p.snap.UserNamed(".gitattributes")
	if err != nil {
		return false, err
	}
	for _, id := range ofUser {
		add(id)
	}
	found := false
	err = object.ReadEach(ctx, p.store, ids, func(i int, _ object.Kind, _ int64, body io.Reader) error {
		data, err := io.ReadAll(body)
		found = found || !attributes.Plain(data)
		return err
	})
	if err != nil || found || p.convertsOnDisk() {
		git.Trace("restore: files by git (.gitattributes)")
		return false, err
	}
	return true, nil
}

func isAttributes(name string) bool { return snapshot.Named(name, ".gitattributes") }

// convertsOnDisk looks at attributes that no index and no snapshot has, such
// as ignored ones, for the files that will be replaced or deleted.
func (p *Plan) convertsOnDisk() bool {
	seen := map[string]bool{}
	for _, list := range [][]string{p.Write, p.Delete} {
		for _, name := range list {
			for dir := path.Dir(name); !seen[dir]; dir = path.Dir(dir) {
				seen[dir] = true
				data, err := snapshot.ReadRules(filepath.Join(snapshot.DiskPath(p.repo, dir), ".gitattributes"))
				if err == nil && !attributes.Plain(data) {
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
	return ""
}
