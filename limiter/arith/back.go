package arith

import (
	"math"
	"math/bits"
	"sort"

	"github.com/weirlimit/weir/limiter"
)

// What comes back of units that were charged and turn out not to be used is what the counter would have
// now if they had never been charged, less what it has: never more.
//
// Of a bucket that is, of n units charged at t, at a later instant s
//
//	min(n, the lowest level in [t, s]).
//
// For let D be by how much the level L is above the one that it would be without them: n at t. A charge
// leaves D as it is. A leak of r makes of it max(0, L-r) - max(0, L-D-r), which is min(D, max(0, L-r)),
// since D <= L: so D is cut to the level after each leak, and to nothing else. (It is the difference of
// two reflected paths.) Between charges a level only falls, so it is lowest just before a charge, or at s.
//
// A level, or the count of a window, stops at its bound. A charge that it would take beyond by x makes
// max(0, D-x) of D. Leaks and such charges, in any order, make max(0, min(D, low) - lost) of it, for two
// numbers: after a further level v, low is at most v + lost, and after a further x, lost is x more.
//
// Each entry of [Holds] has these two numbers for the time until the next entry of its limit, so a charge
// changes those of the last one only. If d units are taken out of the past of an entry, it has low - d and
// lost - d from then on, as what it makes of D+d is what it makes of d and of D then. An entry that goes
// leaves its numbers to the one before.
//
// Lost is in whole units, rounded up: of a level that has been at its bound, less than a unit too little
// comes back.
type since struct {
	notLow level // all bits of low changed, so that the zero value is that there is none
	lost   uint64
}

// level is a level of a bucket in 1/limit ticks, as [bucket.debt] returns it; of drips, and the count of
// a window, in units.
type level struct{ hi, lo uint64 }

func (a level) less(b level) bool { return a.hi < b.hi || a.hi == b.hi && a.lo < b.lo }

// plus returns a+b, or the largest level.
func (a level) plus(b level) level {
	lo, carry := bits.Add64(a.lo, b.lo, 0)
	hi, carry := bits.Add64(a.hi, b.hi, carry)
	if carry != 0 {
		return level{math.MaxUint64, math.MaxUint64}
	}
	return level{hi, lo}
}

// minus returns a-b, or 0.
func (a level) minus(b level) level {
	lo, borrow := bits.Sub64(a.lo, b.lo, 0)
	hi, borrow := bits.Sub64(a.hi, b.hi, borrow)
	if borrow != 0 {
		return level{}
	}
	return level{hi, lo}
}

// levelOf returns n units as a level.
func (l *rate) levelOf(n uint64) level {
	if !l.Shared {
		return level{0, n}
	}
	hi, lo := bits.Mul64(n, uint64(l.Window))
	return level{hi, lo}
}

// unitsOf returns how many units a level has, rounded down; at most mostCounted.
func (l *rate) unitsOf(v level) uint64 {
	switch {
	case !l.Shared:
		return min(v.lo, mostCounted)
	case v.hi >= uint64(l.Window):
		return mostCounted
	default:
		return min(quo(v.hi, v.lo, uint64(l.Window)), mostCounted)
	}
}

// leaks reports whether the limit is a bucket.
func (l *rate) leaks() bool {
	switch l.P.Algorithm {
	case limiter.TokenBucket, limiter.LeakyBucket, limiter.GCRA:
		return true
	default:
		return false
	}
}

// levelAt returns the level of a bucket that was rolled to now.
func (l *rate) levelAt(s *Counts, now limiter.Tick) level {
	if !l.Shared {
		return level{0, s.A}
	}
	hi, lo := (*bucket)(l).debt(s, now)
	return level{hi, lo}
}

// losesBy returns how many of n units a charge at now would not count, rounded up, since the count is at
// its bound then.
func (l *rate) losesBy(s *Counts, now limiter.Tick, n uint64) uint64 {
	if n == 0 {
		return 0
	}
	count := s.A
	switch l.P.Algorithm {
	case limiter.FixedWindow, limiter.SlidingCounter:
	case limiter.SlidingWindow:
		if count = s.B; now >= s.Time+l.Sub {
			count = 0
		}
	case limiter.TokenBucket, limiter.LeakyBucket, limiter.GCRA:
		if l.Shared {
			count = (*bucket)(l).used(s, now)
		}
		return count + n - min(count+n, l.Most)
	default:
		return 0
	}
	return count + n - min(count+n, l.maxUnits())
}

