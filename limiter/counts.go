package limiter

// Counts is a [State] during a decision. Its fields are those of the state, with A and B wide enough
// for every limit. A decider that takes several steps with one state opens it once, by [State.Open],
// and stores it at the end. It is not safe for concurrent use.
type Counts struct {
	Time, Until Tick
	A, B        uint64
}

// idBits is how many bits of B say what a remembered id charged: see [IDParts]. The bits above are
// of its cost. idMask has the former set.
const (
	idBits = MaxLimits + 1
	idMask = 1<<idBits - 1
)

// open is [State.Open].
//
// A wide limit has no blocks. Its state stores the first number in A and B, and the second in
// Until. A remembered id has a cost of up to 53 bits. A stores the lowest 32 of them, the upper
// part of B the next 15, and the first byte of Until the last six. Otherwise that byte repeats the
// sign of Until.
func (l *Limit) open(s *State) Counts {
	if l.plain {
		return Counts{s.Time, s.Until, uint64(s.A), uint64(s.B)}
	}
	return l.openOther(s)
}

// openOther is open for a state that is not plain. It is apart so that open is inlined.
//
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

// packOther is pack for a state that is not plain.
//
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
	high := Tick(c.A >> (64 - idBits) << 56) // at most six bits
	return State{
		Time: c.Time, Until: c.Until ^ high,
		A: uint32(c.A), B: uint32(c.B) | uint32(c.A>>32)<<idBits,
	}
}
