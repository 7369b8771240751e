package limiter

import (
	"math"
	"math/bits"
)

// token_bucket, continuous leaky_bucket and gcra share one arithmetic. The level of a
// leaky bucket is what a token bucket lacks to its burst. Both equal GCRA's theoretical
// arrival time (TAT) minus now, in units of T = window/limit. (ATM Forum, Traffic
// Management 4.0, 4.4.2: virtual scheduling and continuous leaky bucket decide alike.)
// The state is the TAT: whole ticks, and a fraction in 1/limit ticks, so nothing is
// ever rounded. B is how long before the TAT the bucket was last charged, see
// [Limit.chargedAt].

// chargedAt returns the instant of a bucket's last charge, or one up to a grain
// earlier; if it is not known, an instant before all others. It is needed when the
// clock goes back: until then the bucket neither leaks nor gains.
func (l *Limit) chargedAt(s *Counts) Tick {
	if s.B == 0 {
		return math.MinInt64
	}
	return s.Time - Tick(s.B)*l.grain
}

// chargedBy returns the instant of a bucket's last charge, or one up to a grain later; if it is not known,
// an instant after all others.
func (l *Limit) chargedBy(s *Counts) Tick {
	if s.B == 0 {
		return math.MaxInt64
	}
	return l.chargedAt(s) + l.grain - 1
}

// noteCharged records that the bucket was charged at now.
func (l *Limit) noteCharged(s *Counts, now Tick) {
	s.B = 0
	if n := uint64(s.Time-now+l.grain-1) / uint64(l.grain); s.Time > now && n <= math.MaxUint32 {
		s.B = n
	}
}

// debt returns (TAT - now) * limit in 1/limit ticks as 128 bits, 0 if negative.
func (l *Limit) debt(s *Counts, now Tick) (hi, lo uint64) {
	now = max(now, l.chargedAt(s))
	if s.Time < now {
		return 0, 0
	}
	hi, lo = bits.Mul64(uint64(min(s.Time-now, l.longest)), l.limit)
	lo, carry := bits.Add64(lo, s.A, 0)
	return hi + carry, lo
}

// bucketUsed returns the level in units, rounded up. n more units fit, used + n <=
// burst, exactly if max(TAT, now) + n*T - now <= burst*T, since burst - n is whole.
func (l *Limit) bucketUsed(s *Counts, now Tick) uint64 {
	hi, lo := l.debt(s, now)
	lo, carry := bits.Add64(lo, uint64(l.window)-1, 0)
	if hi += carry; hi == 0 {
		return lo / uint64(l.window)
	}
	return quo(hi, lo, uint64(l.window))
}

func (l *Limit) chargeBucket(s *Counts, now Tick, n uint64) {
	now = max(now, l.chargedAt(s))
	if s.Time < now {
		s.Time, s.A = now, 0
	}
	whole := n * l.unit
	more, part := bits.Mul64(n, l.unitR)
	part, carry := bits.Add64(part, s.A, 0)
	if more += carry; more != 0 {
		q, r := bits.Div64(more, part, l.limit)
		whole, part = whole+q, r
	} else if part >= l.limit {
		whole += part / l.limit
		part %= l.limit
	}
	s.Time, s.A = s.Time+Tick(whole), part
	l.noteCharged(s, now)
	if l.p.count == CountAll {
		l.capDebt(s, now)
	}
}

// capDebt limits the level to most.
func (l *Limit) capDebt(s *Counts, now Tick) {
	if l.aboveMost(s, now) {
		hi, lo := bits.Mul64(l.most, uint64(l.window))
		l.setDebt(s, now, hi, lo)
	}
}

// aboveMost reports whether the level is above most.
func (l *Limit) aboveMost(s *Counts, now Tick) bool {
	hi, lo := l.debt(s, now)
	mostHi, mostLo := bits.Mul64(l.most, uint64(l.window))
	return hi > mostHi || hi == mostHi && lo > mostLo
}

// setDebt sets the level to hi:lo, in 1/limit ticks.
func (l *Limit) setDebt(s *Counts, now Tick, hi, lo uint64) {
	now = max(now, l.chargedAt(s))
	q, r := bits.Div64(hi, lo, l.limit)
	s.Time, s.A = now+Tick(q), r
	l.noteCharged(s, now)
}

// bucketAdmitsAt returns the least t with (TAT - t) * limit <= (burst-n) *
// window.
func (l *Limit) bucketAdmitsAt(s *Counts, n uint64) Tick {
	hi, lo := bits.Mul64(l.cap-n, uint64(l.window))
	if hi == 0 && lo < s.A {
		return s.Time + 1
	}
	lo, borrow := bits.Sub64(lo, s.A, 0)
	return s.Time - Tick(quo(hi-borrow, lo, l.limit))
}

// wasFull reports whether the level has been at its bound since the instant at, so that more may have been
// charged than it says. It was if the level, with what has leaked since, is there.
func (l *Limit) wasFull(s *Counts, at Tick) bool {
	hi, lo := bits.Mul64(uint64(max(0, s.Time-at)), l.limit)
	lo, carry := bits.Add64(lo, s.A, 0)
	mostHi, mostLo := bits.Mul64(l.most, uint64(l.window))
	return hi+carry > mostHi || hi+carry == mostHi && lo >= mostLo
}

