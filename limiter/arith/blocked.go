package arith

import "github.com/weirlimit/weir/limiter"

// A wide limit counts two numbers of up to 53 bits, so its state of 24 bytes has no field for the end
// of a block. While a block runs, its state is stored in another form, which the highest bit marks.
// Once the block is over, the state is stored as that of a wide limit without a block.
//
// No algorithm needs all bits of all four values beside a block. Windows and sub-windows that
// begin at multiples of their length begin at whole seconds: see [limiter.Spec.Problems]. All others have a
// second number of up to 32 bits, if any. So a state has A, one number of 53 bits, an instant, and one
// number in the bits that the instant leaves:
//
//   - aligned windows, at an instant: B; the start, 33 bits of seconds; and by how much the block ends
//     after it, 51 bits with a sign.
//   - aligned windows, exported: B; the start as a span, 38 bits of milliseconds with a sign, rounded
//     up; and the rest of the block, 46 bits.
//   - other algorithms: the block's end; the instant, 53 bits; and B, 32 bits.
//
// One bit of the last number says that counts of MaxUnits are ones beyond it, see mostCounted. If one count of two is
// MaxUnits and the other is beyond, that bit stands with 0 for the former and 1 for the latter.
//
// A sub-window that came from another clock may begin within a second. Stored with a block it begins
// at the next whole second, so it counts longer by that, and denies no less.
const (
	// blockedBit is set in A and B, read as one number, if a block runs; spanBit if the state of an
	// aligned window is an exported one.
	blockedBit = 1 << 63
	spanBit    = 1 << 62

	unitBits   = 53
	secondBits = 33
	milliBits  = 38
	tickBits   = 53
	afterBits  = 2*64 + 9 - unitBits - secondBits // of the block's end after the start
	restBits   = 2*64 + 9 - unitBits - milliBits  // of the rest of a block

	// early is how long before the epoch an instant may be, and earlySeconds in seconds: longer than two
	// windows, since exported instants are spans.
	early        = 1 << 47
	earlySeconds = 1 << 27

	// beyondAfter, changed in part, says that a count is beyond MaxUnits. Ends of blocks are at most half as
	// far from the start, so the bit differs from the next one. beyondRest and beyondB are that bit of
	// the other forms: no block is as long as beyondRest, and what is counted in units has no B there.
	beyondAfter = 1 << (afterBits - 2)
	beyondRest  = 1 << (restBits - 1)
	beyondB     = 1
)

// blocked has the parts of a state during a block.
type blocked struct {
	span  bool   // spanBit
	a     uint64 // A
	whole uint64 // a number of unitBits
	at    uint64 // an instant, of so many bits
	bits  int
	part  uint64 // a number in the bits that are left
}

// state stores the parts: the lowest 11 bits of part above whole, the next ones above the instant, the
// highest above A.
func (b blocked) state() State {
	first := b.a | b.part>>(75-b.bits)<<unitBits | blockedBit
	if b.span {
		first |= spanBit
	}
	return State{
		Time: limiter.Tick(b.at | b.part>>11<<b.bits), Until: limiter.Tick(b.whole | b.part<<unitBits),
		A: uint32(first), B: uint32(first >> 32),
	}
}

// blocked returns the parts of a state whose instant has so many bits.
func (s *State) blocked(bits int) blocked {
	first, high := s.first(), 9
	if bits == tickBits {
		high = 10 // there is no spanBit
	}
	return blocked{
		a: first & (1<<unitBits - 1), whole: uint64(s.Until) & (1<<unitBits - 1), at: uint64(s.Time) & (1<<bits - 1),
		part: uint64(s.Until)>>unitBits | uint64(s.Time)>>bits<<11 | first>>unitBits&(1<<high-1)<<(75-bits),
	}
}

// first returns A and B as one number.
func (s *State) first() uint64 { return uint64(s.A) | uint64(s.B)<<32 }

// bounded returns t, or the nearest number of so many bits.
func bounded(t limiter.Tick, bits int) uint64 { return uint64(min(max(t, 0), 1<<bits-1)) }

