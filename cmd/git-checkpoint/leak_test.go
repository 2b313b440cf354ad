package main

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// S2.7: however many turns changed nothing, no file is left of them: not in the
// git directory, not in the place for temporary files, and refs and journals
// stay as they are.
func TestTurnsWithoutChangesLeaveNothing(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	temporary := t.TempDir()
	l.env = append(l.env, "TMPDIR="+temporary, "TMP="+temporary, "TEMP="+temporary)
	events := func(from, to int) {
		for n := from; n < to; n++ {
			l.feed(fmt.Sprintf(`{"type":"prompt","session_id":"s","prompt":"do","cwd":%s}`, quoted(l.dir)), "hook", "event")
			l.feed(fmt.Sprintf(`{"type":"turn-end","session_id":"s","turn_id":"%d","cwd":%s}`, n, quoted(l.dir)), "hook", "event")
		}
		var lines strings.Builder
		for n := from; n < 8*to; n++ {
			fmt.Fprintf(&lines, `{"type":"TurnCompleted","thread_id":"s","turn_id":"r%d","project_path":%s}`+"\n", n, quoted(l.dir))
		}
		out := l.feed(lines.String(), "react")
		if strings.Count(out, "no-changes") != 8*to-from {
			t.Errorf("react answers %s", out)
		}
	}
	events(0, 1)
	before, refs := files(t, l.dir, temporary), l.git("for-each-ref")
	events(1, 15)
	if after := files(t, l.dir, temporary); !slices.Equal(after, before) {
		t.Errorf("before:\n%s\nafter:\n%s", strings.Join(before, "\n"), strings.Join(after, "\n"))
	}
	if now := l.git("for-each-ref"); now != refs {
		t.Errorf("before:\n%s\nafter:\n%s", refs, now)
	}
}

// feed runs a command with something to read.
func (l *lab) feed(input string, args ...string) string {
	l.t.Helper()
	cmd := exec.Command("git-checkpoint", args...)
	var stderr strings.Builder
	cmd.Dir, cmd.Env, cmd.Stdin, cmd.Stderr = l.dir, l.env, strings.NewReader(input), &stderr
	out, err := cmd.Output()
	if err != nil || stderr.Len() > 0 {
		l.t.Errorf("%v: %v\n%s", args, err, stderr.String())
	}
	return string(out)
}

func quoted(s string) string {
	data, _ := json.Marshal(s)
	return string(data)
}

// files lists all files below some directories.
func files(t *testing.T, dirs ...string) (list []string) {
	for _, dir := range dirs {
		err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
			// What git said of the repository is remembered once its files are a few seconds old.
			if err == nil && !d.IsDir() && d.Name() != "setup" {
				list = append(list, path)
			}
			return err
		})
		if err != nil {
			t.Error(err)
		}
	}
	return list
}
