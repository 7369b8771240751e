package engine

import (
	"math"
	"sync"

	"github.com/weirlimit/weir/internal/slices"
	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/limiter/arith"
	"github.com/weirlimit/weir/limiter/table"
)

// Slices divides the rates of keys. The zero value has divided none. It is safe for concurrent use.
type Slices struct {
	mu sync.Mutex // what is divided is counted before the next slice is asked for
	of slices.Divisions
	// Member reports whether the lease with an id is one of a member, not of a client; nil: none is.
	Member func(id uint64) bool
}

// Decide decides a charge in a table. One that asks for a slice is assigned what is its share of the rate of its key.
// One that asks for a lease is lent no more than clients may have, unless a member asks.
func Decide(t *table.Table, by *Slices, now limiter.Tick, c *arith.Charge, d *limiter.Decision) error {
	switch {
	case c.ID == nil || !c.ID.Lent:
		return t.Decide(now, c, d)
	case c.ID.Rate == 0:
		return by.lend(t, now, c, d)
	}
	by.mu.Lock()
	defer by.mu.Unlock()
	k, id := c.Key(0), c.ID
	bursts := k.Cost
	var room [slices.MaxHolders]slices.Held // on the stack
	held := room[:0]
	t.EachLent(k, func(h arith.Hold) {
		if !h.Sliced || h.End <= now {
			return
		}
		held = append(held, slices.Held{ID: h.ID, Rate: h.Rate, Burst: h.Cost, Until: h.End})
		if h.ID != id.ID {
			bursts += h.Cost
		}
	})
	total := uint64(math.MaxUint64)
	for _, l := range k.Rule.Limits {
		total = min(total, arith.SlicesRate(l, bursts))
	}
	w := slices.Wish{ID: id.ID, Demand: id.Rate, Burst: k.Cost, For: limiter.Span(id.Hold),
		Fast: id.Fast}
	assigned, counted := by.of.Assign(now, k.Hash, w, total, held)
	if assigned == 0 { // what was assigned before lasts to its end, and no longer
		return Refuse(t, now, c, d, limiter.Second)
	}
	id.Rate = counted
	err := t.Decide(now, c, d)
	id.Rate = w.Demand
	r := d.Remarks()
	if err != nil || !d.Allowed {
		r.Assigned = 0
	}
	if r.Assigned = min(r.Assigned, assigned, math.MaxUint32); r.Assigned < assigned {
		by.of.Cut(k.Hash, id.ID, r.Assigned)
	}
	d.SetRemarks(r)
	return err
}
