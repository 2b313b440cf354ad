package attributes

import (
	"fmt"
	"strings"
	"testing"
)

// Of one line git itself says, by the object it makes, whether it converts: no
// line may be said to convert that does not, nor the other way round.
func TestOneLine(t *testing.T) {
	t.Parallel()
	// Every conversion changes it, or fails.
	const content = "a\r\n$Id: x$\r\n\xe9"
	r := newTree(t, false)
	cases := []struct {
		line string
		want bool
	}{
		{"", false}, {"f", false}, {"# f text", false}, {"  f text", true}, {"g text", false},
		{"f text", true}, {"f -text", false}, {"f !text", false}, {"f text=auto", true}, {"f text=input", true}, {"f text=lf", false}, {"f text=", false}, {"f Text", false},
		{"f crlf", true}, {"f -crlf", false}, {"f crlf=input", true}, {"f crlf=auto", true}, {"f crlf=yes", false},
		{"f eol=lf", true}, {"f eol=crlf", true}, {"f eol", false}, {"f -eol", false}, {"f eol=LF", false}, {"f eol=native", false},
		{"f ident", true}, {"f -ident", false}, {"f ident=yes", false},
		{"f filter=up", true}, {"f filter=down", false}, {"f filter=none", false}, {"f filter=must", true}, {"f filter", false}, {"f -filter", false}, {"f filter=", false}, {"f filter=UP", false},
		{"f working-tree-encoding=UTF-16", true}, {"f working-tree-encoding=latin1", true}, {"f working-tree-encoding=UTF-8", false}, {"f working-tree-encoding=utf8", false},
		{"f working-tree-encoding", true}, {"f -working-tree-encoding", false}, {"f !working-tree-encoding", false}, {"f working-tree-encoding=", false},
		{"f binary", false}, {"f diff merge=union export-ignore linguist-vendored whitespace=cr-at-eol", false},
		{"f -text=auto", false}, {"f text te,xt", false}, {"f text =x", false}, {"f text --x", false}, {"f text=auto\r", true}, {"f\ttext", true}, {"f diff\rtext", true}, {"f\vtext", false},
		{"f/ text", false}, {"!f text", false}, {"\\f text", true}, {"/f text", true}, {"* text=auto", true}, {"*.f text", false}, {"d/f text", false}, {"**/f text", true},
		{`"f" text`, true}, {`"f"text`, true}, {`"\146" text`, true}, {`"f text`, false}, {`"\f" text`, false}, {`"f" "text"`, false}, {`"\\f" text`, true}, {`"f\000x" text`, true},
		{"\ufefff text", true}, {"x\n\ufefff text", false}, {"f\x00 text", false}, {"f text\x00,", true},
		{"[attr]m text\nf m", true}, {"f m\n[attr]m text", true}, {"[attr]m text\nf -m", false}, {"[attr]m text\nf m=x", false}, {"[attr]m -text\nf m", false},
		{"[attr]m n\n[attr]n eol=lf\nf m", true}, {"[attr]m n m\n[attr]n m -text\nf m", false}, {"[attr]binary text\nf binary", true}, {"[attr] m text\nf m", false},
		{"[attr]-m text\nf -m", false}, {`"[attr]m" text` + "\nf m", true}, {`"[attr] m x" text` + "\nf m", true}, {"[attr]m text é\nf m", false}, {"[attr] text", false},
	}
	for _, c := range cases {
		r.write(".gitattributes", c.line)
		got, git := r.ours().mayConvert("f"), r.hashes("f", content)
		if got != c.want || git != c.want {
			t.Errorf("%q: %t, and git says %t, want %t", c.line, got, git, c.want)
		}
		rules := Rules{Driver: hasDriver}
		rules.Macros([]byte(c.line))
		if rules.Parse([]byte(c.line), "").Conversion([]byte("f"))&Any == 0 && r.hashes("f", "a\r\r$Id: x$\n\xe9") {
			t.Errorf("%q: git does not only convert line endings", c.line)
		}
	}
	for name, want := range map[string]bool{"a": true, "[attr]": false} {
		r.write(".gitattributes", "[attr] text")
		if got := r.ours().mayConvert(name); got != want {
			t.Errorf("[attr] as a class: %q: %t", name, got)
		}
	}
}

// Of one line git itself says, too, whether it matters that the index has the
// file with CRs.
func TestOneLineByIndex(t *testing.T) {
	t.Parallel()
	const content = "a\r\nb\r\n"
	r := newTree(t, false)
	r.write("f", content)
	run := func(args ...string) string {
		out, err := r.command(args...).Output()
		if err != nil {
			t.Fatalf("git %q: %v", args, err)
		}
		return strings.TrimSpace(string(out))
	}
	crlf := run("hash-object", "-w", "--no-filters", "f")
	for line, want := range map[string]bool{
		"": false, "f text": false, "f text=auto": true, "f crlf=auto": true, "f text=input": false, "f eol=lf": false, "f text=auto eol=crlf": true,
		"f ident": false, "f filter=up": false, "f ident text=auto": true, "f filter=up text=auto": true, "[attr]m text=auto\nf m": true, "g text=auto": false, "f text=automatic": false,
	} {
		r.write(".gitattributes", line)
		run("update-index", "--add", "--cacheinfo", "100644,"+crlf+",f")
		run("update-index", "f")
		git := !strings.Contains(run("ls-files", "--stage", "f"), run("hash-object", "f"))
		rules := Rules{Driver: hasDriver}
		rules.Macros([]byte(line))
		got := rules.Parse([]byte(line), "").Conversion([]byte("f"))&ByIndex != 0
		if got != want || git != want {
			t.Errorf("%q: %t, and git says %t, want %t", line, got, git, want)
		}
	}
}

