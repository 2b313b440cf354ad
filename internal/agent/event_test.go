package agent_test

import (
	"bufio"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/git-checkpoint/git-checkpoint/internal/agent"
	"github.com/git-checkpoint/git-checkpoint/internal/fault"
)

// read parses the events of a file, one a line.
func read(t *testing.T, name, as string) []agent.Event {
	t.Helper()
	f, err := os.Open(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var events []agent.Event
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		e, err := agent.Parse(as, lines.Bytes())
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if e.Type != agent.Ignored {
			events = append(events, e)
		}
	}
	return events
}

func types(events []agent.Event) []agent.Type {
	var list []agent.Type
	for _, e := range events {
		list = append(list, e.Type)
	}
	return list
}

// What a reader of the captured files sees: a session, one prompt, one turn,
// an end; tools are not told of.
func TestTheEventsOfRealAgentsAreASessionWithOneTurn(t *testing.T) {
	one := []agent.Type{agent.SessionStart, agent.Prompt, agent.TurnEnd, agent.SessionEnd}
	for _, test := range []struct {
		file, agent   string
		want          []agent.Type
		session, turn string
	}{
		{"claude-2.1.332.jsonl", agent.Claude, one, "be2af923-0738-4d34-8c41-562772ae8d44", "b5ee6636-1e7b-4f53-b516-074e24c3ed0d"},
		// Codex tells the end of a turn twice: to its hook and to its notify program.
		{"codex-0.171.0.jsonl", agent.Codex, []agent.Type{agent.SessionStart, agent.Prompt, agent.TurnEnd, agent.TurnEnd, agent.SessionEnd},
			"01a22dc5-b326-7030-ba03-a46bf71be4e2", "01a22dc5-b340-7d30-bfe5-afb4c889f62f"},
		{"gemini-0.61.0.jsonl", agent.Gemini, one, "252ef1d8-2af1-4a63-8579-1aeae2522dd7", ""},
	} {
		events := read(t, test.file, test.agent)
		if got := types(events); !slices.Equal(got, test.want) {
			t.Errorf("%s: got %v, want %v", test.file, got, test.want)
		}
		for _, e := range events {
			if e.Session != test.session || e.Dir != "/home/dev/project" {
				t.Errorf("%s: %s is of session %q in %q", test.file, e.Type, e.Session, e.Dir)
			}
			if e.Type == agent.TurnEnd && e.Turn != test.turn {
				t.Errorf("%s: the turn is %q, want %q", test.file, e.Turn, test.turn)
			}
			if e.Type == agent.Prompt && e.Prompt != "write hello.txt" {
				t.Errorf("%s: the prompt is %q", test.file, e.Prompt)
			}
		}
	}
}

func TestWhatAHelperOfAnAgentDidIsAPartOfTheTurn(t *testing.T) {
	for _, test := range []struct{ line, want string }{
		{`{"hook_event_name":"SubagentStop","session_id":"s","agent_id":"a1","agent_type":"reviewer"}`, "reviewer"},
		{`{"hook_event_name":"Stop","session_id":"s","agent_id":"a1"}`, "a1"},
	} {
		e, err := agent.Parse(agent.Claude, []byte(test.line))
		if err != nil || e.Type != agent.SubagentEnd || e.Subagent != test.want {
			t.Errorf("%s: got %+v, %v", test.line, e, err)
		}
	}
}

func TestUnknownEventsAndFieldsAreIgnored(t *testing.T) {
	for _, line := range []string{
		`{}`, `{"hook_event_name":"Notification","session_id":"s"}`, `{"hook_event_name":"PreToolUse","new":[1,{}],"session_id":"s"}`,
		`{"type":"something-else","thread-id":"t"}`, `{"type":"session-startled"}`,
	} {
		for _, as := range agent.Agents {
			if e, err := agent.Parse(as, []byte(line)); err != nil || e.Type != agent.Ignored {
				t.Errorf("%s as %s: got %q, %v", line, as, e.Type, err)
			}
		}
	}
}

func TestMalformedEventsAreInvalid(t *testing.T) {
	for _, line := range []string{
		``, `x`, `[]`, `"Stop"`, `{"hook_event_name":"Stop"}`, `{"hook_event_name":7,"session_id":"s"}`,
		`{"hook_event_name":"Stop","session_id":"a\nCheckpoint-Run: other"}`,
	} {
		if _, err := agent.Parse(agent.Claude, []byte(line)); !errors.Is(err, fault.Invalid) {
			t.Errorf("%q: got %v, want an invalid request", line, err)
		}
	}
}

func FuzzParse(f *testing.F) {
	for _, name := range []string{"claude-2.1.332.jsonl", "codex-0.171.0.jsonl", "gemini-0.61.0.jsonl"} {
		data, err := os.ReadFile(filepath.Join("testdata", name))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, line []byte) {
		for _, as := range agent.Agents {
			e, err := agent.Parse(as, line)
			if err == nil && e.Type != agent.Ignored && e.Session == "" {
				t.Errorf("an event without a session was taken: %q", line)
			}
		}
	})
}
