package arith

import (
	"testing"
	"time"

	"github.com/weirlimit/weir/limiter"
)

// Nothing is given back from a count that is full beyond its limit: more was charged than it says. A full count
// of the largest limit is exact, and so is one of the largest that 32 bits hold.
func TestNothingComesBackFromAFullCount(t *testing.T) {
	for _, a := range []limiter.Algorithm{limiter.FixedWindow, limiter.SlidingCounter, limiter.SlidingWindow} {
		for _, row := range []struct {
			limit            int64
			held, over, left uint64
		}{
			{4_000_000_000, 3_900_000_000, 3_900_000_000, 0},
			{1 << 53 * 9 / 10, 1 << 53 * 8 / 10, 1 << 53 * 8 / 10, 0},
			{limiter.NarrowUnits, 4_000_000_000, 9_000_000_000, 0},
			{limiter.NarrowUnits, limiter.NarrowUnits, 0, limiter.NarrowUnits},
			{limiter.NarrowUnits - 1, limiter.NarrowUnits - 1, 0, limiter.NarrowUnits - 1},
			{limiter.MaxUnits, limiter.MaxUnits, 0, limiter.MaxUnits},
			{4_000_000_000, 3_900_000_000, 200_000_000, 3_800_000_000},
		} {
			l, err := limiter.NewLimit(limiter.Spec{Algorithm: a, Limit: row.limit, Window: time.Hour})
			if err != nil {
				t.Fatal(err)
			}
			now, st := limiter.Tick(1767614400e6), State{}
			st.Roll(l, nil, now)
			words := make([]uint64, st.Words(l, now, row.held)+8)
			st.Charge(l, words, now, row.held)
			if row.over > 0 {
				st.Overdraw(l, words, now, row.over)
			}
			st.Reduce(l, words, now, now, now, row.held, row.over)
			all, more := limiter.LimitDecision{Cost: row.left}, limiter.LimitDecision{Cost: row.left + 1}
			used := st.Probe(l, words, now, &all)
			if st.Probe(l, words, now, &more); all.Allowed != (row.left > 0) || more.Allowed {
				t.Errorf("%s, %d and %d charged, %d back: %d are used", l, row.held, row.over, row.held, used)
			}
		}
	}
}

// A bucket counts what was used beyond its limit, also above 32 bits, and gives exactly the rest back.
func TestABucketCountsBeyond32Bits(t *testing.T) {
	const limit, held, over = 4_000_000_000, 3_900_000_000, 7_900_000_000
	for _, spec := range []limiter.Spec{
		{Algorithm: limiter.TokenBucket}, {Algorithm: limiter.LeakyBucket}, {Algorithm: limiter.GCRA},
		{Algorithm: limiter.LeakyBucket, Drip: limiter.DripInterval}, {Algorithm: limiter.LeakyBucket,
			Drip: limiter.DripInterval, DripUnits: 1000,
			Block: time.Minute},
	} {
		spec.Limit, spec.Window = limit, time.Hour
		l, err := limiter.NewLimit(spec)
		if err != nil {
			t.Fatal(err)
		}
		now, st := limiter.Tick(1767614400e6), State{}
		st.Roll(l, nil, now)
		st.Charge(l, nil, now, held)
		st.Overdraw(l, nil, now, over)
		if spec.Block > 0 {
			c := st.Open(l)
			c.Until = now + limiter.Minute
			st = c.State(l)
		}
		ends, moved := BlockEnd(l, &st), st
		if moved.Export(l, nil, now); moved.CheckExported(l, nil) != nil {
			t.Errorf("%s: %v", l, moved.CheckExported(l, nil))
		}
		moved.Import(l, nil, now)
		for _, s := range []*State{&st, &moved} {
			if used := s.Probe(l, nil, now, &limiter.LimitDecision{Cost: 1}); used != held+over {
				t.Errorf("%s: %d used, want %d", l, used, held+over)
			}
			if s.Reduce(l, nil, now, now, now, held, 0); BlockEnd(l, s) != ends {
				t.Errorf("%s: the block ends at %d", l, BlockEnd(l, s))
			}
			if used := s.Probe(l, nil, now, &limiter.LimitDecision{Cost: 1}); used != over {
				t.Errorf("%s: %d used after the rest came back, want %d", l, used, over)
			}
			later := now + limiter.Hour
			s.Roll(l, nil, later)
			if used := s.Probe(l, nil, later, &limiter.LimitDecision{Cost: 1}); used != over-limit {
				t.Errorf("%s: %d used an hour later, want %d", l, used, over-limit)
			}
		}
	}
}
