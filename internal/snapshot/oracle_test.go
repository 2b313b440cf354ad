//go:build unix

package snapshot

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/git-checkpoint/git-checkpoint/internal/git"
	"github.com/git-checkpoint/git-checkpoint/internal/index"
)

// TestTakersAgreeWithGit does random things to repositories and compares the
// trees of both ways to take a snapshot with what git itself makes of the same
// files (N.13, S0.17; DESIGN.md, "Speed": the oracle).
//
// GIT_CHECKPOINT_FUZZ is how long it goes on, and GIT_CHECKPOINT_SEED the one
// repository to try, as the message of a failure names it.
func TestTakersAgreeWithGit(t *testing.T) {
	budget := 12 * time.Second
	last := uint64(7)
	if v := os.Getenv("GIT_CHECKPOINT_FUZZ"); v != "" {
		last = 1 << 62
		var err error
		if budget, err = time.ParseDuration(v); err != nil {
			t.Fatal(err)
		}
	}
	first := uint64(1)
	byHand := budget > time.Minute || os.Getenv("GIT_CHECKPOINT_SEED") != ""
	if byHand { // other repositories each time
		first = uint64(time.Now().UnixNano())
	}
	if v := os.Getenv("GIT_CHECKPOINT_SEED"); v != "" {
		n, err := strconv.ParseUint(v, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		first, last = n, n
	}
	t.Parallel()
	end := time.Now().Add(budget)
	var mu sync.Mutex
	compared, native, why := 0, 0, map[string]int{}
	try := func(t *testing.T, seed uint64) {
		w := newWorld(t, seed)
		w.fill()
		for range 12 {
			for range 1 + w.rng.IntN(6) {
				w.act()
			}
			if w.rng.IntN(2) == 0 && byHand {
				time.Sleep(1050 * time.Millisecond) // what is known of directories counts from the next second on
			}
			w.compare(w.rng.IntN(4) > 0, w.rng.IntN(5) > 0)
			if t.Failed() {
				t.Fatalf("GIT_CHECKPOINT_SEED=%d\n%s", seed, strings.Join(w.log, "\n"))
			}
		}
		mu.Lock()
		defer mu.Unlock()
		compared, native = compared+w.compared, native+w.native
		for reason, n := range w.aside {
			why[reason] += n
		}
	}
	// Most of the time is waited for, so there are several at once.
	var workers sync.WaitGroup
	next := atomic.Uint64{}
	next.Store(first)
	for range 4 {
		workers.Go(func() {
			for seed := next.Add(1) - 1; seed <= last && (time.Now().Before(end) || seed == first); seed = next.Add(1) - 1 {
				if !t.Run(fmt.Sprint(seed), func(t *testing.T) { try(t, seed) }) {
					next.Store(last + 1)
				}
			}
		})
	}
	workers.Wait()
	t.Logf("%d snapshots compared, %d of them native; left to git: %v", compared, native, why)
	if last != first && native < compared/2 {
		t.Errorf("only %d of %d snapshots were native", native, compared)
	}
}

// TestTakersAgreeOnCases are such differences as were found, each told as what
// a shell does before the first snapshot, before the second, and so on.
func TestTakersAgreeOnCases(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		options Options
		steps   []string
	}{
		"CRs are kept no longer, once the user's entry is gone": {steps: []string{
			`printf 'a\r\n' >f; touch -d '1 hour ago' f; git add f; git config core.autocrlf true`, `git rm -q --cached f`,
		}},
		"CRs are kept from when the user's entry has some": {steps: []string{
			`git config core.autocrlf true; printf 'a\r\n' >f; touch -d '1 hour ago' f`, `git update-index --add --cacheinfo 100644,$(printf 'b\r\n' | git hash-object -w --no-filters --stdin),f`,
		}},
		"an entry made by older rules is no longer known to be its file's": {steps: []string{
			`printf 'a\r\n' >f; touch -d '1 hour ago' f; git add f; echo 'f text' >.gitattributes; touch -d '1 hour ago' .gitattributes`, `git read-tree $(git write-tree)`,
		}},
		"an ignored link to itself in the place of a directory, beyond which git sees nothing": {steps: []string{
			`mkdir a; echo 1 >a/x; git add .; rm -r a; ln -s a a; echo a >.git/info/exclude`,
		}},
		"an ignored repository without a commit in the place of a file, in a directory that is not read again": {steps: []string{
			`mkdir a; echo 1 >a/f; echo 1 >a/g; git add .; echo '*' >.git/info/exclude; rm a/f; git init -q a/f; sleep 1.1`, `true`, `true`,
		}},
		"what is asked for in an ignored repository": {Options{Force: []string{"a/f"}}, []string{
			`echo a >.gitignore; git init -q a; git -C a -c user.name=a -c user.email=a commit -q --allow-empty -m 1; echo 1 >a/f`,
		}},
		"what is asked for in an ignored repository that is looked into": {Options{Force: []string{"a/g"}}, []string{
			`mkdir a; echo 1 >a/f; git add .; echo a >.gitignore; git init -q a; git -C a -c user.name=a -c user.email=a commit -q --allow-empty -m 1; echo 1 >a/g`,
		}},
		"a directory that is known is not tracked any more, and then a repository": {steps: []string{
			`mkdir a b; echo 1 >a/f; echo 1 >b/f; git add .; touch -d '1 hour ago' */f; sleep 1.1`, `git update-index -q --refresh`, `git rm -q -r --cached a`, `true`,
			`git init -q a; git -C a -c user.name=a -c user.email=a commit -q --allow-empty -m 1`, `rm -r a/.git`,
		}},
		"the user's index has other names in a directory that is known": {steps: []string{
			`mkdir a b; echo 1 >a/f; echo 1 >a/g; echo 1 >b/f; git add .; touch -d '1 hour ago' */?; sleep 1.1`, `true`, `git rm -q --cached a/f`, `echo a/f >.git/info/exclude`, `git add -f a/f`, `echo 2 >a/f`,
			`git update-index --force-remove b/f; git update-index --add --cacheinfo 100644,$(git rev-parse :a/g),b/new`, `rm a/g`, `true`,
		}},
		"a directory that is known becomes a link, and a directory again": {steps: []string{
			`mkdir a a/b c; echo 1 >a/b/f; echo 1 >c/f; git add .; touch -d '1 hour ago' a/b/f c/f; sleep 1.1`, `true`, `mv a d; ln -s d a`, `true`, `rm a; mv d a`, `mv a/b a/e; ln -s e a/b`,
		}},
		"attributes that only the index has": {steps: []string{
			`echo '* text=auto' >.gitattributes; mkdir a; echo 1 >a/f; git add .; rm .gitattributes`, `printf '1\r\n' >g`, `printf '2\r\n' >a/f; printf '3\r\n' >a/h`, `git rm -q --cached .gitattributes; printf '4\r\n' >i`,
		}},
		"a submodule that is not there moves on": {steps: []string{
			`mkdir sub; git update-index --add --cacheinfo 160000,1111111111111111111111111111111111111111,sub`, `git update-index --cacheinfo 160000,2222222222222222222222222222222222222222,sub`,
		}},
		"a submodule that moved on goes": {steps: []string{
			`git init -q o; git -C o -c user.name=a -c user.email=a commit -q --allow-empty -m 1; git add o`, `git -C o -c user.name=a -c user.email=a commit -q --allow-empty -m 2`, `rm -r o/.git`,
		}},
		"ignore rules that are too large to be saved change": {Options{MaxFileSize: 10}, []string{
			`mkdir s; echo 1 >s/f; echo 1 >s/x.o; git add s/f; touch -d '1 hour ago' s/f; printf '*.o # long enough\n*.o\n' >.gitignore; sleep 1.1`, `true`, `printf '*.o # long enough\n*.p\n' >.gitignore`,
		}},
		"a repository that is looked into for a tracked file that is gone": {Options{Exclude: []string{"no"}}, []string{
			`mkdir a; echo 1 >a/f; git add .; rm a/f; git init -q a; git -C a -c user.name=a -c user.email=a commit -q --allow-empty -m 1; echo 2 >a/g`,
		}},
		"a file in the place of a sparse directory, asked for by an own pattern": {Options{Exclude: []string{"!d"}}, []string{
			`mkdir a d; echo 1 >a/x; echo 1 >d/x; echo d >.gitignore; git add -f .; git commit -q -m 1; git sparse-checkout set a; echo 2 >d`,
		}},
		"a file in the place of a sparse directory, left out by an own pattern": {Options{Exclude: []string{"d", "!x"}}, []string{
			`mkdir a d; echo 1 >a/x; echo 1 >d/x; git add .; git commit -q -m 1; git sparse-checkout set a; echo 2 >d`,
		}},
		"a file in the place of a sparse directory, too large": {Options{MaxFileSize: 1}, []string{
			`mkdir a d; echo 1 >a/x; echo 1 >d/x; git add .; git commit -q -m 1; git sparse-checkout set a; echo 2 >d`,
		}},
		"a file in the place of a sparse directory, left out": {Options{Omit: map[string]bool{"d": true}}, []string{
			`mkdir a d; echo 1 >a/x; echo 1 >d/x; git add .; git commit -q -m 1; git sparse-checkout set a; echo 2 >d`,
		}},
	} {
		for _, keepsNative := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s/native %v", name, keepsNative), func(t *testing.T) {
				t.Parallel()
				w := newWorld(t, 0)
				w.options = c.options
				for _, step := range c.steps {
					w.note("%s", step)
					if out, err := w.command("sh", "-e", "-c", step).CombinedOutput(); err != nil {
						t.Fatalf("%s: %v\n%s", step, err, out)
					}
					w.compare(keepsNative, true)
				}
			})
		}
	}
}

