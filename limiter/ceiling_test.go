package limiter

import (
	"errors"
	"testing"
	"time"
)

// A ceiling is a part of the limit, or of the burst, rounded down and at least 1. Nothing else differs, so states, what
// a charge is worth later, and windows are the same.
func TestUpTo(t *testing.T) {
	for _, c := range []struct {
		spec    Spec
		percent uint8
		want    uint64
	}{
		{Spec{Limit: 100, Window: time.Minute}, 80, 80},
		{Spec{Limit: 10, Window: time.Minute}, 75, 7},
		{Spec{Limit: 1, Window: time.Minute}, 99, 1},
		{Spec{Limit: MaxUnits, Window: time.Minute}, 99, MaxUnits/100*99 + MaxUnits%100*99/100},
		{Spec{Limit: 100, Window: time.Minute, Algorithm: TokenBucket, Burst: 20}, 50, 10},
		{Spec{Limit: 100, Window: time.Hour, Algorithm: SlidingLog}, 50, 50},
	} {
		l, err := NewLimit(c.spec)
		if err != nil {
			t.Fatal(err)
		}
		r := &Rule{Name: "r", Limits: []*Limit{l}, Leases: true}
		part := r.UpTo(c.percent)
		got := part.Limits[0]
		if got.Capacity() != c.want || got.Limit() != l.Limit() || part.Ceiling() != c.percent || part.Leases {
			t.Errorf("%v up to %d%%: %d of %d, leases %v, want %d", l, c.percent, got.Capacity(), got.Limit(), part.Leases,
				c.want)
		}
		if got.C.CountsID() != l.C.CountsID() || got.C.Most != l.C.Most || got.C.Grain != l.C.Grain ||
			part.ID() == r.ID() || got.Equal(l) {
			t.Errorf("%v up to %d%% counts otherwise, or is not another", l, c.percent)
		}
		again, err := NewLimit(got.Spec())
		if err != nil || !again.Equal(got) || again.C.ID != got.C.ID {
			t.Errorf("%v up to %d%%: its spec makes %v: %v", l, c.percent, again, err)
		}
		if higher := part.UpTo(100); higher.Limits[0].Capacity() != l.Capacity() {
			t.Errorf("of a part, percent are of all: %d", higher.Limits[0].Capacity())
		}
	}
}

// What could make a denial by a ceiling concern others is no limit.
func TestCeilingsThatNoLimitHas(t *testing.T) {
	for name, s := range map[string]Spec{
		"above":       {Limit: 5, Window: time.Minute, Ceiling: 6},
		"above burst": {Limit: 9, Burst: 5, Window: time.Minute, Algorithm: GCRA, Ceiling: 6},
		"negative":    {Limit: 5, Window: time.Minute, Ceiling: -1},
		"block":       {Limit: 5, Window: time.Minute, Ceiling: 4, Block: time.Minute},
		"rejected":    {Limit: 5, Window: time.Minute, Ceiling: 4, CountRejected: CountRoom},
		"concurrency": {Limit: 5, Algorithm: Concurrency, Ceiling: 4},
	} {
		if _, err := NewLimit(s); !errors.Is(err, ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
