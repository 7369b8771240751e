package table

import (
	"math"

	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/limiter/arith"
)

// A slice of a key has, for each limit, an entry with its burst and its rate. For a limit on windows it has another
// one, with the units that it may use within a window at this rate. All of them are lent. When the rate falls, what the
// latter has beyond the rate may have been used within the window. It serves the slices of the key whose rates rise,
// since all together use no more than before. What is left of it is charged when the slice is renewed again.

// decide decides a charge that asks for a slice with a rate, or renews it. What of the rate finds no room is not
// counted: the decision says what is.
func (b loans) decide(now limiter.Tick, c *arith.Charge, d *limiter.Decision, final bool) outcome {
	k, id, t := c.Key(0), c.ID, b.of.p.table
	e, known := t.entry(now, c, k)
	if known && !e.held() {
		e.forget() // it is over, and begins again
		known = false
	}
	if known {
		t.look(now, c, d)
		arith.Conclude(d)
		d.Repeated = false // it is renewed
		t.count(c, d)
		if !b.renewable(k, id.ID) {
			arith.Deny(d, limiter.Second)
			return decided
		}
		d.Receipt = arith.NewReceipt(arith.ReceiptFields{Time: now, Charged: 1<<len(k.Rule.Limits) - 1})
	} else if result := t.decideOnce(now, c, d, final); result != decided || !d.Allowed {
		return result
	}
	d.SetRemarks(limiter.Remarks{Assigned: loans{b.of.p.ledgerOf(k)}.assign(k, id, now)})
	return decided
}

// renewable reports whether an id is that of a slice which each limit of a key counts, with a burst of the key's cost.
// One that a new limit does not count ends, and begins again.
func (b loans) renewable(k *arith.Key, id uint64) bool {
	for _, l := range k.Rule.Limits {
		counts := false
		for _, h := range b.of.of(id) {
			counts = counts || h.Sliced && h.Limit == arith.CountsID(l) && h.Cost == k.Cost
		}
		if !counts {
			return false
		}
	}
	return true
}

// assign lets the slice of an id, which all limits of a key have been charged, last for its hold from now on with the
// rate that it asks for, as far as there is room, and returns that.
func (b loans) assign(k *arith.Key, id *arith.Idempotency, now limiter.Tick) (rate uint64) {
	if !b.of.has(id.ID) {
		return 0 // there was no room for it
	}
	was := uint64(0)
	for _, h := range b.of.of(id.ID) {
		was = max(was, h.Rate)
	}
	rate = id.Rate
	for _, l := range k.Rule.Limits {
		rate = min(rate, b.fits(l, id.ID, now))
	}
	if _, ok := b.of.p.room(b.of.p.table.ids.holds.limit, b.of.s, b.of.words(),
		(int(b.of.s.state.A)+len(k.Rule.Limits))*arith.HoldWords, math.MaxInt64); !ok {
		return was
	}
	rate = max(rate, min(was, id.Rate))
	for _, l := range k.Rule.Limits {
		b.set(l, id.ID, was, rate, now)
	}
	arith.ChangeHold(&b.of.s.state, b.of.words(), id.ID, func(h *arith.Hold) {
		h.End = max(h.End, now+limiter.Span(id.Hold))
		if h.Sliced {
			h.Rate = rate
		}
	})
	b.of.ends()
	b.of.p.expiresAt(b.of.s.state.Until)
	if e := b.of.idOf(id.ID, now); e != nil {
		e.Time = max(e.Time, rememberedUntil(now, id))
		b.of.p.expiresAt(e.Time)
	}
	return rate
}

// fits returns the largest rate for which a limit has room, of the slice of an id.
func (b loans) fits(l *limiter.Limit, id uint64, now limiter.Tick) (rate uint64) {
	s, _ := b.of.beside(arith.CountsID(l))
	if s == nil {
		return 0
	}
	if arith.Accrues(l) {
		all, others := arith.SlicesRate(l, 0), uint64(0)
		for _, h := range b.of.all() {
			if h.Sliced && h.Limit == arith.CountsID(l) && h.ID != id {
				others += h.Rate
			}
		}
		return all - min(all, others)
	}
	room := uint64(0)
	for _, w := range b.windowsOf(l, make([]portion, 0, MaxLoans)) {
		if w.id == id {
			room += w.units
		} else {
			room += w.surplus(l)
		}
	}
	used := s.state.Probe(l, b.of.p.table.words(s), now, new(limiter.LimitDecision))
	return arith.SliceRate(l, room+l.Capacity()-min(used, l.Capacity()))
}

// windows returns how many further entries a slice of a key has.
func (loans) windows(k *arith.Key) (n int) {
	for _, l := range k.Rule.Limits {
		if !arith.Accrues(l) {
			n++
		}
	}
	return n
}

