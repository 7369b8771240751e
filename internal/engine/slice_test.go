package engine

import (
	"testing"
	"time"

	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/limiter/arith"
	"github.com/weirlimit/weir/limiter/limitertest"
	"github.com/weirlimit/weir/limiter/table"
)

// dividing is the owner of a bucket of 100 a second whose rate is divided.
type dividing struct {
	*testing.T
	table *table.Table
	by    *Slices
	rule  *limiter.Rule
	now   limiter.Tick
	fast  bool
}

func newDividing(t *testing.T) *dividing {
	t.Helper()
	return &dividing{T: t, table: table.New(table.Config{}), by: new(Slices), rule: bucketOf(t, 100), now: 1e15}
}

func bucketOf(t *testing.T, rate int64) *limiter.Rule {
	t.Helper()
	l := limitertest.Limit(t, limiter.Spec{Name: "b", Algorithm: limiter.TokenBucket, Limit: rate, Window: time.Second,
		Burst: 100})
	return &limiter.Rule{Name: "r", Limits: []*limiter.Limit{l}}
}

// ask returns what a holder is assigned.
func (x *dividing) ask(id, burst, demand uint64, span time.Duration) uint64 {
	x.Helper()
	c := &arith.Charge{ID: &arith.Idempotency{ID: id, Life: time.Second, Hold: span, Keep: true, Lent: true, Rate: demand,
		Fast: x.fast}}
	c.Add(arith.Key{Hash: arith.Hash{Hi: 1, Lo: 2}, Rule: x.rule, Cost: burst})
	var d limiter.Decision
	if err := Decide(x.table, x.by, x.now, c, &d); err != nil || c.ID.Rate != demand {
		x.Fatal(err, c.ID.Rate)
	}
	if got := d.Remarks().Assigned; d.Allowed == (got > 0) && (d.Allowed || d.RetryAfter > 0) {
		return got
	}
	x.Fatalf("allowed %v, retry after %v, and %d are assigned", d.Allowed, d.RetryAfter, d.Remarks().Assigned)
	return 0
}

// An owner that has just taken over divides what the slices of the one before leave.
func TestADivisionKnowsWhatTheTableCounts(t *testing.T) {
	x := newDividing(t)
	had := x.ask(1, 5, 90, time.Minute)
	x.now += limiter.Second
	x.by = new(Slices)
	x.ask(1, 5, 10, time.Minute)
	if got := x.ask(2, 5, 80, time.Minute); got == 0 || had+got > 100 {
		t.Errorf("%d and %d a second of 100 are assigned", had, got)
	}
}

// A limit that falls is divided anew once what was assigned is over: nobody who asks meanwhile keeps it alive.
func TestALimitFallsUnderItsSlices(t *testing.T) {
	x := newDividing(t)
	for range 3 {
		x.ask(1, 5, 50, 3*time.Second)
		x.ask(2, 5, 50, 3*time.Second)
		x.now += limiter.Second
	}
	x.rule = bucketOf(t, 20)
	one, two := uint64(0), uint64(0)
	for range 20 { // what was assigned is a debt first
		one, two = x.ask(1, 5, 50, 3*time.Second), x.ask(2, 5, 50, 3*time.Second)
		x.now += limiter.Second
	}
	if one == 0 || two == 0 || one+two > 20 {
		t.Errorf("%d and %d a second of 20 are assigned", one, two)
	}
}

// Who is denied, since there is no room for what it may use at once, takes no rate from others.
func TestADeniedSliceTakesNoRate(t *testing.T) {
	x := newDividing(t)
	c := new(arith.Charge)
	c.Add(arith.Key{Hash: arith.Hash{Hi: 1, Lo: 2}, Rule: x.rule, Cost: 60})
	if err := x.table.Decide(x.now, c, new(limiter.Decision)); err != nil {
		t.Fatal(err)
	}
	x.ask(1, 5, 10, 2*time.Second)
	if got := x.ask(2, 60, 100, time.Minute); got != 0 {
		t.Fatalf("premise: 60 at once are denied where 35 are left, and a rate of %d is assigned", got)
	}
	if got := x.ask(3, 5, 50, 2*time.Second); got < 30 {
		t.Errorf("a rate of %d is assigned beside one that asks for 10", got)
	}
}

// What a fast slice leaves another one has at once, and its owner counts no more: nothing admits it a third time.
func TestAFastSliceLeavesItsRateAtOnce(t *testing.T) {
	for _, fast := range []bool{true, false} {
		x := newDividing(t)
		x.fast = fast
		x.ask(1, 5, 80, time.Minute)
		x.ask(1, 5, 10, time.Minute)
		want := map[bool]uint64{true: 80, false: 10}[fast]
		if got := x.ask(2, 5, 80, time.Minute); got < want || got > want+10 {
			t.Errorf("fast %v: a rate of %d beside one that had 80 and has 10", fast, got)
		}
		all := uint64(0)
		for _, h := range x.table.Lent(&arith.Key{Hash: arith.Hash{Hi: 1, Lo: 2}, Rule: x.rule}) {
			all += h.Rate
		}
		if all > 100 {
			t.Errorf("fast %v: rates of %d of 100 are counted", fast, all)
		}
		x.by = new(Slices) // another owner
		if got := x.ask(3, 5, 80, time.Minute); got > 10 {
			t.Errorf("fast %v: a rate of %d beside all that is assigned", fast, got)
		}
	}
}
