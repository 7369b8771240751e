package table

import (
	"math"
	"slices"

	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/limiter/arith"
)

// What is lent counts as charged now, at every instant, until it is settled or ends. So whenever somebody looks at
// the counters of a key, the charges of its leases move to that instant: what a lease has charged is given back, and
// charged anew. What its holder has used is charged when the lease is settled, and what it admitted until then was
// lent at each instant before. So no interval has more charges of what clients were told than its limits admit.

// loans are what of one key is lent: those of its holds that are leases.
type loans struct{ of ledger }

// lendings are the keys of a partition of which something is lent, by the slots of their holds.
type lendings []idAt

// note adds a key that has leases, if it has.
func (k *lendings) note(b ledger) {
	at := idAt{b.s.place, b.s.lo}
	if (loans{b}).any() && !slices.Contains(*k, at) {
		*k = append(*k, at)
	}
	if len(*k) > 0 {
		b.p.due = -never
	}
}

// renew moves the charges of what is lent of all keys to now, also in a copy: else a counter whose charges have
// recovered would be swept there, or left out of an export, while something of it is lent.
func (k *lendings) renew(p *partition, now limiter.Tick) {
	*k = slices.DeleteFunc(*k, func(at idAt) bool {
		i, found := p.slots.find(at.place, at.lo)
		if !found {
			return true
		}
		l := loans{p.ledger(p.slots.at(i))}
		l.renew(now)
		return !l.any()
	})
	if len(*k) == 0 {
		*k, p.due = nil, p.ends
	}
}

// follow lets what is lent of a key by one limit be lent by another, which counts in its place from now on.
func (k *lendings) follow(b ledger, old, l *limiter.Limit, now limiter.Tick) {
	if len(*k) == 0 || !b.exists() {
		return
	}
	b.each(func(h arith.Hold) (arith.Hold, bool) {
		if h.Lent && h.Limit == arith.CountsID(old) {
			h.Limit = arith.CountsID(l)
			h.ChargedAt(now)
		}
		return h, true
	})
}

// any reports whether something is lent.
func (b loans) any() bool {
	for _, h := range b.of.all() {
		if h.Lent {
			return true
		}
	}
	return false
}

// Lent returns what is lent of a key: of each lease or slice the entry of one limit.
func (t *Table) Lent(k *arith.Key) (out []arith.Hold) {
	t.EachLent(k, func(h arith.Hold) { out = append(out, h) })
	return out
}

// EachLent calls f with what [Lent] returns. f must not call the table.
func (t *Table) EachLent(k *arith.Key, f func(arith.Hold)) {
	p := &t.parts[PartitionOf(k)]
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.lending) > 0 {
		loans{p.ledgerOf(k)}.each(f)
	}
}

// each calls f with the entry of one limit of each lease or slice. There may be no ledger.
func (b loans) each(f func(arith.Hold)) {
	for _, h := range b.of.all() {
		if h.Lent && h.First {
			f(h)
		}
	}
}

// MaxLoans bounds the entries of the leases of one key: whoever looks at the key moves all of them.
const MaxLoans = 128

// count returns how many entries are of leases. There may be no ledger.
func (b loans) count() (n int) {
	for _, h := range b.of.all() {
		if h.Lent {
			n++
		}
	}
	return n
}

// together is what the entries of one limit have charged, all at one instant.
type together struct {
	id      uint64
	at      limiter.Tick
	cost    uint64
	accrued uint64 // since, of slices
	s       *slot
	limit   *limiter.Limit
}

// renew moves the charges of what is lent to now. No slot moves.
func (b loans) renew(now limiter.Tick) {
	if !b.renewTogether(now) {
		b.renewEach(now)
	}
}

// renewTogether is renew in the common case, in one step for each entry: all are of leases, and those of one limit were
// charged at one instant. In any other case it changes nothing and reports false.
func (b loans) renewTogether(now limiter.Tick) bool {
	var found [inlineCounters]together
	n, words := 0, b.of.words()
	for i := range int(b.of.s.state.A) {
		id, at, lent := arith.HoldCharged(words, i)
		if !lent || id == 0 || at >= now {
			return false
		}
		j := 0
		for j < n && found[j].id != id {
			j++
		}
		switch {
		case j == len(found):
			return false
		case j == n:
			found[n] = together{id: id, at: at}
			n++
		}
		f := &found[j]
		if f.at != at {
			return false
		}
		h := arith.HoldAt(words, i)
		f.cost += h.Cost
		if h.Rate > 0 {
			f.accrued += arith.Accrued(h.Rate, now) - arith.Accrued(h.Rate, at)
		}
	}
	for j := range found[:n] {
		f := &found[j]
		f.s, f.limit = b.of.beside(f.id)
		if f.s == nil || !arith.MovesTogether(f.limit, &f.s.state, &b.of.s.state, words, f.at, f.cost+f.accrued) {
			return false
		}
	}
	for j := range found[:n] {
		f := &found[j]
		if f.accrued > 0 && arith.Accrues(f.limit) {
			b.of.p.overdrawSlot(f.s, f.limit, f.at, f.accrued)
		}
		arith.GiveBackTogether(f.limit, &f.s.state, b.of.p.table.words(f.s), &b.of.s.state, b.of.words(), f.at, now,
			b.of.p.clock, f.cost)
		b.of.p.overdrawSlot(f.s, f.limit, now, f.cost)
	}
	arith.HoldsChargedAt(&b.of.s.state, b.of.words(), now)
	return true
}

