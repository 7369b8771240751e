//go:build race

package model

// raceEnabled: the race detector makes an exploration many times longer.
const raceEnabled = true
