package table

import (
	"math"
	"slices"

	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/limiter/arith"
)

// amending is one key of a charge whose hold is settled or extended.
type amending struct {
	known bool    // its id is remembered
	held  bool    // it has a hold
	was   uint64  // the cost for which it is remembered
	here  counted // what of it is counted here for sure
	more  uint64  // what is to be charged to that of its limits which lacks most
}

// Amend settles or extends the hold of the charge's ID, which must not be nil, for each key of
// the charge whose holds have it. With several keys, either all that have a hold are settled or
// extended, or none is. It reports what it did, and whether any counter may have changed.
//
// What a settlement gives back is taken back as by [Table.Refund], from the latest charges of
// the hold first; what it adds is charged beyond the limits, too. The id is then remembered
// with the cost for its Life. A hold that ended at this instant is over: its id is not known.
func (t *Table) Amend(now limiter.Tick, c *arith.Charge, a limiter.Amend) (limiter.Amended, bool) {
	for final := false; ; final = true {
		var (
			out     limiter.Amended
			changed bool
			result  outcome
		)
		t.locked(now, c, func() { out, changed, result = t.amend(now, c, a, final) })
		switch {
		case result == decided:
			return out, changed
		case final:
			return limiter.Amended{State: limiter.AmendFull}, false
		}
		t.reclaimFor(now, c)
		t.collectLimits(now)
	}
}

// amend is Amend under the locks of the partitions. It reports noRoom or noLimit if there is
// no room for what is to be charged; nothing has changed then.
func (t *Table) amend(now limiter.Tick, c *arith.Charge, a limiter.Amend, final bool) (out limiter.Amended,
	changed bool, _ outcome) {
	var keys [limiter.MaxKeys]amending
	known, held, inForce := 0, 0, 0
	var shape arith.Shape
	var estimates arith.Estimates
	for i := range c.Len() {
		k := c.Key(i)
		p, pos, live := t.findID(now, c, k)
		if !live {
			changed = p.endStray(k, c.ID.ID, now) || changed
			continue
		}
		m := &keys[i]
		m.known, m.was = true, arith.IDCost(t.ring(p).at(pos))
		if b := p.ledgerOf(k); b.exists() {
			h := b.hold(c.ID.ID)
			has := h.standing()
			switch {
			case has.lent && a.Extend: // it lasts as long as its rule says
				return limiter.Amended{State: limiter.AmendUnknown}, changed, decided
			case has.sliced: // nobody knows what its holder has used
				b.endHolds(now, c.ID.ID)
				return out, true, decided
			case has.lent:
				k.Cost = min(k.Cost, m.was) // no more was lent, whatever a client says that it used
			}
			m.held = has.held
			if m.here = h.countedOf(m.was, has); k.Rule.Shadow && !has.charged {
				m.here = counted{units: math.MaxUint64}
			}
			shape = max(shape, has.shape)
		}
		if known++; !k.Rule.Shadow {
			inForce++
		}
		if !m.held {
			if a.Extend || m.was != k.Cost {
				return limiter.Amended{State: limiter.AmendSettled, First: m.was}, changed, decided
			}
			continue
		}
		if held++; held == 1 {
			out.Estimate = m.was
		}
		estimates.Add(k, m.was)
	}
	differs, differ := estimates.Differ(shape)
	switch {
	case a.Lacks && inForce < shape.Keys():
		return limiter.Amended{State: limiter.AmendLacks}, changed, decided
	case differ && !a.Extend && !a.Named:
		return differs, changed, decided
	case known == 0 && (a.Extend || a.IgnoreUnknown):
		out.State = limiter.AmendUnknown
		return out, changed, decided
	case a.Extend:
		return t.extend(now, c, &keys, final)
	}
	if !a.Named && known > 0 && (held == 0 || shape.Whole(inForce)) {
		a.IgnoreUnknown = true // the check has charged no other keys, or it is settled already
	}
	out, result := t.settle(now, c, &keys, a, out)
	changed = changed || out.State == limiter.AmendDone || out.State == limiter.AmendCharged
	return out, changed && result == decided, result
}

