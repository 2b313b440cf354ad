package agent_test

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/git-checkpoint/git-checkpoint/internal/agent"
	"github.com/git-checkpoint/git-checkpoint/internal/fault"
)

// existing are settings as people and programs write them.
var existing = map[string]string{
	"empty":     "",
	"an object": "{}\n",
	"tabs":      "{\n\t\"model\": \"x\"\n}\n",
	"inline":    `{"permissions":{"allow":["Bash(ls:*)"]},"hooks":{"Stop":[{"hooks":[{"type":"command","command":"say done"}]}]}}`,
	"comments":  "{\n  // mine\n  \"model\": \"x\", /* yes */\n  \"hooks\": {\n    \"Stop\": [{\"hooks\": [{\"type\": \"command\", \"command\": \"say\"}]}]\n  }\n}\n",
	"four":      "{\n    \"b\": 1,\n    \"a\": {\n        \"c\": []\n    }\n}",
}

func TestUninstallLeavesTheSettingsAsTheyWere(t *testing.T) {
	for _, name := range []string{agent.Claude, agent.Codex, agent.Gemini} {
		for title, before := range existing {
			file := filepath.Join(t.TempDir(), ".agent", "settings.json")
			s := agent.Settings{Agent: name, File: file}
			if before != "" {
				os.Mkdir(filepath.Dir(file), 0o755)
				if err := os.WriteFile(file, []byte(before), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			if changed, err := s.Install(); err != nil || !changed {
				t.Fatalf("%s, %s: install: %v, %v", name, title, changed, err)
			}
			installed, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if title != "comments" && !json.Valid(installed) {
				t.Errorf("%s, %s: no JSON any more:\n%s", name, title, installed)
			}
			if changed, err := s.Install(); err != nil || changed {
				t.Errorf("%s, %s: installed twice: %v, %v", name, title, changed, err)
			}
			if again, _ := os.ReadFile(file); string(again) != string(installed) {
				t.Errorf("%s, %s: installing twice changed the file", name, title)
			}
			if changed, err := s.Uninstall(); err != nil || !changed {
				t.Errorf("%s, %s: uninstall: %v, %v", name, title, changed, err)
			}
			after, err := os.ReadFile(file)
			if before == "" {
				if !errors.Is(err, os.ErrNotExist) {
					t.Errorf("%s, %s: a file is left: %q", name, title, after)
				}
				continue
			}
			if title == "an object" {
				continue // an empty file of settings is not worth keeping
			}
			if string(after) != before {
				t.Errorf("%s, %s: got\n%s\nwant\n%s", name, title, after, before)
			}
		}
	}
}

func TestTheHooksOfOthersAreKept(t *testing.T) {
	file := filepath.Join(t.TempDir(), "settings.json")
	if err := os.WriteFile(file, []byte(existing["inline"]), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := (agent.Settings{Agent: agent.Claude, File: file}).Install(); err != nil {
		t.Fatal(err)
	}
	var got struct {
		Permissions struct{ Allow []string }
		Hooks       map[string][]struct{ Hooks []struct{ Command string } }
	}
	data, _ := os.ReadFile(file)
	if err := json.Unmarshal(data, &got); err != nil {
		t.Fatal(err)
	}
	stop := got.Hooks["Stop"]
	if len(stop) != 2 || stop[0].Hooks[0].Command != "say done" || stop[1].Hooks[0].Command != "git checkpoint hook claude" || len(got.Permissions.Allow) != 1 {
		t.Errorf("got %+v", got)
	}
}

func TestSettingsThatCannotBeReadAreLeftAlone(t *testing.T) {
	for _, broken := range []string{"{", "[]", `{"hooks":[]}`, `{"hooks":{"Stop":{}}}`} {
		file := filepath.Join(t.TempDir(), "settings.json")
		if err := os.WriteFile(file, []byte(broken), 0o644); err != nil {
			t.Fatal(err)
		}
		s := agent.Settings{Agent: agent.Claude, File: file}
		if _, err := s.Install(); !errors.Is(err, fault.Invalid) {
			t.Errorf("%s: install: got %v, want an invalid request", broken, err)
		}
		if after, _ := os.ReadFile(file); string(after) != broken {
			t.Errorf("%s: became %s", broken, after)
		}
	}
}
