package table

import (
	"slices"
	"sync"
	"sync/atomic"

	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/limiter/arith"
)

// maxResets bounds how many keys of a partition are remembered as reset.
const maxResets = 16

// void tells which receipts of a partition are void. The lock of the partition guards it.
type void struct {
	all  resetOf    // of all keys
	keys []resetKey // in the order of their resets
}

// resetOf makes receipts void that are from before an instant. A clock that stands still, or has gone back, shows no
// later one after the reset: receipts from then have the number of the reset, or a higher one, as their epoch.
type resetOf struct {
	before limiter.Tick
	number uint64
}

func (r resetOf) voids(at limiter.Tick, epoch uint64) bool { return at < r.before && epoch < r.number }

// resetKey is the reset of one key.
type resetKey struct {
	place uint64
	resetOf
}

// reset makes the receipts of the key at a place void. Beyond maxResets the first one is forgotten, and all receipts
// from before it are void.
func (v *void) reset(place uint64, r resetOf) {
	v.keys = slices.DeleteFunc(v.keys, func(k resetKey) bool { return k.place == place })
	if len(v.keys) == maxResets {
		first := v.keys[0]
		v.all = resetOf{max(v.all.before, first.before), max(v.all.number, first.number)}
		v.keys = slices.Delete(v.keys, 0, 1)
	}
	v.keys = append(v.keys, resetKey{place, r})
}

// has reports whether a receipt of the key at a place is void. A nil void has none.
func (v *void) has(place uint64, of limiter.Tick, epoch uint64) bool {
	return v != nil && (v.all.voids(of, epoch) ||
		slices.ContainsFunc(v.keys, func(k resetKey) bool { return k.place == place && k.voids(of, epoch) }))
}

// epoch gives the receipt of a charge that was made now, after a reset at no earlier instant, the number of the
// latest reset. That of a repetition is of an earlier charge. The partitions are locked.
func (t *Table) epoch(now limiter.Tick, c *arith.Charge, d *limiter.Decision) {
	for i := range c.Len() {
		if arith.Fields(&d.Receipt).Charged == 0 || d.Repeated {
			return
		}
		if k := c.Key(i); t.parts[PartitionOf(k)].void.has(t.order.of(k.Hash.Hi), now, 0) {
			arith.Fields(&d.Receipt).Epoch = t.registry.left.resets.Load()
			return
		}
	}
}

// maxLeft bounds how many limits of each half of left are remembered. Beyond it all earlier
// receipts of that half are void.
const maxLeft = 4096

// left tells which receipts are void since their limit has changed, perhaps back. For a limit of a rule it has two
// instants: after the one a counter last stopped to count so, see [arith.CountsID], and at the other one first began
// to since that. Nothing is kept of each counter, and no receipt under the new limit is concerned, however many
// counters a reload converts. But where a partition was charged later than now, since the clock went back or two checks
// met, its receipts from up to that instant are void, and those of all partitions if it is the first that begins so: if
// a clock went back by an hour, all of that hour.
//
// The first half is of rules. The second is of limits that each request may choose, its own or
// by its time zone, plan or number. There the key counts too: who changes the limit of one key all the time voids
// no receipts of others. It is safe for concurrent use.
type left struct {
	resets atomic.Uint64 // how many there were in this table: see resetOf

	mu     sync.Mutex
	halves [2]struct {
		before limiter.Tick // all receipts from before
		at     map[leftKey]inForce
	}
}

// inForce is when a limit last began to be one of a rule, or a key, and before when it was left.
type inForce struct{ began, left limiter.Tick }

type leftKey struct {
	rule      string
	id, place uint64
	part      int // 1 more than a partition that began later than the others; 0: of all
}

// note makes the receipts of a rule void that are from before the rule left one of its limits for another, as a counter
// does at now, of the key at a place in a partition at least. No charge there is later than the latest. The rule is nil
// if it is not known.
func (v *left) note(old, l *limiter.Limit, rule *limiter.Rule, place uint64, part uint16, now, latest limiter.Tick) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if rule == nil {
		for i := range v.halves {
			v.halves[i].before = max(v.halves[i].before, latest+1)
		}
		return
	}
	half, was := keyOf(old, rule, place)
	_, is := keyOf(l, rule, place)
	h := &v.halves[half]
	if len(h.at) > maxLeft-3 {
		h.before, h.at = max(h.before, latest+1), nil
	}
	if h.at == nil {
		h.at = make(map[leftKey]inForce)
	}
	before, next := h.at[was], h.at[is]
	if before.left = max(before.left, latest+1); next.began <= before.began {
		if next.began = now; latest > now { // else another counter has begun so
			next.began = latest + 1 // the old limit was charged since now: the clock went back, or two checks met
		}
	}
	h.at[was], h.at[is] = before, next
	if latest > now && latest >= next.began { // the old limit may have been charged here since the new one began elsewhere
		is.part = int(part) + 1
		h.at[is] = inForce{began: max(h.at[is].began, latest+1)}
	}
}

// has reports whether a receipt under a limit of a rule is void, for the key at a place in a partition.
func (v *left) has(l *limiter.Limit, rule *limiter.Rule, place uint64, part uint16, of limiter.Tick) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	half, key := keyOf(l, rule, place)
	h := &v.halves[half]
	at := h.at[key]
	key.part = int(part) + 1
	return of < max(h.before, at.left, at.began) || of < h.at[key].began
}

// of returns when a limit that requests choose for the key at a place was in force.
func (v *left) of(l *limiter.Limit, rule *limiter.Rule, place uint64) inForce {
	half, key := keyOf(l, rule, place)
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.halves[half].at[key]
}

// restore makes what [left.of] returned true again: it was never in force otherwise.
func (v *left) restore(l *limiter.Limit, rule *limiter.Rule, place uint64, was inForce) {
	half, key := keyOf(l, rule, place)
	if half == 0 {
		return
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	switch at := v.halves[half].at; {
	case at == nil: // all receipts from before are void
	case was == (inForce{}):
		delete(at, key)
	default:
		at[key] = was
	}
}

// keyOf returns the half that a limit of a rule belongs to, and its key there.
func keyOf(l *limiter.Limit, rule *limiter.Rule, place uint64) (half int, key leftKey) {
	if originOf(rule) == ofRequest || rule.ChosenBy() != limiter.ChosenByNone {
		return 1, leftKey{rule.Name, arith.CountsID(l), place, 0}
	}
	return 0, leftKey{rule.Name, arith.CountsID(l), 0, 0}
}
