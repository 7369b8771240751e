//go:build race

package rules_test

// raceEnabled: sync.Pool, which regexp uses, drops entries at random under the
// race detector.
const raceEnabled = true
