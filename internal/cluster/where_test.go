package cluster

import (
	"testing"

	"github.com/weirlimit/weir/limiter"
)

// What waits is told: a check that waits for its owner, the frame that it is in until that
// is taken, and in the end the counter of the policy that decided it.
func TestWhatWaitsIsTold(t *testing.T) {
	c, _, h, charge := single(t, limiter.UnreachableLocal)
	step := func(what string, waiting, queued, fallback int) {
		t.Helper()
		if s := c.Summary(); s.Waiting != waiting || s.Queued != queued || s.Fallback != fallback {
			t.Errorf("%s: %+v, want %d, %d and %d", what, s, waiting, queued, fallback)
		}
	}
	step("at first", 0, 0, 0)
	answered := false
	c.Begin(charge, new(limiter.Decision), h.now+300*limiter.Millisecond, func() { answered = true })
	step("asked", 1, 1, 0)
	drain(c)
	step("under way", 1, 0, 0)
	for range 5 {
		h.pass(80 * limiter.Millisecond)
		drain(c)
	}
	if !answered {
		t.Fatal("no policy answers")
	}
	step("answered", 0, 0, 1)
}
