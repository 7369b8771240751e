//go:build race

package transport_test

// raceDetector tells that the tests run under the race detector, in which
// everything takes some ten times as long.
const raceDetector = true