// settle settles the keys that have a hold, and charges those whose id is not known. A rule in shadow that has not
// charged the check, since it would have denied it, is charged nothing by the settlement either.
func (t *Table) settle(now limiter.Tick, c *arith.Charge, keys *[limiter.MaxKeys]amending, a limiter.Amend,
	out limiter.Amended) (limiter.Amended, outcome) {
	fresh := int64(0)
	unknown := arith.Charge{ID: c.ID}
	elsewhere := slices.ContainsFunc(keys[:c.Len()], func(m amending) bool { return m.known })
	for i := range c.Len() {
		m, k := &keys[i], c.Key(i)
		switch {
		case m.held:
			m.more = m.here.mostLacking(k)
		case !m.known && !a.IgnoreUnknown && k.Cost > 0 && !(k.Rule.Shadow && elsewhere):
			if a.Lent {
				k.Cost = min(k.Cost, t.trusted(now, k))
			}
			if m.more = k.Cost; m.more > 0 {
				unknown.Add(*k)
			}
		}
		if m.more == 0 {
			continue
		}
		n, ok := t.roomFor(now, k, m.more)
		if fresh += n; !ok {
			return out, noRoom
		}
		if n == 0 && !m.held {
			out.Known++
		}
	}
	// The ids as well: what is charged without its id would be charged again by a repetition.
	number, _, room := t.reserveIDs(&unknown, int64(unknown.Len()))
	switch {
	case !room:
		return out, noRoom
	case unknown.Len() > 0 && t.crowdedByIDs(&unknown), t.room.keys.Load()+fresh-t.room.copied.Load() > t.room.maxKeys,
		fresh > 0 && t.room.beyondTenant(c.Key(0).Hash.Lo, asked{keys: fresh}):
		t.room.unreserveIDs(number, int64(unknown.Len()))
		return out, noRoom
	}
	charged, held, known := false, false, false
	for i := range c.Len() {
		m, k := &keys[i], c.Key(i)
		if m.more > 0 {
			out.Over = max(out.Over, t.overdraw(now, k, m.here))
		}
		switch {
		case m.held:
			t.settleKey(now, c, k, m.here)
		case m.more > 0:
			charged = true
			t.rememberSettled(now, c, k, number)
		}
		held, known = held || m.held, known || m.known
	}
	switch {
	case charged:
		out.State = limiter.AmendCharged
	case held:
	case known:
		out.State = limiter.AmendRepeated
	default:
		out.State = limiter.AmendUnknown // and nothing was used
	}
	t.ids.holds.over.Add(int64(out.Over))
	return out, decided
}

// roomFor reports whether there is room for n more units in the counters of a key, and how many
// of these are new.
func (t *Table) roomFor(now limiter.Tick, k *arith.Key, n uint64) (fresh int64, ok bool) {
	p, place := &t.parts[PartitionOf(k)], t.order.of(k.Hash.Hi)
	for _, l := range k.Rule.Limits {
		if l.Algorithm() == limiter.Concurrency {
			continue
		}
		at, found := p.slots.find(place, identity(k, l))
		if !found {
			if fresh++; p.slots.crowded(at, maxPerKey, place) {
				return fresh, false
			}
			continue
		}
		s := p.slots.at(at)
		seen := p.look(s, l, k, now)
		if seen == nil {
			return fresh, false
		}
		words := t.words(s)
		s.state.Roll(seen, words, now)
		if need := s.state.Words(seen, now, n); need > len(words) && !t.room.slab.fits(need, t.room.left()) {
			return fresh, false
		}
	}
	left := t.room.left() - t.ring(p).growth(1) // the id may need room, too
	if fresh == 0 {
		return 0, left >= 0
	}
	return fresh, p.slots.growthBound(int(fresh)) <= left || p.slots.growth(int(fresh)) <= left
}

