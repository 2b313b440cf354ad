// Package attributes answers one question of gitattributes(5), and errs only to
// the safe side: may git convert the content of a file when it is added, or is
// it certain that the blob will be the file's bytes?
//
// The caller's part: core.autocrlf "true" and "input" make every path one that
// may be converted, whatever the attributes. The files that count are the
// system's, core.attributesFile, the .gitattributes of every directory from the
// top down, and info/attributes. A .gitattributes that is a symbolic link is not
// followed, and one that is not there is read from the index.
package attributes

import (
	"strings"

	"github.com/git-checkpoint/git-checkpoint/internal/wildmatch"
)

// Rules is what holds for all files of attributes of one working tree. Its
// methods are not for several goroutines at once; a File is.
type Rules struct {
	// Fold is core.ignoreCase.
	Fold bool
	// Driver says whether filter.<driver>.clean, .process or .required is
	// configured: without any of them filter=<driver> does nothing. nil means
	// that all are.
	Driver func(driver string) bool

	macros map[string][]state
}

// File is one file of attributes: the lines of it that may start a conversion.
type File struct {
	base     string
	patterns []wildmatch.Pattern
}

// Macros takes down the macros that a file of attributes defines ("[attr]name
// …"). It is to be called for every file that may define some, before Parse is
// called for any: the system's, core.attributesFile, the top .gitattributes
// and info/attributes. In others git takes no macros.
func (r *Rules) Macros(data []byte) {
	for line := range lines(data) {
		pattern, rest, ok := cutPattern(line)
		name, macro := macroName(pattern)
		if !ok || !macro {
			continue
		}
		if states, ok := parseStates(rest); ok && validName(name) {
			if r.macros == nil {
				r.macros = map[string][]state{}
			}
			r.macros[name] = append(r.macros[name], states...)
		}
	}
}

// Parse reads the lines of a file of attributes. base is the directory that its
// patterns are relative to, "" or "dir/sub/", with '/' at the end. Nothing in
// data is an error, as nothing is one for git. Lines and files that are too long
// for git count here, which is the safe side. The file does not keep data.
func (r *Rules) Parse(data []byte, base string) *File {
	f := &File{base: base}
	for line := range lines(data) {
		text, rest, ok := cutPattern(line)
		if _, macro := macroName(text); !ok || macro {
			continue
		}
		states, ok := parseStates(rest)
		if !ok || !r.mayConvert(states, map[string]bool{}) {
			continue
		}
		if p := wildmatch.ParsePattern(text, r.Fold); !p.Negative && !p.DirOnly { // git has no use for either
			f.patterns = append(f.patterns, p)
		}
	}
	return f
}

// Plain says whether no line of the file can ever start a conversion.
func (f *File) Plain() bool { return len(f.patterns) == 0 }

// MayConvert says whether a line of the file that matches path, from the top of
// the working tree, may start a conversion. That another line or file takes it
// back is not looked at. Of a path that is not below the file's directory it says
// false.
func (f *File) MayConvert(path []byte) bool {
	if len(path) <= len(f.base) || string(path[:len(f.base)]) != f.base {
		return false
	}
	rel := path[len(f.base):]
	last := wildmatch.Last(rel)
	for i := range f.patterns {
		if p := &f.patterns[i]; p.Disputed || p.Match(rel, last) {
			return true
		}
	}
	return false
}

// mayConvert says whether one of the states may start a conversion, by itself
// or as a macro. Macros in done have been looked at.
func (r *Rules) mayConvert(states []state, done map[string]bool) bool {
	for _, s := range states {
		if r.converts(s) {
			return true
		}
		macro := r.macros[s.name]
		if s.form != set || macro == nil || done[s.name] {
			continue
		}
		done[s.name] = true
		if r.mayConvert(macro, done) {
			return true
		}
	}
	return false
}

// converts says whether git, where this is all that it knows of a path, may
// write something else than the file's bytes, or refuse to.
func (r *Rules) converts(s state) bool {
	if s.form == off {
		return false
	}
	switch s.name {
	case "text", "crlf":
		return s.form == set || s.value == "auto" || s.value == "input"
	case "eol":
		return s.value == "lf" || s.value == "crlf"
	case "ident":
		return s.form == set
	case "filter":
		return s.form == valued && (r.Driver == nil || r.Driver(s.value))
	case "working-tree-encoding":
		return s.form == set || s.value != "" && !strings.EqualFold(s.value, "UTF-8") && !strings.EqualFold(s.value, "UTF8")
	}
	return false
}
