package main

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/urfave/cli/v2"
)

var update = flag.Bool("update", false, "write docs/man anew")

func TestEveryCommandIsExplained(t *testing.T) {
	for _, c := range allCommands() {
		if c.summary == "" || c.description == "" || len(c.synopsis) == 0 || len(c.examples) == 0 || c.run == nil {
			t.Errorf("%s lacks a summary, a description, a synopsis or an example", c.name)
		}
		if strings.HasSuffix(c.summary, ".") || c.summary != strings.ToLower(c.summary) {
			t.Errorf("%s: the summary %q is not lower case without a full stop", c.name, c.summary)
		}
		synopsis := strings.Join(c.synopsis, "\n")
		for _, f := range c.flags {
			name := f.Names()[0]
			doc := f.(cli.DocGenerationFlag)
			value, text := splitUsage(doc.GetUsage())
			if text == "" || doc.TakesValue() != (value != "") {
				t.Errorf("%s: flag --%s has no help, or does not name its value: %q", c.name, name, doc.GetUsage())
			}
			named := strings.Contains(synopsis, "--"+name)
			for _, short := range f.Names()[1:] {
				named = named || strings.Contains(synopsis, "-"+short)
			}
			if !named {
				t.Errorf("%s: flag --%s is not in the synopsis", c.name, name)
			}
		}
		for _, arg := range c.args {
			if !strings.Contains(synopsis, strings.Trim(arg, "[]")) {
				t.Errorf("%s: argument %s is not in the synopsis", c.name, arg)
			}
		}
	}
}

// An example that cannot be parsed teaches a mistake.
func TestExamplesParse(t *testing.T) {
	quoted := regexp.MustCompile(`'[^']*'|[^' ]+`)
	examples := programPage().examples
	for _, c := range allCommands() {
		examples = append(examples, c.examples...)
	}
	for _, e := range examples {
		line, _, _ := strings.Cut(e.line, " >")
		if _, after, piped := strings.Cut(line, " | "); piped {
			line = after
		}
		argv := quoted.FindAllString(line, -1)[2:]
		name, rest := splitCommand(argv)
		if name == "" {
			name = "save"
		}
		cmd := findCommand(name)
		if cmd == nil {
			t.Errorf("%s: no such command", e.line)
			continue
		}
		if _, err := arrange(cmd, rest); err != nil {
			t.Errorf("%s: %v", e.line, err)
		}
	}
}

func helpText(t *testing.T, args ...string) string {
	t.Helper()
	var out, errs bytes.Buffer
	if code := run(t.Context(), args, nil, &out, &errs); code != 0 || errs.Len() > 0 {
		t.Fatalf("%q: exit %d, stderr %q", args, code, errs.String())
	}
	return out.String()
}

func TestHelpIsPrinted(t *testing.T) {
	program := helpText(t, "-h")
	if program != helpText(t, "--help") || program != helpText(t, "-m", "x", "-h") {
		t.Error("-h and --help differ")
	}
	for _, want := range []string{"usage: git checkpoint ", "\nexit codes:\n", "GIT_CHECKPOINT_DATE", "GIT_CHECKPOINT_TRACE", "\nexamples:\n"} {
		if !strings.Contains(program, want) {
			t.Errorf("the help of the program lacks %q", want)
		}
	}
	for _, c := range allCommands() {
		if strings.Contains(program, "\n  "+c.name+" ") == c.hidden {
			t.Errorf("%s is listed: %v", c.name, c.hidden)
		}
		text := helpText(t, c.name, "--help")
		if text != helpText(t, "-h", c.name) || text != helpText(t, c.name, "--bogus", "-h") {
			t.Errorf("%s: the help depends on what else is there", c.name)
		}
		for _, want := range []string{"usage: git checkpoint " + c.name, c.summary, "\nflags:\n", "--json", "-h, --help", "\nexamples:\n"} {
			if !strings.Contains(text, want) {
				t.Errorf("the help of %s lacks %q", c.name, want)
			}
		}
		for i, line := range strings.Split(text, "\n") {
			if len([]rune(line)) > helpWidth || strings.TrimRight(line, " ") != line {
				t.Errorf("%s: line %d of the help is too long or ends in a space: %q", c.name, i+1, line)
			}
		}
	}
}

func TestManPageIsUpToDate(t *testing.T) {
	file := filepath.Join("..", "..", "docs", "man", "git-checkpoint.1")
	page := helpText(t, "man")
	if *update {
		if err := os.WriteFile(file, []byte(page), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	have, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if strings.ReplaceAll(string(have), "\r\n", "\n") != page {
		t.Error("docs/man/git-checkpoint.1 is not what the commands say now; run go generate ./cmd/git-checkpoint")
	}
}

// A line that begins with a dot or a quote would be taken for a macro.
func TestManPageHasNoStrayMacros(t *testing.T) {
	known := regexp.MustCompile(`^\.(\\"|TH|SH|SS|TP|PP|B|br)( |$)`)
	for i, line := range strings.Split(manPage(), "\n") {
		if strings.HasPrefix(line, "'") || strings.HasPrefix(line, ".") && !known.MatchString(line) {
			t.Errorf("line %d: %q", i+1, line)
		}
		if strings.ContainsFunc(line, func(r rune) bool { return r > 126 }) {
			t.Errorf("line %d is not ASCII: %q", i+1, line)
		}
	}
	if got := escape(`.a-b \n 'c'`); got != `\&.a\-b \en \(aqc\(aq` {
		t.Errorf("escape: %s", got)
	}
}
