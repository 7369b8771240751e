package limitertest

import (
	"math/big"

	"github.com/weirlimit/weir/limiter"
)

// bucket is what the three bucket models know of their limit. They share these
// numbers and nothing else: each is written from its own definition, though two
// of them decide alike.
type bucket struct {
	limit, burst int64
	window       Tick
	most         int64 // whole units that may be owed at most
}

func newBucketModel(s limiter.Spec) model {
	b := bucket{limit: s.Limit, burst: burstOf(s), window: windowOf(s)}
	b.most = maxUnits
	inCentury := floor(rate(b.limit, b.window, century))
	if inCentury.Cmp(rat(maxUnits, 1)) < 0 {
		b.most = inCentury.Num().Int64()
	}
	switch s.Algorithm {
	case limiter.TokenBucket:
		return &tokenModel{bucket: b, tokens: rat(b.burst, 1)}
	case limiter.LeakyBucket:
		return &leakyModel{bucket: b, interval: s.Drip == limiter.DripInterval, level: new(big.Rat)}
	default:
		return &gcraModel{bucket: b, tat: new(big.Rat)}
	}
}

// rate returns limit·span/window units.
func rate(limit int64, window, span Tick) *big.Rat {
	return new(big.Rat).Mul(rat(limit, int64(window)), rat(int64(span), 1))
}

func minRat(a, b *big.Rat) *big.Rat {
	if a.Cmp(b) < 0 {
		return a
	}
	return b
}

func maxRat(a, b *big.Rat) *big.Rat {
	if a.Cmp(b) > 0 {
		return a
	}
	return b
}

// tokenModel: min(burst, tokens + rate·elapsed) >= n. Below zero the tokens
// are a debt.
type tokenModel struct {
	bucket
	tokens *big.Rat // at the instant at
	at     Tick
}

func (m *tokenModel) tokensAt(now Tick) *big.Rat {
	earned := rate(m.limit, m.window, now-m.at)
	return minRat(rat(m.burst, 1), earned.Add(earned, m.tokens))
}

func (m *tokenModel) admits(n uint32, now Tick) bool {
	return m.tokensAt(now).Cmp(rat(int64(n), 1)) >= 0
}

func (m *tokenModel) charge(n uint32, now Tick) {
	left := new(big.Rat).Sub(m.tokensAt(now), rat(int64(n), 1))
	m.tokens, m.at = maxRat(left, rat(m.burst-m.most, 1)), now
}

func (m *tokenModel) refund(n uint32, at, now Tick) {
	back := new(big.Rat).Sub(rat(int64(n), 1), rate(m.limit, m.window, now-at))
	back = maxRat(back, new(big.Rat))
	m.tokens, m.at = minRat(rat(m.burst, 1), back.Add(back, m.tokensAt(now))), now
}

// leakyModel: max(0, level - leaked) + n <= burst.
type leakyModel struct {
	bucket
	interval bool
	level    *big.Rat // at the instant at
	at       Tick
}

// leaked is what leaks out of a bucket that is not empty, after from and up to
// now: a steady stream, or one unit at each multiple of window/limit since the
// epoch.
func (m *leakyModel) leaked(from, now Tick) *big.Rat {
	if !m.interval {
		return rate(m.limit, m.window, now-from)
	}
	drips := func(t Tick) *big.Rat { return floor(rate(m.limit, m.window, t)) }
	return new(big.Rat).Sub(drips(now), drips(from))
}

func (m *leakyModel) levelAt(now Tick) *big.Rat {
	return maxRat(new(big.Rat), new(big.Rat).Sub(m.level, m.leaked(m.at, now)))
}

func (m *leakyModel) admits(n uint32, now Tick) bool {
	level := new(big.Rat).Add(m.levelAt(now), rat(int64(n), 1))
	return level.Cmp(rat(m.burst, 1)) <= 0
}

func (m *leakyModel) charge(n uint32, now Tick) {
	level := new(big.Rat).Add(m.levelAt(now), rat(int64(n), 1))
	m.level, m.at = minRat(level, rat(m.most, 1)), now
}

func (m *leakyModel) refund(n uint32, at, now Tick) {
	back := new(big.Rat).Sub(rat(int64(n), 1), m.leaked(at, now))
	back = maxRat(back, new(big.Rat))
	m.level, m.at = maxRat(new(big.Rat), new(big.Rat).Sub(m.levelAt(now), back)), now
}

// gcraModel: max(TAT, now) + n·T - now <= burst·T, where TAT is the theoretical
// arrival time, in ticks, and T = window/limit.
type gcraModel struct {
	bucket
	tat *big.Rat
}

// spacing returns n·T.
func (m *gcraModel) spacing(n int64) *big.Rat {
	return new(big.Rat).Mul(rat(n, 1), rat(int64(m.window), m.limit))
}

// after returns what the theoretical arrival time would be after n units.
func (m *gcraModel) after(n uint32, now Tick) *big.Rat {
	from := maxRat(m.tat, rat(int64(now), 1))
	return new(big.Rat).Add(from, m.spacing(int64(n)))
}

func (m *gcraModel) admits(n uint32, now Tick) bool {
	ahead := new(big.Rat).Sub(m.after(n, now), rat(int64(now), 1))
	return ahead.Cmp(m.spacing(m.burst)) <= 0
}

func (m *gcraModel) charge(n uint32, now Tick) {
	latest := new(big.Rat).Add(rat(int64(now), 1), m.spacing(m.most))
	m.tat = minRat(m.after(n, now), latest)
}

func (m *gcraModel) refund(n uint32, at, now Tick) {
	back := new(big.Rat).Sub(m.spacing(int64(n)), rat(int64(now-at), 1))
	m.tat = new(big.Rat).Sub(m.tat, maxRat(back, new(big.Rat)))
}
