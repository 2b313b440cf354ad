// Package notes knows the journal of a run: JSON Lines kept in git notes,
// one note on the run's start commit (the journal) and one on each of its
// checkpoints (the record). It knows the lines (Parse, Append), how two
// versions of a note become one (Union), and the tree that git keeps the
// notes of a ref in (Tree, MergeTrees).
//
// The format is public. Each line is one JSON object that begins with "id"
// (a ULID), "at" (RFC 3339, UTC) and "event", in this order, followed by
// whatever the event needs. Lines are sorted by id, those of one id by their
// bytes; no two are equal, none is blank, each ends in a newline. Lines are
// only ever added, and never encoded anew: events and fields that this
// version does not know stay as they are, to the byte.
package notes

import (
	"bytes"
	"cmp"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/oklog/ulid/v2"

	"github.com/git-checkpoint/git-checkpoint/internal/fault"
)

// Line is one line of a note: an event.
type Line struct {
	ID    string    // a ULID in its canonical, upper-case form
	At    time.Time // in UTC
	Event string
	Raw   []byte // the line's bytes without the newline; of a parsed line, a part of the note
}

// Decode stores the line's fields in v, as json.Unmarshal does: fields that v
// has no place for are passed over.
func (l Line) Decode(v any) error {
	if err := json.Unmarshal(l.Raw, v); err != nil {
		return fault.New(fault.Integrity, "note-damaged", "read event '%s' (%s): %w", l.Event, l.ID, err)
	}
	return nil
}

// Fields returns all fields of the line, also "id", "at" and "event", undecoded.
func (l Line) Fields() map[string]json.RawMessage {
	var fields map[string]json.RawMessage
	if json.Unmarshal(l.Raw, &fields) != nil {
		return nil // a Line that did not come from Parse or Append
	}
	return fields
}

func compare(a, b Line) int {
	return cmp.Or(strings.Compare(a.ID, b.ID), bytes.Compare(a.Raw, b.Raw))
}

// normal sorts lines in place and drops repeated ones.
func normal(lines []Line) []Line {
	if !slices.IsSortedFunc(lines, compare) {
		slices.SortFunc(lines, compare)
	}
	return slices.CompactFunc(lines, func(a, b Line) bool { return compare(a, b) == 0 })
}

// Parse returns the lines of a note, sorted and unique in whatever order they
// stand. The newline of the last line may be missing. A line that breaks the
// format otherwise is an error that names its number and matches
// fault.Integrity; Check finds all of them.
func Parse(note []byte) ([]Line, error) {
	var lines []Line
	number := 0
	for raw := range bytes.Lines(note) {
		number++
		line, err := parseLine(bytes.TrimSuffix(raw, []byte("\n")))
		if err != nil {
			return nil, damaged(number, err)
		}
		lines = append(lines, line)
	}
	return normal(lines), nil
}

// Check returns everything about a note that breaks the format: what Parse
// refuses, and also lines that are out of order or repeated, times that are
// not in UTC and a missing last newline. Each error names the line and
// matches fault.Integrity.
func Check(note []byte) []error {
	var faults []error
	var last Line
	number, lastNumber := 0, 0
	for raw := range bytes.Lines(note) {
		number++
		report := func(format string, args ...any) {
			faults = append(faults, damaged(number, fmt.Errorf(format, args...)))
		}
		text, ended := bytes.CutSuffix(raw, []byte("\n"))
		if !ended {
			report("it does not end in a newline")
		}
		line, err := parseLine(text)
		if err != nil {
			report("%w", err)
			continue
		}
		if head, _ := readHead(text); !strings.HasSuffix(head.at, "Z") {
			report("its time '%s' is not in UTC", head.at)
		}
		if lastNumber > 0 {
			switch order := compare(last, line); {
			case order == 0:
				report("it repeats line %d", lastNumber)
			case order > 0:
				report("it belongs before line %d", lastNumber)
			}
		}
		last, lastNumber = line, number
	}
	return faults
}

func damaged(number int, err error) error {
	return fault.New(fault.Integrity, "note-damaged", "read note: line %d: %w", number, err)
}

func parseLine(raw []byte) (Line, error) {
	head, err := readHead(raw)
	if err != nil {
		return Line{}, err
	}
	if id, err := ulid.ParseStrict(head.id); err != nil || id.String() != head.id {
		return Line{}, fmt.Errorf("its id '%s' is not a ULID", head.id)
	}
	at, err := time.Parse(time.RFC3339, head.at)
	if err != nil {
		return Line{}, fmt.Errorf("its time '%s' is not in the form of RFC 3339", head.at)
	}
	return Line{ID: head.id, At: at.UTC(), Event: head.event, Raw: slices.Clip(raw)}, nil
}

// head is what a line begins with.
type head struct{ id, at, event string }

// readHead checks that a line is one JSON object and reads its first three
// members.
func readHead(raw []byte) (head, error) {
	h, ok := plainHead(raw)
	if ok {
		return h, nil
	}
	h = head{}
	switch {
	case len(bytes.TrimSpace(raw)) == 0:
		return h, errors.New("it is blank")
	case !json.Valid(raw):
		return h, errors.New("it is not JSON")
	case isSpace(raw[0]) || isSpace(raw[len(raw)-1]):
		return h, errors.New("there is white space around its object")
	case raw[0] != '{':
		return h, errors.New("it is not an object")
	}
	rest := raw[1:]
	for _, member := range []struct {
		name string
		to   *string
	}{{"id", &h.id}, {"at", &h.at}, {"event", &h.event}} {
		key, after, ok := cutString(rest)
		if !ok || key != member.name {
			return h, errors.New("it does not begin with 'id', 'at' and 'event'")
		}
		value, after, ok := cutString(cutByte(after)) // behind the colon
		if !ok {
			return h, fmt.Errorf("its '%s' is not a string", member.name)
		}
		*member.to, rest = value, cutByte(after) // behind the comma, or the end
	}
	return h, nil
}

