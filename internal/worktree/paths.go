package worktree

import (
	"context"
	"fmt"
	"maps"
	"os"
	"slices"
	"sort"
	"strings"

	"github.com/git-checkpoint/git-checkpoint/internal/fault"
	"github.com/git-checkpoint/git-checkpoint/internal/git"
	"github.com/git-checkpoint/git-checkpoint/internal/index"
	"github.com/git-checkpoint/git-checkpoint/internal/object"
	"github.com/git-checkpoint/git-checkpoint/internal/snapshot"
)

// matching resolves pathspecs, as git understands them from where the command
// runs, to paths of now and then.
func (w *Worktree) matching(ctx context.Context, pathspecs []string, now *captured, g *goal) ([]string, error) {
	all := map[string]index.Entry{}
	user, err := now.snap.User()
	if err != nil {
		return nil, err
	}
	for _, list := range [][]index.Entry{now.snap.Files.Entries, g.files.Files, user.Entries, g.state.Index.Entries} {
		for _, e := range list {
			all[e.Path] = index.Entry{Path: e.Path, Mode: index.ModeFile, ID: object.ID(w.git.ObjectFormat, object.Blob, nil)}
		}
	}
	// One list cannot hold a path both as file and directory; ask twice.
	lists := [2]map[string]index.Entry{{}, {}}
	for p, e := range all {
		i := 0
		for q := p; strings.Contains(q, "/"); {
			q = q[:strings.LastIndexByte(q, '/')]
			if _, clash := all[q]; clash {
				i = 1
			}
		}
		lists[i][p] = e
	}
	var files []string
	for i, list := range lists {
		x := &index.Index{}
		for _, e := range list {
			x.Entries = append(x.Entries, e)
		}
		file := w.home(fmt.Sprintf("index.%d.paths%d", os.Getpid(), i))
		defer os.Remove(file)
		if err := x.WriteFile(file, w.git.HashLen()); err != nil {
			return nil, fault.New(fault.Fatal, "io", "match paths: %w", err)
		}
		files = append(files, file)
	}
	paths, err := w.listMatching(ctx, files, pathspecs)
	if err != nil {
		return nil, err
	}
	return paths, w.matchEach(ctx, files, pathspecs)
}

// listMatching lists what pathspecs match in any of some index files.
func (w *Worktree) listMatching(ctx context.Context, files, pathspecs []string) ([]string, error) {
	found := map[string]bool{}
	for _, file := range files {
		names, err := w.lsFiles(ctx, file, nil, pathspecs).Lines()
		if err != nil {
			return nil, fault.New(fault.Invalid, "invalid-path", "match paths: %w", err)
		}
		for _, name := range names {
			found[name] = true
		}
	}
	if len(found) == 0 {
		return nil, fault.New(fault.NotFound, "no-such-path", "no file of the checkpoint or of the working tree matches '%s'", strings.Join(pathspecs, " "))
	}
	return slices.Sorted(maps.Keys(found)), nil
}

// matchEach refuses a pathspec that matches nothing: most likely it is a slip.
func (w *Worktree) matchEach(ctx context.Context, files, pathspecs []string) error {
	if w.lsFiles(ctx, files[0], []string{"--error-unmatch"}, pathspecs).Run() == nil {
		return nil
	}
	for _, p := range pathspecs {
		if strings.HasPrefix(p, ":!") || strings.HasPrefix(p, ":^") || strings.HasPrefix(p, ":(") && strings.Contains(p, "exclude") {
			continue
		}
		if _, err := w.listMatching(ctx, files, []string{p}); err != nil {
			return err
		}
	}
	return nil
}

func (w *Worktree) lsFiles(ctx context.Context, index string, options, pathspecs []string) *git.Cmd {
	args := append([]string{"ls-files", "-z", "--full-name"}, options...)
	c := w.git.Command(ctx, append(append(args, "--"), pathspecs...)...).WithIndex(index)
	c.Dir = w.git.CurrentDir()
	return c
}

// limit makes the goal equal to what is there, but for some paths. It returns
// these and those that have to go since a chosen path needs their place.
func limit(g *goal, now *captured, paths []string) ([]string, error) {
	user, err := now.snap.User()
	if err != nil {
		return nil, err
	}
	in := make(map[string]bool, len(paths))
	for _, p := range paths {
		in[p] = true
	}
	pick := func(then, here []index.Entry) []index.Entry {
		var list []index.Entry
		for _, e := range then {
			if in[e.Path] {
				list = append(list, e)
			}
		}
		for _, e := range here {
			if !in[e.Path] {
				list = append(list, e)
			}
		}
		return dropClashes(list, in)
	}
	absent := map[string]bool{}
	for p := range g.state.Absent {
		absent[p] = in[p]
	}
	g.files.Files = pick(g.files.Files, now.snap.Files.Entries)
	g.state = &snapshot.IndexState{
		Index:     &index.Index{Entries: pick(g.state.Index.Entries, user.Entries)},
		Operation: now.op,
		Absent:    absent,
	}
	for _, e := range now.snap.Files.Entries {
		if e.SkipWorktree && !in[e.Path] {
			g.state.Absent[e.Path] = true
		}
	}
	g.files.Absent, g.cache = g.state.Absent, nil
	for _, e := range now.snap.Files.Entries {
		if !has(g.files.Files, e.Path) {
			in[e.Path] = true
		}
	}
	for _, e := range user.Entries {
		if !has(g.state.Index.Entries, e.Path) {
			in[e.Path] = true
		}
	}
	return slices.Sorted(maps.Keys(in)), nil
}

// dropClashes sorts entries and removes those that a chosen path makes
// impossible: a file where it has a directory, or the other way round.
func dropClashes(list []index.Entry, chosen map[string]bool) []index.Entry {
	have := map[string]bool{}
	for _, e := range list {
		have[e.Path] = true
	}
	drop := map[string]bool{}
	for p := range have {
		for q := p; strings.Contains(q, "/"); {
			q = q[:strings.LastIndexByte(q, '/')]
			if !have[q] {
				continue
			}
			if chosen[p] {
				drop[q] = true
			} else {
				drop[p] = true
			}
		}
	}
	list = slices.DeleteFunc(list, func(e index.Entry) bool { return drop[e.Path] })
	sort.SliceStable(list, func(i, j int) bool {
		return list[i].Path < list[j].Path || list[i].Path == list[j].Path && list[i].Stage < list[j].Stage
	})
	return list
}
