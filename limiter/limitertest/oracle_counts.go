package limitertest

import (
	"slices"

	"github.com/weirlimit/weir/limiter"
)

// floorDiv divides and rounds down, for negative numbers too.
func floorDiv(a, b Tick) int64 {
	q := a / b
	if a%b < 0 {
		q--
	}
	return int64(q)
}

// windowIndex numbers the aligned windows. Windows of whole weeks begin on Monday; the
// epoch was a Thursday, so the first Monday is 4 days after it.
func windowIndex(t, window Tick) int64 { return floorDiv(t-windowShift(window), window) }

// windowStart returns the first instant of a window.
func windowStart(index int64, window Tick) Tick { return Tick(index)*window + windowShift(window) }

func windowShift(window Tick) Tick {
	if window%limiter.Week == 0 {
		return 4 * limiter.Day
	}
	return 0
}

// counts holds the units charged in each slot, and never drops any. A counter has at most so many of a slot.
type counts map[int64]uint64

func (c counts) add(slot int64, n uint64) { c[slot] += n }

// at returns what a counter has of a slot.
func (c counts) at(slot int64, most uint64) uint64 { return min(c[slot], most) }

func (c counts) sub(slot int64, n uint64, entry bool, most uint64) {
	c[slot] = takeBack(c[slot], n, entry, most)
}

// takeBack refunds n units from a count. Without an entry of the charge it leaves a count at its cap
// unchanged: the true count may be higher.
func takeBack(count, n uint64, entry bool, most uint64) uint64 {
	if !entry && count >= most {
		return count
	}
	return count - min(count, n)
}

// fixedModel: count in the current window + n <= limit.
type fixedModel struct {
	limit  uint64
	window Tick
	most   uint64 // that a counter counts
	counts counts
}

func (m *fixedModel) admits(n uint64, now Tick) bool {
	return m.counts.at(windowIndex(now, m.window), m.most)+n <= m.limit
}

func (m *fixedModel) charge(n uint64, now Tick) { m.counts.add(windowIndex(now, m.window), n) }

func (m *fixedModel) refund(n, _ uint64, at, _ Tick, entry bool) {
	m.counts.sub(windowIndex(at, m.window), n, entry, m.most)
}

// firstHitModel is the fixed window that begins with the first hit after the previous
// window. A window whose hits were all refunded is equivalent to none. If a hold gives back all of the hit
// that began it, a window is as if it had begun with the next hit. With a receipt such a hit is refunded only if
// it is the sole one, and what is refunded stays a hit.
type firstHitModel struct {
	limit   uint64
	window  Tick
	most    uint64 // that a counter counts
	windows []hitWindow
}

type hitWindow struct {
	start Tick
	count uint64
	hits  []hit
}

// current returns the window that contains now, or nil.
func (m *firstHitModel) current(now Tick) *hitWindow {
	for i := range m.windows {
		if w := &m.windows[i]; w.count > 0 && w.start <= now && now < w.start+m.window {
			return w
		}
	}
	return nil
}

func (m *firstHitModel) admits(n uint64, now Tick) bool {
	var count uint64
	if w := m.current(now); w != nil {
		count = min(w.count, m.most)
	}
	return count+n <= m.limit
}

func (m *firstHitModel) charge(n uint64, now Tick) {
	w := m.current(now)
	if w == nil {
		m.windows = append(m.windows, hitWindow{start: now})
		w = &m.windows[len(m.windows)-1]
	}
	w.count += n
	w.hits = append(w.hits, hit{now, n})
}

func (m *firstHitModel) refund(n, rest uint64, at, now Tick, entry bool) {
	w := m.current(now)
	if w == nil || w.start > at {
		return
	}
	if !entry && w.start == at && n < w.count && rest == 0 {
		return // other hits count in the window that this one began
	}
	w.count = takeBack(w.count, n, entry, m.most)
	if i := slices.Index(w.hits, hit{at, n}); entry && rest == 0 && i >= 0 {
		if w.hits = slices.Delete(slices.Clone(w.hits), i, i+1); len(w.hits) > 0 {
			w.start = w.hits[0].at
		}
	}
}

