package cluster

import (
	"testing"

	"github.com/weirlimit/weir/limiter"
)

// Summary counts what waits: a check that waits for its owner, the frame with it until
// the frame is taken, and finally the counter of the policy that decided it.
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
