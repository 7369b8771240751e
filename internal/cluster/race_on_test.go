//go:build race

package cluster

// raceEnabled is true under the race detector, where sync.Pool drops entries at random.
const raceEnabled = true
