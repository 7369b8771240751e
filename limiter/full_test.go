package limiter

import (
	"testing"
	"time"
)

// Nothing is given back from a count that is full beyond its limit: more was charged than it says. A full count
// of the largest limit is exact.
func TestNothingComesBackFromAFullCount(t *testing.T) {
	for _, a := range []Algorithm{FixedWindow, SlidingCounter, SlidingWindow} {
		for _, row := range []struct {
			limit            int64
			held, over, left uint64
		}{
			{4_000_000_000, 3_900_000_000, 3_900_000_000, 0},
			{1 << 53 * 9 / 10, 1 << 53 * 8 / 10, 1 << 53 * 8 / 10, 0},
			{NarrowUnits, NarrowUnits, 0, NarrowUnits},
			{MaxUnits, MaxUnits, 0, MaxUnits},
			{4_000_000_000, 3_900_000_000, 200_000_000, 3_800_000_000},
		} {
			l, err := NewLimit(Spec{Algorithm: a, Limit: row.limit, Window: time.Hour})
			if err != nil {
				t.Fatal(err)
			}
			now, st := Tick(1767614400e6), State{}
			st.Roll(l, nil, now)
			words := make([]uint64, st.OverdrawWords(l, now, row.held)+8)
			st.Charge(l, words, now, row.held)
			if row.over > 0 {
				st.Overdraw(l, words, now, row.over)
			}
			st.Reduce(l, words, now, now, now, row.held, row.over)
			all, more := LimitDecision{Cost: row.left}, LimitDecision{Cost: row.left + 1}
			used := st.Probe(l, words, now, &all)
			if st.Probe(l, words, now, &more); all.Allowed != (row.left > 0) || more.Allowed {
				t.Errorf("%s, %d and %d charged, %d back: %d are used", l, row.held, row.over, row.held, used)
			}
		}
	}
}
