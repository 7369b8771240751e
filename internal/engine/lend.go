package engine

import (
	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/limiter/arith"
	"github.com/weirlimit/weir/limiter/table"
)

// Of the entries of leases that a key has room for, clients have half, and those of one caller half of that: the rest
// is for members.
const (
	clientEntries = table.MaxLoans / 2
	callerEntries = clientEntries / 2
)

// lend decides a charge that asks for a lease. Of one client it is denied if it is too small to be worth it, or above a
// quarter of what is left; if its caller then had more than half of what is left without its leases, or all clients
// more than three quarters without theirs; and if there are too many.
func (by *Slices) lend(t *table.Table, now limiter.Tick, c *arith.Charge, d *limiter.Decision) error {
	if by.member(c.ID.ID) {
		return t.Decide(now, c, d)
	}
	by.mu.Lock() // what is lent counts before the next one is asked for
	defer by.mu.Unlock()
	if err := Refuse(t, now, c, d, 0); err != nil {
		return err
	}
	left := ^uint64(0)
	for i := range d.Len() {
		left = min(left, d.Limit(i).Remaining)
	}
	k, id := c.Key(0), c.ID.ID
	each := len(k.Rule.Limits)
	all, allUnits, entries, units := each, k.Cost, each, k.Cost
	for _, h := range t.Lent(k) {
		if h.ID == id {
			return t.Decide(now, c, d) // it is a repetition
		}
		if h.Sliced || by.member(h.ID) {
			continue
		}
		if all, allUnits = all+each, allUnits+h.Cost; arith.SameBorrower(h.ID, id) {
			entries, units = entries+each, units+h.Cost
		}
	}
	if k.Cost < arith.LeastLent || k.Cost > left/4 || units > (left+units-k.Cost)/2 ||
		allUnits > (left+allUnits-k.Cost)/4*3 || entries > callerEntries || all > clientEntries {
		return nil
	}
	return t.Decide(now, c, d)
}

// member reports whether a member has the lease with an id, or asks for it.
func (by *Slices) member(id uint64) bool { return by.Member != nil && by.Member(id) }

// Refuse denies a charge that asks to be lent something, for at least a time, and says what is left.
func Refuse(t *table.Table, now limiter.Tick, c *arith.Charge, d *limiter.Decision, wait limiter.Tick) error {
	id, peek := c.ID, c.Peek
	c.ID, c.Peek = nil, true
	err := t.Decide(now, c, d)
	c.ID, c.Peek = id, peek
	arith.Deny(d, wait)
	return err
}
