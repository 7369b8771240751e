package replica

import (
	"testing"

	"github.com/weirlimit/weir/limiter"
)

// TestResetsHaveABound: an ownership remembers the latest resets, each key once.
func TestResetsHaveABound(t *testing.T) {
	var r resets
	for i := range uint64(3 * maxResets) {
		r.Reset(&limiter.Key{Hash: limiter.Hash{Hi: i}})
		r.Reset(&limiter.Key{Hash: limiter.Hash{Hi: 3*maxResets - 1}})
	}
	if n := len(r.reset); n != maxResets {
		t.Errorf("%d keys are remembered, want %d", n, maxResets)
	}
	for hi, want := range map[uint64]bool{0: false, 2*maxResets - 1: false, 2 * maxResets: true, 3*maxResets - 2: true, 3*maxResets - 1: true} {
		if got := r.wasReset(hi); got != want {
			t.Errorf("key %d of %d: remembered %v, want %v", hi, 3*maxResets, got, want)
		}
	}
}
