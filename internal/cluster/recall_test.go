package cluster

import (
	"strings"
	"testing"

	"github.com/weirlimit/weir/internal/cluster/replica"
	"github.com/weirlimit/weir/internal/cluster/route"
	"github.com/weirlimit/weir/internal/peer"
	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/limiter/arith"
)

// lenderTo is an owner that has lent 4 units to a member, and has 6 others left.
func lenderTo(t *testing.T, id uint64) *identified {
	t.Helper()
	x := newLender(t)
	x.id = id
	x.check(third, 1, 990, peer.Check{Wait: uint32(firstWait)})
	members := x.c.decider.slices.Member
	x.c.decider.slices.Member = func(uint64) bool { return true } // a client is lent more at a time
	x.hold(third, 2, long, leaseOf())
	x.c.decider.slices.Member = members
	x.settle()
	x.wants(6, "4 of 10 are lent")
	drain(x.c)
	return x
}

// settle has the heir take all.
func (x *identified) settle() {
	for range 3 {
		x.h.pass(replica.TickEvery)
		i := look(x.p)
		x.c.Deliver(&peer.Frame{From: other, To: self,
			Acks: []peer.Ack{{Partition: x.p.id, Epoch: i.Epoch, Seq: 1 << 30, Appointment: 1, Owner: i.Epoch}}})
	}
}

// ask has a member ask for units, and returns how it is answered.
func (x *identified) ask(n, cost uint64) string {
	x.Helper()
	return saidOf(x.check(other, n, cost, peer.Check{Wait: uint32(firstWait)}))
}

// saidOf is "waits", "allowed" or "denied".
func saidOf(r *peer.Reply) string {
	switch {
	case r == nil:
		return "waits"
	case r.Receipt.Charged != 0:
		return "allowed"
	default:
		return "denied"
	}
}

// recalls returns how often the holder is asked to give the lease back.
func (x *identified) recalls() (n int) {
	for f := x.c.Take(third, true); f != nil; f = x.c.Take(third, true) {
		for _, q := range f.Refunds {
			if q.Kind == peer.RecallLease && q.ChargeID == x.id {
				n++
			}
		}
	}
	return n
}

// giveBack has the holder give the lease back.
func (x *identified) giveBack(used uint64) {
	k := x.key
	k.Cost = used
	x.c.Deliver(&peer.Frame{From: third, To: self, Rules: []peer.Rule{x.rule}, Keys: []peer.Key{k}, Holds: []peer.Hold{
		{ID: 6, Life: uint64(limiter.Second), Ignore: true},
	}, Refunds: []peer.Refund{{ID: 6, Keys: 1, Kind: peer.AmendHold, ChargeID: x.id}}})
}

// asks is ask without reading what the owner sends.
func (x *identified) asks(n, cost uint64) {
	k := x.key
	k.Cost = cost
	x.c.Deliver(&peer.Frame{From: other, To: self, Rules: []peer.Rule{x.rule}, Keys: []peer.Key{k},
		Checks: []peer.Check{{ID: n, Keys: 1, Wait: uint32(firstWait)}}})
}

// A check that lent units alone prevent waits until they are given back, and is decided then. Meanwhile nothing is
// lent.
func TestWhatIsLentIsRecalled(t *testing.T) {
	x := lenderTo(t, uint64(third)-1)
	x.asks(3, 8)
	x.asks(4, 8)
	if n := x.recalls(); n != 1 {
		t.Errorf("recalled %d times for two checks", n)
	}
	x.id--
	if r := x.hold(third, 5, long, leaseOf()); r == nil || r.Receipt.Charged != 0 {
		t.Errorf("a lease while checks wait: %+v", r)
	}
	x.id++
	x.giveBack(1)
	if got := saidOf(x.reply(other, 3)); got != "allowed" {
		t.Errorf("the first check: %s", got)
	}
	x.wants(1, "1 of 4 was used, and one of two checks of 8 is admitted")
}

