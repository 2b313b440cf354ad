// Package tomlpos knows where in a TOML file each key and table is defined,
// which the parser of TOML does not tell.
package tomlpos

import (
	"fmt"
	"strconv"
	"strings"
)

// Definition is a place in a TOML file where a key or a table is defined.
type Definition struct {
	Path    []string // with the table that it stands in
	At      string   // Path as Key writes it, with the index of each element of an array: task[2].produces.api
	Header  bool     // [table] or [[table]]
	InArray bool     // in a table that is an element of an array of values
	Offset  int      // in bytes
	Line    int      // from 1
	Column  int      // from 1, in bytes, as the parser of TOML counts
}

// Locate lists the definitions of a file in their order. The file must be one
// that the parser has accepted: what is no TOML ends the list early, and is
// not told.
func Locate(text string) []Definition {
	s := &scanner{text: text, elements: map[string]int{}}
	if strings.HasPrefix(text, "\ufeff") {
		s.start = len("\ufeff")
		s.at = s.start
	}
	s.document()
	line, begin, at := 1, s.start, s.start
	for i := range s.found {
		d := &s.found[i]
		for ; at < d.Offset; at++ {
			if text[at] == '\n' {
				line, begin = line+1, at+1
			}
		}
		d.Line, d.Column = line, d.Offset-begin+1
	}
	return s.found
}

// Key writes a path as TOML does, with quotes where it needs them.
func Key(path []string) string {
	parts := make([]string, len(path))
	for i, p := range path {
		if parts[i] = p; p == "" || strings.ContainsFunc(p, func(r rune) bool { return !isBare(r) }) {
			parts[i] = fmt.Sprintf("%q", p)
		}
	}
	return strings.Join(parts, ".")
}

// Join adds a key to what Definition.At says of the table that it stands in;
// "" is the top of the file.
func Join(at string, key string) string {
	if at == "" {
		return Key([]string{key})
	}
	return at + "." + Key([]string{key})
}

// Element is the place of an element of the array at a place.
func Element(at string, index int) string {
	return at + "[" + strconv.Itoa(index) + "]"
}

// scanner goes through TOML that is known to be well formed.
type scanner struct {
	text  string
	start int // after a byte order mark
	at    int
	found []Definition
	table place // of the last header
	array int   // how many arrays we are in

	elements map[string]int // of each array of tables, by its At: how many so far
}

// place is a path, without and with the indexes of elements.
type place struct {
	path []string
	at   string
}

func (s *scanner) peek() byte {
	if s.at < len(s.text) {
		return s.text[s.at]
	}
	return 0
}

func (s *scanner) has(prefix string) bool {
	return !s.done() && strings.HasPrefix(s.text[s.at:], prefix)
}

func (s *scanner) done() bool { return s.at >= len(s.text) }

func (s *scanner) blanks() {
	for !s.done() && (s.peek() == ' ' || s.peek() == '\t') {
		s.at++
	}
}

// space skips blanks, line ends and comments.
func (s *scanner) space() {
	for !s.done() {
		switch s.peek() {
		case ' ', '\t', '\n', '\r':
			s.at++
		case '#':
			s.comment()
		default:
			return
		}
	}
}

func (s *scanner) comment() { s.skipTo("\n") }

// skipTo goes on to one of the bytes, or to the end.
func (s *scanner) skipTo(bytes string) {
	if n := strings.IndexAny(s.text[s.at:], bytes); n >= 0 {
		s.at += n
	} else {
		s.at = len(s.text)
	}
}

func (s *scanner) document() {
	for s.space(); !s.done(); s.space() {
		before := s.at
		switch {
		case s.has("[["):
			s.header("[[", "]]")
		case s.has("["):
			s.header("[", "]")
		default:
			s.keyValue(s.table)
		}
		if s.at == before {
			return
		}
	}
}

func (s *scanner) header(open, end string) {
	s.at += len(open)
	s.blanks()
	offset := s.at
	s.table = s.key(place{})
	if open == "[[" {
		n := s.elements[s.table.at]
		s.elements[s.table.at]++
		s.table.at = Element(s.table.at, n)
	}
	s.found = append(s.found, Definition{Path: s.table.path, At: s.table.at, Header: true, Offset: offset})
	s.blanks()
	if s.has(end) {
		s.at += len(end)
	}
}

