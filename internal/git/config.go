package git

import (
	"sort"
	"strconv"
	"strings"
)

// Config is git's effective configuration. Keys are as git prints them:
// section and variable in lower case, a subsection as it was written.
type Config map[string][]string

// setting is one value of a key, and where it stands: "file:" and a path, or
// something else.
type setting struct {
	from, key, value string
	assigned         bool // "[section] key" without "=" means true
}

// parseListing reads what `git config --list -z --show-origin` prints.
func parseListing(out string) (Config, []setting) {
	c := Config{}
	var list []setting
	for rest := out; rest != ""; {
		var s setting
		var item string
		s.from, rest, _ = strings.Cut(rest, "\x00")
		item, rest, _ = strings.Cut(rest, "\x00")
		if s.key, s.value, s.assigned = strings.Cut(item, "\n"); !s.assigned {
			s.value = "true"
		}
		c[s.key] = append(c[s.key], s.value)
		list = append(list, s)
	}
	return c, list
}

// Get returns the last value of key, the one that counts.
func (c Config) Get(key string) (string, bool) {
	values := c[key]
	if len(values) == 0 {
		return "", false
	}
	return values[len(values)-1], true
}

// Bool reads key as git reads a boolean; def where it is unset or unreadable.
func (c Config) Bool(key string, def bool) bool {
	v, ok := c.Get(key)
	if !ok {
		return def
	}
	b, err := ParseBool(v)
	if err != nil {
		return def
	}
	return b
}

// ParseBool reads a boolean as git-config(1) spells them.
func ParseBool(v string) (bool, error) {
	switch strings.ToLower(v) {
	case "true", "yes", "on":
		return true, nil
	case "false", "no", "off", "":
		return false, nil
	}
	n, err := strconv.Atoi(v)
	return n != 0, err
}

// Subsections returns the subsections of a section that have a key, sorted.
func (c Config) Subsections(section string) []string {
	seen := map[string]bool{}
	for key := range c {
		rest, ok := strings.CutPrefix(key, section+".")
		if !ok {
			continue
		}
		if i := strings.LastIndexByte(rest, '.'); i > 0 {
			seen[rest[:i]] = true
		}
	}
	names := make([]string, 0, len(seen))
	for name := range seen {
		names = append(names, name)
	}
	sort.Strings(names)
	return names
}
