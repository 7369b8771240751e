package front

import "github.com/weirlimit/weir/limiter"

// Estimate returns the units that a decision reserved: the largest cost of its limits.
func Estimate(d *limiter.Decision) (units int64) {
	for i := range d.Len() {
		units = max(units, int64(d.Limit(i).Cost))
	}
	return units
}
