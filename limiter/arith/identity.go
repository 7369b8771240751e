package arith

import (
	"math/bits"

	"github.com/weirlimit/weir/limiter"
)

// CalendarID returns a hash of what determines the limit's calendar windows. It is the
// same in every process.
func CalendarID(l *limiter.Limit) uint64 { return of(l).P.CalendarID() }

// ParamsID returns a hash of the limit's name and of everything that affects its
// decisions. It is the same in every process. Two limits with equal hashes are Equal,
// except for a 64-bit collision.
func ParamsID(l *limiter.Limit) uint64 { return of(l).ID }

// Scaled returns a limit like l, with the same name, window and options, whose limit
// and burst are num/den of those of l: rounded down, at least 1, and at most the
// greatest valid value. Units that leak at once are scaled alike, and the limit is rounded
// down to a multiple of them. A den of 0 counts as 1. [State.Adopt] converts states between l
// and its share in both directions and keeps the consumption.
//
// Rounding can yield a burst that takes over 100 years to recover at the lower rate. It
// is then reduced so that it does not.
func Scaled(l *limiter.Limit, num, den uint64) *limiter.Limit {
	if num == den {
		return l
	}
	p := of(l).P
	most := min(of(l).maxUnits(), limiter.MaxUnits)
	if p.Algorithm == limiter.SlidingLog {
		most = limiter.MaxLogLimit
	}
	p.Limit = share(p.Limit, num, den, most)
	if p.DripUnits > 1 {
		p.DripUnits = share(p.DripUnits, num, den, p.Limit)
		if p.Limit -= p.Limit % p.DripUnits; p.DripUnits == 1 {
			p.DripUnits = 0
		}
	}
	if p.Burst > 0 {
		p.Burst = share(p.Burst, num, den, most)
		if hi, lo := bits.Mul64(uint64(limiter.Span(limiter.MaxRecovery)), p.Limit); hi < uint64(p.Window) {
			p.Burst = min(p.Burst, quo(hi, lo, uint64(p.Window)))
		}
	}
	if p.Ceiling > 0 {
		p.Ceiling = share(p.Ceiling, num, den, most)
	}
	return p.Compile(of(l).Cal)
}

// share returns x*num/den, from 1 to most.
func share(x, num, den, most uint64) uint64 {
	den = max(den, 1)
	hi, lo := bits.Mul64(x, num)
	if hi >= den {
		return most
	}
	return min(max(quo(hi, lo, den), 1), most)
}

// NameID returns a 64-bit hash of the name. Tables mix it into the identity of a key.
func NameID(l *limiter.Limit) uint64 { return of(l).NameID }

// Wide reports whether the counts of the limit take more than 32 bits: it, or its burst, is above
// [limiter.NarrowUnits], or it is a limit of windows of NarrowUnits. (That one is not if it has a block, and windows
// that a wide limit with one cannot have.)
func Wide(l *limiter.Limit) bool { return of(l).P.Wide }
