package install

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/git-checkpoint/git-checkpoint/internal/fault"
)

// The hook. It finds the program where it was at install, or on the PATH; the
// hook before it gets the standard input, in pre-push each a copy; and nothing
// of ours decides how it ends.
const scriptText = `# git checkpoint uninstall removes this hook and puts back what was here before,
# which is kept beside it and called first.{made}
{input}case $0 in */*) here=${0%/*} ;; *) here=. ;; esac
before=$here/{hook}.before-checkpoint
code=0
if [ -x "$before" ]; then
	{from}"$before" "$@"
	code=$?{stop}
fi
case ${GIT_CHECKPOINT_SKIP:-0} in
0 | false | no | off) ;;
*) exit $code ;;
esac
checkpoint={program}
[ -x "$checkpoint" ] || checkpoint=$(command -v git-checkpoint)
if [ -n "$checkpoint" ]; then
	{from}"$checkpoint" hook {hook} -- "$@"{nothing} || :
else
	echo "warning: no checkpoint: git-checkpoint is not found (hook $0)" >&2
fi
exit $code
`

// heading is the start of every hook of ours: the rest's digest tells whether
// somebody has changed it.
const (
	heading  = "#!/bin/sh\n# A hook of git-checkpoint, "
	madeNote = "\n# The folder was made for it."
)

// script is the text of a hook.
func script(hook, program string, made bool) string {
	note, stop, input, from, nothing := "", "", "", "", " </dev/null"
	if made {
		note = madeNote
	}
	if hook == "pre-push" {
		stop = "\n\t[ $code -eq 0 ] || exit $code" // there will be no push
		// The dot keeps the last newline.
		input, from, nothing = "pushed=$(cat; echo .)\npushed=${pushed%.}\n", `printf %s "$pushed" 2>/dev/null | `, ""
	}
	rest := strings.NewReplacer("{hook}", hook, "{program}", quote(program), "{made}", note, "{stop}", stop,
		"{input}", input, "{from}", from, "{nothing}", nothing).Replace(scriptText)
	return heading + digest(rest) + "\n" + rest
}

func digest(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:8])
}

// quote makes a word for sh.
func quote(word string) string { return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'" }

// found is what stands where a hook would be.
type found struct {
	exists    bool
	directory bool
	data      []byte // its beginning
	ours      bool
	changed   bool   // ours, but not as we wrote it
	made      bool   // ours, and the folder was made for it
	tool      string // git-lfs, if it is that one's
}

// maxHookLen is how much of a hook is looked at: a binary one may be large.
const maxHookLen = 1 << 20

func readHook(at string) (*found, error) {
	f := &found{}
	info, err := os.Lstat(at)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return f, nil
	case err != nil && notDirectory(at):
		return f, nil
	case err != nil:
		return nil, fault.New(fault.Fatal, "io", "look for a hook: %w", err)
	}
	f.exists, f.directory = true, info.IsDir()
	if !info.Mode().IsRegular() && info.Mode()&os.ModeSymlink == 0 {
		return f, nil
	}
	file, err := os.Open(at)
	if errors.Is(err, os.ErrNotExist) || errors.Is(err, os.ErrPermission) {
		return f, nil // a link to nowhere, or a program that may only be run
	}
	if err != nil {
		return nil, fault.New(fault.Fatal, "io", "read the hook that is there: %w", err)
	}
	defer file.Close()
	if f.data, err = io.ReadAll(io.LimitReader(file, maxHookLen)); err != nil {
		if info, statErr := file.Stat(); statErr == nil && info.IsDir() {
			f.directory = true
			return f, nil
		}
		return nil, fault.New(fault.Fatal, "io", "read the hook that is there: %w", err)
	}
	if rest, ok := strings.CutPrefix(string(f.data), heading); ok && info.Mode().IsRegular() {
		sum, rest, _ := strings.Cut(rest, "\n")
		f.ours, f.changed, f.made = true, sum != digest(rest), strings.Contains(rest, madeNote)
	}
	if bytes.Contains(f.data, []byte("\ngit lfs ")) && len(f.data) < 1<<10 {
		f.tool = "git-lfs"
	}
	return f, nil
}

// notDirectory says whether the folder itself is something else, as with
// core.hooksPath=/dev/null.
func notDirectory(at string) bool {
	info, err := os.Stat(filepath.Dir(at))
	return err == nil && !info.IsDir()
}

// calls says whether a hook, not ours, calls what ours would.
func (f *found) calls(hook string) bool { return callsHook(f.data, hook) }

func callsHook(data []byte, hook string) bool {
	return regexp.MustCompile(`(?m)^[^#\n]*\bgit[- ]checkpoint\b[^#\n]* hook ` + hook + `\b`).Match(data)
}

// keptFile is where the hook is kept that was there before.
func keptFile(at, hook string) string {
	return filepath.Join(filepath.Dir(at), hook+".before-checkpoint")
}

func exists(file string) bool {
	_, err := os.Lstat(file)
	return err == nil
}

func sameContent(a, b string) bool {
	if sameFile(a, b) {
		return true
	}
	x, err := os.ReadFile(a)
	if err != nil {
		return false
	}
	y, err := os.ReadFile(b)
	return err == nil && bytes.Equal(x, y)
}
