package docker

import (
	"os/exec"
	"syscall"
)

// apart puts a program into a group of its own, which the terminal's ^C does not
// reach.
func apart(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} }
