package history

import (
	"cmp"
	"fmt"
	"slices"
)

const (
	// leastUsed is the part of what one counter would admit of the same checks that a
	// cluster must admit of them, in percent. What is missing are checks that arrived
	// in another order than they returned in, and what a node that was paused counts
	// when it goes on, for clients who wait no longer.
	leastUsed = 90
	// leastUsedSeveral is that of checks of several keys, which reservations of others
	// deny for a moment.
	leastUsedSeveral = 85
	// leastDemand is how many units that must be, for a part of them to mean something.
	leastDemand = 40
	// leastCalm is how long a part of a calm time must last: in a shorter one checks that
	// were under way as it began or ended are too many of them.
	leastCalm = Micros(500_000)
)

// Used is what was admitted of a rule while nothing was broken.
type Used struct {
	Rule    string
	Several bool
	// Admitted by owners and heirs, and by One counter for each key, of the same checks.
	Admitted, One int
}

// Judged tells that one counter would have admitted enough to tell.
func (u *Used) Judged() bool { return u.One >= leastDemand }

// Percent is what was admitted of what one counter would have, 100 where that is not
// judged.
func (u *Used) Percent() int {
	if !u.Judged() {
		return 100
	}
	return 100 * u.Admitted / u.One
}

// least is what Percent must be.
func (u *Used) least() int {
	if u.Several {
		return leastUsedSeveral
	}
	return leastUsed
}

// Used returns rules of which too little was admitted while nothing was broken: a
// limiter that denies too much breaks no bound.
func (c judges) Used() []error {
	var out []error
	for _, u := range c.Uses() {
		if least := u.least(); u.Percent() < least {
			out = append(out, fmt.Errorf("%s: %d admitted while nothing was broken, %d %% of the %d that one counter of each "+
				"key admits of the same checks: at least %d %%",
				u.Rule, u.Admitted, u.Percent(), u.One, least))
		}
	}
	return out
}

// Uses returns for each rule what was admitted while nothing was broken: before the
// first fault, and from when all had settled after the last. Times in which something
// stood still, or shortly after, are left out, and what remains is judged in parts.
func (c judges) Uses() []Used {
	began := c.End
	for i := range c.troubles {
		if t := &c.troubles[i]; t.fault != nil {
			began = min(began, t.From)
		}
	}
	parts := c.unstalled(Span{0, began})
	if settled := c.settled(); settled > began {
		parts = append(parts, c.unstalled(Span{settled, c.End})...)
	}
	out := make([]Used, len(c.Rules))
	for i := range c.Rules {
		out[i].Rule, out[i].Several = c.Rules[i].Name, c.Rules[i].Several
	}
	for i := range c.Rules {
		ops := c.answered(&c.Rules[i])
		for _, s := range parts {
			admitted, one := c.replay(&c.Rules[i], ops, s)
			out[i].Admitted += admitted
			out[i].One += one
		}
	}
	return out
}

// answered returns the checks of a rule that a node took, in the order in which they
// returned.
func (h *History) answered(r *Rule) (ops []*Op) {
	for i := range h.Ops {
		if o := &h.Ops[i]; o.Rule == r.Name && o.Outcome != Refused {
			ops = append(ops, o)
		}
	}
	slices.SortFunc(ops, func(a, b *Op) int { return cmp.Compare(a.Return, b.Return) })
	return ops
}

// unstalled returns the parts of a time in which nothing stood still, or had shortly
// before, as far as they are long enough.
func (c *analysis) unstalled(of Span) (out []Span) {
	add := func(until Micros) {
		if part := (Span{of.From, min(until, of.Until)}); part.Until-part.From >= leastCalm {
			out = append(out, part)
		}
	}
	for i := range c.troubles { // in their order
		if t := &c.troubles[i]; t.fault == nil {
			add(t.From)
			of.From = max(of.From, t.Until)
		}
	}
	add(of.Until)
	return out
}

// later returns at which instant a charge may count that was made before a part of a
// calm time: what was under way between nodes while something stood still counts for as
// much longer.
func (c *analysis) later(part Span) func(at Micros) Micros {
	var last *trouble
	for i := range c.troubles {
		if t := &c.troubles[i]; t.fault == nil && t.end <= part.From {
			last = t
		}
	}
	if last == nil {
		return func(at Micros) Micros { return at }
	}
	most := last.end + openFor
	return func(at Micros) Micros { return max(at, min(at+most-last.From, most)) }
}

// replay returns what was admitted of a rule in a time, and what one counter of each
// key admits of the same checks in the order in which they returned, after all that
// may have been charged before.
func (c *analysis) replay(r *Rule, ops []*Op, in Span) (admitted, one int) {
	later := c.later(in)
	counters := make(map[string]*tally)
	// A minority decides with a smaller bucket, of which less comes back, so after a fault
	// nobody knows how much of one is left.
	level := int64(0)
	if in.From > 0 {
		level = int64(r.Burst) * int64(r.Window)
	}
	began := false
	for _, o := range ops {
		if o.Return >= in.Until {
			break
		}
		if o.Call >= in.From && !began {
			began = true
			for _, t := range counters {
				t.level, t.at = max(level, t.level), in.From
			}
		}
		room := true
		for _, key := range o.Keys {
			if counters[key] == nil {
				if counters[key] = new(tally); began {
					counters[key].level, counters[key].at = level, in.From
				}
			}
			room = counters[key].room(r, o.Return) && room
		}
		units := 0
		switch {
		case !o.Counted():
			units = 2 // nobody knows, and it may have been asked of two
		case o.Call < in.From && o.Outcome == Allowed, o.Call >= in.From && room:
			units = 1
			if o.Return-o.Call >= askedTwice {
				units = 2
			}
		}
		if o.Counted() && o.Call >= in.From {
			if room {
				one++
			}
			if o.Outcome == Allowed {
				admitted++
			}
		}
		for _, key := range o.Keys {
			counters[key].charge(r, later(o.Return), units)
		}
	}
	return admitted, one
}

// tally is one counter.
type tally struct {
	log   []Micros // of a window: when units were charged, the oldest first
	level int64    // of a bucket, in units times its window
	at    Micros   // when that was so
}

// room tells whether one more unit is admitted at an instant.
func (t *tally) room(r *Rule, at Micros) bool {
	if r.Burst > 0 {
		t.level = max(0, t.level-int64(r.Limit)*int64(at-t.at))
		t.at = at
		return t.level+int64(r.Window) <= int64(r.Burst)*int64(r.Window)
	}
	for len(t.log) > 0 && t.log[0] <= at-r.Window {
		t.log = t.log[1:]
	}
	return len(t.log) < r.Limit
}

// charge charges units that count from an instant on, which is none before that of
// another charge.
func (t *tally) charge(r *Rule, at Micros, units int) {
	t.level += int64(units) * int64(r.Window)
	for range units {
		t.log = append(t.log, at)
	}
}
