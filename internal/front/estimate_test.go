package front

import (
	"testing"

	"github.com/weirlimit/weir/limiter"
)

// An estimate is what the rules in force have charged.
func TestEstimate(t *testing.T) {
	for name, test := range map[string]struct {
		costs, shadow []uint64
		want          int64
	}{"in force": {[]uint64{3, 5}, []uint64{9}, 5}, "in shadow": {nil, []uint64{9, 2}, 9}, "none": {nil, nil, 0}} {
		var d limiter.Decision
		d.Grow(len(test.costs) + len(test.shadow))
		for i, cost := range append(test.costs, test.shadow...) {
			*d.Limit(i) = limiter.LimitDecision{Rule: &limiter.Rule{Shadow: i >= len(test.costs)}, Cost: cost}
		}
		if got := Estimate(&d); got != test.want {
			t.Errorf("%s: %d, want %d", name, got, test.want)
		}
	}
}
