package limiter

import (
	"hash/fnv"
	"math/bits"

	"github.com/weirlimit/weir/limiter/calendar"
)

// Compiled is a [Limit] in the units of the arithmetic, for package arith, which describes it. No program should depend
// on it: it is not promised.
type Compiled struct {
	P      Params
	NameID uint64 // a hash of the name
	ID     uint64 // a hash of P

	// Precomputed from P.
	Window Tick
	Shift  Tick               // offset of aligned windows from the epoch
	Cal    *calendar.Calendar // nil: windows have a fixed length
	Limit  uint64             // units per window
	Full   uint64             // largest cost that can ever be admitted, but for the ceiling
	Cap    uint64             // and with it
	Sub    Tick               // length of a sub-window
	Subs   int                // number of sub-windows that count
	Weight uint64             // thousandths
	Unit   uint64             // buckets: ticks per unit, whole part of window/limit; by interval: drips per window
	UnitR  uint64             // and the remainder, in 1/limit ticks; by interval: units of a drip
	Most   uint64             // buckets: largest level of a state, in units
	// WholeTail reports that a unit of the previous window counts until that window is
	// two windows old (sliding_counter, rounded up or not at all).
	WholeTail bool
	// KeepsWords is set for sliding_log, sliding_window and holds.
	KeepsWords bool
	Shared     bool // token bucket, continuous leaky bucket and GCRA share their arithmetic
	// For these, Longest is the longest time, in ticks, that a level can take to leak.
	// Grain is the unit in which the time of the last charge is stored: one tick, or
	// more if a full bucket takes more than an hour to leak.
	Longest, Grain Tick
}

// Params is the comparable part of a [Compiled]. Two limits with equal Params decide alike. It is not promised either.
type Params struct {
	Name       string
	Algorithm  Algorithm
	Wide       bool // limit or burst may be above NarrowUnits: see arith.State.Open
	Limit      uint64
	Burst      uint64
	Ceiling    uint64 // 0: none
	Window     Tick
	Block      Tick
	Align      Align
	Coverage   Coverage
	Rounding   Rounding
	Drip       Drip
	DripUnits  uint64 // 0: 1
	Count      CountRejected
	SubWindows uint16
	Weight     uint16
	Calendar   calendar.Spec
}

// Compile returns the limit of valid parameters, and of the calendar that they name, nil for none.
func (p Params) Compile(cal *calendar.Calendar) *Limit {
	l := &Limit{C: Compiled{P: p, Cal: cal}}
	l.Plain = !p.Wide && p.Algorithm != remembered && (p.Algorithm != LeakyBucket || p.Drip == DripContinuous)
	l.C.precompute()
	return l
}

func (l *Compiled) precompute() {
	p := &l.P
	h := fnv.New64a()
	h.Write([]byte(p.Name))
	l.NameID, l.ID = h.Sum64(), p.id()
	l.Window, l.Limit, l.Full = p.Window, p.Limit, p.Limit
	l.Weight = uint64(p.Weight)
	if l.Window%Week == 0 {
		l.Shift = 4 * Day // the epoch was a Thursday
	}
	l.KeepsWords = p.Algorithm == SlidingLog || p.Algorithm == SlidingWindow || p.Algorithm == holds
	switch p.Algorithm {
	case SlidingCounter:
		l.WholeTail = l.Weight > 0 && (p.Rounding == RoundExact || p.Rounding == RoundCeil)
	case SlidingWindow:
		l.Sub = l.Window / Tick(p.SubWindows)
		l.Subs = int(p.SubWindows)
		if p.Coverage == CoverageStrict {
			l.Subs++
		}
	case TokenBucket, LeakyBucket, GCRA:
		l.Shared = p.Drip == DripContinuous
		l.Full = p.Burst
		l.Unit, l.UnitR = uint64(l.Window)/l.Limit, uint64(l.Window)%l.Limit
		if !l.Shared {
			l.UnitR = max(p.DripUnits, 1)
			l.Unit = l.Limit / l.UnitR
		}
		// No legal burst reaches it.
		l.Most = min(l.Full+max(l.Full, l.Limit, l.LeaksIn(leastDebt)), l.LeaksIn(Span(MaxRecovery))+1, mostCounted)
		hi, lo := bits.Mul64(l.Most, uint64(l.Window))
		q, _ := bits.Div64(hi, lo, l.Limit)
		l.Longest = Tick(q) + 1
		hi, lo = bits.Mul64(l.Full, uint64(l.Window))
		l.Grain = Tick(quo(hi, lo, l.Limit))>>32 + 1
	}
	if l.Cap = l.Full; p.Ceiling > 0 {
		l.Cap = min(p.Ceiling, l.Full)
	}
}

// LeaksIn returns how many units leak from a bucket in a span, at most mostCounted.
func (l *Compiled) LeaksIn(span Tick) uint64 {
	hi, lo := bits.Mul64(uint64(span), l.Limit)
	if hi >= uint64(l.Window) {
		return mostCounted
	}
	return min(quo(hi, lo, uint64(l.Window)), mostCounted)
}

func quo(hi, lo, d uint64) uint64 { q, _ := bits.Div64(hi, lo, d); return q }
