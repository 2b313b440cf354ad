package notes

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/git-checkpoint/git-checkpoint/internal/fault"
)

// Three ids in ascending order; the ULID specification's example is the first.
const (
	id1 = "01ARZ3NDEKTSV4RRFFQ69G5FAV"
	id2 = "01BX5ZZKBKACTAV9WEVGEMMVRZ"
	id3 = "01BX5ZZKBKACTAV9WEVGEMMVS0"
)

var noon = time.Date(2026, 7, 1, 12, 0, 0, 250e6, time.UTC)

// line is a line in the format, with further members.
func line(id, event string, members ...string) string {
	return strings.Join(append([]string{
		`{"id":"` + id + `","at":"2026-07-01T12:00:00Z","event":"` + event + `"`}, members...), ",") + "}"
}

func jsonl(lines ...string) []byte { return []byte(strings.Join(lines, "\n") + "\n") }

func TestParseRefusesWhatBreaksTheFormat(t *testing.T) {
	good := line(id1, "created")
	for title, c := range map[string]struct{ bad, says string }{
		"a blank line":                    {"", "it is blank"},
		"spaces only":                     {" \t", "it is blank"},
		"half a line":                     {good[:40], "it is not JSON"},
		"two objects in a line":           {good + good, "it is not JSON"},
		"a byte order mark":               {"\ufeff" + good, "it is not JSON"},
		"an array":                        {"[" + good + "]", "it is not an object"},
		"null":                            {"null", "it is not an object"},
		"a number":                        {"1", "it is not an object"},
		"a carriage return":               {good + "\r", "white space around"},
		"indentation":                     {" " + good, "white space around"},
		"an empty object":                 {"{}", "does not begin with"},
		"no id":                           {`{"at":"2026-07-01T12:00:00Z","event":"x"}`, "does not begin with"},
		"only an id":                      {`{"id":"` + id1 + `"}`, "does not begin with"},
		"another field first":             {`{"v":1,` + good[1:], "does not begin with"},
		"another order":                   {`{"id":"` + id1 + `","event":"x","at":"2026-07-01T12:00:00Z"}`, "does not begin with"},
		"a field between":                 {`{"id":"` + id1 + `","v":1,"at":"2026-07-01T12:00:00Z","event":"x"}`, "does not begin with"},
		"an id that is no string":         {strings.Replace(good, `"`+id1+`"`, "7", 1), "its 'id' is not a string"},
		"an event that is no string":      {strings.Replace(good, `"created"`, "{}", 1), "its 'event' is not a string"},
		"an id too short":                 {line(id1[1:], "x"), "is not a ULID"},
		"an id in lower case":             {line(strings.ToLower(id1), "x"), "is not a ULID"},
		"an id with a letter it lacks":    {line("01ARZ3NDEKTSV4RRFFQ69G5FAU"[:25]+"U", "x"), "is not a ULID"},
		"an id of more than 128 bits":     {line("8ZZZZZZZZZZZZZZZZZZZZZZZZZ", "x"), "is not a ULID"},
		"a time that is none":             {strings.Replace(good, "2026-07-01T12", "2026-07-01 12", 1), "not in the form of RFC 3339"},
		"a time on a day that is not one": {strings.Replace(good, "07-01", "02-30", 1), "not in the form of RFC 3339"},
	} {
		t.Run(title, func(t *testing.T) {
			lines, err := Parse(jsonl(good, line(id2, "status"), c.bad, line(id3, "status")))
			var failed *fault.Error
			if !errors.As(err, &failed) || failed.Kind != fault.Integrity || failed.Code != "note-damaged" {
				t.Fatalf("Parse: %v, %v; want note-damaged", lines, err)
			}
			if text := err.Error(); !strings.Contains(text, "line 3: ") || !strings.Contains(text, c.says) {
				t.Errorf("Parse says %q, want line 3 and %q", text, c.says)
			}
		})
	}
}

