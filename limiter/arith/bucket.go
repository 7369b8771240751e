package arith

import (
	"math"
	"math/bits"

	"github.com/weirlimit/weir/limiter"
)

// token_bucket, continuous leaky_bucket and gcra share one arithmetic. The level of a
// leaky bucket is what a token bucket lacks to its burst. Both equal GCRA's theoretical
// arrival time (TAT) minus now, in units of T = window/limit. (ATM Forum, Traffic
// Management 4.0, 4.4.2: virtual scheduling and continuous leaky bucket decide alike.)
// The state is the TAT: whole ticks, and a fraction in 1/limit ticks, so nothing is
// ever rounded. B is how long before the TAT the bucket was last charged, see
// [bucket.chargedAt].

// chargedAt returns the instant of a bucket's last charge, or one up to a grain
// earlier; if it is not known, an instant before all others. It is needed when the
// clock goes back: until then the bucket neither leaks nor gains.
func (l *bucket) chargedAt(s *Counts) limiter.Tick {
	if s.B == 0 {
		return math.MinInt64
	}
	n, grain := l.before(s.B)
	return s.Time - limiter.Tick(n)*grain
}

// Of the values of B the first fineGrains count grains. Those above count coarse ones, for a debt that takes longer to
// leak than a full bucket.
const fineGrains = math.MaxUint32 - 1<<28

// before returns in how many grains of which length B counts.
func (l *bucket) before(b uint64) (n uint64, grain limiter.Tick) {
	if b > fineGrains {
		return b - fineGrains, l.Longest>>27 + 1
	}
	return b, l.Grain
}

// chargedBy returns the instant of a bucket's last charge, or one up to a grain later; if it is not known,
// an instant after all others.
func (l *bucket) chargedBy(s *Counts) limiter.Tick {
	if s.B == 0 {
		return math.MaxInt64
	}
	_, grain := l.before(s.B)
	return l.chargedAt(s) + grain - 1
}

// noteCharged records that the bucket was charged at now.
func (l *bucket) noteCharged(s *Counts, now limiter.Tick) {
	s.B = 0
	if s.Time <= now {
		return
	}
	ahead := s.Time - now
	if n := uint64(ahead+l.Grain-1) / uint64(l.Grain); n <= fineGrains {
		s.B = n
	} else if coarse := l.Longest>>27 + 1; ahead <= coarse<<28 {
		s.B = fineGrains + uint64(ahead+coarse-1)/uint64(coarse)
	}
}

// debt returns (TAT - now) * limit in 1/limit ticks as 128 bits, 0 if negative.
func (l *bucket) debt(s *Counts, now limiter.Tick) (hi, lo uint64) {
	now = max(now, l.chargedAt(s))
	if s.Time < now {
		return 0, 0
	}
	hi, lo = bits.Mul64(uint64(min(s.Time-now, l.Longest)), l.Limit)
	lo, carry := bits.Add64(lo, s.A, 0)
	return hi + carry, lo
}

// used returns the level in units, rounded up. n more units fit, used + n <=
// burst, exactly if max(TAT, now) + n*T - now <= burst*T, since burst - n is whole.
func (l *bucket) used(s *Counts, now limiter.Tick) uint64 {
	hi, lo := l.debt(s, now)
	lo, carry := bits.Add64(lo, uint64(l.Window)-1, 0)
	if hi += carry; hi == 0 {
		return lo / uint64(l.Window)
	}
	return quo(hi, lo, uint64(l.Window))
}

func (l *bucket) charge(s *Counts, now limiter.Tick, n uint64) {
	now = max(now, l.chargedAt(s))
	if s.Time < now {
		s.Time, s.A = now, 0
	}
	whole := n * l.Unit
	more, part := bits.Mul64(n, l.UnitR)
	part, carry := bits.Add64(part, s.A, 0)
	if more += carry; more != 0 {
		q, r := bits.Div64(more, part, l.Limit)
		whole, part = whole+q, r
	} else if part >= l.Limit {
		whole += part / l.Limit
		part %= l.Limit
	}
	s.Time, s.A = s.Time+limiter.Tick(whole), part
	l.noteCharged(s, now)
	if l.P.Count == limiter.CountAll {
		l.capDebt(s, now)
	}
}

// capDebt limits the level to most.
func (l *bucket) capDebt(s *Counts, now limiter.Tick) {
	if l.aboveMost(s, now) {
		hi, lo := bits.Mul64(l.Most, uint64(l.Window))
		l.setDebt(s, now, hi, lo)
	}
}

func (l *bucket) aboveMost(s *Counts, now limiter.Tick) bool {
	hi, lo := l.debt(s, now)
	mostHi, mostLo := bits.Mul64(l.Most, uint64(l.Window))
	return hi > mostHi || hi == mostHi && lo > mostLo
}

// setDebt sets the level to hi:lo, in 1/limit ticks.
func (l *bucket) setDebt(s *Counts, now limiter.Tick, hi, lo uint64) {
	now = max(now, l.chargedAt(s))
	q, r := bits.Div64(hi, lo, l.Limit)
	s.Time, s.A = now+limiter.Tick(q), r
	l.noteCharged(s, now)
}

// admitsAt returns the least t with (TAT - t) * limit <= (burst-n) *
// window.
func (l *bucket) admitsAt(s *Counts, n uint64) limiter.Tick {
	hi, lo := bits.Mul64(l.Cap-n, uint64(l.Window))
	if hi == 0 && lo < s.A {
		return s.Time + 1
	}
	lo, borrow := bits.Sub64(lo, s.A, 0)
	return s.Time - limiter.Tick(quo(hi-borrow, lo, l.Limit))
}

