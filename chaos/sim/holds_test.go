package sim

import (
	"fmt"
	"testing"
	"time"

	"github.com/weirlimit/weir/internal/cluster/route"
	"github.com/weirlimit/weir/internal/peer"
	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/limiter/arith"
)

const heldFor = time.Minute

// reserve asks a node to reserve some units, and returns the answer.
func (d *directed) reserve(n *Node, id uint64, cost uint64) *limiter.Decision {
	d.t.Helper()
	c := &arith.Charge{ID: &arith.Idempotency{ID: id, Life: time.Hour, Hold: heldFor}}
	c.Add(d.key.key(n, cost))
	return d.answer(n, c)
}

// amending is a settlement or an extension that a node was asked for.
type amending struct {
	done bool
	out  route.Outcome
}

// amend asks a node to settle or to extend a reservation, and does not wait.
func (d *directed) amend(n *Node, id uint64, cost uint64, a limiter.Amend) *amending {
	c := &arith.Charge{ID: &arith.Idempotency{ID: id, Life: time.Hour, Hold: heldFor}}
	c.Add(d.key.key(n, cost))
	x := new(amending)
	n.do(func() { n.core.Amend(c, a, func(o route.Outcome) { x.done, x.out = true, o }) })
	return x
}

// amended asks a node to settle or to extend a reservation, and fails unless the answer has a
// state.
func (d *directed) amended(n *Node, id uint64, cost uint64, a limiter.Amend, want limiter.AmendState) limiter.Amended {
	d.t.Helper()
	x := d.amend(n, id, cost, a)
	for end := d.now + 2*limiter.Second; !x.done && d.now < end; {
		d.pass(ms)
	}
	if !x.done || x.out.Amended == nil || x.out.Amended.State != want {
		d.fails("%s amends %d to %d: answered %t, %+v %+v, want %v", n.name, id, cost, x.done, x.out, x.out.Amended, want)
		return limiter.Amended{}
	}
	return *x.out.Amended
}

func (d *directed) settledAs(n *Node, id uint64, cost uint64, want limiter.AmendState) limiter.Amended {
	d.t.Helper()
	return d.amended(n, id, cost, limiter.Amend{}, want)
}

// counts fails unless so many units are counted at the owner.
func (d *directed) counts(want int, when string) {
	d.t.Helper()
	if n := d.counted(); n != want {
		d.fails("%s %d units are counted, want %d", when, n, want)
	}
}

// heldEvents are what happens to the owner of a key while reservations are open.
var heldEvents = map[string]func(d *directed){
	"nothing": func(*directed) {},
	"owner leaves": func(d *directed) {
		d.holder(peer.Owned).leave(func() {})
		d.pass(8 * limiter.Second)
	},
	"owner crashes": func(d *directed) {
		d.holder(peer.Owned).crash(true)
		d.pass(8 * limiter.Second)
	},
	"heir crashes": func(d *directed) {
		d.holder(peer.Heir).crash(true)
		d.pass(8 * limiter.Second)
	},
	"owner pauses": func(d *directed) {
		owner := d.holder(peer.Owned)
		owner.pause()
		d.pass(4 * limiter.Second)
		owner.resume()
		d.pass(8 * limiter.Second)
	},
}

// TestHoldsInACluster: reservations are settled, extended and cancelled at whichever member is
// asked, and whatever became of the owner. Each is settled once, and counts what was used.
func TestHoldsInACluster(t *testing.T) {
	worlds(t)
	for name, happens := range heldEvents {
		t.Run(name, func(t *testing.T) {
			eachSeed(t, func(t *testing.T, seed uint64) {
				d := direct(t, seed, 4, limiter.UnreachableClosed, limiter.ReplicationLag)
				at := func(i int) *Node { return d.live()[i%len(d.live())] }
				for id := range 5 {
					if a := d.reserve(at(id), uint64(id+1), 10); !a.Allowed {
						d.fails("reservation %d is denied", id)
					}
					if a := d.reserve(at(id+1), uint64(id+1), 10); !a.Allowed || !a.Repeated {
						d.fails("reservation %d again: %t, repeated %t", id, a.Allowed, a.Repeated)
					}
				}
				d.pass(limiter.Second)
				happens(d)
				d.counts(50, "after it "+name)
				if a := d.reserve(at(0), 9, 11); a.Allowed {
					d.fails("11 more are admitted of 60, of which 50 are held")
				}
				d.settledAs(at(0), 1, 10, limiter.AmendDone)
				d.settledAs(at(1), 2, 3, limiter.AmendDone)
				d.settledAs(at(2), 3, 14, limiter.AmendDone)
				d.settledAs(at(0), 4, 0, limiter.AmendDone)
				d.amended(at(1), 5, 12, limiter.Amend{Extend: true}, limiter.AmendDone)
				d.counts(10+3+14+0+12, "settled,")
				for i := range 3 { // repeated at each
					d.settledAs(at(i), 2, 3, limiter.AmendRepeated)
					if a := d.settledAs(at(i), 3, 1, limiter.AmendSettled); a.First != 14 {
						d.fails("it was settled first with %d, want 14", a.First)
					}
				}
				d.pass(limiter.Tick(heldFor/time.Microsecond) + 100*ms)
				d.counts(10+3+14, "the last one is over, and")
				d.amended(at(0), 5, 12, limiter.Amend{IgnoreUnknown: true}, limiter.AmendUnknown)
				d.settledAs(at(0), 5, 12, limiter.AmendCharged)
				d.counts(10+3+14+12, "charged,")
			})
		})
	}
}