// alignedStarts reports whether the limit counts in windows or sub-windows that begin at multiples of their length,
// or of a calendar. That of an imported state may begin in the future.
func (l *rate) alignedStarts() bool {
	switch l.P.Algorithm {
	case limiter.SlidingCounter, limiter.SlidingWindow:
		return true
	default:
		return l.P.Algorithm == limiter.FixedWindow && l.P.Align == limiter.AlignEpoch
	}
}

// stateBlocked returns the state of a wide limit during a block.
func (l *rate) stateBlocked(c *Counts) State {
	a, whole := min(c.A, limiter.MaxUnits), min(c.B, limiter.MaxUnits)
	var beyond uint64
	if max(c.A, c.B) > limiter.MaxUnits {
		beyond = 1
		if l.alignedStarts() && min(c.A, c.B) == limiter.MaxUnits {
			a, whole = c.A-limiter.MaxUnits, c.B-limiter.MaxUnits
		}
	}
	switch {
	case !l.alignedStarts():
		return blocked{
			a: a, whole: bounded(c.Until, unitBits), at: bounded(c.Time+early, tickBits), bits: tickBits,
			part: min(c.B, limiter.NarrowUnits) | beyond*beyondB,
		}.state()
	case c.Time%limiter.Second != 0 && max(c.Time, -c.Time) < early/2 && c.Until < beyondRest:
		milli := floorTo(c.Time+limiter.Millisecond-1, limiter.Millisecond) / limiter.Millisecond
		return blocked{
			span: true, a: a, whole: whole, at: bounded(milli+1<<(milliBits-1), milliBits), bits: milliBits,
			part: bounded(c.Until, restBits) | beyond*beyondRest,
		}.state()
	default:
		// A start so long before the end of the block that the difference has more bits counts no longer,
		// nor does a later one. An end so long before the start is over.
		longest := limiter.Tick(beyondAfter) - 2*limiter.Second
		start := floorTo(max(c.Time, c.Until-longest)+limiter.Second-1, limiter.Second)
		return blocked{
			a: a, whole: whole, at: bounded(start/limiter.Second+earlySeconds, secondBits), bits: secondBits,
			part: bounded(max(c.Until-start, -longest)+1<<(afterBits-1), afterBits) ^ beyond*beyondAfter,
		}.state()
	}
}

// openBlocked is the inverse of stateBlocked.
func (l *rate) openBlocked(s *State) Counts {
	if !l.alignedStarts() {
		b := s.blocked(tickBits)
		c := Counts{Time: limiter.Tick(b.at) - early, Until: limiter.Tick(b.whole), A: b.a, B: b.part}
		if !l.Shared && l.P.Algorithm != limiter.Concurrency && c.B == beyondB {
			c.A, c.B = beyondMost(c.A), 0
		}
		return c
	}
	var (
		c      Counts
		b      blocked
		beyond bool
	)
	if s.first()&spanBit != 0 {
		b = s.blocked(milliBits)
		beyond = b.part&beyondRest != 0
		c.Time, c.Until = (limiter.Tick(b.at)-1<<(milliBits-1))*limiter.Millisecond, limiter.Tick(b.part&^beyondRest)
	} else {
		b = s.blocked(secondBits)
		if beyond = b.part>>(afterBits-1) == b.part>>(afterBits-2)&1; beyond {
			b.part ^= beyondAfter
		}
		c.Time = (limiter.Tick(b.at) - earlySeconds) * limiter.Second
		c.Until = c.Time + limiter.Tick(b.part) - 1<<(afterBits-1)
	}
	switch c.A, c.B = b.a, b.whole; {
	case beyond && max(c.A, c.B) == 1:
		c.A, c.B = limiter.MaxUnits+c.A, limiter.MaxUnits+c.B
	case beyond:
		c.A, c.B = beyondMost(c.A), beyondMost(c.B)
	}
	return c
}

// beyondMost returns what a count during a block is if one is beyond MaxUnits.
func beyondMost(n uint64) uint64 {
	if n == limiter.MaxUnits {
		return mostCounted
	}
	return n
}
