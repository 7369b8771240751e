package arith

import "github.com/weirlimit/weir/limiter"

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
	Time limiter.Tick
	// Until is the end of the key's block, 0 if there is none. The state of a wide limit, see [Wide],
	// has A in A and B, and B in Until, and another form during a block: see [Counts].
	Until limiter.Tick
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
func (s *State) NotBefore(l *limiter.Limit, now limiter.Tick) limiter.Tick {
	c := s.Open(l)
	return c.notBefore(of(l), now)
}

func (s *Counts) notBefore(l *rate, now limiter.Tick) limiter.Tick {
	length := l.Window
	switch {
	case l.P.Algorithm == Remembered:
		return max(now, s.Until)
	case l.P.Algorithm == Holds:
		return max(now, s.Until-limiter.Span(limiter.MaxHold))
	case l.Shared:
		if now = max(now, (*bucket)(l).chargedAt(s)); s.Time-now > l.Longest {
			now = s.Time - l.Longest + 1
		}
		return now
	case l.P.Algorithm == limiter.SlidingWindow:
		length = l.Sub
	case l.P.Algorithm == limiter.SlidingLog, l.P.Algorithm == limiter.FixedWindow && l.P.Align == limiter.AlignFirstHit:
		length = 0
	case l.Cal != nil:
		length = (*window)(l).reach()
	}
	if s.Time-now > length {
		return s.Time
	}
	return now
}

// BlockEnd returns the end of the block of a state, 0 if there is none.
func BlockEnd(l *limiter.Limit, s *State) limiter.Tick {
	c := s.Open(l)
	return c.Until
}

// Roll drops what no longer counts at now. It changes no answer, now or later. The
// other methods require a state that was rolled to the instant they are given.
func (s *State) Roll(l *limiter.Limit, words []uint64, now limiter.Tick) {
	c := s.Open(l)
	c.roll(of(l), words, now)
	*s = c.State(l)
}

func (s *Counts) roll(l *rate, words []uint64, now limiter.Tick) {
	if s.Until != 0 && s.Until <= now && !l.internal() {
		s.Until = 0
	}
	switch l.P.Algorithm {
	case limiter.FixedWindow:
		(*window)(l).roll(s, now)
	case limiter.SlidingCounter:
		(*counter)(l).roll(s, now)
	case limiter.SlidingWindow:
		(*ring)(l).roll(s, words, now)
	case limiter.SlidingLog:
		(*log)(l).roll(s, words, now)
	case limiter.Concurrency:
		if s.A -= s.B; s.Time <= now {
			s.A = 0
		}
		if s.B = 0; s.A == 0 {
			s.Time = 0
		}
	default:
		switch {
		case l.Shared, l.P.Algorithm == Holds:
		case l.P.Algorithm == Remembered:
			s.rollID(now)
		default:
			(*drips)(l).roll(s, now)
		}
	}
}

// used returns the units that count at now, rounded up. Apart from a block, n more are
// admitted if used + n <= capacity.
func (l *rate) used(s *Counts, now limiter.Tick) uint64 {
	switch l.P.Algorithm {
	case limiter.FixedWindow:
		return max(s.A, s.B)
	case limiter.SlidingLog:
		return s.A
	case limiter.SlidingCounter:
		return s.A + (*counter)(l).tail(s, now)
	case limiter.SlidingWindow:
		return s.A + s.B
	default:
		if l.Shared {
			return (*bucket)(l).used(s, now)
		}
		return s.A
	}
}

// Charge adds n units, 1 <= n <= capacity, whether or not there is room: the caller has
// decided. The words must have room, see [State.Words].
func (s *State) Charge(l *limiter.Limit, words []uint64, now limiter.Tick, n uint64) {
	c := s.Open(l)
	c.Charge(l, words, now, n)
	*s = c.State(l)
}

// Charge is [State.Charge].
func (s *Counts) Charge(l *limiter.Limit, words []uint64, now limiter.Tick, n uint64) {
	s.charge(of(l), words, now, n)
}

