package table

import (
	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/limiter/arith"
)

// DecideDenied peeks for a charge that was made here and is denied elsewhere: without its id, with
// which it would be admitted, and as if what it has reserved stayed charged, as what a limit counts
// of a denied check does.
func (t *Table) DecideDenied(now limiter.Tick, c *arith.Charge, d *limiter.Decision) error {
	id, peek := c.ID, c.Peek
	c.ID, c.Peek = nil, true
	defer func() { c.ID, c.Peek = id, peek }()
	if id == nil || id.Hold == 0 {
		return t.Decide(now, c, d)
	}
	var err error
	t.locked(now, c, func() {
		kept := t.keepHold(c, id.ID, true)
		d.Clear()
		d.Source, c.Unnamed = limiter.SourceOwner, 0
		if t.decide(now, c, d, true) != decided {
			err = ErrTooManyLimits
		} else {
			t.holdTimes(now, c, d, nil)
		}
		t.keepHold(c, id.ID, kept)
	})
	return err
}

// keepHold sets whether what an id has reserved stays charged at the end of the hold, and returns
// whether it did.
func (t *Table) keepHold(c *arith.Charge, id uint64, keep bool) (was bool) {
	for i := range c.Len() {
		b := t.parts[PartitionOf(c.Key(i))].ledgerOf(c.Key(i))
		for j, h := range b.of(id) {
			h.Keep, was = keep, h.Keep
			h.Put(b.words(), j)
		}
	}
	return was
}
