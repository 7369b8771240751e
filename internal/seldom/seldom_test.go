package seldom

import (
	"strconv"
	"testing"
	"time"
)

// A kind of line is due once a minute, whatever the others do, and those that were not are counted.
func TestOnceAMinute(t *testing.T) {
	var l Lines
	begin := time.Unix(1_700_000_000, 0)
	for _, c := range []struct {
		kind  string
		after time.Duration
		more  int
		due   bool
	}{
		{"a", 0, 0, true},
		{"a", 0, 0, false},
		{"b", time.Second, 0, true},
		{"a", Every - 1, 0, false},
		{"a", Every, 2, true},
		{"b", Every, 0, false},
		{"a", 2*Every - 1, 0, false},
		{"a", 9 * Every, 1, true},
	} {
		if more, due := l.Due(c.kind, begin.Add(c.after)); more != c.more || due != c.due {
			t.Errorf("%s after %v: %d more, due %v, want %d, %v", c.kind, c.after, more, due, c.more, c.due)
		}
	}
}

// Strangers that make up kinds fill neither the memory nor the log, and a minute later there is room.
func TestKindsAreBounded(t *testing.T) {
	var l Lines
	now, lines := time.Unix(1_700_000_000, 0), 0
	for i := range 10 * maxKinds {
		if _, due := l.Due(strconv.Itoa(i), now); due {
			lines++
		}
	}
	if lines != maxKinds+1 || len(l.kinds) != maxKinds+1 {
		t.Errorf("%d lines of %d kinds, want %d", lines, len(l.kinds), maxKinds+1)
	}
	if _, due := l.Due("later", now.Add(Every)); !due || len(l.kinds) != 1 {
		t.Errorf("a minute later %d kinds, due %v, want 1, true", len(l.kinds), due)
	}
}
