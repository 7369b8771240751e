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

// tryAt asks a node for one unit with an id, and returns the answer.
func (d *directed) tryAt(n *Node, id uint64) *limiter.Decision {
	d.t.Helper()
	c := &arith.Charge{ID: &arith.Idempotency{ID: id, Life: time.Hour}}
	c.Add(d.key.key(n, 1))
	return d.answer(n, c)
}

func (d *directed) answer(n *Node, c *arith.Charge) *limiter.Decision {
	d.t.Helper()
	answer, done := new(limiter.Decision), false
	n.do(func() { n.core.Begin(c, answer, 0, func() { done = true }) })
	for end := d.now + 2*limiter.Second; !done && d.now < end; {
		d.pass(ms)
	}
	if !done || answer.Source.ByPolicy() {
		d.fails("answered %t, by %v", done, answer.Source)
	}
	return answer
}

// counted returns how many units the owner has counted.
func (d *directed) counted() int { return d.holder(peer.Owned).used(d.key) }

// TestIDsCountOnce: a check that is repeated counts once, at whichever members it is asked: also
// after its owner has left, or has crashed with everything acknowledged.
func TestIDsCountOnce(t *testing.T) {
	worlds(t)
	for name, happens := range map[string]func(d *directed, owner *Node){
		"nothing": func(*directed, *Node) {},
		"leaves":  func(d *directed, owner *Node) { owner.leave(func() {}); d.pass(8 * limiter.Second) },
		"crashes": func(d *directed, owner *Node) { owner.crash(true); d.pass(8 * limiter.Second) },
	} {
		t.Run(name, func(t *testing.T) {
			eachSeed(t, func(t *testing.T, seed uint64) {
				d := direct(t, seed, 3, limiter.UnreachableClosed, limiter.ReplicationLag)
				const ids = 10
				for id := range uint64(ids) {
					for i, n := range d.live() {
						if a := d.tryAt(n, id+1); !a.Allowed || a.Repeated != (i > 0) {
							d.fails("try %d of %d: allowed %t, repeated %t", i, id, a.Allowed, a.Repeated)
						}
					}
				}
				d.pass(limiter.Second)
				happens(d, d.holder(peer.Owned))
				for id := range uint64(ids) {
					for _, n := range d.live() {
						if a := d.tryAt(n, id+1); !a.Allowed || !a.Repeated {
							d.fails("then %d at %s: allowed %t, repeated %t", id, n.name, a.Allowed, a.Repeated)
						}
					}
				}
				if n := d.counted(); n != ids {
					d.fails("%d are counted, want %d", n, ids)
				}
			})
		})
	}
}

// TestIDsAreLostWithTheirCharges: an owner crashes at once. What its heir lacks is charged again,
// and only that: charges and ids are lost together.
func TestIDsAreLostWithTheirCharges(t *testing.T) {
	worlds(t)
	eachSeed(t, func(t *testing.T, seed uint64) {
		d := direct(t, seed, 3, limiter.UnreachableClosed, limiter.ReplicationLag)
		const ids = 20
		owner := d.holder(peer.Owned)
		for id := range uint64(ids) {
			d.tryAt(owner, id+1)
		}
		owner.crash(true)
		d.pass(8 * limiter.Second)
		lost := 0
		for id := range uint64(ids) {
			if a := d.tryAt(d.live()[0], id+1); !a.Repeated {
				lost++
			}
		}
		if most := 3; lost > most { // D of a limit of 60
			d.fails("%d were charged again, at most %d", lost, most)
		}
		if n := d.counted(); n != ids {
			d.fails("%d are counted, want %d: %d were charged again", n, ids, lost)
		}
	})
}

// TestIDsInABatch: checks of one batch with one id count once.
func TestIDsInABatch(t *testing.T) {
	worlds(t)
	d := direct(t, 1, 3, limiter.UnreachableClosed, limiter.ReplicationStrict)
	for _, n := range d.live() {
		charges, answers := make([]arith.Charge, 6), make([]limiter.Decision, 6)
		for i := range charges {
			charges[i].Add(d.key.key(n, 1))
			charges[i].ID = &arith.Idempotency{ID: uint64(1 + i%2), Life: time.Hour}
		}
		n.do(func() { n.core.BeginMany(charges, answers, 0, false, func() {}) })
		d.pass(300 * ms)
		for i := range answers {
			if !answers[i].Allowed || answers[i].Source.ByPolicy() {
				d.fails("%s: check %d: %+v", n.name, i, answers[i].Limit(0))
			}
		}
	}
	if n := d.counted(); n != 2 {
		d.fails("%d are counted, want 2", n)
	}
}

