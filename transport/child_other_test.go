//go:build !unix

package transport_test

import "time"

// cpuTime is not known here.
func cpuTime() time.Duration { return 0 }

// filesMax is not known here.
func filesMax() int { return 2000 }
