package limiter

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

// Clone returns a copy of the decision that shares only the rules and limits with it.
func (d *Decision) Clone() *Decision {
	e := *d
	e.more = slices.Clone(d.more)
	return &e
}