// world is a repository that things are done to.
type world struct {
	t    *testing.T
	rng  *rand.Rand
	dir  string // the working tree
	home string
	log  []string

	options  Options
	key      string
	crlf     string // a blob with CRs
	n        int
	exact    bool // nothing hides a change that keeps size and time
	hidden   map[string]bool
	compared int
	native   int
	aside    map[string]int
}

func newWorld(t *testing.T, seed uint64) *world {
	home := t.TempDir()
	w := &world{t: t, rng: rand.New(rand.NewPCG(seed, 1)), home: home, dir: filepath.Join(home, "tree"), exact: true, aside: map[string]int{}, hidden: map[string]bool{}}
	w.git("init", "-q", "--initial-branch=main", w.dir)
	for key, value := range map[string]string{"user.name": "A", "user.email": "a@example.org", "core.fsync": "none", "core.excludesFile": filepath.Join(home, "excludes"), "filter.up.clean": "tr a-z A-Z"} {
		w.git("config", key, value)
	}
	os.WriteFile(filepath.Join(home, "crlf"), []byte("a\r\nb\r\n"), 0o666)
	w.crlf = strings.TrimSpace(w.git("hash-object", "-w", "--no-filters", filepath.Join(home, "crlf")))
	return w
}

// fill makes the files that there are at first.
func (w *world) fill() {
	for range 10 + w.rng.IntN(20) {
		w.write()
	}
	if w.rng.IntN(4) > 0 {
		w.try("add", "-A")
		w.try("commit", "-q", "-m", "one")
	}
}

