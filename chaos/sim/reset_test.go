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

// TestAResetThatAnotherOwnerUndoes: the owner is paused, its heir takes over, and there a key is reset. If that one
// crashes, the third owner knows of no reset when the first goes on, and merges what was admitted before it. The judge
// of resets has to see that, and nothing of the kind where the second owner stays.
func TestAResetThatAnotherOwnerUndoes(t *testing.T) {
	worlds(t)
	for _, stays := range []bool{true, false} {
		d := direct(t, 1, 4, limiter.UnreachableClosed, limiter.ReplicationStrict)
		d.key.policy, d.key.least = limiter.UnreachableClosed, limitOfDirected
		first := d.holder(peer.Owned)
		third := d.others(first, d.holder(peer.Heir))[0]
		d.demandAt(third, 40, 5*ms)
		d.pass(1500 * ms)
		first.pause()
		d.demandAt(third, 3, 5*ms)
		d.pass(1500 * ms)
		second := d.owner(first)
		d.reset(d.key, d.others(first, second)[0])
		d.pass(1500 * ms)
		if !d.key.stands || d.leftIn(second) != limitOfDirected {
			t.Fatalf("premise: the key is reset: %+v, %d left", d.key.reset, d.leftIn(second))
		}
		if !stays {
			second.crash(true)
			d.demandAt(d.others(first, second)[0], 3, 5*ms)
			d.pass(1500 * ms)
		}
		first.resume()
		d.pass(5 * limiter.Second)
		owner := d.owner()
		if undone := d.leftIn(owner) < limitOfDirected-6; undone == stays || d.key.stands != stays {
			t.Errorf("the owner that has reset the key stays %v: %d are left, and the reset is judged to stand: %v", stays,
				d.leftIn(owner), d.key.stands)
		}
	}
}

// owner returns the owner of the highest epoch but for some nodes.
func (d *directed) owner(but ...*Node) (owner *Node) {
	var top peer.Epoch
	for _, n := range d.others(but...) {
		if info, _ := n.core.Partition(d.key.part); info.Role == peer.Owned && !info.Epoch.Before(top) {
			owner, top = n, info.Epoch
		}
	}
	if owner == nil {
		d.t.Fatal("nobody is the owner")
	}
	return owner
}
