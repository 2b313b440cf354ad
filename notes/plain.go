package notes

import (
	"bytes"
	"strconv"
	"unicode/utf8"
)

// member is one member of a plain object.
type member struct {
	key    []byte // small letters and underscores
	value  []byte // without its quotes
	quoted bool   // a string; else a whole number, without a sign
}

// plainMembers visits the members of an object that is plain: no white space
// between tokens, keys of small letters and underscores, and values that are
// strings without escapes or short whole numbers. encoding/json reads it in
// the same way. It is false for anything else, and as soon as visit is; then
// encoding/json has to look. Most lines are plain, and a log reads thousands,
// this way ten times as fast.
func plainMembers(raw []byte, visit func(m member) bool) bool {
	if len(raw) < 2 || raw[0] != '{' || raw[len(raw)-1] != '}' || !utf8.Valid(raw) {
		return false
	}
	for _, c := range raw {
		if c < ' ' || c == '\\' {
			return false
		}
	}
	for rest := raw[1 : len(raw)-1]; ; rest = rest[1:] {
		var m member
		var ok bool
		if m.key, rest, ok = cutQuoted(rest); !ok || len(rest) == 0 || rest[0] != ':' || !isPlainKey(m.key) {
			return false
		}
		if m.value, rest, m.quoted = cutQuoted(rest[1:]); !m.quoted {
			if m.value, rest, ok = cutNumber(rest); !ok {
				return false
			}
		}
		if !visit(m) {
			return false
		}
		if len(rest) == 0 {
			return true
		}
		if rest[0] != ',' {
			return false
		}
	}
}

func isPlainKey(key []byte) bool {
	for _, c := range key {
		if c != '_' && (c < 'a' || c > 'z') {
			return false
		}
	}
	return true
}

// cutQuoted cuts a string without escapes off b, and its quotes. Where b does
// not begin with one, it returns b.
func cutQuoted(b []byte) (value, rest []byte, ok bool) {
	if len(b) == 0 || b[0] != '"' {
		return nil, b, false
	}
	end := bytes.IndexByte(b[1:], '"')
	if end < 0 {
		return nil, b, false
	}
	return b[1 : 1+end], b[2+end:], true
}

// cutNumber cuts a whole number of at most 15 digits off b.
func cutNumber(b []byte) (number, rest []byte, ok bool) {
	n := 0
	for n < len(b) && '0' <= b[n] && b[n] <= '9' {
		n++
	}
	return b[:n], b[n:], n > 0 && n <= 15 && (n == 1 || b[0] != '0')
}

// plainHead is readHead for a line that is plain.
func plainHead(raw []byte) (h head, ok bool) {
	n := 0
	ok = plainMembers(raw, func(m member) bool {
		n++
		switch {
		case n == 1 && m.quoted && string(m.key) == "id":
			h.id = string(m.value)
		case n == 2 && m.quoted && string(m.key) == "at":
			h.at = string(m.value)
		case n == 3 && m.quoted && string(m.key) == "event":
			h.event = string(m.value)
		default:
			return n > 3
		}
		return true
	})
	return h, ok && n >= 3
}

// plainRecord reads a record from a line that is plain; what another line has
// set stays.
func plainRecord(raw []byte, r *Record) bool {
	read := *r
	ok := plainMembers(raw, func(m member) bool {
		to := read.plainField(string(m.key))
		switch {
		case to != nil:
			*to = string(m.value)
			return m.quoted
		case string(m.key) == "took_ms" && !m.quoted:
			var err error
			read.TookMS, err = strconv.ParseInt(string(m.value), 10, 64)
			return err == nil
		}
		switch string(m.key) {
		case "artifacts", "skipped", "took_ms":
			return false
		}
		return true // of another version
	})
	if ok {
		*r = read
	}
	return ok
}

// plainField is the field of text that a key stands for.
func (r *Record) plainField(key string) *string {
	switch key {
	case "step_name":
		return &r.StepName
	case "step_kind":
		return &r.StepKind
	case "outcome":
		return &r.Outcome
	case "replay":
		return &r.Replay
	case "sdk_session_id":
		return &r.SessionID
	case "transcript_path":
		return &r.Transcript
	case "turn_id":
		return &r.TurnID
	case "git_commit_sha":
		return &r.GitCommit
	case "branch":
		return &r.Branch
	case "by":
		return &r.By
	case "worktree":
		return &r.Worktree
	}
	return nil
}
