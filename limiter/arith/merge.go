package arith

import (
	"math"

	"github.com/weirlimit/weir/limiter"
)

// Two states of one counter exist if two nodes decided without knowing of each other.
// They are merged into the least state that denies whatever either denies, now or
// later, whatever is charged afterwards. So each of the two could have admitted, after
// its own charges, whatever is admitted then: k such lineages together admit at most k
// times what one may admit.
//
// For a limit that counts by time, the state is a function: the cost since t, for each
// t. The maximum of two such functions is again one, and the least that is at least as
// large as both. Logs, sub-windows and two-window counters are all merged that way.
// Merging is idempotent, and the order of several merges does not matter.
//
// If a window of one state begins in the future (see [State.Import]), the other still
// counts in the present one, and must do so until the future one begins. A fixed window
// stores that count in B. The other two algorithms add what would be dropped too early
// to the oldest window that they keep. Their result for three states may therefore
// depend on the order, but is at least the largest of them.

// MergeMost returns the largest result of [State.MergeWords] for states with into and from
// words.
func MergeMost(l *limiter.Limit, into, from int) int {
	switch of(l).P.Algorithm {
	case limiter.SlidingWindow:
		return (*ring)(of(l)).words()
	case limiter.SlidingLog:
		return into + from + 2*logParts(limiter.MaxLogUnits)
	case Holds:
		return min(into+from, 2*limiter.MaxHoldEntries*HoldWords)
	default:
		return 0
	}
}

// MergeWords returns how many words a state needs before another is merged into it by
// [State.Merge].
func (into *State) MergeWords(l *limiter.Limit, from *State) int {
	c := into.Open(l)
	o := from.Open(l)
	return c.mergeWords(of(l), &o)
}

func (into *Counts) mergeWords(l *rate, from *Counts) int {
	switch l.P.Algorithm {
	case limiter.SlidingWindow:
		if into.A|from.A == 0 && (into.B == 0 || from.B == 0 || into.Time == from.Time) {
			return 0
		}
		return (*ring)(l).words()
	case limiter.SlidingLog:
		if into.B == 0 || from.B == 0 || into.B|from.B == 1 && into.Time == from.Time {
			return max(into.held(l), from.held(l))
		}
		return 1 + min(logEntries(into)+logEntries(from), int(max(into.A, from.A)))
	case Holds:
		return min(int(into.A)+int(from.A), 2*limiter.MaxHoldEntries) * HoldWords
	default:
		return 0
	}
}

// Merge changes into to the least state that denies all that into or from denies. Both
// must be of this limit and rolled to now, and intoWords must have room, see
// [State.MergeWords]. from is not changed.
func (into *State) Merge(l *limiter.Limit, intoWords []uint64, from *State, fromWords []uint64, now limiter.Tick) {
	switch of(l).P.Algorithm {
	case Remembered:
		mergeID(into, from)
		return
	case Holds:
		mergeHolds(into, intoWords, from, fromWords)
		return
	}
	c := into.Open(l)
	o := from.Open(l)
	c.merge(of(l), intoWords, &o, fromWords, now)
	*into = c.State(l)
}

func (into *Counts) merge(l *rate, intoWords []uint64, from *Counts, fromWords []uint64, now limiter.Tick) {
	into.Until = max(into.Until, from.Until)
	switch {
	case l.idle(from, now):
	case l.idle(into, now):
		into.Time, into.A, into.B = from.Time, from.A, from.B
		from.move(l, intoWords, fromWords)
	case l.P.Algorithm == limiter.Concurrency:
		into.Time, into.A = max(into.Time, from.Time), max(into.A, from.A)
	case l.P.Algorithm == limiter.SlidingLog:
		mergeLog(into, intoWords, from, fromWords)
	case l.P.Algorithm == limiter.FixedWindow:
		(*window)(l).merge(into, from)
	case l.P.Algorithm == limiter.SlidingCounter:
		(*counter)(l).merge(into, *from, now)
	case l.P.Algorithm == limiter.SlidingWindow:
		(*ring)(l).merge(into, intoWords, from, fromWords)
	case l.Shared:
		if from.Time > into.Time || from.Time == into.Time && from.A > into.A {
			into.Time, into.A, into.B = from.Time, from.A, from.B
		}
	default:
		into.Time, into.A = max(into.Time, from.Time), max(into.A, from.A)
	}
}

// merge takes the later window with its larger count. The count of an earlier
// window denies until the later one begins, and is stored in B.
func (l *window) merge(into, from *Counts) {
	if l.P.Align == limiter.AlignFirstHit {
		into.Time, into.A = max(into.Time, from.Time), max(into.A, from.A)
		return
	}
	used := max(into.A, into.B, from.A, from.B)
	switch {
	case from.Time > into.Time:
		into.Time, into.A = from.Time, from.A
	case from.Time == into.Time:
		into.A = max(into.A, from.A)
	}
	if into.B = used; used == into.A {
		into.B = 0
	}
}

