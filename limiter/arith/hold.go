package arith

import (
	"cmp"
	"math"
	"slices"

	"github.com/weirlimit/weir/limiter"
)

// A hold is a charge that waits for its end: its cost is an estimate. It is settled with what
// was used, extended, or it expires.

// Holds is the algorithm of the counters in which tables keep the holds of a key. No rule and no
// request has a limit with it: it admits nothing and denies nothing. In its [State], Time is
// the instant at which the first hold ends, Until that at which the last one does, and A the
// number of entries in its words.
const Holds limiter.Algorithm = 65

// holdsName is a name that no other limit may have, since holds lie beside the counters of a key: see
// [limiter.Spec.Problems].
const holdsName = "\x00holds"

// HoldsLimit returns the limit of the counters that keep holds. It is the same in all nodes.
func HoldsLimit() *limiter.Limit {
	return limiter.Params{Name: holdsName, Algorithm: Holds, Limit: 1, Window: limiter.Span(limiter.MaxHold)}.Compile(nil)
}

// internal reports whether a limit is of the counters that tables keep for themselves.
func (l *rate) internal() bool { return l.P.Algorithm >= Remembered }

// Hold is one entry of the words of [Holds]: the charge of one limit by one hold at one
// instant.
type Hold struct {
	// ID is the ID of the charge, see [Idempotency].
	ID uint64
	// End is when the hold ends: at this instant it is over.
	End limiter.Tick
	// At is the instant of the charge.
	At limiter.Tick
	// Limit is the [CountsID] of the limit; 0 if nothing can be given back to it any more.
	Limit uint64
	// Cost is the units that were charged, at least 1.
	Cost uint64
	// Keep reports that they stay charged when the hold ends.
	Keep bool
	// First marks one entry of each hold of a key.
	First bool
	// Lent reports that the units count as charged now at every instant until the hold is settled, see
	// [Idempotency.Lent].
	Lent bool
	// Sliced reports that the lease is a slice, and Rate is that of it, see [Idempotency.Rate].
	Sliced bool
	Rate   uint64
	// Shape is that of the check that was held, see [Idempotency]; 0 of what extensions have charged.
	Shape Shape

	since since // what became of the units
}

// HoldWords is how many words an entry takes.
const HoldWords = 8

const (
	holdKeep  = 1 << 32
	holdFirst = 1 << 33
	holdCost  = 34 // its bits from here up to holdShape are those of the cost above the 32nd
	holdShape = 55
	holdLent  = 1 << 63
	holdRate  = holdCost // of a slice, in place of the high bits of the cost and of the shape: it is lent, and not kept
	holdHigh  = 1<<(holdShape-holdCost) - 1
	shapeMask = 1<<(63-holdShape) - 1
)

// HoldAt returns entry i.
func HoldAt(words []uint64, i int) Hold {
	w := words[i*HoldWords:][:HoldWords]
	if w[4]&(holdLent|holdKeep) == holdLent {
		return Hold{
			ID: w[0], End: limiter.Tick(w[1]), At: limiter.Tick(w[2]), Limit: w[3], Cost: w[4] & math.MaxUint32, Keep: true,
			First: w[4]&holdFirst != 0, Lent: true, Sliced: true, Rate: w[4] &^ holdLent >> holdRate, since: sinceAt(words, i),
		}
	}
	return Hold{
		ID: w[0], End: limiter.Tick(w[1]), At: limiter.Tick(w[2]), Limit: w[3],
		Cost: w[4]&math.MaxUint32 | w[4]>>holdCost&holdHigh<<32, Keep: w[4]&holdKeep != 0, First: w[4]&holdFirst != 0,
		Lent: w[4]&holdLent != 0, Shape: Shape(w[4] >> holdShape & shapeMask), since: sinceAt(words, i),
	}
}

// HoldCharged returns which limit entry i has charged, when, and whether it is lent.
func HoldCharged(words []uint64, i int) (limit uint64, at limiter.Tick, lent bool) {
	w := words[i*HoldWords:][:HoldWords]
	return w[3], limiter.Tick(w[2]), w[4]&holdLent != 0
}

