package sim

import (
	"testing"

	"github.com/weirlimit/weir/internal/peer"
	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/limiter/arith"
)

// A cluster whose owners lend units keeps the bounds that it keeps without.
func TestLeasesKeepTheBounds(t *testing.T) {
	worlds(t)
	all, clients := 0, 0
	for kind := range Kinds {
		lent := 0
		for seed := range seeds(t, 6) {
			w := worldOf(kind, uint64(seed))
			w.near.lending.clients = seed%3 < 2
			if w.near.lending.on = true; seed%2 > 0 {
				w.stronger, w.broader = newStronger(kind, uint64(seed)), newBroader(kind, uint64(seed))
			}
			if err := w.play(kind, uint64(seed)); err != nil {
				t.Error(err)
			}
			lent += w.near.lending.units
			clients += w.near.lending.byClients
		}
		t.Logf("%v: %d units were admitted by leases", kind, lent)
		all += lent
	}
	if all < 500 || clients < 200 {
		t.Errorf("%d units were admitted by leases, %d of clients: there is little to judge", all, clients)
	}
}

// A big check at the owner is admitted although nearly all that is left of its key is lent: the owner recalls it. If
// the holder is gone, the check is denied a little later.
func TestABigCheckRecallsWhatIsLent(t *testing.T) {
	eachSeed(t, func(t *testing.T, seed uint64) {
		for _, gone := range []bool{false, true} {
			w := newWorld(seed)
			w.near.lending.on = true
			d := directIn(t, w, 3, 200, limiter.UnreachableClosed, limiter.ReplicationLag)
			owner, holder := d.holder(peer.Owned), d.holder(peer.Heir)
			asker := d.others(owner, holder)[0]
			for d.near.lending.units == 0 && d.key.asked < 100 { // a check each 1 ms is hot
				d.ask(d.key, holder, 1, true)
				d.pass(ms)
			}
			lent, left := d.near.lending.lent(d.World, d.key), d.leftIn(owner)
			if lent < 16 {
				t.Fatalf("%d units are lent after %d checks", lent, d.key.asked)
			}
			if gone {
				d.part([]*Node{holder}, d.others(holder))
			}
			for _, n := range []*Node{owner, asker} {
				a := d.asking(d.key, n, uint64(left)+8, true, new(arith.Charge), new(limiter.Decision))
				began, took := d.now, limiter.Tick(0)
				n.do(func() { n.core.Begin(a.charge, a.answer, 0, func() { took = d.now - began; a.done() }) })
				d.pass(60 * ms)
				if !gone && n == owner && !a.answer.Allowed || gone && a.answer.Allowed || took > 40*ms {
					d.fails("gone %v: %d units of %d and %d lent: allowed %v after %d us", gone, left+8, left, lent,
						a.answer.Allowed, took)
				}
			}
		}
	})
}