func TestParseReadsTheHeadOfALineAndKeepsItsBytes(t *testing.T) {
	for title, raw := range map[string]string{
		"compact":       `{"id":"` + id1 + `","at":"2026-07-01T12:00:00.25Z","event":"été"}`,
		"with spaces":   `{ "id" : "` + id1 + `" , "at":	"2026-07-01T12:00:00.250Z", "event" : "été" , "n": 1e400 }`,
		"with escapes":  `{"\u0069d":"\u0030` + id1[1:] + `","at":"2026-07-01T12:00:00.25Z","event":"\u00e9t\u00e9"}`,
		"another zone":  `{"id":"` + id1 + `","at":"2026-07-01T14:00:00.25+02:00","event":"été"}`,
		"unknown ones":  `{"id":"` + id1 + `","at":"2026-07-01T12:00:00.25Z","event":"été","z":{"b":1,"a":[2,  3]},"y":"\u0041","x":0.10}`,
		"invalid UTF-8": `{"id":"` + id1 + `","at":"2026-07-01T12:00:00.25Z","event":"été","x":"` + "\xff" + `"}`,
	} {
		t.Run(title, func(t *testing.T) {
			lines, err := Parse([]byte(raw))
			if err != nil || len(lines) != 1 {
				t.Fatalf("Parse: %v, %v", lines, err)
			}
			l := lines[0]
			if l.ID != id1 || !l.At.Equal(noon) || l.At.Location() != time.UTC || l.Event != "été" {
				t.Errorf("got %s %s %s", l.ID, l.At, l.Event)
			}
			if got := Encode(lines); string(got) != raw+"\n" {
				t.Errorf("encoded anew:\n%s\nwant\n%s", got, raw)
			}
		})
	}
}

func TestParseSortsAndDropsRepeatedLines(t *testing.T) {
	a, b, c, d := line(id1, "a"), line(id2, "b"), line(id2, "c"), line(id3, "d")
	lines, err := Parse(jsonl(d, c, a, d, b, a))
	if err != nil {
		t.Fatal(err)
	}
	if got, want := Encode(lines), jsonl(a, b, c, d); !bytes.Equal(got, want) {
		t.Errorf("got\n%swant\n%s", got, want)
	}
}

func TestParseTakesAnEmptyNote(t *testing.T) {
	if lines, err := Parse(nil); len(lines) != 0 || err != nil {
		t.Errorf("Parse: %v, %v", lines, err)
	}
}

func TestParseTakesALineOfManyMegabytes(t *testing.T) {
	long := line(id1, "answer", `"text":"`+strings.Repeat("x", 16<<20)+`"`)
	lines, err := Parse(jsonl(long, line(id2, "status")))
	if err != nil || len(lines) != 2 || len(lines[0].Raw) != len(long) {
		t.Errorf("Parse: %d lines, %v", len(lines), err)
	}
}

func TestParsedLinesDoNotGrowIntoTheNote(t *testing.T) {
	n := jsonl(line(id1, "a"), line(id2, "b"))
	before := string(n)
	lines, err := Parse(n)
	if err != nil {
		t.Fatal(err)
	}
	_ = append(lines[0].Raw, 'X')
	if string(n) != before {
		t.Errorf("the note became %q", n)
	}
}

func TestEncodeLeavesTheLinesItIsGiven(t *testing.T) {
	a, err := Parse(jsonl(line(id1, "a"), line(id2, "b")))
	if err != nil {
		t.Fatal(err)
	}
	given := []Line{a[1], a[0], a[1]}
	if got, want := Encode(given), jsonl(line(id1, "a"), line(id2, "b")); !bytes.Equal(got, want) {
		t.Errorf("got\n%swant\n%s", got, want)
	}
	if given[0].ID != id2 || given[1].ID != id1 || given[2].ID != id2 {
		t.Errorf("the lines are now %v", given)
	}
}

func TestLineDecodesItsFields(t *testing.T) {
	lines, err := Parse(jsonl(line(id1, "status", `"status":"held"`, `"later":[1]`)))
	if err != nil {
		t.Fatal(err)
	}
	var v struct{ Status string }
	if err := lines[0].Decode(&v); err != nil || v.Status != "held" {
		t.Errorf("Decode: %v, %v", v, err)
	}
	fields := lines[0].Fields()
	if len(fields) != 5 || string(fields["later"]) != "[1]" || string(fields["event"]) != `"status"` {
		t.Errorf("Fields: %s", fields)
	}
	var w struct{ Status int }
	if err := lines[0].Decode(&w); !errors.Is(err, fault.Integrity) {
		t.Errorf("Decode of a string as a number: %v", err)
	}
}

