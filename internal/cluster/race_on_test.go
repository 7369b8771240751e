//go:build race

package cluster

// raceEnabled: sync.Pool drops entries at random under the race detector.
const raceEnabled = true
