package attributes

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

// tree is a repository of the real git, which judges what this package says. It
// has one filter, "up", and one, "down", that is for the way out alone.
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

func hasDriver(name string) bool { return name == "up" || name == "must" }

func (r *tree) command(args ...string) *exec.Cmd {
	cmd := exec.Command("git", append([]string{
		"-c", fmt.Sprintf("core.ignoreCase=%t", r.fold), "-c", "core.attributesFile=" + r.dir + "/.git/global", "-c", "core.autocrlf=false",
		"-c", "filter.up.clean=tr a-z A-Z", "-c", "filter.down.smudge=tr A-Z a-z", "-c", "filter.must.required=true",
	}, args...)...)
	cmd.Dir = r.dir
	cmd.Env = gittest.Env(r.dir, "GIT_ATTR_NOSYSTEM=1")
	return cmd
}

func (r *tree) write(name, data string) {
	r.t.Helper()
	gittest.Write(r.t, r.dir, name, data)
}

func (r *tree) read(name string) []byte {
	data, err := os.ReadFile(filepath.Join(r.dir, filepath.FromSlash(name)))
	if err != nil && !os.IsNotExist(err) {
		r.t.Fatal(err)
	}
	return data
}

// oracle is what we say of a tree.
type oracle struct {
	tree  *tree
	rules Rules
	files map[string]*File
}

func (r *tree) ours() *oracle {
	o := &oracle{r, Rules{Fold: r.fold, Driver: hasDriver}, map[string]*File{}}
	for _, name := range []string{".git/global", ".gitattributes", ".git/info/attributes"} {
		o.rules.Macros(r.read(name))
	}
	return o
}

func (o *oracle) file(name, base string) *File {
	f, ok := o.files[name]
	if !ok {
		f = o.rules.Parse(o.tree.read(name), base)
		o.files[name] = f
	}
	return f
}

// mayConvert is what all files that hold for a path say together.
func (o *oracle) mayConvert(name string) bool {
	files := []*File{o.file(".git/global", ""), o.file(".git/info/attributes", ""), o.file(".gitattributes", "")}
	for i := range name {
		if base := name[:i+1]; name[i] == '/' {
			files = append(files, o.file(base+".gitattributes", base))
		}
	}
	for _, f := range files {
		if f.Conversion([]byte(name)) != None {
			if f.Plain() {
				o.tree.t.Errorf("%q: a plain file that may convert", name)
			}
			return true
		}
	}
	return false
}

// hashes says whether git makes something else than the content, or refuses to
// make anything.
func (r *tree) hashes(name, content string) bool {
	r.t.Helper()
	raw := r.command("hash-object", "--stdin", "--no-filters")
	raw.Stdin = strings.NewReader(content)
	want, err := raw.Output()
	if err != nil {
		r.t.Fatal(err)
	}
	cmd := r.command("hash-object", "-w", "--stdin", "--path="+name)
	cmd.Stdin = strings.NewReader(content)
	got, err := cmd.Output()
	return err != nil || !bytes.Equal(got, want)
}

// attributes are those that git finds for each path.
func (r *tree) attributes(paths []string) []map[string]string {
	r.t.Helper()
	cmd := r.command("check-attr", "-z", "--stdin", "-a")
	var stderr bytes.Buffer
	cmd.Stdin, cmd.Stderr = strings.NewReader(strings.Join(paths, "\x00")+"\x00"), &stderr
	out, err := cmd.Output()
	if err != nil {
		r.t.Fatalf("git check-attr: %v: %s", err, &stderr)
	}
	fields := strings.Split(string(out), "\x00")
	found := make([]map[string]string, len(paths))
	at := 0
	for i, name := range paths {
		found[i] = map[string]string{}
		for ; at+2 < len(fields) && fields[at] == name; at += 3 {
			found[i][fields[at+1]] = fields[at+2]
		}
	}
	if at != len(fields)-1 {
		r.t.Fatalf("git check-attr says something of %q", fields[at])
	}
	return found
}

// converting says whether attributes that git found may convert.
func converting(a map[string]string) bool {
	for name, values := range map[string]string{"text": " set auto input ", "crlf": " set auto input ", "eol": " lf crlf ", "ident": " set ", "filter": " up must ", "working-tree-encoding": " set UTF-16 latin1 "} {
		if v, ok := a[name]; ok && strings.Contains(values, " "+v+" ") {
			return true
		}
	}
	return false
}

// compare checks that no path that git may convert is said to be safe, and
// counts those that it may convert. The paths are different from each other.
func (r *tree) compare(paths []string) (converted int) {
	r.t.Helper()
	o := r.ours()
	for i, a := range r.attributes(paths) {
		ours, git := o.mayConvert(paths[i]), converting(a)
		if git && !ours {
			r.t.Errorf("%q (fold %t) is safe, and git says %q\nglobal %q, info %q, top %q, own %q", paths[i], r.fold, a,
				r.read(".git/global"), r.read(".git/info/attributes"), r.read(".gitattributes"), r.read(path.Dir(paths[i])+"/.gitattributes"))
		}
		if git {
			converted++
		}
	}
	return converted
}

