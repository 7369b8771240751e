package limiter

import (
	"fmt"
	"math/bits"
	"strings"
	"time"
)

// Explanation is a decision with its reasons, for people.
type Explanation struct {
	// Now is the instant of the explanation, on the decider's clock: in a cluster, that
	// of the node that was asked.
	Now Tick `json:"now_us"`
	// Rules are the names of the rules that matched, in order. Quotas on which they draw
	// are among the Limits only.
	Rules []string `json:"rules"`
	// Unlimited reports that a rule without limits matched.
	Unlimited bool `json:"unlimited,omitempty"`
	// Answer is what a check would be answered. Nothing was charged.
	Answer Answer `json:"answer"`
	// Decision is the source of Answer; nil in an explanation that came as JSON.
	Decision *Decision `json:"-"`
	// Limits are in the order of Answer.Limits.
	Limits []LimitExplanation `json:"limits"`
	// Commands are shell commands for the same decision, which charge it, if another
	// program decides: in Redis mode an EVAL for redis-cli.
	Commands []string `json:"commands,omitempty"`
}

// LimitExplanation explains one limit for one key.
type LimitExplanation struct {
	// Name is rule/limit, or quota/limit; Key is the name of the counter.
	Name string `json:"name"`
	Key  string `json:"key"`
	// Limit is the limit in words, with its relevant options.
	Limit string `json:"limit"`
	// Known reports whether the key has an entry that still counts.
	Known bool `json:"known"`
	// State lists the entry's fields in words.
	State []Field `json:"state"`
	// Counts lists units per window or sub-window, the oldest first, for algorithms
	// that keep them, and units per instant for a log (the newest 100).
	Counts []WindowCount `json:"counts,omitempty"`
	// Arithmetic is the deciding comparison, with its numbers.
	Arithmetic string `json:"arithmetic"`
	// Owner is the member that owns the key, in the view of the node that was asked.
	// ToldBy is the member that explained it; it differs from Owner only if the heir
	// did. Both are empty without a cluster.
	Owner  string `json:"owner,omitempty"`
	ToldBy string `json:"told_by,omitempty"`
	// Now is the instant of this explanation, on the clock of the member that gave it.
	Now Tick `json:"now_us"`
}

// Shorten keeps the newest counts, at most most, and records that in State.
func (e *LimitExplanation) Shorten(most int) {
	if n := len(e.Counts); n > most {
		e.Counts = e.Counts[n-most:]
		e.State = append(e.State, Field{"listed", fmt.Sprintf("the newest %d of %d", most, n)})
	}
}

// Field is a named value in words.
type Field struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

// WindowCount is the units counted from Start up to, not including, End.
type WindowCount struct {
	Start Tick   `json:"start_us"`
	End   Tick   `json:"end_us"`
	Count uint64 `json:"count"`
}

// maxExplainedEntries bounds the entries of a log that an explanation lists.
const maxExplainedEntries = 100

// Explain returns how the limit decides the cost in out.Cost at now, before anything is
// charged. It changes the state only by [State.Roll]. The caller fills in Name and Key.
func (s *State) Explain(l *Limit, words []uint64, now Tick, out *LimitDecision) LimitExplanation {
	c := s.Open(l)
	e := c.explain(l, words, now, out)
	*s = c.State(l)
	return e
}

func (s *Counts) explain(l *Limit, words []uint64, now Tick, out *LimitDecision) LimitExplanation {
	s.roll(l, words, now)
	n := max(out.Cost, 1)
	e := LimitExplanation{Limit: l.String(), Known: s.emptyAt(l, words) > now}
	e.State, e.Counts = l.describe(s, words, now)
	sum := l.arithmetic(s, now, n)
	switch {
	case n > l.cap:
		e.Arithmetic = fmt.Sprintf("cost %d > capacity %d: never", n, l.cap)
	case s.Until > now:
		e.Arithmetic = fmt.Sprintf("blocked until %s, %v more: no", stamp(s.Until), (s.Until - now).Duration())
	case l.used(s, now)+n <= l.cap:
		e.Arithmetic = sum + ": yes"
	default:
		e.Arithmetic = sum + ": no"
	}
	if s.Until > now {
		e.State = append(e.State, Field{"blocked until", stamp(s.Until)})
	}
	return e
}