// Put writes the hold into entry i.
func (h Hold) Put(words []uint64, i int) {
	w := words[i*HoldWords:][:HoldWords]
	w[0], w[1], w[2], w[3] = h.ID, uint64(h.End), uint64(h.At), h.Limit
	if h.Sliced {
		w[4] = h.Cost&math.MaxUint32 | h.Rate<<holdRate
	} else {
		w[4] = h.Cost&math.MaxUint32 | h.Cost>>32<<holdCost | uint64(h.Shape)<<holdShape
	}
	if h.Keep && !h.Sliced {
		w[4] |= holdKeep
	}
	if h.First {
		w[4] |= holdFirst
	}
	if h.Lent {
		w[4] |= holdLent
	}
	h.since.put(words, i)
}

// AddHold appends an entry, for which the words must have room.
func (s *State) AddHold(words []uint64, h Hold) {
	h.Put(words, int(s.A))
	if s.A == 0 {
		s.Time, s.Until = h.End, h.End
	}
	s.A++
	s.Time, s.Until = min(s.Time, h.End), max(s.Until, h.End)
}

// EachHold calls f for each entry, in the order in which they were added, and puts what f
// returns in its place. An entry for which f reports false is removed. If it is, or has another limit, what
// became of units in its time becomes known of the one before. For that limits may return a limit by its
// [CountsID], or nil: then less may come back, never more. It may be nil itself.
func (s *State) EachHold(words []uint64, limits func(counts uint64) *limiter.Limit,
	f func(h Hold) (_ Hold, stays bool)) {
	n := s.A
	*s = State{}
	for i := range int(n) {
		was := HoldAt(words, i)
		h, stays := f(was)
		if gone := !stays || h.Limit != was.Limit; gone && was.Limit != 0 && was.since != (since{}) {
			if j := lastHold(s, words, was.Limit); was.since.hits() {
				leaveHits(words, &was, i, int(n), j)
			} else if j >= 0 {
				e := sinceAt(words, j)
				e.follow(was.since, was.Limit, limits)
				e.put(words, j)
			}
		}
		if stays {
			s.AddHold(words, h)
		}
	}
}

// ChangeHold calls f for each entry of an id, which may change all but its ID and its limit.
func ChangeHold(s *State, words []uint64, id uint64, f func(h *Hold)) {
	for i := range int(s.A) {
		if HoldIs(words, i, id) {
			h := HoldAt(words, i)
			f(&h)
			h.Put(words, i)
		}
		end := limiter.Tick(words[i*HoldWords+1])
		if i == 0 {
			s.Time, s.Until = end, end
		}
		s.Time, s.Until = min(s.Time, end), max(s.Until, end)
	}
}

// HoldIs reports whether entry i is of an id.
func HoldIs(words []uint64, i int, id uint64) bool { return words[i*HoldWords] == id }

// HoldsID reports whether an id has a hold.
func (s *State) HoldsID(words []uint64, id uint64) bool {
	for i := range int(s.A) {
		if HoldIs(words, i, id) {
			return true
		}
	}
	return false
}

// Occupy lets n units that were charged to a limit on concurrency count until the end of their
// hold. (In the state of such a limit Time is the instant from which nothing is held any more.) With n = 0 they do
// already, and the hold ends later than before.
func Occupy(l *limiter.Limit, s *State, n uint64, end limiter.Tick) {
	c := s.Open(l)
	c.B -= min(c.B, n)
	c.Time = max(c.Time, end)
	*s = c.State(l)
}

// CountHeld lets a limit on concurrency count what holds have charged to it, and nothing else.
func CountHeld(l *limiter.Limit, s, holds *State, words []uint64) {
	c := s.Open(l)
	c.Time, c.A, c.B = 0, 0, 0
	for i := range int(holds.A) {
		if h := HoldAt(words, i); h.Limit == CountsID(l) {
			c.Time, c.A = max(c.Time, h.End), of(l).addSat(c.A, h.Cost)
		}
	}
	*s = c.State(l)
}

