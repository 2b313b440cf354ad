package agent

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sort"
	"strconv"
	"strings"

	"github.com/tailscale/hujson"

	"github.com/git-checkpoint/git-checkpoint/internal/fault"
)

// Settings is the file in which an agent looks for its hooks.
type Settings struct {
	Agent string
	File  string
}

// settingsFiles are where each agent looks, in a project (for this user alone
// where the agent has such a place) and in the home directory.
var settingsFiles = map[string]struct{ project, home string }{
	Claude: {".claude/settings.local.json", ".claude/settings.json"},
	Codex:  {".codex/hooks.json", ".codex/hooks.json"},
	Gemini: {".gemini/settings.json", ".gemini/settings.json"},
}

// SettingsOf finds an agent's settings for the project at top, or with user
// those in the home directory. An unknown agent is fault.Invalid.
func SettingsOf(agent, top string, user bool) (Settings, error) {
	files, ok := settingsFiles[agent]
	if !ok {
		return Settings{}, fault.New(fault.Invalid, "unknown-agent", "'%s' is no agent whose settings are known", agent).
			WithHint("the agents are claude, codex and gemini; any other can call git checkpoint hook event")
	}
	s := Settings{Agent: agent, File: filepath.Join(top, filepath.FromSlash(files.project))}
	if user {
		home, err := os.UserHomeDir()
		if err != nil {
			return s, fault.New(fault.Fatal, "io", "find the home directory: %w", err)
		}
		s.File = filepath.Join(home, filepath.FromSlash(files.home))
	}
	return s, nil
}

// Command is what an agent's hooks call.
func Command(agent string) string { return "git checkpoint hook " + agent }

// hookNames are the hooks of an agent that we take, in order.
func hookNames(agent string) []string {
	var names []string
	for name := range hookTypes[agent] {
		names = append(names, name)
	}
	sort.Strings(names)
	return names
}

// timeout is how long an agent may wait for us: 60 seconds, in its own unit.
func timeout(agent string) int {
	if agent == Gemini {
		return 60_000 // milliseconds
	}
	return 60
}

// Install adds our hooks to the settings and keeps all else, order, comments
// and white space too. changed is false where they were there already.
func (s Settings) Install() (changed bool, err error) { return s.InstallOr(false) }

// InstallOr is Install, or with dryRun only tells what it would do.
func (s Settings) InstallOr(dryRun bool) (changed bool, err error) {
	old, err := os.ReadFile(s.File)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return false, s.failed("read", err)
	}
	now, err := s.with(old)
	if err != nil || bytes.Equal(now, old) {
		return false, err
	}
	if dryRun {
		return true, nil
	}
	return true, s.write(now)
}

// Uninstall takes our hooks out of the settings. A file that holds nothing
// else then is removed.
func (s Settings) Uninstall() (changed bool, err error) { return s.UninstallOr(false) }

// UninstallOr is Uninstall, or with dryRun only tells what it would do.
func (s Settings) UninstallOr(dryRun bool) (changed bool, err error) {
	old, err := os.ReadFile(s.File)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, s.failed("read", err)
	}
	now, err := s.without(old)
	if err != nil || bytes.Equal(now, old) {
		return false, err
	}
	switch {
	case dryRun:
		return true, nil
	case now != nil:
		return true, s.write(now)
	}
	if err := os.Remove(s.File); err != nil {
		return false, s.failed("remove", err)
	}
	os.Remove(filepath.Dir(s.File)) // if it was made for this
	return true, nil
}

func (s Settings) failed(what string, err error) error {
	return fault.New(fault.Fatal, "agent-settings", "%s '%s': %w", what, s.File, err)
}

// write replaces the file at once and keeps its mode. A symbolic link, as
// dotfile managers make them, is followed.
func (s Settings) write(data []byte) error {
	file := s.File
	if real, err := filepath.EvalSymlinks(file); err == nil {
		file = real
	}
	mode := fs.FileMode(0o644)
	if info, err := os.Stat(file); err == nil {
		mode = info.Mode().Perm()
	}
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return s.failed("write", err)
	}
	temporary := fmt.Sprintf("%s.%d", file, os.Getpid())
	if err := os.WriteFile(temporary, data, mode); err != nil {
		return s.failed("write", err)
	}
	if err := os.Rename(temporary, file); err != nil {
		os.Remove(temporary)
		return s.failed("write", err)
	}
	return nil
}

// document is as much of the settings as we have to understand.
type document struct {
	Hooks map[string][]struct {
		Hooks []struct {
			Command string `json:"command"`
		} `json:"hooks"`
	} `json:"hooks"`
}

func (s Settings) parse(data []byte) (hujson.Value, document, error) {
	var doc document
	if len(bytes.TrimSpace(data)) == 0 {
		data = []byte("{}")
	}
	value, err := hujson.Parse(data)
	if err == nil {
		plain := value.Clone()
		plain.Standardize()
		err = json.Unmarshal(plain.Pack(), &doc)
	}
	if err != nil {
		return value, doc, fault.New(fault.Invalid, "agent-settings", "read '%s': %w", s.File, err).
			WithHint("mend the file first; nothing was changed")
	}
	return value, doc, nil
}

