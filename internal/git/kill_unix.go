//go:build unix

package git

import (
	"os"
	"os/exec"
	"syscall"
)

func kill() {
	syscall.Kill(os.Getpid(), syscall.SIGKILL)
	select {}
}

// group makes what the command starts, such as ssh, end with it.
func group(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
}