// low returns the lowest level, or the largest that there is.
func (e *since) low() level { return level{^e.notLow.hi, ^e.notLow.lo} }

// lower records a level, lost units included.
func (e *since) lower(v level) {
	if v.less(e.low()) {
		e.notLow = level{^v.hi, ^v.lo}
	}
}

// lose records that n units of a charge were not counted. From mostCounted on nothing comes back any more.
func (e *since) lose(n uint64) { e.lost = min(e.lost+n, mostCounted) }

// pass returns what is left at the end of a time of a level that it began with.
func (e *since) pass(l *rate, d level) level {
	if low := e.low(); low.less(d) {
		d = low
	}
	return d.minus(l.levelOf(e.lost))
}

// take is pass for units that are given back, which it takes out of the time.
func (e *since) take(l *rate, d level) level {
	rest, low := e.pass(l, d), e.low()
	if e.notLow != (level{}) && !e.hits() {
		low = low.minus(d)
		e.notLow = level{^low.hi, ^low.lo}
	}
	if e.lost < mostCounted {
		e.lost -= min(e.lost, l.unitsOf(d))
	}
	return rest
}

// follow makes of e the time of both e and the next one. See [State.EachHold] for limits.
func (e *since) follow(next since, limit uint64, limits func(counts uint64) *limiter.Limit) {
	low := next.low()
	if e.lost > 0 && limits != nil {
		if l := limits(limit); l != nil {
			low = low.plus(of(l).levelOf(e.lost))
		}
	}
	e.lower(low)
	e.lose(next.lost)
}

// lastHold returns the last entry of a limit, -1 if there is none.
func lastHold(holds *State, words []uint64, limit uint64) int {
	for i := int(holds.A) - 1; i >= 0; i-- {
		if words[i*HoldWords+3] == limit {
			return i
		}
	}
	return -1
}

// lostAny reports whether units beyond the bound of a limit's count were lost.
func lostAny(holds *State, words []uint64, limit uint64) bool {
	for i := range int(holds.A) {
		if words[i*HoldWords+3] == limit && sinceAt(words, i).lost > 0 {
			return true
		}
	}
	return false
}

func sinceAt(words []uint64, i int) since {
	w := words[i*HoldWords:][:HoldWords]
	return since{level{w[5], w[6]}, w[7]}
}

func (e since) put(words []uint64, i int) {
	w := words[i*HoldWords:][:HoldWords]
	w[5], w[6], w[7] = e.notLow.hi, e.notLow.lo, e.lost
}

// Affects reports whether a charge of n units at now can make less come back of what holds have charged to
// a counter. If it does, [NoteCharge] must be called before it.
func Affects(l *limiter.Limit, c *Counts, now limiter.Tick, n uint64) bool {
	return of(l).leaks() || of(l).losesBy(c, now, n) > 0 || ByHit(l) && c.A > 0
}

// NoteCharge tells the holds of a key of a charge of n units to one of its counters, before it is made; with
// n = 0, before the counter is raised otherwise. (What lowers a level need not be told: the level is lower still
// before the next charge.) The counter must have been rolled to now.
func NoteCharge(l *limiter.Limit, c *Counts, holds *State, words []uint64, now limiter.Tick, n uint64) {
	of(l).noteCharge(c, holds, words, now, n)
}

func (l *rate) noteCharge(c *Counts, holds *State, words []uint64, now limiter.Tick, n uint64) {
	i := lastHold(holds, words, l.countsID())
	if i < 0 {
		return
	}
	e := sinceAt(words, i)
	switch {
	case l.leaks():
		e.lower(l.levelAt(c, now).plus(l.levelOf(e.lost)))
	case n > 0 && l.byHit():
		e.noteHit(c, HoldAt(words, i).At, now)
	}
	e.lose(l.losesBy(c, now, n))
	e.put(words, i)
}

