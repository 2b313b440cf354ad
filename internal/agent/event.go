// Package agent knows what coding agents tell their hooks, and what becomes
// of it: sessions are runs, turns are checkpoints. Fields of events vary
// between versions of an agent; what is needed is read, the rest ignored.
package agent

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/git-checkpoint/git-checkpoint/internal/fault"
)

// Type is what an event means to us.
type Type string

// The types of events. Ignored is everything else that an agent tells.
const (
	Ignored      Type = ""
	SessionStart Type = "session-start"
	Prompt       Type = "prompt"
	TurnEnd      Type = "turn-end"
	SubagentEnd  Type = "subagent-end" // part of a turn that an agent's helper did
	SessionEnd   Type = "session-end"
)

// Event is one thing that an agent told, in our own words.
type Event struct {
	Type       Type
	Session    string
	Parent     string // the session that this one was forked from
	Turn       string // empty where the agent names none
	Prompt     string
	Transcript string
	Dir        string // where the session works
	Subagent   string // which helper: its type, else its id
	Reason     string // why the session ended
}

// The agents whose events we read. Own is our own form, for every other one.
const (
	Claude = "claude"
	Codex  = "codex"
	Gemini = "gemini"
	Own    = "event"
)

// Agents lists them.
var Agents = []string{Claude, Codex, Gemini, Own}

// hookTypes are the names of hooks of each agent that mean something to us.
var hookTypes = map[string]map[string]Type{
	Claude: {"SessionStart": SessionStart, "UserPromptSubmit": Prompt, "Stop": TurnEnd, "SubagentStop": SubagentEnd, "SessionEnd": SessionEnd},
	Codex:  {"SessionStart": SessionStart, "UserPromptSubmit": Prompt, "Stop": TurnEnd, "SubagentStop": SubagentEnd, "SessionEnd": SessionEnd},
	Gemini: {"SessionStart": SessionStart, "BeforeAgent": Prompt, "AfterAgent": TurnEnd, "SessionEnd": SessionEnd},
}

// wire is the union of what the agents send.
type wire struct {
	// Claude Code, Codex and Gemini hooks.
	HookEventName  string `json:"hook_event_name"`
	SessionID      string `json:"session_id"`
	TranscriptPath string `json:"transcript_path"`
	Cwd            string `json:"cwd"`
	Prompt         string `json:"prompt"`
	PromptID       string `json:"prompt_id"` // Claude Code's turn
	TurnID         string `json:"turn_id"`
	Reason         string `json:"reason"`
	AgentID        string `json:"agent_id"`
	AgentType      string `json:"agent_type"`

	// Codex notify, and our own form.
	Type          string   `json:"type"`
	ThreadID      string   `json:"thread-id"`
	NotifyTurn    string   `json:"turn-id"`
	InputMessages []string `json:"input-messages"`
	Parent        string   `json:"parent_session_id"`
}

// Parse reads one event of an agent. An event that means nothing to us is
// Ignored; one that is no JSON object, or lacks the session, is fault.Invalid.
func Parse(agent string, data []byte) (Event, error) {
	var w wire
	if err := json.Unmarshal(data, &w); err != nil {
		return Event{}, fault.New(fault.Invalid, "malformed-event", "read an event of %s: %w", agent, err)
	}
	e := Event{
		Session: w.SessionID, Parent: w.Parent, Turn: w.TurnID, Prompt: w.Prompt,
		Transcript: w.TranscriptPath, Dir: w.Cwd, Reason: w.Reason,
	}
	switch {
	case agent == Codex && w.Type != "":
		// The argument of its notify program, in another spelling.
		if w.Type == "agent-turn-complete" {
			e.Type = TurnEnd
		}
		e.Session, e.Turn = w.ThreadID, w.NotifyTurn
		if n := len(w.InputMessages); n > 0 {
			e.Prompt = w.InputMessages[n-1]
		}
	case agent == Own:
		if e.Type = Type(w.Type); !slices.Contains([]Type{SessionStart, Prompt, TurnEnd, SubagentEnd, SessionEnd}, e.Type) {
			e.Type = Ignored
		}
	default:
		e.Type = hookTypes[agent][w.HookEventName]
	}
	if e.Turn == "" {
		e.Turn = w.PromptID
	}
	if w.AgentID != "" && (e.Type == TurnEnd || e.Type == SubagentEnd) {
		// What a helper of the agent does is a part of its turn.
		e.Type, e.Subagent = SubagentEnd, w.AgentType
		if e.Subagent == "" {
			e.Subagent = w.AgentID
		}
	}
	if e.Type != Ignored && e.Session == "" {
		return e, fault.New(fault.Invalid, "malformed-event", "read an event of %s: it names no session", agent)
	}
	return e, e.check()
}

// check refuses ids that could not stand in one line of a record.
func (e *Event) check() error {
	for name, id := range map[string]string{"session": e.Session, "turn": e.Turn, "parent session": e.Parent} {
		if len(id) > 500 || strings.ContainsFunc(id, func(r rune) bool { return r < ' ' || r == 0x7f }) {
			return fault.New(fault.Invalid, "malformed-event", "read an event: %s is no id of a %s", fmt.Sprintf("%.40q", id), name)
		}
	}
	return nil
}
