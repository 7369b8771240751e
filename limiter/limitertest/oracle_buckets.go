package limitertest

import "github.com/weirlimit/weir/limiter"

// bucket holds the numbers that the three bucket models share. They share nothing else:
// each is written from its own definition, though two of them decide alike.
type bucket struct {
	limit, burst int64
	window       int64 // in ticks
	most         int64 // highest level in whole units
}

func newBucketModel(s limiter.Spec) model {
	b := bucket{limit: s.Limit, burst: burstOf(s), window: int64(windowOf(s))}
	// A debt lasts a day, a window, or as long as a full bucket takes to recover: the longest of them. No level
	// takes over a century to leak.
	b.most = min(b.burst+max(b.burst, b.limit, b.in(limiter.Day)), b.in(century)+1, limiter.MaxUnits+1)
	h := &bucketHistory{bucket: b}
	switch s.Algorithm {
	case limiter.TokenBucket:
		h.bucketState = &tokenModel{bucket: b}
	case limiter.LeakyBucket:
		h.interval = s.Drip == limiter.DripInterval
		h.bucketState = &leakyModel{bucket: b, interval: h.interval, amount: max(1, s.DripUnits)}
	default:
		h.bucketState = &gcraModel{bucket: b}
	}
	h.begin()
	return h
}

// in returns how many units leak in a span, or 2^53 if more do.
func (b *bucket) in(span Tick) int64 {
	if n, _ := product(b.limit, int64(span)).over(b.window); n.less(wideOf(limiter.MaxUnits)) {
		return int64(n.lo)
	}
	return limiter.MaxUnits + 1
}

// bucketState is a bucket by its definition, without a past.
type bucketState interface {
	begin() // makes it one without charges
	admits(n uint64, now Tick) bool
	charge(n uint64, now Tick)
	credit(units wide, now Tick) // lowers its level
	levelAt(now Tick) wide
	leaked(from, now Tick) wide
}

// bucketHistory is a bucket that knows all that it was ever charged. What is given back of a charge is found by
// going through all of it again, as if less had been charged.
type bucketHistory struct {
	bucket
	bucketState
	interval bool
	events   []bucketEvent
	by       Tick // the last change was not later, as far as a counter knows
	bounded  bool // the level was at its bound
	// rounded is set if something was given back after that: less than a unit of it may be missing in a counter.
	rounded bool
}

// bucketEvent is a charge, or units that a refund without an entry took back.
type bucketEvent struct {
	at     Tick
	units  uint64
	credit wide
}

// unknown is a time after all others.
const unknown = Tick(1) << 62

func (h *bucketHistory) charge(n uint64, now Tick) {
	h.events = append(h.events, bucketEvent{at: now, units: n})
	h.happens(h.events[len(h.events)-1])
	h.changed(now, now)
}

func (h *bucketHistory) happens(e bucketEvent) {
	if h.units(h.most).less(h.levelAt(e.at).plus(product(int64(e.units), h.window))) {
		h.bounded = true
	}
	if e.units > 0 {
		h.bucketState.charge(e.units, e.at)
	}
	h.credit(e.credit, e.at)
}

// latest returns the number of the latest charge.
func (h *bucketHistory) latest() int { return len(h.events) - 1 }

// giveBack takes n units out of a charge.
func (h *bucketHistory) giveBack(charge int, n uint64, now Tick) {
	h.rounded = h.rounded || h.bounded
	before := h.levelAt(now)
	h.events[charge].units -= n
	h.begin()
	for _, e := range h.events {
		h.happens(e)
	}
	if h.levelAt(now) != before {
		h.changed(now, now)
	}
}

// changed notes now, with the level of now, what a counter knows of an instant at which it was changed: the time for
// which the level leaks from then on, in grains and rounded up. A level by drips has no room for it.
func (h *bucketHistory) changed(now, at Tick) {
	h.by = unknown
	ahead, _ := h.levelAt(now).over(h.limit)
	recovers, _ := h.units(h.burst).over(h.limit)
	grain := Tick(recovers.lo>>32) + 1
	empty := now + Tick(ahead.lo)
	n := (empty - at + grain - 1) / grain
	if longest, _ := h.units(h.most).over(h.limit); n > limiter.NarrowUnits-1<<28 { // it counts coarser ones
		grain = Tick(longest.lo+1)>>27 + 1
		n = (empty - at + grain - 1) / grain
	}
	if empty > at && !h.interval {
		h.by = empty - n*grain + grain - 1
	}
}

// moved makes unknown when the counter was changed last, as it is after it came from another node.
func (h *bucketHistory) moved() { h.by = unknown }

// refund takes back units of a charge of which no entry is kept: what cannot have leaked until the last change.
// Since then the level was lowest now, but for what other refunds took. No more is taken back than is there.
func (h *bucketHistory) refund(n, rest uint64, at, now Tick, _ bool) {
	if h.units(h.most).atMost(h.levelAt(now).plus(h.leaked(at, now))) {
		return // the level has been at its bound since: more may have been charged than it says
	}
	leaked := larger(h.leaked(at, max(at, min(now, h.by))).minus(h.units(int64(rest))), wide{})
	back := smaller(h.units(int64(n)).minus(leaked), h.levelAt(now))
	if wide.less(wide{}, back) {
		h.events = append(h.events, bucketEvent{at: now, credit: back})
		h.credit(back, now)
		h.changed(now, min(now, h.by)) // it is no charge
	}
}

