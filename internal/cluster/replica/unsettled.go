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
// again a little later. Its last attempt waits for a quarter of the time that is left, as the
// others retreat meanwhile. Then the denial is given after all, as provisional: it begins no block, charges nothing and is not cached, and its RetryAfter
// is no longer than the wait for the charge to be settled.
//
// Once its check's deadline has passed, a charge counts as settled: its asker may be gone. If
// the asker is only slow, it concludes the check later, and its cancel comes late. So the
// charge is *overdue* for a while: nobody waits for it, and a cancel takes it back.

// unsettled is the unsettled charge of one key by a reservation.
type unsettled struct {
	key   limiter.Hash
	id    uint64 // of the check; 0 if it has none
	from  peer.Instance
	time  limiter.Tick // time of the receipt
	cost  uint64
	held  bool         // it is a hold: it ends by itself, too
	until limiter.Tick // when the charge is overdue; if it is, when it can no longer be taken back
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
	// OverdueFor is how long a cancel may come after the deadline of its check.
	OverdueFor = 10 * limiter.Second
	maxOverdue = 1 << 12 // of one partition; beyond, the oldest can no longer be taken back
	maxContend = 1 << 12 // of one partition; beyond, a denial is provisional
)

// Unsettled reports whether any charge is unsettled.
func (o *reservations) Unsettled() bool { return len(o.unsettled) > 0 }

// Reserve records the charge of a reservation of the member from: of one key, made at
// the time that its receipt names, with an id unless that is nil. until is the deadline of
// the reservation's check. Beyond maxUnsettled the charge counts as settled.
func (o *reservations) Reserve(t *Step, k *limiter.Key, id *limiter.Idempotency, from peer.Instance, time, until limiter.Tick) {
	if len(o.unsettled) >= maxUnsettled {
		return
	}
	o.count.Add(1)
	o.unsettled = append(o.unsettled, unsettled{
		key: k.Hash, id: idOf(id), from: from, time: time, cost: k.Cost, held: id != nil && id.Hold > 0, until: min(until, t.Now+limiter.Minute),
	})
	t.Watch = true
}

// idOf returns the number of an id, 0 if there is none.
func idOf(id *limiter.Idempotency) uint64 {
	if id == nil {
		return 0
	}
	return id.ID
}

// Settle ends a reservation of one key by the member from, with an id unless that is nil.
// undo means that the charge is taken back. It reports whether the charge was unsettled or
// overdue here; only then may it be taken back: so none that another owner made, none twice,
// and none that another attempt with the id made. Equal charges of one asker and id at one
// instant are not told apart. held means that the charge is a hold.
func (o *Ownership) Settle(t *Step, k *limiter.Key, id *limiter.Idempotency, from peer.Instance, time limiter.Tick, undo bool) (is, held bool) {
	meant := func(u unsettled) bool {
		return u.key == k.Hash && u.id == idOf(id) && u.from == from && u.time == time && u.cost == k.Cost
	}
	list := &o.unsettled
	at := slices.IndexFunc(*list, meant)
	if at < 0 {
		list = &o.overdue
		at = slices.IndexFunc(*list, meant)
	}
	if at < 0 {
		return false, false
	}
	held = (*list)[at].held
	*list = slices.Delete(*list, at, at+1)
	o.count.Add(-1)
	if undo {
		o.Charged(t, k, id, 0)
	}
	if undo || id != nil || o.UnsettledOf(k) == 0 {
		o.wakeContenders(t, k)
	}
	return true, held
}

// SettledWithin returns the longest time until every charge of a key counts as settled,
// at least a tick.
func (o *reservations) SettledWithin(t *Step, k *limiter.Key) limiter.Tick {
	longest := limiter.Tick(1)
	for i := range o.unsettled {
		if u := &o.unsettled[i]; u.key == k.Hash {
			longest = max(longest, u.until-t.Now)
		}
	}
	return longest
}

// UnsettledOf returns how many units of a key are unsettled.
func (o *reservations) UnsettledOf(k *limiter.Key) (units uint64) {
	for i := range o.unsettled {
		if o.unsettled[i].key == k.Hash {
			units += o.unsettled[i].cost
		}
	}
	return units
}

// Stands records that a check with an id was admitted by a charge of a key that may be an
// earlier attempt's: a late cancel of that one takes nothing back any more.
func (o *reservations) Stands(k *limiter.Key, id *limiter.Idempotency) {
	had := len(o.overdue)
	if had == 0 {
		return
	}
	o.overdue = slices.DeleteFunc(o.overdue, func(u unsettled) bool { return u.key == k.Hash && u.id == id.ID })
	o.count.Add(int64(len(o.overdue) - had))
}

