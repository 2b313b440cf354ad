// Package gittest is what tests of several packages need to ask the real git.
package gittest

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/git-checkpoint/git-checkpoint/internal/git"
)

// Env is the environment for a git that nothing of the user's reaches, with
// more beside it.
func Env(home string, more ...string) []string {
	var env []string
	for _, v := range os.Environ() {
		if !strings.HasPrefix(v, "GIT_") && !strings.HasPrefix(v, "HOME=") && !strings.HasPrefix(v, "XDG_") {
			env = append(env, v)
		}
	}
	return append(append(env, "HOME="+home, "LC_ALL=C", "GIT_CONFIG_NOSYSTEM=1"), more...)
}

// Write makes a file in a directory, and the directories above it.
func Write(t testing.TB, dir, name, data string) {
	t.Helper()
	full := filepath.Join(dir, filepath.FromSlash(name))
	if err := os.MkdirAll(filepath.Dir(full), 0o777); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(full, []byte(data), 0o666); err != nil {
		t.Fatal(err)
	}
}

// WriteIndex makes git write an index, with its cache tree, and the trees, in
// the repository at dir. entries are "<mode> <id>" by path; of those that
// cannot be together the later ones win.
func WriteIndex(t testing.TB, dir string, entries map[string]string) (file, tree string) {
	t.Helper()
	var input strings.Builder
	for _, path := range slices.Sorted(maps.Keys(entries)) {
		fmt.Fprintf(&input, "%s 0\t%s\x00", entries[path], path)
	}
	repo, err := git.Open(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	file = filepath.Join(t.TempDir(), "index")
	if err := repo.Command(t.Context(), "update-index", "-z", "--replace", "--index-info").WithIndex(file).WithInput([]byte(input.String())).Run(); err != nil {
		t.Fatal(err)
	}
	if tree, err = repo.Command(t.Context(), "write-tree", "--missing-ok").WithIndex(file).Text(); err != nil {
		t.Fatal(err)
	}
	return file, tree
}
