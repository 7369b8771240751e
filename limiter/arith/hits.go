package arith

import "github.com/weirlimit/weir/limiter"

// A window of [limiter.AlignFirstHit] begins with its first hit. If a hold made that hit and gives back all of it, the
// window is as if it had begun with the next hit that stands. That was made by another hold, whose entry says
// when, or it is final. So each entry of such a limit has in place of a level how long after its charge the first
// final hit was made, before the next entry of its limit was. What has no entry any more is final, or gone.
//
// A charge is noted before anyone knows whether a hold makes it: then its entry follows at once, and takes
// the note back. The note is not doubted any more if another charge came in between.
const (
	hitEntry = 1 << iota // it is an entry of such a limit
	hitGone              // all of it was given back
	hitNew               // the latest charge was noted
	hitSpan              // the span in ticks, and 1, is in the bits from here on; 0: there is no final hit
)

// ByHit reports whether the limit's windows begin with a hit.
func ByHit(l *limiter.Limit) bool { return of(l).byHit() }

func (l *rate) byHit() bool {
	return l.P.Algorithm == limiter.FixedWindow && l.P.Align == limiter.AlignFirstHit
}

// hits reports whether it is of an entry of such a limit.
func (e *since) hits() bool { return e.notLow.hi == 0 && e.notLow.lo&hitEntry != 0 }

// final returns the instant of the first final hit after that of an entry at an instant.
func (e *since) final(at limiter.Tick) (_ limiter.Tick, known bool) {
	span := e.notLow.lo / hitSpan
	return at + limiter.Tick(min(span, uint64(limiter.Span(limiter.MaxWindow))+1)) - 1, span > 0
}

// setFinal records that a final hit was made so long after the charge of an entry, with more bits.
func (e *since) setFinal(after limiter.Tick, bits uint64) {
	e.notLow = level{lo: e.notLow.lo&(hitEntry|hitGone) | bits | hitEntry | uint64(max(0, after)+1)*hitSpan}
}

// noteHit records a charge to the limit of the last entry, if it is in the window of that.
func (e *since) noteHit(c *Counts, at, now limiter.Tick) {
	switch _, known := e.final(at); {
	case !e.hits() || c.A == 0 || at < c.Time:
	case known:
		e.notLow.lo &^= hitNew
	default:
		e.setFinal(now-at, hitNew)
	}
}

// NoteHold tells the last entry of some holds, whose charge was the latest of a limit with the counter s, of that
// limit. Only limits whose windows begin with a hit need it, see [ByHit].
func NoteHold(l *limiter.Limit, s, holds *State, words []uint64) {
	c, i := s.Open(l), int(holds.A)-1
	h := HoldAt(words, i)
	h.since.notLow = level{lo: hitEntry}
	before := *holds
	before.A--
	j := lastHold(&before, words, h.Limit)
	if j >= 0 {
		e, at := sinceAt(words, j), HoldAt(words, j).At
		if final, known := e.final(at); e.hits() && known && final == h.At && e.notLow.lo&hitNew != 0 {
			e.notLow.lo &= hitEntry | hitGone
			e.put(words, j)
		}
	}
	if h.At == c.Time && c.A > h.Cost && (j < 0 || HoldAt(words, j).At < c.Time) {
		h.since.setFinal(0, 0) // of the same instant
	}
	h.Put(words, i)
}

// leaveHits passes on what the entry h, which goes, knows of final hits: itself, if not all of it was given back. It
// was entry i of n; j is the one before it, -1 if there is none.
func leaveHits(words []uint64, h *Hold, i, n, j int) {
	stands := h.At
	if h.since.notLow.lo&hitGone != 0 {
		at, known := h.since.final(h.At)
		if !known {
			return
		}
		stands = at
	}
	if j >= 0 {
		e, at := sinceAt(words, j), HoldAt(words, j).At
		if _, known := e.final(at); !known {
			e.setFinal(stands-at, 0)
			e.put(words, j)
		}
	}
	for k := i + 1; k < n; k++ {
		if o := HoldAt(words, k); o.Limit == h.Limit && o.At == stands && o.since.hits() {
			o.since.setFinal(0, 0)
			o.Put(words, k)
		}
	}
}

// giveBack gives n units of entry i, of which rest units stay, back to a counter that was rolled to now.
func (l *window) giveBack(s *Counts, holds *State, words []uint64, i int, now limiter.Tick, n, rest uint64) {
	h := HoldAt(words, i)
	if rest == 0 && h.since.hits() {
		h.since.notLow.lo |= hitGone
		h.Put(words, i)
	}
	if h.At < s.Time {
		return
	}
	if s.A -= min(s.A, n); rest > 0 || h.At > s.Time || s.A == 0 {
		return
	}
	for j := range int(holds.A) {
		o := HoldAt(words, j)
		if o.Limit != h.Limit {
			continue
		}
		if gone := o.since.notLow.lo&hitGone != 0; !gone && o.At >= s.Time {
			s.Time = min(o.At, now)
			return
		}
		// Its final hit may be of the instant of the next entry, at which the window begins.
		if at, known := o.since.final(o.At); known && at >= s.Time {
			s.Time = min(at, now)
			return
		}
	}
}

// Undo is [State.Refund] for a charge that the decider itself takes back: of a check, say, that another owner denied.
// All of the units come back. A window that it began stays begun if others were charged in it since. The charges of
// several such checks may overlap, and nothing is kept of them, so a later start would not be known.
func Undo(l *limiter.Limit, s *State, words []uint64, now, latest, at limiter.Tick, n uint64) {
	if ByHit(l) {
		s.Reduce(l, words, now, latest, at, n, 1)
		return
	}
	s.Refund(l, words, now, latest, at, n)
}
