//go:build unix

package procstat

import (
	"syscall"
	"time"
)

// Self returns the processor time that this process has used so far; false if the
// system does not provide it.
func Self() (time.Duration, bool) {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0, false
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano()), true
}