// TestASettlementOutlivesItsOwner: an owner crashes as soon as the answer to a settlement is
// there. The heir has it: it gives nothing back a second time, and counts what was used.
func TestASettlementOutlivesItsOwner(t *testing.T) {
	worlds(t)
	eachSeed(t, func(t *testing.T, seed uint64) {
		d := direct(t, seed, 3, limiter.UnreachableClosed, limiter.ReplicationLag)
		owner := d.holder(peer.Owned)
		for id := range uint64(3) {
			d.reserve(owner, id+1, 20)
		}
		d.pass(limiter.Second)
		d.settledAs(owner, 1, 5, limiter.AmendDone)
		d.amended(owner, 2, 30, limiter.Amend{Extend: true}, limiter.AmendDone)
		d.settledAs(owner, 3, 15, limiter.AmendDone)
		if a := d.reserve(owner, 4, 10); !a.Allowed {
			d.fails("denied, although 10 are left")
		}
		d.pass(limiter.Second)
		d.settledAs(owner, 4, 0, limiter.AmendDone)
		owner.crash(true)
		d.pass(8 * limiter.Second)
		d.counts(5+30+15, "after the takeover")
		d.settledAs(d.live()[0], 4, 0, limiter.AmendRepeated)
		d.pass(limiter.Tick(heldFor / time.Microsecond))
		d.counts(5+15, "the second is over, and")
	})
}

// TestAnExpiryIsTheOwners: a reservation is back at its end by the owner's clock, also after a
// takeover, and not before.
func TestAnExpiryIsTheOwners(t *testing.T) {
	worlds(t)
	eachSeed(t, func(t *testing.T, seed uint64) {
		d := direct(t, seed, 3, limiter.UnreachableClosed, limiter.ReplicationLag)
		d.reserve(d.live()[0], 1, 60)
		at := d.now
		d.pass(limiter.Second)
		d.holder(peer.Owned).crash(true)
		d.pass(at + limiter.Tick(heldFor/time.Microsecond) - d.now - 20*ms)
		d.counts(60, "just before its end")
		d.pass(120 * ms)
		d.counts(0, "100 ms after its end")
	})
}

// TestAHoldThatIsLost: with owner and heir what was reserved is lost. Its settlement is charged,
// and says so; or nothing is charged, if the caller wants that.
func TestAHoldThatIsLost(t *testing.T) {
	worlds(t)
	d := direct(t, 1, 5, limiter.UnreachableLocal, limiter.ReplicationLag)
	d.reserve(d.live()[0], 1, 20)
	d.reserve(d.live()[0], 2, 20)
	d.pass(limiter.Second)
	owner, heir := d.holder(peer.Owned), d.holder(peer.Heir)
	owner.crash(true)
	heir.crash(true)
	d.pass(15 * limiter.Second)
	d.counts(0, "after both crashed")
	d.amended(d.live()[0], 1, 7, limiter.Amend{IgnoreUnknown: true}, limiter.AmendUnknown)
	d.settledAs(d.live()[0], 1, 7, limiter.AmendCharged)
	d.settledAs(d.live()[1], 1, 7, limiter.AmendRepeated)
	d.amended(d.live()[0], 2, 7, limiter.Amend{Extend: true}, limiter.AmendUnknown)
	d.counts(7, "settled,")
}

// TestPoliciesHoldNothing: what a policy charges for a reservation stays charged there, since no
// settlement comes to it.
func TestPoliciesHoldNothing(t *testing.T) {
	worlds(t)
	d := direct(t, 1, 6, limiter.UnreachableLocal, limiter.ReplicationLag)
	minority := d.others(d.holder(peer.Owned), d.holder(peer.Heir))[:2]
	d.part(minority, d.others(minority...))
	d.pass(8 * limiter.Second)
	for id, want := range []bool{true, false} {
		c := &arith.Charge{ID: &arith.Idempotency{ID: uint64(id + 1), Life: time.Hour, Hold: heldFor}}
		c.Add(d.key.key(minority[0], limitOfDirected/6))
		answer := new(limiter.Decision)
		minority[0].do(func() { minority[0].core.Begin(c, answer, 0, func() {}) })
		d.pass(limiter.Second)
		if !answer.Source.ByPolicy() || answer.Allowed != want {
			d.fails("reservation %d: allowed %t by %v", id+1, answer.Allowed, answer.Source)
		}
		d.pass(limiter.Tick(heldFor / time.Microsecond))
	}
}

