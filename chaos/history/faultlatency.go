package history

import (
	"fmt"
	"slices"
)

// FaultLatency returns a check at a node that the fault did not touch, and that was answered by
// a policy, or not at all, longer after the fault began or was mended than the run
// allows; unless something stood still in that time.
func (c judges) FaultLatency() []error {
	if c.Allows.Within == 0 || len(c.Faults) != 1 {
		return nil
	}
	f := &c.Faults[0]
	for i := range c.Ops {
		o := &c.Ops[i]
		if o.Counted() || o.Outcome == Refused || slices.Contains(f.Nodes, o.Node) {
			continue
		}
		since := f.At
		if o.Call >= f.Until {
			since = f.Until
		}
		if o.Return-since > c.Allows.Within && !c.stalled(since, o.Return) {
			return []error{fmt.Errorf("a check of %s at node %d, which the fault did not touch, was %s %s %v after something "+
				"was broken or mended, and nothing stood still: at most %v",
				o.Rule, o.Node, o.Outcome, o.Source, (o.Return - since).Duration(), c.Allows.Within.Duration())}
		}
	}
	return nil
}
