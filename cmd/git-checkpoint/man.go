package main

import (
	"io"
	"strings"
)

func manCommand() *command {
	return &command{
		name:        "man",
		summary:     "print the man page of git-checkpoint",
		synopsis:    []string{""},
		description: `Prints the man page, made from what -h prints. To read it: git checkpoint man | man -l -`,
		hidden:      true,
		examples:    []example{{"git checkpoint man >git-checkpoint.1", "write the man page into a file"}},
		run: func(c *call) error {
			_, err := io.WriteString(c.Raw(), manPage())
			return err
		},
	}
}

// manPage renders what help says as a page for man(1), in man(7) macros.
func manPage() string {
	m := &troff{}
	p := programPage()
	m.b.WriteString(".\\\" Made by 'git checkpoint man'. Do not edit.\n")
	m.b.WriteString(`.TH GIT\-CHECKPOINT 1 "" "git\-checkpoint" "Git Checkpoint Manual"` + "\n")
	m.section("name")
	m.text("git-checkpoint - " + p.summary)
	m.section("synopsis")
	m.synopsis(p.synopsis)
	m.section("description")
	m.paragraphs(p.description)
	for _, l := range p.lists {
		if l.title == "commands" {
			m.section("commands")
			m.commands()
			continue
		}
		m.section(l.title)
		m.items(l.items)
	}
	m.section("examples")
	m.examples(p.examples)
	m.section("see also")
	m.text("git(1), git-stash(1), git-worktree(1), git-notes(1)")
	return m.b.String()
}

// troff writes man(7) macros.
type troff struct{ b strings.Builder }

var troffEscapes = strings.NewReplacer(`\`, `\e`, `-`, `\-`, `'`, `\(aq`, "`", "\\(ga", `^`, `\(ha`, `~`, `\(ti`)

// escape keeps text from being taken for a macro.
func escape(text string) string {
	text = troffEscapes.Replace(text)
	if strings.HasPrefix(text, ".") {
		text = `\&` + text
	}
	return text
}

func (m *troff) macro(name, text string) {
	m.b.WriteString("." + name + " " + escape(text) + "\n")
}

func (m *troff) text(text string) {
	for _, line := range strings.Split(strings.TrimSpace(text), "\n") {
		m.b.WriteString(escape(strings.TrimSpace(line)) + "\n")
	}
}

func (m *troff) section(title string) { m.macro("SH", strings.ToUpper(title)) }

func (m *troff) paragraphs(text string) {
	for i, paragraph := range strings.Split(text, "\n\n") {
		if i > 0 {
			m.b.WriteString(".PP\n")
		}
		m.text(paragraph)
	}
}

func (m *troff) synopsis(forms []string) {
	for i, form := range forms {
		if i > 0 {
			m.b.WriteString(".br\n")
		}
		m.text(form)
	}
}

func (m *troff) items(items []item) {
	for _, it := range items {
		m.b.WriteString(".TP\n")
		m.macro("B", it.term)
		m.text(it.text)
	}
}

// examples are set as they are typed, each with what it does.
func (m *troff) examples(examples []example) {
	for _, e := range examples {
		m.b.WriteString(".TP\n")
		m.macro("B", e.line)
		m.text(e.does)
	}
}

// commands describes every command in a subsection. The flags that all of
// them have are described once, before them.
func (m *troff) commands() {
	m.text("Every command takes these flags beside its own:")
	m.items(flagItems((&command{}).allFlags()))
	for _, c := range allCommands() {
		if c.hidden {
			continue
		}
		p := c.page()
		m.macro("SS", p.title)
		m.synopsis(p.synopsis)
		m.b.WriteString(".PP\n")
		m.paragraphs(p.description)
		m.items(flagItems(c.flags))
		if len(p.examples) > 0 {
			m.b.WriteString(".PP\nExamples:\n")
			m.examples(p.examples)
		}
	}
}