// A holder that does not give back delays checks of 20 ms, and no others. Nor does a check wait that would be denied
// all the same, or for a client, which is not asked.
func TestWhoDoesNotGiveBack(t *testing.T) {
	x := lenderTo(t, uint64(third)-1)
	refused := func(want uint64) {
		t.Helper()
		if _, denied := x.c.table.Top(1, nil); len(denied) != 1 || denied[0].Count != want {
			t.Errorf("refused most: %v, want %d", denied, want)
		}
	}
	if got := x.ask(3, 11); got != "denied" || x.recalls() != 0 {
		t.Errorf("11 units of which 10 could be free: %s", got)
	}
	x.c.table.SetName(x.charge(1).Key(0), []byte("key"))
	refused(1)
	if got := x.ask(4, 8); got != "waits" {
		t.Fatalf("8 units: %s", got)
	}
	refused(1) // who waits is not refused yet
	x.h.pass(replica.RecallFor - replica.TickEvery)
	if got := saidOf(x.reply(other, 4)); got != "waits" {
		t.Errorf("too early: %s", got)
	}
	x.h.pass(2 * replica.TickEvery)
	if got := saidOf(x.reply(other, 4)); got != "denied" {
		t.Errorf("the holder is silent: %s", got)
	}
	refused(2)
	if got := x.ask(5, 8); got != "denied" {
		t.Errorf("a check after that: %s", got)
	}
	x = lenderTo(t, 1<<60)
	if got := x.ask(3, 8); got != "denied" {
		t.Errorf("a client has the lease: %s", got)
	}
}

// A denial that lent units alone cause says when they are back at the latest, and is not cached: they may be back
// before. One that has another cause, too, is as any other.
func TestADenialForWhatIsLent(t *testing.T) {
	x := lenderTo(t, 1<<60)
	for n, test := range []struct {
		cost uint64
		lent bool
	}{{8, true}, {10, true}, {11, false}} {
		k := x.key
		k.Cost = test.cost
		x.c.Deliver(&peer.Frame{From: other, To: self, Rules: []peer.Rule{x.rule}, Keys: []peer.Key{k},
			Checks: []peer.Check{{ID: uint64(n) + 3, Keys: 1, Wait: uint32(firstWait)}}})
		found := false
		for f := x.c.Take(other, true); f != nil; f = x.c.Take(other, true) {
			for i, r := range f.Replies {
				if found = r.ID == uint64(n)+3; !found {
					continue
				}
				if wait := limiter.Tick(f.Results[i].RetryAfter); f.Results[i].Allowed || r.Provisional != test.lent ||
					(wait <= 300*limiter.Millisecond) != test.lent {
					t.Errorf("%d units: %+v, %+v", test.cost, r, f.Results[i])
				}
			}
		}
		if !found {
			t.Fatal("no answer")
		}
	}
}

// What is lent is recalled by what is in the table, not by the rule of the check: it may draw up to a part, or come
// after a reload.
func TestWhatIsLentIsRecalledForAnyRule(t *testing.T) {
	for name, rule := range map[string]func(x *identified) *limiter.Rule{
		"up to a part": func(x *identified) *limiter.Rule { return x.c.config.Rule("r").UpTo(100) },
		"after a reload": func(x *identified) *limiter.Rule {
			off := *x.c.config.Rule("r")
			off.Leases = false
			return &off
		},
	} {
		x := lenderTo(t, uint64(third)-1)
		x.p.to.Store(uint64(self))
		charge := new(arith.Charge)
		charge.Add(arith.Key{Hash: arith.Hash{Hi: x.key.Hi, Lo: x.key.Lo}, Rule: rule(x), Cost: 8})
		d, done := new(limiter.Decision), false
		x.c.Begin(charge, d, 0, func() { done = true })
		if done || x.recalls() != 1 {
			t.Fatalf("%s: it is answered: %+v", name, d)
		}
		x.giveBack(1)
		if x.settle(); !done || !d.Allowed {
			t.Errorf("%s: done %v: %+v", name, done, d)
		}
	}
}

// A member that has given a lease back asks the owner again of what that has denied before.
func TestADenialIsForgottenWhenALeaseIsGivenBack(t *testing.T) {
	x := newHolderWith(t, peer.LeaseWire, func(c *Config) { c.CachedDenials = true })
	x.answer(x.lease.ID, 70, peer.Receipt{Charged: 1})
	more := x.charge.Clone()
	more.Key(0).Cost = 50
	ask := func() (cached, asked bool) {
		d := new(limiter.Decision)
		x.c.Begin(more.Clone(), d, 0, func() {})
		for f := x.c.Take(other, true); f != nil; f = x.c.Take(other, true) {
			for _, q := range f.Checks {
				asked = true
				x.c.Deliver(&peer.Frame{From: other, To: self, Replies: []peer.Reply{{ID: q.ID, Results: 1}},
					Results: []peer.Result{{RetryAfter: int64(limiter.Second), ResetAfter: int64(limiter.Second)}}})
			}
			for _, q := range f.Refunds {
				x.c.Deliver(&peer.Frame{From: other, To: self, Replies: []peer.Reply{{ID: q.ID, Status: peer.Done}},
					Amended: []peer.Amended{{ID: q.ID, State: uint8(limiter.AmendDone)}}})
			}
		}
		return d.Source == limiter.SourceCached, asked
	}
	if cached, asked := ask(); cached || !asked {
		t.Fatal("premise: the owner is asked")
	}
	if cached, _ := ask(); !cached {
		t.Fatal("premise: its denial is cached")
	}
	x.h.pass(120 * limiter.Millisecond)
	ask() // the lease is given back
	if cached, asked := ask(); cached || !asked {
		t.Error("the denial is cached still")
	}
}

