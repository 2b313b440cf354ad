package ignore

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strings"
	"testing"

	"github.com/git-checkpoint/git-checkpoint/internal/gittest"
)

// tree is a repository of the real git, which judges what this package says.
type tree struct {
	t    testing.TB
	dir  string
	fold bool
}

func newTree(t testing.TB, fold bool) *tree {
	t.Helper()
	r := &tree{t: t, dir: filepath.Join(t.TempDir(), "work"), fold: fold}
	cmd := r.command("init", "-q", "--template=", r.dir)
	cmd.Dir = filepath.Dir(r.dir)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("git init: %v: %s", err, out)
	}
	return r
}

func (r *tree) command(args ...string) *exec.Cmd {
	cmd := exec.Command("git", append([]string{
		"-c", fmt.Sprintf("core.ignoreCase=%t", r.fold), "-c", "core.excludesFile=" + r.dir + "/.git/global",
	}, args...)...)
	cmd.Dir = r.dir
	cmd.Env = gittest.Env(r.dir)
	return cmd
}

func (r *tree) mkdir(name string) {
	// Some systems do not have every name. Then it is no directory, for git too.
	_ = os.MkdirAll(filepath.Join(r.dir, filepath.FromSlash(name)), 0o777)
}

func (r *tree) isDir(name string) bool {
	fi, err := os.Lstat(filepath.Join(r.dir, filepath.FromSlash(name)))
	return err == nil && fi.IsDir()
}

func (r *tree) write(name, data string) {
	r.t.Helper()
	gittest.Write(r.t, r.dir, name, data)
}

// read is the patterns of a file of the tree, nil if there is none.
func (r *tree) read(name, base string) *List {
	data, err := os.ReadFile(filepath.Join(r.dir, filepath.FromSlash(name)))
	if err != nil {
		return nil
	}
	return Parse(data, base, r.fold)
}

// git is what git says of the paths, of which parents may be ignored.
func (r *tree) git(paths []string) []Result {
	r.t.Helper()
	var in bytes.Buffer
	for _, p := range paths {
		in.WriteString(":/:" + p + "\x00")
	}
	cmd := r.command("check-ignore", "-z", "--stdin", "-v", "-n", "--no-index")
	var stderr bytes.Buffer
	cmd.Stdin, cmd.Stderr = &in, &stderr
	out, err := cmd.Output()
	if e, ok := err.(*exec.ExitError); err != nil && !(ok && e.ExitCode() == 1) {
		r.t.Fatalf("git check-ignore: %v: %s", err, &stderr)
	}
	fields := strings.Split(string(out), "\x00")
	if len(fields) != 4*len(paths)+1 {
		r.t.Fatalf("git check-ignore: %d fields for %d paths", len(fields), len(paths))
	}
	said := make([]Result, len(paths))
	for i := range paths {
		switch line, pattern := fields[4*i+1], fields[4*i+2]; {
		case line == "":
		case strings.HasPrefix(pattern, "!"):
			said[i] = Kept
		default:
			said[i] = Ignored
		}
	}
	return said
}

// ours is what a walk with a Stack would come to.
func (r *tree) ours(name string, lists map[string]*List) Result {
	s := NewStack(nil, r.read(".git/info/exclude", ""), r.read(".git/global", ""))
	for base := ""; ; {
		list, ok := lists[base]
		if !ok {
			list = r.read(base+".gitignore", base)
			lists[base] = list
		}
		s = s.Push(list)
		component, _, deeper := strings.Cut(name[len(base):], "/")
		if !deeper {
			return s.Match([]byte(name), r.isDir(name))
		}
		if s.Match([]byte(base+component), true) == Ignored {
			return Ignored
		}
		base += component + "/"
	}
}

func (r *tree) compare(paths []string) (decided int) {
	r.t.Helper()
	lists := map[string]*List{}
	for i, want := range r.git(paths) {
		if want != None {
			decided++
		}
		got := r.ours(paths[i], lists)
		if got == want {
			continue
		}
		var files strings.Builder
		for d := path.Dir(paths[i]); ; d = path.Dir(d) {
			if data, err := os.ReadFile(filepath.Join(r.dir, filepath.FromSlash(d), ".gitignore")); err == nil {
				fmt.Fprintf(&files, "\n%q: %q", d, data)
			}
			if d == "." {
				break
			}
		}
		r.t.Errorf("%q (fold %t, directory %t): %v, and git says %v%s", paths[i], r.fold, r.isDir(paths[i]), got, want, &files)
	}
	return decided
}

