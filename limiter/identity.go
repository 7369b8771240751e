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
func (p *Params) id() uint64 {
	m := mixer(0).text(p.Name)
	m = m.add(p.Limit&NarrowUnits | p.Burst<<32).add(uint64(p.Window)).add(uint64(p.Block))
	m = m.add(uint64(p.Algorithm) | uint64(p.Align)<<8 | uint64(p.Coverage)<<16 | uint64(p.Rounding)<<24 |
		uint64(p.Drip)<<32 | uint64(p.Count)<<40)
	m = m.add(uint64(p.SubWindows) | uint64(p.Weight)<<16)
	if p.Wide { // so other limits keep the hash of versions without wide ones
		m = m.text("wide").add(p.Limit).add(p.Burst)
	}
	if p.DripUnits > 1 { // so other limits keep the hash of versions without them
		m = m.text("drip").add(p.DripUnits)
	}
	if p.Calendar.Unit != calendar.None { // so other limits keep the hash of versions without calendars
		m = m.calendar(&p.Calendar)
	}
	if p.Ceiling > 0 { // likewise
		m = m.text("ceiling").add(p.Ceiling)
	}
	return uint64(m)
}

// Full returns the parameters without the ceiling, on which no state depends.
func (p Params) Full() Params {
	p.Ceiling = 0
	return p
}

// full is ID without the ceiling.
func (l *Compiled) full() uint64 {
	if l.P.Ceiling == 0 {
		return l.ID
	}
	p := l.P.Full()
	return p.id()
}

func (m mixer) calendar(c *calendar.Spec) mixer {
	return m.text(c.Zone).add(uint64(c.Unit) | uint64(c.AnchorDay)<<8 | uint64(c.WeekStart)<<16 | uint64(c.At)<<24)
}

// CalendarID returns a hash of what determines calendar windows.
func (p *Params) CalendarID() uint64 { return uint64(mixer(2).calendar(&p.Calendar)) }

// CountsID returns what arith.CountsID does.
func (l *Compiled) CountsID() uint64 {
	p := &l.P
	switch p.Algorithm {
	case TokenBucket, LeakyBucket, GCRA:
		return l.full()
	}
	if p.Count == CountAll && p.Algorithm == SlidingLog { // its bound depends on the limit
		return l.full()
	}
	m := mixer(3).add(l.NameID).add(uint64(p.Window))
	if p.Wide && p.Algorithm != Concurrency { // slots are what holds have, see arith.CountHeld
		m = m.text("wide")
	}
	return uint64(m.add(uint64(p.Algorithm) | uint64(p.Align)<<8 | uint64(l.Subs)<<16).calendar(&p.Calendar))
}

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
		m = m.add(l.C.ID)
	}
	return uint64(m)
}
