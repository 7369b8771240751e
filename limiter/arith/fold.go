package arith

import "github.com/weirlimit/weir/limiter"

// Fold merges the limits of a decision in pairs: limit i of the first half with limit i of the
// second half. Both count the same requests, so the stricter of the two stays. Fold returns
// one bit for each limit that stays, set if it comes from the second half. The receipt still
// names all of them. A decision with an odd number of limits stays as it is.
func Fold(d *limiter.Decision) (second uint64) {
	n := d.Len() / 2
	if n == 0 || d.Len()%2 != 0 {
		return 0
	}
	for i := range n {
		a, b := d.Limit(i), d.Limit(n+i)
		if !stricter(b, a) {
			continue
		}
		key, rule := a.Key, a.Rule
		*a = *b
		if a.Key, a.Rule = key, rule; i < 64 {
			second |= 1 << i
		}
	}
	if s := d.Steps(); int(s.Blocked) > n {
		s.Blocked -= int16(n)
	}
	all := d.Limits()
	d.Grow(n)
	copy(d.Limits(), all)
	return second
}

// stricter reports whether a admits less than b.
func stricter(a, b *limiter.LimitDecision) bool {
	switch {
	case a.Allowed != b.Allowed:
		return !a.Allowed
	case a.RetryAfter != b.RetryAfter:
		return a.RetryAfter > b.RetryAfter
	case a.Remaining != b.Remaining:
		return a.Remaining < b.Remaining
	default:
		return a.ResetAfter > b.ResetAfter
	}
}
