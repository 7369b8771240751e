package cluster

import (
	"testing"

	"github.com/weirlimit/weir/internal/cluster/route"
	"github.com/weirlimit/weir/internal/peer"
	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/limiter/arith"
)

// rememberer returns a core that caches denials, and a check of a partition that another
// member owns.
func rememberer(t *testing.T) (*Core, *arith.Charge) {
	t.Helper()
	c, p, _, charge := singleWith(t, limiter.UnreachableLocal, func(c *Config) { c.CachedDenials = true })
	p.to.Store(uint64(other))
	return c, charge
}

// deniedOnce is rememberer; the owner has just denied the check for a minute.
func deniedOnce(t *testing.T) (*Core, *arith.Charge) {
	t.Helper()
	c, charge := rememberer(t)
	c.Begin(charge.Clone(), new(limiter.Decision), 0, func() {})
	c.Deliver(&peer.Frame{
		From: other, To: self, Replies: []peer.Reply{{ID: drain(c)[other].Checks[0].ID, Results: 1}},
		Results: []peer.Result{{RetryAfter: int64(limiter.Minute), ResetAfter: int64(limiter.Minute)}},
	})
	return c, charge
}

// A cached denial allocates nothing.
func TestCachedDenialsAllocateNothing(t *testing.T) {
	c, charge := deniedOnce(t)
	var d limiter.Decision
	allocs := testing.AllocsPerRun(1000, func() { c.Check(t.Context(), charge, &d) })
	if d.Source != limiter.SourceCached || d.Allowed || limiter.Span(d.RetryAfter) != limiter.Minute ||
		d.Limit(0).Owner != "b" {
		t.Fatalf("%+v", d)
	}
	if allocs != 0 && !raceEnabled {
		t.Errorf("%v allocations for each", allocs)
	}
}

// A cached denial is not used for other costs, other rules, peeks, checks of several
// keys, or after a reset.
func TestCachedDenialsAreOfOneCheck(t *testing.T) {
	c, charge := deniedOnce(t)
	k := charge.Key(0)
	refused := func(change func(*arith.Charge)) bool {
		asked := charge.Clone()
		change(asked)
		d := new(limiter.Decision)
		c.Begin(asked, d, 0, func() {})
		return d.Source == limiter.SourceCached
	}
	if !refused(func(*arith.Charge) {}) {
		t.Fatal("the same check is not refused")
	}
	for name, change := range map[string]func(*arith.Charge){
		"another cost": func(a *arith.Charge) { a.Key(0).Cost++ },
		"a peek":       func(a *arith.Charge) { a.Peek = true },
		"a cost of 0":  func(a *arith.Charge) { a.Key(0).Cost = 0 },
		"new rules":    func(a *arith.Charge) { r := *k.Rule; a.Key(0).Rule = &r },
		"another key":  func(a *arith.Charge) { a.Key(0).Hash.Lo++ },
		"several keys": func(a *arith.Charge) {
			a.Add(arith.Key{Hash: arith.Hash{Hi: 1, Lo: 3}, Rule: k.Rule, Cost: 5})
		},
	} {
		if refused(change) {
			t.Errorf("%s: refused here", name)
		}
	}
	drain(c)
	c.Reset(charge, func(route.Outcome) {})
	c.Deliver(&peer.Frame{From: other, To: self,
		Replies: []peer.Reply{{ID: drain(c)[other].Refunds[0].ID, Status: peer.Done}}})
	if refused(func(*arith.Charge) {}) {
		t.Error("what was forgotten is refused")
	}
}

// A node that has become the owner decides, whatever the last owner denied: it has the
// counters, and they may have been reset or refunded meanwhile.
func TestAnOwnerHasNoCachedDenials(t *testing.T) {
	c, charge := deniedOnce(t)
	own(c, c.partitions.parts[0])
	var d limiter.Decision
	c.Begin(charge, &d, 0, func() {})
	if d.Source != limiter.SourceOwner || !d.Allowed {
		t.Errorf("%v, allowed %t", d.Source, d.Allowed)
	}
}
