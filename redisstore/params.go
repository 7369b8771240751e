package redisstore

import (
	"math/bits"
	"strconv"
	"sync"
	"sync/atomic"

	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/limiter/arith"
)

// family is a group of algorithms that the scripts count alike and that differ only in
// parameters.
type family uint8

const (
	familyFixed   family = 1
	familyCounter family = 2
	familyLog     family = 3
	familyWindow  family = 4
	familyBucket  family = 5
	familyDrip    family = 6
	// familyCalendar is of calendar windows. Their bounds are no part of the text, since
	// they change: they are an argument of each call.
	familyCalendar family = 7
	// familySlots is of limits on concurrency. What they count is in the holds of their key.
	familySlots family = 8

	// wideFamily is added to the family of a wide limit, see [arith.Wide], whose states have
	// more bytes.
	wideFamily family = 8

	// withIDs and withHolds are no families: they stand for ids and for holds in a set of
	// families.
	withIDs   family = 0
	withHolds family = 15
)

// century bounds the debt of a bucket, in ticks, as package limiter does.
const century = 36500 * limiter.Day

// params is a limit in the form that the scripts take.
type params struct {
	family family
	// text is a list of numbers in JSON, see prelude.lua. It precedes each stored
	// state, and so identifies the limit that made the state.
	text any // a string, boxed once
	// keeps is how long a charge can count, in ticks, as far as that does not depend on
	// the charge.
	keeps limiter.Tick
	// ceiling follows the text and the bounds of calendar windows in a call. It changes no state, so it is no part of the
	// text; empty: there is none.
	ceiling string
	// chosen is the argument of a bucket where the request has chosen its number, nil for other limits.
	chosen any
	// limit is set for calendar windows.
	limit *limiter.Limit
	// held is until when checks of the limit use the scripts that know holds, as ticks of the
	// store's clock.
	held atomic.Int64
}

// argument returns the parameters as the scripts take them: the text, and for calendar
// windows the bounds around an instant.
func (p *params) argument(now limiter.Tick) any {
	bounds, ok := [4]limiter.Tick{}, false
	if p.limit != nil {
		bounds, ok = arith.CalendarBounds(p.limit, now)
	}
	if !ok {
		if p.ceiling != "" {
			return p.text.(string) + p.ceiling
		}
		return p.text
	}
	b := append([]byte(p.text.(string)), '[')
	for i, at := range bounds {
		if i > 0 {
			b = append(b, ',')
		}
		b = strconv.AppendInt(b, int64(at), 10)
	}
	return string(append(b, ']')) + p.ceiling
}

func newParams(l *limiter.Limit) *params {
	s := l.Spec()
	p := &params{keeps: 2 * limiter.Span(l.Window())}
	window, shift := limiter.Span(l.Window()), limiter.Tick(0)
	if window%limiter.Week == 0 {
		shift = 4 * limiter.Day // weeks begin on Monday, and the epoch was a Thursday
	}
	var more []int64
	switch s.Algorithm {
	case limiter.Concurrency:
		p.family, p.keeps, more = familySlots, 0, []int64{1}
	case limiter.FixedWindow:
		if s.Calendar != limiter.CalendarNone {
			// The number stands for unit, zone and anchors. A double holds it.
			p.family, p.limit, more = familyCalendar, l, []int64{int64(arith.CalendarID(l) >> 12)}
			p.keeps += 2 * limiter.Day // the clocks may be moved back
			break
		}
		p.family, more = familyFixed, []int64{int64(shift), int64(s.Align)}
	case limiter.SlidingCounter:
		p.family, more = familyCounter, []int64{int64(shift), int64(*s.Weight), int64(s.Rounding)}
	case limiter.SlidingLog:
		p.family, more = familyLog, []int64{1}
	case limiter.SlidingWindow:
		sub := window / limiter.Tick(s.SubWindows)
		if s.Coverage == limiter.CoverageStrict {
			window += sub
		}
		p.family, more = familyWindow, []int64{int64(sub)}
	default:
		p.family, more = familyBucket, []int64{most(l)}
		if s.Drip == limiter.DripInterval {
			if p.family = familyDrip; s.DripUnits > 1 {
				more = append(more, s.DripUnits)
			}
		}
	}
	written := p.family
	if arith.Wide(l) {
		written += wideFamily
	}
	text := append([]byte(nil), '[')
	for i, n := range append([]int64{int64(written), s.Limit, int64(window), int64(l.C.Full),
		int64(s.CountRejected), int64(s.Block / limiter.TickDuration)}, more...) {
		if i > 0 {
			text = append(text, ',')
		}
		text = strconv.AppendInt(text, n, 10)
	}
	p.text = string(append(text, ']'))
	if s.Ceiling > 0 {
		p.ceiling = strconv.FormatInt(s.Ceiling, 10)
	}
	if p.family == familyBucket || p.family == familyDrip {
		p.chosen = p.text.(string) + p.ceiling + "v"
	}
	return p
}

// chosen reports whether each request chooses the numbers of a rule's limits.
func chosen(rule *limiter.Rule) bool {
	return rule != nil && rule.ChosenBy() >= limiter.ChosenByName
}

// most returns the highest level of a bucket, in units: one that takes a century to
// recover. In place of more than 2^32-1 it returns that unless the limit is wide, as earlier versions did:
// the text stays the same, and the script knows.
func most(l *limiter.Limit) int64 {
	units := uint64(limiter.NarrowUnits)
	if arith.Wide(l) {
		units = limiter.MaxUnits
	}
	hi, lo := bits.Mul64(uint64(century), l.Limit())
	if hi < uint64(limiter.Span(l.Window())) {
		q, _ := bits.Div64(hi, lo, uint64(limiter.Span(l.Window())))
		units = min(units, q)
	}
	return int64(units)
}

// isWide separates the mark of wide limits from a family as it is written.
func isWide(written int64) (f family, wide bool) {
	if f = family(written); f > wideFamily {
		return f - wideFamily, true
	}
	return f, false
}

// maxParams bounds the cached parameters of limits.
const maxParams = 4096

// spellings caches the parameters of limits. Requests may bring many limits, so at the
// bound the cache is cleared.
type spellings struct {
	mu   sync.RWMutex
	have map[*limiter.Limit]*params
}

func (s *spellings) of(l *limiter.Limit) *params {
	s.mu.RLock()
	p := s.have[l]
	s.mu.RUnlock()
	if p != nil {
		return p
	}
	p = newParams(l)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.have == nil || len(s.have) >= maxParams {
		s.have = make(map[*limiter.Limit]*params)
	}
	s.have[l] = p
	return p
}
