package limiter

import "slices"

// Clone returns a copy of the decision that shares only the rules and limits with it.
func (d *Decision) Clone() *Decision {
	e := *d
	e.more = slices.Clone(d.more)
	return &e
}
