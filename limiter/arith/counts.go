package arith

import "github.com/weirlimit/weir/limiter"

// Counts is a [State] during a decision. Its fields are those of the state, with A and B wide enough
// for every limit. A decider that takes several steps with one state opens it once, by [State.Open],
// and stores it at the end, by [Counts.State]. It is not safe for concurrent use.
type Counts struct {
	Time, Until limiter.Tick
	A, B        uint64
}

// idBits is how many bits of B say what a remembered id charged: see [IDParts]. The bits above are
// of its cost. idMask has the former set.
const (
	idBits = limiter.MaxLimits + 1
	idMask = 1<<idBits - 1
)

// Open returns what a state of the limit counts, for the steps of a decision.
//
// A leaky bucket by interval stores its level in A and B. A state of a wide limit stores the first number in A and B,
// and the second in Until. During a block it has another form: see blockedBit. A remembered id has a cost of up to 53
// bits. A stores the lowest 32 of them, the upper part of B the next 15, and the first byte of Until the last six.
// Otherwise that byte repeats the sign of Until.
func (s *State) Open(l *limiter.Limit) Counts {
	if l.Plain {
		return Counts{s.Time, s.Until, uint64(s.A), uint64(s.B)}
	}
	return s.openOther(l)
}

// openOther is [State.Open] for a state that is not plain. It is apart so that Open is inlined.
//
//go:noinline
func (s *State) openOther(limit *limiter.Limit) Counts {
	l := of(limit)
	if !l.P.Wide {
		if l.P.Algorithm == limiter.LeakyBucket {
			return Counts{Time: s.Time, Until: s.Until, A: s.first()}
		}
		return openID(s)
	}
	if s.first()&blockedBit != 0 {
		return l.openBlocked(s)
	}
	return Counts{Time: s.Time, A: s.first(), B: uint64(s.Until)}
}

// State is the inverse of [State.Open].
func (c *Counts) State(l *limiter.Limit) State {
	if l.Plain {
		return State{c.Time, c.Until, uint32(c.A), uint32(c.B)}
	}
	return c.stateOther(l)
}

// stateOther is [Counts.State] for a state that is not plain. It is apart so that State is inlined.
//
//go:noinline
func (c *Counts) stateOther(limit *limiter.Limit) State {
	l := of(limit)
	if !l.P.Wide {
		if l.P.Algorithm == limiter.LeakyBucket {
			return State{c.Time, c.Until, uint32(c.A), uint32(c.A >> 32)}
		}
		return packedID(c)
	}
	if c.Until != 0 {
		return l.stateBlocked(c)
	}
	return State{Time: c.Time, Until: limiter.Tick(c.B), A: uint32(c.A), B: uint32(c.A >> 32)}
}

func openID(s *State) Counts {
	sign := s.Until << 8 >> 63
	high := uint64(s.Until^sign) >> 56
	return Counts{
		Time: s.Time, Until: s.Until << 8 >> 8,
		A: uint64(s.A) | uint64(s.B>>idBits)<<32 | high<<(64-idBits), B: uint64(s.B & idMask),
	}
}

func packedID(c *Counts) State {
	high := limiter.Tick(c.A >> (64 - idBits) << 56) // at most six bits
	return State{
		Time: c.Time, Until: c.Until ^ high,
		A: uint32(c.A), B: uint32(c.B) | uint32(c.A>>32)<<idBits,
	}
}

// mostCounted is the largest count of a wide limit, and the highest level of a bucket: one more than any
// limit. So one that is there is beyond the limit, and may have been further.
const mostCounted = limiter.MaxUnits + 1

// maxUnits returns the largest count of a state.
func (l *rate) maxUnits() uint64 {
	switch {
	case l.P.Wide:
		return mostCounted
	case l.P.Algorithm == Remembered:
		return limiter.MaxUnits
	default:
		return limiter.NarrowUnits
	}
}