// HoldEnds returns two instants for the holds that were charged to a limit: last, when the last of
// them ends; and room, when those that have not ended hold at most most units, or 0 if they do so
// now. [CountsID] names the limit.
func HoldEnds(s *State, words []uint64, limit, most uint64) (last, room limiter.Tick) {
	var ends []Hold
	sum := uint64(0)
	for i := range int(s.A) {
		if h := HoldAt(words, i); h.Limit == limit {
			ends, sum, last = append(ends, h), min(sum+h.Cost, maxSum), max(last, h.End)
		}
	}
	slices.SortFunc(ends, func(a, b Hold) int { return cmp.Compare(a.End, b.End) })
	for i := 0; sum > most && i < len(ends); i++ {
		sum, room = sum-min(sum, ends[i].Cost), ends[i].End
	}
	return last, room
}

// EntriesEnd returns the instant from which at most so many entries are left; 0 if no more are there.
func EntriesEnd(s *State, words []uint64, most int) limiter.Tick {
	if int(s.A) <= most {
		return 0
	}
	ends := make([]limiter.Tick, s.A)
	for i := range ends {
		ends[i] = HoldAt(words, i).End
	}
	slices.Sort(ends)
	return ends[len(ends)-most-1]
}

// RetryAt returns the first instant at which n units, which a limit does not admit at now, are admitted if
// nothing else is charged: units come back by time, and when holds end that are not kept. latest is as for
// [State.Refund]. Nothing is changed. It takes a step for each hold, and another for each entry of a log.
func (s *State) RetryAt(limit *limiter.Limit, words []uint64, now, latest limiter.Tick, n uint64, holds *State,
	holdWords []uint64) limiter.Tick {
	l, c := of(limit), s.Open(limit)
	if l.used(&c, now)+n <= l.Cap {
		return c.Until
	}
	at, were := l.admitsAt(&c, words, n), 0
	// A window of the first hit may end later once a hold has ended, so that further ones end before.
	for backs := l.comingBack(holds, holdWords, at); len(backs) > were; backs = l.comingBack(holds, holdWords, at) {
		if were = len(backs); !l.byHit() {
			were = int(holds.A)
		}
		switch {
		case l.P.Algorithm == limiter.SlidingLog:
			of := make([]Hold, len(backs))
			for i, at := range backs {
				of[i] = HoldAt(holdWords, at)
			}
			at = (*log)(l).retryAt(&c, words, n, of)
		case l.leaks():
			at = l.bucketRetryAt(c, n, holds, holdWords, backs)
		default:
			at = l.retryAt(c, words, latest, n, holds, holdWords, backs)
		}
	}
	return max(at, c.Until)
}

// comingBack returns which charges of holds a limit gets back before an instant, in the order in which
// it does.
func (l *rate) comingBack(holds *State, words []uint64, before limiter.Tick) []int {
	id := l.countsID()
	type end struct {
		at limiter.Tick
		i  int
	}
	var ends []end
	for i := range int(holds.A) {
		if h := HoldAt(words, i); h.Limit == id && !h.Keep && h.End < before {
			ends = append(ends, end{h.End, i})
		}
	}
	slices.SortFunc(ends, func(a, b end) int { return cmp.Or(cmp.Compare(a.at, b.at), a.i-b.i) })
	backs := make([]int, len(ends))
	for i, e := range ends {
		backs[i] = e.i
	}
	return backs
}

// retryAt is RetryAt for all limits but logs and buckets.
func (l *rate) retryAt(s Counts, words []uint64, latest limiter.Tick, n uint64, holds *State, holdWords []uint64,
	backs []int) limiter.Tick {
	lost := l.byHit() || lostAny(holds, holdWords, l.countsID())
	replay := func(backs []int, until func(c *Counts, now limiter.Tick) bool) (c Counts, w []uint64, ended int) {
		c, w = s, slices.Clone(words)
		of := holdWords
		if lost {
			of = slices.Clone(holdWords)
		}
		for i, at := range backs {
			h := HoldAt(of, at)
			if c.roll(l, w, h.End); until(&c, h.End) {
				return c, w, i
			}
			if lost {
				c.giveBack(l, w, holds, of, at, h.End, max(latest, h.End), h.Cost)
			} else {
				c.reduce(l, w, h.End, max(latest, h.End), h.At, h.Cost, 0, true)
			}
		}
		return c, w, len(backs)
	}
	admits := func(c *Counts, now limiter.Tick) bool { return l.used(c, now)+n <= l.Cap }
	_, _, ended := replay(backs, admits)
	// The units are admitted after so many ends: at the last of these, or between it and the next one.
	c, w, _ := replay(backs[:ended], func(*Counts, limiter.Tick) bool { return false })
	if last := HoldAt(holdWords, backs[ended-1]).End; admits(&c, last) {
		return last
	}
	return l.admitsAt(&c, w, n)
}

