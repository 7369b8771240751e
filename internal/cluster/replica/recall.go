package replica

import (
	"maps"
	"slices"

	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/limiter/arith"
)

// Where only lent units stand in the way of a check, their owner recalls them: it asks their holders to give back what
// they have not used, and the check waits among those that wait for charges in doubt. A lease is recalled once, so a
// holder that does not answer delays the checks of one such time.

// recalled is a lease that was recalled.
type recalled struct {
	until limiter.Tick // when nobody waits for it any more
	ends  limiter.Tick // when it is over, although its holder has not given it back
}

const (
	// RecallFor is the longest wait for units that are recalled.
	RecallFor   = 4 * TickEvery
	maxRecalled = 1 << 10 // of one partition, that last; beyond, no other lease is recalled
)

// Waits are the requests that wait until none of their keys is in doubt, or for units that are recalled.
type Waits struct {
	waiters  []waiter
	recalled map[uint64]recalled // by the id of the lease
	looked   limiter.Tick        // when those that are over were forgotten
}

// MayRecall reports whether a check that is denied may wait for a lease. With maxRecalled leases it may for these only.
func (o *Waits) MayRecall(t *Step, id uint64) bool {
	if r, known := o.recalled[id]; known {
		return t.Now < r.until
	}
	if t.Now-o.looked >= RecallFor {
		o.looked = t.Now
		maps.DeleteFunc(o.recalled, func(_ uint64, r recalled) bool { return t.Now >= r.ends })
	}
	return len(o.recalled) < maxRecalled
}

// Recall records that a lease which lasts for some time yet is recalled, and reports whether it had not been.
func (o *Waits) Recall(t *Step, id uint64, lasts limiter.Tick) (first bool) {
	if _, known := o.recalled[id]; known || !o.MayRecall(t, id) {
		return false
	}
	if o.recalled == nil {
		o.recalled = make(map[uint64]recalled)
	}
	o.recalled[id] = recalled{t.Now + RecallFor, t.Now + lasts}
	return true
}

// AwaitLent makes a request wait until units of one of its keys are given back. [Ownership.MayWait] must have allowed
// it.
func AwaitLent(t *Step, o *Ownership, q Request) {
	o.Waits.waiters = append(o.Waits.waiters, waiter{q, min(q.Facts().WaitsUntil, t.Now+RecallFor), true})
	t.Watch = true
}

// AwaitsLent reports whether a request waits for units of a key.
func (o *Ownership) AwaitsLent(k *arith.Key) bool {
	return slices.ContainsFunc(o.Waits.waiters, func(q waiter) bool { return q.lent && asks(q, k) })
}

// GivenBack forgets the lease with an id, which may be another hold, and schedules the requests that wait for units of
// its key to be decided again.
func GivenBack(t *Step, o *Ownership, k *arith.Key, id uint64) {
	delete(o.Waits.recalled, id)
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
