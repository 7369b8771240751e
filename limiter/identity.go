package limiter

import (
	"math/bits"

	"github.com/weirlimit/weir/limiter/calendar"
)

// mixer is a 64-bit hash that is the same in every process and on every platform, for
// identifiers that nodes exchange. It is not keyed: the author of rules could construct
// a collision, which would affect only these rules.
type mixer uint64

// The multipliers are digits of pi and of the golden ratio. Any odd numbers without a
// pattern would do.
const (
	mixFirst  = 0x9e3779b97f4a7c15
	mixSecond = 0x243f6a8885a308d3
)

// add hashes a word: both factors are multiplied and the halves of the product are
// combined.
func (m mixer) add(v uint64) mixer {
	hi, lo := bits.Mul64(uint64(m)^mixFirst, v^mixSecond)
	// The sum preserves earlier input if a factor is 0.
	return m + mixer(hi^lo) + mixFirst
}

// text hashes a string, after its length.
func (m mixer) text(s string) mixer {
	m = m.add(uint64(len(s)))
	for ; len(s) >= 8; s = s[8:] {
		m = m.add(uint64(s[0]) | uint64(s[1])<<8 | uint64(s[2])<<16 | uint64(s[3])<<24 |
			uint64(s[4])<<32 | uint64(s[5])<<40 | uint64(s[6])<<48 | uint64(s[7])<<56)
	}
	var rest uint64
	for i := range len(s) {
		rest |= uint64(s[i]) << (8 * i)
	}
	return m.add(rest)
}

// id returns a hash of everything that makes two limits decide alike.
func (p *params) id() uint64 {
	m := mixer(0).text(p.name)
	m = m.add(p.limit&NarrowUnits | p.burst<<32).add(uint64(p.window)).add(uint64(p.block))
	m = m.add(uint64(p.algorithm) | uint64(p.align)<<8 | uint64(p.coverage)<<16 | uint64(p.rounding)<<24 |
		uint64(p.drip)<<32 | uint64(p.count)<<40)
	m = m.add(uint64(p.subWindows) | uint64(p.weight)<<16)
	if p.wide { // so other limits keep the hash of versions without wide ones
		m = m.text("wide").add(p.limit).add(p.burst)
	}
	if p.dripUnits > 1 { // so other limits keep the hash of versions without them
		m = m.text("drip").add(p.dripUnits)
	}
	if p.calendar.Unit != calendar.None { // so other limits keep the hash of versions without calendars
		m = m.calendar(&p.calendar)
	}
	return uint64(m)
}

func (m mixer) calendar(c *calendar.Spec) mixer {
	return m.text(c.Zone).add(uint64(c.Unit) | uint64(c.AnchorDay)<<8 | uint64(c.WeekStart)<<16 | uint64(c.At)<<24)
}

// CalendarID returns a hash of what determines the limit's calendar windows. It is the
// same in every process.
func CalendarID(l *Limit) uint64 { return uint64(mixer(2).calendar(&l.p.calendar)) }

// ParamsID returns a hash of the limit's name and of everything that affects its
// decisions. It is the same in every process. Two limits with equal hashes are Equal,
// except for a 64-bit collision.
func ParamsID(l *Limit) uint64 { return l.paramsID }

// ID returns a hash of the rule: its name, its limits in their order, and its policies.
// It is the same in every process, so nodes use it to compare rules. MaxShare is not
// included: it affects only the answers of a full table, and each owner applies its
// own. ID takes a few nanoseconds for each limit.
func (r *Rule) ID() uint64 {
	m := mixer(1).text(r.Name)
	flags := uint64(r.OnUnreachable)<<8 | uint64(r.Replication)<<16
	if r.Shadow {
		flags |= 1
	}
	m = m.add(flags).add(uint64(len(r.Limits)))
	for _, l := range r.Limits {
		m = m.add(l.paramsID)
	}
	return uint64(m)
}

// Scaled returns a limit like l, with the same name, window and options, whose limit
// and burst are num/den of those of l: rounded down, at least 1, and at most the
// greatest valid value. Units that leak at once are scaled alike, and the limit is rounded
// down to a multiple of them. A den of 0 counts as 1. [State.Adopt] converts states between l
// and its share in both directions and keeps the consumption.
//
// Rounding can yield a burst that takes over 100 years to recover at the lower rate. It
// is then reduced so that it does not.
func Scaled(l *Limit, num, den uint64) *Limit {
	if num == den {
		return l
	}
	scaled := &Limit{p: l.p, cal: l.cal}
	p := &scaled.p
	most := min(l.maxUnits(), MaxUnits)
	if p.algorithm == SlidingLog {
		most = MaxLogLimit
	}
	p.limit = share(p.limit, num, den, most)
	if p.dripUnits > 1 {
		p.dripUnits = share(p.dripUnits, num, den, p.limit)
		if p.limit -= p.limit % p.dripUnits; p.dripUnits == 1 {
			p.dripUnits = 0
		}
	}
	if p.burst > 0 {
		p.burst = share(p.burst, num, den, most)
		if hi, lo := bits.Mul64(uint64(maxDebt), p.limit); hi < uint64(p.window) {
			p.burst = min(p.burst, quo(hi, lo, uint64(p.window)))
		}
	}
	scaled.precompute()
	return scaled
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
