package table

import "github.com/weirlimit/weir/limiter"

// Extension is what an extension of the hold of one key changed. By it the extension can be taken
// back, see [Table.TakeBack].
type Extension struct {
	// End is when the hold ends now, WasEnd when it would have ended before.
	End, WasEnd limiter.Tick
	// Was is the estimate before.
	Was uint32
}

// Extend is [Table.Amend] with Extend, for a charge of one key. It also returns what it changed.
func (t *Table) Extend(now limiter.Tick, c *limiter.Charge) (out limiter.Amended, x Extension, changed bool) {
	x.Was, x.WasEnd = t.term(now, c)
	out, changed = t.Amend(now, c, limiter.Amend{Extend: true})
	_, x.End = t.term(now, c)
	return out, x, changed
}

// term returns the estimate and the end of the hold that a charge's ID has for its first key; 0 if
// it has none.
func (t *Table) term(now limiter.Tick, c *limiter.Charge) (estimate uint32, end limiter.Tick) {
	t.locked(now, c, func() {
		if s, _, id := t.findHold(now, c); s != nil {
			estimate, end = id.A, limiter.HoldEnd(&s.state, t.words(s), c.ID.ID)
		}
	})
	return estimate, end
}

// findHold returns the slot with the holds of a charge's first key, and the state of its ID, if
// that has a hold; otherwise nil. The partition is locked.
func (t *Table) findHold(now limiter.Tick, c *limiter.Charge) (*slot, *partition, *limiter.State) {
	p, _, at, _, live := t.findID(now, c, c.Key(0))
	if !live {
		return nil, nil, nil
	}
	s := t.findHolds(p, c.Key(0))
	if s == nil || !s.state.HoldsID(t.words(s), c.ID.ID) {
		return nil, nil, nil
	}
	return s, p, &p.slots.at(at).state
}

// TakeBack lets the hold of a charge's only key be as it was before an extension: the estimate and
// the end are the former ones, and what was added comes back. It reports false and changes nothing if
// the hold does not end when the extension says: it was settled, has ended, was extended since, or
// came to another table.
func (t *Table) TakeBack(now limiter.Tick, c *limiter.Charge, x Extension) (done bool) {
	t.locked(now, c, func() {
		s, p, id := t.findHold(now, c)
		if s == nil || limiter.HoldEnd(&s.state, t.words(s), c.ID.ID) != x.End {
			return
		}
		if done = true; id.A > x.Was {
			t.dropRaise(p, s, c.ID.ID, now, id.A-x.Was)
			id.A = x.Was
		}
		// A hold that would have ended meanwhile ends now.
		end := min(max(x.WasEnd, now), now+limiter.Span(limiter.MaxHold))
		id.Time = end
		if t.lengthen(p, s, c.ID.ID, end) {
			id.Time += limiter.Span(c.ID.Life)
		}
		t.expiresAt(p, id.Time)
	})
	return done
}

// dropRaise gives back the last charge of a hold, which was of n units to each limit, and removes
// its entries.
func (t *Table) dropRaise(p *partition, s *slot, id uint64, now limiter.Tick, n uint32) {
	words := t.words(s)
	last, from := limiter.Hold{}, int(s.state.A)
	for i := int(s.state.A) - 1; i >= 0; i-- {
		h := limiter.HoldAt(words, i)
		if h.ID != id {
			continue
		}
		// An earlier charge of this instant, of as many units, has the same limit.
		if h.First || h.Cost != n || last.Cost != 0 && (h.At != last.At || h.Limit != 0 && chargedAfter(s, words, i, h)) {
			break
		}
		t.giveBack(p, s, &h, now, n)
		last, from = h, i
	}
	at := -1
	s.state.EachHold(words, func(h limiter.Hold) (limiter.Hold, bool) {
		at++
		return h, at < from || h.ID != id
	})
}

// chargedAfter reports whether a hold has an entry after entry i that charged the same limit.
func chargedAfter(s *slot, words []uint64, i int, h limiter.Hold) bool {
	for j := i + 1; j < int(s.state.A); j++ {
		if o := limiter.HoldAt(words, j); o.ID == h.ID && o.Limit == h.Limit {
			return true
		}
	}
	return false
}
