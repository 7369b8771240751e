package arith

import "github.com/weirlimit/weir/limiter"

// Counter is a single key with its own memory. Its limits are decided together, all or
// none. It is the simplest decider, for tests, for services with a handful of counters,
// and as the reference for other deciders. The zero value has no limits and allows
// everything. It is not safe for concurrent use.
type Counter struct {
	limits []*limiter.Limit
	cells  []cell
	rule   limiter.Rule
	latest limiter.Tick
	reset  limiter.Tick // receipts from before are void
	// left has for the CountsID of limits the instant from before which receipts under them
	// are void, since a cell stopped to count so.
	left map[uint64]limiter.Tick
}

// maxLeft bounds [Counter.left]. Beyond it all earlier receipts are void.
const maxLeft = 64

type cell struct {
	limit   *limiter.Limit // the limit that made the state
	state   State
	words   []uint64
	used    uint64 // in the present decision, before it charges
	charged uint64
}

// NewCounter returns a counter without charges.
func NewCounter(limits ...*limiter.Limit) *Counter {
	c := &Counter{}
	c.SetLimits(limits...)
	return c
}

// SetLimits replaces the limits. A limit with the name of an earlier one keeps its
// consumption from the next check on, as [State.Adopt] defines.
func (c *Counter) SetLimits(limits ...*limiter.Limit) {
	cells := make([]cell, len(limits))
	for i, l := range limits {
		for _, old := range c.cells {
			if old.limit != nil && of(old.limit).P.Name == of(l).P.Name {
				cells[i] = old
			}
		}
	}
	c.limits, c.cells = limits, cells
	c.rule = limiter.Rule{Name: limiter.RequestRule, Limits: limits}
}

// Reset deletes all charges and blocks.
func (c *Counter) Reset() {
	clear(c.cells)
	c.reset = c.latest + 1
}

// Check decides a cost in units at now and overwrites d. Cost 0 is a peek with cost 1.
// Instants may go back, see [State].
func (c *Counter) Check(now limiter.Tick, cost uint64, d *limiter.Decision) {
	c.decide(now, cost, false, d)
}

// Peek returns what Check would answer, and charges nothing.
func (c *Counter) Peek(now limiter.Tick, cost uint64, d *limiter.Decision) {
	c.decide(now, cost, true, d)
}

// Refund takes back the cost of the check with this receipt, from the limits that were
// charged. A receipt for other limits or another cost, or from before the last Reset,
// is void. So is one under a limit that was replaced by one that counts otherwise, and is
// back.
func (c *Counter) Refund(now limiter.Tick, r limiter.Receipt, cost uint64) {
	f := Fields(&r)
	c.latest = max(c.latest, now)
	var set uint64
	for _, l := range c.limits {
		set = setHash(set, of(l), cost)
	}
	if cost == 0 || f.Set != set || f.Time < c.reset {
		return
	}
	for i, l := range c.limits {
		if !f.Has(i) || f.Time < c.left[CountsID(l)] {
			continue
		}
		c.adopt(&c.cells[i], l, now)
		if k := &c.cells[i]; CountsID(k.limit) != CountsID(l) {
			continue // it counts by another limit since
		}
		c.cells[i].state.Refund(l, c.cells[i].words, now, c.latest, f.Time, cost)
	}
}

func (c *Counter) decide(now limiter.Tick, cost uint64, peek bool, d *limiter.Decision) {
	c.latest = max(c.latest, now)
	d.Clear()
	d.Source, d.Rule = limiter.SourceOwner, c.rule.Name
	d.Grow(len(c.limits))
	for i, l := range c.limits {
		out := d.Limit(i)
		*out = limiter.LimitDecision{Rule: &c.rule, Limit: l, Cost: cost}
		k := &c.cells[i]
		c.adopt(k, l, now)
		k.used, k.charged = k.state.Probe(k.seen(l), k.words, now, out), 0
	}
	Combine(d, peek)
	for i := range c.limits {
		k := &c.cells[i]
		charge, block := ToCharge(d, i)
		if charge {
			k.reserve(now, cost)
			k.state.Charge(k.limit, k.words, now, cost)
			k.charged = cost
			NoteCharged(d, i, now)
		}
		if block {
			BeginBlock(d, i, k.limit, &k.state, now)
		}
	}
	for i, l := range c.limits {
		k := &c.cells[i]
		k.state.Report(k.seen(l), k.words, now, k.used, k.charged, !d.Allowed, d.Limit(i))
	}
	Conclude(d)
}

// seen returns the limit by which l decides about a cell.
func (k *cell) seen(l *limiter.Limit) *limiter.Limit {
	if k.limit == l {
		return l
	}
	return Seen(l, k.limit)
}

// adopt converts a cell into one of l, unless it [Stays] what it is.
func (c *Counter) adopt(k *cell, l *limiter.Limit, now limiter.Tick) {
	old := k.limit
	if old != nil && Stays(l, old, &k.state, false, now) {
		return
	}
	if k.limit = l; old == nil || old == l || old.Equal(l) {
		return
	}
	if id := CountsID(old); id != CountsID(l) {
		c.leave(id)
	}
	charge, fresh := k.state.Adopt(l, old, k.words, now)
	if !fresh {
		return
	}
	k.words = nil
	k.state.Roll(l, nil, now)
	if charge > 0 {
		k.state.Overdraw(l, nil, now, charge)
	}
}

// leave makes earlier receipts void under limits with a CountsID.
func (c *Counter) leave(id uint64) {
	if _, known := c.left[id]; !known && len(c.left) == maxLeft {
		c.left, c.reset = nil, c.latest+1
	}
	if c.left == nil {
		c.left = make(map[uint64]limiter.Tick)
	}
	c.left[id] = c.latest + 1
}

// reserve provides the words for a charge of n units at now.
func (k *cell) reserve(now limiter.Tick, n uint64) {
	need := k.state.Words(k.limit, now, n)
	if need <= len(k.words) {
		return
	}
	words := make([]uint64, max(need, min(2*len(k.words), limiter.MaxLogLimit+3)))
	k.state.Move(k.limit, words, k.words)
	k.words = words
}