// Pieces of patterns, and of the names that they may be about.
var (
	pieces = []string{
		"a", "b", "ab", "A", "B", "Z", "a", "b", "/", "/", "/", "*", "*", "**", "**/", "/**", "/**/", "***", "?", "\\", "\\*", "\\?", "\\a", "\\A", "\\ ", "\\!",
		"\\#", "\\/", "!", "#", " ", "  ", "\t", ".", "-", "^", ":", "]", "[", "[ab]", "[!a]", "[^b]", "[a-z]", "[A-Z]", "[Z-a]", "[b-a]", "[]a]", "[a-]", "[-a]",
		"[!]a]", "[a\\-z]", "[\\]]", "[\\A]", "[a-\\c]", "[/a]", "[!/]", "[--0]", "[[:alpha:]]", "[[:upper:]]", "[^[:lower:]]", "[[:digit:][:space:]-]", "[[:punct:]]",
		"[[:cntrl:]]", "[[:print:]a]", "[[:graph:]]", "[[:xdigit:]]", "[[:blank:]]", "[[:alnum:]]", "[[:nope:]]", "[[:alpha:]", "[[:a]", "[[:]", "[[::]]", "[[:alpha:]-z]",
		"[a-[:alpha:]]", "\r", "\xff", "\x80", "é", "\x01", "\x00", "1", "*.c", ".c", "*a", "*/", "a*", "/*", "a/", "\v", "\f", "\x7f", "[\x80-\xff]",
	}
	letters = []string{
		"a", "b", "a", "b", "ab", "A", "B", "Z", "z", "c", "/", "/", "/", "/", ".", ".c", " ", "*", "?", "\\", "!", "#", "[", "]", "-", "^", ":", "\r", "\n", "\t", "\v", "\f", "\x01",
		"\x7f", "\xff", "\x80", "é", "0", "f", "_", "~",
	}
)

func some(r *rand.Rand, from []string, most int) string {
	var s strings.Builder
	for range 1 + r.IntN(most) {
		s.WriteString(from[r.IntN(len(from))])
	}
	return s.String()
}

// patternFile makes lines of all shapes, but none that versions of git differ
// about.
func patternFile(r *rand.Rand, lines int) string {
	for {
		var s strings.Builder
		if r.IntN(10) == 0 {
			s.WriteString("\ufeff")
		}
		for i := range lines {
			s.WriteString(patternLine(r))
			if i < lines-1 || r.IntN(2) == 0 {
				s.WriteString([]string{"\n", "\n", "\n", "\r\n", "\n\n", "\r\r\n"}[r.IntN(6)])
			}
		}
		if !Parse([]byte(s.String()), "", false).Disputed() {
			return s.String()
		}
	}
}

func patternLine(r *rand.Rand) string {
	line := some(r, pieces, 5)
	switch r.IntN(8) {
	case 0:
		line = "!" + line
	case 1:
		line = "/" + line
	case 2:
		line = []string{"#", " ", "", "\\", "!!", "\ufeff"}[r.IntN(6)] + line
	}
	if r.IntN(6) == 0 {
		line += []string{"/", " ", "  ", "\\ ", "\\", " \\", "\\ \\ ", "\r", " \r", "\t", "//"}[r.IntN(11)]
	}
	return line
}

// nameFor makes a name that the pattern has a good chance to match.
func nameFor(r *rand.Rand, pattern string) string {
	var s strings.Builder
	for i := 0; i < len(pattern); i++ {
		switch c := pattern[i]; c {
		case '*':
			s.WriteString([]string{"", "a", "ab", "b/a", "Z"}[r.IntN(5)])
		case '?':
			s.WriteString(some(r, letters, 1))
		case '[':
			if end := strings.IndexByte(pattern[i:], ']'); end > 0 {
				i += end
			}
			s.WriteString(some(r, letters, 1))
		case '\\', '!':
			if r.IntN(4) == 0 {
				s.WriteByte(c)
			}
		default:
			if r.IntN(8) == 0 {
				c ^= 0x20
			}
			s.WriteByte(c)
		}
	}
	return s.String()
}

