//go:build !unix

package procstat

import "time"

// Self returns the processor time that this process has used so far; false if the
// system does not provide it.
func Self() (time.Duration, bool) { return 0, false }
