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
	base  string
	rules []rule
}

// rule is a line that may start a conversion.
type rule struct {
	pattern wildmatch.Pattern
	starts  Conversion
}

// Conversion is what git may do to a file's content when the file is added: a
// set of bits.
type Conversion uint8

const (
	// LineEndings: a CR before a LF may be taken away. A file without such a
	// pair is its bytes.
	LineEndings Conversion = 1 << iota
	// ByIndex: whether it is can depend on what the index holds (text=auto).
	ByIndex
	// Any: git may write anything, or refuse to.
	Any

	// None: the blob is the file's bytes.
	None Conversion = 0
)

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
		starts := r.starts(states, map[string]bool{})
		if !ok || starts == None {
			continue
		}
		if p := wildmatch.ParsePattern(text, r.Fold); !p.Negative && !p.DirOnly { // git has no use for either
			f.rules = append(f.rules, rule{p, starts})
		}
	}
	return f
}

// Plain says whether nothing in a file of attributes can ever start a
// conversion: none of its lines, whatever drivers are configured, and none of
// the macros that it defines, whoever uses them.
func Plain(data []byte) bool {
	var r Rules
	r.Macros(data)
	for _, states := range r.macros {
		if r.starts(states, map[string]bool{}) != None {
			return false
		}
	}
	return r.Parse(data, "").Plain()
}

// Plain says whether no line of the file can ever start a conversion.
func (f *File) Plain() bool { return len(f.rules) == 0 }

// Conversion says what the lines of the file that match path, from the top of
// the working tree, may start. That another line or file takes it back is not
// looked at. Of a path that is not below the file's directory it says None.
func (f *File) Conversion(path []byte) Conversion {
	if len(path) <= len(f.base) || string(path[:len(f.base)]) != f.base {
		return None
	}
	rel := path[len(f.base):]
	last := wildmatch.Last(rel)
	may := None
	for i := range f.rules {
		if r := &f.rules[i]; r.starts&^may != 0 && (r.pattern.Disputed || r.pattern.Match(rel, last)) {
			may |= r.starts
		}
	}
	return may
}

// starts says what states may start, by themselves or as macros. Macros in
// done have been looked at.
func (r *Rules) starts(states []state, done map[string]bool) Conversion {
	may := None
	for _, s := range states {
		may |= r.converts(s)
		macro := r.macros[s.name]
		if s.form != set || macro == nil || done[s.name] {
			continue
		}
		done[s.name] = true
		may |= r.starts(macro, done)
	}
	return may
}

// converts says what git, where this is all that it knows of a path, may do.
func (r *Rules) converts(s state) Conversion {
	may, when := Any, false
	switch s.name {
	case "text", "crlf":
		may, when = LineEndings, s.form == set || s.value == "auto" || s.value == "input"
		if s.value == "auto" {
			may |= ByIndex
		}
	case "eol":
		may, when = LineEndings, s.value == "lf" || s.value == "crlf"
	case "ident":
		when = s.form == set
	case "filter":
		when = s.form == valued && (r.Driver == nil || r.Driver(s.value))
	case "working-tree-encoding":
		when = s.form == set || s.value != "" && !strings.EqualFold(s.value, "UTF-8") && !strings.EqualFold(s.value, "UTF8")
	}
	if !when || s.form == off {
		return None
	}
	return may
}