// A check that the owner itself is asked waits, too.
func TestAnOwnCheckAwaitsWhatIsLent(t *testing.T) {
	x := lenderTo(t, uint64(third)-1)
	x.p.to.Store(uint64(self))
	charge := x.charge(8)
	d, done := new(limiter.Decision), false
	x.c.Begin(charge, d, 0, func() { done = true })
	if done || x.recalls() != 1 {
		t.Fatalf("it is answered: %+v", d)
	}
	x.giveBack(1)
	x.settle()
	if !done || !d.Allowed {
		t.Errorf("done %v: %+v", done, d)
	}
}

// walled is a scheduler with a wall clock.
type walled struct {
	Scheduler
	wall *limiter.Tick
}

func (s walled) Wall() limiter.Tick { return *s.wall }

// A lease ends by the wall clock, too: the other one stands still while the machine is suspended.
func TestALeaseEndsWhileTheMachineIsSuspended(t *testing.T) {
	wall := limiter.Tick(1e15)
	x := newHolderWith(t, peer.LeaseWire, func(c *Config) { c.Scheduler = walled{c.Scheduler, &wall} })
	x.answer(x.lease.ID, 70, peer.Receipt{Charged: 1})
	if d := x.ask(); d.Source != limiter.SourceLeased {
		t.Fatalf("premise: decided by %v", d.Source)
	}
	if wall += limiter.Second; x.ask().Source == limiter.SourceLeased {
		t.Error("it admits a second later")
	}
}

// An explanation says who has borrowed what, and until when.
func TestWhatIsLentIsExplained(t *testing.T) {
	for id, want := range map[uint64]string{uint64(third) - 1: "4 to c", 1 << 60: "4 to clients"} {
		x := lenderTo(t, id)
		x.p.to.Store(uint64(self))
		says := map[string]string{}
		x.c.Explain(x.charge(1), func(all []route.Explained) {
			for _, f := range all[0].Limits[0].State {
				says[f.Name] = f.Value
			}
		})
		if got, _, ok := strings.Cut(says["lent"], " until "); got != want || !ok {
			t.Errorf("it says %q, want %q and until when", says["lent"], want)
		}
	}
}

// A holder gives back at once what it is asked for, and does not use what it is lent later by the same wish.
func TestAHolderGivesBackWhatIsRecalled(t *testing.T) {
	recall := func(x *holder) {
		drain(x.c)
		x.c.Deliver(&peer.Frame{From: other, To: self, Rules: []peer.Rule{{Name: "r"}}, Keys: []peer.Key{{Hi: 1}},
			Refunds: []peer.Refund{{Keys: 1, Kind: peer.RecallLease, ChargeID: x.lease.ChargeID}}})
	}
	x := newHolder(t, peer.LeaseWire)
	x.answer(x.lease.ID, 70, peer.Receipt{Charged: 1})
	x.ask()
	if recall(x); x.ask().Source == limiter.SourceLeased {
		t.Error("it admits after that")
	}
	if used, told := x.givesBack(); !told || used != 1 {
		t.Errorf("told %v, %d used", told, used)
	}
	x = newHolder(t, peer.LeaseWire)
	recall(x)
	if _, told := x.givesBack(); told {
		t.Error("it gives back what it does not have yet")
	}
	x.answer(x.lease.ID, 70, peer.Receipt{Charged: 1})
	if x.ask().Source == limiter.SourceLeased {
		t.Error("it admits by what was recalled before it came")
	}
	if used, told := x.givesBack(); !told || used != 0 {
		t.Errorf("it came: told %v, %d used", told, used)
	}
}

func (x *identified) charge(cost uint64) *arith.Charge {
	c := new(arith.Charge)
	c.Add(arith.Key{Hash: arith.Hash{Hi: x.key.Hi, Lo: x.key.Lo}, Rule: x.c.config.Rule("r"), Cost: cost})
	return c
}