// renewEach is renew for each entry.
func (b loans) renewEach(now limiter.Tick) {
	earlier := func(h arith.Hold) bool { return h.Lent && h.At < now }
	n := 0
	for _, h := range b.of.all() {
		if earlier(h) {
			b.accrue(&h, now)
			n++
		}
	}
	if n == 0 {
		return
	}
	lent, done := make([]arith.Hold, 0, n), make([]uint64, 0, limiter.MaxLimits)
	for i, h := range b.of.all() {
		if !earlier(h) {
			continue
		}
		lent = append(lent, h)
		if slices.Contains(done, h.Limit) {
			continue
		}
		if s, l := b.of.beside(h.Limit); s != nil && arith.Accrues(l) {
			arith.GiveBackAll(l, &s.state, &b.of.s.state, b.of.words(), now, earlier)
			b.of.p.expiresAt(s.state.EmptyAt(l, nil))
			done = append(done, h.Limit)
		} else {
			b.of.giveBack(i, now, h.Cost)
		}
	}
	b.of.each(func(h arith.Hold) (arith.Hold, bool) { return h, !earlier(h) })
	for _, h := range lent {
		b.overdraw(&h, now)
		h.ChargedAt(now)
		b.of.s.state.AddHold(b.of.words(), h)
	}
}

// comeBack returns when to ask again for what a limit denies until an instant: no later than when the last lease ends,
// if only what is lent stands in the way. What its holders have used then is charged.
func (b loans) comeBack(out *limiter.LimitDecision, now, at limiter.Tick) limiter.Tick {
	if out.Allowed || out.Blocked || out.Never {
		return at
	}
	units, last := uint64(0), now
	var sliced map[uint64]bool // ids of slices: they are renewed
	for _, h := range b.of.all() {
		if h.Sliced {
			if sliced == nil {
				sliced = make(map[uint64]bool)
			}
			sliced[h.ID] = true
		}
	}
	for _, h := range b.of.all() {
		if h.Lent && h.Limit == arith.CountsID(out.Limit) && !sliced[h.ID] {
			units, last = units+h.Cost, max(last, h.End)
		}
	}
	if units == 0 || max(out.Cost, 1) > out.Remaining+units {
		return at
	}
	return min(at, last)
}

// charge moves the charge of entry i to an instant, and leaves the entry as it is.
func (b loans) charge(i int, at limiter.Tick) {
	h := arith.HoldAt(b.of.words(), i)
	b.accrue(&h, at)
	b.of.giveBack(i, at, h.Cost)
	b.overdraw(&h, at)
}

// overdraw charges the units of an entry to its limit, whatever that has left.
func (b loans) overdraw(h *arith.Hold, now limiter.Tick) {
	if h.Limit == 0 {
		return
	}
	if s, l := b.of.beside(h.Limit); s != nil {
		b.of.p.overdrawSlot(s, l, now, h.Cost)
	}
}

// come charges what another table has lent, once that is merged into this one: the larger of two counters need not
// have it.
func (b loans) come(lent []arith.Hold, now limiter.Tick) {
	for i := range lent {
		b.overdraw(&lent[i], now)
	}
}

// stay empties a counter of a key, of limit l, of which something is lent, and charges that. It reports false,
// and does nothing, if nothing is.
func (b loans) stay(s *slot, l *limiter.Limit, now limiter.Tick) bool {
	lent := uint64(0)
	for i, h := range b.of.all() {
		if h.Lent && h.Limit == arith.CountsID(l) {
			lent += h.Cost
			h.ChargedAt(now)
			h.Put(b.of.words(), i)
		}
	}
	if lent == 0 {
		return false
	}
	b.of.p.free(s)
	s.state = arith.State{}
	s.state.Roll(l, nil, now)
	words, ok := b.of.p.room(l, s, nil, s.state.Words(l, now, lent), math.MaxInt64)
	if ok {
		s.state.Overdraw(l, words, now, lent)
	}
	b.of.p.expiresAt(s.state.EmptyAt(l, words))
	return true
}
