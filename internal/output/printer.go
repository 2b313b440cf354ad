// Package output knows how results are printed.
package output

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/git-checkpoint/git-checkpoint/internal/fault"
)

// Printer prints what a command answers, by these rules:
//
//   - Standard output holds results and nothing else, so that it can be piped.
//   - Everything else goes to standard error, one line a thing: "error:",
//     "warning:" or "hint:", then text in lower case without a full stop. An
//     error comes last, its hint after it.
//   - For programs (--json) a result is one JSON object; a listing is one
//     object a line, and nothing where it is empty. Nothing is escaped for
//     HTML, times are RFC 3339 in UTC, ids are full. An error is one object on
//     standard error, {"error":{"code","message","hint"}}, on a line of its
//     own; warnings stay plain lines there, and hints, which are for people,
//     are left out.
//   - Text that came from outside (paths, subjects, what git said) cannot end
//     its line or steer a terminal: see Path and Text. In JSON a path that
//     JSON cannot hold is quoted: see Name.
//   - There is no colour of our own; what git prints for us has colour by
//     git's rules, and only on a terminal.
//   - Standard output is buffered. The first error in writing it is kept, what
//     follows is dropped, and Flush returns it.
type Printer struct {
	stdout io.Writer
	stderr io.Writer
	out    *bufio.Writer
	json   bool
}

// New returns a printer for people.
func New(stdout, stderr io.Writer) *Printer {
	return &Printer{stdout: stdout, stderr: stderr, out: bufio.NewWriterSize(stdout, 32<<10)}
}

// ForPrograms makes the printer print JSON from now on.
func (p *Printer) ForPrograms() { p.json = true }

// JSON says whether the printer prints for programs.
func (p *Printer) JSON() bool { return p.json }

// Printf prints a part of a result for people.
func (p *Printer) Printf(format string, args ...any) {
	fmt.Fprintf(p.out, format, args...)
}

// Text prints a part of a result for people as it is.
func (p *Printer) Text(text []byte) { p.out.Write(text) }

// Object prints a result for programs: one JSON object on one line.
func (p *Printer) Object(v any) {
	// bufio.Writer keeps an error in writing; what we print always encodes.
	_ = encode(p.out, v)
}

// Raw returns standard output itself, for a program that is to write to it.
// What was printed so far is written first.
func (p *Printer) Raw() io.Writer {
	p.out.Flush()
	return p.stdout
}

// Flush writes what is buffered, and returns the first error in writing.
func (p *Printer) Flush() error { return p.out.Flush() }

// Broken says whether writing has failed, so that a long listing may end.
func (p *Printer) Broken() bool {
	_, err := p.out.Write(nil)
	return err != nil
}

// Terminal says whether a person reads standard output as it is written.
func (p *Printer) Terminal() bool { return terminal(p.stdout) }

func terminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	if !ok {
		return false
	}
	info, err := f.Stat()
	if err != nil || info.Mode()&os.ModeCharDevice == 0 {
		return false
	}
	null, err := os.Stat(os.DevNull)
	return err != nil || !os.SameFile(info, null)
}

// Warning prints a warning.
func (p *Printer) Warning(format string, args ...any) { p.note("warning", format, args) }

// Hint prints what one may do next; nothing when a program reads.
func (p *Printer) Hint(format string, args ...any) {
	if !p.json {
		p.note("hint", format, args)
	}
}

// Several is an error that stands for several faults. For people each is an
// "error:" line of its own, for programs they are the field "faults" beside
// the error's message.
type Several interface {
	error
	Each() []string
	Faults() any
}

// Error prints an error and its hint.
func (p *Printer) Error(err error) {
	code, hint := "fatal", ""
	var f *fault.Error
	if errors.As(err, &f) {
		code, hint = f.Code, f.Hint
	}
	var several Several
	isSeveral := errors.As(err, &several)
	if p.json {
		var failure struct {
			Error struct {
				Code    string `json:"code"`
				Message string `json:"message"`
				Hint    string `json:"hint"`
				Faults  any    `json:"faults,omitempty"`
			} `json:"error"`
		}
		if isSeveral {
			failure.Error.Faults = several.Faults()
		}
		failure.Error.Code, failure.Error.Message, failure.Error.Hint = code, err.Error(), hint
		_ = encode(p.stderr, failure)
		return
	}
	messages := []string{err.Error()}
	if isSeveral {
		messages = several.Each()
	}
	for _, message := range messages {
		p.note("error", "%s", []any{message})
	}
	if hint != "" {
		p.note("hint", "%s", []any{hint})
	}
}

// note writes to standard error. Where that fails there is nobody to tell.
func (p *Printer) note(label, format string, args []any) {
	fmt.Fprintf(p.stderr, "%s: %s\n", label, Text(fmt.Sprintf(format, args...)))
}

func encode(w io.Writer, v any) error {
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	return e.Encode(v)
}

// Watched says whether a person reads standard error as it is written.
func (p *Printer) Watched() bool { return terminal(p.stderr) }

// Stderr is standard error itself, for what is drawn on a terminal.
func (p *Printer) Stderr() io.Writer { return p.stderr }
