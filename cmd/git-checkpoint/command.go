package main

import (
	"context"
	"io"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/git-checkpoint/git-checkpoint/internal/fault"
	"github.com/git-checkpoint/git-checkpoint/internal/output"
	"github.com/git-checkpoint/git-checkpoint/internal/worktree"
	"github.com/git-checkpoint/git-checkpoint/refs"
)

// command is what the program knows of a command: enough to parse it, to
// explain it, and to run it.
type command struct {
	name        string
	summary     string     // one line
	synopsis    []string   // what may follow the name, one form a line
	description string     // paragraphs, with an empty line between them
	flags       []cli.Flag // the name of a flag's value stands in backquotes in its usage
	args        []string   // names of the arguments; in brackets: may be left out; the last with "...": any number
	paths       bool       // takes paths after "--"
	examples    []example
	hidden      bool
	run         func(*call) error
}

type example struct{ line, does string }

// call is one call of a command.
type call struct {
	*output.Printer
	ctx   context.Context
	stdin io.Reader
	flags *cli.Context
	args  []string // before "--", and after it if the command takes no paths
	paths []string // after "--"

	// anyway makes settings that cannot be read warnings, for a command that
	// has to work whatever they say.
	anyway bool
}

// constructor makes a command. Only the one that is run is made, unless help
// asks for all.
type constructor struct {
	name string
	make func() *command
}

// commands are in the order in which help lists them.
func commands() []constructor {
	return []constructor{
		{"save", saveCommand},
		{"status", statusCommand},
		{"log", logCommand},
		{"show", showCommand},
		{"diff", diffCommand},
		{"restore", restoreCommand},
		{"undo", undoCommand},
		{"redo", redoCommand},
		{"start", startCommand},
		{"end", endCommand},
		{"switch", switchCommand},
		{"rewind", rewindCommand},
		{"fork", forkCommand},
		{"list", listCommand},
		{"run", runCommand},
		{"resume", resumeCommand},
		{"rerun", rerunCommand},
		{"approve", approveCommand},
		{"reject", rejectCommand},
		{"answer", answerCommand},
		{"next", nextCommand},
		{"report", reportCommand},
		{"push", pushCommand},
		{"pull", pullCommand},
		{"prune", pruneCommand},
		{"verify", verifyCommand},
		{"config", configCommand},
		{"plan", planCommand},
		{"install", installCommand},
		{"uninstall", uninstallCommand},
		{"hook", hookCommand},
		{"react", reactCommand},
		{"version", versionCommand},
		{"man", manCommand},
	}
}

// findCommand returns nil where there is none of that name.
func findCommand(name string) *command {
	for _, c := range commands() {
		if c.name == name {
			return c.make()
		}
	}
	return nil
}

func allCommands() []*command {
	var all []*command
	for _, c := range commands() {
		all = append(all, c.make())
	}
	return all
}

// allFlags are the command's own flags and those that every command has.
func (c *command) allFlags() []cli.Flag {
	return append(c.flags[:len(c.flags):len(c.flags)],
		&cli.BoolFlag{Name: "json", Usage: "print for programs: one JSON object, or one a line for a listing"},
		&cli.BoolFlag{Name: "help", Aliases: []string{"h"}, Usage: "print this help"})
}

// dispatch finds the command, parses what is for it, and runs it. Without a
// command it is save.
func dispatch(ctx context.Context, p *output.Printer, argv []string, stdin io.Reader) error {
	name, argv := splitCommand(argv)
	cmd := findCommand(name)
	if name == "" {
		cmd = saveCommand()
		cmd.flags = append(cmd.flags, versionFlag())
	}
	if cmd == nil {
		if wantsJSON(argv) {
			p.ForPrograms()
		}
		return unknownCommand(name)
	}
	in, err := arrange(cmd, argv)
	if in.json {
		p.ForPrograms()
	}
	switch {
	case in.help && name == "":
		writeHelp(p, programPage())
		return nil
	case in.help:
		writeHelp(p, cmd.page())
		return nil
	case err != nil:
		return err
	case in.version:
		cmd, in = versionCommand(), &arguments{}
	}
	return cmd.execute(ctx, p, in, stdin)
}

func unknownCommand(name string) error {
	var names []string
	for _, c := range allCommands() {
		if !c.hidden {
			names = append(names, c.name)
		}
	}
	e := fault.New(fault.Invalid, "unknown-command", "unknown command %s", output.Quoted(name))
	if near := refs.Nearest(name, names); near != "" {
		return e.WithHint("did you mean 'git checkpoint %s'?", near)
	}
	return e.WithHint("git checkpoint -h lists the commands")
}

// execute hands the arranged arguments to cli and runs the command. cli reads
// the flags; what it prints and where it exits by itself is switched off.
func (c *command) execute(ctx context.Context, p *output.Printer, in *arguments, stdin io.Reader) error {
	app := &cli.App{
		Name: c.name, HideHelp: true, HideVersion: true, Writer: io.Discard, ErrWriter: io.Discard,
		Compiled:                  time.Unix(1, 0), // else cli looks at our file
		DisableSliceFlagSeparator: true,
		ExitErrHandler:            func(*cli.Context, error) {},
		OnUsageError: func(_ *cli.Context, err error, _ bool) error {
			return fault.New(fault.Invalid, "invalid-flag", "read the flags of git checkpoint %s: %w", c.name, err)
		},
		Flags: c.allFlags(),
		Action: func(flags *cli.Context) error {
			return c.run(&call{Printer: p, ctx: ctx, stdin: stdin, flags: flags, args: in.args, paths: in.paths})
		},
	}
	return app.RunContext(ctx, append([]string{c.name}, in.flags...))
}

// many says whether the command takes any number of arguments.
func (c *command) many() bool {
	return len(c.args) > 0 && strings.Contains(c.args[len(c.args)-1], "...")
}

// arg returns an argument by its position, empty where it was left out.
func (c *call) arg(i int) string {
	if i < len(c.args) {
		return c.args[i]
	}
	return ""
}

// in opens the worktree that the command runs in, and passes on what it
// warns of.
func (c *call) in(do func(*worktree.Worktree) error) error {
	if c.anyway {
		return c.inside(worktree.OpenAnyway, do)
	}
	return c.inside(worktree.Open, do)
}

func (c *call) inside(open func(context.Context, string) (*worktree.Worktree, error), do func(*worktree.Worktree) error) error {
	w, err := open(c.ctx, "")
	if err != nil {
		return err
	}
	err = do(w)
	for _, warning := range w.Warnings() {
		c.Warning("%s", warning)
	}
	if closing := w.Close(); err == nil {
		err = closing
	}
	return err
}
