//go:build race

package cluster_test

// raceDetector reports whether the tests run under the race detector. Three nodes in one
// process settle many times more slowly then, and not at all beside other tests on few
// cores.
const raceDetector = true
