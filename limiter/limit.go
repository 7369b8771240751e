package limiter

import (
	"cmp"
	"errors"
	"fmt"
	"time"

	"github.com/weirlimit/weir/limiter/calendar"
)

// Algorithm is the algorithm of a limit.
type Algorithm uint8

// The algorithms. The zero value is the default.
const (
	SlidingCounter Algorithm = iota
	FixedWindow
	SlidingLog
	SlidingWindow
	TokenBucket
	LeakyBucket
	GCRA
	algorithms // the number of algorithms that limit a rate
)

// The algorithms of the counters that tables keep for themselves: arith.Remembered and arith.Holds.
const remembered, holds Algorithm = 64, 65

// Concurrency is the algorithm of limits on the number of units that are held at one time. A
// check of such a limit needs a hold, see [Request.Hold]. Its units count until it is settled,
// with any number, or until its hold ends. A charge without a hold ends at once.
const Concurrency = algorithms

// AlgorithmNames returns the names of the algorithms that limit a rate, in rules files, indexed by
// [Algorithm]. [Concurrency] has its name beside them.
func AlgorithmNames() []string {
	return []string{"sliding_counter", "fixed_window", "sliding_log", "sliding_window", "token_bucket", "leaky_bucket",
		"gcra"}
}

// String returns the algorithm's name in a rules file.
func (a Algorithm) String() string { return nameOf(append(AlgorithmNames(), "concurrency"), int(a)) }

// Align is where the windows of fixed_window begin.
type Align uint8

// The alignments. The zero value is the default.
const (
	// AlignEpoch begins windows at multiples of the window since the epoch, in UTC.
	// Windows of whole weeks begin on Monday.
	AlignEpoch Align = iota
	// AlignFirstHit begins a window with the first hit after the previous window.
	AlignFirstHit
)

// String returns the alignment's name in a rules file.
func (a Align) String() string { return nameOf([]string{"epoch", "first_hit"}, int(a)) }

// Coverage is how long a sub-window of sliding_window counts.
type Coverage uint8

// The coverages. The zero value is the default.
const (
	// CoverageStrict counts a sub-window until its end is one window old, so m+1
	// sub-windows count. The limit is never exceeded in any interval of the window's
	// length.
	CoverageStrict Coverage = iota
	// CoverageLenient counts it until its start is one window old, so m sub-windows
	// count.
	CoverageLenient
)

// String returns the coverage's name in a rules file.
func (c Coverage) String() string { return nameOf([]string{"strict", "lenient"}, int(c)) }

// Rounding is how sliding_counter rounds the previous window's part.
type Rounding uint8

// The roundings. The zero value is the default.
const (
	RoundExact Rounding = iota // no rounding
	RoundFloor
	RoundNearest // half up
	RoundCeil
)

// String returns the rounding's name in a rules file.
func (r Rounding) String() string {
	return nameOf([]string{"exact", "floor", "nearest", "ceil"}, int(r))
}

// Drip is how leaky_bucket leaks.
type Drip uint8

// The drips. The zero value is the default.
const (
	// DripContinuous leaks evenly, limit units per window.
	DripContinuous Drip = iota
	// DripInterval leaks one unit at each multiple of window/limit since the epoch, or
	// [Spec.DripUnits] at each multiple of that many times window/limit.
	DripInterval
)

// String returns the drip's name in a rules file.
func (d Drip) String() string { return nameOf([]string{"continuous", "interval"}, int(d)) }

// CountRejected is what a denied check is charged.
type CountRejected uint8

// The modes. The zero value is the default.
const (
	// CountNone: nothing.
	CountNone CountRejected = iota
	// CountRoom: the limit is charged if it had room and another limit denied.
	CountRoom
	// CountAll: the limit is charged by every denial.
	CountAll
)

// String returns the mode's name in a rules file.
func (c CountRejected) String() string { return nameOf([]string{"none", "room", "all"}, int(c)) }

