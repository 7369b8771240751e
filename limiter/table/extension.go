package table

import (
	"slices"

	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/limiter/arith"
)

// Extension is what an extension of the hold of one key changed. By it the extension can be taken
// back, see [Table.TakeBack].
type Extension struct {
	// End is when the hold ends now, WasEnd when it would have ended before.
	End, WasEnd limiter.Tick
	// Was is the estimate before.
	Was uint64
}

// Extend is [Table.Amend] with an amendment that extends, for a charge of one key. It also returns what it changed.
func (t *Table) Extend(now limiter.Tick, c *arith.Charge, a limiter.Amend) (out limiter.Amended, x Extension,
	changed bool) {
	was, end, _ := t.StandsFor(now, c)
	x.Was, x.WasEnd = was.Estimate, end
	out, changed = t.Amend(now, c, a)
	_, x.End, _ = t.StandsFor(now, c)
	if out.State == limiter.AmendDone {
		t.locked(now, c, func() { t.parts[PartitionOf(c.Key(0))].extended.add(c, x) })
	}
	return out, x, changed
}

// StandsFor returns what a charge's ID stands for at its first key: AmendSettled with the cost, if it is
// final; otherwise AmendUnknown, with what its hold has reserved as the estimate, when that ends, and what it knows of
// its check: 0 if it has none.
func (t *Table) StandsFor(now limiter.Tick, c *arith.Charge) (out limiter.Amended, end limiter.Tick,
	shape arith.Shape) {
	out.State = limiter.AmendUnknown
	t.locked(now, c, func() {
		switch e, known := t.entry(now, c, c.Key(0)); {
		case known && e.held():
			has := e.standing()
			out.Estimate, end, shape = e.cost(), has.end, has.shape
		case known:
			out.State, out.First = limiter.AmendSettled, e.cost()
		}
	})
	return out, end, shape
}

// TakeBack takes an extension of the hold of a charge's only key back: what it added comes back, and
// the hold ends when it did before. Extensions that came after it stand, until they are taken back
// themselves: the estimate is the largest that was asked for, and the end that of the last. It reports false
// and changes nothing if the hold was settled, has ended, or came to another table; or if there were
// so many extensions since that this one is forgotten.
func (t *Table) TakeBack(now limiter.Tick, c *arith.Charge, x Extension) (done bool) {
	t.locked(now, c, func() {
		e, known := t.entry(now, c, c.Key(0))
		if !known || !e.held() {
			return
		}
		was, end, ok := e.in.p.extended.takeBack(c, x, e.standing().end)
		if !ok {
			return
		}
		state := e.state()
		if done = true; e.cost() > was {
			e.dropRaises(now, e.cost()-was)
			arith.SetIDCost(state, was)
		}
		// A hold that would have ended meanwhile ends now.
		end = min(max(end, now), now+limiter.Span(limiter.MaxHold))
		state.Time = end
		if e.lengthen(end) {
			state.Time += limiter.Span(c.ID.Life)
		}
		e.in.p.expiresAt(state.Time)
	})
	return done
}

// dropRaises gives back the last n units that a hold has charged to each limit, and shortens or
// removes their entries.
func (x hold) dropRaises(now limiter.Tick, n uint64) {
	x.giveBackLast(now, counted{units: n}, 0)
	less := make(map[uint64]uint64) // by limit: the units of this entry and of those before it
	for _, h := range x.in.of(x.id) {
		less[h.Charged()] += h.Cost
	}
	for limit, sum := range less { // now: what is left of them
		less[limit] = sum - min(sum, n)
	}
	x.in.each(func(h arith.Hold) (arith.Hold, bool) {
		if h.ID != x.id {
			return h, true
		}
		left, was := less[h.Charged()], h.Cost
		h.Cost = min(h.Cost, left)
		less[h.Charged()] = left - h.Cost
		switch {
		case !h.First: // which marks the hold
		case h.Charged() == 0: // it was reset or is in shadow, so it gave nothing back
			h.Cost = was
		case h.Cost == 0: // another table has charged more than came from there
			h.Cost = 1
			h.Merge(0)
		}
		return h, h.Cost > 0
	})
	x.in.countAllSlots()
}

// maxExtended is how many extensions a partition knows. They are known for the time in which one
// that another owner denied is taken back.
const maxExtended = 64

// extended are the last extensions of the holds of a partition, the latest last.
type extended []extendedHold

// extendedHold is an extension of the hold that an id has for a key.
type extendedHold struct {
	key  arith.Hash
	id   uint64
	told Extension // as its asker knows it
	cost uint64    // the estimate that it asked for
	// was and wasEnd are what is left when it is taken back and no other one stands.
	was    uint64
	wasEnd limiter.Tick
}

func (h *extendedHold) of(c *arith.Charge) bool { return h.key == c.Key(0).Hash && h.id == c.ID.ID }

// add adds an extension of a charge's hold.
func (e *extended) add(c *arith.Charge, x Extension) {
	if i := e.last(c); i >= 0 && (*e)[i].told.End != x.WasEnd { // of a former hold, or in another place
		*e = slices.DeleteFunc(*e, func(h extendedHold) bool { return h.of(c) })
	}
	if len(*e) == maxExtended {
		*e = slices.Delete(*e, 0, 1)
	}
	*e = append(*e, extendedHold{c.Key(0).Hash, c.ID.ID, x, c.Key(0).Cost, x.Was, x.WasEnd})
}

// last returns the index of the last extension of a charge's hold, -1 if there is none.
func (e *extended) last(c *arith.Charge) int {
	for i := len(*e) - 1; i >= 0; i-- {
		if (*e)[i].of(c) {
			return i
		}
	}
	return -1
}

// takeBack forgets an extension of a charge's hold, which ends at an instant now. It returns the
// estimate and the end that are left by those that stand. It reports false if this is not known.
func (e *extended) takeBack(c *arith.Charge, x Extension, ends limiter.Tick) (estimate uint64, end limiter.Tick,
	ok bool) {
	at := slices.IndexFunc(*e, func(h extendedHold) bool { return h.of(c) && h.told == x })
	if at < 0 {
		return x.Was, x.WasEnd, ends == x.End
	}
	if (*e)[e.last(c)].told.End != ends {
		return 0, 0, false
	}
	gone := (*e)[at]
	*e = slices.Delete(*e, at, at+1)
	estimate, end = gone.was, gone.wasEnd
	first := true
	for i := range *e {
		h := &(*e)[i]
		if !h.of(c) {
			continue
		}
		if first {
			if first = false; i >= at { // the one behind it comes after what was before
				h.was, h.wasEnd = gone.was, gone.wasEnd
			}
			estimate = h.was
		}
		estimate, end = max(estimate, h.cost), h.told.End
	}
	return estimate, end, true
}