func (s *Counts) charge(l *rate, words []uint64, now limiter.Tick, n uint64) {
	switch l.P.Algorithm {
	case limiter.FixedWindow:
		if s.A == 0 && l.P.Align == limiter.AlignFirstHit {
			s.Time = now
		}
		s.A = l.addSat(s.A, n)
		if s.B != 0 {
			s.B = l.addSat(s.B, n)
		}
	case limiter.SlidingCounter:
		s.A = l.addSat(s.A, n)
	case limiter.SlidingWindow:
		(*ring)(l).charge(s, words, now, n)
	case limiter.SlidingLog:
		(*log)(l).charge(s, words, now, n)
	case limiter.Concurrency:
		was := s.A
		s.Time, s.A = max(s.Time, now+1), l.addSat(s.A, n)
		s.B += s.A - was
	default:
		if l.Shared {
			(*bucket)(l).charge(s, now, n)
		} else {
			s.A = min(s.A+n, l.Most)
		}
	}
}

// Overdraw charges n >= 1 units for a use that has happened, even beyond the capacity and
// regardless of what counts already. A log stops at [limiter.MaxLogUnits]. The level of a bucket stops where it takes
// until it has room again as long as a full bucket takes to recover, as a window, or as a day, whichever is longest.
func (s *State) Overdraw(l *limiter.Limit, words []uint64, now limiter.Tick, n uint64) {
	c := s.Open(l)
	c.overdraw(of(l), words, now, n)
	*s = c.State(l)
}

func (s *Counts) overdraw(l *rate, words []uint64, now limiter.Tick, n uint64) {
	switch l.P.Algorithm {
	case limiter.SlidingLog:
		n = min(n, limiter.MaxLogUnits)
		(*log)(l).add(s, words, now, n, max(l.Limit, min(l.addSat(s.A, n), limiter.MaxLogUnits)))
	case limiter.TokenBucket, limiter.LeakyBucket, limiter.GCRA:
		s.charge(l, words, now, min(n, l.Most))
		if l.Shared {
			(*bucket)(l).capDebt(s, max(now, (*bucket)(l).chargedAt(s)))
		}
	default:
		s.charge(l, words, now, n)
	}
}

// KeepsWords reports whether states of the limit may have words.
func KeepsWords(l *limiter.Limit) bool { return of(l).KeepsWords }

// Words returns how many words, beside the state, a charge of n units at now needs; 0
// for algorithms without words. The state must have been rolled to now. Charges at one
// instant of a log, or in one sub-window, need none either. A log needs more as it
// grows, at most limit+3, or twice the limit if it counts rejected checks. [State.Move] moves words to a larger place.
func (s *State) Words(l *limiter.Limit, now limiter.Tick, n uint64) int {
	c := s.Open(l)
	return c.Words(l, now, n)
}

// Words is [State.Words].
func (s *Counts) Words(l *limiter.Limit, now limiter.Tick, n uint64) int {
	return s.words(of(l), now, n)
}

func (s *Counts) words(l *rate, now limiter.Tick, n uint64) int {
	switch l.P.Algorithm {
	case limiter.SlidingWindow:
		return (*ring)(l).wordsFor(s, now)
	case limiter.SlidingLog:
		return logWords(s, now, min(n, limiter.MaxLogUnits)) // a check asks with any cost
	default:
		return 0
	}
}

// Move copies the words of a state into dst, which must be zero and at least as long.
func (s *State) Move(l *limiter.Limit, dst, src []uint64) {
	c := s.Open(l)
	c.move(of(l), dst, src)
}

func (s *Counts) move(l *rate, dst, src []uint64) {
	if l.P.Algorithm == limiter.SlidingLog {
		moveLog(dst, src, s)
		return
	}
	copy(dst, src)
}

// EmptyAt returns the instant from which the counter, without further checks, equals
// one without charges. An instant not after now means that it does already.
func (s *State) EmptyAt(l *limiter.Limit, words []uint64) limiter.Tick {
	if of(l).P.Algorithm == Remembered { // most of what is swept
		return max(s.Time, IDCharged(s))
	}
	c := s.Open(l)
	return c.emptyAt(of(l), words)
}