// Follow lets what holds have charged to a counter of the limit old come back to it as one of l, and reports whether it
// can: if both are buckets of one kind, or logs of one window. It must be called before the counter is adopted, see
// [State.Adopt]. The counter must have been rolled to now.
//
// A log finds a charge by its instant, so it must have it still, or know that it has not: see [log.refund]. Under
// another window, or from its bound on, it would find what others have charged.
//
// A level is the same number of units before and after, and so is what is left of some that it has. Only the
// levels that are recorded are in parts of a unit that are l's from now on, rounded down: so no more comes back.
func Follow(l, old *limiter.Limit, s, holds *State, words []uint64, now limiter.Tick) bool {
	to, from, c := of(l), of(old), s.Open(old)
	switch {
	case !to.keeps(from):
		return false
	case from.leaks():
	case from.P.Algorithm != limiter.SlidingLog, from.Window != to.Window, c.A >= (*log)(from).most():
		return false
	}
	was, is, over := from.countsID(), to.countsID(), uint64(0)
	if from.leaks() {
		from.noteCharge(&c, holds, words, now, 0)
		if !from.Shared || from.Window != to.Window || from.Limit != to.Limit { // else the level stays as it is
			used := from.used(&c, now)
			over = used - min(used, to.Most)
		}
	}
	last := lastHold(holds, words, was)
	for i := 0; i <= last; i++ {
		h := HoldAt(words, i)
		if h.Limit != was {
			continue
		}
		if h.Limit = is; from.Shared {
			h.since.convert(from, to)
		}
		if i == last {
			h.since.lose(over)
		}
		h.Put(words, i)
	}
	return true
}

// convert makes of the level of a bucket one of another.
func (e *since) convert(from, to *rate) {
	if v := e.low(); v.hi < uint64(from.Window) && from.Window != to.Window {
		units, rest := bits.Div64(v.hi, v.lo, uint64(from.Window))
		hi, lo := bits.Mul64(rest, uint64(to.Window))
		v = to.levelOf(units).plus(level{0, quo(hi, lo, uint64(from.Window))})
		e.notLow = level{^v.hi, ^v.lo}
	}
}

// ChargedAt makes an entry one of the same units that are charged at another instant.
func (h *Hold) ChargedAt(at limiter.Tick) { h.At, h.since = at, since{} }

// Refused lets an entry give nothing back if its counter is at its bound. For it has just been charged, though
// its limit, of a shadow rule, had no room for it.
func (h *Hold) Refused(l *limiter.Limit, s *State, now limiter.Tick) {
	if of(l).losesBy(new(s.Open(l)), now, 1) > 0 {
		h.Detach() // what was charged before it still comes back
	}
}

// Detach lets an entry give nothing back any more. Its units are counted.
func (h *Hold) Detach() { h.Limit, h.since = 0, since{} }

// Merge makes an entry of another table one of this, and returns how many of its units are counted here: at most so
// many as the other's counter had more than that of this table. It gives nothing back any more. Its limit stays known,
// see [Hold.Charged].
func (h *Hold) Merge(more uint64) (counted uint64) {
	limit, counted := h.Charged(), min(h.Counted(), more)
	h.Limit, h.since = 0, since{level{lo: limit}, min(h.Cost-counted, mostCounted)}
	return counted
}

// Rise returns how many units more count at now in a state than in a former one, of buckets rounded down. Both must
// have been rolled to now.
func Rise(limit *limiter.Limit, former, s *State, now limiter.Tick) uint64 {
	l, was, is := of(limit), former.Open(limit), s.Open(limit)
	if l.leaks() {
		return l.unitsOf(l.levelAt(&is, now).minus(l.levelAt(&was, now)))
	}
	used := l.used(&is, now)
	return used - min(used, l.used(&was, now))
}

// Charged returns the [CountsID] of the limit that an entry has charged, here or in another table; 0 if that is not
// known any more.
func (h *Hold) Charged() uint64 {
	if h.Limit == 0 {
		return h.since.notLow.lo
	}
	return h.Limit
}

// Counted returns how many units of an entry are counted here for sure.
func (h *Hold) Counted() uint64 {
	if h.Uncounted() {
		return h.Cost - min(h.Cost, h.since.lost)
	}
	return h.Cost
}

// Spare makes an entry that has charged nothing, as one of a rule in shadow that would have denied the check.
func (h *Hold) Spare() {
	h.Limit, h.since = 0, since{notLow: level{hi: 1}}
}

