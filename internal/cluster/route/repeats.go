package route

import (
	"slices"

	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/limiter/arith"
)

// repeated reports whether the check's id is known for all that it would charge. Keys that cost nothing have no id.
func (s *fanOut) repeated() bool {
	n := 0
	charges := func(i int) bool { return s.charge.Key(i).Cost > 0 }
	for _, r := range s.parts {
		switch {
		case r.repeats():
			n++
		case slices.ContainsFunc(r.keys, charges):
			return false
		}
	}
	return n > 0
}

// repeats reports whether the id of the check is known for all keys of a part.
func (r *portion) repeats() bool { return r.answer.Repeated && r.answer.Allowed }

// spent reports whether the id of the check is that of a reservation that is over: see [engine.Spent].
func (r *portion) spent() bool { return r.answer.Repeated && !r.answer.Allowed }

// impossible reports whether the parts only peeked, since a limit can never admit the check's cost, and were all
// allowed: the id is known for that limit's key, from a check with a lower cost, or under a higher limit.
func (s *fanOut) impossible() bool {
	return s.answer.Allowed && !s.charge.Peek && !s.rest && never(s.charge, false)
}

// mayTry reports whether the other keys of such a check can be charged, as one table would: it begins anew then, if
// there is time for that.
func (s *fanOut) mayTry(now limiter.Tick) bool {
	return s.impossible() && !s.repeated() && s.until-now > 2*(now-s.began)+3*aRound
}

// refuse denies such a check. Nothing is charged to the other keys. It reports whether it was so.
func (s *fanOut) refuse() bool {
	if !s.impossible() {
		return false
	}
	for i := range s.answer.Len() {
		if l := s.answer.Limit(i); !l.Rule.Shadow && l.Cost > l.Limit.Capacity() {
			l.Allowed, l.Never = false, true
		}
	}
	arith.Combine(s.answer, true)
	return true
}

// unrepeated removes from a denial the limits of the keys for which the check's id is known:
// an earlier check charged these, and nothing is asked of them any more.
func (s *fanOut) unrepeated() {
	if !slices.ContainsFunc(s.parts, (*portion).repeats) {
		return
	}
	var rest []limiter.LimitDecision
	for i := range s.answer.Len() {
		l := s.answer.Limit(i)
		if r, _ := s.find(l.Key); !r.repeats() {
			rest = append(rest, *l)
		}
	}
	s.answer.Grow(len(rest))
	for i := range rest {
		*s.answer.Limit(i) = rest[i]
	}
}
