package limitertest

import (
	"cmp"
	"time"

	"github.com/weirlimit/weir/limiter"
)

// Tick is short for [limiter.Tick].
type Tick = limiter.Tick

// mostUnits returns the cap of counts of a limit: more than the limit, but for one of NarrowUnits whose
// windows are not of whole seconds, with a block.
func mostUnits(s limiter.Spec) uint64 {
	if most := max(s.Limit, s.Burst); most > limiter.NarrowUnits ||
		most == limiter.NarrowUnits && (s.Block == 0 || beginAtSeconds(s)) {
		return limiter.MaxUnits + 1
	}
	return limiter.NarrowUnits
}

func beginAtSeconds(s limiter.Spec) bool {
	w := s.Window
	if s.Algorithm == limiter.SlidingWindow {
		w /= time.Duration(max(1, s.SubWindows))
		if s.SubWindows == 0 {
			w = s.Window / limiter.DefaultSubWindows
		}
	}
	return s.Align == limiter.AlignFirstHit || w%time.Second == 0
}

// century is the longest time that a level of a bucket takes to leak, in ticks.
const century = 36500 * limiter.Day

// Oracle decides for one key with several limits, slowly and simply. It stores every
// charge, admits by the definition of each algorithm, and finds remaining, retry-after
// and reset-after by searching for the number or instant in their definitions. Its
// fractions are exact.
//
// Instants must not decrease from call to call. It is not safe for concurrent
// use.
type Oracle struct{ limits []*oracleLimit }

// OracleDecision is the result of [Oracle.Check].
type OracleDecision struct {
	// Allowed, Never, ShadowDenied and RetryAfter are those of
	// [limiter.Decision].
	Allowed, Never, ShadowDenied bool
	RetryAfter                   Tick
	// BlockedBy is the index of the limit that [limiter.Decision.BlockedBy]
	// returns, or -1.
	BlockedBy int
	// Limits has the results in the order of the limits.
	Limits []OracleLimit
}

// OracleLimit is the result of one limit; see [limiter.LimitDecision].
type OracleLimit struct {
	Allowed, Never, Blocked bool
	Remaining               uint64
	RetryAfter, ResetAfter  Tick
}

// NewOracle returns an oracle for a key without charges. The specs must be valid.
func NewOracle(specs ...limiter.Spec) *Oracle {
	o := new(Oracle)
	for _, s := range specs {
		o.limits = append(o.limits, newOracleLimit(s))
	}
	return o
}

// Check decides at now. A peek or a cost of 0 changes nothing. A cost of 0 is answered
// like a cost of 1.
func (o *Oracle) Check(now Tick, cost uint64, peek bool) OracleDecision {
	turns := make([]turn, len(o.limits))
	for i, l := range o.limits {
		turns[i] = turn{limit: l, cost: cost}
	}
	return decide(now, peek, turns)
}

// Refund takes back a charge of cost units that was made at the given instant.
func (o *Oracle) Refund(now, at Tick, cost uint64) {
	for _, l := range o.limits {
		l.refund(now, at, cost)
	}
}

// Reset deletes everything.
func (o *Oracle) Reset() {
	for i, l := range o.limits {
		o.limits[i] = newOracleLimit(l.spec)
	}
}

// turn is one limit's part in a check.
type turn struct {
	limit  *oracleLimit
	cost   uint64
	shadow bool
	retry  func(now Tick, n uint64) Tick // as [oracleLimit.retryAfter], where units come back otherwise than by time
}

