//go:build unix

package procstat

import (
	"syscall"
	"time"
)

// Self returns what this process has used of the processors so far; false where
// the system does not tell.
func Self() (time.Duration, bool) {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0, false
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano()), true
}
