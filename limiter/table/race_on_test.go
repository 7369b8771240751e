//go:build race

package table

// raceEnabled: sync.Pool drops entries at random under the race detector.
const raceEnabled = true