var (
	patterns = []string{
		"*", "a", "b", "*.c", "a.c", "/a", "/*.c", "d/a", "d/**", "**/a", "d/*", "*/a.c", "?", "[ab]", "[attr]", "\\a", "\\!a", "!a", "a/", "A", "*.C", "d**/a", "a\\ b",
		`"a"`, `"a b"`, `"a\tb"`, `"\141"`, `"a`, `"\"a"`, `"a\q"`, `"*\056c"`, `"\\a"`, `"a\000b"`, `"[attr]m1"`, `"[attr]"`, `""`, "#a", "\ufeffa", "é", "\xff", `"\303\251"`, `"\377"`, `"\400"`, `"\14`,
		"[attr]m1", "[attr]m2", "[attr]m3", "[attr]binary", "[attr]-m", "[attr]m/", "[attr]text",
	}
	settings = []string{
		"text", "-text", "!text", "text=auto", "text=input", "text=no", "text=", "eol=lf", "eol=crlf", "eol", "-eol", "!eol", "eol=native", "crlf", "-crlf", "crlf=input", "crlf=auto",
		"ident", "-ident", "!ident", "ident=yes", "filter=up", "filter=down", "filter=none", "filter=must", "filter", "-filter", "!filter", "filter=", "working-tree-encoding=UTF-16",
		"working-tree-encoding=latin1", "working-tree-encoding=utf-8", "working-tree-encoding", "-working-tree-encoding", "binary", "-binary", "m1", "-m1", "!m1", "m1=x", "m2", "m3", "diff", "-diff",
		"merge=union", "export-ignore", "linguist-generated=true", "-text=auto", "--text", "te,xt", "=text", "é", "Text", "eol=LF", "m1", "m2",
	}
	names = []string{"a", "b", "A", "a.c", "b.c", "A.C", "a b", "a\tb", "\"a", "!a", "#a", "t", "é", "\xff", "\ufeffa", "\\a", "ab", "r", "\"a\\q\"", "a\\ b", "m1"}
)

func attributesFile(r *rand.Rand) string {
	var s strings.Builder
	if r.IntN(12) == 0 {
		s.WriteString("\ufeff")
	}
	for n := r.IntN(5); n >= 0; n-- {
		if r.IntN(12) == 0 {
			s.WriteString([]string{" ", "\t", "\r", "\x00", " \t "}[r.IntN(5)])
		}
		s.WriteString(patterns[r.IntN(len(patterns))])
		for range r.IntN(4) {
			s.WriteString([]string{" ", " ", " ", "\t", "  ", "\r", "", "\x00", "\v"}[r.IntN(9)])
			s.WriteString(settings[r.IntN(len(settings))])
		}
		if n > 0 || r.IntN(2) == 0 {
			s.WriteString([]string{"\n", "\n", "\r\n", " \n", "\n\n"}[r.IntN(5)])
		}
	}
	return s.String()
}

// S0.17, N.13. Whatever git may convert is never said to be safe.
func FuzzTrees(f *testing.F) {
	for seed := range uint64(12) {
		f.Add(seed, seed%2 == 1)
	}
	f.Fuzz(func(t *testing.T, seed uint64, fold bool) {
		rnd := rand.New(rand.NewPCG(seed, 0))
		r := newTree(t, fold)
		for _, name := range []string{".git/global", ".git/info/attributes", ".gitattributes"} {
			if rnd.IntN(3) == 0 {
				r.write(name, attributesFile(rnd))
			}
		}
		paths := append([]string{}, names...)
		for i := range 30 {
			base := fmt.Sprintf("%d/", i)
			r.write(base+".gitattributes", attributesFile(rnd))
			if rnd.IntN(2) == 0 {
				r.write(base+"d/.gitattributes", attributesFile(rnd))
			}
			for _, n := range names {
				paths = append(paths, base+n, base+"d/"+n)
			}
		}
		if r.compare(paths) == 0 {
			t.Error("git converts no path: the generator is worth nothing")
		}
	})
}

func FuzzParse(f *testing.F) {
	rnd := rand.New(rand.NewPCG(7, 7))
	for range 40 {
		f.Add([]byte(attributesFile(rnd)), names[rnd.IntN(len(names))], rnd.IntN(2) == 0)
	}
	trees := map[bool]*tree{false: newTree(f, false), true: newTree(f, true)}
	f.Fuzz(func(t *testing.T, file []byte, name string, fold bool) {
		clean := strings.Trim(path.Clean("/"+name), "/")
		if clean != name || name == "" || strings.Contains(name, "\x00") || len(name) > 200 || strings.EqualFold(name[:min(4, len(name))], ".git") {
			return
		}
		if bytes.Contains(file, []byte("=set")) { // git prints it as it prints a set attribute
			return
		}
		r := *trees[fold]
		r.t = t
		r.write(".gitattributes", string(file))
		r.compare([]string{name})
	})
}
