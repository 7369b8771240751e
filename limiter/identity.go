package limiter

import "math/bits"

// mixer is a hash of 64 bits that is the same in every process and on every
// platform, for names that nodes give to what they both have. It is not keyed:
// who writes rules could make two of them collide, and would fool nobody else.
type mixer uint64

// The multipliers are the digits of pi and of the golden ratio: any odd numbers
// without a pattern would do.
const (
	mixFirst  = 0x9e3779b97f4a7c15
	mixSecond = 0x243f6a8885a308d3
)

// add continues the hash by a word: the product of two words, its halves folded.
func (m mixer) add(v uint64) mixer {
	hi, lo := bits.Mul64(uint64(m)^mixFirst, v^mixSecond)
	// The sum keeps what came before where a factor is 0.
	return m + mixer(hi^lo) + mixFirst
}

// text continues the hash by a string, its length first.
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

// id hashes all that makes two limits decide alike.
func (p *params) id() uint64 {
	m := mixer(0).text(p.name)
	m = m.add(uint64(p.limit) | uint64(p.burst)<<32).add(uint64(p.window)).add(uint64(p.block))
	m = m.add(uint64(p.algorithm) | uint64(p.align)<<8 | uint64(p.coverage)<<16 | uint64(p.rounding)<<24 |
		uint64(p.drip)<<32 | uint64(p.count)<<40)
	return uint64(m.add(uint64(p.subWindows) | uint64(p.weight)<<16))
}

// ParamsID returns a hash of the limit's name and of all that decides, the same
// in every process: two limits with equal hashes are Equal, but for a collision
// of 64 bits.
func (l *Limit) ParamsID() uint64 { return l.paramsID }

// ID returns a hash of the rule: its name, its limits in their order, and how
// it is treated. It is the same in every process, so that nodes can tell by it
// whether they have the same rule. MaxShare is no part of it: it changes no answer but
// of a table that is full, and each owner holds to its own. It takes some nanoseconds for
// each limit.
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

// Scaled returns a limit like l, with the same name, window and options, whose
// limit and burst are the share num/den of l's: rounded down, at least 1, and
// at most what a limit may have. A den of 0 is taken as 1. A state of l can be
// made into one of its share and back by [Limit.Adopt]: what was used stays
// used.
//
// A burst that would take over 100 years to recover at the lower rate, which
// rounding can bring about, is lowered to one that does not.
func (l *Limit) Scaled(num, den uint64) *Limit {
	if num == den {
		return l
	}
	scaled := &Limit{p: l.p}
	p := &scaled.p
	most := uint64(MaxUnits)
	if p.algorithm == SlidingLog {
		most = MaxLogLimit
	}
	p.limit = share(p.limit, num, den, most)
	if p.burst > 0 {
		p.burst = share(p.burst, num, den, most)
		if hi, lo := bits.Mul64(uint64(maxDebt), uint64(p.limit)); hi < uint64(p.window) {
			p.burst = uint32(min(uint64(p.burst), quo(hi, lo, uint64(p.window))))
		}
	}
	scaled.precompute()
	return scaled
}

// share returns x*num/den, from 1 to most.
func share(x uint32, num, den, most uint64) uint32 {
	den = max(den, 1)
	hi, lo := bits.Mul64(uint64(x), num)
	if hi >= den {
		return uint32(most)
	}
	return uint32(min(max(quo(hi, lo, den), 1), most))
}
