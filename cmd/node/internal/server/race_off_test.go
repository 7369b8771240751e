//go:build !race

package server

// raceEnabled: the race detector makes members take ten times more processor time.
const raceEnabled = false