// Bounds of a limit.
const (
	// MinWindow and MaxWindow bound the window.
	MinWindow = time.Millisecond
	MaxWindow = 400 * 24 * time.Hour
	// MaxLogLimit bounds the limit of sliding_log. Its memory grows with the limit: 8
	// bytes for each admitted check in the window; with [CountAll] up to twice the limit.
	MaxLogLimit = 1_000_000
	// MaxLogUnits bounds the units that a log counts after settlements beyond its limit. A log that
	// has as many may have forgotten others, so nothing is given back to it.
	MaxLogUnits = MaxLogLimit + MaxLogLimit/4
	// MaxSubWindows bounds the sub-windows of sliding_window, which take 4 bytes each, and 8
	// if the limit is above [NarrowUnits].
	MaxSubWindows = 3600
	// DefaultSubWindows is used if a spec has 0.
	DefaultSubWindows = 10
	// MaxNameBytes bounds the name of a limit or rule.
	MaxNameBytes = 64
	// MaxRecovery bounds how long a full bucket may take until it is empty, and how far ahead of now its level can
	// be: 100 years, so that all instants stay below 2^53 ticks and sums below 2^63.
	MaxRecovery = 36500 * 24 * time.Hour
	// leastDebt is the least time, in ticks, that a bucket at its bound takes until it has room again. It takes
	// longer if its window is longer, or the time in which a full one becomes empty. So one settlement, whatever
	// number it says, denies a key for no longer than one of a window of a day would, unless the bucket is slower.
	// No refund is lost by this bound: what was charged has leaked in that time.
	leastDebt = Day
	// mostCounted is the largest count of a limit, and the highest level of a bucket: one more than any limit.
	mostCounted = MaxUnits + 1
)

// Spec describes a limit. The zero value of every option is its default.
type Spec struct {
	// Name distinguishes the limits of one rule; default: the name of the window, such
	// as "minute" or "15m".
	Name string
	// Algorithm; default sliding_counter.
	Algorithm Algorithm
	// Limit in units per Window, 1 to [MaxUnits] ([MaxLogLimit] for
	// sliding_log).
	Limit int64
	// Window, [MinWindow] to [MaxWindow], in whole microseconds; 0 with a Calendar, and for
	// [Concurrency].
	Window time.Duration
	// Calendar makes the windows those of a calendar, instead of Window. The algorithm
	// is then fixed_window, also by default.
	Calendar Calendar
	// Zone, with a Calendar, is the IANA name of the time zone; default [DefaultZone].
	Zone string
	// AnchorDay, with a month, quarter or year, is the day on which it, or its first
	// month, begins: 1 (default) to 31. In a shorter month it is the last day.
	AnchorDay int
	// WeekStart, with a week, is the day on which it begins.
	WeekStart Weekday
	// At, with a day or a longer unit, is the time of day at which it begins, in whole
	// minutes; default midnight. If the clocks skip it, the window begins with the
	// first instant after the gap; if they show it twice, with the first one.
	At time.Duration
	// Align, for fixed_window.
	Align Align
	// SubWindows, for sliding_window: the number of sub-windows in a window, which must
	// be divisible by it; 0 means [DefaultSubWindows]. More sub-windows are more exact
	// and take more memory.
	SubWindows int
	// Coverage, for sliding_window.
	Coverage Coverage
	// Weight, for sliding_counter: the weight of the previous window, in thousandths
	// from 0 to 1000; nil means 1000.
	Weight *int
	// Rounding, for sliding_counter.
	Rounding Rounding
	// Burst, for token_bucket, leaky_bucket and gcra: the capacity in units, 1
	// to [MaxUnits]; 0 means Limit.
	Burst int64
	// Ceiling, if it is not 0, is how much of the limit, or of the burst of a bucket, checks may use that are decided by
	// this limit: they are denied where more would count. What others use counts, too, and may be more. So limits that
	// differ in nothing else count alike. It may not be above the limit or the burst, and needs a CountRejected of none,
	// no Block, and a limit on a rate.
	Ceiling int64
	// Drip, for leaky_bucket.
	Drip Drip
	// DripUnits, with DripInterval, is how many units leak at once; 0 means 1. Limit must
	// be divisible by it.
	DripUnits int64
	// CountRejected is what denied checks are charged.
	CountRejected CountRejected
	// Block, if positive, denies every check of a key for this long after the limit
	// denied one; at most [MaxWindow], in whole microseconds. Denials during a block do
	// not extend it. A limit above [NarrowUnits] that counts in aligned windows or in
	// sub-windows may have a Block if these are whole seconds long.
	Block time.Duration
}

// Limit is a valid, immutable [Spec], ready for the arithmetic. It is safe for
// concurrent use.
type Limit struct {
	// C and Plain are what package arith reads. They must not be changed, and no program should depend on them. (As
	// results of methods they would cost each step of a decision some nanoseconds: what reads them would not be inlined.)
	C Compiled
	// Plain reports that the states of the limit are stored as they are: see arith.State.Open.
	Plain bool
}

