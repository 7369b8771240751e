package table

import (
	"sync/atomic"

	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/limiter/arith"
)

// Bound is what left a check without room in a table.
type Bound uint8

const (
	// BoundTable is a bound of the whole table, [Config.MaxKeys] or [Config.MaxBytes]. New
	// keys of all rules find no room.
	BoundTable Bound = iota
	// BoundTenant is the share of a tenant. The keys of other tenants find room.
	BoundTenant
	// BoundShare is the max_share of a rule. The keys of other rules find room.
	BoundShare
	// BoundKey is the number of counters of one key.
	BoundKey
	// BoundHolds is the number of reservations or ids of one key.
	BoundHolds
	// Bounds is the number of bounds.
	Bounds = iota
)

// fullness records the checks that met a bound of the table.
type fullness struct {
	any    atomic.Bool // a check has met a bound
	checks [Bounds]atomic.Int64
	last   [Bounds]atomic.Pointer[Full]
}

// Full is the last check that met a bound of a table.
type Full struct {
	// At is when it came, by the clock that its charge was given.
	At limiter.Tick
	// Rule is the name of the rule whose counter found no room.
	Rule string
	// Tenant is the name of the tenant that has used up its share; empty if another bound was met, or if it is
	// not known, see [Tenants].
	Tenant string
	// Denied reports that it was denied for that reason, see [Config.Overflow].
	Denied bool
}

// noteFull records a check that met a bound. Of several bounds it records the widest.
func (r *room) noteFull(now limiter.Tick, d *limiter.Decision, counters []counter) {
	met, bound := -1, Bound(Bounds)
	for i := range counters {
		if b := counters[i].bound(); d.Limit(i).Overflow && b < bound {
			met, bound = i, b
		}
	}
	if met < 0 {
		return
	}
	r.recordFull(now, bound, d.Limit(met), keyLo(counters[met].slot().lo, d.Limit(met).Limit))
}

// recordFull records a check that met a bound, at a limit of a key with the low half of a hash.
func (r *room) recordFull(now limiter.Tick, bound Bound, l *limiter.LimitDecision, key uint64) {
	full := &Full{At: now, Rule: l.Rule.Name, Denied: !l.Allowed}
	if bound == BoundTenant {
		full.Tenant = r.usages.shares.Name(arith.LabelOf(key))
	}
	r.full.checks[bound].Add(1)
	r.full.last[bound].Store(full)
	r.full.any.Store(true)
}

// bound returns what left an overflowed counter without room.
func (k *counter) bound() Bound {
	switch {
	case !k.own:
		return BoundTable
	case k.tenant:
		return BoundTenant
	case k.crowd:
		return BoundKey
	default:
		return BoundShare
	}
}

// overflowed returns how many checks have met each bound, and any.
func (f *fullness) overflowed() (by [Bounds]int64, all int64) {
	for b := range by {
		by[b] = f.checks[b].Load()
		all += by[b]
	}
	return by, all
}

// EverFull reports whether a check has met a bound of the table. It takes no lock.
func (t *Table) EverFull() bool { return t.room.full.any.Load() }

// Full returns the last check that met a bound of the table, nil if none has. It takes no
// lock.
func (t *Table) Full(b Bound) *Full { return t.room.full.last[b].Load() }
