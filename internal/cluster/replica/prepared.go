package replica

import (
	"slices"

	"github.com/weirlimit/weir/internal/peer"
	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/limiter/arith"
	"github.com/weirlimit/weir/limiter/table"
)

// A check over several owners is prepared at each of them: its charge counts at once, and
// is in doubt until the asker reports what became of the whole check. A charge in
// doubt may be taken back. So an owner does not give a denial that such a charge may have
// caused: the request waits until that is over, and is decided then. Meanwhile no
// block begins, and nothing is counted.
//
// Two checks may wait for each other's charges. So a part of a check over several
// owners waits for inDoubtFor only; then the asker takes back all its parts and tries
// again a little later. Its last attempt waits for a quarter of the time that is left, as the
// others retreat meanwhile. Then the denial is given after all, as provisional: it begins no block, charges nothing and
// is not cached, and its RetryAfter lasts no longer than the doubt.
//
// Once its check's deadline has passed, a charge is in doubt no more: its asker may be gone. If
// the asker is only slow, it concludes the check later, and its cancel comes late. So the
// charge is *late* for a while: nobody waits for it, and a cancel takes it back.

// prepared is the charge of one key for a check over several owners, which may be taken back.
type prepared struct {
	key   arith.Hash
	id    uint64 // of the check; 0 if it has none
	from  peer.Instance
	time  limiter.Tick // time of the receipt
	cost  uint64
	held  bool         // it is a hold: it ends by itself, too
	until limiter.Tick // when the charge is late; if it is, when it can no longer be taken back
	// before has the key's counters as they were before; nil of a late one.
	before *table.Before
}

// waiter is a request that would be denied, perhaps because of a charge in doubt.
type waiter struct {
	Request
	at   limiter.Tick // when it stops waiting
	lent bool         // it waits for units that are recalled
}

const (
	inDoubtFor  = 2 * TickEvery // longest wait of a part of a check for another's charge
	retreatTime = 8 * TickEvery // this close to the deadline a check does not start anew
	maxInDoubt  = 1 << 12       // of one partition; beyond, a charge counts as committed
	// LateFor is how long a cancel may come after the deadline of its check.
	LateFor    = 10 * limiter.Second
	maxLate    = 1 << 12 // of one partition; beyond, the oldest can no longer be taken back
	maxWaiters = 1 << 12 // of one partition; beyond, a denial is provisional
)

// InDoubt reports whether any charge is in doubt.
func (o *preparations) InDoubt() bool { return len(o.inDoubt) > 0 }

// Prepare records the charge of one key for a check over several owners that the member from asks for, made at
// the time that its receipt names, with an id unless that is nil. before has what its counters were; until is the
// deadline of the check. Beyond maxInDoubt the charge counts as committed.
func (o *preparations) Prepare(t *Step, k *arith.Key, id *arith.Idempotency, from peer.Instance, time,
	until limiter.Tick, before *table.Before) {
	if len(o.inDoubt) >= maxInDoubt {
		return
	}
	o.count.Add(1)
	o.inDoubt = append(o.inDoubt, prepared{
		key: k.Hash, id: idOf(id), from: from, time: time, cost: k.Cost, held: id != nil && id.Hold > 0,
		until: min(until, t.Now+limiter.Minute), before: before,
	})
	t.Watch = true
}

// idOf returns the number of an id, 0 if there is none.
func idOf(id *arith.Idempotency) uint64 {
	if id == nil {
		return 0
	}
	return id.ID
}

// Conclude commits a prepared charge of one key for the member from, with an id unless that is nil, or
// takes it back if undo is set. It reports whether the charge was in doubt or
// late here; only then may it be taken back: so none that another owner made, none twice,
// and none that another attempt with the id made. Equal charges of one asker and id at one
// instant are not told apart. held means that the charge is a hold. before has what the key's counters were, unless it
// is nil.
func (o *Ownership) Conclude(t *Step, k *arith.Key, id *arith.Idempotency, from peer.Instance, time limiter.Tick,
	undo bool) (is, held bool, before *table.Before) {
	meant := func(u prepared) bool {
		return u.key == k.Hash && u.id == idOf(id) && u.from == from && u.time == time && u.cost == k.Cost
	}
	list := &o.inDoubt
	at := slices.IndexFunc(*list, meant)
	if at < 0 {
		list = &o.late
		at = slices.IndexFunc(*list, meant)
	}
	if at < 0 {
		return false, false, nil
	}
	held, before = (*list)[at].held, (*list)[at].before
	*list = slices.Delete(*list, at, at+1)
	o.count.Add(-1)
	if undo {
		o.Charged(t, k, id, false, 0)
	}
	if undo || id != nil || o.InDoubtOf(k) == 0 {
		o.wakeWaiters(t, k)
	}
	return true, held, before
}

// DecidedWithin returns the longest time until no charge of a key is in doubt,
// at least a tick.
func (o *preparations) DecidedWithin(t *Step, k *arith.Key) limiter.Tick {
	longest := limiter.Tick(1)
	for i := range o.inDoubt {
		if u := &o.inDoubt[i]; u.key == k.Hash {
			longest = max(longest, u.until-t.Now)
		}
	}
	return longest
}

