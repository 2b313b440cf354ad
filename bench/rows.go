package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
)

// row is one line of the table.
type row struct {
	name   string
	git    string   // what git's side does
	target string   // DESIGN.md, "Speed"
	in     []string // the repositories that it is measured in
	byGit  bool     // ours is measured with snapshots by git too
	sides  func(b *bench, dir string) (ours, git side, err error)
}

var rows = []row{
	{"start", "an empty Go program", "", []string{"small"}, false, startUp},
	{"hook", "an empty Go program", "≤ 8 ms more", []string{"small"}, false, hook},
	{"save-nothing", "status", "≤ 0.50", []string{"small", "r1", "r2", "untracked", "ignored", "big"}, true, saveNothing},
	{"save-nothing-cold", "status", "", []string{"r1", "r2"}, true, cold(saveNothing)},
	{"save-1", "add, write-tree, commit-tree, update-ref", "≤ 0.35; small: ≤ 8 ms", []string{"small", "r1", "r2", "untracked", "ignored"}, true, saveChanged(1, privateIndex)},
	{"save-1-fresh-index", "read-tree HEAD, add, write-tree, commit-tree, update-ref", "", []string{"small", "r1", "r2"}, false, saveChanged(1, freshIndex)},
	{"save-1-shadow", "add, commit in another git directory", "", []string{"small", "r1", "r2"}, false, saveChanged(1, shadow)},
	{"save-1-stash", "stash create, stash store", "", []string{"small", "r1", "r2"}, false, saveChanged(1, stash)},
	{"save-1000", "add, write-tree, commit-tree, update-ref", "≤ 0.25", []string{"r1", "r2"}, true, saveChanged(1000, privateIndex)},
	{"restore", "read-tree -u -m", "≤ 0.6", []string{"small", "r1", "r2"}, true, restore(1000)},
	{"log", "log with notes", "≤ 0.6", []string{"small"}, false, log(10_000)},
	{"first-save", "add -A", "≤ 0.10", []string{"big"}, true, firstSave},
}

// errSkip is in the error of a row that cannot be measured here.
var errSkip = errors.New("skipped")

// checkpoint is git checkpoint in a repository, for side.work. It saves files
// of any size.
func (b *bench) checkpoint(dir string, args ...string) func() error {
	return func() error {
		return command(dir, b.binary, args...).with("GIT_CHECKPOINT_SNAPSHOT", b.way).with("GIT_CHECKPOINT_SNAPSHOT_MAX_FILE_SIZE", "0").run()
	}
}

func startUp(b *bench, dir string) (ours, git side, err error) {
	return side{work: b.checkpoint(dir, "version")}, side{work: func() error { return command(dir, b.empty).run() }}, nil
}

// hook is the end of an agent's turn in which nothing has changed.
func hook(b *bench, dir string) (ours, git side, err error) {
	event := func(name string) func() error {
		data, err := json.Marshal(map[string]string{"session_id": "bench", "prompt_id": "turn", "cwd": dir, "hook_event_name": name})
		return func() error { return errors.Join(err, b.checkpoint(dir, "hook", "claude", string(data))()) }
	}
	err = event("SessionStart")()
	return side{work: event("Stop")}, side{work: func() error { return command(dir, b.empty).run() }}, err
}

func saveNothing(b *bench, dir string) (ours, git side, err error) {
	err = b.checkpoint(dir, "save")()
	ours = side{work: b.checkpoint(dir, "save")}
	git = side{work: func() error { return command(dir, "git", "status").run() }}
	return ours, git, err
}

// cold lets both sides of a row find nothing in memory, not their programs either.
func cold(row func(b *bench, dir string) (ours, git side, err error)) func(b *bench, dir string) (ours, git side, err error) {
	return func(b *bench, dir string) (ours, git side, err error) {
		if ours, git, err = row(b, dir); err != nil {
			return ours, git, err
		}
		ours.prepare, git.prepare = dropCaches, dropCaches
		if err := dropCaches(); err != nil {
			return ours, git, fmt.Errorf("%w: %w", errSkip, err)
		}
		return ours, git, nil
	}
}

// dropCaches lets Linux forget all files. Only root may say so.
func dropCaches() error {
	return errors.Join(command("", "sync").run(), os.WriteFile("/proc/sys/vm/drop_caches", []byte("3\n"), 0))
}

// saveChanged changes files before each save. git's side saves them by a
// procedure, which is made ready first.
func saveChanged(count int, procedure func(b *bench, dir string) (save func() error, err error)) func(b *bench, dir string) (ours, git side, err error) {
	return func(b *bench, dir string) (ours, git side, err error) {
		files, err := some(dir, count)
		if err != nil {
			return ours, git, err
		}
		if err := b.checkpoint(dir, "save")(); err != nil {
			return ours, git, err
		}
		save, err := procedure(b, dir)
		prepare := func() error { return change(files) }
		return side{prepare, b.checkpoint(dir, "save")}, side{prepare, save}, err
	}
}

