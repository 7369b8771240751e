package arith

import "github.com/weirlimit/weir/limiter"

// setHash adds a limit and its cost to the hash of a receipt's set, by multiplication
// with the 64-bit FNV prime.
func setHash(h uint64, l *rate, cost uint64) uint64 {
	return (h ^ l.NameID ^ cost<<1) * 1099511628211
}

// Fits reports whether the receipt was issued for a charge with these keys, costs and
// limits.
func (c *Charge) Fits(r limiter.Receipt) bool {
	f := Fields(&r)
	var h uint64
	for i := range c.Len() {
		k := c.Key(i)
		for _, l := range k.Rule.Limits {
			h = setHash(h, of(l), k.Cost)
		}
	}
	return f.Charged != 0 && h == f.Set
}

// Credit returns [limiter.Credit] in the form in which it fits the charge. It is for deciders.
func (c *Charge) Credit() limiter.Receipt {
	r, n := limiter.Credit(), 0
	f := Fields(&r)
	for i := range c.Len() {
		k := c.Key(i)
		for _, l := range k.Rule.Limits {
			f.Set = setHash(f.Set, of(l), k.Cost)
			f.Charged |= 1 << n
			n++
		}
	}
	return r
}

// NoteCharged records in the receipt that limit i was charged at now. It is for deciders.
func NoteCharged(d *limiter.Decision, i int, now limiter.Tick) {
	Fields(&d.Receipt).Time = now
	if i < 64 {
		Fields(&d.Receipt).Charged |= 1 << i
	}
}

// NoteAllCharged is NoteCharged for all limits.
func NoteAllCharged(d *limiter.Decision, now limiter.Tick) {
	Fields(&d.Receipt).Time = now
	Fields(&d.Receipt).Charged |= 1<<d.Len() - 1 // all bits from 64 limits on
}

// DenyByRule overwrites d with the denial by a rule that denies each request. It is for deciders.
func DenyByRule(d *limiter.Decision, r *limiter.Rule) {
	d.Clear()
	d.Allowed, d.Never, d.Source, d.Rule = false, true, limiter.SourceRule, r.Name
	deny := r.Deny
	if deny == nil { // an override denies what the rule counts
		deny = &limiter.Denial{Status: 429}
	}
	d.SetRemarks(limiter.Remarks{Deny: deny})
}

// BlockBegan reports whether this check began the block of a limit that is Blocked. A
// denial during a block begins none.
func BlockBegan(d *limiter.Decision) bool { return d.Steps().Began }
