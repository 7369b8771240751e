package history

import (
	"cmp"
	"fmt"
	"slices"
)

// Worst is a key that came nearest to its bound, or went beyond it, or that was admitted
// most beyond what is promised without faults.
type Worst struct {
	Rule, Key string
	// Admitted in the worst window, Promised without faults, Bound with those
	// that were seen, of which Takeovers.
	Admitted, Promised, Bound, Takeovers int
	// From and Until are within the worst window: all that is counted was called and
	// answered in between.
	From, Until Micros
}

// Over is how many units more than promised without faults were admitted.
func (w *Worst) Over() int { return max(0, w.Admitted-w.Promised) }

// may is how many units more that may be.
func (w *Worst) may() int { return w.Bound - w.Promised }

// Bounds sweeps the answers of owners and heirs, key by key, for a window with
// more than the run allows at that time. It returns, of each rule, the key that came nearest to its
// bound and the one that was over by most, and what is beyond its bound.
func (c judges) Bounds() (worst, most []Worst, violations []error) {
	for i := range c.Rules {
		r := &c.Rules[i]
		var of, over *Worst
		for key, ops := range c.byKey(r.Name) {
			near, far := c.bound(r, key, ops)
			if near.Admitted > near.Bound {
				violations = append(violations,
					fmt.Errorf("%s, key %s: %d admitted by owners and heirs in one window, from %v to %v, at most %d (%d without "+
						"faults, %d takeovers explained, D %d)",
						r.Name, key, near.Admitted, near.From.Duration(), near.Until.Duration(), near.Bound, near.Promised,
						near.Takeovers,
						c.each(r)))
			}
			if of == nil || near.Admitted-near.Bound > of.Admitted-of.Bound {
				of = &near
			}
			if over == nil || far.Over() > over.Over() || far.Over() == over.Over() && far.may() < over.may() {
				over = &far
			}
		}
		if of != nil {
			worst, most = append(worst, *of), append(most, *over)
		}
	}
	return worst, most, append(violations, c.policies()...)
}

// byKey returns the checks of a rule by their keys.
func (h *History) byKey(rule string) map[string][]Op {
	out := make(map[string][]Op)
	for _, o := range h.Ops {
		if o.Rule == rule {
			for _, k := range o.Keys {
				out[k] = append(out[k], o)
			}
		}
	}
	return out
}

// bound returns the window of a key that came nearest to its bound, or is beyond it,
// and the one with most beyond what is promised without faults.
func (c *analysis) bound(r *Rule, key string, ops []Op) (near, far Worst) {
	over := c.changes(key, ops)
	near, far = Worst{Rule: r.Name, Key: key, Bound: r.most(), Promised: r.most()}, Worst{}
	sweep(r, admissions(ops, func(o *Op) bool { return o.Counted() }), func(admitted, promised int, from, until Micros) {
		// No bound is less than what is promised, so this window cannot be nearer.
		if excess := admitted - promised; near.Admitted > 0 && excess <= near.Admitted-near.Bound &&
			(excess <= 0 || excess < far.Over()) {
			return
		}
		w := Worst{Rule: r.Name, Key: key, Admitted: admitted, Promised: promised, From: from, Until: until}
		w.Takeovers = c.cost(r, over, from, until)
		w.Bound = int(c.times(r, from, until)*float64(promised)) + w.Takeovers*c.each(r)
		if c.Allows.Lasts > 0 {
			w.Bound = min(w.Bound, promised+c.Allows.unsaved(c.Faults, ops)+w.Takeovers*c.each(r))
		}
		if near.Admitted == 0 || w.Admitted-w.Bound > near.Admitted-near.Bound {
			near = w
		}
		if far.Admitted == 0 || w.Over() > far.Over() || w.Over() == far.Over() && w.may() < far.may() {
			far = w
		}
	})
	if far.Admitted == 0 {
		far = near
	}
	return near, far
}

// unsaved is how many units of a key were granted so late before the nodes ended that no disk need have
// them.
func (a Allows) unsaved(faults []Fault, ops []Op) (n int) {
	for i := range ops {
		for j := range faults {
			if o, f := &ops[i], &faults[j]; f.Loses && o.Outcome == Allowed && o.Counted() &&
				o.Return > f.Broken-a.Lasts && o.Call <= f.Broken {
				n++
				break
			}
		}
	}
	return n
}

// admissions are the checks that were allowed, of some kind.
func admissions(ops []Op, of func(*Op) bool) (in []Op) {
	for i := range ops {
		if o := &ops[i]; o.Outcome == Allowed && of(o) {
			in = append(in, *o)
		}
	}
	return in
}

// sweep calls found for each window of a key: how much was certainly decided in it,
// what the rule promises of it, and when the first was called and the last answered.
func sweep(r *Rule, in []Op, found func(admitted, promised int, from, until Micros)) {
	slices.SortFunc(in, func(a, b Op) int { return cmp.Compare(a.Call, b.Call) })
	var ends []Micros
	for i := range in {
		start := in[i].Call
		if i > 0 && in[i-1].Call == start {
			continue // those that were asked together begin one window
		}
		// All that was called at or after start and returned by its end was decided
		// in between.
		ends = ends[:0]
		for j := i; j < len(in) && (r.Burst > 0 || in[j].Call-start < r.Window); j++ {
			ends = append(ends, in[j].Return)
		}
		slices.Sort(ends)
		for n, end := range ends {
			if n+1 < len(ends) && ends[n+1] == end {
				continue
			}
			if r.Burst == 0 && end-start >= r.Window {
				break
			}
			found(n+1, r.within(end-start), start, end)
		}
	}
}

// within is what is admitted in a time at most, of a window no more than its length.
func (r *Rule) within(span Micros) int {
	if r.Burst == 0 {
		return r.Limit
	}
	return r.Burst + int(int64(r.Limit)*int64(span)/int64(r.Window))
}
