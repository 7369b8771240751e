package sim

import (
	"testing"

	"github.com/weirlimit/weir/internal/cluster/route"
	"github.com/weirlimit/weir/internal/peer"
	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/limiter/arith"
)

// TestAResetThatTheHeirHasIsDoneOnce: the owner executes a reset and is paused before it answers.
// Its heir has a copy of that, takes over, and is asked for the reset, too. It does not forget what
// it has admitted meanwhile.
func TestAResetThatTheHeirHasIsDoneOnce(t *testing.T) {
	worlds(t)
	eachSeed(t, func(t *testing.T, seed uint64) {
		d := direct(t, seed, 3, limiter.UnreachableClosed, limiter.ReplicationStrict)
		owner, heir := d.holder(peer.Owned), d.holder(peer.Heir)
		third := d.others(owner, heir)[0]
		d.demandAt(third, 100, 5*ms)
		d.pass(700 * ms)
		var c arith.Charge
		told := 0
		c.Add(d.key.key(third, 1))
		third.do(func() { third.core.Reset(&c, func(route.Outcome) { told++ }) })
		for range 700 {
			if d.leftIn(heir) == limitOfDirected {
				break
			}
			d.pass(100)
		}
		if told != 0 || d.leftIn(heir) != limitOfDirected {
			t.Fatalf("premise: the heir has the reset, and its asker no answer: %d left, told %d times", d.leftIn(heir), told)
		}
		owner.pause()
		d.given, d.key.denied = nil, 0
		d.demandAt(third, 100, 2*ms)
		d.pass(2 * limiter.Second)
		owner.resume()
		d.pass(3 * limiter.Second)
		if told != 1 { // at its deadline, if the new owner has no heir by then
			d.fails("told %d times of a reset", told)
		}
		d.atMost(limitOfDirected)
		d.settles()
	})
}

// leftIn returns what remains of the key in the table of a node.
func (d *directed) leftIn(n *Node) int {
	c, answer := arith.Charge{Peek: true}, new(limiter.Decision)
	c.Add(d.key.key(n, 1))
	if err := n.table.Decide(n.Now(), &c, answer); err != nil {
		d.t.Fatal(err)
	}
	return int(answer.Limit(0).Remaining)
}
