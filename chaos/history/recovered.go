package history

import "fmt"

// The kernel ends a connection of which nothing was confirmed for 5 s, and does not try
// it again before if its last try was half as long ago: up to so long after a link is
// mended. What is on its way then, within a moment of it, is lost.
const (
	endsWithin = Micros(5_500_000)
	endsAtOnce = Micros(100_000)
)

// Recovered returns a check that a policy answered, or nobody, although all had settled
// a second before: whoever answers checks at all then asks owners and heirs. It excuses
// what something that stood still delays, and what waited for its whole deadline where
// that may be, and where links were cut what one connection after another of each two nodes
// loses that ends for it. It returns too where the nodes needed longer to settle than they may.
func (c judges) Recovered() (out []error) {
	settled := c.settled()
	if settled == 0 {
		return nil
	}
	ends, since := 0, Micros(0)
	for i := range c.Ops {
		o := &c.Ops[i]
		if o.Call < settled+afterFault || !c.undecided(o) {
			continue
		}
		if c.Allows.Cut && o.Call < settled+endsWithin {
			if ends == 0 || o.Call > since+endsAtOnce {
				ends, since = ends+1, o.Call
			}
			if ends <= c.Nodes*(c.Nodes-1)/2 {
				continue
			}
		}
		out = append(out, fmt.Errorf("a check of %s at node %d was %s %s %v after all had settled, and nothing stood still",
			o.Rule, o.Node, o.Outcome, o.Source, (o.Call-settled).Duration()))
		break
	}
	for i := range c.Faults {
		f := &c.Faults[i]
		if most := c.Allows.Converged; most > 0 && f.Settled-f.Until > most && !c.stalled(f.Until, f.Settled) {
			out = append(out, fmt.Errorf("the nodes needed %v to settle after all was mended, and nothing stood still: at "+
				"most %v",
				(f.Settled-f.Until).Duration(), most.Duration()))
		}
	}
	return out
}

// Undisturbed returns a check that a policy answered, or nobody, in a run whose fault no
// client is to notice.
func (c judges) Undisturbed() []error {
	if !c.Allows.Unfelt {
		return nil
	}
	for i := range c.Ops {
		if o := &c.Ops[i]; c.undecided(o) {
			return []error{fmt.Errorf("a check of %s at node %d, %v after the start, was %s %s, although no client was to "+
				"notice what was broken, and nothing stood still",
				o.Rule, o.Node, o.Call.Duration(), o.Outcome, o.Source)}
		}
	}
	return nil
}

// Where so many checks at two nodes or more are decided so late, the processors have too much to
// do, and another may come to its deadline.
const (
	busyChecks = 3
	busyAfter  = deadline / 4
)

// busy tells that a check waited for its whole deadline while others, at two nodes or more,
// were decided late too.
func (c *analysis) busy(o *Op) bool {
	if o.Return-o.Call < deadline {
		return false
	}
	late, at := 0, make(map[int]bool)
	for i := range c.Ops {
		if by := &c.Ops[i]; by.Counted() && by.Return-by.Call >= busyAfter && by.Return >= o.Call && by.Call <= o.Return {
			late++
			at[by.Node] = true
		}
	}
	return late >= busyChecks && len(at) > 1
}

// undecided tells that no owner or heir decided a check that they should have.
func (c *analysis) undecided(o *Op) bool {
	return (o.ByPolicy() && !c.outwaited(o) && !c.busy(o) || o.Outcome == Unknown && !c.down(o)) &&
		!c.stalled(o.Call, o.Return)
}
