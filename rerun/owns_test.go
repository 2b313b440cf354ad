package rerun

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// A pattern of 'owns' is for the paths that git ignores by it in a .gitignore
// at the top.
func TestPathspecsAreAsOfGitignore(t *testing.T) {
	dir := t.TempDir()
	git := func(stdin string, args ...string) []string {
		t.Helper()
		c := exec.Command("git", append([]string{"-C", dir}, args...)...)
		c.Stdin = strings.NewReader(stdin)
		out, err := c.Output()
		if err != nil && len(out) > 0 {
			t.Fatalf("git %v: %v", args, err)
		}
		return strings.FieldsFunc(string(out), func(r rune) bool { return r == 0 })
	}
	git("", "init", "-q")
	paths := []string{
		"Makefile", "sub/Makefile", "api/a.go", "api/v1/b.go", "api/v1/c.txt", "x/api/d.go", "x/api/v1/e.go", "apis/f.go",
		"docs/g.md", "x/docs/h.md", "x/y/docs/z/i.md", "j.go", "[k]", "l*m", "lnm", "o p/q", "é/r",
	}
	for _, p := range paths {
		file := filepath.Join(dir, p)
		if err := os.MkdirAll(filepath.Dir(file), 0o777); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, nil, 0o666); err != nil {
			t.Fatal(err)
		}
	}
	git("", "add", "-A")
	for _, glob := range []string{
		"api/**", "api/*", "api", "api/", "/api", "/api/", "*.go", "/*.go", "Makefile", "/Makefile", "docs/", "**/docs/", "**/docs/*.md", "x/**/docs",
		"api/**/*.go", "**", "*", "/*", "api/v?/[!b].txt", "api/v1/[a-c]*", `\[k\]`, `l\*m`, "l*m", "o p/", "o p/q", "é", "api/**/", "**/", "ap*/v1", "none",
	} {
		if why := checkGlob(glob); why != "" {
			t.Errorf("%s: it %s", glob, why)
		}
		if err := os.WriteFile(filepath.Join(dir, ".git", "info", "exclude"), []byte(glob+"\n"), 0o666); err != nil {
			t.Fatal(err)
		}
		want := git(strings.Join(paths, "\x00"), "check-ignore", "--no-index", "-z", "--stdin")
		args := []string{"ls-files", "-z", "--"}
		for _, spec := range pathspecs(glob) {
			args = append(args, ":(top,glob)"+spec)
		}
		got := git("", args...)
		slices.Sort(want)
		slices.Sort(got)
		if !slices.Equal(got, want) {
			t.Errorf("%s: %q, want %q", glob, got, want)
		}
	}
}
