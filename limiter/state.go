package limiter

// State is one counter of one limit. For every algorithm the zero value is a counter
// without charges. It has no pointers, so a table of states costs the garbage collector
// nothing. The meaning of the fields depends on the algorithm. sliding_log and
// sliding_window keep further data in words beside the state, see [State.Words].
//
// The methods are the arithmetic, for deciders. Each takes the limit that made the
// state, or whose [State.Adopt] did. Instants may go back: an instant before the last charged window,
// sub-window or hit counts as that one, and a bucket neither leaks nor gains until its
// last charge. Waits are calculated from the given instant. So what was counted stays
// counted, and the bounds on admissions hold.
type State struct {
	// Time is the start of the current window (fixed_window, sliding_counter), the
	// start of the newest charged sub-window (sliding_window), the newest hit
	// (sliding_log), the theoretical arrival time in whole ticks (token_bucket, gcra,
	// continuous leaky_bucket), or the instant up to which drips are accounted for
	// (leaky_bucket by interval).
	Time Tick
	// Until is the end of the key's block, 0 if there is none. The state of a wide limit, see [Wide],
	// has A in A and B, and B in Until, and another form during a block: see [Counts].
	Until Tick
	// A and B depend on the algorithm:
	//
	//   - fixed_window: A is the units in this window, B the units that count until
	//     this window begins, if it lies ahead (see [State.Merge]).
	//   - sliding_counter: units in this window, and in the previous one.
	//   - sliding_log: units, and entries.
	//   - sliding_window: units before the newest charged sub-window, and in it.
	//   - token_bucket, gcra, continuous leaky_bucket: the fraction of the
	//     theoretical arrival time in 1/limit ticks, and how long before that time
	//     the last charge was, in grains, 0 if not known.
	//   - leaky_bucket by interval: the lower and the upper bits of the level.
	//   - concurrency: the units, and how many of them no hold has yet.
	A, B uint32
}

// NotBefore returns now or, if the clock has gone back since the last charge, the
// instant of that charge, as far as the state has it. [State.Export] must be given this
// instant. A window that lies ahead by at most its length is not evidence of that,
// since it may come from another node's clock.
func (s *State) NotBefore(l *Limit, now Tick) Tick {
	c := s.Open(l)
	return c.notBefore(l, now)
}

func (s *Counts) notBefore(l *Limit, now Tick) Tick {
	length := l.window
	switch {
	case l.p.algorithm == Remembered:
		return max(now, s.Until)
	case l.p.algorithm == Holds:
		return max(now, s.Until-Span(MaxHold))
	case l.shared:
		if now = max(now, l.chargedAt(s)); s.Time-now > l.longest {
			now = s.Time - l.longest + 1
		}
		return now
	case l.p.algorithm == SlidingWindow:
		length = l.sub
	case l.p.algorithm == SlidingLog, l.p.algorithm == FixedWindow && l.p.align == AlignFirstHit:
		length = 0
	case l.cal != nil:
		length = l.reach()
	}
	if s.Time-now > length {
		return s.Time
	}
	return now
}

// BlockEnd returns the end of the block of a state, 0 if there is none.
func BlockEnd(l *Limit, s *State) Tick {
	c := s.Open(l)
	return c.Until
}

// Roll drops what no longer counts at now. It changes no answer, now or later. The
// other methods require a state that was rolled to the instant they are given.
func (s *State) Roll(l *Limit, words []uint64, now Tick) {
	c := s.Open(l)
	c.roll(l, words, now)
	*s = c.State(l)
}

func (s *Counts) roll(l *Limit, words []uint64, now Tick) {
	if s.Until != 0 && s.Until <= now && !l.internal() {
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
	case Concurrency:
		if s.A -= s.B; s.Time <= now {
			s.A = 0
		}
		if s.B = 0; s.A == 0 {
			s.Time = 0
		}
	default:
		switch {
		case l.shared, l.p.algorithm == Holds:
		case l.p.algorithm == Remembered:
			s.rollID(now)
		default:
			l.rollDrips(s, now)
		}
	}
}

// used returns the units that count at now, rounded up. Apart from a block, n more are
// admitted if used + n <= capacity.
func (l *Limit) used(s *Counts, now Tick) uint64 {
	switch l.p.algorithm {
	case FixedWindow:
		return max(s.A, s.B)
	case SlidingLog:
		return s.A
	case SlidingCounter:
		return s.A + l.tail(s, now)
	case SlidingWindow:
		return s.A + s.B
	default:
		if l.shared {
			return l.bucketUsed(s, now)
		}
		return s.A
	}
}

