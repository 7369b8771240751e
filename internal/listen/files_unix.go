//go:build unix

package listen

import (
	"math"
	"syscall"
)

// openFiles returns how many files, connections included, the process may open.
func openFiles() int {
	var l syscall.Rlimit
	if syscall.Getrlimit(syscall.RLIMIT_NOFILE, &l) != nil ||
		uint64(l.Cur) > math.MaxInt32 { //nolint:unconvert // on some systems it is signed
		return math.MaxInt32
	}
	return int(l.Cur)
}