// CountHolds returns the number of holds.
func (s *State) CountHolds(words []uint64) (n int) {
	for i := range int(s.A) {
		if HoldAt(words, i).First {
			n++
		}
	}
	return n
}

// moveHolds shifts all instants by a span. An instant of a charge that is too long ago for any
// limit stays within MaxWindow.
func moveHolds(s *State, words []uint64, by limiter.Tick) {
	most := limiter.Span(limiter.MaxWindow)
	s.EachHold(words, nil, func(h Hold) (Hold, bool) {
		h.End, h.At = h.End+by, h.At+by
		if by < 0 {
			h.At = max(h.At, -most)
		}
		return h, true
	})
}

// checkHolds reports whether exported holds make sense.
func checkHolds(s *State, words []uint64) bool {
	if s.A == 0 || s.A > 2*limiter.MaxHoldEntries || s.B != 0 || len(words) != int(s.A)*HoldWords {
		return false
	}
	first, last, most := limiter.Span(limiter.MaxHold)+1, -limiter.Span(limiter.MaxHold), limiter.Span(limiter.MaxWindow)
	for i := range int(s.A) {
		h := HoldAt(words, i)
		if h.ID == 0 || h.End <= -limiter.Span(limiter.MaxHold) || h.End > limiter.Span(limiter.MaxHold) || h.At > most ||
			h.At < -most {
			return false
		}
		if h.Cost == 0 || h.Cost > limiter.MaxUnits || h.since.lost > mostCounted || !h.Shape.Valid() {
			return false
		}
		first, last = min(first, h.End), max(last, h.End)
	}
	return s.Time == first && s.Until == last
}

// Steady returns an instant that stands for that of a charge to a counter in another node: a charge in a
// window counts in the middle of it. So the import of the instant finds the window that the
// import of the counter finds, though neither clock nor transfer is exact.
func Steady(l *limiter.Limit, s *State, at limiter.Tick) limiter.Tick { return of(l).steady(s, at) }

func (l *rate) steady(s *State, at limiter.Tick) limiter.Tick {
	switch {
	case l.P.Algorithm == limiter.SlidingWindow:
		return s.Time + floorTo(at-s.Time, l.Sub) + l.Sub/2
	case l.P.Algorithm == limiter.LeakyBucket && !l.Shared:
		last, next := (*drips)(l).last(max(0, at)), (*drips)(l).next(max(0, at))
		return last + (next-last)/2
	case !l.alignedStarts():
		return at
	case l.Cal != nil:
		start, end := l.Cal.Window(int64(at))
		return limiter.Tick(start + (end-start)/2)
	default:
		return (*window)(l).start(at) + l.Window/2
	}
}

// mergeHolds adds the holds of ids that the state does not have, as far as there is room. Of one
// that both have the entries of that state stay where it ends later, or has more of them.
func mergeHolds(s *State, words []uint64, from *State, fromWords []uint64) {
	have, other := extents(s, words), extents(from, fromWords)
	s.EachHold(words, nil, func(h Hold) (Hold, bool) { return h, !have[h.ID].less(other[h.ID]) })
	for i := range int(from.A) {
		h := HoldAt(fromWords, i)
		if have[h.ID].less(other[h.ID]) && (int(s.A)+1)*HoldWords <= len(words) {
			s.AddHold(words, h)
		}
	}
}

// extent is when a hold ends, and how many entries it has; the zero value is of none.
type extent struct {
	end limiter.Tick
	n   int
}

func (e extent) less(o extent) bool { return e.end < o.end || e.end == o.end && e.n < o.n }

func extents(s *State, words []uint64) map[uint64]extent {
	out := make(map[uint64]extent, s.A)
	for i := range int(s.A) {
		h := HoldAt(words, i)
		e := out[h.ID]
		out[h.ID] = extent{h.End, e.n + 1}
	}
	return out
}
