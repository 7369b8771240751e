package cluster

import (
	"testing"
	"time"

	"github.com/weirlimit/weir/internal/cluster/mesh"
	"github.com/weirlimit/weir/internal/cluster/route"
	"github.com/weirlimit/weir/internal/cluster/view"
	"github.com/weirlimit/weir/internal/peer"
	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/limiter/arith"
	"github.com/weirlimit/weir/limiter/table"
)

// speaks has all members speak a version of the wire.
func speaks(c *Core, h *byHand, wire uint16) {
	members := append([]peer.Member(nil), c.View().Members...)
	for i := range members {
		members[i].Wire = wire
	}
	c.SetView(view.New(self, members, h, 3, 3))
}

// newLender returns an owner of a key with 1000 a day, of which it may lend.
func newLender(t *testing.T) *identified {
	t.Helper()
	c, p, h, charge := limited(t, limiter.Spec{Algorithm: limiter.FixedWindow, Limit: 1000, Window: 24 * time.Hour})
	k := charge.Key(0)
	k.Rule.Replication, k.Rule.Leases = limiter.ReplicationLag, true
	speaks(c, h, peer.LeaseWire)
	return &identified{reservedAt{T: t, c: c, p: p, h: h, key: peer.Key{Hi: k.Hash.Hi, Lo: k.Hash.Lo},
		rule: mesh.Definition(k.Rule)}, uint64(third) - 1}
}

func leaseOf() peer.Hold {
	return peer.Hold{Span: uint64(300 * limiter.Millisecond), Keep: true, Lent: true}
}

// A lease is answered when the heir has it, although a check of as many units is answered at once. What is lent counts,
// and what is not used comes back.
func TestALeaseWaitsForTheHeir(t *testing.T) {
	x := newLender(t)
	if r := x.check(third, 9, 4, peer.Check{Wait: uint32(firstWait)}); r == nil {
		t.Fatal("premise: 4 units are answered at once")
	}
	acked := func(seq uint64) {
		i := look(x.p)
		x.c.Deliver(&peer.Frame{From: other, To: self,
			Acks: []peer.Ack{{Partition: x.p.id, Epoch: i.Epoch, Seq: seq, Appointment: 1, Owner: i.Epoch}}})
	}
	x.h.pass(20 * limiter.Millisecond) // the batch with these is sent
	before := look(x.p).Seq
	if r := x.hold(third, 1, long, leaseOf()); r != nil {
		t.Fatalf("answered before the heir has it: %+v", r)
	}
	x.wants(992, "what is lent counts")
	if acked(before); x.reply(third, 1) != nil {
		t.Error("answered when the heir has what was before")
	}
	acked(1 << 30)
	acked(1 << 30) // one batch at a time is under way
	if r := x.reply(third, 1); r == nil || r.Status != peer.Decided || r.Receipt.Charged != 1 {
		t.Fatalf("%+v once the heir has it", r)
	}
	x.amend(third, 2, 1, settling())
	x.wants(995, "one of four units is used")
}

// Nor is a lease decided on the fast way, which cannot wait: a client would get the answer to a repetition.
func TestALeaseOfAClientWaitsForTheHeir(t *testing.T) {
	x := newLender(t)
	x.p.to.Store(uint64(self))
	rule := x.c.config.Rule("r")
	charge := &arith.Charge{ID: &arith.Idempotency{ID: 9, Life: time.Second, Hold: 300 * time.Millisecond, Keep: true,
		Lent: true}}
	charge.Add(arith.Key{Hash: arith.Hash{Hi: x.key.Hi, Lo: x.key.Lo}, Rule: rule, Cost: 4})
	turn := x.c.begin()
	decided := x.c.decider.fast(turn, charge, new(limiter.Decision))
	turn.end()
	if decided {
		t.Error("it is decided at once")
	}
	x.wants(1000, "nothing has changed")
}