func TestCheckFindsEveryFault(t *testing.T) {
	n := []byte(strings.Join([]string{
		line(id2, "b"),
		line(id1, "a"), // 2: out of order
		"",             // 3: blank
		line(id1, "a"), // 4: repeated
		"{",            // 5: damaged
		strings.Replace(line(id3, "c"), "00Z", "00+02:00", 1), // 6: not UTC
		line(id3, "d"), // 7: its time sorts behind that of line 6
		line(id3, "e"), // 8: no newline
	}, "\n"))
	var got []string
	for _, err := range Check(n) {
		if !errors.Is(err, fault.Integrity) {
			t.Errorf("%v is not an integrity error", err)
		}
		got = append(got, err.Error())
	}
	want := []string{
		"read note: line 2: it belongs before line 1",
		"read note: line 3: it is blank",
		"read note: line 4: it repeats line 2",
		"read note: line 5: it is not JSON",
		"read note: line 6: its time '2026-07-01T12:00:00+02:00' is not in UTC",
		"read note: line 8: it does not end in a newline",
	}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

func TestCheckHasNothingToSayOfAWellFormedNote(t *testing.T) {
	for _, n := range [][]byte{nil, jsonl(line(id1, "a"), line(id1, "b"), line(id2, "c"))} {
		if faults := Check(n); faults != nil {
			t.Errorf("%q: %v", n, faults)
		}
	}
}

func TestAppendRefusesWhatIsNoEvent(t *testing.T) {
	for title, c := range map[string]struct {
		note   []byte
		at     time.Time
		event  string
		fields any
		kind   error
	}{
		"a damaged note":          {[]byte("{\n"), noon, "x", nil, fault.Integrity},
		"no name":                 {nil, noon, "", nil, fault.Invalid},
		"a field called id":       {nil, noon, "x", map[string]string{"id": "1"}, fault.Invalid},
		"a field called at":       {nil, noon, "x", struct{ At string }{"now"}, fault.Invalid},
		"a field called event":    {nil, noon, "x", map[string]any{"a": 1, "event": nil}, fault.Invalid},
		"fields that are a list":  {nil, noon, "x", []int{1}, fault.Invalid},
		"fields that are a text":  {nil, noon, "x", "x", fault.Invalid},
		"a value JSON lacks":      {nil, noon, "x", map[string]any{"n": math.NaN()}, fault.Invalid},
		"a time before the epoch": {nil, time.Time{}, "x", nil, fault.Invalid},
		"a year of five digits":   {nil, time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC), "x", nil, fault.Invalid},
		"a note that is full":     {jsonl(line("7ZZZZZZZZZZZZZZZZZZZZZZZZZ", "x")), noon, "x", nil, fault.Integrity},
	} {
		t.Run(title, func(t *testing.T) {
			if got, _, err := Append(c.note, c.at, c.event, c.fields); !errors.Is(err, c.kind) || got != nil {
				t.Errorf("Append: %q, %v; want %v", got, err, c.kind)
			}
		})
	}
}

func TestAppendWritesIDTimeEventAndThenTheFields(t *testing.T) {
	at := time.Date(2026, 7, 1, 14, 0, 0, 250999999, time.FixedZone("", 2*3600))
	for title, c := range map[string]struct {
		fields any
		tail   string
	}{
		"none":            {nil, `}`},
		"no map":          {map[string]int(nil), `}`},
		"an empty struct": {struct{}{}, `}`},
		"a struct": {struct {
			Status string `json:"status"`
			Note   string `json:"note,omitempty"`
			At2    int
		}{"held", "", 2}, `,"status":"held","At2":2}`},
		"a map":               {map[string]any{"b": 1, "a": []string{"x"}}, `,"a":["x"],"b":1}`},
		"HTML":                {map[string]string{"t": "<a&b>"}, `,"t":"<a&b>"}`},
		"newlines":            {map[string]string{"t": "a\nb\r"}, `,"t":"a\nb\r"}`},
		"invalid UTF-8":       {map[string]string{"t": "a\xffb"}, `,"t":"a` + `\ufffd` + `b"}`},
		"raw JSON on 2 lines": {json.RawMessage("{\n  \"a\": 1\n}"), `,"a":1}`},
	} {
		t.Run(title, func(t *testing.T) {
			n, l, err := Append(nil, at, `say "hi"`, c.fields)
			if err != nil {
				t.Fatal(err)
			}
			want := `{"id":"` + l.ID + `","at":"2026-07-01T12:00:00.250Z","event":"say \"hi\""` + c.tail
			if string(n) != want+"\n" || string(l.Raw) != want {
				t.Errorf("note %q\nline %q\nwant %q", n, l.Raw, want)
			}
			if !l.At.Equal(noon) || l.Event != `say "hi"` {
				t.Errorf("line: %s, %s", l.At, l.Event)
			}
			if faults := Check(n); faults != nil {
				t.Error(faults)
			}
		})
	}
}

func TestAppendKeepsEveryLineAndAddsOneAtTheEnd(t *testing.T) {
	old := jsonl(line(id2, "b", `"x": 1`), line(id1, "a"), line(id2, "b", `"x": 1`))
	before := string(old)
	n, l, err := Append(old[:len(old):cap(old)], noon, "status", nil)
	if err != nil {
		t.Fatal(err)
	}
	if want := jsonl(line(id1, "a"), line(id2, "b", `"x": 1`), string(l.Raw)); !bytes.Equal(n, want) {
		t.Errorf("got\n%swant\n%s", n, want)
	}
	if string(old) != before {
		t.Errorf("the old note became\n%s", old)
	}
}

