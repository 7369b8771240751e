//go:build !race

package client_test

// raceDetector reports whether the race detector is on.
const raceDetector = false