// refundBucket takes back n units of a charge of n+rest of which no entry is kept: see [since]. The level
// cannot have been below what had not leaked of the charge then, and since the last charge it is lowest now.
// So no more than what leaked until that one, beyond rest, comes back too little. The refund is no charge: what was
// charged before it leaks until the same one.
func (l *Limit) refundBucket(s *Counts, now, at Tick, n, rest uint64) {
	if l.wasFull(s, at) {
		return
	}
	hi, lo := bits.Mul64(uint64(max(0, min(now, l.chargedBy(s))-at)), l.limit)
	back := l.levelOf(n).minus(level{hi, lo}.minus(l.levelOf(rest)))
	if back == (level{}) {
		return
	}
	charged := min(max(now, l.chargedAt(s)), l.chargedBy(s))
	l.lower(s, now, back)
	l.noteCharged(s, charged)
}

// rescale converts a level of the limit old into one of l, in units, rounded up. The
// state must have been rolled by old.
func (l *Limit) rescale(old *Limit, s *Counts, now Tick) {
	s.B = 0 // it is in grains of old
	if l.window == old.window && l.limit == old.limit {
		return
	}
	hi, lo := old.debt(s, now)
	units, rest := bits.Div64(hi, lo, uint64(old.window))
	if units >= l.most {
		units, rest = l.most, 0
	}
	// rest/old.window units, in 1/limit ticks: at most one window.
	rh, rl := bits.Mul64(rest, uint64(l.window))
	rl, carry := bits.Add64(rl, uint64(old.window)-1, 0)
	hi, lo = bits.Mul64(units, uint64(l.window))
	lo, c := bits.Add64(lo, quo(rh+carry, rl, uint64(old.window)), 0)
	l.setDebt(s, now, hi+c, lo)
	s.B = 0
}

// leaky_bucket with interval drips: whole units, unitR at once, leak at instants of which
// each window has the same number, unit: the multiples of window/unit since the epoch. So
// the level is whole, and only drips need to be counted.

// leaked returns how many units leak in (from, to], if so many are there.
func (l *Limit) leaked(from, to Tick) uint64 {
	hi, lo := bits.Mul64(l.drips(from, to), l.unitR)
	if hi != 0 {
		return mostCounted
	}
	return lo
}

// drips returns how many multiples of window/unit lie in (from, to].
func (l *Limit) drips(from, to Tick) uint64 {
	if to <= from {
		return 0
	}
	windows := uint64(to/l.window - from/l.window)
	hi, lo := bits.Mul64(windows, l.unit)
	if hi != 0 || lo > 2*MaxUnits {
		return mostCounted // no level is higher
	}
	return lo + l.dripsInto(to%l.window) - l.dripsInto(from%l.window)
}

// dripsInto returns how many drips lie in (0, since] of a window.
func (l *Limit) dripsInto(since Tick) uint64 {
	hi, lo := bits.Mul64(uint64(since), l.unit)
	if hi == 0 {
		return lo / uint64(l.window)
	}
	return quo(hi, lo, uint64(l.window))
}

// drip returns the instant of the n-th drip of the window that starts at begin. The 0th
// is the last drip of the previous window.
func (l *Limit) drip(begin Tick, n uint64) Tick {
	hi, lo := bits.Mul64(n, uint64(l.window))
	lo, carry := bits.Add64(lo, l.unit-1, 0)
	return begin + Tick(quo(hi+carry, lo, l.unit))
}

// lastDrip returns the last drip at or before t, t >= 0.
func (l *Limit) lastDrip(t Tick) Tick { return l.drip(t-t%l.window, l.dripsInto(t%l.window)) }

// nextDrip returns the first drip after t, t >= 0.
func (l *Limit) nextDrip(t Tick) Tick { return l.drip(t-t%l.window, l.dripsInto(t%l.window)+1) }

// alignedDrip returns the drip that was at t, t >= 0, by a clock that may differ: the last
// one if it was at most alignedWithin before, otherwise the next.
func (l *Limit) alignedDrip(t Tick) Tick {
	last, next := l.lastDrip(t), l.nextDrip(t)
	if t-last <= min(alignedWithin, (next-last)/2) {
		return last
	}
	return next
}

func (l *Limit) rollDrips(s *Counts, now Tick) {
	if s.A == 0 {
		s.Time = now
		return
	}
	if n := l.leaked(s.Time, now); n > 0 {
		s.A -= min(n, s.A)
		s.Time = now
	}
}

// dripAt returns the instant at which n units have leaked since s.Time.
func (l *Limit) dripAt(s *Counts, n uint64) Tick {
	if n == 0 {
		return 0
	}
	n = (n + l.unitR - 1) / l.unitR
	begin := s.Time - s.Time%l.window
	return l.drip(begin, n+l.dripsInto(s.Time-begin))
}
