package replica

import (
	"slices"

	"github.com/weirlimit/weir/internal/peer"
	"github.com/weirlimit/weir/limiter"
)

// A check over several owners reserves at each of them: its charge counts at once, and
// stays unsettled until the asker reports what became of the whole check. An unsettled
// charge may be taken back. So an owner does not give a denial that such a charge may have
// caused: the request waits until the charge is settled, and is decided then. Meanwhile no
// block begins, and nothing is counted.
//
// Two checks may wait for each other's reservations. So a part of a check over several
// owners waits for contendFor only; then the asker takes back all its parts and tries
// again a little later. Close to the deadline the denial is given after all, as
// provisional: it begins no block, charges nothing and is not cached, and its RetryAfter
// is no longer than the wait for the charge to be settled.

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
	Request
	at limiter.Tick // when it stops waiting
}

const (
	contendFor   = 2 * TickEvery // longest wait of a part of a check for another's charge
	retreatTime  = 8 * TickEvery // this close to the deadline a check does not start anew
	maxUnsettled = 1 << 12       // of one partition; beyond, a charge counts as settled
	maxContend   = 1 << 12       // of one partition; beyond, a denial is provisional
)

// Unsettled reports whether any charge may still be taken back. The replica must own.
func (p *Replica) Unsettled() bool { return len(p.own.unsettled) > 0 }

// Reserve records the charge of a reservation of the member from: of one key, made at
// the time that its receipt names. until is the deadline of the reservation's check.
// Beyond maxUnsettled the charge counts as settled. The replica must own.
func (p *Replica) Reserve(t *Turn, k *limiter.Key, from peer.Instance, time, until limiter.Tick) {
	if len(p.own.unsettled) >= maxUnsettled {
		return
	}
	p.node.Reserves.Add(1)
	p.own.unsettled = append(p.own.unsettled, unsettled{
		key: k.Hash, from: from, time: time, cost: k.Cost, until: min(until, t.Now+limiter.Minute),
	})
	p.watch(t)
}

// Settle ends a reservation of one key by the member from. undo means that the charge is
// taken back. It reports whether the charge was unsettled here; only then may it be
// taken back: so none that another owner made, and none twice. Equal charges of one
// asker at one instant are not told apart.
func (p *Replica) Settle(t *Turn, k *limiter.Key, from peer.Instance, time limiter.Tick, undo bool) bool {
	own := p.own
	if own == nil {
		return false
	}
	at := slices.IndexFunc(own.unsettled, func(u unsettled) bool {
		return u.key == k.Hash && u.from == from && u.time == time && u.cost == k.Cost
	})
	if at < 0 {
		return false
	}
	own.unsettled = slices.Delete(own.unsettled, at, at+1)
	p.node.Reserves.Add(-1)
	if undo {
		p.Charged(t, k, 0)
	}
	if undo || own.unsettledOf(k) == 0 {
		p.wakeContenders(t, k)
	}
	return true
}

// UnsettledOf returns how many units of a key may still be taken back. The replica must
// own.
func (p *Replica) UnsettledOf(k *limiter.Key) uint64 { return p.own.unsettledOf(k) }

// SettledWithin returns the longest time until every charge of a key counts as settled,
// at least a tick. The replica must own.
func (p *Replica) SettledWithin(t *Turn, k *limiter.Key) limiter.Tick {
	longest := limiter.Tick(1)
	for i := range p.own.unsettled {
		if u := &p.own.unsettled[i]; u.key == k.Hash {
			longest = max(longest, u.until-t.Now)
		}
	}
	return longest
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
func (p *Replica) wakeContenders(t *Turn, k *limiter.Key) {
	own := p.own
	if len(own.contenders) == 0 {
		return
	}
	own.contenders = slices.DeleteFunc(own.contenders, func(q contender) bool {
		charge := q.Facts().Charge
		for i := range charge.Len() {
			if charge.Key(i).Hash == k.Hash {
				t.end(Rerun, q.Request)
				return true
			}
		}
		return false
	})
}

// MayContend reports whether there is time and room for a request to wait for charges to
// be settled. It sets when the wait ends, if the request has not waited before.
func (p *Replica) MayContend(t *Turn, w *Wait) bool {
	if w.WaitsUntil == 0 {
		w.WaitsUntil = t.Now + (w.Until-t.Now)/2
	}
	return !w.Last && len(p.own.contenders) < maxContend && w.WaitsUntil-t.Now >= TickEvery
}

// Contend makes a request wait for charges to be settled. [Replica.MayContend] must have
// allowed it.
func (p *Replica) Contend(t *Turn, q Request) {
	w := q.Facts()
	at := w.WaitsUntil
	if w.Settles {
		at = min(at, t.Now+contendFor)
	}
	p.own.contenders = append(p.own.contenders, contender{q, at})
	p.watch(t)
}

// tickUnsettled ends the waits that are over, and treats charges as settled whose askers
// have given up.
func (p *Replica) tickUnsettled(t *Turn) {
	own := p.own
	for i := 0; i < len(own.unsettled); {
		u := own.unsettled[i]
		if t.Now < u.until {
			i++
			continue
		}
		own.unsettled = slices.Delete(own.unsettled, i, i+1)
		p.node.Reserves.Add(-1)
		p.wakeContenders(t, &limiter.Key{Hash: u.key})
	}
	own.contenders = slices.DeleteFunc(own.contenders, func(q contender) bool {
		w := q.Facts()
		switch {
		case t.Now < q.at:
			return false
		case w.Settles && w.Until-t.Now >= retreatTime:
			p.refuse(t, q.Request, peer.Contested)
		default:
			w.Last = true
			t.end(Rerun, q.Request)
		}
		return true
	})
}
