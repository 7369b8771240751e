package arith

import (
	"sort"

	"github.com/weirlimit/weir/limiter"
)

// sliding_log: a ring of entries. Word 0 is the position of the oldest. An entry packs
// the low 45 bits of its tick, which span more than the longest window, above its cost
// minus one in 19 bits; a larger cost takes two entries. State.Time holds the full tick
// of the newest entry, from which the ticks of the others are reconstructed. A single
// entry, of any cost, is stored in the state alone: while B is 1 the words are not
// used.

const (
	logCostBits = 19
	logCostMax  = 1 << logCostBits
	logTickMask = 1<<45 - 1
)

func logWords(s *Counts, now limiter.Tick, n uint64) int {
	if s.B == 0 || s.B == 1 && now <= s.Time {
		return 0
	}
	return 1 + logEntries(s) + logParts(n)
}

// logParts returns how many entries n units at one tick take.
func logParts(n uint64) int { return int((n + logCostMax - 1) / logCostMax) }

// logEntries returns how many entries of a log are in words.
func logEntries(s *Counts) int {
	if s.B == 1 {
		return logParts(s.A)
	}
	return int(s.B)
}

// spillLog writes the single entry of a log into words.
func spillLog(s *Counts, words []uint64) {
	words[0] = 0
	n := s.A
	s.B = 0
	for n > 0 {
		part := min(n, logCostMax)
		words[1+s.B] = logEntry(s.Time, part)
		s.B, n = s.B+1, n-part
	}
}

// logIndex returns the word of entry i, counted from the oldest.
func logIndex(words []uint64, i int) int {
	at := int(words[0]) + i
	if size := len(words) - 1; at >= size {
		at -= size
	}
	return 1 + at
}

func logEntry(tick limiter.Tick, cost uint64) uint64 {
	return uint64(tick)&logTickMask<<logCostBits | (cost - 1)
}

// logAt returns the tick and cost of entry i.
func logAt(s *Counts, words []uint64, i int) (limiter.Tick, uint64) {
	e := words[logIndex(words, i)]
	age := (uint64(s.Time) - e>>logCostBits) & logTickMask
	return s.Time - limiter.Tick(age), e&(logCostMax-1) + 1
}

// dropOldest removes the oldest entry.
func dropOldest(s *Counts, words []uint64, cost uint64) {
	s.A -= cost
	s.B--
	words[0]++
	if int(words[0]) == len(words)-1 {
		words[0] = 0
	}
}

func (l *log) roll(s *Counts, words []uint64, now limiter.Tick) {
	if s.B == 0 {
		return
	}
	if now >= s.Time+l.Window {
		s.A, s.B = 0, 0
		return
	}
	for s.B > 1 {
		tick, cost := logAt(s, words, 0)
		if now < tick+l.Window {
			return
		}
		dropOldest(s, words, cost)
	}
}

// charge adds n units at now, and removes the oldest units beyond the newest [log.most]
// units. A log that holds more, from a larger limit before, keeps as many, since it may
// come under that limit again.
func (l *log) charge(s *Counts, words []uint64, now limiter.Tick, n uint64) {
	l.add(s, words, now, n, max(l.most(), s.A))
}

// most returns how many units a log keeps. With fewer it has forgotten none that count. The newest limit units
// alone decide, as long as nothing comes back: then older ones decide, too. So a log of rejected checks keeps twice
// as many, which is more than those of the admitted ones that count at a time; at that bound nothing comes back.
func (l *log) most() uint64 {
	if l.P.Count == limiter.CountAll {
		return min(2*l.Limit, limiter.MaxLogUnits)
	}
	return limiter.MaxLogUnits
}

// add is [log.charge] for a log that keeps at most most units, n at least.
func (l *log) add(s *Counts, words []uint64, now limiter.Tick, n, most uint64) {
	now = max(now, s.Time)
	for s.B > 1 && s.A+n > most {
		excess := s.A + n - most
		tick, cost := logAt(s, words, 0)
		if cost > excess {
			words[logIndex(words, 0)] = logEntry(tick, cost-excess)
			s.A -= excess
			break
		}
		dropOldest(s, words, cost)
	}
	switch {
	case s.B <= 1:
		if s.A = min(s.A, most-n); s.A == 0 || now == s.Time {
			s.Time, s.A, s.B = now, s.A+n, 1
			return
		}
		spillLog(s, words)
	case now == s.Time:
		last := logIndex(words, int(s.B)-1)
		if cost := words[last]&(logCostMax-1) + 1; cost+n <= logCostMax {
			words[last] += n
			s.A += n
			return
		}
	}
	s.Time = now
	for n > 0 {
		part := min(n, logCostMax)
		words[logIndex(words, int(s.B))] = logEntry(now, part)
		s.A, s.B, n = s.A+part, s.B+1, n-part
	}
}

func moveLog(dst, src []uint64, s *Counts) {
	if s.B <= 1 {
		return
	}
	dst[0] = 0
	for i := range int(s.B) {
		dst[1+i] = src[logIndex(src, i)]
	}
}

