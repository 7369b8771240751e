package netlab

import (
	"errors"
	"os/exec"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"
)

// eager is the niceness of programs in namespaces.
const eager = -10

// Keeper starts programs that are killed when this process ends, however it
// ends. The kernel ties them to the thread that starts them, so the keeper has
// one for as long as it is open.
type Keeper struct {
	jobs chan func()
}

// NewKeeper starts a keeper.
func NewKeeper() *Keeper {
	k := &Keeper{jobs: make(chan func())}
	go func() {
		runtime.LockOSThread() // and never unlocked: the thread ends with the keeper
		for job := range k.jobs {
			job()
		}
	}()
	return k
}

// Start starts a program, in a namespace unless that is nil. It must not be
// called after Close.
func (k *Keeper) Start(n *Namespace, cmd *exec.Cmd) error {
	done := make(chan error, 1)
	k.jobs <- func() { done <- k.start(n, cmd) }
	return <-done
}

func (k *Keeper) start(n *Namespace, cmd *exec.Cmd) error {
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = new(syscall.SysProcAttr)
	}
	cmd.SysProcAttr.Pdeathsig = unix.SIGKILL
	if n == nil {
		return cmd.Start()
	}
	// Ahead of whatever else the machine does, which is not to be taken for a
	// fault of the nodes. Children inherit it; who may not has it as it was.
	_ = unix.Setpriority(unix.PRIO_PROCESS, 0, eager)
	if err := unix.Setns(int(n.file.Fd()), unix.CLONE_NEWNET); err != nil {
		return errors.Join(errors.New("the namespace cannot be entered"), err)
	}
	return cmd.Start()
}

// Close ends the keeper, and what it started and still runs.
func (k *Keeper) Close() { close(k.jobs) }
