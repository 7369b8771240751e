package redisstore

import (
	"testing"
	"time"

	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/limiter/arith"
	"github.com/weirlimit/weir/limiter/limitertest"
	"github.com/weirlimit/weir/limiter/table"
)

func mustLimit(t *testing.T, s limiter.Spec) *limiter.Limit {
	t.Helper()
	l := limitertest.Limit(t, s)
	return l
}

// A node's share of a limit is its part, rounded down, and one unit at least; its
// burst alike.
func TestShares(t *testing.T) {
	for _, row := range []struct {
		spec         limiter.Spec
		nodes        int
		limit, burst int64
	}{
		{limiter.Spec{Limit: 10}, 3, 3, 0},
		{limiter.Spec{Limit: 2}, 3, 1, 0},
		{limiter.Spec{Limit: 10}, 1, 10, 0},
		{limiter.Spec{Limit: 10, Algorithm: limiter.TokenBucket, Burst: 20}, 4, 2, 5},
		{limiter.Spec{Limit: 10, Algorithm: limiter.GCRA, Burst: 3}, 4, 2, 1},
		{limiter.Spec{Limit: 10, Algorithm: limiter.GCRA}, 4, 2, 2},
		// 199 a year with a burst of 19,900 takes 100 years, 1 a year with 198 more.
		{limiter.Spec{Limit: 199, Algorithm: limiter.GCRA, Burst: 19_900, Window: 365 * 24 * time.Hour}, 100, 1, 1},
	} {
		if row.spec.Window == 0 {
			row.spec.Window = time.Minute
		}
		f := newFallback(&Config{Nodes: row.nodes})
		whole := &limiter.Rule{Name: "r", Limits: []*limiter.Limit{mustLimit(t, row.spec)}}
		for range 2 {
			s := f.share(whole).Limits[0].Spec()
			if s.Limit != row.limit || s.Burst != row.burst || s.Name != whole.Limits[0].Name() {
				t.Errorf("1/%d of %s is %d with burst %d, want %d with %d", row.nodes, whole.Limits[0], s.Limit, s.Burst, row.limit,
					row.burst)
			}
		}
		if open := (&limiter.Rule{Limits: whole.Limits, OnUnreachable: limiter.UnreachableOpen}); f.share(open) != open {
			t.Error("the policy open shares its limits")
		}
	}
}

// Limits that come with requests are many; what is remembered of them is not.
func TestRememberedLimitsAreBounded(t *testing.T) {
	f := newFallback(&Config{Nodes: 2})
	var s spellings
	for i := range int64(2*maxParams + 10) {
		l := mustLimit(t, limiter.Spec{Limit: 10 + i, Window: time.Minute})
		f.share(&limiter.Rule{Limits: []*limiter.Limit{l}})
		if p := s.of(l); p != s.of(l) {
			t.Fatal("a limit is spelled twice")
		}
		if len(f.shares) > maxParams || len(s.have) > maxParams {
			t.Fatalf("%d shares and %d spellings are remembered", len(f.shares), len(s.have))
		}
	}
}

// When the table of policies is full it denies, and gives the reason.
func TestFullFallback(t *testing.T) {
	f := newFallback(&Config{Nodes: 1})
	f.table = table.New(table.Config{MaxKeys: 1})
	r := &limiter.Rule{Name: "r", Limits: []*limiter.Limit{mustLimit(t, limiter.Spec{Limit: 5, Window: time.Hour})}}
	for i := range 3 {
		var c arith.Charge
		c.Add(arith.Key{Hash: arith.Hash{Hi: uint64(i)}, Rule: r, Cost: 1})
		var d limiter.Decision
		d.Clear()
		d.Grow(1)
		f.decide(0, &c, []int{0}, &d, make([]bool, 1))
		arith.Combine(&d, false)
		arith.Conclude(&d)
		if d.Allowed != (i == 0) || d.Limit(0).Overflow != (i > 0) {
			t.Errorf("key %d: allowed %v, overflow %v", i, d.Allowed, d.Limit(0).Overflow)
		}
	}
}

// A cost above the share of this process, but not above the limit, is denied for a while
// and not for ever: Redis may come back.
func TestACostAboveTheShareIsNotDeniedForEver(t *testing.T) {
	f := newFallback(&Config{Nodes: 3})
	r := &limiter.Rule{Name: "r", Limits: []*limiter.Limit{mustLimit(t, limiter.Spec{Limit: 60, Window: time.Minute})}}
	for cost, never := range map[uint64]bool{30: false, 60: false, 61: true} {
		var c arith.Charge
		c.Add(arith.Key{Hash: arith.Hash{Hi: 1}, Rule: r, Cost: cost})
		var d limiter.Decision
		d.Clear()
		d.Grow(1)
		f.decide(0, &c, []int{0}, &d, make([]bool, 1))
		arith.Combine(&d, false)
		arith.Conclude(&d)
		if d.Allowed || d.Never != never || (d.RetryAfter == time.Second) == never || arith.Fields(&d.Receipt).Charged != 0 {
			t.Errorf("cost %d: %+v", cost, d)
		}
	}
}

