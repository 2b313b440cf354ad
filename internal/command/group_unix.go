//go:build unix

package command

import (
	"os"
	"os/exec"
	"syscall"
	"time"
)

// shell makes the call of a command, in a process group of its own. The group
// is written down by the shell itself, so that there is no moment at which the
// command runs and a later process of ours could not find it.
func shell(s Spec) *exec.Cmd {
	cmd := exec.Command("sh", "-c", s.Line)
	if s.Group != "" {
		cmd = exec.Command("sh", "-c", `echo $$ >"$0"; exec sh -c "$1"`, s.Group, s.Line)
	}
	if s.Hold != nil {
		cmd.ExtraFiles = []*os.File{s.Hold}
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	return cmd
}

func endGroup(pid int) { syscall.Kill(-pid, syscall.SIGTERM) }

func killGroup(pid int) { syscall.Kill(-pid, syscall.SIGKILL) }

// KillGroup ends a process group that an earlier process of ours left. The
// caller knows that it is still there, by a lock that it holds.
func KillGroup(pid int) {
	endGroup(pid)
	for range 50 {
		if syscall.Kill(-pid, 0) != nil {
			return
		}
		time.Sleep(Grace / 50)
	}
	killGroup(pid)
}
