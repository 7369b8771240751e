package history

import (
	"strings"
	"testing"
	"time"
)

// TestNothingChangesHands: where nobody was out of reach of all others, and nothing stood
// still, nobody takes anything over.
func TestNothingChangesHands(t *testing.T) {
	kept := once()
	kept.NoTakeover = true
	for _, row := range []struct {
		name string
		h    *plant
		want int
	}{
		{"one owner", broken(kept).allowed(10, "window", "a"), 0},
		{"taken, and given back", broken(kept).allowed(5, "window", "a").allowed(3, "window", "b").allowed(5, "window", "a"),
			1},
		{"given back, as it had been taken before", broken(kept).allowed(3, "window", "b").allowed(5, "window", "a"), 0},
		{"one that nobody can be said to own", broken(kept).allowed(2, "window", "a").allowed(5, "window", "b").allowed(1,
			"window", "a"), 0},
		{"taken, where it may be", broken(once()).allowed(5, "window", "a").allowed(3, "window", "b").allowed(5, "window",
			"a"), 0},
	} {
		if got := row.h.judges().NeedlessTakeovers(); len(got) != row.want {
			t.Errorf("%s: found %v, want %d", row.name, got, row.want)
		}
	}
	p := broken(kept).allowed(5, "window", "a").allowed(3, "window", "b").allowed(5, "window", "a")
	if got := judge(&p.History, time.Second).Violations; !strings.Contains(found(got), "out of reach") {
		t.Errorf("found %v: nobody judges this", got)
	}
	p.Stalls = []Span{{p.now - 90*ms, p.now}}
	if got := p.judges().NeedlessTakeovers(); len(got) > 0 {
		t.Errorf("found %v, but the machine stood still", got)
	}
}
