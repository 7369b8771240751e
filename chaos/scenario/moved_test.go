//go:build linux

package scenario

import (
	"testing"
	"time"
)

// TestMovedKeysAreJudged: one admission too many within a window is found, also if it is
// not the first window; what may have been decided outside of it does not count.
func TestMovedKeysAreJudged(t *testing.T) {
	at := func(ms ...int) (all []span) {
		for _, x := range ms {
			all = append(all, span{time.Duration(x) * time.Millisecond, time.Duration(x+5) * time.Millisecond})
		}
		return all
	}
	window, gcra := moved{"w", "sliding_window", 3, time.Second}, moved{"g", "gcra", 3, 3 * time.Second}
	for name, one := range map[string]struct {
		k    movedKey
		good bool
	}{
		"a limit in each window": {movedKey{rule: window, given: at(0, 10, 20, 1006, 1016, 1026)}, true},
		"one more in the first":  {movedKey{rule: window, given: at(0, 10, 20, 900)}, false},
		"one more in the last":   {movedKey{rule: window, given: at(0, 1500, 1510, 1520, 2400)}, false},
		"one that took as long as a window": {movedKey{rule: window,
			given: append(at(0, 10, 20), span{900 * time.Millisecond, 1100 * time.Millisecond})}, true},
		"a burst, and what is free again": {movedKey{rule: gcra, given: at(0, 10, 20, 1000, 2000)}, true},
		"a burst, and two at once":        {movedKey{rule: gcra, given: at(0, 10, 20, 400, 410)}, false},
	} {
		if err := one.k.judge(); (err == nil) != one.good {
			t.Errorf("%s: %v", name, err)
		}
	}
}
