package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"syscall"
	"testing"

	"github.com/urfave/cli/v2"

	"github.com/git-checkpoint/git-checkpoint/internal/fault"
	"github.com/git-checkpoint/git-checkpoint/internal/output"
)

func TestExitCodes(t *testing.T) {
	for _, c := range []struct {
		err  error
		want int
	}{
		{nil, 0},
		{fault.New(fault.Negative, "x", "x"), 1},
		{fault.New(fault.Conflict, "x", "x"), 3},
		{fault.New(fault.Integrity, "x", "x"), 4},
		{fault.New(fault.NotFound, "x", "x"), 5},
		{fault.New(fault.Unfinished, "x", "x"), 75},
		{fault.New(fault.Fatal, "x", "x"), 128},
		{fault.New(fault.Invalid, "x", "x"), 129},
		{errors.New("of no kind"), 128},
		{fault.NotFound, 5},
		{context.Canceled, 128},
		{fmt.Errorf("save: %w", fault.New(fault.Conflict, "x", "x")), 3},
		{fault.New(fault.NotFound, "x", "outer: %w", fault.New(fault.Fatal, "y", "inner")), 5},
		{fault.New(fault.Fatal, "x", "outer: %w", fault.New(fault.Invalid, "y", "inner")), 128},
	} {
		if got := exitCode(c.err); got != c.want {
			t.Errorf("exitCode(%v) = %d, want %d", c.err, got, c.want)
		}
	}
}

func TestNoExitCodeIsTwo(t *testing.T) {
	seen := map[int]bool{2: true}
	for _, e := range exits {
		if seen[e.code] {
			t.Errorf("exit code %d is 2 or stands twice", e.code)
		}
		seen[e.code] = true
	}
}

func TestPanicIsAnErrorWithoutStackTrace(t *testing.T) {
	t.Setenv("GIT_CHECKPOINT_TRACE", "")
	var out, errs bytes.Buffer
	code := finish(output.New(&out, &errs), guarded(func() error { panic("index out of\nrange") }))
	lines := strings.Split(strings.TrimSpace(errs.String()), "\n")
	if code != 128 || len(lines) != 2 || lines[0] != "error: internal error: index out of range" || !strings.HasPrefix(lines[1], "hint: ") {
		t.Errorf("code %d, stderr %q", code, errs.String())
	}
}

// failing is standard output that cannot be written.
type failing struct{ err error }

func (f failing) Write([]byte) (int, error) { return 0, f.err }

func TestOutputThatCannotBeWritten(t *testing.T) {
	for _, c := range []struct {
		err  error
		code int
		says string
	}{
		{syscall.ENOSPC, 128, "error: write the result: "},
		{syscall.EPIPE, 141, ""},
		{io.ErrClosedPipe, 141, ""},
	} {
		var errs bytes.Buffer
		code := run(t.Context(), []string{"version"}, nil, failing{c.err}, &errs)
		if code != c.code || !strings.HasPrefix(errs.String(), c.says) || c.says == "" && errs.Len() > 0 {
			t.Errorf("%v: code %d, stderr %q", c.err, code, errs.String())
		}
	}
}

// What arrange hands over, cli has to read back as it was given.
func TestFlagsReachTheCommandUnchanged(t *testing.T) {
	cmd := testCommand([]string{"[A]"}, true)
	cmd.flags[2].(*cli.StringSliceFlag).KeepSpace = true
	var got string
	cmd.run = func(c *call) error {
		got = fmt.Sprintf("%q %q %q %v %q %q", c.flags.String("message"), c.flags.String("run"), c.flags.StringSlice("artifact"), c.flags.Bool("patch"), c.args, c.paths)
		return nil
	}
	argv := []string{"patch", "-m", "--run=x\n", "--artifact", " a=1,2 ", "--run", "first", "--run", "last", "-p", "--artifact=b=", "--", "-m"}
	in, err := arrange(cmd, argv)
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.execute(t.Context(), output.New(io.Discard, io.Discard), in, nil); err != nil {
		t.Fatal(err)
	}
	if want := `"--run=x\n" "last" [" a=1,2 " "b="] true ["patch"] ["-m"]`; got != want {
		t.Errorf(" got %s\nwant %s", got, want)
	}
}

func TestParseArtifacts(t *testing.T) {
	list, err := parseArtifacts([]string{"log=out/a.log", "site=https://example.org/?a=b", "win=C:/x", "odd=1://x y"})
	if err != nil {
		t.Fatal(err)
	}
	if list[0].Path != "out/a.log" || list[1].URI != "https://example.org/?a=b" || list[2].Path != "C:/x" {
		t.Errorf("%+v", list)
	}
	for _, bad := range []string{"name", "=path", "name="} {
		if _, err := parseArtifacts([]string{bad}); exitCode(err) != 129 {
			t.Errorf("%q: %v", bad, err)
		}
	}
}