// InDoubtOf returns how many units of a key are in doubt.
func (o *preparations) InDoubtOf(k *arith.Key) (units uint64) {
	for i := range o.inDoubt {
		if o.inDoubt[i].key == k.Hash {
			units += o.inDoubt[i].cost
		}
	}
	return units
}

// Stands records that a check with an id was admitted by a charge of a key that may be an
// earlier attempt's: a late cancel of that one takes nothing back any more.
func (o *preparations) Stands(k *arith.Key, id *arith.Idempotency) {
	had := len(o.late)
	if had == 0 {
		return
	}
	o.late = slices.DeleteFunc(o.late, func(u prepared) bool { return u.key == k.Hash && u.id == id.ID })
	o.count.Add(int64(len(o.late) - had))
}

// Attempted reports whether an earlier attempt of a check with an id has charged a key, and
// its charge may still be taken back: it is in doubt, or its reply is withheld, perhaps by another
// partition. Until then it is not known whether the id stays remembered.
func (o *Ownership) Attempted(k *arith.Key, id *arith.Idempotency) bool {
	return slices.ContainsFunc(o.inDoubt, func(u prepared) bool { return u.key == k.Hash && u.id == id.ID }) ||
		slices.ContainsFunc(o.withheld, func(h withheldReply) bool { return !isOver(h) && h.Facts().charges(k, id) }) ||
		slices.ContainsFunc(o.awaited, func(r Reply) bool { return revocable(r) && r.Facts().charges(k, id) })
}

// revocable reports whether what an awaited reply has charged here may still be taken back.
func revocable(r Reply) bool {
	over, back := r.Over()
	return back || !over
}

// charges reports whether a withheld decision charged a key with an id.
func (w *Withheld) charges(k *arith.Key, id *arith.Idempotency) bool {
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
			o.wakeWaiters(t, k)
		}
	}
}

// wakeWaiters schedules the requests that wait for a key to be decided again.
func (o *preparations) wakeWaiters(t *Step, k *arith.Key) {
	if len(o.Waits.waiters) == 0 {
		return
	}
	wake(t, o, func(q waiter) bool { return asks(q, k) })
}

// wake schedules some of the requests that wait to be decided again.
func wake(t *Step, o *preparations, which func(waiter) bool) {
	o.Waits.waiters = slices.DeleteFunc(o.Waits.waiters, func(q waiter) bool {
		if !which(q) {
			return false
		}
		t.end(Rerun, q.Request)
		return true
	})
}

// MayWait reports whether there is time and room for a request to wait until charges are
// in doubt no more. It sets when the wait ends, if the request has not waited before.
func (o *preparations) MayWait(t *Step, w *Wait) bool {
	if w.WaitsUntil == 0 {
		w.WaitsUntil = t.Now + (w.Until-t.Now)/2
	}
	return !w.Last && len(o.Waits.waiters) < maxWaiters && w.WaitsUntil-t.Now >= TickEvery
}

// WaitFor makes a request wait until charges are in doubt no more. [Ownership.MayWait] must have
// allowed it.
func (o *preparations) WaitFor(t *Step, q Request) {
	w := q.Facts()
	at := w.WaitsUntil
	switch {
	case w.Settles && w.Final:
		at = min(at, t.Now+max(inDoubtFor, (w.Until-t.Now)/4))
	case w.Settles:
		at = min(at, t.Now+inDoubtFor)
	}
	o.Waits.waiters = append(o.Waits.waiters, waiter{q, at, false})
	t.Watch = true
}

// forgetLate keeps the last most of the late charges; the others stand.
func (o *preparations) forgetLate(most int) {
	if n := len(o.late) - most; n > 0 {
		o.late = slices.Delete(o.late, 0, n)
		o.count.Add(-int64(n))
	}
}

// lateUntil returns when the first late charge can no longer be taken back; Never if
// there is none.
func (o *preparations) lateUntil() limiter.Tick {
	if len(o.late) == 0 {
		return Never
	}
	return o.late[0].until
}

// expire ends the waits that are over. Charges whose askers have given up are late, and
// in the end stand.
func (o *preparations) expire(t *Step, owner peer.Epoch) {
	standing := slices.IndexFunc(o.late, func(u prepared) bool { return t.Now < u.until })
	if standing < 0 {
		standing = len(o.late)
	}
	o.forgetLate(len(o.late) - standing)
	for i := 0; i < len(o.inDoubt); {
		u := o.inDoubt[i]
		if t.Now < u.until {
			i++
			continue
		}
		o.inDoubt = slices.Delete(o.inDoubt, i, i+1)
		u.until, u.before = t.Now+LateFor, nil
		o.late = append(o.late, u)
		o.wakeWaiters(t, &arith.Key{Hash: u.key})
	}
	o.forgetLate(maxLate)
	o.Waits.waiters = slices.DeleteFunc(o.Waits.waiters, func(q waiter) bool {
		w := q.Facts()
		switch {
		case t.Now < q.at:
			return false
		case q.lent:
			t.end(Rerun, q.Request)
		case w.Settles && !w.Final && w.Until-t.Now >= retreatTime:
			t.refuse(q.Request, peer.Contested, owner)
		default:
			w.Last = true
			t.end(Rerun, q.Request)
		}
		return true
	})
}
