//go:build race

package transport_test

// raceDetector reports whether the tests run under the race detector, which makes
// everything about ten times slower.
const raceDetector = true
