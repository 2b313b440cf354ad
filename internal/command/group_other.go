//go:build !unix

package command

import (
	"os"
	"os/exec"
)

func ownGroup(*exec.Cmd) {}

func endGroup(pid int) { killGroup(pid) }

// killGroup ends the one process: there are no process groups here.
func killGroup(pid int) {
	if p, err := os.FindProcess(pid); err == nil {
		p.Kill()
	}
}

// KillGroup ends a process that an earlier process of ours left.
func KillGroup(pid int) { killGroup(pid) }
