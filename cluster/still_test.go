package cluster

import (
	"testing"

	"github.com/weirlimit/weir/limiter"
)

// A node may stand still anywhere, also in the middle of a tick: between any two
// looks at the time. When it goes on, what it did not hear meanwhile says nothing of
// others: here its heir, whose silence of 50 ms lets replies go.
func TestStandingStillAnywhere(t *testing.T) {
	for n := 1; n <= 40; n++ {
		c, p, h, charge := single(t, limiter.UnreachableLocal)
		own(c, p, 3)
		answered := 0
		for range 2 { // D is 5: the first is answered, the second withheld
			c.Begin(charge, new(limiter.Decision), h.now+20*limiter.Second, func() { answered++ })
		}
		h.standStill = n
		for h.standStill > 0 {
			h.pass(tickEvery)
		}
		if answered != 1 && c.Count(EventRaised) > 0 {
			continue // it took so many looks that the policy had spoken before
		}
		h.pass(40 * limiter.Millisecond)
		if answered != 1 || c.Count(EventLate) != 1 {
			t.Errorf("stood still at look %d: %d of 2 checks are answered, late %d times, want 1 and 1", n, answered, c.Count(EventLate))
		}
		h.pass(60 * limiter.Millisecond)
		if answered != 2 || c.Count(EventRaised) == 0 {
			t.Errorf("stood still at look %d: %d of 2 checks are answered in the end: no ping was answered for 100 ms", n, answered)
		}
	}
}
