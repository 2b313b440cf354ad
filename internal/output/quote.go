package output

import (
	"fmt"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Path returns a path as people see it: as it is, or in double quotes and
// escaped as git does (core.quotePath), where it holds a byte that could
// forge output. Letters of any script stay as they are.
func Path(path string) string {
	if path != "" && !strings.ContainsFunc(path, mustQuote) {
		return path
	}
	return quote(path)
}

// Quoted is Path for the middle of a sentence: always in quotes.
func Quoted(path string) string {
	if q := Path(path); q != path {
		return q
	}
	return "'" + path + "'"
}

// Name returns a path as a JSON string holds it: as it is, or quoted as git
// does where it is not UTF-8, which JSON cannot hold. So that the two cannot
// be mixed up, a name that begins with a double quote is quoted too: what
// begins with one is always to be unquoted.
func Name(path string) string {
	if utf8.ValidString(path) && !strings.HasPrefix(path, `"`) {
		return path
	}
	return quote(path)
}

// Unname is the reverse of Name: the path that it came from.
func Unname(name string) (string, error) {
	if !strings.HasPrefix(name, `"`) {
		return name, nil
	}
	var b strings.Builder
	rest := name[1:]
	for {
		i := strings.IndexAny(rest, `"\\`)
		if i < 0 || rest[i] == '"' && i != len(rest)-1 || rest[i] == '\\' && i == len(rest)-1 {
			return "", fmt.Errorf("'%s' is no quoted path", name)
		}
		b.WriteString(rest[:i])
		if rest[i] == '"' {
			return b.String(), nil
		}
		c, n, ok := unescape(rest[i+1:])
		if !ok {
			return "", fmt.Errorf("'%s' is no quoted path", name)
		}
		b.WriteByte(c)
		rest = rest[i+1+n:]
	}
}

// unescape reads what follows a backslash, and how long it is.
func unescape(s string) (c byte, n int, ok bool) {
	for c, e := range escapes {
		if s[0] == e[1] {
			return c, 1, true
		}
	}
	if len(s) < 3 {
		return 0, 0, false
	}
	v, err := strconv.ParseUint(s[:3], 8, 8)
	return byte(v), 3, err == nil
}

// Names is Name for a list. The result is never nil, so that it is [] in JSON.
func Names(paths []string) []string {
	names := make([]string, len(paths))
	for i, path := range paths {
		names[i] = Name(path)
	}
	return names
}

// Text returns text of any origin as one harmless line.
func Text(s string) string {
	if isPlain(s) {
		return s
	}
	if utf8.ValidString(s) && !strings.ContainsFunc(s, unprintable) {
		return s
	}
	return strings.Map(func(r rune) rune {
		switch {
		case r == '\n' || r == '\t':
			return ' '
		case unprintable(r):
			return '?'
		}
		return r
	}, strings.ToValidUTF8(strings.TrimSpace(s), "?"))
}

// isPlain says whether all of s is printable ASCII, as most text is.
func isPlain(s string) bool {
	for i := range len(s) {
		if s[i] < ' ' || s[i] > '~' {
			return false
		}
	}
	return true
}

// unprintable is what a terminal may act upon: controls, and the marks that
// turn the direction of writing.
func unprintable(r rune) bool {
	return unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r) || r == '\u2028' || r == '\u2029'
}

func mustQuote(r rune) bool {
	return r == '"' || r == '\\' || r == utf8.RuneError || unprintable(r)
}

var escapes = map[byte]string{
	'"': `\"`, '\\': `\\`, '\a': `\a`, '\b': `\b`, '\t': `\t`, '\n': `\n`, '\v': `\v`, '\f': `\f`, '\r': `\r`,
}

// quote quotes as git's quote_c_style does.
func quote(s string) string {
	var b strings.Builder
	b.WriteByte('"')
	for len(s) > 0 {
		r, size := utf8.DecodeRuneInString(s)
		if !mustQuote(r) {
			b.WriteString(s[:size])
			s = s[size:]
			continue
		}
		for _, c := range []byte(s[:size]) {
			if e, ok := escapes[c]; ok {
				b.WriteString(e)
			} else {
				fmt.Fprintf(&b, `\%03o`, c)
			}
		}
		s = s[size:]
	}
	b.WriteByte('"')
	return b.String()
}
