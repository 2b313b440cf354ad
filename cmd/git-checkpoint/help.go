package main

import (
	"fmt"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/git-checkpoint/git-checkpoint/internal/output"
)

// page is what help and the man page say of the program or of one command.
type page struct {
	title       string // "git checkpoint save"
	summary     string
	synopsis    []string // with the title
	description string   // paragraphs, with an empty line between them
	lists       []list
	examples    []example
}

// list is a titled list of terms and what they mean.
type list struct {
	title string
	items []item
}

type item struct{ term, text string }

func (c *command) page() *page {
	title := "git checkpoint " + c.name
	p := &page{title: title, summary: c.summary, description: c.description, examples: c.examples}
	for _, form := range c.synopsis {
		p.synopsis = append(p.synopsis, strings.TrimSpace(title+" "+form))
	}
	p.lists = []list{{"flags", flagItems(c.allFlags())}}
	return p
}

const addressHelp = `A checkpoint is named by an address: <run> (its newest), <run>@{n} (n back from the newest), <run>@<step> (the last visit of a step), <run>@<step>#<visit>, @{n} and @<step> of the current run, or rev:<git revision> for any commit.`

func programPage() *page {
	p := &page{
		title:   "git checkpoint",
		summary: "save the full state of a working tree, and go back to it",
		synopsis: []string{
			"git checkpoint [-m MESSAGE] [FLAG...]",
			"git checkpoint COMMAND [FLAG...] [ARGUMENT...]",
		},
		description: `Saves everything that is in the working tree, staged state included, as a checkpoint: a commit under refs/checkpoints/, beside the branches. Nothing of yours is touched by saving. A checkpoint can be restored at any time, and that can be undone.

Checkpoints belong to a run, a named chain of them; each may be the end of a named step. The first save begins a run, and the next ones go on with it. Without a command, git checkpoint saves.

` + addressHelp + `

Flags and arguments mix in any order; "--" ends the flags. Results go to standard output, everything else to standard error.`,
		examples: []example{
			{"git checkpoint", "save what is there now"},
			{"git checkpoint save --step plan -m 'plan agreed'", "save it as the end of a step"},
			{"git checkpoint diff", "show what has changed since"},
			{"git checkpoint restore @plan", "go back to that step"},
			{"git checkpoint undo", "take that back"},
		},
	}
	names := list{title: "commands"}
	for _, c := range allCommands() {
		if !c.hidden {
			names.items = append(names.items, item{c.name, c.summary})
		}
	}
	codes := list{title: "exit codes"}
	for _, e := range exits {
		codes.items = append(codes.items, item{fmt.Sprint(e.code), e.meaning})
	}
	p.lists = []list{
		names,
		{"flags", append([]item{{"-h, --help", "print this help; with a command, that command's"}}, flagItems([]cli.Flag{versionFlag()})...)},
		codes,
		{"environment", []item{
			{"GIT_CHECKPOINT_DATE", "the time to record instead of the clock's (RFC 3339, or seconds since 1970 and a zone); for tests"},
			{"GIT_CHECKPOINT_TRACE", "1: print on standard error which git commands are run and how long they take"},
		}},
	}
	return p
}

func versionFlag() cli.Flag {
	return &cli.BoolFlag{Name: "version", Usage: "print the version"}
}

// flagItems describes flags: "-m, --message MESSAGE".
func flagItems(flags []cli.Flag) []item {
	var items []item
	for _, f := range flags {
		doc, ok := f.(cli.DocGenerationFlag)
		if !ok {
			continue
		}
		names := f.Names()
		term := "--" + names[0]
		for _, short := range names[1:] {
			term = "-" + short + ", " + term
		}
		value, text := splitUsage(doc.GetUsage())
		if value != "" {
			term += " " + value
		}
		if many, ok := f.(cli.DocGenerationSliceFlag); ok && many.IsSliceFlag() {
			text += "; may be repeated"
		}
		items = append(items, item{term, text})
	}
	return items
}

// splitUsage takes the name of the value out of a flag's usage, where it
// stands in backquotes.
func splitUsage(usage string) (value, text string) {
	before, rest, _ := strings.Cut(usage, "`")
	value, after, ok := strings.Cut(rest, "`")
	if !ok {
		return "", usage
	}
	return value, before + value + after
}

// alternatives joins words as a sentence does: "a, b or c".
func alternatives(words []string) string {
	last := len(words) - 1
	return strings.Join(words[:last], ", ") + " or " + words[last]
}

const helpWidth = 80

// writeHelp prints a page as text.
func writeHelp(p *output.Printer, page *page) {
	for i, form := range page.synopsis {
		lead := "usage: "
		if i > 0 {
			lead = "   or: "
		}
		p.Printf("%s", hang(lead, len(lead)+4, form))
	}
	p.Printf("\n%s", hang("", 0, page.summary))
	for _, paragraph := range strings.Split(page.description, "\n\n") {
		p.Printf("\n%s", hang("", 0, paragraph))
	}
	for _, l := range page.lists {
		p.Printf("\n%s:\n", l.title)
		width := termWidth(l.items)
		for _, it := range l.items {
			if len(it.term) > width {
				p.Printf("  %s\n", it.term)
				it.term = ""
			}
			p.Printf("%s", hang(fmt.Sprintf("  %-*s  ", width, it.term), width+4, it.text))
		}
	}
	if len(page.examples) > 0 {
		p.Printf("\nexamples:\n")
	}
	for _, e := range page.examples {
		p.Printf("  %s\n      %s\n", e.line, e.does)
	}
}

// termWidth is the width of a list's left column: that of the longest term
// that is not too long to share its line.
func termWidth(items []item) int {
	width := 0
	for _, it := range items {
		if n := len(it.term); n > width && n <= 26 {
			width = n
		}
	}
	return width
}

// hang breaks text into lines: the first after lead, the others indented.
func hang(lead string, indent int, text string) string {
	var b strings.Builder
	b.WriteString(lead)
	column, start := len(lead), true
	for _, word := range strings.Fields(text) {
		n := len([]rune(word))
		switch {
		case start:
		case column+1+n > helpWidth:
			b.WriteString("\n" + strings.Repeat(" ", indent))
			column = indent
		default:
			b.WriteByte(' ')
			column++
		}
		b.WriteString(word)
		column, start = column+n, false
	}
	b.WriteByte('\n')
	return b.String()
}