// units returns n units as a numerator over the window. In that form limit·span is what
// a bucket gains or leaks in span ticks.
func (b *bucket) units(n int64) wide { return product(n, b.window) }

// tokenModel: min(burst, tokens + rate·elapsed) >= n. Tokens below zero are a debt.
// They are fractions over the window.
type tokenModel struct {
	bucket
	tokens wide // at the instant at
	at     Tick
}

func (m *tokenModel) begin() { m.tokens, m.at = m.units(m.burst), 0 }

func (m *tokenModel) tokensAt(now Tick) wide {
	earned := product(m.limit, int64(max(0, now-m.at)))
	return smaller(m.units(m.burst), m.tokens.plus(earned))
}

func (m *tokenModel) admits(n uint64, now Tick) bool {
	return m.units(int64(n)).atMost(m.tokensAt(now))
}

func (m *tokenModel) charge(n uint64, now Tick) {
	left := m.tokensAt(now).minus(m.units(int64(n)))
	lowest := m.units(m.burst).minus(m.units(m.most))
	m.tokens, m.at = larger(left, lowest), now
}

func (m *tokenModel) credit(units wide, now Tick) {
	m.tokens, m.at = smaller(m.units(m.burst), m.tokensAt(now).plus(units)), now
}

func (m *tokenModel) levelAt(now Tick) wide      { return m.units(m.burst).minus(m.tokensAt(now)) }
func (m *tokenModel) leaked(from, now Tick) wide { return product(m.limit, int64(max(0, now-from))) }

// leakyModel: max(0, level - leaked) + n <= burst. The level is a fraction over
// the window.
type leakyModel struct {
	bucket
	interval bool
	amount   int64 // what leaks at once, by interval
	level    wide  // at the instant at
	at       Tick
}

func (m *leakyModel) begin() { m.level, m.at = wide{}, 0 }

// leaked returns what leaks from a bucket that is not empty, after from and up to now:
// a steady flow, or the amount at each multiple of amount*window/limit since the epoch.
func (m *leakyModel) leaked(from, now Tick) wide {
	now = max(from, now)
	if !m.interval {
		return product(m.limit, int64(now-from))
	}
	return m.drips(now).minus(m.drips(from)).times(m.amount).times(m.window)
}

// drips returns how many multiples of amount*window/limit lie between the epoch and t: of
// those of window/limit, each one whose number is divisible by the amount.
func (m *leakyModel) drips(t Tick) wide {
	n, _ := product(m.limit, int64(t)).over(m.window)
	n, _ = n.over(m.amount)
	return n
}

func (m *leakyModel) levelAt(now Tick) wide {
	if m.level == (wide{}) {
		return m.level
	}
	return larger(wide{}, m.level.minus(m.leaked(m.at, now)))
}

func (m *leakyModel) admits(n uint64, now Tick) bool {
	return m.levelAt(now).plus(m.units(int64(n))).atMost(m.units(m.burst))
}

func (m *leakyModel) charge(n uint64, now Tick) {
	level := m.levelAt(now).plus(m.units(int64(n)))
	m.level, m.at = smaller(level, m.units(m.most)), now
}

func (m *leakyModel) credit(units wide, now Tick) {
	m.level, m.at = larger(wide{}, m.levelAt(now).minus(units)), now
}

// gcraModel: max(TAT, now) + n·T - now <= burst·T, where TAT is the theoretical
// arrival time and T = window/limit. Instants and spans are ticks as fractions
// over the limit, in which n·T is n·window.
type gcraModel struct {
	bucket
	tat wide
}

func (m *gcraModel) begin() { m.tat = wide{} }

func (m *gcraModel) instant(t Tick) wide { return product(m.limit, int64(t)) }

// spacing returns n·T.
func (m *gcraModel) spacing(n int64) wide { return product(n, m.window) }

// after returns the theoretical arrival time after n further units.
func (m *gcraModel) after(n uint64, now Tick) wide {
	return larger(m.tat, m.instant(now)).plus(m.spacing(int64(n)))
}

func (m *gcraModel) admits(n uint64, now Tick) bool {
	return m.after(n, now).minus(m.instant(now)).atMost(m.spacing(m.burst))
}

func (m *gcraModel) charge(n uint64, now Tick) {
	m.tat = smaller(m.after(n, now), m.instant(now).plus(m.spacing(m.most)))
}

func (m *gcraModel) credit(units wide, now Tick) { m.tat = larger(m.tat, m.instant(now)).minus(units) }

func (m *gcraModel) levelAt(now Tick) wide {
	return larger(wide{}, m.tat.minus(m.instant(now)))
}

func (m *gcraModel) leaked(from, now Tick) wide {
	return m.instant(max(from, now)).minus(m.instant(from))
}
