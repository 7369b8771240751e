package history

import (
	"fmt"
	"slices"
)

// Served returns a check that a node answered with an error, and one that a node refused
// which was to serve: nothing that touches it was broken, and nothing stood still. One
// of each says it all.
func (h *History) Served() []error {
	var wrong, refused error
	c := h.court()
	for i := range c.Ops {
		switch o := &c.Ops[i]; {
		case o.Outcome == Error && wrong == nil:
			wrong = fmt.Errorf("a check of %s at node %d, %v after the start, was answered with an error: %s", o.Rule, o.Node, o.Call.Duration(), o.Says)
		case o.Outcome == Refused && refused == nil && !c.maybeAway(o) && !c.stalled(o.Call, o.Return):
			refused = fmt.Errorf("a check of %s was refused at node %d, %v after the start, which nobody had ended then", o.Rule, o.Node, o.Call.Duration())
		}
	}
	return slices.DeleteFunc([]error{wrong, refused}, func(err error) bool { return err == nil })
}

// maybeAway tells that the node that was asked may have been away: it was down, or a
// fault touched it and was felt still.
func (c *court) maybeAway(o *Op) bool {
	return c.down(o) || slices.ContainsFunc(c.Faults, func(f Fault) bool {
		return slices.Contains(f.Nodes, o.Node) && o.Return >= f.At && o.Call <= c.over(&f)
	})
}

// down tells that the node that was asked was not to answer then.
func (c *court) down(o *Op) bool {
	return slices.ContainsFunc(c.Downs, func(d Down) bool { return d.Node == o.Node && o.Call <= d.Until && o.Return >= d.From })
}
