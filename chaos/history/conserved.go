package history

import (
	"fmt"
	"slices"
)

// touched tells that a fault touched a node.
func (h *History) touched(node int) bool {
	return slices.ContainsFunc(h.Faults, func(f Fault) bool { return slices.Contains(f.Nodes, node) })
}

// Conserved returns where counts were lost or made up: no key is denied before
// its limit is used up, and after graceful changes nobody but owners and heirs
// answered, unless the machine or a node had no processor time for too long to
// tell.
func (c judges) Conserved() []error {
	var out []error
	for i := range c.Ops {
		// A node that ends may close a connection just as a check comes over it.
		if o := &c.Ops[i]; (o.ByPolicy() && !c.outwaited(o) || o.Outcome == Unknown && !c.touched(o.Node)) &&
			c.exact(o.Call, o.Return) {
			out = append(out, fmt.Errorf("a check of %s at node %d, %v after the start, was %s %s, although every change was "+
				"graceful",
				o.Rule, o.Node, o.Call.Duration(), o.Outcome, o.Source))
			break
		}
	}
	for i := range c.Rules {
		r := &c.Rules[i]
		if !r.Once || r.Several { // of those another key may have denied
			continue
		}
		for key, ops := range c.byKey(r.Name) {
			if err := c.used(r, key, ops); err != nil {
				out = append(out, err)
			}
		}
	}
	return out
}

// used: a key is denied only when its limit is used up, but for what may have
// been counted without the client's knowing. A check may be charged twice when
// its owner changes.
func (c *analysis) used(r *Rule, key string, ops []Op) error {
	admitted, perhaps, refusals, least := 0, 0, 0, r.Limit
	over := c.changes(key, ops)
	for i := range ops {
		o := &ops[i]
		switch {
		case o.Counted() && o.Outcome == Allowed:
			admitted++
		case o.Counted():
			refusals++
			least = min(least, c.least(r, o))
		case o.lost() || o.ByPolicy():
			perhaps += c.perhaps(o)
		}
		if o.Counted() && c.twice(o, over) {
			perhaps++
		}
	}
	if r.Lent {
		least = least*leastUsed/100 - wasted(c.Faults, ops)
	}
	if least -= perhaps; refusals > 0 && admitted < least {
		return fmt.Errorf("%s, key %s: denied although only %d of %d were admitted, and %d more may have been", r.Name, key,
			admitted, r.Limit, perhaps)
	}
	return nil
}

// wasted returns how many units of a key may be charged, at most, although no node used them: they were lent to nodes
// that ended, stood still or were cut off. A node asks for no more than it was asked for within the longest lease.
func wasted(faults []Fault, ops []Op) (n int) {
	for i := range ops {
		for j := range faults {
			if f := &faults[j]; ops[i].Call >= f.At-longestLease && ops[i].Call <= f.At+longestLease {
				n++
				break
			}
		}
	}
	return n
}

// longestLease is a tenth of the longest window, but no more than this.
const longestLease = Micros(1_000_000)

// Merged returns where a fault that had two counters of one key, as a split may,
// was mended without what either counted. Of a key that never recovers, no more is admitted once
// all is settled than the side that admitted most had left.
func (c judges) Merged() []error {
	var out []error
	if len(c.Faults) != 1 || c.Faults[0].Settled == 0 {
		return nil
	}
	f := &c.Faults[0]
	for i := range c.Rules {
		r := &c.Rules[i]
		// Beyond two counters of a key one side may have begun twice.
		if !r.Once || c.Allows.Losses > 0 || c.Allows.Of(r.Policy) > 2 {
			continue
		}
		for key, ops := range c.byKey(r.Name) {
			before, after, over := make(map[string]int), 0, c.changes(key, ops)
			for j := range ops {
				switch o := &ops[j]; {
				case !o.Counted() || o.Outcome != Allowed:
				case o.Return <= f.Until:
					before[owner(o, key)]++
				case o.Call >= f.Settled:
					after++
				}
			}
			for side, n := range before {
				if most := r.Limit + c.cost(r, over, f.At, ever)*c.each(r); n+after > most {
					out = append(out, fmt.Errorf("%s, key %s: %d admitted by %q before the fault was mended and %d after all had "+
						"settled, at most %d together",
						r.Name, key, n, side, after, most))
				}
			}
		}
	}
	return out
}

// atOnce is how long after a fault's beginning, and after its end, checks may be
// under way between two owners, one of which was there no more or is there again.
const atOnce = Micros(500_000)

// near tells that a check was under way when a fault began or was mended, and may
// have been lost or made twice.
func (c *analysis) near(o *Op) bool {
	meets := func(at Micros) bool { return o.Call <= at+atOnce && o.Return >= at }
	return !c.exact(o.Call, o.Return) && slices.ContainsFunc(c.Faults, func(f Fault) bool {
		return meets(f.At) || meets(f.Until)
	})
}

// perhaps is how often a check may have been counted whose answer nobody knows: by
// an owner, and by its heir.
func (c *analysis) perhaps(o *Op) int {
	if c.exact(o.Call, o.Return) {
		return 1
	}
	return 2
}

const (
	// askedTwice is how long an owner may be silent before its heir is asked too.
	askedTwice = Micros(80_000)
	// deadline is how long a node waits for owner and heir, before its policy answers.
	deadline = Micros(300_000)
)

// outwaited tells that a policy answered because an answer came too late, where copies
// are so late that answers may be: the owner withholds them until its heir has confirmed.
func (c *analysis) outwaited(o *Op) bool { return c.Allows.Raised && o.Return-o.Call >= deadline }

// twice tells that a check may have been counted twice: it was under way when its
// owner changed, as its answers show or, where the old owner answered nothing of
// this key, as the fault lets expect; or it took so long that the heir was asked.
func (c *analysis) twice(o *Op, over []takeover) bool {
	return o.Return-o.Call >= askedTwice || c.near(o) || !c.exact(o.Call, o.Return) &&
		slices.ContainsFunc(over, func(t takeover) bool { return o.Call <= t.before && o.Return >= t.after })
}
