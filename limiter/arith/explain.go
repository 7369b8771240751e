package arith

import (
	"fmt"
	"math/bits"
	"strings"

	"github.com/weirlimit/weir/limiter"
)

// maxExplainedEntries bounds the entries of a log that an explanation lists.
const maxExplainedEntries = 100

// Explain returns how the limit decides the cost in out.Cost at now, before anything is
// charged. It changes the state only by [State.Roll]. The caller fills in Name and Key.
func (s *State) Explain(l *limiter.Limit, words []uint64, now limiter.Tick,
	out *limiter.LimitDecision) limiter.LimitExplanation {
	c := s.Open(l)
	e := c.explain(of(l), words, now, out)
	e.Limit, *s = l.String(), c.State(l)
	return e
}

func (s *Counts) explain(l *rate, words []uint64, now limiter.Tick,
	out *limiter.LimitDecision) limiter.LimitExplanation {
	s.roll(l, words, now)
	n := max(out.Cost, 1)
	e := limiter.LimitExplanation{Known: s.emptyAt(l, words) > now}
	e.State, e.Counts = l.describe(s, words, now)
	sum := l.arithmetic(s, now, n)
	switch {
	case n > l.Cap:
		e.Arithmetic = fmt.Sprintf("cost %d > capacity %d: never", n, l.Cap)
	case s.Until > now:
		e.Arithmetic = fmt.Sprintf("blocked until %s, %v more: no", stamp(s.Until), (s.Until - now).Duration())
	case l.used(s, now)+n <= l.Cap:
		e.Arithmetic = sum + ": yes"
	default:
		e.Arithmetic = sum + ": no"
	}
	if s.Until > now {
		e.State = append(e.State, field("blocked until", stamp(s.Until)))
	}
	return e
}

func field(name, value string) limiter.Field { return limiter.Field{Name: name, Value: value} }

func stamp(t limiter.Tick) string { return t.Time().Format("2006-01-02T15:04:05.000000Z") }

// describe returns the contents of a state that was rolled to now.
func (l *rate) describe(s *Counts, words []uint64, now limiter.Tick) ([]limiter.Field, []limiter.WindowCount) {
	count := func(start limiter.Tick, n uint64) limiter.WindowCount {
		return limiter.WindowCount{Start: start, End: start + l.Window, Count: n}
	}
	switch l.P.Algorithm {
	case limiter.FixedWindow:
		if s.A == 0 && l.P.Align == limiter.AlignFirstHit {
			return []limiter.Field{field("count", "0, no window open")}, nil
		}
		end := (*window)(l).end(s.Time)
		fields := []limiter.Field{field("count", fmt.Sprint(s.A)), field("window", stamp(s.Time)+" to "+stamp(end))}
		if s.B > 0 {
			fields = append(fields, field("count until it begins", fmt.Sprint(s.B)))
		}
		return fields, []limiter.WindowCount{{Start: s.Time, End: end, Count: s.A}}
	case limiter.SlidingCounter:
		return []limiter.Field{
			field("previous", fmt.Sprint(s.B)), field("current", fmt.Sprint(s.A)),
			field("window", stamp(s.Time)+" to "+stamp(s.Time+l.Window)),
		}, []limiter.WindowCount{count(s.Time-l.Window, s.B), count(s.Time, s.A)}
	case limiter.SlidingWindow:
		return []limiter.Field{field("sum", fmt.Sprint(l.used(s, now))),
				field("sub-windows", fmt.Sprintf("%d of %v", l.Subs, l.Sub.Duration()))},
			(*ring)(l).counts(s, words, now)
	case limiter.SlidingLog:
		return []limiter.Field{field("sum", fmt.Sprint(s.A)), field("entries", fmt.Sprint(s.B))}, logCounts(s, words)
	case limiter.Concurrency:
		return []limiter.Field{field("units", fmt.Sprint(s.A))}, nil
	default:
		return (*bucket)(l).describe(s, now), nil
	}
}

func (l *ring) counts(s *Counts, words []uint64, now limiter.Tick) []limiter.WindowCount {
	out := make([]limiter.WindowCount, l.Subs)
	newest := floorTo(now, l.Sub)
	if s.A|s.B != 0 {
		newest = s.Time + max(0, (now-s.Time)/l.Sub)*l.Sub
	}
	for i := range out {
		start := newest - limiter.Tick(l.Subs-1-i)*l.Sub
		out[i] = limiter.WindowCount{Start: start, End: start + l.Sub}
		if s.A|s.B != 0 && start <= s.Time {
			out[i].Count = l.aged(s, words, int((s.Time-start)/l.Sub))
		}
	}
	return out
}

