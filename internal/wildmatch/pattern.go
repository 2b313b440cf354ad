package wildmatch

import (
	"bytes"
	"strings"
)

// Pattern is the pattern of one line of a gitignore(5) or gitattributes(5)
// file, ready to be matched.
type Pattern struct {
	Negative bool // it began with '!'
	DirOnly  bool // it ended with '/': it is for directories alone, which the caller knows
	Disputed bool // git before 2.52 takes "**" after "foo" in "foo**/bar" for a component, and so "foobar" matches; Match follows 2.52

	kind   kind
	fold   bool
	tail   byte   // the byte that every match ends with, or 0 where there is no such one
	mask   byte   // the bit that makes it lower case, if fold
	prefix int    // of a glob: the length of what comes before the first special byte of text
	text   string // without the '!' and the '/' above, and without a '/' at the start
}

type kind uint8

const (
	name     kind = iota // the last component is text
	suffix               // the last component ends with text
	nameGlob             // the last component matches text
	path                 // the path is text
	pathGlob             // the path matches text
)

const special = `*?[\`

// ParsePattern reads a pattern. fold is core.ignoreCase. As in git, a pattern
// ends at its first NUL, there is no pattern that is an error, and those that
// make no sense match nothing.
func ParsePattern(text string, fold bool) Pattern {
	text, _, _ = strings.Cut(text, "\x00")
	p := Pattern{fold: fold}
	text, p.Negative = strings.CutPrefix(text, "!")
	text, p.DirOnly = strings.CutSuffix(text, "/")
	literal := !strings.ContainsAny(text, special)
	switch {
	case strings.Contains(text, "/"):
		p.kind = pathGlob
		text = strings.TrimPrefix(text, "/")
		if literal {
			p.kind = path
		} else {
			p.prefix = strings.IndexAny(text, special)
			p.Disputed = disputed(text, p.prefix)
		}
	case literal:
		p.kind = name
	case text[0] == '*' && !strings.ContainsAny(text[1:], special):
		p.kind = suffix
		text = text[1:]
	default:
		p.kind = nameGlob
		p.prefix = strings.IndexAny(text, special)
	}
	p.text = text
	if n := len(text); n > 0 && !strings.Contains(special+"]", text[n-1:]) {
		p.tail = text[n-1]
		if fold && isLower(lower(p.tail)) {
			p.tail, p.mask = lower(p.tail), 'a'-'A'
		}
	}
	return p
}

// disputed says whether the first special bytes of a pattern are a "**" that
// ends a component without beginning it.
func disputed(text string, prefix int) bool {
	rest := strings.TrimLeft(text[prefix:], "*")
	return prefix > 0 && text[prefix-1] != '/' && len(text)-prefix-len(rest) > 1 &&
		(rest == "" || rest[0] == '/' || strings.HasPrefix(rest, `\/`))
}

// Match says whether the pattern, whatever its Negative and DirOnly, matches the
// path rel, which is relative to the directory of the pattern's file and neither
// empty nor ends with '/'. last is Last(rel): of many patterns that are asked for
// one path, each would look for it again.
//
// Most patterns are dismissed by the last byte, without a call: that saves a
// quarter of the time.
func (p *Pattern) Match(rel, last []byte) bool {
	return (p.tail == 0 || p.tail == rel[len(rel)-1]|p.mask) && p.match(rel, last)
}

func (p *Pattern) match(rel, last []byte) bool {
	switch p.kind {
	case name:
		return len(last) == len(p.text) && p.equal(last, p.text)
	case suffix:
		n := len(last) - len(p.text)
		return n >= 0 && p.equal(last[n:], p.text)
	case path:
		return len(rel) == len(p.text) && p.equal(rel, p.text)
	}
	text, flags := last, p.flags()
	if p.kind == pathGlob {
		text, flags = rel, flags|Pathname
	}
	if len(text) < p.prefix || !p.equal(text[:p.prefix], p.text[:p.prefix]) {
		return false
	}
	// The last byte of the prefix stays, so that "**" sees what it follows.
	from := max(p.prefix-1, 0)
	return Match(p.text[from:], text[from:], flags)
}

func (p *Pattern) flags() Flags {
	if p.fold {
		return FoldCase
	}
	return 0
}

// equal compares two strings of one length.
func (p *Pattern) equal(a []byte, b string) bool {
	if !p.fold {
		return string(a) == b
	}
	for i := range a {
		if lower(a[i]) != lower(b[i]) {
			return false
		}
	}
	return true
}

// Last is the last component of a path.
func Last(path []byte) []byte {
	return path[bytes.LastIndexByte(path, '/')+1:]
}
