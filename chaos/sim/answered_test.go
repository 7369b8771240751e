package sim

import (
	"testing"

	"github.com/weirlimit/weir/limiter"
)

// TestWhatAFullPolicyLeavesOpen: a policy whose own table is full answers for an owner that may have charged the check
// all the same. Where the owner itself was full, it has not.
func TestWhatAFullPolicyLeavesOpen(t *testing.T) {
	for name, test := range map[string]struct {
		source limiter.Source
		owner  string
		lost   int
	}{
		"a policy":                  {limiter.SourceFallbackClosed, "", 2},
		"a policy, for another key": {limiter.SourceFallbackClosed, "b", 0},
		"an owner":                  {limiter.SourceOwner, "b", 0},
	} {
		k := &key{rule: &limiter.Rule{Name: "r"}}
		d := &limiter.Decision{Source: test.source}
		d.Grow(1)
		d.Limit(0).Overflow, d.Limit(0).Owner = true, test.owner
		if k.answered(&Node{w: newWorld(1), name: "a"}, d, 0, 2, false); k.lost != test.lost || k.crowded != 1 {
			t.Errorf("%s: %d units lost, want %d; %d crowded", name, k.lost, test.lost, k.crowded)
		}
	}
}
