//go:build !unix

package procstat

import "time"

// Self returns what this process has used of the processors so far; false where
// the system does not tell.
func Self() (time.Duration, bool) { return 0, false }