func (s *Counts) emptyAt(l *rate, words []uint64) limiter.Tick {
	var at limiter.Tick
	switch l.P.Algorithm {
	case limiter.FixedWindow:
		if s.A > 0 {
			at = (*window)(l).end(s.Time)
		}
	case limiter.SlidingCounter:
		at = (*counter)(l).emptyAt(s)
	case limiter.SlidingWindow:
		at = (*ring)(l).emptyAt(s, words)
	case limiter.SlidingLog:
		if s.B > 0 {
			at = s.Time + l.Window
		}
	case limiter.Concurrency:
		if s.A > 0 {
			at = s.Time
		}
	default:
		switch {
		case l.P.Algorithm == Remembered:
			at = s.Time
		case l.P.Algorithm == Holds: // Until
		case !l.Shared:
			at = (*drips)(l).fallenAt(s, s.A)
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
func (l *rate) admitsAt(s *Counts, words []uint64, n uint64) limiter.Tick {
	switch l.P.Algorithm {
	case limiter.FixedWindow:
		if s.A+n <= l.Cap {
			return s.Time // only what counts until then denies
		}
		return (*window)(l).end(s.Time)
	case limiter.SlidingCounter:
		return (*counter)(l).admitsAt(s, n)
	case limiter.SlidingWindow:
		return (*ring)(l).admitsAt(s, words, n)
	case limiter.SlidingLog:
		return (*log)(l).admitsAt(s, words, n)
	case limiter.Concurrency:
		return s.Time // at the latest: see HoldEnds
	default:
		if l.Shared {
			return (*bucket)(l).admitsAt(s, n)
		}
		return (*drips)(l).fallenAt(s, s.A+n-l.Cap)
	}
}

// Refund takes back n units charged at the instant at, as far as they still count:
// exactly from windows and logs, and from buckets what cannot have leaked of them until the
// last charge, or until now if that is not known: see [GiveBack] for what is exact. So
// no more is admitted than without the charge. latest is the latest instant that the
// counter's decider was ever given: a window that begins later came from a node whose
// clock is ahead.
func (s *State) Refund(l *limiter.Limit, words []uint64, now, latest, at limiter.Tick, n uint64) {
	if of(l).P.Algorithm == limiter.Concurrency {
		return // it is given back by the end of its hold
	}
	s.Reduce(l, words, now, latest, at, n, 0)
}

// Reduce refunds n units of a charge of n+rest units; rest stay. Units that may have leaked from a
// bucket are taken as part of the rest first. If any stay, the hit that opened a window
// stays too, and the n units are taken back from that window.
func (s *State) Reduce(l *limiter.Limit, words []uint64, now, latest, at limiter.Tick, n, rest uint64) {
	c := s.Open(l)
	c.reduce(of(l), words, now, latest, at, n, rest, false)
	*s = c.State(l)
}

// reduce is Reduce. known tells that the n units are what has not been lost of the charge, even if the
// count is at its bound.
func (s *Counts) reduce(l *rate, words []uint64, now, latest, at limiter.Tick, n, rest uint64, known bool) {
	s.roll(l, words, now)
	if s.Time > latest && l.alignedStarts() && (l.P.Algorithm != limiter.FixedWindow || s.B == 0) {
		at = max(at, s.Time) // it was imported, and what was charged since counts in it
	}
	switch l.P.Algorithm {
	case limiter.FixedWindow:
		(*window)(l).refund(s, at, n, rest, known)
	case limiter.SlidingCounter:
		(*counter)(l).refund(s, at, n, known)
	case limiter.SlidingWindow:
		(*ring)(l).refund(s, words, at, n, known)
	case limiter.SlidingLog:
		(*log)(l).refund(s, words, now, at, n)
	case limiter.Concurrency: // see CountHeld
	default:
		if l.Shared {
			(*bucket)(l).refund(s, now, at, n, rest)
		} else if leaked := (*drips)(l).leaked(at, now); leaked < n+rest && leaked < l.Most-s.A {
			// Else it may have been full, see wasFull.
			s.A -= min(s.A, n-(max(leaked, rest)-rest))
		}
	}
}

// addSat returns a + n, or the largest count of the limit.
func (l *rate) addSat(a, n uint64) uint64 { return min(a+n, l.maxUnits()) }

// saturated reports whether a count may be lower than the true one, so that nothing can
// be refunded from it: else as many units would come back as were not counted. Rejected units and
// settlements take a count beyond the limit. No admitted charge does, but to a limit of NarrowUnits that
// is not wide; there a full count is not told from one beyond.
func (l *rate) saturated(count uint64) bool { return count == l.maxUnits() }
