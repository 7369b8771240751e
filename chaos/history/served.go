package history

import (
	"fmt"
	"slices"
)

// startsWithin is how long a node may take from its start until it answers a check: one
// that finds no other waits for 10 s for them, and one that does stands still for 3 s.
const startsWithin = Micros(20_000_000)

// Served returns a check that a node answered with an error, and one that a node refused
// which was to serve: nobody had ended it, it had answered since it was started, or had had
// long enough for that, and nothing stood still. What is done to links explains no
// refusal, since clients have a way of their own. One of each says it all.
func (c judges) Served() []error {
	var wrong, refused error
	for i := range c.Ops {
		switch o := &c.Ops[i]; {
		case o.Outcome == Error && wrong == nil:
			wrong = fmt.Errorf("a check of %s at node %d, %v after the start, was answered with an error: %s", o.Rule, o.Node,
				o.Call.Duration(), o.Says)
		case o.Outcome == Refused && refused == nil && !c.mayRefuse(o) && !c.stalled(o.Call, o.Return):
			refused = fmt.Errorf("a check of %s was refused at node %d, %v after the start, which nobody had ended then: %s",
				o.Rule, o.Node, o.Call.Duration(), o.Says)
		}
	}
	return slices.DeleteFunc([]error{wrong, refused}, func(err error) bool { return err == nil })
}

// mayRefuse tells that the node that was asked need not have taken the check: it was told
// to end or to stand still, had been started and did not answer yet, or had no
// room where that may be.
func (c *analysis) mayRefuse(o *Op) bool {
	if o.Says == NoRoom {
		return c.Allows.Full && slices.ContainsFunc(c.Faults, func(f Fault) bool {
			return slices.Contains(f.Nodes, o.Node) && o.Return >= f.At && o.Call <= c.over(&f)
		})
	}
	return slices.ContainsFunc(c.Downs, func(d Down) bool {
		return d.Node == o.Node && o.Call <= d.Until && o.Return >= d.Told
	}) ||
		slices.ContainsFunc(c.Starts, func(s Start) bool {
			return s.Node == o.Node && o.Return >= s.At && o.Call <= c.serves(&s) &&
				!(o.Call > s.At+startsWithin && !c.stalled(s.At, o.Return))
		})
}

// serves is when a node first answered after it was started, a moment after all others if
// it never did.
func (c *analysis) serves(s *Start) Micros {
	if c.first == nil {
		c.first = make(map[place]Micros)
		for i := range c.Ops {
			o := &c.Ops[i]
			at := place{o.Node, o.Run}
			if first, seen := c.first[at]; (o.Outcome == Allowed || o.Outcome == Denied) && (!seen || o.Return < first) {
				c.first[at] = o.Return
			}
		}
	}
	if at, answered := c.first[place{s.Node, s.Run}]; answered {
		return at
	}
	return ever
}

// down tells that the node that was asked was not to answer then.
func (c *analysis) down(o *Op) bool {
	return slices.ContainsFunc(c.Downs, func(d Down) bool {
		return d.Node == o.Node && o.Call <= d.Until && o.Return >= d.From
	})
}