// wasFull reports whether the level has been at its bound since the instant at, so that more may have been
// charged than it says. It was if the level, with what has leaked since, is there.
func (l *bucket) wasFull(s *Counts, at limiter.Tick) bool {
	hi, lo := bits.Mul64(uint64(max(0, s.Time-at)), l.Limit)
	lo, carry := bits.Add64(lo, s.A, 0)
	mostHi, mostLo := bits.Mul64(l.Most, uint64(l.Window))
	return hi+carry > mostHi || hi+carry == mostHi && lo >= mostLo
}

// refund takes back n units of a charge of n+rest of which no entry is kept: see [since]. The level
// cannot have been below what had not leaked of the charge then, and since the last charge it is lowest now.
// So no more than what leaked until that one, beyond rest, comes back too little. The refund is no charge: what was
// charged before it leaks until the same one.
func (l *bucket) refund(s *Counts, now, at limiter.Tick, n, rest uint64) {
	if l.wasFull(s, at) {
		return
	}
	hi, lo := bits.Mul64(uint64(max(0, min(now, l.chargedBy(s))-at)), l.Limit)
	back := (*rate)(l).levelOf(n).minus(level{hi, lo}.minus((*rate)(l).levelOf(rest)))
	if back == (level{}) {
		return
	}
	charged := min(max(now, l.chargedAt(s)), l.chargedBy(s))
	(*rate)(l).lower(s, now, back)
	l.noteCharged(s, charged)
}

// rescale converts a level of the limit old into one of l, in units, rounded up. The
// state must have been rolled by old.
func (l *bucket) rescale(old *bucket, s *Counts, now limiter.Tick) {
	s.B = 0 // it is in grains of old
	if l.Window == old.Window && l.Limit == old.Limit {
		return
	}
	hi, lo := old.debt(s, now)
	units, rest := bits.Div64(hi, lo, uint64(old.Window))
	if units >= l.Most {
		units, rest = l.Most, 0
	}
	// rest/old.window units, in 1/limit ticks: at most one window.
	rh, rl := bits.Mul64(rest, uint64(l.Window))
	rl, carry := bits.Add64(rl, uint64(old.Window)-1, 0)
	hi, lo = bits.Mul64(units, uint64(l.Window))
	lo, c := bits.Add64(lo, quo(rh+carry, rl, uint64(old.Window)), 0)
	l.setDebt(s, now, hi+c, lo)
	s.B = 0
}

// leaky_bucket with interval drips: whole units, unitR at once, leak at instants of which
// each window has the same number, unit: the multiples of window/unit since the epoch. So
// the level is whole, and only drips need to be counted.

// leaked returns how many units leak in (from, to], if so many are there.
func (l *drips) leaked(from, to limiter.Tick) uint64 {
	hi, lo := bits.Mul64(l.count(from, to), l.UnitR)
	if hi != 0 {
		return mostCounted
	}
	return lo
}

// count returns how many multiples of window/unit lie in (from, to].
func (l *drips) count(from, to limiter.Tick) uint64 {
	if to <= from {
		return 0
	}
	windows := uint64(to/l.Window - from/l.Window)
	hi, lo := bits.Mul64(windows, l.Unit)
	if hi != 0 || lo > 2*limiter.MaxUnits {
		return mostCounted // no level is higher
	}
	return lo + l.into(to%l.Window) - l.into(from%l.Window)
}

// into returns how many drips lie in (0, since] of a window.
func (l *drips) into(since limiter.Tick) uint64 {
	hi, lo := bits.Mul64(uint64(since), l.Unit)
	if hi == 0 {
		return lo / uint64(l.Window)
	}
	return quo(hi, lo, uint64(l.Window))
}

// at returns the instant of the n-th drip of the window that starts at begin. The 0th
// is the last drip of the previous window.
func (l *drips) at(begin limiter.Tick, n uint64) limiter.Tick {
	hi, lo := bits.Mul64(n, uint64(l.Window))
	lo, carry := bits.Add64(lo, l.Unit-1, 0)
	return begin + limiter.Tick(quo(hi+carry, lo, l.Unit))
}

// last returns the last drip at or before t, t >= 0.
func (l *drips) last(t limiter.Tick) limiter.Tick {
	return l.at(t-t%l.Window, l.into(t%l.Window))
}

// next returns the first drip after t, t >= 0.
func (l *drips) next(t limiter.Tick) limiter.Tick {
	return l.at(t-t%l.Window, l.into(t%l.Window)+1)
}

// aligned returns the drip that was at t, t >= 0, by a clock that may differ: the last
// one if it was at most alignedWithin before, otherwise the next.
func (l *drips) aligned(t limiter.Tick) limiter.Tick {
	last, next := l.last(t), l.next(t)
	if t-last <= min(alignedWithin, (next-last)/2) {
		return last
	}
	return next
}

func (l *drips) roll(s *Counts, now limiter.Tick) {
	if s.A == 0 {
		s.Time = now
		return
	}
	if n := l.leaked(s.Time, now); n > 0 {
		s.A -= min(n, s.A)
		s.Time = now
	}
}

// fallenAt returns the instant at which n units have leaked since s.Time.
func (l *drips) fallenAt(s *Counts, n uint64) limiter.Tick {
	if n == 0 {
		return 0
	}
	n = (n + l.UnitR - 1) / l.UnitR
	begin := s.Time - s.Time%l.Window
	return l.at(begin, n+l.into(s.Time-begin))
}