// keyValue reads `key = value`.
func (s *scanner) keyValue(table place) {
	offset := s.at
	key := s.key(table)
	s.found = append(s.found, Definition{Path: key.path, At: key.at, InArray: s.array > 0, Offset: offset})
	s.blanks()
	if s.peek() == '=' {
		s.at++
		s.blanks()
		s.value(key)
	}
}

// key reads a dotted key and returns it after the table that it stands in.
func (s *scanner) key(table place) place {
	key := place{table.path[:len(table.path):len(table.path)], table.at}
	for {
		// What a header says of an array of tables is meant for its last element.
		if n := s.elements[key.at]; n > 0 {
			key.at = Element(key.at, n-1)
		}
		part := s.keyPart()
		key.path, key.at = append(key.path, part), Join(key.at, part)
		s.blanks()
		if s.peek() != '.' {
			return key
		}
		s.at++
		s.blanks()
	}
}

func (s *scanner) keyPart() string {
	switch s.peek() {
	case '"':
		return s.basic()
	case '\'':
		return s.literal()
	}
	begin := s.at
	for !s.done() && isBare(rune(s.peek())) {
		s.at++
	}
	return s.text[begin:s.at]
}

func isBare(r rune) bool {
	return r >= 'A' && r <= 'Z' || r >= 'a' && r <= 'z' || r >= '0' && r <= '9' || r == '_' || r == '-'
}

// value skips a value. An inline table's keys are definitions under key.
func (s *scanner) value(key place) {
	switch {
	case s.has(`"""`):
		s.multiline(`"""`, true)
	case s.has("'''"):
		s.multiline("'''", false)
	case s.peek() == '"':
		s.basic()
	case s.peek() == '\'':
		s.literal()
	case s.peek() == '[':
		s.at++
		s.array++
		n := 0
		s.list(']', func() {
			s.value(place{key.path, Element(key.at, n)})
			n++
		})
		s.array--
	case s.peek() == '{':
		s.at++
		s.list('}', func() { s.keyValue(key) })
	default:
		s.skipTo(",]}#\r\n")
	}
}

// list skips what is separated by commas, up to end.
func (s *scanner) list(end byte, element func()) {
	for s.space(); !s.done(); s.space() {
		before := s.at
		switch s.peek() {
		case end:
			s.at++
			return
		case ',':
			s.at++
		default:
			if element(); s.at == before {
				return
			}
		}
	}
}

// basic reads "…", with escapes.
func (s *scanner) basic() string {
	var b strings.Builder
	for s.at++; !s.done(); s.at++ {
		switch c := s.peek(); c {
		case '"':
			s.at++
			return b.String()
		case '\\':
			b.WriteString(s.escape())
		default:
			b.WriteByte(c)
		}
	}
	return b.String()
}

// escapes are the one-letter ones, each before what it stands for.
const escapes = "b\bt\tn\nf\fr\re\x1b\"\"\\\\"

// escape reads a backslash and what follows, and leaves the scanner at the
// last byte of it.
func (s *scanner) escape() string {
	if s.at+1 == len(s.text) {
		return ""
	}
	s.at++
	c := s.peek()
	if i := strings.IndexByte(escapes, c); i >= 0 && i%2 == 0 {
		return escapes[i+1 : i+2]
	}
	digits := map[byte]int{'x': 2, 'u': 4, 'U': 8}[c]
	if digits == 0 || s.at+digits >= len(s.text) {
		return ""
	}
	code, _ := strconv.ParseUint(s.text[s.at+1:s.at+1+digits], 16, 32)
	s.at += digits
	return string(rune(code))
}

// literal reads '…'.
func (s *scanner) literal() string {
	s.at++
	n := strings.IndexByte(s.text[s.at:], '\'')
	if n < 0 {
		n = len(s.text) - s.at
	}
	text := s.text[s.at : s.at+n]
	s.at = min(s.at+n+1, len(s.text))
	return text
}

// multiline skips a string between triple quotes. Up to two more of them may
// stand before the closing ones.
func (s *scanner) multiline(quotes string, escaped bool) {
	for s.at += len(quotes); !s.done(); s.at++ {
		switch {
		case escaped && s.peek() == '\\':
			s.escape()
		case s.has(quotes):
			for s.at++; s.has(quotes); s.at++ {
			}
			s.at = min(s.at+len(quotes)-1, len(s.text))
			return
		}
	}
}
