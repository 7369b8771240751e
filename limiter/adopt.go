package limiter

// Adopt converts a state of the limit old into one of l, so that a changed limit keeps
// its consumption: it admits at most what the larger of the two limits would have left.
// If both limits count in the same way, the state is unchanged. Otherwise all that counts under
// old at now has to be charged to l at now. In that case fresh is true, the state is
// zero except for its block, and the words are void. charge is the number of units,
// possibly 0, that the caller must then charge by [State.Overdraw], which needs no words.
//
// It may be more than l admits, and nothing of it is forgotten: the limit may change back. A count
// that its old limit has at its bound may stand for more, so all of l is used then.
//
// A block is kept only if l has blocks, too. Limits on concurrency count what is held, whatever was
// used: see [CountHeld].
func (s *State) Adopt(l, old *Limit, words []uint64, now Tick) (charge uint64, fresh bool) {
	c := s.Open(old)
	charge, fresh = c.adopt(l, old, words, now)
	*s = c.State(l)
	return charge, fresh
}

func (s *Counts) adopt(l, old *Limit, words []uint64, now Tick) (charge uint64, fresh bool) {
	s.roll(old, words, now)
	if s.emptyAt(old, words) <= now {
		// It equals an absent entry, even if the new limit would count what is left.
		*s = Counts{}
		return 0, true
	}
	if l.p.block == 0 {
		s.Until = 0
	}
	if a, b := l.p.algorithm, old.p.algorithm; a != b && (a == Concurrency || b == Concurrency) {
		*s = Counts{Until: s.Until} // what is held is no use, and no use is held
		return 0, true
	}
	if l.keeps(old) {
		switch {
		case l.shared:
			l.rescale(old, s, now)
		case l.p.algorithm == Concurrency:
			s.A, s.B = min(s.A, l.maxUnits()), 0
		case l.p.algorithm == LeakyBucket:
			s.Time, s.A = now, min(s.A, l.most)
		case l.p.algorithm == SlidingCounter && old.p.algorithm == FixedWindow && s.B > 0:
			s.B -= min(s.A, s.B) // B counts in addition to A
		}
		return 0, false
	}
	used := old.used(s, now)
	if old.bounded(s, used) {
		used = max(used, l.cap)
	}
	*s = Counts{Until: s.Until}
	switch l.p.algorithm {
	case SlidingLog:
		return min(used, MaxLogUnits), true
	case TokenBucket, LeakyBucket, GCRA:
		return min(used, l.most), true
	default:
		return min(used, l.maxUnits()), true
	}
}

// bounded reports whether a state of which so many units count may have forgotten some, since it could hold no more.
func (l *Limit) bounded(s *Counts, used uint64) bool {
	switch l.p.algorithm {
	case SlidingLog:
		return s.A >= l.logMost()
	case TokenBucket, LeakyBucket, GCRA:
		return used >= l.most
	case SlidingCounter:
		return max(s.A, s.B) >= l.maxUnits()
	default:
		return used >= l.maxUnits()
	}
}

// CountsID returns a hash of the name of a limit and of what a charge to it is worth later.
// Between two limits with one CountsID a state keeps each charge as it is, so a receipt of the
// first can be refunded under the second. Of windows and logs that is the kind and length, of
// buckets everything, since they differ in how fast they forget, and so it is of logs that do.
func CountsID(l *Limit) uint64 {
	p := &l.p
	switch p.algorithm {
	case TokenBucket, LeakyBucket, GCRA:
		return l.paramsID
	}
	if p.count == CountAll && p.algorithm == SlidingLog { // its bound depends on the limit
		return l.paramsID
	}
	m := mixer(3).add(l.nameID).add(uint64(p.window))
	if p.wide && p.algorithm != Concurrency { // slots are what holds have, see CountHeld
		m = m.text("wide")
	}
	return uint64(m.add(uint64(p.algorithm) | uint64(p.align)<<8 | uint64(l.subs)<<16).calendar(&p.calendar))
}

// SlotsID returns the [CountsID] of a limit on concurrency with the name of a limit.
func SlotsID(l *Limit) uint64 {
	return CountsID(&Limit{nameID: l.nameID, p: params{algorithm: Concurrency, window: Span(MaxHold)}})
}

// keeps reports whether a state of old has the same meaning for l.
func (l *Limit) keeps(old *Limit) bool {
	if l.shared || old.shared {
		return l.shared && old.shared && l.p.wide == old.p.wide
	}
	a, b := l.p.algorithm, old.p.algorithm
	switch {
	case a == Concurrency:
		return b == Concurrency
	case l.p.wide != old.p.wide: // a count of the one may be too large for the other
		return false
	case a == SlidingCounter && b == FixedWindow:
		// A fixed window is a counter without a previous window.
		return l.window == old.window && old.p.align == AlignEpoch && old.cal == nil
	case a != b:
		return false
	case a == FixedWindow:
		return l.window == old.window && l.p.align == old.p.align && l.p.calendar == old.p.calendar
	case a == SlidingCounter:
		return l.window == old.window
	case a == SlidingWindow:
		return l.sub == old.sub && l.subs == old.subs
	default: // a log keeps its entries, a bucket with interval drips its level
		return true
	}
}