// Coarsen shortens an exported state to most entries, about, and returns its words, which it changes: entries of a log
// become one with the latest of their instants if they are within 2/most of the window. So nothing comes back earlier
// than before, and it comes back by that span later at the most. The state must have passed [State.CheckExported].
func Coarsen(s *State, l *limiter.Limit, words []uint64, most int) []uint64 {
	if of(l).P.Algorithm != limiter.SlidingLog || s.Held(l) <= 1+most {
		return words
	}
	c := s.Open(l)
	words = (*log)(of(l)).coarsen(&c, words, most)
	*s = c.State(l)
	return words
}

func (l *log) coarsen(s *Counts, words []uint64, most int) []uint64 {
	span := l.Window / limiter.Tick(most/2)
	n := 0
	var since limiter.Tick // when the last of the n entries began
	var sum uint64
	for i := range int(s.B) {
		tick, cost := logAt(s, words, i)
		if n == 0 || tick-since > span || sum+cost > logCostMax {
			n, since, sum = n+1, tick, 0
		}
		sum += cost
		words[n] = logEntry(tick, sum)
	}
	if s.B = uint64(n); n == 1 {
		return words[:0] // it stands in the state
	}
	return words[:1+n]
}

func (l *log) admitsAt(s *Counts, words []uint64, n uint64) limiter.Tick {
	sum := s.A
	for i := range int(s.B) - 1 {
		tick, cost := logAt(s, words, i)
		if sum -= cost; sum+n <= l.Cap {
			return tick + l.Window
		}
	}
	return s.Time + l.Window
}

// retryAt is [State.RetryAt] for logs. It goes through entries and holds in the order of the instants
// at which they end, as [log.roll] and [log.refund] would, and changes none.
func (l *log) retryAt(s *Counts, words []uint64, n uint64, backs []Hold) limiter.Tick {
	entries, at := int(s.B), func(i int) (limiter.Tick, uint64) { return logAt(s, words, i) }
	if s.B == 1 {
		at = func(int) (limiter.Tick, uint64) { return s.Time, s.A }
	}
	sum, given := s.A, make(map[int]uint64) // by entry: what came back of it
	for oldest := 0; oldest < entries; {
		tick, cost := at(oldest)
		if len(backs) == 0 || tick+l.Window <= backs[0].End {
			sum -= cost - given[oldest]
			if oldest++; sum+n <= l.Cap {
				return tick + l.Window
			}
			continue
		}
		h := backs[0]
		backs = backs[1:]
		if sum >= l.most() {
			continue
		}
		i := oldest + sort.Search(entries-oldest, func(i int) bool { tick, _ := at(oldest + i); return tick >= h.At })
		of := h.At
		for ; i < entries; i++ {
			tick, cost := at(i)
			if given[i] == cost { // it was removed
				continue
			}
			if h.At > h.End-l.Window {
				of = tick
			}
			break
		}
		last := i
		for ; last < entries; last++ {
			if tick, _ := at(last); tick != of {
				break
			}
		}
		for j := last - 1; j >= i && h.Cost > 0; j-- {
			_, cost := at(j)
			part := min(cost-given[j], h.Cost)
			given[j], h.Cost, sum = given[j]+part, h.Cost-part, sum-part
		}
		if sum+n <= l.Cap {
			return h.End
		}
	}
	return s.Time + l.Window
}

// shiftLog moves all entries by a span. The caller adjusts the state's time.
func shiftLog(s *Counts, words []uint64, by limiter.Tick) {
	if s.B <= 1 {
		return
	}
	for i := range int(s.B) {
		w := &words[logIndex(words, i)]
		*w = logEntry(limiter.Tick(*w>>logCostBits)+by, *w&(logCostMax-1)+1)
	}
}

// refund takes back up to n units of the entries at the tick at. A charge at an
// instant before the newest entry was added to that entry. So if there is no entry at
// that tick, the next later one is used; it stops counting no later than the charge
// does.
func (l *log) refund(s *Counts, words []uint64, now, at limiter.Tick, n uint64) {
	if s.A >= l.most() {
		return // it may have forgotten the charge, and would give back another one
	}
	if at > now-l.Window { // else the charge was removed
		at = nextInLog(s, words, at)
	}
	if s.B == 1 {
		if at == s.Time {
			s.A -= min(s.A, n)
			s.B = min(s.A, 1)
		}
		return
	}
	for i := int(s.B) - 1; i >= 0 && n > 0; i-- {
		tick, cost := logAt(s, words, i)
		if tick < at {
			return
		}
		if tick > at {
			continue
		}
		if cost > n {
			words[logIndex(words, i)] -= n
			s.A -= n
			return
		}
		removeLog(s, words, i, cost)
		n -= cost
	}
}

// nextInLog returns the tick of the first entry at or after at, or at if there is none.
func nextInLog(s *Counts, words []uint64, at limiter.Tick) limiter.Tick {
	if s.B <= 1 {
		return max(at, s.Time)
	}
	next := at
	for i := int(s.B) - 1; i >= 0; i-- {
		tick, _ := logAt(s, words, i)
		if tick < at {
			break
		}
		next = tick
	}
	return next
}

// removeLog removes entry i and closes the gap.
func removeLog(s *Counts, words []uint64, i int, cost uint64) {
	if last := int(s.B) - 1; i == last && last > 0 {
		s.Time, _ = logAt(s, words, last-1)
	}
	for ; i < int(s.B)-1; i++ {
		words[logIndex(words, i)] = words[logIndex(words, i+1)]
	}
	s.A -= cost
	s.B--
}