// overdraw charges to each limit of a key what it lacks of the key's cost, whatever it has left. It returns how much
// of it was beyond a limit.
func (t *Table) overdraw(now limiter.Tick, k *arith.Key, has counted) (over uint64) {
	p, place := &t.parts[PartitionOf(k)], t.order.of(k.Hash.Hi)
	for _, l := range k.Rule.Limits {
		n := k.Cost - min(k.Cost, has.of(arith.CountsID(l)))
		if n == 0 || l.Algorithm() == limiter.Concurrency {
			continue // what was used is held no more
		}
		lo := identity(k, l)
		at, found := p.slots.find(place, lo)
		fresh := slot{place: place, lo: lo}
		s := &fresh
		of := l
		if found {
			s = p.slots.at(at)
			if have := p.become(s, l, k, now); have != l {
				of = arith.Seen(l, have)
			}
		} else if fresh.limit = t.registry.id(l, k.Rule, k.Who()); fresh.limit == 0 {
			continue // as many limits as a table can have: it cannot count this one
		}
		beyond, ok := p.overdrawSlot(s, of, now, n)
		if over = max(over, beyond); ok && !found {
			t.room.keys.Add(1)
			p.insert(fresh, now)
		}
	}
	return over
}

// overdrawSlot charges n units to a counter of a limit, whatever that has left, and returns how much of it was
// beyond the limit. It reports false, and charges nothing, if the slab has no number left.
func (p *partition) overdrawSlot(s *slot, l *limiter.Limit, now limiter.Tick, n uint64) (over uint64,
	ok bool) {
	out := limiter.LimitDecision{Cost: n}
	words := p.table.words(s)
	used := s.state.Probe(l, words, now, &out)
	words, ok = p.room(l, s, words, s.state.Words(l, now, n), math.MaxInt64)
	if !ok {
		return 0, false
	}
	left := l.Capacity() - min(used, l.Capacity())
	p.noteCharge(s.place, s.lo^arith.NameID(l), l, new(s.state.Open(l)), now, n)
	s.state.Overdraw(l, words, now, n)
	p.expiresAt(s.state.EmptyAt(l, words))
	return n - min(n, left), true
}

// overdraw charges the limits on rates that a hold has charged what was used beyond what is counted of it.
func (x hold) overdraw(now limiter.Tick, used uint64) {
	sums := x.counted()
	for _, h := range x.in.of(x.id) {
		counted, first := sums[h.Charged()]
		if s, l := x.in.beside(h.Charged()); first && s != nil && used > counted {
			x.in.p.overdrawSlot(s, l, now, used-counted)
		}
		delete(sums, h.Charged())
	}
}

// settleKey gives back what the hold of a key has charged beyond the key's cost, and forgets
// the hold. Its id is remembered with the cost.
func (t *Table) settleKey(now limiter.Tick, c *arith.Charge, k *arith.Key, has counted) {
	p := &t.parts[PartitionOf(k)]
	h := p.ledgerOf(k).hold(c.ID.ID)
	h.letGo()
	h.giveBackLast(now, has, k.Cost)
	h.drop()
	_, pos, _ := t.findID(now, c, k)
	id := t.ring(p).at(pos)
	*id = arith.NewID(now+limiter.Span(c.ID.Life), arith.IDCharged(id), k.Cost, arith.SettledID)
	p.expiresAt(id.Time)
}

// giveBackLast gives back to each limit what it has of a hold beyond what was used, of the latest charges first.
func (x hold) giveBackLast(now limiter.Tick, has counted, used uint64) {
	words := x.in.words()
	for i := int(x.in.s.state.A) - 1; i >= 0; i-- {
		h := arith.HoldAt(words, i)
		n := has.of(h.Limit)
		if n -= min(n, used); h.ID != x.id || n == 0 {
			continue
		}
		later := uint64(0) // what was charged to this limit after it
		for j := i + 1; j < int(x.in.s.state.A); j++ {
			if o := arith.HoldAt(words, j); o.ID == x.id && o.Limit == h.Limit {
				later += o.Cost
			}
		}
		if later < n {
			x.in.giveBack(i, now, min(h.Cost, n-later))
		}
	}
}

// giveBackAll gives back what the hold of an id has charged to a key, and returns to which of its limits, as bits.
func (x hold) giveBackAll(k *arith.Key, now limiter.Tick) (back uint64) {
	for i, h := range x.in.of(x.id) {
		of := x.in.giveBack(i, now, h.Cost)
		for j, l := range k.Rule.Limits {
			if of != nil && of.lo == identity(k, l) {
				back |= 1 << j
			}
		}
	}
	return back
}

