package ignore

import (
	"fmt"
	"os/exec"
	"strings"
	"testing"
)

// S0.17. Files of one list, at the top of a tree. git says what is right; the
// results here are for the reader, and are checked as well.
func TestTable(t *testing.T) {
	t.Parallel()
	const yes, no, kept = Ignored, None, Kept
	long := strings.Repeat("x", 3000)
	cases := []struct {
		file string
		path string // with '/' at the end it is a directory
		want Result
	}{
		{"", "a", no},
		{"\n\r\n \n/\n!\n!/\n//\n\\\n", "a", no},
		{"a", "a", yes},
		{"a", "b/a", yes},
		{"a", "A", no},
		{"a", "ab", no},
		{"a\n!a", "a", kept},
		{"!a\na", "a", yes},
		{"!a", "b", no},
		// Comments and what begins like one.
		{"#a", "#a", no},
		{"\\#a", "#a", yes},
		{" #a", " #a", yes},
		{"\\!a", "!a", yes},
		{"!!a", "!a", kept},
		{"/#a", "#a", yes},
		// Ends of lines.
		{"a  ", "a", yes},
		{"a  ", "a  ", no},
		{"a\\ ", "a ", yes},
		{"a\\  ", "a ", yes},
		{"a\\\\ ", "a\\", yes},
		{"a \\", "a ", no},
		{"a\t", "a", no},
		{"a\t", "a\t", yes},
		{"a\r\n", "a", yes},
		{"a\r", "a", yes},
		{"a\r\r\n", "a\r", yes},
		{"a \r\n", "a", yes},
		{"a\rb\n", "a\rb", yes},
		{"\rb\n", "\rb", yes},
		{"\\\r\n", "\r", no},
		{"\ufeffa", "a", yes},
		{"\ufeffa", "\ufeffa", no},
		{"b\n\ufeffa", "\ufeffa", yes},
		{"\ufeff#a", "#a", no},
		{"a\x00b\nc", "a", yes},
		{"a\x00b\nc", "ab", no},
		{"a\x00b\nc", "c", yes},
		{"a \x00b", "a", yes},
		{"\x00a", "a", no},
		{long, "x", no},
		{"*" + long[:200], "a" + long[:200], yes},
		// Directories.
		{"a/", "a", no},
		{"a/", "a/", yes},
		{"a/", "b/a/", yes},
		{"a/", "a/b", yes},
		{"a//", "a/", no},
		{"a\\/", "a/", no},
		{"*/", "a/", yes},
		{"/*/", "a/", yes},
		{"/*\n!/a/\n", "a/", kept},
		{"/*\n!/a/\n", "a/b", no},
		{"/a/*\n!/a/b\n", "a/b", kept},
		{"/a\n!/a/b\n", "a/b", yes},
		// Where a pattern is anchored.
		{"/a", "a", yes},
		{"/a", "b/a", no},
		{"//a", "a", no},
		{"a/b", "a/b", yes},
		{"a/b", "c/a/b", no},
		{"a/b", "a/b/c", yes},
		{"/*.c", "a.c", yes},
		{"/*.c", "b/a.c", no},
		{"*.c", "b/a.c", yes},
		{"*.c", ".c", yes},
		{"*", "a/b", yes},
		{"a*c", "abc", yes},
		{"a*c", "a/c", no},
		{"a/*", "a/b", yes},
		{"a/*/c", "a/b/c", yes},
		{"a/*/c", "a/c", no},
		{"a/*/c", "a/b/d/c", no},
		{"?", "é", no},
		{"??", "é", yes},
		{"a?b", "a/b", no},
		// Two stars.
		{"**", "a/b", yes},
		{"**/a", "a", yes},
		{"**/a", "b/c/a", yes},
		{"/**/a", "a", yes},
		{"a/**", "a/", no},
		{"a/**", "a", no},
		{"a/**", "a/b", yes},
		{"a/**/b", "a/b", yes},
		{"a/**/b", "a/c/d/b", yes},
		{"a/**/b", "a/xb", no},
		{"a/**b", "a/xb", yes},
		{"a/**b", "a/x/b", no},
		{"a/***/b", "a/x/y/b", yes},
		{"**/**/a", "a", yes},
		{"a/**/**/b", "a/b", yes},
		{"a/**\\/b", "a/b", no},
		{"a/**\\/b", "a/c/b", yes},
		{"[a]**/b", "ab", no},
		{"[a]**/b", "ac/b", yes},
		{"*a**/b", "xab", no},
		// Classes.
		{"[ab]", "b", yes},
		{"[!ab]", "b", no},
		{"[^ab]", "c", yes},
		{"[a-c]", "b", yes},
		{"[c-a]", "b", no},
		{"[]a]", "]", yes},
		{"[!]a]", "b", yes},
		{"[a-]", "-", yes},
		{"[-a]", "-", yes},
		{"[a", "a", no},
		{"[a", "[a", no},
		{"\\[a", "[a", yes},
		{"[\\]]", "]", yes},
		{"[a-\\c]", "b", yes},
		{"[[:digit:]]", "1", yes},
		{"[[:digit:]x]", "x", yes},
		{"[[:digit]", ":", yes},
		{"[[:digits:]1]", "1", no},
		{"[[:]", "[", yes},
		{"[[::]]", ":", no},
		{"[[:space:]]", "\v", no},
		{"[[:space:]]", "\t", yes},
		{"[[:digit:]-z]", "-", yes},
		{"[[:digit:]-z]", "a", no},
		{"a[/]b", "a/b", no},
		{"a[!x]b", "a/b", no},
		{"[\x80-\xff]", "\xc3", yes},
		{"\xff*", "\xffa", yes},
	}
	r := newTree(t, false)
	paths := make([]string, len(cases))
	lists := map[string]*List{}
	for i, c := range cases {
		base := fmt.Sprintf("c%d/", i)
		name, dir := strings.CutSuffix(c.path, "/")
		paths[i] = base + name
		r.write(base+".gitignore", c.file)
		if dir {
			r.mkdir(base + name)
		}
	}
	for i, said := range r.git(paths) {
		c := cases[i]
		if got := r.ours(paths[i], lists); got != c.want || said != c.want {
			t.Errorf("%q, %q: %v, and git says %v, want %v", c.file, c.path, got, said, c.want)
		}
	}
}

