// Package ignore has git's rules for files that are to be ignored, as
// gitignore(5) describes them and git 2.39 and newer applies them. It reads no
// files and walks no directories.
//
// What git does before it reads a file of patterns is the caller's: a
// .gitignore that is a symbolic link is not followed, one that is not there but
// in the index with the skip-worktree bit is read from there, and newer
// versions of git leave out a file of more than 100 MB.
package ignore

import (
	"bytes"

	"github.com/git-checkpoint/git-checkpoint/internal/wildmatch"
)

// Result is what a source says of a path.
type Result uint8

const (
	None    Result = iota // no pattern matches
	Ignored               // the last one that matches ignores it
	Kept                  // the last one that matches begins with '!'
)

// List is the patterns of one source. Matching does not change it.
type List struct {
	patterns []wildmatch.Pattern
	base     string
	fold     bool
	disputed bool
}

// Parse reads patterns as git reads a file of them. base is the directory that
// they are relative to, "" or "dir/sub/", with '/' at the end; fold is
// core.ignoreCase. Nothing in data is an error. The list does not keep data.
func Parse(data []byte, base string, fold bool) *List {
	l := &List{base: base, fold: fold}
	data = bytes.TrimPrefix(data, []byte("\ufeff"))
	for line := range bytes.Lines(data) {
		line = bytes.TrimSuffix(line, []byte("\n"))
		if len(line) == 0 || line[0] == '#' {
			continue
		}
		line = bytes.TrimSuffix(line, []byte("\r"))
		line, _, _ = bytes.Cut(line, []byte("\x00"))
		if line = trimSpaces(line); len(line) > 0 {
			l.Add(string(line))
		}
	}
	return l
}

// trimSpaces removes the spaces at the end that no '\' keeps.
func trimSpaces(line []byte) []byte {
	end := 0 // of what stays
	for i := 0; i < len(line); i++ {
		if line[i] == ' ' {
			continue
		}
		if line[i] == '\\' {
			if i++; i == len(line) {
				return line
			}
		}
		end = i + 1
	}
	return line[:end]
}

// Add adds a pattern behind the others, as `git ls-files --exclude=<pattern>`
// does: nothing in it is a comment, and spaces at its end count.
func (l *List) Add(pattern string) {
	p := wildmatch.ParsePattern(pattern, l.fold)
	l.patterns = append(l.patterns, p)
	l.disputed = l.disputed || p.Disputed
}

// Disputed says whether versions of git differ about a pattern of the list, one
// like "foo**/bar". Match follows git 2.52 and newer: who does not know which
// git is there has to leave such a list to it.
func (l *List) Disputed() bool { return l.disputed }

// Empty says whether the list answers None to everything.
func (l *List) Empty() bool { return len(l.patterns) == 0 }

// Match looks for the last pattern of the list that matches path, which begins
// at the top of the working tree and has no '/' at its end. Whether a directory
// above it is ignored is not looked at. Of a path that is not below the list's
// directory it says None.
func (l *List) Match(path []byte, isDir bool) Result {
	if len(path) <= len(l.base) || string(path[:len(l.base)]) != l.base {
		return None
	}
	rel := path[len(l.base):]
	last := wildmatch.Last(rel)
	for i := len(l.patterns) - 1; i >= 0; i-- {
		p := &l.patterns[i]
		if p.DirOnly && !isDir || !p.Match(rel, last) {
			continue
		}
		if p.Negative {
			return Kept
		}
		return Ignored
	}
	return None
}
