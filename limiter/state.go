package limiter

// State is one counter of one limit. The zero value is a counter that was never
// charged, for every algorithm. It holds no pointers, so that a table of states
// costs the garbage collector nothing. What its fields mean depends on the
// algorithm; sliding_log and sliding_window keep the rest in words beside it,
// see [Limit.Words].
//
// The methods of [Limit] that take a State must be given one that was made by
// the same limit, or by [Limit.Adopt]. Instants may go back: one before the window,
// sub-window or hit that was charged last is taken as that one, and a bucket neither
// leaks nor gains until its last charge. Waits are reckoned from the instant that was
// given. So what a counter has counted stays, and what it admits is bounded as ever.
type State struct {
	// Time is the start of the current window (fixed_window, sliding_counter)
	// or the newest charged sub-window (sliding_window), the newest hit (sliding_log), the
	// theoretical arrival time in whole ticks (token_bucket, gcra, continuous
	// leaky_bucket), or the instant up to which drips are accounted for
	// (leaky_bucket by interval).
	Time Tick
	// Until is the end of the block that the key serves, 0 if none.
	Until Tick
	// A and B are: units in this window, and units that count until it begins
	// if that lies ahead (fixed_window, see [Limit.Merge]); units in this window
	// and the previous one (sliding_counter); units and entries (sliding_log);
	// units before the newest sub-window that was charged, and in it
	// (sliding_window); the fraction of the theoretical arrival time in 1/limit
	// ticks, and how long before that time the last charge was, 0 if that is not
	// known; the level and nothing (leaky_bucket by interval).
	A, B uint32
}

// NotBefore returns now, or, where the clock has gone back since the last charge, the
// instant of that one, as far as the state tells it: what [Limit.Export] is to be given.
// That a window lies ahead by no more than its length may come from a clock elsewhere.
func (l *Limit) NotBefore(s *State, now Tick) Tick {
	length := l.window
	switch {
	case l.shared:
		if now = max(now, l.chargedAt(s)); s.Time-now > l.longest {
			now = s.Time - l.longest + 1
		}
		return now
	case l.p.algorithm == SlidingWindow:
		length = l.sub
	case l.p.algorithm == SlidingLog, l.p.algorithm == FixedWindow && l.p.align == AlignFirstHit:
		length = 0
	}
	if s.Time-now > length {
		return s.Time
	}
	return now
}

// Roll forgets what no longer counts at now. It changes no answer, now or
// later; the other methods expect a state that was rolled to the instant they
// are given.
func (l *Limit) Roll(s *State, words []uint64, now Tick) {
	if s.Until != 0 && s.Until <= now {
		s.Until = 0
	}
	switch l.p.algorithm {
	case FixedWindow:
		l.rollFixed(s, now)
	case SlidingCounter:
		l.rollCounter(s, now)
	case SlidingWindow:
		l.rollSubs(s, words, now)
	case SlidingLog:
		l.rollLog(s, words, now)
	default:
		if !l.shared {
			l.rollDrips(s, now)
		}
	}
}

// used returns the units that count at now, rounded up: n more are admitted,
// block aside, if used + n <= capacity.
func (l *Limit) used(s *State, now Tick) uint64 {
	switch l.p.algorithm {
	case FixedWindow:
		return uint64(max(s.A, s.B))
	case SlidingLog:
		return uint64(s.A)
	case SlidingCounter:
		return uint64(s.A) + l.tail(s, now)
	case SlidingWindow:
		return uint64(s.A) + uint64(s.B)
	default:
		if l.shared {
			return l.bucketUsed(s, now)
		}
		return uint64(s.A)
	}
}

// Charge adds n units, 1 <= n <= capacity, whether or not there is room:
// whoever calls has decided. The words must have room, see [Limit.Words].
func (l *Limit) Charge(s *State, words []uint64, now Tick, n uint32) {
	switch l.p.algorithm {
	case FixedWindow:
		if s.A == 0 && l.p.align == AlignFirstHit {
			s.Time = now
		}
		s.A = addSat(s.A, n)
		if s.B != 0 {
			s.B = addSat(s.B, n)
		}
	case SlidingCounter:
		s.A = addSat(s.A, n)
	case SlidingWindow:
		l.chargeSubs(s, words, now, n)
	case SlidingLog:
		l.chargeLog(s, words, now, n)
	default:
		if l.shared {
			l.chargeBucket(s, now, uint64(n))
		} else {
			s.A = uint32(min(uint64(s.A)+uint64(n), l.most))
		}
	}
}