// merge takes the larger count of this window, and the larger sum of this window
// and the previous one. For every fraction f of the previous window, A + f*B = (1-f)*A
// + f*(A+B), so the result is never below either state.
func (l *counter) merge(into *Counts, from Counts, now limiter.Tick) {
	at := max(into.Time, from.Time)
	l.ahead(into, at, now)
	l.ahead(&from, at, now)
	both := max(into.A+into.B, from.A+from.B)
	into.A = max(into.A, from.A)
	into.B = min(both-into.A, (*rate)(l).maxUnits())
}

// ahead makes the window that begins at at, which lies in the future, the current one
// of a state with an earlier current window.
func (l *counter) ahead(s *Counts, at, now limiter.Tick) {
	if s.Time < at {
		used := s.A + l.tail(s, now)
		s.Time, s.A, s.B = at, 0, min(used, (*rate)(l).maxUnits())
	}
}

// merge takes, for each k, the larger sum of the newest k sub-windows. If those of the
// two states begin at different instants, see [State.Import], the earlier ones count as
// long as the next later ones.
func (l *ring) merge(into *Counts, words []uint64, from *Counts, fromWords []uint64) {
	if len(words) == 0 { // both are the same single sub-window
		into.B = max(into.B, from.B)
		return
	}
	at := max(into.Time, from.Time)
	l.ahead(into, words, at)
	later := int(min((at-from.Time)/l.Sub, limiter.Tick(l.Subs)))
	one, other := into.B, l.agedLater(from, fromWords, 0, later)
	into.B = max(one, other)
	sum := into.B
	for age := 1; age < l.Subs; age++ {
		i := l.place(words, age)
		one = min(one+l.count(words, i), maxSum)
		other = min(other+l.agedLater(from, fromWords, age, later), maxSum)
		n := min(max(one, other)-sum, (*rate)(l).maxUnits())
		l.setCount(words, i, n)
		sum += n
	}
	l.setOlder(into, sum-into.B)
}

// agedLater returns the count at some age, relative to a newest sub-window that is later
// steps later. Counts older than the ring are at its last age: they still count if the
// later sub-window has not begun.
func (l *ring) agedLater(s *Counts, words []uint64, age, later int) (n uint64) {
	from, to := age-later, age-later
	if age == l.Subs-1 {
		from, to = max(from, 0), l.Subs-1
	}
	for a := from; a >= 0 && a <= to; a++ {
		n = min(n+l.aged(s, words, a), maxSum)
	}
	return n
}

// ahead makes the sub-window that begins at at, which is not earlier, the newest,
// and ensures that there is a ring. Counts that drop out of the ring are added to the
// oldest one that remains.
func (l *ring) ahead(s *Counts, words []uint64, at limiter.Tick) {
	steps := int(min((at-s.Time)/l.Sub, limiter.Tick(l.Subs-1)))
	if s.A == 0 {
		clear(words[:l.words()])
	}
	s.Time = at
	if steps == 0 {
		return
	}
	sum := l.older(s, words) + s.B
	l.setCount(words, int(words[0]), s.B)
	dropped := l.turn(words, steps)
	oldest := l.place(words, l.Subs-1)
	l.setCount(words, oldest, min(l.count(words, oldest)+dropped, (*rate)(l).maxUnits()))
	s.B = 0
	l.setOlder(s, sum)
}

// mergeLog takes, for each t, the larger cost since t. It writes from the newest entry
// to the oldest, from the end of the ring.
func mergeLog(into *Counts, words []uint64, from *Counts, fromWords []uint64) {
	if into.B|from.B == 1 && into.Time == from.Time {
		into.A = max(into.A, from.A)
		return
	}
	one, other := cursorOf(into, words), cursorOf(from, fromWords)
	size := len(words) - 1
	at := size
	into.Time, into.A, into.B = max(one.newest(), other.newest()), 0, 0
	for {
		tick := max(one.newest(), other.newest())
		if tick == noTick {
			break
		}
		one.take(tick)
		other.take(tick)
		for more := max(one.sum, other.sum) - into.A; more > 0; at-- {
			part := min(more, logCostMax)
			words[at] = logEntry(tick, part)
			into.A, into.B, more = into.A+part, into.B+1, more-part
		}
	}
	if words[0] = uint64(at); at == size {
		words[0] = 0
	}
}

// cursorOf returns a cursor over a copy of the log.
func cursorOf(s *Counts, words []uint64) logCursor {
	c := logCursor{s: *s, words: make([]uint64, 1+logEntries(s))}
	if s.B == 1 {
		spillLog(&c.s, c.words)
	} else {
		moveLog(c.words, words, s)
	}
	c.next = int(c.s.B) - 1
	return c
}

// logCursor iterates over a log from the newest entry to the oldest.
type logCursor struct {
	s     Counts
	words []uint64
	next  int
	sum   uint64 // of the entries taken
}

const noTick = limiter.Tick(math.MinInt64)

// newest returns the tick of the next entry, noTick if there is none.
func (c *logCursor) newest() limiter.Tick {
	if c.next < 0 {
		return noTick
	}
	tick, _ := logAt(&c.s, c.words, c.next)
	return tick
}

// take consumes the entries at tick.
func (c *logCursor) take(tick limiter.Tick) {
	for c.next >= 0 {
		t, cost := logAt(&c.s, c.words, c.next)
		if t != tick {
			return
		}
		c.sum += cost
		c.next--
	}
}
