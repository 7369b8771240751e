package arith

import (
	"math/bits"
	"slices"

	"github.com/weirlimit/weir/limiter"
)

// Estimates compares what the rules of a reservation have reserved. One number settles them only if they
// have reserved the same: what was used of one unit, such as tokens, is not what was used of another, such
// as requests. The zero value has none.
type Estimates struct {
	rule         *limiter.Rule
	cost         uint64
	first, other uint64 // the estimate of the first key, and the first that differs from it; 0 if none does
}

// Compared reports whether the estimate of a key is compared with those of others. It is not if the rule is in
// shadow, since no request fails by that; if it has only limits on concurrency, whose slots end whatever was
// used; and if it is settled with 0.
func (k *Key) Compared() bool {
	rates := func(l *limiter.Limit) bool { return l.Algorithm() != limiter.Concurrency }
	return k.Cost > 0 && !k.Rule.Shadow && slices.ContainsFunc(k.Rule.Limits, rates)
}

// Add adds the estimate of a key that is settled. A quota on which several rules draw is settled with the number
// once for each draw, and has reserved as often: so what counts is how an estimate compares to what its key is
// settled with. The keys of one rule have one cost: if their estimates differ, an extension was made at some
// owners only.
func (e *Estimates) Add(k *Key, estimate uint64) {
	switch {
	case !k.Compared():
	case e.rule == nil:
		e.rule, e.cost, e.first = k.Rule, k.Cost, estimate
	case k.Rule.Name != e.rule.Name && e.other == 0 && !proportional(estimate, e.first, k.Cost, e.cost):
		e.other = estimate
	}
}

// Differ reports whether one number cannot settle what was added, of a reservation of a shape, and returns what says
// so. Draws that add up in one key are no number of any rule, so they are told before rules that differ, and without
// an estimate that differs.
func (e *Estimates) Differ(s Shape) (limiter.Amended, bool) {
	switch {
	case e.first != 0 && s.Unlike():
		return limiter.Amended{State: limiter.AmendDiffers, Estimate: e.first}, true
	case e.other != 0:
		return limiter.Amended{State: limiter.AmendDiffers, Estimate: e.first, First: e.other}, true
	default:
		return limiter.Amended{}, false
	}
}

func proportional(a, b, c, d uint64) bool {
	hi, lo := bits.Mul64(a, d)
	hi2, lo2 := bits.Mul64(b, c)
	return hi == hi2 && lo == lo2
}
