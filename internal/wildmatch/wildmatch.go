// Package wildmatch matches paths with the patterns of gitignore(5) and
// gitattributes(5), byte for byte as git does, what git never documented
// included. Nothing in it allocates while it matches, and no pattern makes it
// take exponential time.
package wildmatch

import (
	"bytes"
	"strings"
)

// Flags choose between the ways that git has of matching.
type Flags uint8

const (
	// Pathname keeps '*', '?' and classes from matching a '/': only a "**"
	// that is a whole component does.
	Pathname Flags = 1 << iota
	// FoldCase makes A to Z equal to a to z. It is git's folding: letters of a
	// class and letters after a '\' stand for themselves, and as the text is
	// made lower case, an upper case one of them matches nothing.
	FoldCase
)

// retry is where to go on when what follows a star does not match: the pattern
// from p, the text from t.
type retry struct{ p, t int }

var never = retry{p: -1}

// Match says whether pattern matches all of text. The text holds no NUL.
//
// Only the last star and the last "**" are ever tried again. What comes
// before them was matched as early in the text as it can be, and a later place
// would leave them less to choose from.
func Match(pattern string, text []byte, flags Flags) bool {
	p, t := 0, 0
	star, deep := never, never
	for {
		if p < len(pattern) && pattern[p] == '*' {
			next := p + 1
			for next < len(pattern) && pattern[next] == '*' {
				next++
			}
			rest := pattern[next:]
			component := next-p > 1 && (p == 0 || pattern[p-1] == '/') &&
				(rest == "" || rest[0] == '/' || strings.HasPrefix(rest, `\/`))
			switch {
			case flags&Pathname == 0 || component:
				if rest == "" {
					return true
				}
				p, star, deep = next, never, retry{next, t + 1}
				if flags&Pathname != 0 && rest[0] == '/' { // "**/" may be nothing at all
					p, deep = next+1, retry{next, t}
				}
				continue
			case rest == "":
				if bytes.IndexByte(text[t:], '/') < 0 {
					return true
				}
				star = never
			case rest[0] == '/':
				slash := bytes.IndexByte(text[t:], '/')
				if slash < 0 {
					return false
				}
				p, t, star = next+1, t+slash+1, never
				continue
			default:
				p, star = next, retry{next, t + 1}
				continue
			}
		} else if p == len(pattern) {
			if t == len(text) {
				return true
			}
		} else {
			if t == len(text) {
				return false
			}
			end, ok := one(pattern, p, text[t], flags)
			if end < 0 {
				return false
			}
			if ok {
				p, t = end, t+1
				continue
			}
		}

		switch {
		case star != never && star.t <= len(text) && text[star.t-1] != '/':
			p, t = star.p, star.t
			star.t++
		case deep != never && deep.t <= len(text):
			p, t, star = deep.p, deep.t, never
			deep.t++
		default:
			return false
		}
	}
}

// one matches the byte c with the element of the pattern at p, which is not a
// star. end is where the next element begins, or negative where the pattern is
// malformed and so matches nothing.
func one(pattern string, p int, c byte, flags Flags) (end int, ok bool) {
	want := pattern[p]
	if flags&FoldCase != 0 {
		c, want = lower(c), lower(want)
	}
	switch want {
	case '?':
		return p + 1, flags&Pathname == 0 || c != '/'
	case '[':
		end, ok = class(pattern, p+1, c, flags&FoldCase != 0)
		return end, ok && (flags&Pathname == 0 || c != '/')
	case '\\':
		if p++; p == len(pattern) {
			return -1, false
		}
		want = pattern[p]
	}
	return p + 1, c == want
}

// class matches c, lower case if fold, with the class whose first byte after
// the '[' is at p. end is behind its ']', or negative where it has none or a
// name in it is unknown.
func class(pattern string, p int, c byte, fold bool) (end int, ok bool) {
	negated := p < len(pattern) && (pattern[p] == '!' || pattern[p] == '^')
	if negated {
		p++
	}
	var low byte // what a '-' here would begin a range with, or 0
	for first := p; ; p++ {
		if p >= len(pattern) {
			return -1, false
		}
		member := pattern[p]
		rest := pattern[p+1:]
		switch {
		case member == ']' && p > first:
			return p + 1, ok != negated
		case member == '\\':
			if rest == "" {
				return -1, false
			}
			p++
			low = pattern[p]
			ok = ok || c == low
		case member == '-' && low != 0 && rest != "" && rest[0] != ']':
			p++
			if pattern[p] == '\\' {
				p++
			}
			if p == len(pattern) {
				return -1, false
			}
			high := pattern[p]
			ok = ok || low <= c && c <= high
			if fold && isLower(c) {
				ok = ok || low <= c-'a'+'A' && c-'a'+'A' <= high
			}
			low = 0
		case member == '[' && strings.HasPrefix(rest, ":"):
			bracket := strings.IndexByte(rest[1:], ']')
			if bracket < 0 {
				return -1, false
			}
			name, found := strings.CutSuffix(rest[1:1+bracket], ":")
			if !found { // no name, but the members '[', ':' and so on
				ok, low = ok || c == '[', '['
				continue
			}
			in, known := named(name, c, fold)
			if !known {
				return -1, false
			}
			ok, low = ok || in, 0
			p += 2 + bracket
		default:
			ok, low = ok || c == member, member
		}
	}
}

// named says whether c is in the POSIX class of that name, in ASCII. As in git,
// the vertical tab and the form feed are no spaces.
func named(name string, c byte, fold bool) (in, known bool) {
	digit := '0' <= c && c <= '9'
	upper := 'A' <= c && c <= 'Z'
	alpha := isLower(c) || upper
	graph := '!' <= c && c <= '~'
	switch name {
	case "alnum":
		return alpha || digit, true
	case "alpha":
		return alpha, true
	case "blank":
		return c == ' ' || c == '\t', true
	case "cntrl":
		return c < ' ' || c == 0x7f, true
	case "digit":
		return digit, true
	case "graph":
		return graph, true
	case "lower":
		return isLower(c), true
	case "print":
		return graph || c == ' ', true
	case "punct":
		return graph && !alpha && !digit, true
	case "space":
		return c == ' ' || c == '\t' || c == '\n' || c == '\r', true
	case "upper":
		return upper || fold && isLower(c), true
	case "xdigit":
		return digit || 'a' <= c && c <= 'f' || 'A' <= c && c <= 'F', true
	}
	return false, false
}

func isLower(c byte) bool { return 'a' <= c && c <= 'z' }

func lower(c byte) byte {
	if 'A' <= c && c <= 'Z' {
		c += 'a' - 'A'
	}
	return c
}