// What core.ignoreCase folds, and what it does not.
func TestFold(t *testing.T) {
	t.Parallel()
	r := newTree(t, true)
	var paths []string
	for i, c := range [][2]string{
		{"a", "A"}, {"A", "a"}, {"*.C", "x.c"}, {"A/b", "a/B"}, {"A/*", "a/B"}, {"A?", "ab"}, {"?A", "ba"}, {"\\A", "a"}, {"\\A", "A"}, {"\\a", "A"},
		{"[A]", "a"}, {"[A]", "A"}, {"[a]", "A"}, {"[A-B]", "a"}, {"[a-b]", "A"}, {"[[:upper:]]", "a"}, {"[[:lower:]]", "A"}, {"É", "é"}, {"[Z-a]", "z"}, {"[Z-a]", "_"},
	} {
		base := fmt.Sprintf("C%d/", i)
		r.write(base+".gitignore", c[0])
		paths = append(paths, base+c[1])
	}
	if decided := r.compare(paths); decided < 10 {
		t.Errorf("%d decided", decided)
	}
}

// Patterns of a command line are taken as they are.
func TestAdd(t *testing.T) {
	t.Parallel()
	r := newTree(t, false)
	names := []string{"a", "b", "b ", "#c", "!d", "d", "e/f", "e/g", "h/e/f", "x.log"}
	for _, n := range names {
		r.write(n, "")
	}
	r.write(".git/info/exclude", "!x.log\n")
	r.write("e/.gitignore", "!f\ng\n")
	for _, patterns := range [][]string{
		{}, {"a"}, {"a", "!a"}, {"!a", "a"}, {"b "}, {"#c"}, {"!d"}, {"\\!d"}, {"/e/"}, {"e/f"}, {"*.log"}, {"!*.log"}, {"*", "!e"}, {"f", "!/h/e"}, {"", "!", "/"}, {"!g"},
	} {
		command := Parse(nil, "", false)
		args := []string{"ls-files", "-z", "--others", "--exclude-standard"}
		for _, p := range patterns {
			command.Add(p)
			args = append(args, "--exclude="+p)
		}
		if command.Empty() != (len(patterns) == 0) {
			t.Errorf("%q: empty is %t", patterns, command.Empty())
		}
		out, err := r.command(args...).Output()
		if err != nil {
			t.Fatal(err)
		}
		kept := map[string]bool{}
		for _, n := range strings.Split(string(out), "\x00") {
			kept[n] = true
		}
		top := NewStack(command, r.read(".git/info/exclude", ""), nil)
		for _, n := range names {
			ignored, s := false, top
			for end := range n {
				if n[end] == '/' {
					ignored = ignored || s.Match([]byte(n[:end]), true) == Ignored
					s = s.Push(r.read(n[:end]+"/.gitignore", n[:end]+"/"))
				}
			}
			ignored = ignored || s.Match([]byte(n), false) == Ignored
			if ignored == kept[n] {
				t.Errorf("%q: %q ignored is %t, and git lists it: %t", patterns, n, ignored, kept[n])
			}
		}
	}
}