// logModel: the sum of the costs in (now-window, now] + n <= limit.
type logModel struct {
	limit  uint64
	window Tick
	most   uint64 // that it keeps; at that it may have forgotten others, and nothing comes back
	hits   []hit
}

type hit struct {
	at   Tick
	cost uint64
}

func (m *logModel) sum(now Tick) uint64 {
	var sum uint64
	for _, h := range m.hits {
		if now-m.window < h.at && h.at <= now {
			sum += h.cost
		}
	}
	return sum
}

func (m *logModel) admits(n uint64, now Tick) bool { return m.sum(now)+n <= m.limit }

// charge keeps the newest units among those that count. If settlements have charged more, it keeps
// as many: a refund at one instant takes back one of several charges, and the others still count.
func (m *logModel) charge(n uint64, now Tick) { m.add(now, n, max(m.most, m.sum(now))) }

// add adds a hit, and keeps the newest units, most at most.
func (m *logModel) add(now Tick, n, most uint64) {
	m.hits = append(m.hits, hit{now, n})
	excess := m.sum(now) - min(m.sum(now), most)
	for i := range m.hits {
		if h := &m.hits[i]; now-m.window < h.at {
			cut := min(h.cost, excess)
			h.cost -= cut
			excess -= cut
		}
	}
}

func (m *logModel) refund(n, _ uint64, at, now Tick, _ bool) {
	left := n
	if m.sum(now) >= m.most {
		return
	}
	for i := range m.hits {
		if h := &m.hits[i]; h.at == at {
			cut := min(h.cost, left)
			h.cost -= cut
			left -= cut
		}
	}
}

// slidingModel: the sum of the counted sub-windows + n <= limit. A sub-window
// counts while its start (lenient) or its end (strict) is less than a window
// old.
type slidingModel struct {
	limit       uint64
	window, sub Tick
	strict      bool
	most        uint64 // that a counter counts
	counts      counts
}

func (m *slidingModel) counted(index int64, now Tick) bool {
	from := Tick(index) * m.sub
	if m.strict {
		return now-(from+m.sub) < m.window
	}
	return now-from < m.window
}

func (m *slidingModel) admits(n uint64, now Tick) bool {
	var sum uint64
	for i := floorDiv(now, m.sub); m.counted(i, now); i-- {
		sum += m.counts.at(i, m.most)
	}
	return sum+n <= m.limit
}

func (m *slidingModel) charge(n uint64, now Tick) { m.counts.add(floorDiv(now, m.sub), n) }

func (m *slidingModel) refund(n, _ uint64, at, _ Tick, entry bool) {
	m.counts.sub(floorDiv(at, m.sub), n, entry, m.most)
}

// counterModel: r(previous·(window-elapsed)·weight/window) + current + n <=
// limit, with the weight in thousandths.
type counterModel struct {
	limit    int64
	window   Tick
	weight   int64
	rounding limiter.Rounding
	most     uint64 // that a counter counts
	counts   counts
}

func (m *counterModel) admits(n uint64, now Tick) bool {
	index := windowIndex(now, m.window)
	elapsed := now - windowStart(index, m.window)
	// The term is a fraction over 1000·window.
	full := 1000 * int64(m.window)
	term := product(int64(m.counts.at(index-1, m.most)), int64(m.window-elapsed)).times(m.weight)
	total := round(term, full, m.rounding).plus(product(int64(m.counts.at(index, m.most))+int64(n), full))
	return total.atMost(product(m.limit, full))
}

func (m *counterModel) charge(n uint64, now Tick) {
	m.counts.add(windowIndex(now, m.window), n)
}

func (m *counterModel) refund(n, _ uint64, at, _ Tick, entry bool) {
	m.counts.sub(windowIndex(at, m.window), n, entry, m.most)
}

// round rounds x/full >= 0, and returns the result as a fraction over full.
func round(x wide, full int64, r limiter.Rounding) wide {
	down, rest := x.over(full)
	switch {
	case r == limiter.RoundExact:
		return x
	case r == limiter.RoundNearest && 2*rest >= full, r == limiter.RoundCeil && rest > 0:
		return down.plus(wideOf(1)).times(full)
	default:
		return down.times(full)
	}
}