// privateIndex is an index that is kept from one save to the next, as ours is.
func privateIndex(_ *bench, dir string) (save func() error, err error) {
	index := filepath.Join(dir, ".git", "bench-index")
	err = copyFile(filepath.Join(dir, ".git", "index"), index)
	return func() error { return saveIndex(dir, index) }, err
}

// freshIndex is an index that knows no file's stat data, made for each save.
func freshIndex(_ *bench, dir string) (save func() error, err error) {
	index := filepath.Join(dir, ".git", "bench-fresh-index")
	return func() error {
		defer os.Remove(index)
		if err := command(dir, "git", "read-tree", "HEAD").with("GIT_INDEX_FILE", index).run(); err != nil {
			return err
		}
		return saveIndex(dir, index)
	}, nil
}

// saveIndex adds all files to an index and makes a commit of it, which a ref keeps.
func saveIndex(dir, index string) error {
	git := func(args ...string) (string, error) {
		out, err := command(dir, "git", args...).with("GIT_INDEX_FILE", index).output()
		return strings.TrimSpace(out), err
	}
	if _, err := git("add", "-A"); err != nil {
		return err
	}
	tree, err := git("write-tree")
	if err != nil {
		return err
	}
	commit, err := git("commit-tree", "-p", "HEAD", "-m", "checkpoint", tree)
	if err != nil {
		return err
	}
	_, err = git("update-ref", "refs/bench/checkpoint", commit)
	return err
}

// shadow is a git directory elsewhere, with the same working tree.
func shadow(b *bench, dir string) (save func() error, err error) {
	git := func(args ...string) error {
		return command(dir, "git", args...).with("GIT_DIR", filepath.Join(b.dir, "shadow.git")).with("GIT_WORK_TREE", dir).run()
	}
	commit := func() error { return errors.Join(git("add", "-A"), git("commit", "-q", "-m", "checkpoint")) }
	err = errors.Join(
		os.RemoveAll(filepath.Join(b.dir, "shadow.git")),
		git("init", "-q"),
		git("config", "gc.auto", "0"), // nothing in the background
		commit(),
		git("gc", "-q"),
	)
	return commit, err
}

// stash keeps a commit of the tracked files, and leaves them as they are.
func stash(_ *bench, dir string) (save func() error, err error) {
	return func() error {
		commit, err := command(dir, "git", "stash", "create").output()
		if err != nil {
			return err
		}
		return command(dir, "git", "stash", "store", "-q", strings.TrimSpace(commit)).run()
	}, nil
}

func copyFile(from, to string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.Create(to)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Close())
}

// restore goes to and fro between two states, which both sides can do from
// where the other left off. Ours makes a safety checkpoint on the way.
func restore(count int) func(b *bench, dir string) (ours, git side, err error) {
	return func(b *bench, dir string) (ours, git side, err error) {
		files, err := some(dir, count)
		if err != nil {
			return ours, git, err
		}
		err = errors.Join(
			b.checkpoint(dir, "save", "--run", "restore", "--step", "before")(),
			change(files),
			command(dir, "git", "add", "-A").run(),
			b.checkpoint(dir, "save", "--run", "restore", "--step", "after")(),
		)
		trees := map[string]string{}
		for name, revision := range map[string]string{"before": "HEAD^{tree}", "after": ""} {
			args := []string{"rev-parse", revision}
			if revision == "" {
				args = []string{"write-tree"}
			}
			out, failed := command(dir, "git", args...).output()
			trees[name], err = strings.TrimSpace(out), errors.Join(err, failed)
		}
		at := "after"
		turn := func() (from, to string) {
			from, to = at, map[string]string{"before": "after", "after": "before"}[at]
			at = to
			return from, to
		}
		ours = side{work: func() error {
			_, to := turn()
			return b.checkpoint(dir, "restore", "restore@"+to)()
		}}
		git = side{work: func() error {
			from, to := turn()
			return command(dir, "git", "read-tree", "-u", "-m", trees[from], trees[to]).run()
		}}
		return ours, git, err
	}
}

func log(count int) func(b *bench, dir string) (ours, git side, err error) {
	return func(b *bench, _ string) (ours, git side, err error) {
		// A repository beside, so that the other rows do not have its objects.
		dir, err := b.repository(repositories["small"], "log")
		if err == nil {
			err = longRun(dir, "long", count)
		}
		ours = side{work: b.checkpoint(dir, "log", "long")}
		git = side{work: func() error {
			return command(dir, "git", "log", "--first-parent", "--notes=checkpoints/long", "refs/checkpoints/runs/long").run()
		}}
		return ours, git, err
	}
}

// firstSave has files that no repository knows yet.
func firstSave(b *bench, dir string) (ours, git side, err error) {
	forget := func() error {
		return errors.Join(os.RemoveAll(filepath.Join(dir, ".git")), command(dir, "git", "init", "-q", "-b", "main").run())
	}
	return side{forget, b.checkpoint(dir, "save")}, side{forget, func() error { return command(dir, "git", "add", "-A").run() }}, nil
}