// rememberSettled remembers that an id which was not known was charged with the cost of a key. Its
// room is reserved, by the limit with the number.
func (t *Table) rememberSettled(now limiter.Tick, c *arith.Charge, k *arith.Key, number uint16) {
	id := *c.ID
	id.Hold = 0
	one := arith.Charge{ID: &id}
	one.Add(*k)
	var none limiter.Decision
	t.remember(now, &one, &none, number)
	p, pos, _ := t.findID(now, &one, k)
	arith.SetIDParts(t.ring(p).at(pos), arith.SettledID)
}

// extend extends the hold of each key that has one, and charges what the costs add to the
// estimates if all limits admit it.
func (t *Table) extend(now limiter.Tick, c *arith.Charge, keys *[limiter.MaxKeys]amending,
	final bool) (out limiter.Amended, changed bool, _ outcome) {
	var (
		rest    arith.Charge
		r       reserved
		charged uint16
	)
	for i := range c.Len() {
		m, k := &keys[i], *c.Key(i)
		if !m.held || k.Cost <= m.was {
			continue
		}
		p := &t.parts[PartitionOf(&k)]
		if p.ledgerOf(&k).hold(c.ID.ID).parts() >= limiter.MaxHoldParts {
			return limiter.Amended{State: limiter.AmendRaised}, false, decided
		}
		k.Cost -= m.was
		charged |= 1 << rest.Len()
		rest.Add(k)
	}
	if charged != 0 {
		room := t.reserveHolds(&rest, charged, &r)
		defer func() { t.room.unreserveOnce(r) }()
		if !room {
			return out, false, noRoom
		}
		var d limiter.Decision
		result := t.decide(now, &rest, &d, final)
		if result == decided {
			t.holdTimes(now, &rest, &d, nil)
		}
		if result != decided || !d.Allowed {
			for i := range rest.Len() {
				k := rest.Key(i)
				if t.parts[PartitionOf(k)].ledgerOf(k).hold(c.ID.ID).standing().end <= now+limiter.Span(d.RetryAfter) {
					d.RetryAfter = 0 // there is nothing to extend any more then
				}
			}
			return limiter.Amended{State: limiter.AmendDenied, RetryAfter: d.RetryAfter}, true, result
		}
		rest.ID = c.ID
		t.hold(now, &rest, &d, &r)
	}
	for i := range c.Len() {
		m, k := &keys[i], c.Key(i)
		if !m.held {
			continue
		}
		p := &t.parts[PartitionOf(k)]
		keep := p.ledgerOf(k).hold(c.ID.ID).lengthen(now + limiter.Span(c.ID.Hold))
		_, pos, _ := t.findID(now, c, k)
		id := t.ring(p).at(pos)
		arith.SetIDCost(id, max(m.was, k.Cost))
		id.Time = rememberedUntil(now, &arith.Idempotency{Hold: c.ID.Hold, Life: c.ID.Life, Keep: keep})
		p.expiresAt(id.Time)
		if out.Estimate == 0 {
			out.Estimate = arith.IDCost(id)
		}
	}
	return out, true, decided
}

// lengthen sets the end of a hold, and reports whether it is kept then.
func (x hold) lengthen(end limiter.Tick) (keep bool) {
	x.in.each(func(h arith.Hold) (arith.Hold, bool) {
		if h.ID == x.id {
			if h.First {
				keep = h.Keep
			}
			h.End, h.Keep = end, keep
		}
		return h, true
	})
	x.in.ends()
	x.in.p.expiresAt(x.in.s.state.Until)
	x.occupy(0, end)
	return keep
}

// parts returns how many charges a hold has. Each has an entry for each limit, whose instants are
// not the same any more once they came to another node.
func (x hold) parts() (most int) {
	n := make(map[uint64]int) // by limit
	for _, h := range x.in.of(x.id) {
		n[h.Limit]++
		most = max(most, n[h.Limit])
	}
	return most
}
