//go:build !unix

package command

import (
	"os"
	"os/exec"
)

// shell makes the call of a command. There are no process groups here, and
// files cannot be handed on.
func shell(s Spec) *exec.Cmd { return exec.Command("sh", "-c", s.Line) }

func endGroup(pid int) { killGroup(pid) }

// killGroup ends the one process: there are no process groups here.
func killGroup(pid int) {
	if p, err := os.FindProcess(pid); err == nil {
		p.Kill()
	}
}

// KillGroup ends a process that an earlier process of ours left.
func KillGroup(pid int) { killGroup(pid) }