// Attempted reports whether an earlier attempt of a check with an id has charged a key, and
// its charge may still be taken back: it is unsettled, or its reply is withheld, perhaps by another
// partition. Until then it is not known whether the id stays remembered.
func Attempted(o *Ownership, k *limiter.Key, id *limiter.Idempotency) bool {
	return slices.ContainsFunc(o.unsettled, func(u unsettled) bool { return u.key == k.Hash && u.id == id.ID }) ||
		slices.ContainsFunc(o.withheld, func(h withheldReply) bool { return !isOver(h) && h.Facts().charges(k, id) }) ||
		slices.ContainsFunc(o.awaited, func(r Reply) bool { return revocable(r) && r.Facts().charges(k, id) })
}

// revocable reports whether what an awaited reply has charged here may still be taken back.
func revocable(r Reply) bool {
	over, back := r.Over()
	return back || !over
}

// charges reports whether a withheld decision charged a key with an id.
func (w *Withheld) charges(k *limiter.Key, id *limiter.Idempotency) bool {
	if w.Reset || w.Amends && !w.Late || idOf(w.Charge.ID) != id.ID {
		return false
	}
	for i := range w.Charge.Len() {
		if w.Charge.Key(i).Hash == k.Hash {
			return true
		}
	}
	return false
}

// wakeAttempts schedules the requests that wait for a withheld reply whose wait is over, if
// its charge has an id.
func wakeAttempts(t *Step, o *Ownership, r Reply) {
	w := r.Facts()
	if w.Charge.ID == nil {
		return
	}
	for i := range w.Charge.Len() {
		if k := w.Charge.Key(i); o.holds(k) {
			o.wakeContenders(t, k)
		}
	}
}

// wakeContenders schedules the requests that wait for a key to be decided again.
func (o *reservations) wakeContenders(t *Step, k *limiter.Key) {
	if len(o.contenders) == 0 {
		return
	}
	o.contenders = slices.DeleteFunc(o.contenders, func(q contender) bool {
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
func (o *reservations) MayContend(t *Step, w *Wait) bool {
	if w.WaitsUntil == 0 {
		w.WaitsUntil = t.Now + (w.Until-t.Now)/2
	}
	return !w.Last && len(o.contenders) < maxContend && w.WaitsUntil-t.Now >= TickEvery
}

// Contend makes a request wait for charges to be settled. [Ownership.MayContend] must have
// allowed it.
func (o *reservations) Contend(t *Step, q Request) {
	w := q.Facts()
	at := w.WaitsUntil
	switch {
	case w.Settles && w.Final:
		at = min(at, t.Now+max(contendFor, (w.Until-t.Now)/4))
	case w.Settles:
		at = min(at, t.Now+contendFor)
	}
	o.contenders = append(o.contenders, contender{q, at})
	t.Watch = true
}

// forgetOverdue keeps the last most of the overdue charges; the others stand.
func (o *reservations) forgetOverdue(most int) {
	if n := len(o.overdue) - most; n > 0 {
		o.overdue = slices.Delete(o.overdue, 0, n)
		o.count.Add(-int64(n))
	}
}

// overdueUntil returns when the first overdue charge can no longer be taken back; Never if
// there is none.
func (o *reservations) overdueUntil() limiter.Tick {
	if len(o.overdue) == 0 {
		return Never
	}
	return o.overdue[0].until
}

// expire ends the waits that are over. Charges whose askers have given up are overdue, and
// in the end stand.
func (o *reservations) expire(t *Step, owner peer.Epoch) {
	standing := slices.IndexFunc(o.overdue, func(u unsettled) bool { return t.Now < u.until })
	if standing < 0 {
		standing = len(o.overdue)
	}
	o.forgetOverdue(len(o.overdue) - standing)
	for i := 0; i < len(o.unsettled); {
		u := o.unsettled[i]
		if t.Now < u.until {
			i++
			continue
		}
		o.unsettled = slices.Delete(o.unsettled, i, i+1)
		u.until = t.Now + OverdueFor
		o.overdue = append(o.overdue, u)
		o.wakeContenders(t, &limiter.Key{Hash: u.key})
	}
	o.forgetOverdue(maxOverdue)
	o.contenders = slices.DeleteFunc(o.contenders, func(q contender) bool {
		w := q.Facts()
		switch {
		case t.Now < q.at:
			return false
		case w.Settles && !w.Final && w.Until-t.Now >= retreatTime:
			t.refuse(q.Request, peer.Contested, owner)
		default:
			w.Last = true
			t.end(Rerun, q.Request)
		}
		return true
	})
}