// A list is for what is below its directory.
func TestBase(t *testing.T) {
	t.Parallel()
	l := Parse([]byte("a\n/b\n"), "dir/sub/", false)
	for path, want := range map[string]Result{
		"dir/sub/a": Ignored, "dir/sub/x/a": Ignored, "dir/sub/b": Ignored, "dir/sub/x/b": None,
		"a": None, "dir/a": None, "dir/sub": None, "dir/sub/": None, "dir/suba": None, "": None,
	} {
		if got := l.Match([]byte(path), false); got != want {
			t.Errorf("%q: %v, want %v", path, got, want)
		}
	}
}

// Where versions of git differ the list says so, and answers as the newer ones.
func TestDisputed(t *testing.T) {
	t.Parallel()
	r := newTree(t, false)
	out, err := exec.Command("git", "version").Output()
	if err != nil {
		t.Fatal(err)
	}
	var major, minor int
	if _, err := fmt.Sscanf(string(out), "git version %d.%d", &major, &minor); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		file, path string
		disputed   bool
	}{
		{"foo**/bar", "foobar", true}, {"/a**/b", "axx/y/b", true}, {"x/a**", "x/ab", true}, {"!x/a***\\/y", "x/a/b/y", true},
		{"foo**", "foobar", false}, {"foo/**/bar", "foo/bar", false}, {"foo*/bar", "foobar", false}, {"foo**bar/x", "foobar/x", false}, {"**/bar", "foobar", false},
		{"[f]oo**/bar", "foobar", false}, {"a/b/*.**/c", "a/b/x.c", false},
	} {
		l := Parse([]byte("z\n"+c.file+"\ny"), "", false)
		if l.Disputed() != c.disputed {
			t.Errorf("%q: disputed is %t", c.file, l.Disputed())
		}
		if !c.disputed || major > 2 || major == 2 && minor >= 52 {
			r.write(".gitignore", "z\n"+c.file+"\ny")
			r.compare([]string{c.path})
		} else if c.path == "foobar" && l.Match([]byte(c.path), false) != None {
			t.Errorf("%q matches %q", c.file, c.path)
		}
	}
}

func TestNothingIsAllocated(t *testing.T) {
	for _, fold := range []bool{false, true} {
		s := NewStack(nil, Parse([]byte(common), "", fold), nil).Push(Parse([]byte(common), "", fold))
		path := []byte("internal/snapshot/bygit_linux_test.go")
		if n := testing.AllocsPerRun(100, func() { s.Match(path, false) }); n != 0 {
			t.Errorf("fold %t: %v allocations", fold, n)
		}
	}
}

// common is what a file of about 30 patterns looks like.
const common = `# build
/bin/
/dist
build/
*.o
*.a
*.so
*.exe
*.test
*.py[cod]
__pycache__/
node_modules/
.venv/
.idea/
.vscode/*
!.vscode/settings.json
*.log
*.tmp
*~
.DS_Store
Thumbs.db
coverage.out
/docs/_build/
**/target/
*.swp
npm-debug.log*
yarn-error.log*
.env
.env.*
!.env.example
vendor/**/testdata
`

func BenchmarkMatch(b *testing.B) {
	for _, fold := range []bool{false, true} {
		b.Run(fmt.Sprintf("fold=%t", fold), func(b *testing.B) {
			l := Parse([]byte(common), "", fold)
			paths := [][]byte{[]byte("main.go"), []byte("internal/snapshot/bygit_linux_test.go"), []byte("docs/guide/index.md"), []byte("lib/x.o")}
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				l.Match(paths[i%len(paths)], false)
			}
		})
	}
}
