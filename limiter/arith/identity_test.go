package arith_test

import (
	"strings"
	"testing"
	"time"

	. "github.com/weirlimit/weir/limiter"
	. "github.com/weirlimit/weir/limiter/arith"
)

// different is limits that differ from the first in one thing each.
func different(t *testing.T) []*Limit {
	weight := 999
	var out []*Limit
	for _, s := range []Spec{
		{}, {Name: "x"}, {Limit: 11}, {Window: time.Hour, Name: "minute"}, {Algorithm: FixedWindow},
		{Algorithm: FixedWindow, Align: AlignFirstHit}, {Algorithm: SlidingLog}, {Algorithm: SlidingWindow},
		{Algorithm: SlidingWindow, SubWindows: 5}, {Algorithm: SlidingWindow, Coverage: CoverageLenient},
		{Weight: &weight}, {Rounding: RoundFloor}, {Rounding: RoundCeil}, {Algorithm: TokenBucket},
		{Algorithm: TokenBucket, Burst: 11}, {Algorithm: GCRA}, {Algorithm: LeakyBucket},
		{Algorithm: LeakyBucket, Drip: DripInterval}, {Algorithm: LeakyBucket, Drip: DripInterval, DripUnits: 2},
		{CountRejected: CountRoom}, {CountRejected: CountAll},
		{Block: time.Second}, {Block: 2 * time.Second},
		{Name: strings.Repeat("a", 7)}, {Name: strings.Repeat("a", 8)}, {Name: strings.Repeat("a", 9)},
		{Name: "abcdefgh1"}, {Name: "abcdefgh2"}, {Name: "1bcdefgh1"}, {Name: "\x00"}, {Name: "\x00\x00"},
	} {
		if s.Limit == 0 {
			s.Limit = 10
		}
		if s.Window == 0 {
			s.Window = time.Minute
		}
		out = append(out, mustLimit(t, s))
	}
	return out
}

// Limits that differ have different hashes, and the spec of each makes the limit
// again.
func TestParamsID(t *testing.T) {
	ids := make(map[uint64]*Limit)
	for _, l := range different(t) {
		if other := ids[ParamsID(l)]; other != nil {
			t.Errorf("%v %q and %v %q have one hash", l, l.Name(), other, other.Name())
		}
		ids[ParamsID(l)] = l
		again := mustLimit(t, l.Spec())
		if !again.Equal(l) || ParamsID(again) != ParamsID(l) {
			t.Errorf("%v is %v when it is made of its spec", l, again)
		}
	}
}

// An option of another algorithm makes no difference.
func TestOptionsOfOthers(t *testing.T) {
	plain := mustLimit(t, Spec{Algorithm: TokenBucket, Limit: 10, Window: time.Minute})
	odd := mustLimit(t, Spec{Algorithm: TokenBucket, Limit: 10, Window: time.Minute, Drip: DripInterval, SubWindows: 3,
		Align: AlignFirstHit})
	if !plain.Equal(odd) || ParamsID(plain) != ParamsID(odd) {
		t.Errorf("%v is not %v", odd, plain)
	}
}

// The hashes are the same in every process, on every platform and in every
// version: nodes of two versions run side by side. They may never change.
func TestHashesStay(t *testing.T) {
	l := mustLimit(t, Spec{Name: "hourly", Limit: 1000, Window: time.Hour})
	r := Rule{Name: "towns and villages", Limits: []*Limit{l}, Shadow: true, OnUnreachable: UnreachableOpen,
		Replication: ReplicationStrict}
	if ParamsID(l) != wantParamsID || r.ID() != wantRuleID {
		t.Errorf("the hashes are %#x and %#x", ParamsID(l), r.ID())
	}
}

const (
	wantParamsID = 0xc52af7c2fed96fe6
	wantRuleID   = 0x88eac564d8172265
)

