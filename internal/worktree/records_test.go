//go:build unix

package worktree_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// What log --json tells of a long run, whose records are read in bulk, is
// what git shows of its notes; and a record that is
// missing or damaged is warned of. (N.8)
func TestLogTellsWhatNotesSay(t *testing.T) {
	t.Parallel()
	s := sandbox{t, t.TempDir()}
	s.git("init", "-q")
	const count = 40
	var want []string
	for i := range count {
		s.write("file", fmt.Sprint(i))
		args := []string{"save", "--run", "long", "--step", fmt.Sprint("step ", i%3)}
		if i%5 == 0 {
			args = append(args, "--artifact", fmt.Sprintf("log=https://example.org/%d", i))
		}
		if i%7 == 0 {
			args = append(args, "--replay", "always")
		}
		s.checkpoint(args...)
		want = append(want, strings.TrimSpace(s.git("rev-parse", "refs/checkpoints/runs/long")))
	}
	check := func() {
		t.Helper()
		seen := 0
		for line := range strings.Lines(s.checkpoint("log", "long", "--json")) {
			var e struct {
				Checkpoint, Replay string
				Artifacts          json.RawMessage
			}
			if err := json.Unmarshal([]byte(line), &e); err != nil {
				t.Fatal(err)
			}
			seen++
			if id := want[count-seen]; e.Checkpoint != id {
				t.Fatalf("line %d is checkpoint %s, git has %s", seen, e.Checkpoint, id)
			}
			var note struct {
				Replay    string
				Artifacts json.RawMessage
			}
			if err := json.Unmarshal([]byte(s.git("notes", "--ref=checkpoints/long", "show", e.Checkpoint)), &note); err != nil {
				t.Fatal(err)
			}
			if e.Replay != note.Replay || string(e.Artifacts) != string(note.Artifacts) && string(note.Artifacts) != "" {
				t.Errorf("of %s log tells %q and %s, its note %q and %s", e.Checkpoint, e.Replay, e.Artifacts, note.Replay, note.Artifacts)
			}
		}
		if seen != count {
			t.Fatalf("log tells of %d checkpoints, want %d", seen, count)
		}
	}
	check()
	s.git("gc", "-q")
	check()

	old := want[3]
	damaged := filepath.Join(s.dir, ".git", "note")
	if err := os.WriteFile(damaged, []byte("no JSON\n"), 0o666); err != nil {
		t.Fatal(err)
	}
	s.git("notes", "--ref=checkpoints/long", "add", "-f", "-F", damaged, old)
	_, stderr, code := s.try("log", "long", "--json")
	if code != 0 || !strings.Contains(stderr, "the record of checkpoint "+old[:12]+" is damaged") {
		t.Errorf("exit code %d, of a damaged record: %s", code, stderr)
	}
	blob := strings.TrimSpace(s.git("notes", "--ref=checkpoints/long", "list", old))
	os.Remove(filepath.Join(s.dir, ".git", "objects", blob[:2], blob[2:]))
	_, stderr, code = s.try("log", "long", "--json")
	if code != 0 || !strings.Contains(stderr, "the record of checkpoint "+old[:12]+" is missing") {
		t.Errorf("exit code %d, of a missing record: %s", code, stderr)
	}
}
