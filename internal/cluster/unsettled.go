package cluster

import (
	"slices"

	"github.com/weirlimit/weir/internal/peer"
	"github.com/weirlimit/weir/limiter"
)

// A check over several owners reserves at each of them: its charge counts at once, and
// stays unsettled until the asker reports what became of the whole check, see
// [several.settle]. An unsettled charge may be taken back. So an owner does not give a
// denial that such a charge may have caused: the request waits until the charge is
// settled, and is decided then. Meanwhile no block begins, and nothing is counted.
//
// Two checks may wait for each other's reservations. So a part of a check over several
// owners waits for contendFor only; then the asker takes back all its parts and tries
// again a little later, see [several.retreat]. Close to the deadline the denial is given
// after all, as provisional: it begins no block, charges nothing and is not cached, and
// its RetryAfter is no longer than the wait for the charge to be settled.

// unsettled is the unsettled charge of one key by a reservation.
type unsettled struct {
	key   limiter.Hash
	from  peer.Instance
	time  limiter.Tick // time of the receipt
	cost  uint32
	until limiter.Tick // when the asker has given up; from then on the charge counts as settled
}

// contender is a request that would be denied, perhaps because of an unsettled charge.
type contender struct {
	parked
	at limiter.Tick // when it stops waiting
}

const (
	contendFor   = 2 * tickEvery // longest wait of a part of a check for another's charge
	retreatTime  = 8 * tickEvery // this close to the deadline a check does not start anew
	maxUnsettled = 1 << 12       // of one partition; beyond, a charge counts as settled
	maxContend   = 1 << 12       // of one partition; beyond, a denial is provisional
)

// reserved records a reservation that was made here.
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

// asker returns the member that sent the request, this node included.
func (q *parked) asker() peer.Instance {
	if q.reply.op != nil {
		return q.reply.op.c.self
	}
	return q.reply.to
}

// settle ends the reservation that its asker names, and takes back the charges that the
// receipt names. Only charges that are unsettled here are taken back: so none that
// another owner made, and none twice. Equal charges of one asker at one instant are not
// told apart.
func (c *Core) settle(t *turn, q *parked) {
	from := q.reply.to
	if from == 0 {
		from = c.self
	}
	n, here := 0, uint64(0) // limits whose charges are unsettled here, one bit each
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

// unsettledOf returns how many units of a key may still be taken back.
func (o *ownership) unsettledOf(k *limiter.Key) (units uint64) {
	for i := range o.unsettled {
		if o.unsettled[i].key == k.Hash {
			units += uint64(o.unsettled[i].cost)
		}
	}
	return units
}

// wakeContenders schedules the requests that wait for a key to be decided again.
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

// rerunLater schedules a request to be handled again when the locks are released.
func (t *turn) rerunLater(q parked) {
	t.later = append(t.later, func(t *turn) { t.c.rerun(t, &q) })
}

// doubtful finds out whether a check would be denied because of charges that may be
// taken back. It returns a partition that has such charges, or nil if the check can be
// decided. d is overwritten with what a peek returns. The partitions are locked.
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
	final := false // it is denied even if the charges are taken back
	block := false // such a denial would begin a block
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

// caused reports whether a limit that denies might admit if the given units were taken
// back.
func caused(l *limiter.LimitDecision, units uint64) bool {
	return units > 0 && !l.Blocked && !l.Never && !l.Overflow && uint64(max(l.Cost, 1)) <= uint64(l.Remaining)+units
}

// contend makes a request wait for charges to be settled. It reports false if there is
// no time or no room for that.
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

// provisional makes d, the denial of a peek, the answer to a check that cannot wait for
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
		l.RetryAfter = min(l.RetryAfter, longest.Duration())
	}
	limiter.Conclude(d)
}

// tickUnsettled ends the waits that are over, and treats charges as settled whose askers
// have given up.
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