// A slice leaves when the heir has it, also when it is renewed. The answer says what was assigned.
func TestASliceWaitsForTheHeir(t *testing.T) {
	x := newLender(t)
	x.c.config.Rule("r").Leases = false // it need not lend
	acked := func() {
		i := look(x.p)
		for range 2 {
			x.c.Deliver(&peer.Frame{From: other, To: self,
				Acks: []peer.Ack{{Partition: x.p.id, Epoch: i.Epoch, Seq: 1 << 30, Appointment: 1, Owner: i.Epoch}}})
		}
	}
	h := leaseOf()
	h.Span, h.Rate = uint64(10*limiter.Second), 1
	rule := x.c.config.Rule("r")
	rule.Limits = []*limiter.Limit{bucketOf(x.T)}
	for id := range uint64(2) {
		if r := x.hold(third, 1+id, long, h); r != nil {
			t.Fatalf("answered before the heir has it: %+v", r)
		}
		x.h.pass(20 * limiter.Millisecond)
		acked()
		if r := x.reply(third, 1+id); r == nil || r.Status != peer.Decided || r.Count == 0 {
			t.Fatalf("%+v once the heir has it", r)
		}
		x.wants(996, "its burst is lent")
		x.h.pass(500 * limiter.Millisecond)
	}
}

// What a lease says is bounded: it is for a second at most, and for what its rule says, of one key, and of a rule that
// lends.
func TestLeasesAreBounded(t *testing.T) {
	for name, test := range map[string]struct {
		change func(*peer.Hold)
		leases bool
		left   uint64
	}{
		"longer than its rule says": {func(h *peer.Hold) { h.Span++ }, true, 1000},
		"a lease":                   {func(*peer.Hold) {}, true, 996},
		"longer than a second":      {func(h *peer.Hold) { h.Span = uint64(2 * limiter.Second) }, true, 1000},
		"one that comes back":       {func(h *peer.Hold) { h.Keep = false }, true, 1000},
		"of another rule":           {func(*peer.Hold) {}, false, 1000},
	} {
		x := newLender(t)
		x.c.config.Rule("r").Leases = test.leases
		h := leaseOf()
		test.change(&h)
		x.hold(third, 1, long, h)
		x.wants(test.left, name)
	}
}

// A client is not lent as little as a member is.
func TestClientsBorrowLess(t *testing.T) {
	for id, left := range map[uint64]uint64{uint64(third) - 1: 996, 1 << 60: 1000} {
		x := newLender(t)
		x.id = id
		x.hold(third, 1, long, leaseOf())
		x.wants(left, "4 units are asked for")
	}
}