// A shadow rule never denies, whatever its policy: it is decided like any other.
func TestClosedShadowIsDecided(t *testing.T) {
	f := newFallback(&Config{Nodes: 1})
	l := mustLimit(t, limiter.Spec{Limit: 1, Window: time.Hour})
	var c arith.Charge
	c.Add(arith.Key{Hash: arith.Hash{Hi: 1}, Rule: &limiter.Rule{Name: "r", Limits: []*limiter.Limit{l}}, Cost: 1})
	c.Add(arith.Key{Hash: arith.Hash{Hi: 2}, Cost: 1, Rule: &limiter.Rule{
		Name: "s", Limits: []*limiter.Limit{l}, Shadow: true, OnUnreachable: limiter.UnreachableClosed,
	}})
	var d limiter.Decision
	d.Clear()
	d.Grow(2)
	d.Source = limiter.SourceRedis
	f.decide(0, &c, []int{0, 1}, &d, make([]bool, 2))
	arith.Combine(&d, false)
	arith.Conclude(&d)
	if !d.Allowed || d.ShadowDenied || arith.Fields(&d.Receipt).Charged != 3 || arith.Fields(&d.Receipt).Epoch != 3 ||
		d.Source != limiter.SourceFallbackLocal {
		t.Errorf("%+v", d)
	}
}

// Every family of the scripts is one of the limits, and the parameters are as
// prelude.lua documents them.
func TestParams(t *testing.T) {
	weight := 250
	for _, row := range []struct {
		spec limiter.Spec
		want string
	}{
		{limiter.Spec{Algorithm: limiter.FixedWindow, Limit: 5, Window: time.Minute}, "[1,5,60000000,5,0,0,0,0]"},
		{limiter.Spec{Algorithm: limiter.FixedWindow, Limit: 5, Window: 14 * 24 * time.Hour, Align: limiter.AlignFirstHit},
			"[1,5,1209600000000,5,0,0,345600000000,1]"},
		{limiter.Spec{Limit: 5, Window: time.Minute, Weight: &weight, Rounding: limiter.RoundNearest},
			"[2,5,60000000,5,0,0,0,250,2]"},
		{limiter.Spec{Algorithm: limiter.SlidingLog, Limit: 5, Window: time.Minute, CountRejected: limiter.CountAll},
			"[3,5,60000000,5,2,0,1]"},
		{limiter.Spec{Algorithm: limiter.SlidingWindow, Limit: 5, Window: time.Minute, SubWindows: 4},
			"[4,5,75000000,5,0,0,15000000]"},
		{limiter.Spec{Algorithm: limiter.SlidingWindow, Limit: 5, Window: time.Minute, SubWindows: 4,
			Coverage: limiter.CoverageLenient}, "[4,5,60000000,5,0,0,15000000]"},
		{limiter.Spec{Algorithm: limiter.TokenBucket, Limit: 5, Window: time.Minute, Burst: 9, Block: time.Second},
			"[5,5,60000000,9,0,1000000,262800000]"},
		{limiter.Spec{Algorithm: limiter.GCRA, Limit: 1000, Window: time.Minute}, "[5,1000,60000000,1000,0,0,4294967295]"},
		{limiter.Spec{Algorithm: limiter.GCRA, Limit: 4294967296, Window: time.Minute},
			"[13,4294967296,60000000,4294967296,0,0,9007199254740991]"},
		{limiter.Spec{Algorithm: limiter.TokenBucket, Limit: 4294967295, Window: time.Minute, Burst: 4294967296},
			"[13,4294967295,60000000,4294967296,0,0,9007199254740991]"},
		{limiter.Spec{Algorithm: limiter.Concurrency, Limit: 9007199254740991},
			"[16,9007199254740991,86400000000,9007199254740991,0,0,1]"},
		{limiter.Spec{Algorithm: limiter.LeakyBucket, Limit: 5, Window: time.Minute, Drip: limiter.DripInterval},
			"[6,5,60000000,5,0,0,262800000]"},
		{limiter.Spec{Algorithm: limiter.LeakyBucket, Limit: 30, Window: time.Minute, Drip: limiter.DripInterval,
			DripUnits: 5}, "[6,30,60000000,30,0,0,1576800000,5]"},
	} {
		if got := newParams(mustLimit(t, row.spec)).text; got != row.want {
			t.Errorf("%+v is spelled %s, want %s", row.spec, got, row.want)
		}
	}
}
