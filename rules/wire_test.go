package rules_test

import "testing"

// inWire skips a test in which one goroutine does everything where the race detector meets -short.
func inWire(t *testing.T) {
	t.Helper()
	if raceEnabled && testing.Short() {
		t.Skip("one goroutine, many times slower under the race detector; make wire runs it")
	}
}
