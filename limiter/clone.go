package limiter

import "slices"

// Clone returns a copy of the charge that shares nothing with it but the rules.
func (c *Charge) Clone() *Charge {
	d := *c
	d.more = slices.Clone(c.more)
	return &d
}

// Clone returns a copy of the decision that shares nothing with it but the rules
// and limits.
func (d *Decision) Clone() *Decision {
	e := *d
	e.more = slices.Clone(d.more)
	return &e
}
