package docker

import (
	"os/exec"
	"runtime"
	"syscall"
)

// apart puts a program into a group of its own, which the terminal's ^C does not
// reach.
func apart(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} }

// tied does something with a program, apart, that is killed when this process is. The
// kernel ties it to the thread that starts it, which is kept until it has ended.
func tied(cmd *exec.Cmd, do func() error) error {
	apart(cmd)
	cmd.SysProcAttr.Pdeathsig = syscall.SIGKILL
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	return do()
}