func stamp(t Tick) string { return t.Time().Format("2006-01-02T15:04:05.000000Z") }

// describe returns the contents of a state that was rolled to now.
func (l *Limit) describe(s *Counts, words []uint64, now Tick) ([]Field, []WindowCount) {
	window := func(start Tick, n uint64) WindowCount { return WindowCount{start, start + l.window, n} }
	switch l.p.algorithm {
	case FixedWindow:
		if s.A == 0 && l.p.align == AlignFirstHit {
			return []Field{{"count", "0, no window open"}}, nil
		}
		end := l.windowEnd(s.Time)
		fields := []Field{{"count", fmt.Sprint(s.A)}, {"window", stamp(s.Time) + " to " + stamp(end)}}
		if s.B > 0 {
			fields = append(fields, Field{"count until it begins", fmt.Sprint(s.B)})
		}
		return fields, []WindowCount{{s.Time, end, s.A}}
	case SlidingCounter:
		return []Field{
			{"previous", fmt.Sprint(s.B)}, {"current", fmt.Sprint(s.A)},
			{"window", stamp(s.Time) + " to " + stamp(s.Time+l.window)},
		}, []WindowCount{window(s.Time-l.window, s.B), window(s.Time, s.A)}
	case SlidingWindow:
		return []Field{{"sum", fmt.Sprint(l.used(s, now))},
				{"sub-windows", fmt.Sprintf("%d of %v", l.subs, l.sub.Duration())}},
			l.subCounts(s, words, now)
	case SlidingLog:
		return []Field{{"sum", fmt.Sprint(s.A)}, {"entries", fmt.Sprint(s.B)}}, logCounts(s, words)
	case Concurrency:
		return []Field{{"units", fmt.Sprint(s.A)}}, nil
	default:
		return l.describeBucket(s, now), nil
	}
}

func (l *Limit) subCounts(s *Counts, words []uint64, now Tick) []WindowCount {
	out := make([]WindowCount, l.subs)
	newest := floorTo(now, l.sub)
	if s.A|s.B != 0 {
		newest = s.Time + max(0, (now-s.Time)/l.sub)*l.sub
	}
	for i := range out {
		start := newest - Tick(l.subs-1-i)*l.sub
		out[i] = WindowCount{Start: start, End: start + l.sub}
		if s.A|s.B != 0 && start <= s.Time {
			out[i].Count = l.subOf(s, words, int((s.Time-start)/l.sub))
		}
	}
	return out
}

func logCounts(s *Counts, words []uint64) []WindowCount {
	first := max(0, int(s.B)-maxExplainedEntries)
	if s.B == 1 {
		return []WindowCount{{s.Time, s.Time + 1, s.A}}
	}
	var out []WindowCount
	for i := first; i < int(s.B); i++ {
		tick, cost := logAt(s, words, i)
		out = append(out, WindowCount{tick, tick + 1, cost})
	}
	return out
}

func (l *Limit) describeBucket(s *Counts, now Tick) []Field {
	if !l.shared {
		return []Field{{"level", fmt.Sprint(s.A)}, {"drips counted up to", stamp(s.Time)}}
	}
	hi, lo := l.debt(s, now)
	level := decimal(hi, lo, uint64(l.window))
	switch l.p.algorithm {
	case TokenBucket:
		full, rest := bits.Mul64(l.cap, uint64(l.window))
		rest, borrow := bits.Sub64(rest, lo, 0)
		full, borrow = bits.Sub64(full, hi, borrow)
		if borrow != 0 {
			return []Field{{"tokens", "0"}, {"debt", level}}
		}
		return []Field{{"tokens", decimal(full, rest, uint64(l.window))}}
	case LeakyBucket:
		return []Field{{"level", level}}
	default:
		return []Field{{"theoretical arrival time", stamp(s.Time) + fmt.Sprintf(" + %d/%d us", s.A, l.limit)},
			{"level", level}}
	}
}

