package tool

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"os/signal"
	"syscall"
	"time"
)

// Context returns one that ends when the program is to end: by a signal, or because
// the `go run` that started it is gone, which passes no signal on but those of the
// terminal.
func Context() (context.Context, context.CancelFunc) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	parent := os.Getppid()
	if !isGo(parent) {
		return ctx, stop
	}
	ctx, cancel := context.WithCancel(ctx)
	go follow(ctx, cancel, func() bool { return os.Getppid() == parent })
	return ctx, func() { cancel(); stop() }
}

// follow calls gone when the parent is no more.
func follow(ctx context.Context, gone func(), there func() bool) {
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for there() {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
	gone()
}

// buildEnds is how long the go command may take to tidy up when it is interrupted.
const buildEnds = 10 * time.Second

// Go is the go command with its temporary files in the directory. When the context
// ends it is interrupted, so that it takes its children along.
func (d *Dir) Go(ctx context.Context, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Env = append(os.Environ(), "GOTMPDIR="+d.Path)
	cmd.Cancel = func() error {
		if err := cmd.Process.Signal(os.Interrupt); err != nil && !errors.Is(err, os.ErrProcessDone) {
			return cmd.Process.Kill() // Windows knows no such signal
		}
		return nil
	}
	cmd.WaitDelay = buildEnds
	return cmd
}