func TestAppendTakesTheTimeOfAnIDFromTheEvent(t *testing.T) {
	// The ULID specification: 48 bits of milliseconds are the first ten characters.
	_, l, err := Append(nil, time.UnixMilli(1469918176385), "x", nil)
	if err != nil || l.ID[:10] != "01ARYZ6S41" {
		t.Errorf("id %s, %v", l.ID, err)
	}
	_, other, err := Append(nil, time.UnixMilli(1469918176385), "x", nil)
	if err != nil || other.ID == l.ID {
		t.Errorf("two ids of one moment are both %s, %v", l.ID, err)
	}
}

func TestAppendCountsOnWhereTheClockStandsBack(t *testing.T) {
	early := time.Date(2001, 1, 1, 0, 0, 0, 0, time.UTC)
	for greatest, want := range map[string]string{
		id2:                          id3,
		"01BX5ZZKBK000000000000000Z": "01BX5ZZKBK0000000000000010",
		"01BX5ZZKBKZZZZZZZZZZZZZZZZ": "01BX5ZZKBM0000000000000000", // into the time
		"7ZZZZZZZZZZZZZZZZZZZZZZZZY": "7ZZZZZZZZZZZZZZZZZZZZZZZZZ",
	} {
		_, l, err := Append(jsonl(line(greatest, "x"), line(id1, "x")), early, "y", nil)
		if err != nil || l.ID != want {
			t.Errorf("after %s came %s, %v; want %s", greatest, l.ID, err, want)
		}
	}
}

func TestAppendedIDsRiseWhateverTheClockDoes(t *testing.T) {
	var n []byte
	last := ""
	for i := range 300 {
		at := noon.Add(time.Duration(i%7-3) * time.Millisecond)
		var l Line
		var err error
		if n, l, err = Append(n, at, "tick", map[string]int{"n": i}); err != nil {
			t.Fatal(err)
		}
		if l.ID <= last {
			t.Fatalf("%s came after %s", l.ID, last)
		}
		last = l.ID
	}
	lines, err := Parse(n)
	if err != nil || len(lines) != 300 {
		t.Fatalf("%d lines, %v", len(lines), err)
	}
	for i, l := range lines {
		if got := string(l.Fields()["n"]); got != fmt.Sprint(i) {
			t.Fatalf("line %d holds n = %s", i, got)
		}
	}
}

func FuzzParse(f *testing.F) {
	for _, n := range [][]byte{
		nil,
		[]byte("\n"),
		[]byte("{"),
		jsonl(line(id1, "a")),
		jsonl(line(id2, "b", `"x":{"y":[1,2]}`), line(id1, "a"), line(id1, "a")),
		[]byte(line(id1, "no newline")),
		jsonl(line(id1, "a")+"\r", line(id2, "b")),
		jsonl(`{ "id" : "` + id1 + `", "at": "2026-07-01T12:00:00+02:00", "event": "\u00e9\"" }`),
		jsonl(`{"id":"`+id1+`","at":"2026-07-01T12:00:00Z","event":"x`+"\xff"+`"}`, ""),
		jsonl(`{"id":"` + id1 + `"}`),
		jsonl(`{"id":`),
	} {
		f.Add(n)
	}
	f.Fuzz(func(t *testing.T, n []byte) {
		faults := Check(n)
		lines, err := Parse(n)
		if err != nil {
			if len(faults) == 0 {
				t.Fatalf("Check finds no fault in what Parse refuses: %v", err)
			}
			if !errors.Is(err, fault.Integrity) {
				t.Fatalf("not an integrity error: %v", err)
			}
			return
		}
		once := Encode(lines)
		again, err := Parse(once)
		if err != nil || !bytes.Equal(Encode(again), once) {
			t.Fatalf("not stable: %q, then %q, %v", once, Encode(again), err)
		}
		if len(faults) == 0 && !bytes.Equal(once, n) {
			t.Fatalf("Check finds no fault, but the note is encoded as %q", once)
		}
		if union, err := Union(n, n); err != nil || !bytes.Equal(union, once) {
			t.Fatalf("the union with itself is %q, %v; want %q", union, err, once)
		}
		if n, l, err := Append(n, noon, "x", nil); err == nil && !bytes.Equal(n, append(once, string(l.Raw)+"\n"...)) {
			t.Fatalf("appended to %q: %q", once, n)
		}
	})
}