func TestRuleID(t *testing.T) {
	limits := different(t)
	ids := make(map[uint64]int)
	for i, r := range []Rule{
		{}, {Name: "a"}, {Name: "b"}, {Name: "a", Shadow: true},
		{Name: "a", OnUnreachable: UnreachableOpen}, {Name: "a", OnUnreachable: UnreachableClosed},
		{Name: "a", Replication: ReplicationStrict}, {Name: "a", Replication: ReplicationOff},
		{Name: "a", Limits: limits[:1]}, {Name: "a", Limits: limits[1:2]}, {Name: "a", Limits: limits[:2]},
		{Name: "a", Limits: []*Limit{limits[1], limits[0]}}, {Name: "a", Limits: []*Limit{limits[0], limits[0]}},
	} {
		id := r.ID()
		if j, ok := ids[id]; ok {
			t.Errorf("rules %d and %d have one hash", i, j)
		}
		ids[id] = i
		c := r
		c.Limits = nil
		for _, l := range r.Limits {
			c.Limits = append(c.Limits, mustLimit(t, l.Spec()))
		}
		if c.ID() != id {
			t.Errorf("rule %d has another hash when it is made again", i)
		}
	}
}

func TestScaled(t *testing.T) {
	for _, c := range []struct {
		spec         Spec
		num, den     uint64
		limit, burst int64
	}{
		{Spec{Limit: 10, Window: time.Minute}, 1, 3, 3, 0},
		{Spec{Limit: 10, Window: time.Minute}, 2, 3, 6, 0},
		{Spec{Limit: 2, Window: time.Minute}, 1, 3, 1, 0},
		{Spec{Limit: 10, Window: time.Minute}, 0, 3, 1, 0},
		{Spec{Limit: 10, Window: time.Minute}, 1, 0, 10, 0},
		{Spec{Limit: MaxUnits, Window: time.Minute}, 2, 1, MaxUnits, 0},
		{Spec{Limit: MaxUnits, Window: time.Minute}, 1 << 63, 1, MaxUnits, 0},
		{Spec{Limit: MaxUnits, Window: time.Minute}, 1 << 63, 1 << 62, MaxUnits, 0},
		{Spec{Limit: MaxLogLimit, Window: time.Minute, Algorithm: SlidingLog}, 3, 2, MaxLogLimit, 0},
		{Spec{Limit: 10, Burst: 7, Window: time.Minute, Algorithm: TokenBucket}, 1, 2, 5, 3},
		{Spec{Limit: 10, Burst: 1, Window: time.Minute, Algorithm: GCRA}, 1, 2, 5, 1},
		// Half of 3 a day is 1, so that the burst takes longer to recover.
		{Spec{Limit: 3, Burst: 3 * 36500, Window: 24 * time.Hour, Algorithm: LeakyBucket}, 1, 2, 1, 36500},
	} {
		l := mustLimit(t, c.spec)
		got := Scaled(l, c.num, c.den)
		s := got.Spec()
		if s.Limit != c.limit || s.Burst != c.burst || got.Name() != l.Name() || got.Window() != l.Window() {
			t.Errorf("%v times %d/%d is %v", l, c.num, c.den, got)
		}
		if again, err := NewLimit(s); err != nil || !again.Equal(got) {
			t.Errorf("%v is no limit: %v", got, err)
		}
		if Scaled(l, 5, 5) != l {
			t.Errorf("the whole of %v is another limit", l)
		}
	}
}

// A limit that becomes its share and the whole again, time after time, admits
// no more at one instant than the whole, and no less if denials cost nothing.
func TestSharesComeAndGo(t *testing.T) {
	for _, spec := range movable() {
		spec.Limit, spec.Window, spec.Burst = 12, 3*time.Second, 0
		whole := mustLimit(t, spec)
		share := Scaled(whole, 1, 3)
		c := NewCounter(whole)
		var d Decision
		now, admitted := noonTicks, 0
		for range 60 {
			for _, l := range []*Limit{share, whole} {
				c.SetLimits(l)
				for range 3 {
					if c.Check(now, 1, &d); d.Allowed {
						admitted++
					}
				}
				now++
			}
		}
		if admitted > 12 || admitted < 12 && spec.CountRejected == CountNone {
			t.Errorf("%v: %d admitted, want 12", whole, admitted)
		}
	}
}

func BenchmarkRuleID(b *testing.B) {
	l, err := NewLimit(Spec{Limit: 10, Window: time.Minute})
	if err != nil {
		b.Fatal(err)
	}
	r := &Rule{Name: "towns", Limits: []*Limit{l, l, l}}
	for b.Loop() {
		r.ID()
	}
}