// Macros are for all files, but are defined at the top alone.
func TestMacrosOfOtherFiles(t *testing.T) {
	t.Parallel()
	r := newTree(t, false)
	r.write(".git/global", "[attr]one two\n")
	r.write(".git/info/attributes", "[attr]two ident\n")
	r.write(".gitattributes", "[attr]three -ident\n")
	r.write("d/.gitattributes", "[attr]four text\na one\nb three\nc four\n")
	for name, want := range map[string]bool{"d/a": true, "d/b": false, "d/c": false} {
		if got, git := r.ours().mayConvert(name), r.hashes(name, "a\r\n$Id: x$\n"); got != want || git != want {
			t.Errorf("%q: %t, and git says %t, want %t", name, got, git, want)
		}
	}
}

func TestPlain(t *testing.T) {
	t.Parallel()
	for data, want := range map[string]bool{
		"": true, "# text\n": true, "*.go diff=golang\n*.png binary\n/docs export-ignore\n*.pb.go linguist-generated=true -diff\n*.sh -text\n": true,
		"* text=auto\n": false, "*.bin filter=lfs diff=lfs merge=lfs -text\n": false, "a/ text\n": true, "x diff\ny ident": false,
	} {
		if got := new(Rules).Parse([]byte(data), "").Plain(); got != want {
			t.Errorf("%q: %t", data, got)
		}
		if got := Plain([]byte(data)); got != want {
			t.Errorf("%q as a whole: %t", data, got)
		}
	}
	// A macro counts where it is defined.
	for data, want := range map[string]bool{"[attr]m -text\n": true, "[attr]m n\n[attr]n eol=lf\n": false, "x m\n": true, "text diff\n": true} {
		if got := Plain([]byte(data)); got != want {
			t.Errorf("%q: %t", data, got)
		}
	}
}

func TestPlainAsAWhole(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]bool{
		"":                               false,
		"# text eol=crlf\n":              false,
		"  # text\n":                     false,
		"* -text -crlf !eol binary\n":    false,
		"*.go diff=golang\n*.png -ident": false,
		"* text=auto":                    true,
		"*.txt\ttext\r\n":                true,
		"*.sh eol=lf\n":                  true,
		"*.c ident\n":                    true,
		"* filter=lfs diff=lfs\n":        true,
		"[attr]mine text\n":              true,
		"a working-tree-encoding=x":      true,
		"\"a b\" crlf":                   true,
	} {
		if got := !Plain([]byte(text)); got != want {
			t.Errorf("%q: %v", text, got)
		}
	}
}

// What cannot be known without knowing the version of git is not called safe.
func TestWhatIsUncertainMayConvert(t *testing.T) {
	t.Parallel()
	for data, path := range map[string]string{
		"x" + strings.Repeat(" diff", 1000) + " text": "x",
		"foo**/bar text":  "foobar",
		"\ufeffa text":    "\ufeffa",
		"a\x00\nb text\n": "b",
	} {
		if new(Rules).Parse([]byte(data), "").Conversion([]byte(path)) == None {
			t.Errorf("%.30q: %q is safe", data, path)
		}
	}
}

func TestBase(t *testing.T) {
	t.Parallel()
	f := new(Rules).Parse([]byte("*.c text\n/b text\n"), "dir/")
	for path, want := range map[string]bool{"dir/a.c": true, "dir/x/a.c": true, "dir/b": true, "dir/x/b": false, "a.c": false, "b": false, "dir": false, "dir/": false, "": false} {
		if got := f.Conversion([]byte(path)) != None; got != want {
			t.Errorf("%q: %t", path, got)
		}
	}
}

// Macros that name each other many times are read in no time.
func TestMacrosWithoutEnd(t *testing.T) {
	t.Parallel()
	var data strings.Builder
	for i := range 2000 {
		fmt.Fprintf(&data, "[attr]m%d m%d m%d m%d\n", i, i+1, i+1, (i*7)%2000)
	}
	data.WriteString("* m0\n")
	rules := new(Rules)
	rules.Macros([]byte(data.String()))
	if !rules.Parse([]byte(data.String()), "").Plain() {
		t.Error("not plain")
	}
}

func BenchmarkMayConvert(b *testing.B) {
	f := new(Rules).Parse([]byte("* -text\n*.txt text\n*.sh eol=lf\n*.bat eol=crlf\n*.psd filter=lfs diff=lfs merge=lfs -text\n/assets/** filter=lfs\n*.go diff=golang\n"), "")
	path := []byte("internal/snapshot/bygit_linux_test.go")
	b.ReportAllocs()
	for b.Loop() {
		f.Conversion(path)
	}
}
