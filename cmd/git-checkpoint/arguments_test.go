package main

import (
	"errors"
	"reflect"
	"slices"
	"testing"

	"github.com/urfave/cli/v2"

	"github.com/git-checkpoint/git-checkpoint/internal/fault"
)

func TestSplitCommand(t *testing.T) {
	for _, c := range []struct {
		argv []string
		name string
		rest []string
	}{
		{nil, "", nil},
		{[]string{"log", "r", "--json"}, "log", []string{"r", "--json"}},
		{[]string{"--json", "log", "r"}, "log", []string{"--json", "r"}},
		{[]string{"-m", "log"}, "", []string{"-m", "log"}},
		{[]string{"-mlog", "save"}, "save", []string{"-mlog"}},
		{[]string{"--message", "x", "save"}, "save", []string{"--message", "x"}},
		{[]string{"--message=x", "save"}, "save", []string{"--message=x"}},
		{[]string{"-p", "show", "@{1}"}, "show", []string{"-p", "@{1}"}},
		{[]string{"--", "log"}, "", []string{"--", "log"}},
		{[]string{"-"}, "-", []string{}},
		{[]string{""}, "", []string{}},
		{[]string{"--bogus", "log"}, "log", []string{"--bogus"}},
		{[]string{"-m"}, "", []string{"-m"}},
	} {
		argv := slices.Clone(c.argv)
		name, rest := splitCommand(argv)
		if name != c.name || !slices.Equal(rest, c.rest) {
			t.Errorf("splitCommand(%q) = %q, %q; want %q, %q", c.argv, name, rest, c.name, c.rest)
		}
		if !slices.Equal(argv, c.argv) {
			t.Errorf("splitCommand(%q) changed what it was given to %q", c.argv, argv)
		}
	}
}

// A flag may come before the command, and then the flags of all commands
// together say what it takes.
func TestAFlagMeansTheSameInEveryCommand(t *testing.T) {
	seen := flagTable{}
	for _, c := range allCommands() {
		own := flagTable{}
		own.add(c.allFlags())
		for name, f := range own {
			if before, ok := seen[name]; ok && before != f {
				t.Errorf("flag %q of %s is %+v, elsewhere %+v", name, c.name, f, before)
			}
			seen[name] = f
		}
	}
}

func testCommand(args []string, paths bool) *command {
	return &command{name: "try", args: args, paths: paths, flags: []cli.Flag{
		&cli.StringFlag{Name: "message", Aliases: []string{"m"}},
		&cli.StringFlag{Name: "run"},
		&cli.StringSliceFlag{Name: "artifact"},
		&cli.BoolFlag{Name: "patch", Aliases: []string{"p"}},
		&cli.BoolFlag{Name: "all", Aliases: []string{"a"}},
	}}
}

func TestArrange(t *testing.T) {
	two := []string{"[A]", "[B]"}
	for _, c := range []struct {
		name  string
		argv  []string
		paths bool
		want  arguments
	}{
		{"nothing", nil, false, arguments{}},
		{"flags after arguments", []string{"x", "--run", "r", "y", "-p"}, false,
			arguments{flags: []string{"--run=r", "--patch"}, args: []string{"x", "y"}}},
		{"value with an equals sign", []string{"--run=a=b"}, false, arguments{flags: []string{"--run=a=b"}}},
		{"short with value apart", []string{"-m", "hello"}, false, arguments{flags: []string{"--message=hello"}}},
		{"short with value attached", []string{"-mhello"}, false, arguments{flags: []string{"--message=hello"}}},
		{"several short ones", []string{"-pam", "x"}, false, arguments{flags: []string{"--patch", "--all", "--message=x"}}},
		{"a value that looks like a flag", []string{"-m", "--json"}, false, arguments{flags: []string{"--message=--json"}}},
		{"a value that is two dashes", []string{"-m", "--", "x"}, false, arguments{flags: []string{"--message=--"}, args: []string{"x"}}},
		{"an empty message", []string{"-m", ""}, false, arguments{flags: []string{"--message="}}},
		{"repeated", []string{"--artifact", "a=1", "x", "--artifact=b=2,3"}, false,
			arguments{flags: []string{"--artifact=a=1", "--artifact=b=2,3"}, args: []string{"x"}}},
		{"dashes end flags", []string{"-p", "--", "-m", "--run"}, false,
			arguments{flags: []string{"--patch"}, args: []string{"-m", "--run"}}},
		{"paths after dashes", []string{"x", "--", "-m", "--", "y"}, true,
			arguments{args: []string{"x"}, paths: []string{"-m", "--", "y"}}},
		{"no path after dashes", []string{"x", "--"}, true, arguments{args: []string{"x"}, paths: []string{}}},
		{"no dashes", []string{"x"}, true, arguments{args: []string{"x"}}},
		{"a lone dash", []string{"-"}, false, arguments{args: []string{"-"}}},
		{"json", []string{"x", "--json"}, false, arguments{flags: []string{"--json"}, args: []string{"x"}, json: true}},
		{"help", []string{"-ph"}, false, arguments{flags: []string{"--patch"}, help: true}},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := arrange(testCommand(two, c.paths), c.argv)
			if err != nil {
				t.Fatal(err)
			}
			if !reflect.DeepEqual(*got, c.want) {
				t.Errorf("arrange(%q)\n got %#v\nwant %#v", c.argv, *got, c.want)
			}
		})
	}
}

