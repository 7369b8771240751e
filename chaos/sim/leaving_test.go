package sim

import (
	"testing"

	"github.com/weirlimit/weir/internal/peer"
	"github.com/weirlimit/weir/limiter"
)

// TestLeavingDuringASplit: three of five members have the owner, and decide without its heir. Two of
// them leave. Gossip has told the heir's side so, and the third tells it by a link that fails
// again before it says more. It is no majority: those that left still count, since they saw
// no more than half of the others, until they are forgotten.
func TestLeavingDuringASplit(t *testing.T) {
	worlds(t)
	// In a sixth of all seeds the link fails in time. In these it does.
	for _, seed := range []uint64{23, 24, 35, 36, 37, 40} {
		d := direct(t, seed, 5, limiter.UnreachableClosed, limiter.ReplicationStrict)
		owner, heir := d.holder(peer.Owned), d.holder(peer.Heir)
		rest := d.others(owner, heir)
		third, minority, leave := rest[2], []*Node{heir, rest[0]}, []*Node{owner, rest[1]}
		d.part(minority, append(leave, third))
		d.pass(2500 * ms)
		d.demandAt(third, 200, 5*ms)
		d.pass(1500 * ms)
		for _, n := range leave {
			n.leave(func() {})
			d.pass(5 * ms)
		}
		d.pass(4 * limiter.Second)
		for _, n := range minority {
			for _, gone := range leave {
				d.heard[pair{n.inst, gone.inst}] = true
			}
		}
		d.pass(500 * ms)
		d.demandAt(heir, 400, 10*ms)
		d.link([]*Node{third}, minority[:1])
		for !d.conn(pair{third.inst, heir.inst}).up {
			d.pass(ms / 100)
		}
		for range 300 {
			if d.pass(ms / 100); len(heir.core.Registry().Dead()) == 1 {
				break
			}
		}
		d.part([]*Node{third}, minority[:1])
		d.pass(4 * limiter.Second)
		d.heal()
		d.pass(2 * limiter.Second)
		for _, n := range d.live() {
			for _, gone := range leave {
				d.forget(n, gone)
			}
		}
		d.pass(8 * limiter.Second)
		d.demandAt(heir, 20, 20*ms)
		d.pass(2 * limiter.Second)
		d.atMost(limitOfDirected)
		d.settles()
	}
}

// TestTheLastFramesOfALeavingNode: what a node has sent before it ends arrives, as on connections that end
// orderly. So a check that it charged just before it handed over is not charged again.
func TestTheLastFramesOfALeavingNode(t *testing.T) {
	worlds(t)
	eachSeed(t, func(t *testing.T, seed uint64) {
		d := direct(t, seed, 3, limiter.UnreachableClosed, limiter.ReplicationStrict)
		owner := d.holder(peer.Owned)
		asks := d.others(owner, d.holder(peer.Heir))[0]
		d.slow[pair{owner.inst, asks.inst}] = 75 * ms // a node that has left ends after 50 ms
		gone := false
		owner.leave(func() { gone = true })
		d.demandAt(asks, 5, ms)
		d.pass(4 * limiter.Second)
		if used := d.holder(peer.Owned).used(d.key); !gone || used != 5 || len(d.given) != 5 {
			d.fails("gone %v: %d admitted, %d charged, want 5", gone, len(d.given), used)
		}
	})
}

// TestWhoLeavesWhileAnotherStarts: a member starts, is connected to one that leaves then, and gossip never tells it of
// that one; perhaps the two are cut off from each other, too. The others tell it that it has left: it is no dead
// member, which would count for good.
func TestWhoLeavesWhileAnotherStarts(t *testing.T) {
	worlds(t)
	eachSeed(t, func(t *testing.T, seed uint64) {
		for _, cutOff := range []bool{false, true} {
			d := direct(t, seed, 3, limiter.UnreachableClosed, limiter.ReplicationLag)
			leaver := d.others(d.holder(peer.Owned))[0]
			d.start("y", false, leaver.rules, 4)
			y := d.live()[3]
			for !d.conn(pair{y.inst, leaver.inst}).up {
				d.pass(ms)
			}
			d.pass(ms)
			if cutOff {
				d.part([]*Node{y}, []*Node{leaver})
			}
			leaver.leave(func() {})
			d.pass(6 * limiter.Second)
			if dead := y.core.Registry().Dead(); len(dead) != 0 {
				d.fails("cut off %v: %+v counts as dead at the member that started while it left", cutOff, dead)
			}
			d.settles()
		}
	})
}

// TestWhoLeavesSaysSoItself: the only member that knows that another has left ends at that moment. The one that has
// left tells the member that has just started, which else waits for it for good.
func TestWhoLeavesSaysSoItself(t *testing.T) {
	worlds(t)
	eachSeed(t, func(t *testing.T, seed uint64) {
		d := direct(t, seed, 2, limiter.UnreachableClosed, limiter.ReplicationLag)
		stays := d.holder(peer.Owned)
		leaver := d.others(stays)[0]
		leaver.asked++ // a client waits, so it does not end at once
		leaver.leave(func() {})
		for leaver.leftAt == 0 {
			d.pass(ms)
		}
		d.start("y", false, stays.rules, 4)
		y := d.live()[2]
		for !d.conn(pair{y.inst, stays.inst}).up {
			d.pass(ms)
		}
		d.pass(ms)
		stays.crash(true)
		d.start(stays.name, false, stays.rules, 4)
		d.pass(15 * limiter.Second)
		for _, n := range d.live() {
			if dead := n.core.Registry().Dead(); len(dead) != 0 {
				d.fails("%+v counts as dead at %s", dead, n.name)
			}
		}
		d.settles()
	})
}

// TestWhoLeavesWhenGossipFails: gossip takes a member that has left for dead. The others know from it that it has left.
func TestWhoLeavesWhenGossipFails(t *testing.T) {
	worlds(t)
	eachSeed(t, func(t *testing.T, seed uint64) {
		d := direct(t, seed, 3, limiter.UnreachableClosed, limiter.ReplicationLag)
		leaver := d.others(d.holder(peer.Owned))[0]
		leaver.leave(func() {})
		for leaver.leftAt == 0 {
			d.pass(ms)
		}
		leaver.leftAt = 1 // too long ago for gossip to tell
		d.pass(6 * limiter.Second)
		for _, n := range d.live() {
			if r := n.rumours[leaver.name]; r == nil || r.State != peer.Dead {
				d.fails("premise: gossip of %s does not call it dead", n.name)
			}
			if dead := n.core.Registry().Dead(); len(dead) != 0 {
				d.fails("%+v counts as dead at %s", dead, n.name)
			}
		}
	})
}
