//go:build linux

package fleet

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"github.com/weirlimit/weir/chaos/netlab"
)

// process is a program that runs, or has ended.
type process struct {
	cmd  *exec.Cmd
	log  string // the path of its output
	done chan struct{}
}

// start starts a program, whose output goes to a file.
func start(k *netlab.Keeper, in *netlab.Namespace, log, name string, args ...string) (*process, error) {
	out, err := os.Create(log)
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(context.Background(), name, args...) // it is ended by kill, in any case
	cmd.Stdout, cmd.Stderr = out, out
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "GOMAXPROCS=2"}
	if err := k.Start(in, cmd); err != nil {
		return nil, errors.Join(fmt.Errorf("%s cannot be started: %w", name, err), out.Close())
	}
	p := &process{cmd: cmd, log: log, done: make(chan struct{})}
	go func() {
		_ = cmd.Wait() // how it ended is in its log
		_ = out.Close()
		close(p.done)
	}()
	return p, nil
}

func (p *process) ended() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

// kill ends the process, paused or not, and returns when it is gone.
func (p *process) kill() error {
	if err := p.cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	<-p.done
	return nil
}

// stopWithin bounds how long the threads of a process may take to stop.
const stopWithin = time.Second

// stop pauses the process, and returns when all its threads stand still: where they wait for
// a processor, that is when the first of them has had one.
func (p *process) stop() error {
	if err := p.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		return err
	}
	for began := time.Now(); time.Since(began) < stopWithin; time.Sleep(time.Millisecond) {
		if p.ended() || stands(p.cmd.Process.Pid) {
			return nil
		}
	}
	return fmt.Errorf("process %d was told to stop and goes on after %v", p.cmd.Process.Pid, stopWithin)
}

// stands tells that all threads of a process are stopped.
func stands(pid int) bool {
	tasks, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", pid)) // the pattern is right
	for _, t := range tasks {
		text, err := os.ReadFile(t)
		if err != nil {
			continue // a thread that has ended
		}
		// The state comes after the name, which is in parentheses.
		if i := bytes.LastIndexByte(text, ')'); i >= 0 && !bytes.HasPrefix(text[i:], []byte(") T")) {
			return false
		}
	}
	return len(tasks) > 0
}

// cpuTime is how long the threads of a process have had a processor, 0 where the
// kernel does not say.
func cpuTime(pid int) (sum time.Duration) {
	tasks, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", pid)) // the pattern is right
	for _, t := range tasks {
		text, err := os.ReadFile(t)
		if err != nil {
			continue // a thread that has ended
		}
		var ns int64
		if _, err := fmt.Sscan(string(text), &ns); err == nil {
			sum += time.Duration(ns)
		}
	}
	return sum
}
