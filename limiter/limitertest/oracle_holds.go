package limitertest

import (
	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/limiter/arith"
)

// holdOracle says what ids and holds do to the limits of some keys, slowly and simply. Each key
// has a list of what is known of each id. It takes off the holds that are over whenever it is
// asked anything. Instants must not decrease.
type holdOracle struct {
	keys    map[arith.Hash]*heldKey
	entries int // of all holds so far, to number them
}

// heldKey is one key with its limits.
type heldKey struct {
	limits []*oracleLimit
	ids    map[uint64]*knownID
}

// knownID is what is known of an id of a key.
type knownID struct {
	until Tick   // when it is forgotten
	at    Tick   // of its charge; 0 if it was settled
	cost  uint64 // the estimate of a hold, else what was charged
	shape arith.Shape
	held  bool
	free  bool // a rule in shadow would have denied it, and was not charged
	end   Tick // of the hold
	keep  bool
	parts []heldPart
	slots []*lease // of limits on concurrency
}

// letGo ends what the hold holds.
func (i *knownID) letGo(now Tick) {
	for _, l := range i.slots {
		l.end = now
	}
}

// heldPart is one charge of a hold to one limit.
type heldPart struct {
	number int
	limit  *oracleLimit
	at     Tick
	cost   uint64
	event  int // of a bucket, the number of the charge
}

// giveBack takes n units of the charge back.
func (p *heldPart) giveBack(n uint64, now Tick) {
	if h, ok := p.limit.model.(*bucketHistory); ok {
		h.giveBack(p.event, n, now)
		return
	}
	p.limit.model.refund(n, p.cost-n, p.at, now, true)
}

func newHoldOracle() *holdOracle { return &holdOracle{keys: map[arith.Hash]*heldKey{}} }

// key returns the state of a key.
func (o *holdOracle) key(k *arith.Key) *heldKey {
	h := o.keys[k.Hash]
	if h == nil {
		h = &heldKey{ids: map[uint64]*knownID{}}
		for _, l := range k.Rule.Limits {
			h.limits = append(h.limits, newOracleLimit(l.Spec()))
		}
		o.keys[k.Hash] = h
	}
	return h
}

// expire takes off the holds that are over at now, as of their ends, and forgets ids.
func (o *holdOracle) expire(now Tick) {
	due := o.due(now)
	for _, k := range o.keys {
		for id, i := range k.ids {
			if i.held && i.end <= now {
				i.held, i.parts = false, nil
			}
			if i.until <= now {
				delete(k.ids, id)
			}
		}
	}
	for _, e := range due {
		e.giveBack(e.cost, e.end)
	}
}

// spent reports whether a charge with a hold has an id whose hold is over, for a key with a limit on
// concurrency. It is refused.
func (o *holdOracle) spent(now Tick, c *arith.Charge) bool {
	o.expire(now)
	if c.ID == nil || c.ID.Hold == 0 || c.Peek {
		return false
	}
	for i := range c.Len() {
		k := o.key(c.Key(i))
		if id := k.ids[c.ID.ID]; id == nil || id.held || c.Key(i).Cost == 0 {
			continue
		}
		for _, l := range k.limits {
			if _, ok := l.model.(*concurrencyModel); ok {
				return true
			}
		}
	}
	return false
}

// check decides a charge. repeated reports that its id is known for all keys that it costs
// something; nothing was asked of any limit then.
func (o *holdOracle) check(now Tick, c *arith.Charge) (d OracleDecision, repeated bool) {
	o.expire(now)
	var rest []int
	costs, known := 0, 0
	for i := range c.Len() {
		k := c.Key(i)
		if k.Cost > 0 {
			costs++
		}
		if c.ID != nil && k.Cost > 0 && o.key(k).ids[c.ID.ID] != nil {
			known++
			continue
		}
		rest = append(rest, i)
	}
	if known > 0 && known == costs {
		return OracleDecision{Allowed: true}, true
	}
	if c.Peek {
		rest = rest[:0]
		for i := range c.Len() {
			rest = append(rest, i)
		}
	}
	d = decide(now, c.Peek, o.turns(c, rest))
	if c.Peek || c.ID == nil || !d.Allowed {
		return d, false
	}
	for _, i := range rest {
		if k := c.Key(i); k.Cost > 0 {
			o.remember(now, k, c.ID, k.Rule.Shadow && d.ShadowDenied)
		}
	}
	d.report(now, o.turns(c, rest)) // with what is held now
	return d, false
}

