package output

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/git-checkpoint/git-checkpoint/internal/fault"
)

func TestPathQuotesWhatCouldForgeOutput(t *testing.T) {
	for _, c := range []struct{ path, want string }{
		{"a.txt", "a.txt"},
		{"with space", "with space"},
		{"résumé/日本", "résumé/日本"},
		{"", `""`},
		{"a\nerror: b", `"a\nerror: b"`},
		{"tab\there", `"tab\there"`},
		{`quo"te`, `"quo\"te"`},
		{`back\slash`, `"back\\slash"`},
		{"\x1b[31mred", `"\033[31mred"`},
		{"\x7f", `"\177"`},
		{"caf\xe9", `"caf\351"`},
		{"a\u202eb", `"a\342\200\256b"`},
		{"a\u0085b", `"a\302\205b"`},
		{"é\xff", `"é\377"`},
	} {
		if got := Path(c.path); got != c.want {
			t.Errorf("Path(%q) = %s, want %s", c.path, got, c.want)
		}
	}
	if got := Quoted("a b"); got != "'a b'" {
		t.Errorf("Quoted = %s", got)
	}
	if got := Quoted("a\nb"); got != `"a\nb"` {
		t.Errorf("Quoted = %s", got)
	}
}

func TestNameKeepsWhatJSONCanHold(t *testing.T) {
	for _, c := range []struct{ path, want string }{
		{"a\nb", "a\nb"},
		{`back\slash`, `back\slash`},
		{"caf\xe9", `"caf\351"`},
		{`"caf\351"`, `"\"caf\\351\""`},
	} {
		if got := Name(c.path); got != c.want {
			t.Errorf("Name(%q) = %s, want %s", c.path, got, c.want)
		}
		if back, err := Unname(c.want); err != nil || back != c.path {
			t.Errorf("Unname(%s) = %q, %v, want %q", c.want, back, err, c.path)
		}
	}
	for _, name := range []string{`"`, `"a`, `"a"b"`, `"\`, `"\"`, `"\x"`, `"\34"`, `"\999"`} {
		if path, err := Unname(name); err == nil {
			t.Errorf("Unname(%s) = %q, want an error", name, path)
		}
	}
	if Names(nil) == nil {
		t.Error("Names(nil) would be null in JSON")
	}
}

func TestTextIsOneLine(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{"plain: 'x' \u2192 y", "plain: 'x' \u2192 y"},
		{"one\nhint: two", "one hint: two"},
		{"\x1b]0;title\x07", "?]0;title?"},
		{"bad \xff byte", "bad ? byte"},
		{"ends\n", "ends"},
	} {
		if got := Text(c.text); got != c.want {
			t.Errorf("Text(%q) = %q, want %q", c.text, got, c.want)
		}
	}
}

func TestErrors(t *testing.T) {
	inner := fault.New(fault.NotFound, "no-such-run", "run 'a<b' is unknown").WithHint("did you mean 'ab'?")
	wrapped := fmt.Errorf("save: %w", inner)
	for _, c := range []struct {
		name string
		json bool
		err  error
		want string
	}{
		{"people", false, wrapped, "error: save: run 'a<b' is unknown\nhint: did you mean 'ab'?\n"},
		{"programs", true, wrapped, `{"error":{"code":"no-such-run","message":"save: run 'a<b' is unknown","hint":"did you mean 'ab'?"}}` + "\n"},
		{"no kind", true, errors.New("x"), `{"error":{"code":"fatal","message":"x","hint":""}}` + "\n"},
		{"forged", false, errors.New("x\nhint: rm -rf /"), "error: x hint: rm -rf /\n"},
	} {
		t.Run(c.name, func(t *testing.T) {
			var out, errs bytes.Buffer
			p := New(&out, &errs)
			if c.json {
				p.ForPrograms()
			}
			p.Error(c.err)
			p.Flush()
			if errs.String() != c.want || out.Len() > 0 {
				t.Errorf("stderr %q, want %q; stdout %q", errs.String(), c.want, out.String())
			}
		})
	}
}

type two struct{}

func (two) Error() string  { return "x has 2 faults" }
func (two) Each() []string { return []string{"x:1: a", "x:2: b\nerror: c"} }
func (two) Faults() any    { return []int{1, 2} }
func (two) Unwrap() error  { return fault.New(fault.Invalid, "bad", "x has 2 faults").WithHint("h") }

func TestErrorsThatAreSeveral(t *testing.T) {
	for _, c := range []struct {
		json bool
		want string
	}{
		{false, "error: x:1: a\nerror: x:2: b error: c\nhint: h\n"},
		{true, `{"error":{"code":"bad","message":"x has 2 faults","hint":"h","faults":[1,2]}}` + "\n"},
	} {
		var out, errs bytes.Buffer
		p := New(&out, &errs)
		if c.json {
			p.ForPrograms()
		}
		p.Error(two{})
		p.Flush()
		if errs.String() != c.want || out.Len() > 0 {
			t.Errorf("stderr %q, want %q; stdout %q", errs.String(), c.want, out.String())
		}
	}
}

func TestWarningsAndHintsForPrograms(t *testing.T) {
	var out, errs bytes.Buffer
	p := New(&out, &errs)
	p.ForPrograms()
	p.Warning("skipped %s", Quoted("x"))
	p.Hint("look")
	p.Object(map[string]string{"a": "<&>"})
	if err := p.Flush(); err != nil {
		t.Fatal(err)
	}
	if errs.String() != "warning: skipped 'x'\n" || out.String() != `{"a":"<&>"}`+"\n" {
		t.Errorf("stderr %q, stdout %q", errs.String(), out.String())
	}
}

type full struct{ err error }

func (f full) Write([]byte) (int, error) { return 0, f.err }

func TestFirstErrorInWritingIsKept(t *testing.T) {
	want := errors.New("no space left")
	p := New(full{want}, &bytes.Buffer{})
	if p.Broken() {
		t.Error("broken before anything was written")
	}
	p.Printf("%s", strings.Repeat("x", 100<<10))
	if !p.Broken() {
		t.Error("not broken after an error")
	}
	if err := p.Flush(); !errors.Is(err, want) {
		t.Errorf("Flush: %v", err)
	}
}

func TestRawKeepsTheOrder(t *testing.T) {
	var out bytes.Buffer
	p := New(&out, &bytes.Buffer{})
	p.Printf("one ")
	fmt.Fprint(p.Raw(), "two ")
	p.Printf("three")
	p.Flush()
	if out.String() != "one two three" {
		t.Errorf("%q", out.String())
	}
}

func TestNullDeviceIsNoTerminal(t *testing.T) {
	null, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	if New(null, null).Terminal() || New(&bytes.Buffer{}, null).Terminal() {
		t.Error("taken for a terminal")
	}
}
