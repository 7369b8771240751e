//go:build race

package cluster_test

// raceDetector: three nodes in one process settle many times slower under the race
// detector, and not at all beside other tests on few cores.
const raceDetector = true