// turns returns the limits of some keys of a charge.
func (o *holdOracle) turns(c *arith.Charge, of []int) (ts []turn) {
	for _, i := range of {
		k := c.Key(i)
		for _, l := range o.key(k).limits {
			retry := func(now Tick, n uint64) Tick { return o.retryAfter(now, l, n) }
			ts = append(ts, turn{l, k.Cost, k.Rule.Shadow, retry})
		}
	}
	return ts
}

// remember makes the id of a charge known for a key. free tells that its rule in shadow was not charged.
func (o *holdOracle) remember(now Tick, k *arith.Key, id *arith.Idempotency, free bool) {
	i := &knownID{until: now + limiter.Span(id.Life), at: now, cost: k.Cost, free: free, shape: id.Shape}
	o.key(k).ids[id.ID] = i
	if id.Hold > 0 {
		i.held, i.keep = true, id.Keep
		o.lengthen(now, i, id)
		o.add(now, o.key(k), i, k.Cost)
	}
}

// lengthen lets a hold end at another instant.
func (*holdOracle) lengthen(now Tick, i *knownID, id *arith.Idempotency) {
	i.end = now + limiter.Span(id.Hold)
	i.until = i.end
	if i.keep {
		i.until += limiter.Span(id.Life)
	}
	for _, l := range i.slots {
		l.end = i.end
	}
}

// add notes a charge of a hold.
func (o *holdOracle) add(now Tick, k *heldKey, i *knownID, cost uint64) {
	for _, l := range k.limits {
		if m, ok := l.model.(*concurrencyModel); ok {
			i.slots = append(i.slots, m.last())
			m.last().end = i.end
			continue
		}
		o.entries++
		p := heldPart{number: o.entries, limit: l, at: now, cost: cost}
		if h, ok := l.model.(*bucketHistory); ok {
			p.event = h.latest()
		}
		i.parts = append(i.parts, p)
	}
}

// refund takes back what a receipt says was charged, and forgets the id. Where the id is known by another
// charge, and where it was that of a hold which is over, nothing is taken back.
func (o *holdOracle) refund(now, at Tick, c *arith.Charge, r limiter.Receipt) {
	o.expire(now)
	first := 0
	for i := range c.Len() {
		k := o.key(c.Key(i))
		given := map[*oracleLimit]bool{} // by entries of the hold
		has := arith.Fields(&r).IsCredit() || arith.Fields(&r).Has(first)
		if first += len(k.limits); !has {
			continue // the id was known for this key, so the check charged others
		}
		if c.ID != nil {
			id := k.ids[c.ID.ID]
			if id == nil && c.ID.Hold > 0 || id != nil && (id.at != at || id.cost != c.Key(i).Cost) {
				continue
			}
			if id != nil {
				id.letGo(now)
				for j := range id.parts {
					id.parts[j].giveBack(id.parts[j].cost, now)
					given[id.parts[j].limit] = true
				}
			}
			delete(k.ids, c.ID.ID)
		}
		for _, l := range k.limits {
			if !given[l] {
				l.refund(now, at, c.Key(i).Cost)
			}
		}
	}
}

// moved tells that all counters came from another table.
func (o *holdOracle) moved(now Tick) {
	o.expire(now)
	o.each(func(h *bucketHistory) { h.moved() })
}

// rounded reports whether a counter may lack less than a unit, see [bucketHistory], or would when a hold ends.
func (o *holdOracle) rounded() (is bool) {
	held := false
	for _, k := range o.keys {
		for _, id := range k.ids {
			held = held || id.held
		}
	}
	o.each(func(h *bucketHistory) { is = is || h.rounded || h.bounded && held })
	return is
}

func (o *holdOracle) each(f func(*bucketHistory)) {
	for _, k := range o.keys {
		for _, l := range k.limits {
			if h, ok := l.model.(*bucketHistory); ok {
				f(h)
			}
		}
	}
}

// reset forgets the counters of a charge. What holds have charged cannot be given back any more.
func (o *holdOracle) reset(now Tick, c *arith.Charge) {
	o.expire(now)
	for i := range c.Len() {
		k := o.key(c.Key(i))
		for j, l := range k.limits {
			k.limits[j] = newOracleLimit(l.spec)
		}
	}
}

// unblocked returns the largest cost that is admitted at now apart from a block, found by
// bisection.
func (l *oracleLimit) unblocked(now Tick) uint64 {
	lo, hi := uint64(0), l.capacity+1
	for lo+1 < hi {
		if mid := (lo + hi) / 2; l.model.admits(mid, now) {
			lo = mid
		} else {
			hi = mid
		}
	}
	return lo
}
