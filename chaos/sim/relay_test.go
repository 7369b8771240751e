package sim

import (
	"testing"

	"github.com/weirlimit/weir/internal/peer"
	"github.com/weirlimit/weir/limiter"
)

// TestARelayThatHasEnded: two members are not connected, and one that carried frames between them has ended,
// which nobody has noticed on its connections. Every check is answered by its owner, since another member is
// connected to both: also while gossip calls the ended one alive, but for those that it got before it was found silent.
func TestARelayThatHasEnded(t *testing.T) {
	worlds(t)
	for name, test := range map[string]struct {
		wait limiter.Tick
		most int // by policy
	}{"out of the view": {4 * limiter.Second, 0}, "in the view": {200 * ms, 2}} {
		t.Run(name, func(t *testing.T) {
			eachSeed(t, func(t *testing.T, seed uint64) {
				d := direct(t, seed, 4, limiter.UnreachableClosed, limiter.ReplicationStrict)
				owner, heir := d.holder(peer.Owned), d.holder(peer.Heir)
				rest := d.others(owner, heir)
				asker, relay := rest[0], rest[1]
				d.part([]*Node{asker}, []*Node{owner})
				d.part([]*Node{asker}, []*Node{heir}) // so that the relay is the only one
				d.demandAt(asker, 20, 20*ms)
				d.pass(limiter.Second)
				d.link([]*Node{asker}, []*Node{heir})
				d.snap(pair{asker.inst, owner.inst}, 0) // and stays down
				relay.crash(false)
				d.pass(test.wait)
				before := d.key.fallbacks
				d.demandAt(asker, 10, 50*ms)
				d.pass(limiter.Second)
				if n := d.key.fallbacks - before; n > test.most {
					d.fails("%d of 10 checks are answered by policy, at most %d may be", n, test.most)
				}
			})
		})
	}
}
