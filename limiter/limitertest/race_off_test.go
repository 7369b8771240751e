//go:build !race

package limitertest

const raceEnabled = false
