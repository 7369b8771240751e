package arith

import "slices"

// Clone returns a copy of the charge that shares only the rules and the trace with it.
func (c *Charge) Clone() *Charge {
	d := *c
	d.more, d.room = slices.Clone(c.more), nil
	if c.ID != nil {
		d.ID = new(*c.ID)
	}
	return &d
}