// arithmetic returns the comparison that decides n units.
func (l *Limit) arithmetic(s *Counts, now Tick, n uint64) string {
	switch l.p.algorithm {
	case Concurrency:
		return fmt.Sprintf("%d held + %d <= %d", s.A, n, l.limit)
	case FixedWindow, SlidingLog, SlidingWindow:
		return fmt.Sprintf("%d counted + %d <= %d", l.used(s, now), n, l.limit)
	case SlidingCounter:
		if now < s.Time {
			return fmt.Sprintf("previous %d, until the window begins; that + current %d + %d <= %d", s.B, s.A, n, l.limit)
		}
		left := uint64(l.window - (now - s.Time))
		hi, lo := bits.Mul64(s.B*l.weight, left)
		text := fmt.Sprintf("%d * %v/%v", s.B, Tick(left).Duration(), l.window.Duration())
		if l.weight != 1000 {
			text += fmt.Sprintf(" * %s", decimal(0, l.weight, 1000))
		}
		text += " = " + decimal(hi, lo, 1000*uint64(l.window))
		if l.p.rounding != RoundExact {
			text += fmt.Sprintf(", %s %d", l.p.rounding, l.tail(s, now))
		}
		return fmt.Sprintf("previous %s; that + current %d + %d <= %d", text, s.A, n, l.limit)
	case TokenBucket:
		return fmt.Sprintf("tokens %s >= %d", l.describeBucket(s, now)[0].Value, n)
	case LeakyBucket:
		return fmt.Sprintf("level %s + %d <= %d", levelText(l, s, now), n, l.cap)
	default:
		return fmt.Sprintf("level %s + %d <= burst %d (max(TAT, now) + n*T - now <= burst*T, in units of T = %v/%d)",
			levelText(l, s, now), n, l.cap, l.window.Duration(), l.limit)
	}
}

func levelText(l *Limit, s *Counts, now Tick) string {
	if !l.shared {
		return fmt.Sprint(s.A)
	}
	hi, lo := l.debt(s, now)
	return decimal(hi, lo, uint64(l.window))
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

// String returns the limit in words: "minute: sliding_counter 100/minute".
func (l *Limit) String() string {
	p := &l.p
	text := fmt.Sprintf("%s %d/%s", p.algorithm, p.limit, l.Period())
	if p.algorithm == Concurrency {
		text = fmt.Sprintf("%s %d", p.algorithm, p.limit)
	}
	add := func(name string, value any) { text += fmt.Sprintf(", %s %v", name, value) }
	switch p.algorithm {
	case FixedWindow:
		if p.align != AlignEpoch {
			add("align", p.align)
		}
		if l.cal != nil {
			text += l.calendarText()
		}
	case SlidingWindow:
		add("sub_windows", p.subWindows)
		add("coverage", p.coverage)
	case SlidingCounter:
		if p.weight != 1000 {
			add("weight", decimal(0, uint64(p.weight), 1000))
		}
		if p.rounding != RoundExact {
			add("rounding", p.rounding)
		}
	case SlidingLog, Concurrency:
	default:
		if p.burst != p.limit {
			add("burst", p.burst)
		}
		switch {
		case p.dripUnits > 1:
			every := l.drip(0, 1).Duration()
			text += fmt.Sprintf(", drip %d every %v", p.dripUnits, every)
		case p.drip != DripContinuous:
			add("drip", p.drip)
		}
	}
	if p.count != CountNone {
		add("count_rejected", p.count)
	}
	if p.block > 0 {
		add("block", time.Duration(p.block)*TickDuration)
	}
	return text
}
