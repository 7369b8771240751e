package arith

import "github.com/weirlimit/weir/limiter"

// Adopt converts a state of the limit old into one of l, so that a changed limit keeps
// its consumption: it admits at most what the larger of the two limits would have left.
// If both limits count in the same way, the state is unchanged. Otherwise all that counts under
// old at now has to be charged to l at now. In that case fresh is true, the state is
// zero except for its block, and the words are void. charge is the number of units,
// possibly 0, that the caller must then charge by [State.Overdraw], which needs no words. A state that [Stays] is not
// to be converted.
//
// It may be more than l admits, and nothing of it is forgotten: the limit may change back. A count
// that its old limit has at its bound may stand for more, so all of l is used then.
//
// A block is kept only if l has blocks, too. Limits on concurrency count what is held, whatever was
// used: see [CountHeld].
func (s *State) Adopt(l, old *limiter.Limit, words []uint64, now limiter.Tick) (charge uint64, fresh bool) {
	c := s.Open(old)
	charge, fresh = c.adopt(of(l), of(old), words, now)
	*s = c.State(l)
	return charge, fresh
}

// Stays reports whether a state of the bucket old stays one while l decides, see [Seen]. It does if l holds less than
// counts: what it cut would be forgotten if the limit changes back. If the request has chosen the number, it is so
// until l charges it, whatever counts: a level leaks under the number that was charged last, and a look changes
// nothing.
func Stays(l, old *limiter.Limit, s *State, chosen bool, now limiter.Tick) bool {
	a, b := of(l), of(old)
	if !a.leaks() || !b.leaks() || a.Shared != b.Shared || a.P.Full() == b.P.Full() {
		return false
	}
	p := b.P
	p.Limit, p.Burst, p.Ceiling, p.Wide = a.P.Limit, a.P.Burst, a.P.Ceiling, a.P.Wide
	p.Algorithm = a.P.Algorithm // one arithmetic has three names
	if chosen && p == a.P {
		return true
	}
	c := s.Open(old)
	c.roll(b, nil, now)
	return b.used(&c, now) > a.Most
}

// Seen returns the limit old with the capacity of l, by which l decides about a state that stays one of old.
func Seen(l, old *limiter.Limit) *limiter.Limit {
	seen := *old
	seen.C.Cap = l.C.Cap
	return &seen
}

func (s *Counts) adopt(l, old *rate, words []uint64, now limiter.Tick) (charge uint64, fresh bool) {
	s.roll(old, words, now)
	if s.emptyAt(old, words) <= now {
		// It equals an absent entry, even if the new limit would count what is left.
		*s = Counts{}
		return 0, true
	}
	if l.P.Full() == old.P.Full() {
		return 0, false
	}
	if l.P.Block == 0 {
		s.Until = 0
	}
	if a, b := l.P.Algorithm, old.P.Algorithm; a != b && (a == limiter.Concurrency || b == limiter.Concurrency) {
		*s = Counts{Until: s.Until} // what is held is no use, and no use is held
		return 0, true
	}
	if l.keeps(old) {
		switch {
		case l.Shared:
			(*bucket)(l).rescale((*bucket)(old), s, now)
		case l.P.Algorithm == limiter.Concurrency:
			s.A, s.B = min(s.A, l.maxUnits()), 0
		case l.P.Algorithm == limiter.LeakyBucket:
			s.Time, s.A = now, min(s.A, l.Most)
		case l.P.Algorithm == limiter.SlidingCounter && old.P.Algorithm == limiter.FixedWindow && s.B > 0:
			s.B -= min(s.A, s.B) // B counts in addition to A
		}
		return 0, false
	}
	used := old.used(s, now)
	if old.bounded(s, used) {
		used = max(used, l.Full)
	}
	*s = Counts{Until: s.Until}
	switch l.P.Algorithm {
	case limiter.SlidingLog:
		return min(used, limiter.MaxLogUnits), true
	case limiter.TokenBucket, limiter.LeakyBucket, limiter.GCRA:
		return min(used, l.Most), true
	default:
		return min(used, l.maxUnits()), true
	}
}

// bounded reports whether a state of which so many units count may have forgotten some, since it could hold no more.
func (l *rate) bounded(s *Counts, used uint64) bool {
	switch l.P.Algorithm {
	case limiter.SlidingLog:
		return s.A >= (*log)(l).most()
	case limiter.TokenBucket, limiter.LeakyBucket, limiter.GCRA:
		return used >= l.Most
	case limiter.SlidingCounter:
		return max(s.A, s.B) >= l.maxUnits()
	default:
		return used >= l.maxUnits()
	}
}

// CountsID returns a hash of the name of a limit and of what a charge to it is worth later.
// Between two limits with one CountsID a state keeps each charge as it is, so a receipt of the
// first can be refunded under the second. Of windows and logs that is the kind and length, of
// buckets everything, since they differ in how fast they forget, and so it is of logs that do.
func CountsID(l *limiter.Limit) uint64 { return of(l).countsID() }

func (l *rate) countsID() uint64 { return (*limiter.Compiled)(l).CountsID() }

// SlotsID returns the [CountsID] of a limit on concurrency with the name of a limit.
func SlotsID(l *limiter.Limit) uint64 {
	return (&rate{NameID: of(l).NameID, P: limiter.Params{Algorithm: limiter.Concurrency,
		Window: limiter.Span(limiter.MaxHold)}}).countsID()
}

// keeps reports whether a state of old has the same meaning for l.
func (l *rate) keeps(old *rate) bool {
	if l.Shared || old.Shared {
		return l.Shared && old.Shared && l.P.Wide == old.P.Wide
	}
	a, b := l.P.Algorithm, old.P.Algorithm
	switch {
	case a == limiter.Concurrency:
		return b == limiter.Concurrency
	case l.P.Wide != old.P.Wide: // a count of the one may be too large for the other
		return false
	case a == limiter.SlidingCounter && b == limiter.FixedWindow:
		// A fixed window is a counter without a previous window.
		return l.Window == old.Window && old.P.Align == limiter.AlignEpoch && old.Cal == nil
	case a != b:
		return false
	case a == limiter.FixedWindow:
		return l.Window == old.Window && l.P.Align == old.P.Align && l.P.Calendar == old.P.Calendar
	case a == limiter.SlidingCounter:
		return l.Window == old.Window
	case a == limiter.SlidingWindow:
		return l.Sub == old.Sub && l.Subs == old.Subs
	default: // a log keeps its entries, a bucket with interval drips its level
		return true
	}
}
