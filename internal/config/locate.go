package config

import (
	"strconv"
	"strings"
)

// definition is a place in a TOML file where a key or a table is defined.
type definition struct {
	path    []string // with the table that it stands in
	header  bool     // [table] or [[table]]
	inArray bool     // in a table that is an element of an array of values
	offset  int      // in bytes
	line    int      // from 1
	column  int      // from 1, in bytes, as the parser of TOML counts
}

// locate lists the definitions of a file in their order. The parser of TOML
// tells no positions of keys. The file must be one that it has accepted: what
// is no TOML ends the list early, and is not told.
func locate(text string) []definition {
	s := &scanner{text: text}
	if strings.HasPrefix(text, "\ufeff") {
		s.start = len("\ufeff")
		s.at = s.start
	}
	s.document()
	line, begin, at := 1, s.start, s.start
	for i := range s.found {
		d := &s.found[i]
		for ; at < d.offset; at++ {
			if text[at] == '\n' {
				line, begin = line+1, at+1
			}
		}
		d.line, d.column = line, d.offset-begin+1
	}
	return s.found
}

// scanner goes through TOML that is known to be well formed.
type scanner struct {
	text  string
	start int // after a byte order mark
	at    int
	found []definition
	table []string // of the last header
	array int      // how many arrays we are in
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
	s.table = s.key(nil)
	s.found = append(s.found, definition{path: s.table, header: true, offset: offset})
	s.blanks()
	if s.has(end) {
		s.at += len(end)
	}
}

// keyValue reads `key = value`.
func (s *scanner) keyValue(table []string) {
	offset := s.at
	path := s.key(table)
	s.found = append(s.found, definition{path: path, inArray: s.array > 0, offset: offset})
	s.blanks()
	if s.peek() == '=' {
		s.at++
		s.blanks()
		s.value(path)
	}
}

// key reads a dotted key and returns it after the table that it stands in.
func (s *scanner) key(table []string) []string {
	path := table[:len(table):len(table)]
	for {
		path = append(path, s.keyPart())
		s.blanks()
		if s.peek() != '.' {
			return path
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

// value skips a value. An inline table's keys are definitions under path.
func (s *scanner) value(path []string) {
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
		s.elements(']', func() { s.value(path) })
		s.array--
	case s.peek() == '{':
		s.at++
		s.elements('}', func() { s.keyValue(path) })
	default:
		s.skipTo(",]}#\r\n")
	}
}

// elements skips what is separated by commas, up to end.
func (s *scanner) elements(end byte, element func()) {
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
