//go:build !unix

package listen

import "math"

// openFiles returns how many files, connections included, the process may open.
func openFiles() int { return math.MaxInt32 }
