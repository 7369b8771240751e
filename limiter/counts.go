package limiter

// Counts is a [State] during a decision, with numbers that are wide enough for every limit. Deciders
// that take several steps with one state keep it between them.
type Counts struct {
	Time, Until Tick
	A, B        uint64
}

// idBits is how many bits of B a remembered id has for what it charged. Those above have part of
// its cost.
const (
	idBits = MaxLimits + 1
	idMask = 1<<idBits - 1
)

// open returns a state of the limit as numbers.
//
// A wide limit, which has no blocks, stores its first number in A and B, and its second in
// Until. A remembered id stores the bits of its cost above the 32nd above idBits of B, and those
// above these in the first byte of Until, which is otherwise a copy of the sign.
func (l *Limit) open(s *State) Counts {
	if l.plain {
		return Counts{s.Time, s.Until, uint64(s.A), uint64(s.B)}
	}
	return l.openOther(s)
}

//go:noinline
func (l *Limit) openOther(s *State) Counts {
	if l.p.wide {
		return Counts{Time: s.Time, A: uint64(s.A) | uint64(s.B)<<32, B: uint64(s.Until)}
	}
	return openID(s)
}

// Open returns what a state of the limit counts, for the steps of a decision.
func (s *State) Open(l *Limit) Counts { return l.open(s) }

// Store is the inverse of [State.Open].
func (c *Counts) Store(l *Limit, s *State) { l.pack(s, c) }

// pack is the inverse of open.
func (l *Limit) pack(s *State, c *Counts) {
	if l.plain {
		s.Time, s.Until, s.A, s.B = c.Time, c.Until, uint32(c.A), uint32(c.B)
		return
	}
	l.packOther(s, c)
}

//go:noinline
func (l *Limit) packOther(s *State, c *Counts) {
	if l.p.wide {
		*s = State{Time: c.Time, Until: Tick(c.B), A: uint32(c.A), B: uint32(c.A >> 32)}
		return
	}
	*s = packedID(c)
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
	high := Tick(c.A >> (64 - idBits) << 56) //nolint:gosec // at most six bits
	return State{
		Time: c.Time, Until: c.Until ^ high,
		A: uint32(c.A), B: uint32(c.B) | uint32(c.A>>32)<<idBits,
	}
}