// Spared reports whether an entry has charged nothing, see [Hold.Spare].
func (h *Hold) Spared() bool { return h.Limit == 0 && h.since == since{notLow: level{hi: 1}} }

// Uncounted reports whether an entry gives nothing back and not all its units are counted, see [Hold.Merge].
func (h *Hold) Uncounted() bool { return h.Limit == 0 && h.since.lost > 0 }

// GiveBack takes n units of the charge of entry i of some holds back from its counter, so that it has
// what it would have without them. latest is as in [State.Refund]. The entry stays.
func GiveBack(l *limiter.Limit, s *State, words []uint64, holds *State, holdWords []uint64, i int, now,
	latest limiter.Tick, n uint64) {
	c := s.Open(l)
	c.giveBack(of(l), words, holds, holdWords, i, now, latest, n)
	*s = c.State(l)
}

func (s *Counts) giveBack(l *rate, words []uint64, holds *State, holdWords []uint64, i int, now, latest limiter.Tick,
	n uint64) {
	h := HoldAt(holdWords, i)
	s.roll(l, words, now)
	last := lastHold(holds, holdWords, h.Limit)
	if l.leaks() {
		l.noteCharge(s, holds, holdWords, now, 0)
	}
	back := l.levelOf(n)
	for j := i; j <= last; j++ {
		if holdWords[j*HoldWords+3] == h.Limit {
			e := sinceAt(holdWords, j)
			back = e.take(l, back)
			e.put(holdWords, j)
		}
	}
	switch {
	case l.byHit():
		(*window)(l).giveBack(s, holds, holdWords, i, now, back.lo, h.Cost-n)
	case back == (level{}):
	case l.leaks():
		l.lower(s, now, back)
	default:
		s.reduce(l, words, now, latest, h.At, back.lo, h.Cost-n, true)
	}
}

// GiveBackAll takes all units of the entries that f names back from their counter, which is a bucket. What an entry has
// of the past of others is what it has of the sum of these, so one way through the entries does it.
func GiveBackAll(limit *limiter.Limit, s, holds *State, holdWords []uint64, now limiter.Tick, f func(Hold) bool) {
	l, c, back := of(limit), s.Open(limit), level{}
	c.roll(l, nil, now)
	l.noteCharge(&c, holds, holdWords, now, 0)
	for i := range int(holds.A) {
		if holdWords[i*HoldWords+3] != l.countsID() {
			continue
		}
		if h := HoldAt(holdWords, i); f(h) {
			back = back.plus(l.levelOf(h.Cost))
		}
		if back != (level{}) {
			e := sinceAt(holdWords, i)
			back = e.take(l, back)
			e.put(holdWords, i)
		}
	}
	l.lower(&c, now, back)
	*s = c.State(limit)
}

// lower lowers the level of a bucket that was rolled to now.
func (l *rate) lower(s *Counts, now limiter.Tick, by level) {
	have := l.levelAt(s, now).minus(by)
	if l.Shared {
		(*bucket)(l).setDebt(s, now, have.hi, have.lo)
	} else {
		s.A = have.lo
	}
}

// bucketRetryAt is [State.RetryAt] for buckets. Whenever holds end, what has come back by an instant is what would
// have if all of them had ended then: so one way through the entries finds it.
func (l *rate) bucketRetryAt(s Counts, n uint64, holds *State, words []uint64, backs []int) limiter.Tick {
	gone := make([]bool, holds.A)
	end := func(m int) limiter.Tick { return HoldAt(words, backs[m-1]).End }
	after := func(m int) limiter.Tick { // when the units are admitted once m holds have ended
		clear(gone)
		for _, i := range backs[:m] {
			gone[i] = true
		}
		limit, now, back, c := l.countsID(), end(m), level{}, s
		for i := range int(holds.A) {
			if words[i*HoldWords+3] != limit {
				continue
			}
			if gone[i] {
				back = back.plus(l.levelOf(HoldAt(words, i).Cost))
			}
			e := sinceAt(words, i)
			back = e.pass(l, back)
		}
		c.roll(l, nil, now)
		if l.lower(&c, now, back); l.used(&c, now)+n <= l.Cap {
			return now
		}
		return l.admitsAt(&c, nil, n)
	}
	return after(1 + sort.Search(len(backs)-1, func(i int) bool { return after(i+1) <= end(i+2) }))
}