func TestArrangeRefuses(t *testing.T) {
	for _, c := range []struct {
		argv       []string
		args       []string
		paths      bool
		code, text string
		hint       string
	}{
		{[]string{"--jsn"}, nil, false, "unknown-flag", "git checkpoint try has no flag '--jsn'", "did you mean '--json'?"},
		{[]string{"--jsn=1"}, nil, false, "unknown-flag", "git checkpoint try has no flag '--jsn'", "did you mean '--json'?"},
		{[]string{"-json"}, nil, false, "unknown-flag", "git checkpoint try has no flag '-json'", "did you mean '--json'?"},
		{[]string{"-pz"}, nil, false, "unknown-flag", "git checkpoint try has no flag '-z'", "git checkpoint try -h tells what it takes"},
		{[]string{"--m", "x"}, []string{"[A]"}, false, "unknown-flag", "git checkpoint try has no flag '--m'", "git checkpoint try -h tells what it takes"},
		{[]string{"-\xff"}, nil, false, "unknown-flag", `git checkpoint try has no flag "-\377"`, "git checkpoint try -h tells what it takes"},
		{[]string{"--run"}, nil, false, "missing-value", "flag '--run' needs a value", "git checkpoint try -h tells what it takes"},
		{[]string{"-m"}, nil, false, "missing-value", "flag '-m' needs a value", "git checkpoint try -h tells what it takes"},
		{[]string{"--run="}, nil, false, "empty-value", "the value of '--run' is empty", "git checkpoint try -h tells what it takes"},
		{[]string{"--run", ""}, nil, false, "empty-value", "the value of '--run' is empty", "git checkpoint try -h tells what it takes"},
		{[]string{"--patch=yes"}, nil, false, "excess-value", "flag '--patch' takes no value", "git checkpoint try -h tells what it takes"},
		{nil, []string{"RUN"}, false, "missing-argument", "git checkpoint try needs a run", "git checkpoint try -h tells what it takes"},
		{[]string{""}, []string{"[RUN]"}, false, "empty-argument", "an argument of git checkpoint try is empty", "git checkpoint try -h tells what it takes"},
		{[]string{"--", ""}, nil, true, "empty-argument", "an argument of git checkpoint try is empty", "git checkpoint try -h tells what it takes"},
		{[]string{"a", "b"}, []string{"[RUN]"}, false, "excess-argument", "git checkpoint try does not take the argument 'b'", "git checkpoint try -h tells what it takes"},
		{[]string{"a", "b"}, []string{"[RUN]"}, true, "excess-argument", "git checkpoint try does not take the argument 'b'", "paths come after '--'"},
		{[]string{"--", "x"}, nil, false, "excess-argument", "git checkpoint try does not take the argument 'x'", "git checkpoint try -h tells what it takes"},
		{[]string{"--bogus", "--run"}, nil, false, "unknown-flag", "git checkpoint try has no flag '--bogus'", "git checkpoint try -h tells what it takes"},
	} {
		_, err := arrange(testCommand(c.args, c.paths), c.argv)
		var f *fault.Error
		if !errors.As(err, &f) {
			t.Errorf("arrange(%q): %v", c.argv, err)
			continue
		}
		if f.Code != c.code || f.Message != c.text || f.Hint != c.hint || exitCode(err) != 129 {
			t.Errorf("arrange(%q)\n got %s: %s (%s)\nwant %s: %s (%s)", c.argv, f.Code, f.Message, f.Hint, c.code, c.text, c.hint)
		}
	}
}

func TestArrangeReadsOnAfterAFault(t *testing.T) {
	in, err := arrange(testCommand(nil, false), []string{"--bogus", "--json", "-h"})
	if err == nil || !in.json || !in.help {
		t.Errorf("json %v, help %v, error %v", in.json, in.help, err)
	}
}
