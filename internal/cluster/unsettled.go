package cluster

import (
	"slices"

	"github.com/weirlimit/weir/internal/peer"
	"github.com/weirlimit/weir/limiter"
)

// A check over several owners reserves at each: its charge counts at once, and is
// unsettled until the asker says what became of the whole check, see [several.settle].
// An unsettled charge may be taken back. So a denial that it may have caused is in
// doubt, and an owner gives none: the request waits for the charge to be settled, and
// is decided then. No block begins meanwhile, and nothing is counted.
//
// Two checks may wait for each other's reservations. A part of such a check waits for
// contendFor only; then the asker takes back all its parts and tries again a little
// later, see [several.retreat]. Towards the deadline the denial is given all the same,
// as provisional: it begins no block, charges nothing, is not remembered by others, and
// its wait is no longer than that for the charge.

// unsettled is the charge of one key by a reservation.
type unsettled struct {
	key   limiter.Hash
	from  peer.Instance
	time  limiter.Tick // of the receipt
	cost  uint32
	until limiter.Tick // when the asker has given up: from then on the charge stays
}

// contender is a request that would be denied, perhaps by an unsettled charge.
type contender struct {
	parked
	at limiter.Tick // when it waits no longer
}

const (
	contendFor   = 2 * tickEvery // a part of a check waits no longer for another's
	retreatTime  = 8 * tickEvery // so long before the deadline it is too late to try again
	maxUnsettled = 1 << 12       // of one partition; beyond, a charge counts as settled
	maxContend   = 1 << 12       // of one partition; beyond, a denial is provisional
)

// reserved takes note of a reservation that was made here.
func (c *Core) reserved(t *turn, q *parked, d *limiter.Decision) {
	n := 0
	for i := range q.charge.Len() {
		k := q.charge.Key(i)
		charged := false
		for range k.Rule.Limits {
			charged = charged || d.Receipt.Has(n)
			n++
		}
		p := c.part(k)
		if !charged || p == nil || len(p.own.unsettled) >= maxUnsettled || c.reserves.Load() >= maxPending {
			continue
		}
		c.reserves.Add(1)
		p.own.unsettled = append(p.own.unsettled, unsettled{
			key: k.Hash, from: q.asker(), time: d.Receipt.Time, cost: k.Cost, until: min(q.until, t.now+limiter.Minute),
		})
		p.watch(t)
	}
}

// asker returns the member that asked.
func (q *parked) asker() peer.Instance {
	if q.reply.op != nil {
		return q.reply.op.c.self
	}
	return q.reply.to
}

// settle ends the reservation that a request of its asker names, and takes back what
// it says: of the charges that are unsettled here, so of none that another owner has
// made, and of none twice. Charges that are alike may be taken for one another.
func (c *Core) settle(t *turn, q *parked) {
	from := q.reply.to
	if from == 0 {
		from = c.self
	}
	n, here := 0, uint64(0) // bits of the limits whose charges are
	for i := range q.charge.Len() {
		k := q.charge.Key(i)
		first := n
		n += len(k.Rule.Limits)
		p := c.part(k)
		if p == nil || p.own == nil {
			continue
		}
		own := p.own
		at := slices.IndexFunc(own.unsettled, func(u unsettled) bool {
			return u.key == k.Hash && u.from == from && u.time == q.receipt.Time && u.cost == k.Cost
		})
		if at < 0 {
			continue
		}
		own.unsettled = slices.Delete(own.unsettled, at, at+1)
		c.reserves.Add(-1)
		back := q.receipt.Charged & (1<<n - 1<<first)
		here |= back
		if back != 0 {
			p.charged(t, k, 0)
		}
		if back != 0 || own.unsettledOf(k) == 0 {
			p.wakeContenders(t, k)
		}
	}
	if receipt := q.receipt; here != 0 {
		receipt.Charged = here
		c.table.Refund(t.at, q.charge, receipt)
	}
}

// unsettledOf returns the units of a key that may still be taken back.
func (o *ownership) unsettledOf(k *limiter.Key) (units uint64) {
	for i := range o.unsettled {
		if o.unsettled[i].key == k.Hash {
			units += uint64(o.unsettled[i].cost)
		}
	}
	return units
}

// wakeContenders has the requests decided that wait for a key.
func (p *part) wakeContenders(t *turn, k *limiter.Key) {
	own := p.own
	if len(own.contenders) == 0 {
		return
	}
	own.contenders = slices.DeleteFunc(own.contenders, func(q contender) bool {
		for i := range q.charge.Len() {
			if q.charge.Key(i).Hash == k.Hash {
				p.c.ended(&q.reply)
				t.rerunLater(q.parked)
				return true
			}
		}
		return false
	})
}

