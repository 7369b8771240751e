package limitertest

import "github.com/weirlimit/weir/limiter"

// bucket holds the numbers that the three bucket models share. They share nothing else:
// each is written from its own definition, though two of them decide alike.
type bucket struct {
	limit, burst int64
	window       int64 // in ticks
	most         int64 // largest debt in whole units
}

func newBucketModel(s limiter.Spec) model {
	b := bucket{limit: s.Limit, burst: burstOf(s), window: int64(windowOf(s)), most: limiter.MaxUnits}
	if inCentury, _ := product(b.limit, int64(century)).over(b.window); inCentury.less(wideOf(b.most)) {
		b.most = int64(inCentury.lo) + 1
	}
	switch s.Algorithm {
	case limiter.TokenBucket:
		return &tokenModel{bucket: b, tokens: b.units(b.burst)}
	case limiter.LeakyBucket:
		return &leakyModel{bucket: b, interval: s.Drip == limiter.DripInterval, amount: max(1, s.DripUnits)}
	default:
		return &gcraModel{bucket: b}
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

func (m *tokenModel) tokensAt(now Tick) wide {
	earned := product(m.limit, int64(now-m.at))
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

// wasFull reports whether a debt, with what has leaked since a charge, is at its bound: more may have been
// charged then than it says, so the charge is not refunded.
func (b *bucket) wasFull(debt, leaked wide) bool { return b.units(b.most).atMost(debt.plus(leaked)) }

func (m *tokenModel) refund(n, rest uint64, at, now Tick) {
	if m.wasFull(m.units(m.burst).minus(m.tokensAt(now)), product(m.limit, int64(now-at))) {
		return
	}
	leaked := larger(product(m.limit, int64(now-at)).minus(m.units(int64(rest))), wide{})
	back := m.units(int64(n)).minus(leaked)
	back = larger(back, wide{})
	m.tokens, m.at = smaller(m.units(m.burst), m.tokensAt(now).plus(back)), now
}

// leakyModel: max(0, level - leaked) + n <= burst. The level is a fraction over
// the window.
type leakyModel struct {
	bucket
	interval bool
	amount   int64 // what leaks at once, by interval
	level    wide  // at the instant at
	at       Tick
}

// leaked returns what leaks from a bucket that is not empty, after from and up to now:
// a steady flow, or the amount at each multiple of amount*window/limit since the epoch.
func (m *leakyModel) leaked(from, now Tick) wide {
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
	return larger(wide{}, m.level.minus(m.leaked(m.at, now)))
}

func (m *leakyModel) admits(n uint64, now Tick) bool {
	return m.levelAt(now).plus(m.units(int64(n))).atMost(m.units(m.burst))
}

func (m *leakyModel) charge(n uint64, now Tick) {
	level := m.levelAt(now).plus(m.units(int64(n)))
	m.level, m.at = smaller(level, m.units(m.most)), now
}

func (m *leakyModel) refund(n, rest uint64, at, now Tick) {
	if m.wasFull(m.levelAt(now), m.leaked(at, now)) {
		return
	}
	leaked := larger(m.leaked(at, now).minus(m.units(int64(rest))), wide{})
	back := m.units(int64(n)).minus(leaked)
	back = larger(back, wide{})
	m.level, m.at = larger(wide{}, m.levelAt(now).minus(back)), now
}

// gcraModel: max(TAT, now) + n·T - now <= burst·T, where TAT is the theoretical
// arrival time and T = window/limit. Instants and spans are ticks as fractions
// over the limit, in which n·T is n·window.
type gcraModel struct {
	bucket
	tat wide
}

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

func (m *gcraModel) refund(n, rest uint64, at, now Tick) {
	if m.wasFull(m.tat.minus(m.instant(now)), m.instant(now-at)) {
		return
	}
	leaked := larger(m.instant(now-at).minus(m.spacing(int64(rest))), wide{})
	back := m.spacing(int64(n)).minus(leaked)
	m.tat = m.tat.minus(larger(back, wide{}))
}