func logCounts(s *Counts, words []uint64) []limiter.WindowCount {
	first := max(0, int(s.B)-maxExplainedEntries)
	if s.B == 1 {
		return []limiter.WindowCount{{Start: s.Time, End: s.Time + 1, Count: s.A}}
	}
	var out []limiter.WindowCount
	for i := first; i < int(s.B); i++ {
		tick, cost := logAt(s, words, i)
		out = append(out, limiter.WindowCount{Start: tick, End: tick + 1, Count: cost})
	}
	return out
}

func (l *bucket) describe(s *Counts, now limiter.Tick) []limiter.Field {
	if !l.Shared {
		return []limiter.Field{field("level", fmt.Sprint(s.A)), field("drips counted up to", stamp(s.Time))}
	}
	hi, lo := l.debt(s, now)
	level := decimal(hi, lo, uint64(l.Window))
	switch l.P.Algorithm {
	case limiter.TokenBucket:
		full, rest := bits.Mul64(l.Cap, uint64(l.Window))
		rest, borrow := bits.Sub64(rest, lo, 0)
		full, borrow = bits.Sub64(full, hi, borrow)
		if borrow != 0 {
			return []limiter.Field{field("tokens", "0"), field("debt", level)}
		}
		return []limiter.Field{field("tokens", decimal(full, rest, uint64(l.Window)))}
	case limiter.LeakyBucket:
		return []limiter.Field{field("level", level)}
	default:
		return []limiter.Field{field("theoretical arrival time", stamp(s.Time)+fmt.Sprintf(" + %d/%d us", s.A, l.Limit)),
			field("level", level)}
	}
}

// arithmetic returns the comparison that decides n units.
func (l *rate) arithmetic(s *Counts, now limiter.Tick, n uint64) string {
	switch l.P.Algorithm {
	case limiter.Concurrency:
		return fmt.Sprintf("%d held + %d <= %d", s.A, n, l.Limit)
	case limiter.FixedWindow, limiter.SlidingLog, limiter.SlidingWindow:
		return fmt.Sprintf("%d counted + %d <= %d", l.used(s, now), n, l.Cap)
	case limiter.SlidingCounter:
		if now < s.Time {
			return fmt.Sprintf("previous %d, until the window begins; that + current %d + %d <= %d", s.B, s.A, n, l.Cap)
		}
		left := uint64(l.Window - (now - s.Time))
		hi, lo := bits.Mul64(s.B*l.Weight, left)
		text := fmt.Sprintf("%d * %v/%v", s.B, limiter.Tick(left).Duration(), l.Window.Duration())
		if l.Weight != 1000 {
			text += fmt.Sprintf(" * %s", decimal(0, l.Weight, 1000))
		}
		text += " = " + decimal(hi, lo, 1000*uint64(l.Window))
		if l.P.Rounding != limiter.RoundExact {
			text += fmt.Sprintf(", %s %d", l.P.Rounding, (*counter)(l).tail(s, now))
		}
		return fmt.Sprintf("previous %s; that + current %d + %d <= %d", text, s.A, n, l.Cap)
	case limiter.TokenBucket:
		return fmt.Sprintf("tokens %s >= %d", (*bucket)(l).describe(s, now)[0].Value, n)
	case limiter.LeakyBucket:
		return fmt.Sprintf("level %s + %d <= %d", l.levelText(s, now), n, l.Cap)
	default:
		return fmt.Sprintf("level %s + %d <= burst %d (max(TAT, now) + n*T - now <= burst*T, in units of T = %v/%d)",
			l.levelText(s, now), n, l.Cap, l.Window.Duration(), l.Limit)
	}
}

func (l *rate) levelText(s *Counts, now limiter.Tick) string {
	if !l.Shared {
		return fmt.Sprint(s.A)
	}
	hi, lo := (*bucket)(l).debt(s, now)
	return decimal(hi, lo, uint64(l.Window))
}

// decimal formats hi:lo/d with up to six decimals, truncated, and "..." if more follow.
func decimal(hi, lo, d uint64) string {
	whole, rest := bits.Div64(hi, lo, d)
	if rest == 0 {
		return fmt.Sprint(whole)
	}
	hi, lo = bits.Mul64(rest, 1_000_000)
	micro, rest := bits.Div64(hi, lo, d)
	text := strings.TrimRight(fmt.Sprintf("%d.%06d", whole, micro), "0")
	if rest != 0 {
		text = fmt.Sprintf("%d.%06d...", whole, micro)
	}
	return text
}
