//go:build race

package client_test

// raceDetector tells whether the race detector is on.
const raceDetector = true
