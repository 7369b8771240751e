package transport

import (
	"testing"

	"github.com/weirlimit/weir/limiter"
)

// A check that is repeated makes no new key, although its key has nothing else that counts:
// the budget of new keys was charged by the first one.
func TestRepetitionsMakeNoKeys(t *testing.T) {
	minute, _, _ := limits3(t)
	var d limiter.Decision
	d.Clear()
	limiter.Grow(&d, 1)
	l := d.Limit(0)
	*l = minute
	l.Allowed, l.Overflow, l.InForce, l.Cost, l.Remaining = true, false, 0, 1, minute.Limit.Capacity()-1
	if n := NewKeys(&d); n != 1 {
		t.Errorf("a first check makes %d keys", n)
	}
	d.Repeated = true
	if n := NewKeys(&d); n != 0 {
		t.Errorf("its repetition makes %d keys", n)
	}
}