// Charge adds n units, 1 <= n <= capacity, whether or not there is room: the caller has
// decided. The words must have room, see [State.Words].
func (s *State) Charge(l *Limit, words []uint64, now Tick, n uint64) {
	c := s.Open(l)
	c.Charge(l, words, now, n)
	*s = c.State(l)
}

// Charge is [State.Charge].
func (s *Counts) Charge(l *Limit, words []uint64, now Tick, n uint64) {
	switch l.p.algorithm {
	case FixedWindow:
		if s.A == 0 && l.p.align == AlignFirstHit {
			s.Time = now
		}
		s.A = l.addSat(s.A, n)
		if s.B != 0 {
			s.B = l.addSat(s.B, n)
		}
	case SlidingCounter:
		s.A = l.addSat(s.A, n)
	case SlidingWindow:
		l.chargeSubs(s, words, now, n)
	case SlidingLog:
		l.chargeLog(s, words, now, n)
	case Concurrency:
		was := s.A
		s.Time, s.A = max(s.Time, now+1), l.addSat(s.A, n)
		s.B += s.A - was
	default:
		if l.shared {
			l.chargeBucket(s, now, n)
		} else {
			s.A = min(s.A+n, l.most)
		}
	}
}

// Overdraw charges n >= 1 units for a use that has happened, even beyond the capacity and
// regardless of what counts already. A log stops at [MaxLogUnits]. The level of a bucket stops where it takes until it
// has room again as long as a full bucket takes to recover, as a window, or as a day, whichever is longest.
func (s *State) Overdraw(l *Limit, words []uint64, now Tick, n uint64) {
	c := s.Open(l)
	c.overdraw(l, words, now, n)
	*s = c.State(l)
}

func (s *Counts) overdraw(l *Limit, words []uint64, now Tick, n uint64) {
	switch l.p.algorithm {
	case SlidingLog:
		n = l.overdraft(n)
		l.addLog(s, words, now, n, max(l.limit, min(l.addSat(s.A, n), MaxLogUnits)))
	case TokenBucket, LeakyBucket, GCRA:
		s.Charge(l, words, now, min(n, l.most))
		if l.shared {
			l.capDebt(s, max(now, l.chargedAt(s)))
		}
	default:
		s.Charge(l, words, now, n)
	}
}

// OverdrawWords is [State.Words] for [State.Overdraw].
func (s *State) OverdrawWords(l *Limit, now Tick, n uint64) int {
	c := s.Open(l)
	return c.overdrawWords(l, now, n)
}

func (s *Counts) overdrawWords(l *Limit, now Tick, n uint64) int {
	return s.Words(l, now, n)
}

// overdraft returns how many of n units an overdrawn log counts.
func (l *Limit) overdraft(n uint64) uint64 {
	if l.p.algorithm == SlidingLog {
		return min(n, MaxLogUnits)
	}
	return n
}

// KeepsWords reports whether states of the limit may have words.
func KeepsWords(l *Limit) bool { return l.keepsWords }

// Words returns how many words, beside the state, a charge of n units at now needs; 0
// for algorithms without words. The state must have been rolled to now. Charges at one
// instant of a log, or in one sub-window, need none either. A log needs more as it
// grows, at most limit+3, or twice the limit if it counts rejected checks. [State.Move] moves words to a larger place.
func (s *State) Words(l *Limit, now Tick, n uint64) int {
	c := s.Open(l)
	return c.Words(l, now, n)
}

// Words is [State.Words].
func (s *Counts) Words(l *Limit, now Tick, n uint64) int {
	switch l.p.algorithm {
	case SlidingWindow:
		return l.subWordsFor(s, now)
	case SlidingLog:
		return logWords(s, now, l.overdraft(n)) // a check asks with any cost
	default:
		return 0
	}
}

// Move copies the words of a state into dst, which must be zero and at least as long.
func (s *State) Move(l *Limit, dst, src []uint64) {
	c := s.Open(l)
	c.move(l, dst, src)
}

func (s *Counts) move(l *Limit, dst, src []uint64) {
	if l.p.algorithm == SlidingLog {
		moveLog(dst, src, s)
		return
	}
	copy(dst, src)
}

// EmptyAt returns the instant from which the counter, without further checks, equals
// one without charges. An instant not after now means that it does already.
func (s *State) EmptyAt(l *Limit, words []uint64) Tick {
	if l.p.algorithm == Remembered { // most of what is swept
		return max(s.Time, IDCharged(s))
	}
	c := s.Open(l)
	return c.emptyAt(l, words)
}

