//go:build unix

package command_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/git-checkpoint/git-checkpoint/internal/command"
)

func spec(t *testing.T, line string) command.Spec {
	t.Helper()
	return command.Spec{Line: line, Dir: t.TempDir(), Log: filepath.Join(t.TempDir(), "log")}
}

func TestTheExitCodeAndTheOutputAreKept(t *testing.T) {
	s := spec(t, "echo out; echo err >&2; exit 75")
	r, err := command.Run(t.Context(), s)
	if err != nil || r.Exit != 75 || r.Stdout != "out\n" || !strings.Contains(r.Tail, "err\n") {
		t.Errorf("got %+v, %v", r, err)
	}
	log, _ := os.ReadFile(s.Log)
	if !strings.HasPrefix(string(log), "$ echo out;") || !strings.Contains(string(log), "\nout\n") || !strings.Contains(string(log), "err\n") {
		t.Errorf("the log is %q", log)
	}
}

func TestOutputWithoutEndIsCapped(t *testing.T) {
	s := spec(t, "yes | head -c 5000000; echo end")
	r, err := command.Run(t.Context(), s)
	if err != nil || !r.OK() || !strings.HasSuffix(r.Stdout, "y\nend\n") || len(r.Stdout) > command.TailLimit {
		t.Errorf("got exit %d, %d bytes, %v", r.Exit, len(r.Stdout), err)
	}
	log, _ := os.ReadFile(s.Log)
	if len(log) < command.LogLimit || len(log) > command.LogLimit+2*command.TailLimit || !strings.HasSuffix(string(log), "y\nend\n") {
		t.Errorf("the log has %d bytes", len(log))
	}
	if !strings.Contains(string(log), " bytes left out]\n") {
		t.Error("the log does not say what it lacks")
	}
}

// alive says whether the process whose id a file holds is there.
func alive(t *testing.T, file string) bool {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	pid := 0
	for _, c := range strings.TrimSpace(string(data)) {
		pid = pid*10 + int(c-'0')
	}
	for range 100 {
		if syscall.Kill(pid, 0) != nil {
			return false
		}
		time.Sleep(10 * time.Millisecond)
	}
	// A zombie whose parent has not waited for it is dead too.
	stat, err := os.ReadFile(filepath.Join("/proc", strings.TrimSpace(string(data)), "stat"))
	return err == nil && !strings.Contains(string(stat), ") Z ")
}

func TestATimeOutReachesTheWholeGroup(t *testing.T) {
	s := spec(t, "sleep 100 & echo $! > child; wait")
	s.Timeout = 300 * time.Millisecond
	r, err := command.Run(t.Context(), s)
	if err != nil || !r.TimedOut || r.OK() {
		t.Errorf("got %+v, %v", r, err)
	}
	if alive(t, filepath.Join(s.Dir, "child")) {
		t.Error("the child is still there")
	}
}

func TestWhatACommandLeavesRunningIsEnded(t *testing.T) {
	s := spec(t, "sleep 100 & echo $! > child")
	begun := time.Now()
	r, err := command.Run(t.Context(), s)
	if err != nil || !r.OK() {
		t.Errorf("got %+v, %v", r, err)
	}
	if time.Since(begun) > command.Grace {
		t.Errorf("it took %v to see the end", time.Since(begun))
	}
	if alive(t, filepath.Join(s.Dir, "child")) {
		t.Error("the child is still there")
	}
}

func TestAStopIsNotASuccess(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	why := errors.New("enough")
	s := spec(t, "trap 'exit 0' TERM; touch ready; sleep 100 & wait")
	go func() {
		for {
			if _, err := os.Stat(filepath.Join(s.Dir, "ready")); err == nil {
				cancel(why)
				return
			}
			time.Sleep(5 * time.Millisecond)
		}
	}()
	r, err := command.Run(ctx, s)
	if !errors.Is(err, why) || r.OK() {
		t.Errorf("got %+v, %v", r, err)
	}
}

func TestACommandDoesNotInheritARepository(t *testing.T) {
	t.Setenv("GIT_DIR", "/nowhere")
	t.Setenv("GIT_AUTHOR_NAME", "Somebody")
	t.Setenv("CHECKPOINT_TASK", "of an outer run")
	s := spec(t, `echo "[$GIT_DIR$GIT_AUTHOR_NAME$CHECKPOINT_TASK$CHECKPOINT_RUN]"`)
	s.Env = []string{"CHECKPOINT_RUN=r"}
	if r, err := command.Run(t.Context(), s); err != nil || r.Stdout != "[r]\n" {
		t.Errorf("got %+v, %v", r, err)
	}
}

func TestTheGroupIsWrittenDownByTheCommandItself(t *testing.T) {
	s := spec(t, `echo "$$ $0"; cat "$GROUP"`)
	s.Group = filepath.Join(t.TempDir(), "a group")
	s.Env = []string{"GROUP=" + s.Group}
	r, err := command.Run(t.Context(), s)
	own, written, _ := strings.Cut(r.Stdout, "\n")
	if err != nil || own != strings.TrimSpace(written)+" sh" {
		t.Errorf("got %+v, %v", r, err)
	}
}

func TestASystemWithoutAShellIsToldSo(t *testing.T) {
	s := spec(t, "true")
	t.Setenv("PATH", t.TempDir())
	if _, err := command.Run(t.Context(), s); !errors.Is(err, command.ErrNoShell) {
		t.Errorf("got %v", err)
	}
}

// A full disk, or a log that cannot be written, costs the log and nothing else.
func TestAFullDiskLosesTheLogOnly(t *testing.T) {
	if _, err := os.Stat("/dev/full"); err != nil {
		t.Skip("no /dev/full here")
	}
	s := spec(t, "echo out")
	s.Log = "/dev/full"
	if r, err := command.Run(t.Context(), s); err != nil || !r.OK() || r.Stdout != "out\n" {
		t.Errorf("got %+v, %v", r, err)
	}
}
