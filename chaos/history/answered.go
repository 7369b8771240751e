package history

import "fmt"

// Answered returns where policies answered more checks of a key than the run
// allows: it takes only so many to find out that a node is gone or a link broken,
// and who else answers. What the machine made slow is not held against the nodes. Of
// checks of several keys nothing is said: another key may be at the broken place. Those of a key that is lent come in
// batches, each of which waits for one answer and counts once.
func (c judges) Answered() []error {
	if c.Allows.ByPolicy == 0 {
		return nil
	}
	var out []error
	for i := range c.Rules {
		r := &c.Rules[i]
		for key, ops := range c.byKey(r.Name) {
			by := 0
			for j := range ops {
				o := &ops[j]
				if j > 0 && r.Lent && ops[j-1].ByPolicy() && ops[j-1].Node == o.Node && ops[j-1].Call == o.Call {
					continue // of the same batch
				}
				if o.ByPolicy() && !c.stalled(o.Call, o.Return) {
					by++
				}
			}
			if by > c.Allows.ByPolicy && !r.Several {
				out = append(out, fmt.Errorf("%s, key %s: policies answered %d of its checks, at most %d", r.Name, key, by,
					c.Allows.ByPolicy))
			}
		}
	}
	return out
}
