package loadgen

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// openSteps returns a function that waits for the next step. It uses a kernel timer,
// which is as exact on an idle machine as on a busy one; the Go runtime's own may then
// be a millisecond late.
func openSteps() (next func() error, stop func() error, err error) {
	fd, err := unix.TimerfdCreate(unix.CLOCK_MONOTONIC, unix.TFD_NONBLOCK|unix.TFD_CLOEXEC)
	if err != nil {
		return nil, nil, fmt.Errorf("cannot create a timer: %w", err)
	}
	every := unix.NsecToTimespec(step.Nanoseconds())
	if err := unix.TimerfdSettime(fd, 0, &unix.ItimerSpec{Interval: every, Value: every}, nil); err != nil {
		_ = unix.Close(fd)
		return nil, nil, fmt.Errorf("the timer cannot be set: %w", err)
	}
	f := os.NewFile(uintptr(fd), "timer")
	next = func() error {
		var expired [8]byte
		_, err := f.Read(expired[:])
		return err
	}
	return next, f.Close, nil
}