// rerunLater has a request handled when the locks are released.
func (t *turn) rerunLater(q parked) {
	t.later = append(t.later, func(t *turn) { t.c.rerun(t, &q) })
}

// doubtful reports whether a check would be denied by charges that may be taken back,
// and in which partition the first of them is, nil if in none. The decision says what
// a peek finds. The partitions are locked.
func (c *Core) doubtful(t *turn, parts []*part, k *limiter.Charge, d *limiter.Decision) *part {
	if k.Peek || !slices.ContainsFunc(parts, func(p *part) bool { return len(p.own.unsettled) > 0 }) {
		return nil
	}
	var units [limiter.MaxKeys]uint64
	any := uint64(0)
	for i := range k.Len() {
		if p := c.part(k.Key(i)); p != nil && len(p.own.unsettled) > 0 {
			units[i] = p.own.unsettledOf(k.Key(i))
			any |= units[i]
		}
	}
	if any == 0 {
		return nil
	}
	k.Peek = true
	err := c.table.Decide(t.at, k, d)
	k.Peek = false
	if err != nil {
		return nil
	}
	var at *part
	final := false // it is denied whatever becomes of the charges
	block := false // of a limit that may have room
	for i := range d.Len() {
		l := d.Limit(i)
		if l.Allowed {
			continue
		}
		if !caused(l, units[l.Key]) {
			final = final || !l.Rule.Shadow
			continue
		}
		if begins := l.Limit.Spec().Block > 0; begins || !l.Rule.Shadow {
			at, block = c.part(k.Key(l.Key)), block || begins
		}
	}
	if final && !block {
		return nil
	}
	return at
}

// caused reports whether a limit that denies might admit if units were taken back.
func caused(l *limiter.LimitDecision, units uint64) bool {
	return units > 0 && !l.Blocked && !l.Never && !l.Overflow && uint64(max(l.Cost, 1)) <= uint64(l.Remaining)+units
}

// contend has a request wait for charges to be settled. It reports false where there
// is no time, or no room, for that.
func (p *part) contend(t *turn, q *parked) bool {
	own := p.own
	if q.waitsUntil == 0 {
		q.waitsUntil = t.now + (q.until-t.now)/2
	}
	if q.last || len(own.contenders) >= maxContend || q.waitsUntil-t.now < tickEvery || !p.c.admits(&q.reply) {
		return false
	}
	kept := contender{parked: *q, at: q.waitsUntil}
	kept.charge = q.charge.Clone()
	if q.settles {
		kept.at = min(kept.at, t.now+contendFor)
	}
	own.contenders = append(own.contenders, kept)
	p.watch(t)
	return true
}

// provisional makes a peek's denial the answer to a check that could not wait for
// charges to be settled.
func (c *Core) provisional(t *turn, q *parked, k *limiter.Charge, d *limiter.Decision) {
	q.reply.provisional = true
	for i := range d.Len() {
		l := d.Limit(i)
		own := c.part(k.Key(l.Key)).own
		if l.Allowed || !caused(l, own.unsettledOf(k.Key(l.Key))) {
			continue
		}
		longest := limiter.Tick(1)
		for j := range own.unsettled {
			if u := &own.unsettled[j]; u.key == k.Key(l.Key).Hash {
				longest = max(longest, u.until-t.now)
			}
		}
		l.RetryAfter = min(l.RetryAfter, longest)
	}
	d.Conclude()
}

// tickUnsettled lets those go that waited long enough, and takes charges for settled
// whose askers have given up.
func (p *part) tickUnsettled(t *turn) {
	own := p.own
	for i := 0; i < len(own.unsettled); {
		u := own.unsettled[i]
		if t.now < u.until {
			i++
			continue
		}
		own.unsettled = slices.Delete(own.unsettled, i, i+1)
		p.c.reserves.Add(-1)
		p.wakeContenders(t, &limiter.Key{Hash: u.key})
	}
	own.contenders = slices.DeleteFunc(own.contenders, func(q contender) bool {
		switch {
		case t.now < q.at:
			return false
		case q.settles && q.until-t.now >= retreatTime:
			p.c.refuse(t, q.reply, peer.Contested, p)
		default:
			q.last = true
			t.rerunLater(q.parked)
		}
		p.c.ended(&q.reply)
		return true
	})
}