// TestHoldsOverSeveralOwners: each owner holds its part, all or nothing, and a settlement reaches
// each.
func TestHoldsOverSeveralOwners(t *testing.T) {
	worlds(t)
	s := newSubject(t,
		"version: 1\nrules: [{name: login, keys: [[ip], [user]], limits: [{limit: 10, window: 1h, algorithm: "+
			"fixed_window}]}]\n").(*subject)
	several := 0
	for u := range 20 {
		r := limiter.Request{User: fmt.Sprint("u", u), IP: fmt.Sprint("10.0.0.", u), ID: "one", Hold: time.Minute,
			Cost: limiter.Units(8)}
		amend := func(of limiter.Request, cost int64, a limiter.Amend, want limiter.AmendState) {
			t.Helper()
			of.Cost = limiter.Units(cost)
			if got, err := s.Amend(t.Context(), of, limiter.Settling{Amend: a}); err != nil || got.State != want {
				t.Fatalf("amended to %d: %+v, %v, want %v", cost, got, err, want)
			}
		}
		left := func(ip, user uint64, when string) {
			t.Helper()
			d := new(limiter.Decision)
			peek := limiter.Request{User: r.User, IP: r.IP}
			if err := s.PeekInto(t.Context(), &peek, d); err != nil || d.Limit(0).Remaining != ip ||
				d.Limit(1).Remaining != user {
				t.Fatalf("%s: %d and %d left, want %d and %d (%v)", when, d.Limit(0).Remaining, d.Limit(1).Remaining, ip, user, err)
			}
		}
		if d := asked(t, s, &r); !d.Allowed {
			t.Fatal("denied")
		} else if d.Limit(0).Owner != d.Limit(1).Owner {
			several++
		}
		left(2, 2, "held")
		x := limiter.Request{User: r.User + "x", IP: fmt.Sprint("10.1.0.", u), Cost: limiter.Units(5)}
		asked(t, s, &x)
		other := limiter.Request{User: r.User + "x", IP: r.IP, ID: "two", Hold: time.Minute, Cost: limiter.Units(5)}
		if d := asked(t, s, &other); d.Allowed {
			t.Fatal("admitted beyond what the address has")
		}
		left(2, 2, "another was denied")
		amend(r, 9, limiter.Amend{Extend: true}, limiter.AmendDone)
		left(1, 1, "extended")
		// What one owner denies no other adds, and none lets the reservation last longer for it.
		third := limiter.Request{User: r.User + "y", IP: r.IP, ID: "three", Hold: 5 * time.Second, Cost: limiter.Units(1)}
		asked(t, s, &third)
		long := r
		long.Hold = 10 * time.Minute
		amend(long, 10, limiter.Amend{Extend: true}, limiter.AmendDenied)
		left(0, 1, "an extension was denied")
		if u%2 == 0 {
			s.SetTime(s.clock + limiter.Minute)
			left(10, 10, "the reservations have ended")
			continue
		}
		amend(third, 0, limiter.Amend{}, limiter.AmendDone)
		amend(r, 3, limiter.Amend{}, limiter.AmendDone)
		left(7, 7, "settled")
		amend(r, 3, limiter.Amend{}, limiter.AmendRepeated)
		amend(r, 4, limiter.Amend{}, limiter.AmendSettled)
		// What the address denied is held nowhere: it is not known to the user's owner either.
		unknown := limiter.Request{User: r.User + "x", IP: r.IP, ID: "two"}
		amend(unknown, 5, limiter.Amend{IgnoreUnknown: true}, limiter.AmendUnknown)
		s.SetTime(s.clock + 2*limiter.Minute) // and gives nothing back at its end
		d := new(limiter.Decision)
		if err := s.PeekInto(t.Context(), &x, d); err != nil || d.Limit(1).Remaining != 5 {
			t.Fatalf("another user has %d left, want 5 (%v)", d.Limit(1).Remaining, err)
		}
	}
	if several == 0 {
		t.Error("premise: some checks have several owners")
	}
}

// TestAPausedHeirEndsWhatIsOver: the heir has a reservation and stands still. Its owner admits another one,
// and crashes. What the heir hears when it goes on lets both last longer there; but the first one is
// over for its client, and for the heir that takes over: it counts what was used, once.
func TestAPausedHeirEndsWhatIsOver(t *testing.T) {
	worlds(t)
	eachSeed(t, func(t *testing.T, seed uint64) {
		d := direct(t, seed, 3, limiter.UnreachableClosed, limiter.ReplicationLag)
		owner, heir := d.holder(peer.Owned), d.holder(peer.Heir)
		third := d.others(owner, heir)[0]
		d.reserve(owner, 1, 10)
		d.pass(300 * ms) // the heir has it
		heir.pause()
		// Within the time in which the owner does without its heir's word: D is 3.
		d.reserve(owner, 2, 1)
		d.pass(20 * ms)
		owner.crash(true)
		d.pass(limiter.Span(heldFor) + limiter.Second)
		heir.resume()
		d.pass(2 * limiter.Second)
		d.settledAs(third, 1, 4, limiter.AmendCharged)
		d.settledAs(third, 1, 4, limiter.AmendRepeated)
		d.pass(2 * limiter.Minute)
		d.counts(4, "in the end")
	})
}