// TestARefundForgetsAnID: after a refund the check counts again. The receipt of a repetition
// names the charge, but for that of an earlier owner: then there is none.
func TestARefundForgetsAnID(t *testing.T) {
	worlds(t)
	d := direct(t, 1, 3, limiter.UnreachableClosed, limiter.ReplicationLag)
	n := d.others(d.holder(peer.Owned))[0]
	d.tryAt(n, 1)
	again := d.tryAt(n, 1)
	c := &arith.Charge{ID: &arith.Idempotency{ID: 1, Life: time.Hour}}
	c.Add(d.key.key(n, 1))
	n.do(func() { n.core.Refund(c, again.Receipt, func(route.Outcome) {}) })
	d.pass(300 * ms)
	if used := d.counted(); used != 0 {
		d.fails("%d are counted after the refund", used)
	}
	if a := d.tryAt(n, 1); a.Repeated {
		d.fails("it is repeated after the refund")
	}
	d.pass(limiter.Second)
	d.holder(peer.Owned).crash(true)
	d.pass(8 * limiter.Second)
	if a := d.tryAt(d.live()[0], 1); !a.Repeated || a.Receipt != (limiter.Receipt{}) {
		d.fails("after a takeover: repeated %t, %+v", a.Repeated, a.Receipt)
	}
}

// TestIDsOverSeveralOwners: each owner remembers its part. A check that one of them denies counts
// at none, and is not remembered.
func TestIDsOverSeveralOwners(t *testing.T) {
	worlds(t)
	s := newSubject(t,
		"version: 1\nrules: [{name: login, keys: [[ip], [user]], limits: [{limit: 3, window: 1h, algorithm: "+
			"fixed_window}]}]\n").(*subject)
	several := 0
	for u := range 20 {
		r := limiter.Request{User: string(rune('a' + u)), IP: fmt.Sprint("10.0.0.", u), ID: "one"}
		for i := range 4 {
			d := asked(t, s, &r)
			if !d.Allowed || d.Repeated != (i > 0) || d.Limit(0).Remaining != 2 || d.Limit(1).Remaining != 2 {
				t.Fatalf("try %d: allowed %t, repeated %t, %d and %d left", i, d.Allowed, d.Repeated, d.Limit(0).Remaining,
					d.Limit(1).Remaining)
			}
			if i == 0 && d.Limit(0).Owner != d.Limit(1).Owner {
				several++
			}
		}
		for range 2 { // now the address has none left
			asked(t, s, &limiter.Request{User: r.User + "x", IP: r.IP})
		}
		next := r
		next.ID = "two"
		for range 3 {
			if d := asked(t, s, &next); d.Allowed || d.Repeated {
				t.Fatalf("what the address denies: allowed %t, repeated %t", d.Allowed, d.Repeated)
			}
		}
		if d := asked(t, s, &r); !d.Repeated {
			t.Error("the first is not repeated any more")
		}
		next.IP = fmt.Sprint("10.0.9.", u)
		if d := asked(t, s, &next); !d.Allowed || d.Repeated || d.Limit(1).Remaining != 1 {
			t.Errorf("with another address: allowed %t, repeated %t, the user has %d left", d.Allowed, d.Repeated,
				d.Limit(1).Remaining)
		}
	}
	if several == 0 {
		t.Error("premise: some checks have several owners")
	}
}

// TestADenialLeavesOutWhatItsIDHasCharged: the id of a check is remembered for one of its keys, by
// an earlier check of that key alone, and another key denies. The owner answers at once, with the
// limits of that one, beside other checks.
func TestADenialLeavesOutWhatItsIDHasCharged(t *testing.T) {
	worlds(t)
	eachSeed(t, func(t *testing.T, seed uint64) {
		d := direct(t, seed, 3, limiter.UnreachableClosed, limiter.ReplicationLag)
		charge := func(id bool, numbers ...int) *arith.Charge {
			c := new(arith.Charge)
			if id {
				c.ID = &arith.Idempotency{ID: 7, Life: time.Hour}
			}
			for i, n := range numbers { // all of the same partition
				k := d.key.key(nil, 1)
				k.Hash.Hi, k.Index = k.Hash.Hi+uint64(n), uint8(i)
				c.Add(k)
			}
			return c
		}
		asked := d.others(d.holder(peer.Owned))[0]
		full := charge(false, 1)
		full.Key(0).Cost = limitOfDirected
		for _, c := range []*arith.Charge{full, charge(true, 0)} {
			if a := d.answer(asked, c); !a.Allowed {
				d.fails("%+v", a)
			}
		}
		charges, answers, open := []arith.Charge{*charge(true, 0, 1), *charge(false, 2), *charge(false, 2)},
			make([]limiter.Decision, 3), 0
		asked.do(func() { open, _ = asked.core.BeginMany(charges, answers, 0, false, func() { open-- }) })
		d.pass(50 * ms)
		if a := &answers[0]; open > 0 || a.Allowed || a.Source.ByPolicy() || a.Len() != 1 || a.Limit(0).Key != 1 ||
			a.Limit(0).Allowed || a.Limit(0).Remaining != 0 {
			d.fails("%d are open, %+v", open, a)
		}
		for i := range answers[1:] {
			if a := &answers[i+1]; !a.Allowed || a.Len() != 1 || a.Limit(0).Remaining != uint64(limitOfDirected-i-1) {
				d.fails("beside it: %+v", a)
			}
		}
	})
}
