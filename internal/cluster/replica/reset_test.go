package replica

import (
	"testing"

	"github.com/weirlimit/weir/limiter/arith"
)

// of returns a key with a hash.
func of(hi uint64) *arith.Key { return &arith.Key{Hash: arith.Hash{Hi: hi}} }

// TestResetsHaveABound: an ownership remembers the latest resets, each key once.
func TestResetsHaveABound(t *testing.T) {
	var r resets
	for i := range uint64(3 * maxResets) {
		r.Reset(of(i), 1)
		r.Reset(of(3*maxResets-1), 1)
	}
	if n := len(r.reset); n != maxResets {
		t.Errorf("%d keys are remembered, want %d", n, maxResets)
	}
	for hi, want := range map[uint64]bool{0: false, 2*maxResets - 1: false, 2 * maxResets: true, 3*maxResets - 2: true,
		3*maxResets - 1: true} {
		if got := r.resetSince(hi, 1); got != want {
			t.Errorf("key %d of %d: remembered %v, want %v", hi, 3*maxResets, got, want)
		}
	}
}

// TestAResetIsOfItsEpoch: what later owners have was counted after the reset.
func TestAResetIsOfItsEpoch(t *testing.T) {
	var r resets
	r.Reset(of(7), 4)
	for counter, want := range map[uint64]bool{1: true, 4: true, 5: false} {
		if got := r.resetSince(7, counter); got != want {
			t.Errorf("pushed by an owner of epoch %d: left out %v, want %v", counter, got, want)
		}
	}
}
