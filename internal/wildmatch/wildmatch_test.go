package wildmatch

import (
	"strings"
	"testing"
	"time"
)

// What git's rules say of pattern and text, with and without Pathname. The
// tests of internal/ignore compare many more with git itself; those here can be
// seen without a tree: texts with a '/' and no Pathname, and no patterns that
// are matched without Match.
func TestMatch(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		pattern, text string
		plain, path   bool
	}{
		{"", "", true, true},
		{"", "x", false, false},
		{"x", "", false, false},
		{"*", "", true, true},
		{"**", "", true, true},
		{"word", "word", true, true},
		{"word", "words", false, false},
		{"w?rd", "word", true, true},
		{"?", "", false, false},
		{"?", "/", true, false},
		{"*", "x/y", true, false},
		{"**", "x/y", true, true},
		{"x*y", "x/y", true, false},
		{"x/*", "x/y", true, true},
		{"x/*", "x/y/z", true, false},
		{"x**z", "x/y/z", true, false},
		{"x/**z", "x/yz", true, true},
		{"x**/z", "xx/z", true, true},
		{"x**/z", "x/y/z", true, false},
		{"x/**/z", "x/z", false, true},
		{"x/**/z", "x/y/z", true, true},
		{"x/**/z", "x/y/yz", false, false},
		{"**/z", "z", false, true},
		{"**/z", "x/z", true, true},
		{"**/**/z", "z", false, true},
		{"x/**", "x/", true, true},
		{"x/**", "x", false, false},
		{"*/*/*", "x/y", false, false},
		{"*/*/*", "x/y/z", true, true},
		{"*/*/*", "w/x/y/z", true, false},
		{"*a*b*c", "-a-b-ab-c", true, true},
		{"*a*b*c", "-a-b-c-b", false, false},
		{"**/*a*/**/*b*", "x/1a1/y/z/1b1", true, true},
		{"**/*a*/**/*b*", "x/y/z/1b1", false, false},
		{"**/x/*/y", "x/x/1/x/2/y", true, true},
		{"*ab", "aaab", true, true},
		{`\*`, "*", true, true},
		{`\*`, "x", false, false},
		{`\\`, `\`, true, true},
		{`x\`, `x\`, false, false},
		{`*\`, `x\`, false, false},
		{"[/]", "/", true, false},
		{"[!x]", "/", true, false},
		{"[^-x]", "-", false, false},
		{"[a-c-e]", "-", true, true},
		{"[a-c-e]", "d", false, false},
		{"[,-.]", "-", true, true},
		{`[\--a]`, "0", true, true},
		{"[]-a]", "^", true, true},
		{"[]]", "]", true, true},
		{"[!]", "]", false, false},
		{"[]", "]", false, false},
		{`[\`, `\`, false, false},
		{`[a-\`, `b`, false, false},
		{"[x-", "x", false, false},
		{"*[", "x[", false, false},
		{"[[:alpha:][:digit:]_]", "_", true, true},
		{"[![:alpha:]]", "é"[:1], true, true},
		{"[[:word:]]", "x", false, false},
		{"[[:alpha:", "x", false, false},
		{"[:alpha:]", "p", true, true},
		{"[[:alpha]x", ":x", true, true},
	} {
		if got := Match(c.pattern, []byte(c.text), 0); got != c.plain {
			t.Errorf("%q, %q: %t", c.pattern, c.text, got)
		}
		if got := Match(c.pattern, []byte(c.text), Pathname); got != c.path {
			t.Errorf("%q, %q with Pathname: %t", c.pattern, c.text, got)
		}
	}
}

func TestNoPatternTakesForEver(t *testing.T) {
	t.Parallel()
	done := make(chan bool)
	go func() {
		text := []byte(strings.Repeat("a", 200) + "/" + strings.Repeat("a/", 200))
		for _, pattern := range []string{strings.Repeat("*a", 100) + "b", strings.Repeat("**/a/", 50) + "b", strings.Repeat("**/*a*", 50) + "b", strings.Repeat("[a*]*", 100) + "b"} {
			for _, flags := range []Flags{0, Pathname} {
				if Match(pattern, text, flags) {
					t.Errorf("%q matches", pattern)
				}
			}
		}
		close(done)
	}()
	select {
	case <-done:
	case <-time.After(time.Minute):
		t.Fatal("not done after a minute")
	}
}

func FuzzMatch(f *testing.F) {
	f.Add("**/a*[b-c]\\d?[[:alpha:]]", "x/ayc", uint8(3))
	f.Fuzz(func(t *testing.T, pattern, text string, flags uint8) {
		got := Match(pattern, []byte(text), Flags(flags&3))
		if want := slow(pattern, text, Flags(flags&3), 0); got != want {
			t.Errorf("%q, %q, %d: %t", pattern, text, flags&3, got)
		}
	})
}

// slow is the definition of Match, by trying everything a star may be. from is
// the byte before the pattern, 0 at its start.
func slow(pattern, text string, flags Flags, from byte) bool {
	if len(pattern) > 30 || len(text) > 30 { // not slow but endless
		return Match(pattern, []byte(text), flags)
	}
	if pattern == "" {
		return text == ""
	}
	if pattern[0] != '*' {
		if text == "" {
			return false
		}
		end, ok := one(pattern, 0, text[0], flags)
		return end >= 0 && ok && slow(pattern[end:], text[1:], flags, pattern[end-1])
	}
	rest := strings.TrimLeft(pattern, "*")
	deep := flags&Pathname == 0
	if !deep && len(pattern)-len(rest) > 1 && (from == 0 || from == '/') && (rest == "" || rest[0] == '/' || strings.HasPrefix(rest, `\/`)) {
		deep = true
		if strings.HasPrefix(rest, "/") && slow(rest[1:], text, flags, '/') {
			return true
		}
	}
	for i := 0; ; i++ {
		if slow(rest, text[i:], flags, '*') {
			return true
		}
		if i == len(text) || !deep && text[i] == '/' {
			return false
		}
	}
}