// clean makes a name one that git takes as a path as it is, or empty.
func clean(name string) string {
	name = strings.Trim(path.Clean("/"+strings.ReplaceAll(name, "\x00", "")), "/")
	for component := range strings.SplitSeq(name, "/") {
		if strings.EqualFold(component, ".git") || len(component) > 200 {
			return ""
		}
	}
	if len(name) > 1000 {
		return ""
	}
	return name
}

// S0.17. The whole of what git does with its sources, on generated ones.
func FuzzTrees(f *testing.F) {
	for seed := range uint64(8) {
		f.Add(seed, seed%2 == 1)
	}
	f.Fuzz(func(t *testing.T, seed uint64, fold bool) {
		rnd := rand.New(rand.NewPCG(seed, 0))
		r := newTree(t, fold)
		var paths []string
		for i := range 60 {
			generate(rnd, r, fmt.Sprintf("c%d/", i), &paths)
		}
		if decided := r.compare(paths); decided < len(paths)/10 {
			t.Errorf("patterns decide about %d of %d paths only: the generator is worth nothing", decided, len(paths))
		}
	})
}

// The files that are for the whole tree, with and without files below them.
func TestSourcesOfTheWholeTree(t *testing.T) {
	t.Parallel()
	for seed := range uint64(20) {
		rnd := rand.New(rand.NewPCG(seed, 1))
		r := newTree(t, seed%2 == 1)
		r.write(".git/info/exclude", patternFile(rnd, 3))
		r.write(".git/global", patternFile(rnd, 3))
		var paths []string
		generate(rnd, r, "", &paths)
		generate(rnd, r, "", &paths)
		r.compare(paths)
	}
}

// generate makes files of patterns below base, and directories and paths for
// them to decide about.
func generate(rnd *rand.Rand, r *tree, base string, paths *[]string) {
	file := patternFile(rnd, 1+rnd.IntN(8))
	r.write(base+".gitignore", file)
	lines := strings.FieldsFunc(file, func(c rune) bool { return c == '\n' })
	var dirs []string
	for range 40 {
		name := some(rnd, letters, 6)
		if rnd.IntN(3) > 0 && len(lines) > 0 {
			name = nameFor(rnd, lines[rnd.IntN(len(lines))])
		}
		if len(dirs) > 0 && rnd.IntN(3) == 0 {
			name = dirs[rnd.IntN(len(dirs))] + "/" + name
		}
		if name = clean(name); name == "" || name == ".gitignore" {
			continue
		}
		*paths = append(*paths, base+name)
		if rnd.IntN(4) > 0 {
			continue
		}
		if r.mkdir(base + name); r.isDir(base + name) {
			dirs = append(dirs, name)
			if rnd.IntN(2) == 0 {
				below := patternFile(rnd, 1+rnd.IntN(3))
				r.write(base+name+"/.gitignore", below)
				*paths = append(*paths, base+clean(name+"/"+nameFor(rnd, below)))
			}
		}
	}
}

func FuzzMatch(f *testing.F) {
	rnd := rand.New(rand.NewPCG(1, 2))
	for range 60 {
		file := patternFile(rnd, 1+rnd.IntN(4))
		f.Add([]byte(file), nameFor(rnd, file), rnd.IntN(2) == 0, rnd.IntN(2) == 0)
	}
	trees := map[bool]*tree{false: newTree(f, false), true: newTree(f, true)}
	f.Fuzz(func(t *testing.T, file []byte, name string, fold, dir bool) {
		if name = clean(name); name == "" || name == ".gitignore" {
			return
		}
		r := *trees[fold]
		r.t = t
		if Parse(file, "", fold).Disputed() {
			return
		}
		r.write(".gitignore", string(file))
		if dir {
			r.mkdir(name)
			top, _, _ := strings.Cut(name, "/")
			defer os.RemoveAll(filepath.Join(r.dir, top))
		}
		r.compare([]string{name})
	})
}