func (w *world) command(name string, args ...string) *exec.Cmd {
	cmd := exec.Command(name, args...)
	cmd.Dir = w.dir
	cmd.Env = append(os.Environ(), "HOME="+w.home, "XDG_CONFIG_HOME=", "GIT_CONFIG_NOSYSTEM=1", "GIT_EDITOR=true", "GIT_CONFIG_GLOBAL=/dev/null", "LC_ALL=C")
	return cmd
}

// try runs git, which may fail.
func (w *world) try(args ...string) (string, error) {
	cmd := w.command("git", args...)
	if args[0] == "init" {
		cmd.Dir = w.home
	}
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		err = fmt.Errorf("git %q: %w: %s", args, err, stderr.String())
	}
	return string(out), err
}

func (w *world) git(args ...string) string {
	w.t.Helper()
	out, err := w.try(args...)
	if err != nil {
		w.t.Fatalf("%v\n%s", err, strings.Join(w.log, "\n"))
	}
	return out
}

func (w *world) note(format string, args ...any) { w.log = append(w.log, fmt.Sprintf(format, args...)) }

func pick[T any](w *world, list []T) T { return list[w.rng.IntN(len(list))] }

var names = []string{
	"a", "a-b", "a.c", "a0", "b", "c", "d", "x", "y.txt", "z.bin", "f.crlf", "g.up", "no", "keep", "keep.no", ".hidden", ".gitx", ".gitkeep",
	" sp ace ", "-dash", ":colon", "st*r", "br[a]", "new\nline", "tab\t", "quo\"te", "back\\slash", "\xff\xfe", "é", "e\u0301", "~1", "git~x", "git~1", ".GIT", strings.Repeat("long", 40),
}

// name is a path that may or may not be there.
func (w *world) name() string {
	parts := make([]string, 1+w.rng.IntN(3))
	for i := range parts {
		parts[i] = pick(w, names[:12+w.rng.IntN(len(names)-11)])
		if w.rng.IntN(30) == 0 { // any bytes that a name can have
			parts[i] = strings.ReplaceAll(string([]byte{byte(1 + w.rng.IntN(255)), byte(1 + w.rng.IntN(255)), 'x'}), "/", "_")
		}
	}
	return strings.Join(parts, "/")
}

// existing is the path of something that is there, "" if there is nothing.
func (w *world) existing(want func(fs.DirEntry) bool) string {
	var list []string
	filepath.WalkDir(w.dir, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return nil
		case d.Name() == ".git":
			if d.IsDir() {
				return fs.SkipDir
			}
			return nil
		case path != w.dir && want(d):
			rel, _ := filepath.Rel(w.dir, path)
			list = append(list, rel)
		}
		return nil
	})
	if len(list) == 0 {
		return ""
	}
	return pick(w, list)
}

func isFile(d fs.DirEntry) bool    { return d.Type().IsRegular() }
func isDir(d fs.DirEntry) bool     { return d.IsDir() }
func isThere(fs.DirEntry) bool     { return true }
func (w *world) p(n string) string { return filepath.Join(w.dir, n) }

func (w *world) content() []byte {
	switch w.rng.IntN(14) {
	case 0:
		return nil
	case 6:
		return []byte("a\r\nb\r\n")
	case 7:
		return []byte("a\nb\n")
	case 1:
		return []byte("one\r\ntwo\r\n")
	case 2:
		return []byte("mixed\r\nlines\n")
	case 3:
		return []byte("nul\x00\r\n")
	case 4:
		return []byte("$Id$ \r$Id: x$\n")
	case 5:
		return bytes.Repeat([]byte{byte(w.rng.IntN(256)), byte(w.rng.IntN(256)), '\n'}, w.rng.IntN(3000))
	}
	w.n++
	return fmt.Appendf(nil, "%d\n", w.n%100)
}

// put writes a file, where there is one or nothing: a link may lead anywhere,
// and a fifo never ends.
func (w *world) put(name string, data []byte) error {
	if fi, err := os.Lstat(w.p(name)); err == nil && !fi.Mode().IsRegular() {
		return errors.New("not a file")
	}
	return os.WriteFile(w.p(name), data, 0o666)
}

// write makes or overwrites a file.
func (w *world) write() {
	name := w.name()
	if err := os.MkdirAll(filepath.Dir(w.p(name)), 0o777); err != nil {
		return
	}
	data := w.content()
	if w.put(name, data) == nil {
		w.note("write %q %.20q", name, data)
	}
}

// past gives a file a time at which its content is not racy.
func (w *world) past(name string, by time.Duration) {
	at := time.Now().Add(-by)
	os.Chtimes(w.p(name), at, at)
}

