package frontend

import (
	"testing"
	"time"

	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/limiter/limitertest"
)

// A check that is repeated makes no new key, although its key has nothing else that counts:
// the budget of new keys was charged by the first one.
func TestRepetitionsMakeNoKeys(t *testing.T) {
	minute := limitertest.Limit(t, limiter.Spec{Limit: 5, Window: time.Minute})
	var d limiter.Decision
	d.Clear()
	d.Grow(1)
	l := d.Limit(0)
	*l = limiter.LimitDecision{Limit: minute, Allowed: true, Cost: 1, Remaining: minute.Capacity() - 1}
	if n := newKeys(&d); n != 1 {
		t.Errorf("a first check makes %d keys", n)
	}
	d.Repeated = true
	if n := newKeys(&d); n != 0 {
		t.Errorf("its repetition makes %d keys", n)
	}
}
