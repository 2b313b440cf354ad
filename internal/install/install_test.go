package install

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// A hook that calls us is one that has the call in it, not the word.
func TestCalls(t *testing.T) {
	for _, c := range []struct {
		text string
		want bool
	}{
		{"git checkpoint hook post-commit", true},
		{"git-checkpoint hook post-commit || true", true},
		{"x\n  run: /usr/bin/git-checkpoint hook post-commit", true},
		{shellLine("post-commit"), true},
		{lefthookLines("post-commit"), true},
		{preCommitLines("post-commit"), true},
		{"# git checkpoint hook post-commit", false},
		{"git checkpoint hook pre-push", false},
		{"git checkpoint save # hook post-commit", false},
		{"my-git-checkpointer hook post-commit", false},
		{"echo post-commit", false},
	} {
		if got := callsHook([]byte(c.text), "post-commit"); got != c.want {
			t.Errorf("%q calls us: %v", c.text, got)
		}
	}
}

// What we write is recognised as ours, and whether it was changed; it is good
// sh, wherever the program is.
func TestScript(t *testing.T) {
	sh, err := exec.LookPath("sh")
	if err != nil {
		t.Skip("no sh")
	}
	for _, program := range []string{"/usr/bin/git-checkpoint", "/a b/it's/git-checkpoint", "C:/Program Files/git-checkpoint.exe"} {
		for _, hook := range Hooks {
			for _, made := range []bool{false, true} {
				file := filepath.Join(t.TempDir(), hook)
				text := script(hook, program, made)
				if err := os.WriteFile(file, []byte(text), 0o777); err != nil {
					t.Fatal(err)
				}
				f, err := readHook(file)
				if err != nil || !f.ours || f.changed || f.made != made || f.calls(hook) {
					t.Errorf("%s: %+v, %v", hook, f, err)
				}
				if err := exec.Command(sh, "-n", file).Run(); err != nil {
					t.Errorf("%s is no sh: %v", hook, err)
				}
				if err := os.WriteFile(file, []byte(strings.Replace(text, "code=0", "code=1", 1)), 0o777); err != nil {
					t.Fatal(err)
				}
				if f, err := readHook(file); err != nil || !f.ours || !f.changed {
					t.Errorf("%s, changed: %+v, %v", hook, f, err)
				}
			}
		}
	}
}

// Both forms of a hook call the program with its arguments, give it what is
// pushed to read, and end well however it ends.
func TestHooksCallTheProgram(t *testing.T) {
	sh, err := exec.LookPath("sh")
	if err != nil {
		t.Skip("no sh")
	}
	dir := filepath.Join(t.TempDir(), "it's here")
	if err := os.Mkdir(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	program := filepath.Join(dir, "git-checkpoint")
	write := func(file, text string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(text), 0o777); err != nil {
			t.Fatal(err)
		}
	}
	write(program, "#!/bin/sh\nprintf '<%s>' \"$@\"\ncat\nexit 129\n")
	hook := filepath.Join(dir, "pre-push")
	write(hook, script("pre-push", filepath.ToSlash(program), false))
	for name, args := range map[string][]string{
		"file":          {hook, "a b", "url"},
		"configuration": {"-c", command("pre-push", filepath.ToSlash(program)) + ` "$@"`, "sh", "a b", "url"},
	} {
		for skip, want := range map[string]string{"": "<hook><pre-push><--><a b><url>a push\n", "0": "<hook><pre-push><--><a b><url>a push\n", "1": "", "yes": ""} {
			cmd := exec.Command(sh, args...)
			cmd.Stdin = strings.NewReader("a push\n")
			cmd.Env = append(os.Environ(), "GIT_CHECKPOINT_SKIP="+skip)
			out, err := cmd.CombinedOutput()
			if err != nil || string(out) != want {
				t.Errorf("%s, skip %q: %q, %v; want %q", name, skip, out, err, want)
			}
		}
	}
}
