package main

import (
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/urfave/cli/v2"

	"github.com/git-checkpoint/git-checkpoint/internal/fault"
	"github.com/git-checkpoint/git-checkpoint/internal/output"
	"github.com/git-checkpoint/git-checkpoint/refs"
)

// arguments are what is for one command, put in order.
type arguments struct {
	flags   []string // each as --name or --name=value, by its long name
	args    []string
	paths   []string // what followed "--", where the command takes paths
	json    bool
	help    bool
	version bool
}

// splitCommand takes the command's name out of argv: the first argument that
// is neither a flag nor a flag's value. It is empty where there is none
// before "--".
func splitCommand(argv []string) (name string, rest []string) {
	if len(argv) == 0 {
		return "", nil
	}
	if !isFlag(argv[0]) {
		return argv[0], argv[1:]
	}
	// A flag comes first. Whether the next argument is its value, the flags
	// of all commands together say: a name means the same in each.
	known := flagTable{}
	for _, c := range allCommands() {
		known.add(c.allFlags())
	}
	for i := 0; i < len(argv) && argv[i] != "--"; i++ {
		if !isFlag(argv[i]) {
			return argv[i], append(argv[:i:i], argv[i+1:]...)
		}
		if known.wantsNext(argv[i]) {
			i++
		}
	}
	return "", argv
}

// isFlag tells a flag from an argument. A lone "-" is an argument.
func isFlag(arg string) bool { return len(arg) > 1 && arg[0] == '-' }

func wantsJSON(argv []string) bool {
	for _, a := range argv {
		if a == "--" {
			return false
		}
		if a == "--json" {
			return true
		}
	}
	return false
}

// flagTable knows flags by each of their names.
type flagTable map[string]flagShape

type flagShape struct {
	name  string // the long one
	value bool   // it takes a value
}

func (t flagTable) add(flags []cli.Flag) {
	for _, f := range flags {
		names := f.Names()
		takes, ok := f.(cli.DocGenerationFlag)
		for _, n := range names {
			t[n] = flagShape{name: names[0], value: ok && takes.TakesValue()}
		}
	}
}

// wantsNext says whether the argument after this flag is its value.
func (t flagTable) wantsNext(arg string) bool {
	if long, ok := strings.CutPrefix(arg, "--"); ok {
		return t[long].value
	}
	for i := 1; i < len(arg); i++ {
		if t[arg[i:i+1]].value {
			return i == len(arg)-1
		}
	}
	return false
}

func (t flagTable) longNames() []string {
	var names []string
	for n, f := range t {
		if n == f.name {
			names = append(names, n)
		}
	}
	slices.Sort(names)
	return names
}

// arrange sorts argv into flags and arguments, by the flags that the command
// has. They may come in any order: --name value, --name=value, -n value,
// -nvalue, and several short flags in one; "--" ends the flags. The first
// fault is returned, but all of argv is read, so that json and help are right
// even then.
func arrange(cmd *command, argv []string) (*arguments, error) {
	a := &arranger{cmd: cmd, known: flagTable{}, rest: argv}
	a.known.add(cmd.allFlags())
	for len(a.rest) > 0 {
		arg := a.next()
		switch {
		case arg == "--":
			a.afterDashes()
		case strings.HasPrefix(arg, "--"):
			a.long(arg[2:])
		case isFlag(arg):
			a.short(arg[1:])
		default:
			a.in.args = append(a.in.args, arg)
		}
	}
	a.count()
	return &a.in, a.err
}

type arranger struct {
	cmd   *command
	known flagTable
	rest  []string
	in    arguments
	err   error // the first
}

func (a *arranger) next() string {
	arg := a.rest[0]
	a.rest = a.rest[1:]
	return arg
}

func (a *arranger) afterDashes() {
	if a.cmd.paths {
		// Not nil, even if empty: "--" was there.
		a.in.paths = append([]string{}, a.rest...)
	} else {
		a.in.args = append(a.in.args, a.rest...)
	}
	a.rest = nil
}

func (a *arranger) long(text string) {
	name, value, attached := strings.Cut(text, "=")
	f, ok := a.known[name]
	switch {
	case !ok || name != f.name:
		a.unknown("--"+name, name)
	case f.value && !attached:
		a.takeNext(f, "--"+name)
	case f.value:
		a.set(f, value)
	case attached:
		a.fail("excess-value", "flag '--%s' takes no value", name)
	default:
		a.setBool(f)
	}
}

// short reads one or more short flags: of -abc the first that takes a value
// has the rest as its value.
func (a *arranger) short(text string) {
	for rest := text; rest != ""; {
		_, size := utf8.DecodeRuneInString(rest)
		name := rest[:size]
		first := len(rest) == len(text)
		rest = rest[size:]
		f, ok := a.known[name]
		switch {
		case !ok && first:
			// "-json" was meant to be "--json".
			a.unknown("-"+text, text)
			return
		case !ok:
			a.unknown("-"+name, name)
			return
		case f.value && rest != "":
			a.set(f, rest)
			return
		case f.value:
			a.takeNext(f, "-"+name)
		default:
			a.setBool(f)
		}
	}
}

func (a *arranger) takeNext(f flagShape, written string) {
	if len(a.rest) == 0 {
		a.fail("missing-value", "flag '%s' needs a value", written)
		return
	}
	a.set(f, a.next())
}

// set takes a value. An empty one is more likely a variable that was not set
// than a wish, so only a message may be empty.
func (a *arranger) set(f flagShape, value string) {
	if value == "" && f.name != "message" {
		a.fail("empty-value", "the value of '--%s' is empty", f.name)
	}
	a.in.flags = append(a.in.flags, "--"+f.name+"="+value)
}

func (a *arranger) setBool(f flagShape) {
	switch f.name {
	case "help":
		a.in.help = true
		return
	case "json":
		a.in.json = true
	case "version":
		a.in.version = true
	}
	a.in.flags = append(a.in.flags, "--"+f.name)
}

func (a *arranger) unknown(written, name string) {
	written, _, _ = strings.Cut(written, "=")
	name, _, _ = strings.Cut(name, "=")
	e := a.fail("unknown-flag", "git checkpoint %s has no flag %s", a.cmd.name, output.Quoted(written))
	if near := refs.Nearest(name, a.known.longNames()); near != "" {
		e.WithHint("did you mean '--%s'?", near)
	}
}

// count checks how many arguments there are.
func (a *arranger) count() {
	need := 0
	for _, name := range a.cmd.args {
		if !strings.HasPrefix(name, "[") {
			need++
		}
	}
	if slices.Contains(a.in.args, "") || slices.Contains(a.in.paths, "") {
		a.fail("empty-argument", "an argument of git checkpoint %s is empty", a.cmd.name)
	}
	switch n := len(a.in.args); {
	case n < need:
		a.fail("missing-argument", "git checkpoint %s needs a %s", a.cmd.name, strings.ToLower(a.cmd.args[n]))
	case n > len(a.cmd.args) && !a.cmd.many():
		e := a.fail("excess-argument", "git checkpoint %s does not take the argument %s", a.cmd.name, output.Quoted(a.in.args[len(a.cmd.args)]))
		if a.cmd.paths {
			e.WithHint("paths come after '--'")
		}
	}
}

// fail keeps the first fault. Every fault has a hint, if only where to read on.
func (a *arranger) fail(code, format string, args ...any) *fault.Error {
	e := fault.New(fault.Invalid, code, format, args...).WithHint("git checkpoint %s -h tells what it takes", a.cmd.name)
	if a.err == nil {
		a.err = e
	}
	return e
}
