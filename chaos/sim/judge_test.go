package sim

import (
	"testing"

	"github.com/weirlimit/weir/limiter"
)

// TestAPolicyIsJudgedByKey: of a check over two owners, of which one is out of reach, the
// policy decides one key only. The other does not count against the policy's share.
func TestAPolicyIsJudgedByKey(t *testing.T) {
	l, err := limiter.NewLimit(limiter.Spec{Limit: 60, Window: 24 * 3600 * 1e9})
	if err != nil {
		t.Fatal(err)
	}
	r := &limiter.Rule{Name: "pair", Limits: []*limiter.Limit{l}, OnUnreachable: limiter.UnreachableLocal}
	d := &limiter.Decision{Allowed: true, Source: limiter.SourceFallbackLocal}
	limiter.Grow(d, 2)
	*d.Limit(0) = limiter.LimitDecision{Rule: r, Limit: l, Key: 0, Allowed: true}
	*d.Limit(1) = limiter.LimitDecision{Rule: r, Limit: l, Key: 1, Allowed: true, Owner: "b"}
	n := &Node{name: "c", inst: 7, w: newWorld(1)}
	for i, want := range []struct{ byPolicy, lost, admitted int }{{2, 2, 0}, {0, 0, 2}} {
		k := &key{rule: r, byPolicy: make(map[string]int)}
		k.answered(n, d, i, 2)
		units := 0
		for _, of := range k.byPolicy {
			units += of
		}
		if units != want.byPolicy || k.lost != want.lost || k.admitted != want.admitted {
			t.Errorf("key %d: %d units by policy, %d lost, %d admitted by an owner; want %+v", i, units, k.lost, k.admitted, want)
		}
	}
}