// decide decides a check with any limits of any keys: all or none are charged.
func decide(now Tick, peek bool, turns []turn) OracleDecision {
	d := OracleDecision{Allowed: true, BlockedBy: -1, Limits: make([]OracleLimit, len(turns))}
	shadowNever := false
	for i, t := range turns {
		a := &d.Limits[i]
		n := max(t.cost, 1)
		a.Never = n > t.limit.capacity
		a.Allowed = !a.Never && t.limit.admits(n, now)
		switch {
		case t.shadow:
			d.ShadowDenied = d.ShadowDenied || !a.Allowed
			shadowNever = shadowNever || a.Never
		default:
			d.Allowed = d.Allowed && a.Allowed
			d.Never = d.Never || a.Never
		}
	}
	if !peek && !d.Never {
		for i, t := range turns {
			if t.cost > 0 && !(t.shadow && shadowNever) {
				passes := d.Allowed && !(t.shadow && d.ShadowDenied)
				t.limit.write(now, t.cost, passes, d.Limits[i].Allowed)
			}
		}
	}
	d.report(now, turns)
	return d
}

// report fills in the results after the charges.
func (d *OracleDecision) report(now Tick, turns []turn) {
	for i, t := range turns {
		a, l, n := &d.Limits[i], t.limit, max(t.cost, 1)
		a.Blocked = l.blocked(now)
		a.Remaining = l.remaining(now)
		a.ResetAfter = l.resetAfter(now)
		// A limit that admitted this check may have been charged although another
		// denied, and may then admit no second one for a while.
		if !a.Never && !(d.Allowed && a.Allowed) {
			if a.RetryAfter = l.retryAfter(now, n); t.retry != nil {
				a.RetryAfter = t.retry(now, n)
			}
		}
		if t.shadow || d.Allowed {
			continue
		}
		if !a.Allowed && d.worse(i) {
			d.BlockedBy = i
		}
		if !d.Never {
			d.RetryAfter = max(d.RetryAfter, a.RetryAfter)
		}
	}
}

// worse reports whether limit i takes precedence over BlockedBy as the reason for a
// denial.
func (d *OracleDecision) worse(i int) bool {
	if d.BlockedBy < 0 {
		return true
	}
	a, b := d.Limits[i], d.Limits[d.BlockedBy]
	return !b.Never && (a.Never || a.RetryAfter > b.RetryAfter)
}

// oracleLimit is one limit of a key: the model of its algorithm, and its blocks.
type oracleLimit struct {
	spec     limiter.Spec
	capacity uint64
	model    model
	blocks   []period
}

// period is the instants from from up to, not including, until.
type period struct{ from, until Tick }

// model is one algorithm, by its definition.
type model interface {
	// admits reports whether n >= 1 more units fit at now.
	admits(n uint64, now Tick) bool
	// charge adds n units, whether or not they fit.
	charge(n uint64, now Tick)
	// refund takes back n of n+rest units charged at the instant at. entry reports that what became of the
	// charge is known. Of a bucket it is not, see [bucketHistory].
	refund(n, rest uint64, at, now Tick, entry bool)
}

func newOracleLimit(s limiter.Spec) *oracleLimit {
	l := &oracleLimit{spec: s, capacity: uint64(s.Limit)}
	w := windowOf(s)
	switch s.Algorithm {
	case limiter.FixedWindow:
		switch {
		case s.Calendar != limiter.CalendarNone:
			l.model = newCalendarModel(s)
		case s.Align == limiter.AlignFirstHit:
			l.model = &firstHitModel{limit: uint64(s.Limit), window: w, most: mostUnits(s)}
		default:
			l.model = &fixedModel{limit: uint64(s.Limit), window: w, most: mostUnits(s), counts: counts{}}
		}
	case limiter.Concurrency:
		l.model = &concurrencyModel{limit: uint64(s.Limit)}
	case limiter.SlidingLog:
		l.model = &logModel{limit: uint64(s.Limit), window: w, most: limiter.MaxLogUnits}
		if s.CountRejected == limiter.CountAll {
			l.model = &logModel{limit: uint64(s.Limit), window: w, most: min(2*uint64(s.Limit), limiter.MaxLogUnits)}
		}
	case limiter.SlidingWindow:
		m := cmp.Or(s.SubWindows, limiter.DefaultSubWindows)
		l.model = &slidingModel{
			limit: uint64(s.Limit), window: w, sub: w / Tick(m),
			strict: s.Coverage == limiter.CoverageStrict, most: mostUnits(s), counts: counts{},
		}
	case limiter.SlidingCounter:
		weight := 1000
		if s.Weight != nil {
			weight = *s.Weight
		}
		l.model = &counterModel{
			limit: s.Limit, window: w, weight: int64(weight), rounding: s.Rounding,
			most: mostUnits(s), counts: counts{},
		}
	default:
		l.capacity = uint64(burstOf(s))
		l.model = newBucketModel(s)
	}
	return l
}