func (s *Counts) emptyAt(l *Limit, words []uint64) Tick {
	var at Tick
	switch l.p.algorithm {
	case FixedWindow:
		if s.A > 0 {
			at = l.windowEnd(s.Time)
		}
	case SlidingCounter:
		at = l.counterEmptyAt(s)
	case SlidingWindow:
		at = l.subsEmptyAt(s, words)
	case SlidingLog:
		if s.B > 0 {
			at = s.Time + l.window
		}
	case Concurrency:
		if s.A > 0 {
			at = s.Time
		}
	default:
		switch {
		case l.p.algorithm == Remembered:
			at = s.Time
		case l.p.algorithm == Holds: // Until
		case !l.shared:
			at = l.dripAt(s, s.A)
		case s.A > 0:
			at = s.Time + 1
		default:
			at = s.Time
		}
	}
	return max(at, s.Until)
}

// admitsAt returns the first instant at which n units are admitted, apart from a block.
// They must not be admitted now.
func (l *Limit) admitsAt(s *Counts, words []uint64, n uint64) Tick {
	switch l.p.algorithm {
	case FixedWindow:
		if s.A+n <= l.limit {
			return s.Time // only what counts until then denies
		}
		return l.windowEnd(s.Time)
	case SlidingCounter:
		return l.counterAdmitsAt(s, n)
	case SlidingWindow:
		return l.subsAdmitAt(s, words, n)
	case SlidingLog:
		return l.logAdmitsAt(s, words, n)
	case Concurrency:
		return s.Time // at the latest: see HoldEnds
	default:
		if l.shared {
			return l.bucketAdmitsAt(s, n)
		}
		return l.dripAt(s, s.A+n-l.cap)
	}
}

// Refund takes back n units charged at the instant at, as far as they still count:
// exactly from windows and logs, and from buckets what cannot have leaked of them until the
// last charge, or until now if that is not known: see [GiveBack] for what is exact. So
// no more is admitted than without the charge. latest is the latest instant that the
// counter's decider was ever given: a window that begins later came from a node whose
// clock is ahead.
func (s *State) Refund(l *Limit, words []uint64, now, latest, at Tick, n uint64) {
	if l.p.algorithm == Concurrency {
		return // it is given back by the end of its hold
	}
	s.Reduce(l, words, now, latest, at, n, 0)
}

// Reduce refunds n units of a charge of n+rest units; rest stay. Units that may have leaked from a
// bucket are taken as part of the rest first. If any stay, the hit that opened a window
// stays too, and the n units are taken back from that window.
func (s *State) Reduce(l *Limit, words []uint64, now, latest, at Tick, n, rest uint64) {
	c := s.Open(l)
	c.reduce(l, words, now, latest, at, n, rest, false)
	*s = c.State(l)
}

// reduce is Reduce. known tells that the n units are what has not been lost of the charge, even if the
// count is at its bound.
func (s *Counts) reduce(l *Limit, words []uint64, now, latest, at Tick, n, rest uint64, known bool) {
	s.roll(l, words, now)
	if s.Time > latest && l.importsAhead() && (l.p.algorithm != FixedWindow || s.B == 0) {
		at = max(at, s.Time) // it was imported, and what was charged since counts in it
	}
	switch l.p.algorithm {
	case FixedWindow:
		l.refundFixed(s, at, n, rest, known)
	case SlidingCounter:
		l.refundCounter(s, at, n, known)
	case SlidingWindow:
		l.refundSubs(s, words, at, n, known)
	case SlidingLog:
		l.refundLog(s, words, now, at, n)
	case Concurrency: // see CountHeld
	default:
		if l.shared {
			l.refundBucket(s, now, at, n, rest)
		} else if leaked := l.leaked(at, now); leaked < n+rest && leaked < l.most-s.A {
			// Else it may have been full, see wasFull.
			s.A -= min(s.A, n-(max(leaked, rest)-rest))
		}
	}
}

// importsAhead reports whether a window or sub-window of an imported state may begin in the
// future.
func (l *Limit) importsAhead() bool {
	a := l.p.algorithm
	return a == SlidingWindow || a == SlidingCounter || a == FixedWindow && l.p.align == AlignEpoch
}

// addSat returns a + n, or the largest count of the limit.
func (l *Limit) addSat(a, n uint64) uint64 { return min(a+n, l.maxUnits()) }

// saturated reports whether a count may be lower than the true one, so that nothing can
// be refunded from it: else as many units would come back as were not counted. Rejected units and
// settlements take a count beyond the limit. No admitted charge does, but to a limit of NarrowUnits that
// is not wide; there a full count is not told from one beyond.
func (l *Limit) saturated(count uint64) bool { return count == l.maxUnits() }