var ignoreLines = []string{"no", "*.no", "!keep.no", "/a", "a/", "**/b", "x/**", "*", "!*/", "!.gitignore", "a/*", "!a/b", "d/x", "c/**/y.txt", "\\ sp*", "[a-c]", "#no", "br\\[a]", "é", "*\n!keep",
	"a?", "[!a]*", "a/**/b", "\\!x", "no  ", "!/a/", "*.[tb]*", "\xff*", "/*", "!/d", "/*\n!/d\n!.git*", "**/", "/**/x", "a.*", "*/b", "\ufeffa", "y.txt/", "d", "!d", "[[:alpha:]]", "~?", "a*/\n!a-b", "st\\*r"}
var attributeLines = []string{"*.crlf text=auto", "*.txt text", "* text=auto", "*.crlf eol=crlf", "*.up filter=up", "a/* -text", "* ident", "x text working-tree-encoding=UTF-16LE-BOM", "*.bin binary", "b -filter -text", "[attr]m filter=up", "*.c m", "*.txt diff=x",
	"* text=auto eol=lf", "* -text", "* !text", "a* crlf=auto", "*.txt text eol=crlf", "[a-d] text=auto ident", "*.up -filter text=auto", "/a text", "* filter=none"}

// act does one random thing.
func (w *world) act() {
	switch w.rng.IntN(52) {
	default:
		w.write()
	case 0, 1, 2:
		if name := w.existing(isFile); name != "" {
			data := w.content()
			w.note("overwrite %q %.20q: %v", name, data, os.WriteFile(w.p(name), data, 0o666))
		}
	case 3, 4:
		if name := w.existing(isFile); name != "" {
			w.note("rm %q: %v", name, os.Remove(w.p(name)))
		}
	case 5:
		if name := w.existing(isThere); name != "" {
			w.note("rm -r %q: %v", name, os.RemoveAll(w.p(name)))
		}
	case 6:
		if from, to := w.existing(isThere), w.name(); from != "" && os.MkdirAll(filepath.Dir(w.p(to)), 0o777) == nil {
			w.note("mv %q %q: %v", from, to, os.Rename(w.p(from), w.p(to)))
		}
	case 7:
		if name := w.existing(isFile); name != "" {
			mode := pick(w, []fs.FileMode{0o755, 0o644, 0o600, 0o744, 0o654})
			w.note("chmod %o %q: %v", mode, name, os.Chmod(w.p(name), mode))
		}
	case 8, 9:
		name, target := w.name(), pick(w, []string{"a", "../a", "/nowhere/a", "nowhere", ".", "a/b", "\xff"})
		if w.rng.IntN(2) == 0 {
			if there := w.existing(isThere); there != "" {
				name = there
				os.RemoveAll(w.p(name))
			}
		}
		if os.MkdirAll(filepath.Dir(w.p(name)), 0o777) == nil {
			w.note("ln -s %q %q: %v", target, name, os.Symlink(target, w.p(name)))
		}
	case 10:
		if name := w.existing(isFile); name != "" {
			os.Remove(w.p(name))
			os.Mkdir(w.p(name), 0o777)
			inside := filepath.Join(name, pick(w, names))
			w.note("rm %q; write %q: %v", name, inside, os.WriteFile(w.p(inside), w.content(), 0o666))
		}
	case 11:
		if name := w.existing(isDir); name != "" {
			os.RemoveAll(w.p(name))
			w.note("rm -r %q; write it: %v", name, os.WriteFile(w.p(name), w.content(), 0o666))
		}
	case 12, 13:
		if name := w.existing(isFile); name != "" {
			w.past(name, time.Duration(1+w.rng.IntN(1000))*time.Minute)
			w.note("touch the past %q", name)
		}
	case 14:
		w.note("touch everything, long ago")
		filepath.WalkDir(w.dir, func(path string, d fs.DirEntry, err error) error {
			if err == nil && d.Name() == ".git" && d.IsDir() {
				return fs.SkipDir
			}
			if err == nil && d.Type().IsRegular() {
				at := time.Now().Add(-time.Hour)
				os.Chtimes(path, at, at)
			}
			return nil
		})
	case 15:
		if name := w.existing(isFile); name != "" && w.exact {
			fi, err := os.Lstat(w.p(name))
			if err != nil || fi.Size() == 0 {
				return
			}
			time.Sleep(5 * time.Millisecond) // so that ctime differs
			data := bytes.Repeat([]byte{byte('a' + w.rng.IntN(26))}, int(fi.Size()))
			os.WriteFile(w.p(name), data, 0o666)
			os.Chtimes(w.p(name), fi.ModTime(), fi.ModTime())
			w.hidden[name] = true // git does not look at nanoseconds
			w.note("change %q, but not its size and time", name)
		}
	case 16:
		at := pick(w, []time.Time{time.Unix(0, 0), time.Unix(1<<31+5, 0), time.Now().Add(time.Hour), time.Now()})
		if name := w.existing(isFile); name != "" {
			os.Chtimes(w.p(name), at, at)
			w.note("touch %v %q", at, name)
		}
	case 17, 18, 19:
		dir := "."
		if w.rng.IntN(2) == 0 {
			dir = w.existing(isDir)
		}
		name := filepath.Join(dir, ".gitignore")
		data := pick(w, ignoreLines) + "\n" + pick(w, ignoreLines) + pick(w, []string{"\n", "", "\r\n", " \n"})
		w.note("write %q %q: %v", name, data, w.put(name, []byte(data)))
	case 20:
		file := pick(w, []string{filepath.Join(w.dir, ".git", "info", "exclude"), filepath.Join(w.home, "excludes")})
		data := pick(w, ignoreLines) + "\n"
		w.note("write %q %q: %v", file, data, os.WriteFile(file, []byte(data), 0o666))
	case 21, 22:
		dir := "."
		if w.rng.IntN(2) == 0 {
			dir = w.existing(isDir)
		}
		name := filepath.Join(dir, ".gitattributes")
		data := pick(w, attributeLines) + "\n" + pick(w, attributeLines) + "\n"
		if w.rng.IntN(4) == 0 {
			w.note("rm %q: %v", name, os.Remove(w.p(name)))
			return
		}
		w.note("write %q %q: %v", name, data, w.put(name, []byte(data)))
	case 23:
		key, value := pick(w, []string{"core.autocrlf", "core.fileMode", "core.trustCTime", "core.checkStat"}), ""
		switch key {
		case "core.autocrlf":
			value = pick(w, []string{"true", "input", "false"})
		case "core.checkStat":
			value = pick(w, []string{"minimal", "default"})
		default:
			value = pick(w, []string{"true", "false"})
		}
		if value == "minimal" || key == "core.trustCTime" && value == "false" {
			w.exact = false
			clear(w.hidden) // and git is right not to see
		}
		w.note("git config %s %s", key, value)
		w.git("config", key, value)
	case 24, 25, 26, 27, 28, 29, 30, 31:
		w.runGit()
	case 32:
		name := w.name()
		if os.MkdirAll(w.p(name), 0o777) == nil {
			_, err := w.try("-C", name, "init", "-q")
			if w.rng.IntN(3) > 0 {
				w.try("-C", name, "-c", "user.name=a", "-c", "user.email=a", "commit", "-q", "--allow-empty", "-m", fmt.Sprint(w.rng.IntN(1000)))
			}
			w.note("git init %q: %v", name, err)
		}
	case 33:
		if file := w.existing(isFile); file != "" && w.rng.IntN(2) == 0 {
			os.Remove(w.p(file))
			_, err := w.try("init", "-q", w.p(file))
			if w.rng.IntN(2) == 0 {
				w.try("-C", file, "-c", "user.name=a", "-c", "user.email=a", "commit", "-q", "--allow-empty", "-m", "x")
			}
			w.note("rm %q; git init it: %v", file, err)
			return
		}
		name := filepath.Join(w.name(), ".git")
		if os.MkdirAll(filepath.Dir(w.p(name)), 0o777) == nil {
			w.note("write %q: %v", name, w.put(name, []byte("gitdir: nowhere\n")))
		}
	case 34:
		name := w.name()
		if os.MkdirAll(filepath.Dir(w.p(name)), 0o777) == nil {
			w.note("mkfifo %q: %v", name, syscall.Mkfifo(w.p(name), 0o666))
		}
	case 35:
		if name := w.existing(isFile); name != "" && w.rng.IntN(3) == 0 && !strings.HasPrefix(filepath.Base(name), ".git") { // git reads rules to their end
			os.Remove(w.p(name))
			w.note("rm, mkfifo %q: %v", name, syscall.Mkfifo(w.p(name), 0o666))
		}
	case 36:
		dir := w.name()
		if os.MkdirAll(w.p(dir), 0o777) == nil {
			for i := range 70 {
				w.put(filepath.Join(dir, fmt.Sprint("many", i)), fmt.Appendf(nil, "%d %d\n", i, w.rng.IntN(1000)))
			}
			w.note("write 70 files in %q", dir)
		}
	case 37:
		w.options = Options{}
		switch w.rng.IntN(5) {
		case 0:
			w.options.MaxFileSize = int64(w.rng.IntN(100))
		case 1:
			w.options.Exclude = []string{pick(w, ignoreLines), pick(w, ignoreLines)}
		case 2:
			w.options.Omit = map[string]bool{w.existing(isFile): true, w.name(): true}
		case 3:
			w.options.Force = []string{w.existing(isThere), w.name()}
		case 4:
			w.options.Exact = true
		}
		if w.options.Force != nil && w.options.Force[0] == "" {
			w.options.Force = nil
		}
		w.note("options %+v", w.options)
	case 38:
		w.note("the cache is gone")
		w.key = ""
	case 40: // as editors do: another file with the same name, or the same content
		if name := w.existing(isFile); name != "" {
			data, err := os.ReadFile(w.p(name))
			if w.rng.IntN(2) == 0 {
				data = w.content()
			}
			if err == nil && os.WriteFile(w.p(name)+"~", data, 0o666) == nil {
				w.note("replace %q %.20q: %v", name, data, os.Rename(w.p(name)+"~", w.p(name)))
			}
		}
	case 41:
		if a, b := w.existing(isThere), w.existing(isThere); a != "" && b != "" && !strings.HasPrefix(a+"/", b+"/") && !strings.HasPrefix(b+"/", a+"/") {
			os.Rename(w.p(a), w.p("swap"))
			os.Rename(w.p(b), w.p(a))
			w.note("swap %q %q: %v", a, b, os.Rename(w.p("swap"), w.p(b)))
		}
	case 42:
		if from, to := w.existing(isFile), w.name(); from != "" && os.MkdirAll(filepath.Dir(w.p(to)), 0o777) == nil {
			w.note("ln %q %q: %v", from, to, os.Link(w.p(from), w.p(to)))
		}
	case 43: // a copy that keeps the time
		if from, to := w.existing(isFile), w.existing(isFile); from != "" && to != "" && w.exact {
			data, _ := os.ReadFile(w.p(from))
			if fi, err := os.Lstat(w.p(from)); err == nil && w.put(to, data) == nil {
				os.Chtimes(w.p(to), fi.ModTime(), fi.ModTime())
				w.hidden[to] = true
				w.note("cp -p %q %q", from, to)
			}
		}
	case 39:
		time.Sleep(1100 * time.Millisecond)
		w.note("sleep")
	}
}

