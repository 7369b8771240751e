//go:build race

package sim

// raceEnabled: the race detector makes a run many times longer.
const raceEnabled = true