// portion is what a slice may use of a limit on windows.
type portion struct {
	id, rate uint64
	units    uint64 // within a window
}

// surplus returns how many of its units a slice has beyond its rate.
func (w *portion) surplus(l *limiter.Limit) uint64 {
	return w.units - min(w.units, arith.SliceUnits(l, w.rate))
}

// window returns how many units the slice of an id has that it may use within a window of a limit.
func (b loans) window(l *limiter.Limit, id uint64) uint64 {
	for _, h := range b.of.of(id) {
		if h.Limit == arith.CountsID(l) && h.Lent && !h.Sliced {
			return h.Cost
		}
	}
	return 0
}

// windowsOf appends those of all slices of a limit.
func (b loans) windowsOf(l *limiter.Limit, all []portion) []portion {
	counts := arith.CountsID(l)
	for _, h := range b.of.all() {
		if h.Limit == counts && h.Sliced {
			all = append(all, portion{id: h.ID, rate: h.Rate})
		}
	}
	next := 0 // where a slice is looked for first: both kinds of entries are mostly in one order
	for _, h := range b.of.all() {
		if h.Limit != counts || !h.Lent || h.Sliced {
			continue
		}
		for n := range all {
			if at := (next + n) % len(all); all[at].id == h.ID {
				all[at].units, next = h.Cost, at+1
				break
			}
		}
	}
	return all
}

// take takes units of slices of a limit that have some beyond their rates, but for that of an id, at most missing. It
// returns how many are missing then. What the counter has is not changed.
func (b loans) take(l *limiter.Limit, id, missing uint64) uint64 {
	all, counts := b.windowsOf(l, make([]portion, 0, MaxLoans)), arith.CountsID(l)
	left := make(map[uint64]uint64) // of those of whom some are taken
	for i := range all {
		if w := &all[i]; w.id != id && missing > 0 {
			if n := min(missing, w.surplus(l)); n > 0 {
				left[w.id] = w.units - n
				missing -= n
			}
		}
	}
	if len(left) > 0 {
		b.of.each(func(h arith.Hold) (arith.Hold, bool) {
			if units, some := left[h.ID]; some && h.Limit == counts && h.Lent && !h.Sliced {
				h.Cost = units
			}
			return h, h.Cost > 0
		})
	}
	return missing
}

// set lets a limit count a slice with a rate in place of another. There is room for it.
func (b loans) set(l *limiter.Limit, id, was, rate uint64, now limiter.Tick) {
	s, _ := b.of.beside(arith.CountsID(l))
	if s == nil {
		return
	}
	if arith.Accrues(l) {
		if b.window(l, id) > 0 { // of the limit that it has replaced: what was charged stays
			b.of.each(func(h arith.Hold) (arith.Hold, bool) {
				return h, h.ID != id || h.Sliced || h.Limit != arith.CountsID(l)
			})
		}
		if was > 0 && was != rate { // a part of a unit may not be charged yet
			b.of.p.overdrawSlot(s, l, now, 1)
		}
		return
	}
	have, needs := b.window(l, id), arith.SliceUnits(l, rate)
	switch {
	case needs == have, needs < have && rate != was: // the others may use what is left
		return
	case needs > have:
		if missing := b.take(l, id, needs-have); missing > 0 {
			b.of.p.overdrawSlot(s, l, now, missing)
		}
	}
	for _, h := range b.of.of(id) {
		if h.Sliced && h.Limit == arith.CountsID(l) {
			b.resize(l, id, needs, &h)
			return
		}
	}
}

// resize sets how many units a slice may use within a window of a limit. What its counter has is not changed. of is the
// other entry of the slice.
func (b loans) resize(l *limiter.Limit, id, units uint64, of *arith.Hold) {
	found := false
	for i, h := range b.of.of(id) {
		if h.Limit == arith.CountsID(l) && h.Lent && !h.Sliced {
			found = true
			h.Cost = units
			h.Put(b.of.words(), i)
		}
	}
	if !found && units > 0 {
		h := arith.Hold{ID: id, End: of.End, At: of.At, Limit: of.Limit, Cost: units, Keep: true, Lent: true}
		b.of.s.state.AddHold(b.of.words(), h)
	}
	b.of.each(func(h arith.Hold) (arith.Hold, bool) { return h, h.Cost > 0 })
}

// accrue charges what a slice may have used at its rate since it was charged, at the instant of that: the bucket loses
// it as time passes.
func (b loans) accrue(h *arith.Hold, now limiter.Tick) {
	if h.Rate == 0 || h.Limit == 0 || now <= h.At {
		return
	}
	s, l := b.of.beside(h.Limit)
	if s == nil || !arith.Accrues(l) {
		return
	}
	if n := arith.Accrued(h.Rate, now) - arith.Accrued(h.Rate, h.At); n > 0 {
		b.of.p.overdrawSlot(s, l, h.At, n)
	}
}