// gitlink is a path that the index has as a commit, or the name of another one
// for which there is an empty directory.
func (w *world) gitlink() string {
	out, _ := w.try("ls-files", "-z", "--stage")
	for entry := range strings.SplitSeq(out, "\x00") {
		if meta, path, _ := strings.Cut(entry, "\t"); strings.HasPrefix(meta, "160000") && w.rng.IntN(3) > 0 {
			return path
		}
	}
	name := w.name()
	os.MkdirAll(w.p(name), 0o777)
	return name
}

// runGit does something by git.
func (w *world) runGit() {
	name := w.existing(isThere)
	if name == "" || w.rng.IntN(3) == 0 {
		name = "."
	}
	lines := [][]string{
		{"add", "-A"}, {"add", "--", name}, {"add", "-N", "--", name}, {"add", "-f", "--", name}, {"reset", "-q"}, {"reset", "-q", "--hard"}, {"rm", "-q", "-r", "--cached", "--", name},
		{"commit", "-q", "-m", "x"}, {"commit", "-q", "-a", "-m", "x"}, {"stash", "-q"}, {"stash", "pop", "-q"}, {"stash", "-q", "-u"}, {"status"}, {"update-index", "-q", "--refresh"},
		{"checkout", "-q", "-b", fmt.Sprint("b", w.rng.IntN(3))}, {"checkout", "-q", fmt.Sprint("b", w.rng.IntN(3))}, {"checkout", "-q", "-f", "main"},
		{"merge", "-q", "--no-edit", fmt.Sprint("b", w.rng.IntN(3))}, {"merge", "--abort"}, {"cherry-pick", fmt.Sprint("b", w.rng.IntN(3))}, {"cherry-pick", "--abort"},
		{"update-index", "--assume-unchanged", "--", name}, {"update-index", "--skip-worktree", "--", name}, {"update-index", "--no-skip-worktree", "--", name}, {"update-index", "--chmod=+x", "--", name},
		{"update-index", "--index-version", fmt.Sprint(2 + w.rng.IntN(3))}, {"update-index", "--split-index"}, {"update-index", "--no-split-index"}, {"update-index", "--untracked-cache"},
		{"sparse-checkout", "set", "a", "d"}, {"sparse-checkout", "disable"}, {"gc", "-q"}, {"repack", "-a", "-d", "-q"}, {"clean", "-f", "-d", "-q"}, {"read-tree", "HEAD"},
		{"add", "--renormalize", "."}, {"checkout", "-q", "--", name}, {"restore", "-q", "--staged", "--", name}, {"update-index", "--force-remove", "--", name},
		{"update-index", "--add", "--cacheinfo", "100644", w.crlf, name}, {"update-index", "--add", "--cacheinfo", "100644", w.crlf, w.name()}, {"worktree", "add", "-q", "--detach", fmt.Sprint("a/w", w.rng.IntN(9))}, {"mv", "--", name, w.name()},
		{"update-index", "--add", "--cacheinfo", fmt.Sprintf("160000,%040d,%s", 1+w.rng.IntN(3), w.gitlink())}, {"update-index", "--cacheinfo", fmt.Sprintf("160000,%040d,%s", 1+w.rng.IntN(3), w.gitlink())},
	}
	args := pick(w, lines)
	_, err := w.try(args...)
	result := ""
	if err != nil {
		result = " (failed)"
	}
	w.note("git %q%s", args, result)
	if args[0] == "sparse-checkout" && w.rng.IntN(2) == 0 {
		// As older versions of git left it, so that it is not left to git.
		sparse := args[1] == "set"
		w.note("git config core.sparseCheckout %v; no extensions.worktreeConfig", sparse)
		w.git("config", "core.sparseCheckout", fmt.Sprint(sparse))
		w.git("config", "core.sparseCheckoutCone", fmt.Sprint(sparse))
		w.try("config", "--unset", "extensions.worktreeConfig")
	}
}