// edit is one operation of a JSON patch (RFC 6902).
type edit struct {
	Op    string `json:"op"`
	Path  string `json:"path"`
	Value any    `json:"value,omitempty"`
}

func pointer(parts ...string) string {
	var b strings.Builder
	for _, p := range parts {
		b.WriteString("/" + strings.NewReplacer("~", "~0", "/", "~1").Replace(p))
	}
	return b.String()
}

func (s Settings) with(data []byte) ([]byte, error) {
	value, doc, err := s.parse(data)
	if err != nil {
		return nil, err
	}
	var edits []edit
	if doc.Hooks == nil {
		edits = append(edits, edit{"add", "/hooks", struct{}{}})
	}
	for _, name := range hookNames(s.Agent) {
		if s.has(doc, name) {
			continue
		}
		if doc.Hooks[name] == nil {
			edits = append(edits, edit{"add", pointer("hooks", name), []any{}})
		}
		entry := map[string]any{"hooks": []any{map[string]any{"type": "command", "command": Command(s.Agent), "timeout": timeout(s.Agent)}}}
		edits = append(edits, edit{"add", pointer("hooks", name, "-"), entry})
	}
	if len(edits) == 0 {
		return data, nil
	}
	return s.patched(data, value, edits)
}

func (s Settings) has(doc document, name string) bool {
	for _, group := range doc.Hooks[name] {
		for _, h := range group.Hooks {
			if h.Command == Command(s.Agent) {
				return true
			}
		}
	}
	return false
}

// patched applies edits to data. A file laid out as programs do it stays so;
// in any other what is there stays to the byte, and what is new is put in
// without more.
func (s Settings) patched(data []byte, value hujson.Value, edits []edit) ([]byte, error) {
	indent, regular := layout(data)
	patch, err := json.Marshal(edits)
	if err == nil {
		err = value.Patch(patch)
	}
	var result bytes.Buffer
	if err == nil && regular {
		if err = json.Indent(&result, value.Pack(), "", indent); err == nil && (len(data) == 0 || bytes.HasSuffix(data, []byte("\n"))) {
			result = *bytes.NewBuffer(append(bytes.TrimRight(result.Bytes(), "\n"), '\n'))
		}
	} else if err == nil {
		result.Write(value.Pack())
	}
	if err != nil {
		return nil, fault.New(fault.Invalid, "agent-settings", "change '%s': %w", s.File, err).
			WithHint("nothing was changed")
	}
	return result.Bytes(), nil
}

// layout says whether a file is plain JSON that is indented throughout, and
// by what.
func layout(data []byte) (indent string, regular bool) {
	indent = "  "
	if len(bytes.TrimSpace(data)) == 0 {
		return indent, true
	}
	if _, rest, ok := bytes.Cut(data, []byte("\n")); ok {
		if n := len(rest) - len(bytes.TrimLeft(rest, " \t")); n > 0 {
			indent = string(rest[:n])
		}
	}
	var again bytes.Buffer
	err := json.Indent(&again, bytes.TrimRight(data, "\n"), "", indent)
	return indent, err == nil && bytes.Equal(again.Bytes(), bytes.TrimRight(data, "\n"))
}

func (s Settings) without(data []byte) ([]byte, error) {
	value, doc, err := s.parse(data)
	if err != nil {
		return nil, err
	}
	var edits []edit
	left := len(doc.Hooks)
	for _, name := range hookNames(s.Agent) {
		groups := doc.Hooks[name]
		kept := len(groups)
		// From the end, so that the numbers before stay right.
		for i := len(groups) - 1; i >= 0; i-- {
			entries := len(groups[i].Hooks)
			for j := entries - 1; j >= 0; j-- {
				if groups[i].Hooks[j].Command != Command(s.Agent) {
					continue
				}
				entries--
				edits = append(edits, edit{Op: "remove", Path: pointer("hooks", name, strconv.Itoa(i), "hooks", strconv.Itoa(j))})
			}
			if entries == 0 && len(groups[i].Hooks) > 0 {
				kept--
				edits = append(edits, edit{Op: "remove", Path: pointer("hooks", name, strconv.Itoa(i))})
			}
		}
		if kept == 0 && len(groups) > 0 {
			left--
			edits = append(edits, edit{Op: "remove", Path: pointer("hooks", name)})
		}
	}
	if len(edits) == 0 {
		return data, nil
	}
	if left == 0 {
		edits = append(edits, edit{Op: "remove", Path: "/hooks"})
	}
	result, err := s.patched(data, value, edits)
	if err == nil && len(bytes.TrimSpace(result)) <= 2 {
		return nil, nil
	}
	return result, err
}
