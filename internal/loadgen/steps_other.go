//go:build !linux

package loadgen

import "time"

// openSteps returns a function that waits for the next step.
func openSteps() (next func() error, stop func() error, err error) {
	t := time.NewTicker(step)
	next = func() error {
		<-t.C
		return nil
	}
	return next, func() error { t.Stop(); return nil }, nil
}