// oracle is the tree that git makes of the files: of a fresh index with the
// user's entries and nothing else of it. It is "" where git cannot. strict
// makes git read the files whose stat data differs in any way.
func (w *world) oracle(skipped []Skip, strict bool) (tree, refused string) {
	file := filepath.Join(w.home, "oracle-index")
	os.Remove(file)
	run := func(stdin string, args ...string) (string, error) {
		cmd := exec.Command("git", append([]string{"-c", "core.safecrlf=false", "-c", "core.splitIndex=false", "-c", "core.untrackedCache=false", "-c", "index.sparse=false", "-c", "index.version=2"}, args...)...)
		cmd.Dir = w.dir
		cmd.Env = append(os.Environ(), "HOME="+w.home, "XDG_CONFIG_HOME=", "GIT_CONFIG_NOSYSTEM=1", "GIT_INDEX_FILE="+file, "GIT_CONFIG_GLOBAL=/dev/null", "LC_ALL=C")
		cmd.Stdin = strings.NewReader(stdin)
		var stderr bytes.Buffer
		cmd.Stderr = &stderr
		out, err := cmd.Output()
		if err != nil {
			err = fmt.Errorf("git %q: %w: %s", args, err, stderr.String())
		}
		return string(out), err
	}
	repo, err := git.Open(w.t.Context(), w.dir)
	if err != nil {
		w.t.Fatal(err)
	}
	user, err := ReadUserIndex(w.t.Context(), repo)
	if err != nil {
		w.t.Fatal(err)
	}
	look := NewLstat(repo)
	rule := statRuleOf(repo.Config, false) // what of a hidden change may be seen
	entries, tracked := map[string]index.Entry{}, map[string]bool{}
	user.SmudgeRacy()
	for _, e := range user.Entries {
		tracked[e.Path] = true
		if _, ok := entries[e.Path]; ok && e.Stage == 3 {
			continue
		}
		fi, _ := look.Get(e.Path)
		if e.SkipWorktree && fi == nil && e.Stage == 0 {
			if e.IntentToAdd {
				continue
			}
		} else {
			e.SkipWorktree = false
		}
		if fi != nil {
			is := index.StatOf(fi)
			was, now := e.Stat.Record(0), is.Record(0)
			if strict && was != now || w.hidden[e.Path] && !rule.same(was[:], now[:]) {
				e.Stat = index.Stat{}
			}
		}
		if e.Stage != 0 || e.IntentToAdd {
			e.Stat = index.Stat{}
		}
		e.Stage, e.AssumeUnchanged, e.IntentToAdd = 0, false, false
		entries[e.Path] = e
	}
	for _, s := range skipped {
		if s.Reason == ReasonNoCommit {
			delete(entries, s.Path)
		}
	}
	fresh := &index.Index{Entries: slices.Collect(maps.Values(entries))}
	if err := fresh.WriteFile(file, 20); err != nil {
		w.t.Fatal(err)
	}
	args := []string{"add", "-A", "--sparse", "--", "."}
	var included []string
	if len(w.options.Exclude) > 0 || w.options.MaxFileSize > 0 || w.options.Omit != nil {
		args[1] = "-u"
		list := []string{"ls-files", "-z", "--others", "--exclude-standard"}
		for _, pattern := range w.options.Exclude {
			list = append(list, "--exclude="+pattern)
		}
		included = slices.DeleteFunc(strings.Split(w.git(list...), "\x00"), func(p string) bool {
			fi, _ := look.Get(strings.TrimSuffix(p, "/"))
			return fi == nil || w.options.Omit[p] || w.options.MaxFileSize > 0 && fi.Mode().IsRegular() && fi.Size() > w.options.MaxFileSize
		})
	}
	for _, s := range skipped {
		if s.Reason == ReasonNoCommit || s.Reason == ReasonSpecial || s.Reason == ReasonName {
			args = append(args, ":(exclude,literal)"+s.Path)
		}
	}
	// What options leave out is not added at first: it would take the place of
	// entries that are meant to be absent. The others come before what is gone:
	// a repository with tracked files in it is looked into, as long as it has any.
	for _, p := range included {
		if name := strings.TrimSuffix(p, "/"); !slices.ContainsFunc(skipped, func(s Skip) bool { return s.Path == name }) {
			run(p, "--literal-pathspecs", "add", "-f", "--sparse", "--pathspec-from-file=-", "--pathspec-file-nul")
		}
	}
	_, err = run("", args...)
	for range 99 {
		// What our own patterns exclude is not named as skipped.
		if err == nil {
			break
		}
		refused := regexp.MustCompile(`error: (?:invalid path '(.*)'|'(.*)/' does not have a commit checked out)`).FindStringSubmatch(err.Error())
		if refused == nil {
			break
		}
		args = append(args, ":(exclude,literal)"+refused[1]+refused[2])
		_, err = run("", args...)
	}
	if err != nil && !strings.Contains(err.Error(), "paths are ignored by one of your .gitignore files") {
		return "", err.Error() // git takes the paths that are left out for ones that are asked for
	}
	for _, s := range skipped {
		if _, ok := entries[s.Path]; ok && s.Reason == ReasonSpecial {
			// It was tracked, and so is its directory.
			if _, err := run(s.Path+"\x00", "update-index", "--force-remove", "-z", "--stdin"); err != nil {
				w.t.Fatal(err)
			}
		}
	}
	for _, p := range w.options.Force {
		if fi, _ := look.Get(p); fi != nil && !fi.IsDir() && !tracked[p] {
			run("", "add", "-f", "--sparse", "--", ":(literal)"+p)
		}
	}
	out, err := run("", "write-tree", "--missing-ok")
	if err != nil {
		w.t.Fatalf("%v\n%s", err, strings.Join(w.log, "\n"))
	}
	return strings.TrimSpace(out), ""
}

