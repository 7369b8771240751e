package front

import "github.com/weirlimit/weir/limiter"

// Estimate returns the units that a decision has charged: the largest cost among the rules in
// force, or among those in shadow if there are no others.
func Estimate(d *limiter.Decision) int64 {
	var costs [2]uint64
	for i := range d.Len() {
		l, shadow := d.Limit(i), 0
		if l.Rule.Shadow {
			shadow = 1
		}
		costs[shadow] = max(costs[shadow], l.Cost)
	}
	if costs[0] > 0 {
		return int64(costs[0])
	}
	return int64(costs[1])
}
