package sim

import (
	"testing"

	"github.com/weirlimit/weir/internal/peer"
	"github.com/weirlimit/weir/limiter"
)

// The clock of an owner differs from that of the member that is asked. The member says so if the difference is
// certainly above what is tolerated, however slow the link is; not if it is below; and no more once no answer has shown
// it for a minute.
func TestClocksThatDifferAreSeen(t *testing.T) {
	worlds(t)
	for name, c := range map[string]struct {
		skew, slow limiter.Tick
		seen       bool
	}{
		"ahead": {800 * ms, 0, true}, "behind": {-800 * ms, 0, true}, "over a slow link": {800 * ms, 60 * ms, true},
		"a little ahead": {200 * ms, 0, false}, "a little behind": {-200 * ms, 60 * ms, false}, "right": {0, 100 * ms, false},
	} {
		t.Run(name, func(t *testing.T) {
			eachSeed(t, func(t *testing.T, seed uint64) {
				d := direct(t, seed, 3, limiter.UnreachableClosed, limiter.ReplicationLag)
				for _, n := range d.live() {
					n.clock = clock{}
				}
				d.pass(2 * limiter.Minute) // what was seen before is forgotten
				owner := d.holder(peer.Owned)
				third := d.others(owner, d.holder(peer.Heir))[0]
				d.slow[pair{owner.inst, third.inst}] = c.slow
				owner.clock.skew = c.skew
				d.demandAt(third, 20, 50*ms)
				d.pass(2 * limiter.Second)
				of, by := third.core.ClockDifference()
				switch {
				case !c.seen && of != 0:
					d.fails("%v differs by %v at least", of, by.Duration())
				case c.seen && (of != owner.inst || by > 800*ms || by < 600*ms):
					d.fails("%v differs by %v at least, want %s by up to 800 ms", of, by.Duration(), owner.name)
				}
				d.pass(2 * limiter.Minute)
				if of, _ := third.core.ClockDifference(); of != 0 {
					d.fails("%v differs after two minutes without an answer", of)
				}
			})
		})
	}
}
