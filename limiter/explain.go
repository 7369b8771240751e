package limiter

import (
	"fmt"
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

// String returns the limit in words: "minute: sliding_counter 100/minute".
func (l *Limit) String() string {
	p := &l.C.P
	text := fmt.Sprintf("%s %d/%s", p.Algorithm, p.Limit, l.Period())
	if p.Algorithm == Concurrency {
		text = fmt.Sprintf("%s %d", p.Algorithm, p.Limit)
	}
	add := func(name string, value any) { text += fmt.Sprintf(", %s %v", name, value) }
	switch p.Algorithm {
	case FixedWindow:
		if p.Align != AlignEpoch {
			add("align", p.Align)
		}
		if l.C.Cal != nil {
			text += l.calendarText()
		}
	case SlidingWindow:
		add("sub_windows", p.SubWindows)
		add("coverage", p.Coverage)
	case SlidingCounter:
		if p.Weight != 1000 {
			add("weight", float64(p.Weight)/1000)
		}
		if p.Rounding != RoundExact {
			add("rounding", p.Rounding)
		}
	case SlidingLog, Concurrency:
	default:
		if p.Burst != p.Limit {
			add("burst", p.Burst)
		}
		switch {
		case p.DripUnits > 1:
			every := ((l.C.Window + Tick(l.C.Unit) - 1) / Tick(l.C.Unit)).Duration()
			text += fmt.Sprintf(", drip %d every %v", p.DripUnits, every)
		case p.Drip != DripContinuous:
			add("drip", p.Drip)
		}
	}
	if p.Count != CountNone {
		add("count_rejected", p.Count)
	}
	if p.Block > 0 {
		add("block", time.Duration(p.Block)*TickDuration)
	}
	return text
}