// bucketOf is a limit of a thousand at once and as many a second.
func bucketOf(t *testing.T) *limiter.Limit {
	t.Helper()
	l, err := limiter.NewLimit(limiter.Spec{Name: "b", Algorithm: limiter.TokenBucket, Limit: 1000, Window: time.Second})
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// holder is a member that is asked for a key of another one, which may lend units of it.
type holder struct {
	*testing.T
	c      *Core
	h      *byHand
	charge *arith.Charge
	lease  peer.Check
	units  uint64
}

// newHolder returns a member that has asked for a lease.
func newHolder(t *testing.T, wire uint16) *holder {
	t.Helper()
	return newHolderWith(t, wire, func(*Config) {})
}

func newHolderWith(t *testing.T, wire uint16, change func(*Config)) *holder {
	t.Helper()
	c, p, h, charge := singleWith(t, limiter.UnreachableLocal, change)
	charge.Key(0).Rule.Leases, charge.Key(0).Cost = true, 1
	speaks(c, h, wire)
	p.to.Store(uint64(other))
	drain(c)
	x := &holder{T: t, c: c, h: h, charge: charge}
	for range 60 {
		x.ask()
		for to := c.Take(other, true); to != nil; to = c.Take(other, true) {
			keys := 0
			for _, q := range to.Checks {
				if q.ChargeID != 0 && len(to.Holds) > 0 && to.Holds[0].Lent {
					x.lease, x.units = q, to.Keys[keys].Cost
				} else {
					x.answer(q.ID, 90, peer.Receipt{Charged: 1})
				}
				keys += int(q.Keys)
			}
		}
	}
	return x
}

func (x *holder) ask() *limiter.Decision {
	d := new(limiter.Decision)
	x.c.Begin(x.charge.Clone(), d, 0, func() {})
	return d
}

// answer has the owner admit a request, of which so much is left then.
func (x *holder) answer(id, left uint64, r peer.Receipt) {
	x.c.Deliver(&peer.Frame{From: other, To: self, Replies: []peer.Reply{{ID: id, Results: 1, Receipt: r}},
		Results: []peer.Result{{Allowed: true, Remaining: left, ResetAfter: int64(limiter.Day)}}})
}

// givesBack returns what the owner is told was used of the lease; false if it is told nothing.
func (x *holder) givesBack() (used uint64, told bool) {
	for f := x.c.Take(other, true); f != nil; f = x.c.Take(other, true) {
		keys := 0
		for _, q := range f.Refunds {
			if q.Kind == peer.AmendHold && q.ChargeID == x.lease.ChargeID {
				return f.Keys[keys].Cost, true
			}
			keys += int(q.Keys)
		}
	}
	return 0, false
}

// A member that is lent units admits by itself, without an allocation, and gives back what is left when the time is
// over that began when it asked.
func TestAHolderAdmits(t *testing.T) {
	x := newHolder(t, peer.LeaseWire)
	if x.units < 16 || x.units > 90/4 {
		t.Fatalf("%d units are asked for, of which 90 are left and two members may ask", x.units)
	}
	x.answer(x.lease.ID, 70, peer.Receipt{Charged: 1})
	d := x.ask()
	if d.Source != limiter.SourceLeased || !d.Allowed || d.Limit(0).Remaining != 70+x.units-1 ||
		arith.Fields(&d.Receipt).Charged != 1 {
		t.Fatalf("%+v", d)
	}
	var again limiter.Decision
	if n := testing.AllocsPerRun(3, func() { x.c.Check(t.Context(), x.charge, &again) }); n > 0 && !raceEnabled ||
		again.Source != limiter.SourceLeased {
		t.Errorf("%v allocations, decided by %v", n, again.Source)
	}
	sealed := d.Receipt
	arith.Fields(&sealed).Once = 5
	for range 2 { // the second time it is void
		x.c.Refund(x.charge, sealed, func(route.Outcome) {})
	}
	drain(x.c)
	x.h.pass(120 * limiter.Millisecond)
	if used, told := x.givesBack(); !told || used != 4 {
		t.Errorf("told %v: %d units were used, want 5 less one that came back", told, used)
	}
	if d := x.ask(); d.Source == limiter.SourceLeased {
		t.Error("it admits after that")
	}
}

// What leases decide is among the keys that are asked for most, at the node that decides it.
func TestLeasedChecksAreListed(t *testing.T) {
	x := newHolder(t, peer.LeaseWire)
	x.answer(x.lease.ID, 70, peer.Receipt{Charged: 1})
	for n := range 2 * table.SampleOf {
		charge, d := x.charge.Clone(), new(limiter.Decision)
		if x.c.Begin(charge, d, 0, func() {}); n < table.SampleOf && d.Source != limiter.SourceLeased {
			t.Fatalf("premise: decided by %v", d.Source)
		}
		if charge.Unnamed != 0 {
			x.c.SetName(charge.Key(0), []byte("k"))
		}
	}
	hottest, _ := x.c.table.Top(10, nil)
	if len(hottest) != 1 || hottest[0].Name != "k" || hottest[0].Count < table.SampleOf ||
		hottest[0].Count > 2*table.SampleOf {
		t.Errorf("%+v", hottest)
	}
}

// A lease that comes when its time is over is not used, and is given back. Earlier versions are not asked, and a node
// that leaves gives back at once.
func TestLeasesThatAreNotUsed(t *testing.T) {
	x := newHolder(t, peer.LeaseWire)
	x.h.pass(110 * limiter.Millisecond)
	if used, told := x.givesBack(); !told || used != 0 {
		t.Errorf("no answer in time: told %v, %d used", told, used)
	}
	x.answer(x.lease.ID, 70, peer.Receipt{Charged: 1})
	if d := x.ask(); d.Source == limiter.SourceLeased {
		t.Error("a late lease is used")
	}
	if x = newHolder(t, peer.LeaseWire-1); x.units != 0 {
		t.Error("a member of an earlier version is asked to lend")
	}
	x = newHolder(t, peer.LeaseWire)
	x.answer(x.lease.ID, 70, peer.Receipt{Charged: 1})
	x.ask()
	drain(x.c)
	members := append([]peer.Member(nil), x.c.View().Members...)
	members[0].State = peer.Leaving
	x.c.SetView(view.New(self, members, x.h, 3, 3))
	if used, told := x.givesBack(); !told || used != 1 {
		t.Errorf("it leaves: told %v, %d used", told, used)
	}
	if d := x.ask(); d.Source == limiter.SourceLeased {
		t.Error("it admits when it leaves")
	}
}
