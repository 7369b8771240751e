//go:build !race

package resp

// raceEnabled reports whether the race detector is on.
const raceEnabled = false