// NewLimit validates a spec. The error wraps [ErrInvalid] and joins one error for each
// problem.
func NewLimit(s Spec) (*Limit, error) {
	if errs := s.Problems(); len(errs) > 0 {
		all := make([]error, len(errs))
		for i, p := range errs {
			all[i] = fmt.Errorf("%w limit: %s", ErrInvalid, p.Text)
		}
		return nil, errors.Join(all...)
	}
	p := Params{
		Name:      s.Name,
		Algorithm: s.Algorithm,
		Limit:     uint64(s.Limit),
		Ceiling:   uint64(s.Ceiling),
		Wide:      s.wide(),
		Window:    Tick(s.Window / TickDuration),
		Block:     Tick(s.Block / TickDuration),
		Count:     s.CountRejected,
	}
	if p.Name == "" {
		p.Name = s.DefaultName()
	}
	if s.Algorithm == Concurrency {
		p.Window = Span(MaxHold)
	}
	var cal *calendar.Calendar
	if s.Calendar != CalendarNone {
		p.Algorithm, p.Window, p.Calendar = FixedWindow, s.Calendar.longest(), s.calendar()
		var err error
		if cal, err = calendar.New(p.Calendar); err != nil {
			return nil, fmt.Errorf("%w limit: %w", ErrInvalid, err) // not reached: Problems knows the zones
		}
	}
	switch p.Algorithm {
	case SlidingCounter:
		p.Rounding, p.Weight = s.Rounding, 1000
		if s.Weight != nil {
			p.Weight = uint16(*s.Weight)
		}
	case FixedWindow:
		p.Align = s.Align
	case SlidingWindow:
		p.Coverage, p.SubWindows = s.Coverage, uint16(s.subWindows())
	case TokenBucket, LeakyBucket, GCRA:
		p.Burst = uint64(s.burst())
		if s.Algorithm == LeakyBucket {
			p.Drip = s.Drip
			if s.Drip == DripInterval && s.DripUnits > 1 {
				p.DripUnits = uint64(s.DripUnits)
			}
		}
	}
	return p.Compile(cal), nil
}

func (s *Spec) subWindows() int { return cmp.Or(s.SubWindows, DefaultSubWindows) }

func (s *Spec) burst() int64 { return cmp.Or(s.Burst, s.Limit) }

// wide reports whether the counts of the limit need more than 32 bits.
func (s *Spec) wide() bool {
	switch s.Algorithm {
	case TokenBucket, LeakyBucket, GCRA:
		return max(s.Limit, s.Burst) > NarrowUnits
	case FixedWindow, SlidingCounter, SlidingWindow:
		// Otherwise a count at the bound of 32 bits could be within the limit, or beyond it. With a block it stays
		// narrow if no wide limit could have these windows.
		return s.Limit > NarrowUnits || s.Limit == NarrowUnits && (s.Block == 0 || s.wholeSeconds())
	default:
		return s.Limit > NarrowUnits
	}
}

// Spec returns the limit as a spec with its defaults filled in.
func (l *Limit) Spec() Spec {
	p := &l.C.P
	s := Spec{
		Name: p.Name, Algorithm: p.Algorithm, Limit: int64(p.Limit), Window: p.Window.Duration(),
		Align: p.Align, SubWindows: int(p.SubWindows), Coverage: p.Coverage, Rounding: p.Rounding,
		Burst: int64(p.Burst), Ceiling: int64(p.Ceiling),
		Drip: p.Drip, DripUnits: int64(p.DripUnits), CountRejected: p.Count, Block: p.Block.Duration(),
	}
	if p.Algorithm == SlidingCounter {
		s.Weight = new(int(p.Weight))
	}
	if p.Algorithm == Concurrency {
		s.Window = 0
	}
	if c := &p.Calendar; c.Unit != calendar.None {
		s.Window, s.Calendar, s.Zone, s.AnchorDay = 0, Calendar(c.Unit), c.Zone, int(c.AnchorDay)
		s.WeekStart, s.At = Weekday(c.WeekStart), time.Duration(c.At)*time.Minute
	}
	return s
}

// Name returns the limit's name, unique in its rule.
func (l *Limit) Name() string { return l.C.P.Name }

// Algorithm returns the limit's algorithm.
func (l *Limit) Algorithm() Algorithm { return l.C.P.Algorithm }

// CountRejected returns what denied checks are charged.
func (l *Limit) CountRejected() CountRejected { return l.C.P.Count }

// Limit returns the limit in units per window.
func (l *Limit) Limit() uint64 { return l.C.Limit }

// Capacity returns the largest cost that can ever be admitted, in units: the burst of a
// bucket, the limit of any other algorithm, or the ceiling if there is one.
func (l *Limit) Capacity() uint64 { return l.C.Cap }

// Window returns the window; for calendar windows the nominal length of the longest
// one, which is 24 hours for a day, 31 days for a month, 92 for a quarter and 366 for a
// year; for [Concurrency] the longest hold.
func (l *Limit) Window() time.Duration { return l.C.Window.Duration() }

// Equal reports whether two limits have the same name and decide alike.
func (l *Limit) Equal(o *Limit) bool { return l == o || l.C.P == o.C.P }