// compare takes the snapshot in each way, and with git. One of them goes into
// the repository, where its index can be kept.
func (w *world) compare(keepsNative, keeps bool) {
	w.t.Helper()
	ctx := w.t.Context()
	repo, err := git.Open(ctx, w.dir)
	if err != nil {
		w.t.Fatal(err)
	}
	before, _ := os.ReadFile(filepath.Join(w.dir, ".git", "index"))
	if w.hasIgnoredAttributes() {
		w.key = "" // nothing that is saved tells of a change of theirs, as nothing tells git
	}
	o := w.options
	o.Key = w.key
	o.Scratch = keepsNative
	byGit, gitErr := (&ByGit{Repo: repo}).Take(ctx, o)
	if gitErr == nil {
		defer byGit.Discard()
	}
	o.Scratch = !keepsNative
	native, err := (&Native{Repo: repo}).take(ctx, o)
	var a aside
	w.compared++
	if errors.As(err, &a) {
		reason, _, _ := strings.Cut(a.why, "'")
		w.aside[reason]++
		native = nil
	} else if err != nil {
		if gitErr == nil {
			w.t.Errorf("native: %v", err)
		}
		return
	} else {
		defer native.Discard()
		w.native++
	}
	if after, _ := os.ReadFile(filepath.Join(w.dir, ".git", "index")); !bytes.Equal(before, after) {
		w.t.Error("the user's index was written")
	}
	if gitErr != nil {
		if _, refused := w.oracle(nil, false); refused == "" {
			w.t.Errorf("by git: %v", gitErr)
		}
		if native != nil {
			w.t.Errorf("native saved what git does not: %v", gitErr)
		}
		return
	}
	want, refused := w.oracle(byGit.Skipped, false)
	if refused != "" {
		w.t.Errorf("git refuses what was taken: %s", refused)
		return
	}
	for name, s := range map[string]*Snapshot{"by git": byGit, "native": native} {
		if s == nil {
			continue
		}
		if s.Tree != want && (s == native || len(w.hidden) == 0) {
			// We look at nanoseconds, git does not. What is read again is stored
			// by the rules of today.
			if strict, _ := w.oracle(byGit.Skipped, true); strict == s.Tree {
				continue
			}
			diff := w.differs(s, want)
			w.t.Errorf("%s: tree %s, want %s\n%s", name, s.Tree, want, diff)
		}
		if fmt.Sprintf("%q", s.Unprotected) != fmt.Sprintf("%q", byGit.Unprotected) {
			w.t.Errorf("%s: unprotected %q, by git %q", name, s.Unprotected, byGit.Unprotected)
		}
		if got := skippedOf(s); got != skippedOf(byGit) {
			w.t.Errorf("%s: skipped %s, by git %s", name, got, skippedOf(byGit))
		}
		if w.options.Exact {
			w.files(name, s)
		}
	}
	keep := byGit
	if keepsNative {
		keep = native
	}
	if keep == nil || !keeps {
		w.note("-- compared; not kept")
		return
	}
	if keep.Behind {
		w.note("-- compared; the cache stays behind")
		return
	}
	w.key = fmt.Sprintf("%040d", w.compared)
	if err := keep.Keep(w.key); err != nil {
		w.t.Errorf("keep: %v", err)
	}
	w.note("-- compared; kept: native %v", keepsNative)
}