// cutString decodes the string that valid JSON goes on with, if it does.
func cutString(b []byte) (value string, after []byte, ok bool) {
	b = trimSpace(b)
	if len(b) == 0 || b[0] != '"' {
		return "", b, false
	}
	end, plain := 1, true
	for ; b[end] != '"'; end++ {
		if b[end] >= 0x80 {
			plain = false
		}
		if b[end] == '\\' {
			plain = false
			end++
		}
	}
	if plain {
		return string(b[1:end]), b[end+1:], true
	}
	err := json.Unmarshal(b[:end+1], &value)
	return value, b[end+1:], err == nil
}

// cutByte returns what follows the punctuation that valid JSON goes on with.
func cutByte(b []byte) []byte { return trimSpace(b)[1:] }

func trimSpace(b []byte) []byte {
	for len(b) > 0 && isSpace(b[0]) {
		b = b[1:]
	}
	return b
}

// isSpace says whether c is white space in JSON.
func isSpace(c byte) bool { return c == ' ' || c == '\t' || c == '\r' || c == '\n' }

// Encode returns the note that holds the lines, sorted and unique. It leaves
// lines as they are.
func Encode(lines []Line) []byte {
	lines = normal(slices.Clone(lines))
	size := 0
	for _, l := range lines {
		size += len(l.Raw) + 1
	}
	note := make([]byte, 0, size)
	for _, l := range lines {
		note = append(append(note, l.Raw...), '\n')
	}
	return note
}

// Append returns the note with one event more, and the event's line. Its id
// is greater than any in the note: it takes its time from at, or, where that
// is not enough, is the greatest id plus one. The fields are a struct or a
// map as encoding/json takes them, or nil; they follow "id", "at" and
// "event", which none of them may be called. The note itself is not changed.
//
// An event without a name, fields that do not fit and a time before 1970 are
// fault.Invalid; a note that Parse refuses is fault.Integrity.
func Append(note []byte, at time.Time, event string, fields any) ([]byte, Line, error) {
	lines, err := Parse(note)
	if err != nil {
		return nil, Line{}, err
	}
	members, err := encodeFields(event, fields)
	if err != nil {
		return nil, Line{}, err
	}
	id, err := newID(lines, at)
	if err != nil {
		return nil, Line{}, err
	}
	name, _ := marshal(event) // any string can be encoded
	raw := fmt.Appendf(nil, `{"id":"%s","at":"%s","event":%s%s}`, id, at.UTC().Format(timeLayout), name, members)
	line, err := parseLine(raw)
	if err != nil {
		return nil, Line{}, fmt.Errorf("add event '%s': %w", event, err)
	}
	return Encode(append(lines, line)), line, nil
}

// timeLayout is RFC 3339 in UTC with milliseconds, as precise as a ULID.
const timeLayout = "2006-01-02T15:04:05.000Z"

// encodeFields returns the members of an event's fields, each after a comma.
func encodeFields(event string, fields any) ([]byte, error) {
	invalid := func(format string, args ...any) error {
		return fault.New(fault.Invalid, "bad-event", "add event '%s': %w", event, fmt.Errorf(format, args...))
	}
	if event == "" {
		return nil, invalid("it has no name")
	}
	object, err := marshal(fields)
	if err != nil {
		return nil, invalid("encode its fields: %w", err)
	}
	if string(object) == "null" || string(object) == "{}" {
		return nil, nil
	}
	var members map[string]json.RawMessage
	if err := json.Unmarshal(object, &members); err != nil {
		return nil, invalid("its fields are not a struct or a map")
	}
	for name := range members {
		// Go's decoder, for one, takes "ID" for "id".
		for _, taken := range []string{"id", "at", "event"} {
			if strings.EqualFold(name, taken) {
				return nil, invalid("a field is called '%s'", name)
			}
		}
	}
	return append([]byte(","), object[1:len(object)-1]...), nil
}

// marshal is json.Marshal without HTML's escapes: people read notes.
func marshal(v any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	err := e.Encode(v)
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), err
}

// newID makes an id that is greater than those of the parsed, sorted lines.
func newID(lines []Line, at time.Time) (ulid.ULID, error) {
	var id ulid.ULID
	if at.Before(time.UnixMilli(0)) || at.UTC().Year() > 9999 || id.SetTime(ulid.Timestamp(at)) != nil {
		return id, fault.New(fault.Invalid, "bad-time", "make an id: the time %s is not between the years 1970 and 9999", at.UTC().Format(timeLayout))
	}
	rand.Read(id[6:]) // it never fails; the first six bytes are the time
	if len(lines) == 0 {
		return id, nil
	}
	greatest := ulid.MustParseStrict(lines[len(lines)-1].ID) // Parse let nothing else in
	if id.Compare(greatest) > 0 {
		return id, nil
	}
	for i := len(greatest) - 1; i >= 0; i-- {
		greatest[i]++
		if greatest[i] != 0 {
			return greatest, nil
		}
	}
	return id, fault.New(fault.Integrity, "note-full", "make an id: the note holds the greatest id there is, '%s'", lines[len(lines)-1].ID)
}