func windowOf(s limiter.Spec) Tick {
	if s.Calendar != limiter.CalendarNone {
		l, err := limiter.NewLimit(s)
		if err != nil {
			panic(err)
		}
		return limiter.Span(l.Window())
	}
	return Tick(s.Window / limiter.TickDuration)
}

func burstOf(s limiter.Spec) int64 { return cmp.Or(s.Burst, s.Limit) }

func (l *oracleLimit) blocked(now Tick) bool {
	for _, b := range l.blocks {
		if b.from <= now && now < b.until {
			return true
		}
	}
	return false
}

func (l *oracleLimit) admits(n uint64, now Tick) bool {
	return n <= l.capacity && !l.blocked(now) && l.model.admits(n, now)
}

// write makes the charge, and the block, of a check of n units. passes reports whether
// the check is allowed, mine whether this limit allows it.
func (l *oracleLimit) write(now Tick, n uint64, passes, mine bool) {
	wasBlocked := l.blocked(now)
	fits := l.model.admits(n, now)
	switch l.spec.CountRejected {
	case limiter.CountAll:
		l.model.charge(n, now)
	case limiter.CountRoom:
		if mine {
			l.model.charge(n, now)
		}
	default:
		if passes {
			l.model.charge(n, now)
		}
	}
	if block := Tick(l.spec.Block / limiter.TickDuration); block > 0 && !fits && !wasBlocked {
		l.blocks = append(l.blocks, period{now, now + block})
	}
}

func (l *oracleLimit) refund(now, at Tick, n uint64) { l.model.refund(n, 0, at, now, false) }

// remaining returns the largest cost admitted at now, found by bisection: if a cost is
// admitted, every smaller one is.
func (l *oracleLimit) remaining(now Tick) uint64 {
	lo, hi := uint64(0), l.capacity+1 // lo is admitted (or 0), hi is not
	for lo+1 < hi {
		if mid := (lo + hi) / 2; l.admits(mid, now) {
			lo = mid
		} else {
			hi = mid
		}
	}
	return lo
}

// retryAfter returns the shortest wait until n units are admitted, 0 if they are
// admitted at once.
func (l *oracleLimit) retryAfter(now Tick, n uint64) Tick {
	return leastWait(func(d Tick) bool { return l.admits(n, now+d) })
}

// resetAfter returns the shortest wait until the key equals one without charges.
func (l *oracleLimit) resetAfter(now Tick) Tick {
	return leastWait(func(d Tick) bool { return l.admits(l.capacity, now+d) })
}

// leastWait returns the least d >= 0 for which ok is true. Without further checks, ok
// stays true once it is, so doubling and bisection find it. By construction ok(hi) is
// true and ok(lo) is false.
func leastWait(ok func(Tick) bool) Tick {
	if ok(0) {
		return 0
	}
	lo, hi := Tick(0), Tick(1)
	for !ok(hi) {
		lo, hi = hi, 2*hi
		if hi > 1<<61 {
			panic("limitertest: no instant within 70,000 years is late enough")
		}
	}
	for lo+1 < hi {
		if mid := lo + (hi-lo)/2; ok(mid) {
			hi = mid
		} else {
			lo = mid
		}
	}
	return hi
}
