package replica

import (
	"slices"

	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/limiter/arith"
)

// Where only lent units stand in the way of a check, their owner recalls them: it asks their holders to give back what
// they have not used, and the check waits among those that wait for charges in doubt. A lease is recalled once, so a
// holder that does not answer delays the checks of one such time.

// recalled is a lease that was recalled.
type recalled struct {
	id    uint64
	until limiter.Tick // when nobody waits for it any more
}

const (
	// RecallFor is the longest wait for units that are recalled.
	RecallFor   = 4 * TickEvery
	maxRecalled = 1 << 10 // of one partition; beyond, no other lease is recalled
)

// Waits are the requests that wait until none of their keys is in doubt, or for units that are recalled.
type Waits struct {
	waiters  []waiter
	recalled []recalled
}

// until returns until when a check that is denied may wait for a lease; an instant that is over if it may not.
func (o *Waits) until(now limiter.Tick, id uint64) limiter.Tick {
	o.recalled = slices.DeleteFunc(o.recalled, func(r recalled) bool { return now-r.until >= arith.MaxLease })
	if i := slices.IndexFunc(o.recalled, func(r recalled) bool { return r.id == id }); i >= 0 {
		return o.recalled[i].until
	}
	if len(o.recalled) >= maxRecalled {
		return now
	}
	return now + RecallFor
}

// MayRecall reports whether a check that is denied may wait for a lease. With maxRecalled leases it may for these only.
func (o *Waits) MayRecall(t *Step, id uint64) bool { return o.until(t.Now, id) > t.Now }

// Recall records that a lease is recalled, and reports whether it had not been yet.
func (o *Waits) Recall(t *Step, id uint64) (first bool) {
	until := o.until(t.Now, id)
	if until <= t.Now || slices.ContainsFunc(o.recalled, func(r recalled) bool { return r.id == id }) {
		return false
	}
	o.recalled = append(o.recalled, recalled{id, until})
	return true
}

// AwaitLent makes a request wait until units of one of its keys are given back. [Ownership.MayWait] must have allowed
// it.
func AwaitLent(t *Step, o *Ownership, q Request) {
	o.Waits.waiters = append(o.Waits.waiters, waiter{q, min(q.Facts().WaitsUntil, t.Now+RecallFor), true})
	t.Watch = true
}

// AwaitsLent reports whether a request waits for units of a key.
func AwaitsLent(o *Ownership, k *arith.Key) bool {
	return slices.ContainsFunc(o.Waits.waiters, func(q waiter) bool { return q.lent && asks(q, k) })
}

// GivenBack schedules the requests that wait for units of a key to be decided again.
func GivenBack(t *Step, o *Ownership, k *arith.Key) {
	wake(t, &o.preparations, func(q waiter) bool { return q.lent && asks(q, k) })
}

// asks reports whether a request is about a key.
func asks(q waiter, k *arith.Key) bool {
	charge := q.Facts().Charge
	for i := range charge.Len() {
		if charge.Key(i).Hash == k.Hash {
			return true
		}
	}
	return false
}
