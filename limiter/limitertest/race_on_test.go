//go:build race

package limitertest

const raceEnabled = true