// hasIgnoredAttributes says whether there are attributes that are not part of a snapshot.
func (w *world) hasIgnoredAttributes() bool {
	list := []string{"ls-files", "-z", "--others", "--ignored", "--exclude-standard"}
	for _, pattern := range w.options.Exclude {
		list = append(list, "--exclude="+pattern)
	}
	out := w.git(append(list, "--", "*.gitattributes")...)
	if out != "" || w.options.Omit != nil {
		return true
	}
	return w.options.MaxFileSize > 0 && w.existing(func(d fs.DirEntry) bool {
		fi, err := d.Info()
		return d.Name() == ".gitattributes" && (err != nil || fi.Size() > w.options.MaxFileSize)
	}) != ""
}

// differs says how a snapshot's tree differs from another.
func (w *world) differs(s *Snapshot, want string) string {
	cmd := exec.Command("git", "diff-tree", "-r", want, s.Tree)
	cmd.Dir = w.dir
	cmd.Env = append(os.Environ(), s.Env...)
	out, err := cmd.CombinedOutput()
	return fmt.Sprintf("%s (%v)", out, err)
}

func skippedOf(s *Snapshot) string {
	list := slices.Clone(s.Skipped)
	slices.SortFunc(list, func(a, b Skip) int { return strings.Compare(a.Path, b.Path) })
	return fmt.Sprintf("%q", list)
}

// files compares the list of files with the tree, and its stat data with the disk.
func (w *world) files(name string, s *Snapshot) {
	var got, want strings.Builder
	for _, e := range s.Files.Entries {
		fmt.Fprintf(&got, "%06o %s\t%s\x00", e.Mode, e.ID, e.Path)
		fi, err := os.Lstat(w.p(e.Path))
		if err == nil && (fi.Mode().IsRegular() || fi.Mode()&fs.ModeSymlink != 0) && e.Stat != index.StatOf(fi) && name == "native" {
			w.t.Errorf("%s: the stat data of %q is %+v, not %+v", name, e.Path, e.Stat, index.StatOf(fi))
		}
	}
	cmd := exec.Command("git", "ls-tree", "-r", "-z", s.Tree)
	cmd.Dir = w.dir
	cmd.Env = append(os.Environ(), s.Env...)
	out, err := cmd.Output()
	if err != nil {
		w.t.Fatal(err)
	}
	lines := strings.SplitAfter(string(out), "\x00")
	slices.SortFunc(lines, func(a, b string) int {
		_, a, _ = strings.Cut(a, "\t")
		_, b, _ = strings.Cut(b, "\t")
		return strings.Compare(a, b)
	})
	for _, line := range lines {
		meta, path, ok := strings.Cut(line, "\t")
		if fields := strings.Fields(meta); ok {
			fmt.Fprintf(&want, "%s %s\t%s", fields[0], fields[2], path)
		}
	}
	if got.String() != want.String() {
		w.t.Errorf("%s: the files are %q, the tree has %q", name, got.String(), want.String())
	}
}
