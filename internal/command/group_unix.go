//go:build unix

package command

import (
	"os/exec"
	"syscall"
	"time"
)

func ownGroup(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} }

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