// KeepsWords reports whether states of the limit may have words.
func (l *Limit) KeepsWords() bool { return l.keepsWords }

// Words returns how many words beside the state, which was rolled to now, a
// charge of n units at now needs; 0 for algorithms that need none. What was all
// charged at one instant of a log, or in one sub-window, needs none either. A
// log needs more as it grows, at most limit+3; words are moved from one place to
// a larger one by [Limit.Move].
func (l *Limit) Words(s *State, now Tick, n uint32) int {
	switch l.p.algorithm {
	case SlidingWindow:
		return l.subWordsFor(s, now)
	case SlidingLog:
		return logWords(s, now, n)
	default:
		return 0
	}
}

// Move copies the words of a state into dst, which is zero and at least as
// long.
func (l *Limit) Move(dst, src []uint64, s *State) {
	if l.p.algorithm == SlidingLog {
		moveLog(dst, src, s)
		return
	}
	copy(dst, src)
}

// EmptyAt returns the instant from which the counter, if nobody asks, equals
// one never charged; an instant that is not after now means it does already.
func (l *Limit) EmptyAt(s *State, words []uint64) Tick {
	var at Tick
	switch l.p.algorithm {
	case FixedWindow:
		if s.A > 0 {
			at = s.Time + l.window
		}
	case SlidingCounter:
		at = l.counterEmptyAt(s)
	case SlidingWindow:
		at = l.subsEmptyAt(s, words)
	case SlidingLog:
		if s.B > 0 {
			at = s.Time + l.window
		}
	default:
		switch {
		case !l.shared:
			at = l.dripAt(s, uint64(s.A))
		case s.A > 0:
			at = s.Time + 1
		default:
			at = s.Time
		}
	}
	return max(at, s.Until)
}

// admitsAt returns the first instant at which the arithmetic, block aside,
// admits n units, given that it does not admit them now.
func (l *Limit) admitsAt(s *State, words []uint64, n uint64) Tick {
	switch l.p.algorithm {
	case FixedWindow:
		if uint64(s.A)+n <= l.limit {
			return s.Time // only what counts until then denies
		}
		return s.Time + l.window
	case SlidingCounter:
		return l.counterAdmitsAt(s, n)
	case SlidingWindow:
		return l.subsAdmitAt(s, words, n)
	case SlidingLog:
		return l.logAdmitsAt(s, words, n)
	default:
		if l.shared {
			return l.bucketAdmitsAt(s, n)
		}
		return l.dripAt(s, uint64(s.A)+n-l.cap)
	}
}

// Refund takes back n units that were charged at the instant at, as far as they
// still count: exactly from windows and logs, and from buckets at most what has
// not leaked since, so that no more is admitted than had the charge not been
// made.
func (l *Limit) Refund(s *State, words []uint64, now, at Tick, n uint32) {
	l.Roll(s, words, now)
	switch l.p.algorithm {
	case FixedWindow:
		l.refundFixed(s, at, n)
	case SlidingCounter:
		l.refundCounter(s, at, n)
	case SlidingWindow:
		l.refundSubs(s, words, at, n)
	case SlidingLog:
		l.refundLog(s, words, now, at, n)
	default:
		if l.shared {
			l.refundBucket(s, now, at, n)
		} else if leaked := l.drips(at, now); leaked < uint64(n) {
			s.A -= min(s.A, n-uint32(leaked))
		}
	}
}

func addSat(a, n uint32) uint32 { return uint32(min(uint64(a)+uint64(n), MaxUnits)) }

// saturated tells whether a count may stand for more than it says, so that no
// refund can be taken from it. Only rejected units take a count beyond the
// limit; without them a full count of MaxUnits is exact.
func (l *Limit) saturated(count uint32) bool {
	return count == MaxUnits && l.p.count == CountAll
}
