package config

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/BurntSushi/toml"

	"github.com/git-checkpoint/git-checkpoint/internal/fault"
	"github.com/git-checkpoint/git-checkpoint/internal/tomlpos"
	"github.com/git-checkpoint/git-checkpoint/refs"
)

// FileName is the team's policy, at the top of the working tree.
const FileName = ".checkpoint.toml"

// maxFileLen bounds the file: it comes with a clone.
const maxFileLen = 256 << 10

// file reads the layer of .checkpoint.toml.
func (l *layers) file() {
	if l.repo.Top == "" {
		return
	}
	path := filepath.Join(l.repo.Top, FileName)
	info, err := os.Lstat(path)
	if errors.Is(err, os.ErrNotExist) {
		return
	}
	var data []byte
	if err == nil {
		data, err = readInside(l.repo.Top, path, info)
	}
	if err != nil {
		l.faults = append(l.faults, fault.New(fault.Invalid, "invalid-config", "read %s: %w", FileName, err))
		return
	}
	l.text(string(data))
}

// readInside reads a file of the working tree, not one that a link leads to
// outside of it.
func readInside(top, path string, info os.FileInfo) ([]byte, error) {
	if info.Mode()&os.ModeSymlink != 0 {
		target, err := filepath.EvalSymlinks(path)
		if err != nil {
			return nil, err
		}
		if top, err = filepath.EvalSymlinks(top); err != nil {
			return nil, err
		}
		rel, err := filepath.Rel(top, target)
		if err != nil || rel == ".." || strings.HasPrefix(rel, ".."+string(filepath.Separator)) {
			return nil, errors.New("it is a link to outside of the working tree")
		}
		path = target
		if info, err = os.Lstat(path); err != nil {
			return nil, err
		}
	}
	if !info.Mode().IsRegular() {
		return nil, errors.New("it is no regular file")
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxFileLen+1))
	if err == nil && len(data) > maxFileLen {
		err = fmt.Errorf("it is larger than %d bytes", maxFileLen)
	}
	return data, err
}

// text sets what a file says, definition by definition.
func (l *layers) text(text string) {
	if utf16(text) {
		l.fileFault(1, 1, "it is UTF-16; TOML is UTF-8", "")
		return
	}
	var values map[string]any
	if _, err := toml.Decode(text, &values); err != nil {
		var at toml.ParseError
		if errors.As(err, &at) {
			message := strings.TrimSuffix(at.Message, ".")
			l.fileFault(at.Position.Line, at.Position.Col, strings.ToLower(message[:1])+message[1:], "")
		} else {
			l.fileFault(1, 1, err.Error(), "")
		}
		return
	}
	definitions := tomlpos.Locate(text)
	for _, d := range definitions {
		switch {
		case d.Path[0] == "policy":
		case !d.InArray:
			l.define(d, values)
		}
	}
	if policy, ok := values["policy"]; ok {
		l.policy(policy, definitions)
	}
}

// utf16 recognises a file by its byte order mark, which the parser of TOML
// would skip.
func utf16(text string) bool {
	return strings.HasPrefix(text, "\xff\xfe") || strings.HasPrefix(text, "\xfe\xff")
}

// define sets one key, or says why it cannot be.
func (l *layers) define(d tomlpos.Definition, values map[string]any) {
	value := valueAt(values, d.Path)
	if value == nil {
		return // in an array of tables where none may be: told at its header
	}
	_, table := value.(map[string]any)
	for i := range Keys {
		k := &Keys[i]
		path := strings.Split(k.Name, ".")
		switch {
		case equal(path, d.Path):
			if d.Header {
				l.fileFault(d.Line, d.Column, fmt.Sprintf("'%s' is a setting, not a table", k.Name), "")
				return
			}
			l.set(k, d, value)
			return
		case len(d.Path) < len(path) && equal(path[:len(d.Path)], d.Path) && table:
			return // its keys follow
		case len(d.Path) < len(path) && equal(path[:len(d.Path)], d.Path):
			l.fileFault(d.Line, d.Column, fmt.Sprintf("'%s' must be a table, and is %s", tomlpos.Key(d.Path), typeName(value)), "")
			return
		}
	}
	hint := ""
	if near := nearestName(d.Path); near != "" {
		hint = "did you mean '" + near + "'?"
	}
	l.fileFault(d.Line, d.Column, fmt.Sprintf("unknown key '%s'", tomlpos.Key(d.Path)), hint)
}

// nearestName is the setting that a path of keys may stand for: it has another
// table, or is misspelt.
func nearestName(path []string) string {
	for _, k := range Keys {
		if k.Name[strings.LastIndexByte(k.Name, '.')+1:] == path[len(path)-1] {
			return k.Name
		}
	}
	return refs.Nearest(strings.Join(path, "."), names())
}

func (l *layers) set(k *Key, d tomlpos.Definition, value any) {
	if !k.Tracked {
		l.fileFault(d.Line, d.Column, fmt.Sprintf("'%s' cannot be set by a file that comes with the repository", k.Name),
			"git config "+GitKey(k.Name)+" sets it")
		return
	}
	into := l.config
	if k.Strictest != nil {
		into = defaults(l.repo) // what it says counts after all else
	}
	set, err := k.setValue(into, value)
	if err != nil {
		l.fileFault(d.Line, d.Column, fmt.Sprintf("'%s': %v", k.Name, err), "")
		return
	}
	where := fmt.Sprintf("%s:%d", FileName, d.Line)
	switch {
	case set && k.Strictest != nil:
		l.bounds = append(l.bounds, bound{k, *k.to(into).(*string), where})
	case set && l.origin != nil:
		l.origin(k, where)
	}
}

func (l *layers) fileFault(line, column int, message, hint string) {
	e := fault.New(fault.Invalid, "invalid-config", "%s:%d:%d: %s", FileName, line, column, message)
	if hint == "" {
		hint = "git checkpoint config -h lists the settings"
	}
	l.faults = append(l.faults, e.WithHint("%s", hint))
}

func names() []string {
	list := make([]string, len(Keys))
	for i, k := range Keys {
		list[i] = k.Name
	}
	return list
}

func equal(a, b []string) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if a[i] != b[i] {
			return false
		}
	}
	return true
}

// valueAt follows a path into decoded TOML; nil where it leads nowhere.
func valueAt(values map[string]any, path []string) any {
	var value any = values
	for _, part := range path {
		table, ok := value.(map[string]any)
		if !ok {
			return nil
		}
		value = table[part]
	}
	return value
}
