package attributes

import (
	"bytes"
	"iter"
	"strings"
)

// blank is what separates the words of a line.
const blank = " \t\r\n"

// state is what a line does to one attribute.
type state struct {
	name  string
	form  form
	value string // for valued
}

type form uint8

const (
	off    form = iota // -name or !name
	set                // name
	valued             // name=value
)

// lines are the lines of a file as git sees them: without what follows a NUL. A
// byte order mark is no part of the first line if git reads a file, but is if
// it reads the index, so there the line comes twice.
func lines(data []byte) iter.Seq[string] {
	return func(yield func(string) bool) {
		if rest, found := bytes.CutPrefix(data, []byte("\ufeff")); found {
			first, _, _ := bytes.Cut(rest, []byte("\n"))
			first, _, _ = bytes.Cut(first, []byte("\x00"))
			if !yield(string(first)) {
				return
			}
		}
		for line := range bytes.Lines(data) {
			line, _, _ = bytes.Cut(line, []byte("\x00"))
			if !yield(string(line)) {
				return
			}
		}
	}
}

// cutPattern separates the pattern of a line, or its "[attr]name", from its
// states. ok is false for an empty line and a comment.
func cutPattern(line string) (pattern, states string, ok bool) {
	line = strings.TrimLeft(line, blank)
	if line == "" || line[0] == '#' {
		return "", "", false
	}
	if pattern, states, ok = unquote(line); ok {
		return pattern, states, true
	}
	if end := strings.IndexAny(line, blank); end >= 0 {
		return line[:end], line[end:], true
	}
	return line, "", true
}

// unquote reads the string that a line begins with, as git writes one that has
// to be quoted. A line that does not begin with a correct one is not ok.
func unquote(line string) (text, rest string, ok bool) {
	if line == "" || line[0] != '"' {
		return "", "", false
	}
	var b strings.Builder
	for i := 1; i < len(line); i++ {
		c := line[i]
		if c == '"' {
			return b.String(), line[i+1:], true
		}
		if c == '\\' {
			if i++; i == len(line) {
				break
			}
			if c = line[i]; '0' <= c && c <= '3' {
				if i+2 >= len(line) || !isOctal(line[i+1]) || !isOctal(line[i+2]) {
					break
				}
				c = (c-'0')<<6 | (line[i+1]-'0')<<3 | (line[i+2] - '0')
				i += 2
			} else if at := strings.IndexByte(`abfnrtv\"`, c); at >= 0 {
				c = "\a\b\f\n\r\t\v\\\""[at]
			} else {
				break
			}
		}
		b.WriteByte(c)
	}
	return "", "", false
}

func isOctal(c byte) bool { return '0' <= c && c <= '7' }

// macroName is the name of the macro that a line with such a pattern defines,
// which may not be a valid one.
func macroName(pattern string) (name string, is bool) {
	name, is = strings.CutPrefix(pattern, "[attr]")
	if !is || name == "" {
		return "", false
	}
	name = strings.TrimLeft(name, blank) // possible if it was quoted
	if end := strings.IndexAny(name, blank+"\x00"); end >= 0 {
		name = name[:end]
	}
	return name, true
}

// parseStates reads what follows the pattern of a line. It is not ok if a name
// is not valid: then git drops the whole line.
func parseStates(text string) (states []state, ok bool) {
	isBlank := func(r rune) bool { return strings.ContainsRune(blank, r) }
	for word := range strings.FieldsFuncSeq(text, isBlank) {
		name, value, hasValue := strings.Cut(word, "=")
		s := state{name: name, form: set}
		switch {
		case name != "" && (name[0] == '-' || name[0] == '!'):
			s.name, s.form = name[1:], off
		case hasValue:
			s.form, s.value = valued, value
		}
		if !validName(s.name) {
			return nil, false
		}
		states = append(states, s)
	}
	return states, true
}

func validName(name string) bool {
	for i := range len(name) {
		c := name[i]
		if !('a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || c == '_' || c == '.' || c == '-') {
			return false
		}
	}
	return name != "" && name[0] != '-'
}
