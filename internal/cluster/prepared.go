package cluster

import (
	"slices"
	"sync/atomic"

	"github.com/weirlimit/weir/internal/cluster/route"
	"github.com/weirlimit/weir/internal/peer"
	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/limiter/arith"
	"github.com/weirlimit/weir/limiter/table"
)

// preparations are what this node does about checks over several owners as owner: it records them in
// the replicas, ends them, and finds out which denials depend on them.
type preparations struct {
	parts partitions
	table *table.Table
	self  peer.Instance
	count atomic.Int64 // charges in doubt and late ones, of all partitions
}

// add records what was charged here for a check over several owners, and for which keys its id is remembered: a rule in
// shadow that would have denied it charges nothing.
func (x *preparations) add(t *turn, q *route.Request, d *limiter.Decision) {
	ids, receipt := remembers(q.Charge, d), arith.Fields(&d.Receipt)
	switch {
	case ids:
		receipt.Time = t.At // by which its asker names it, whatever was charged
	case receipt.Charged == 0:
		return
	}
	before := func(i int) *table.Before { // nil if the frame says that it prepares nothing
		if i < len(t.before) {
			return t.before[i]
		}
		return nil
	}
	n := 0
	for i := range q.Charge.Len() {
		k := q.Charge.Key(i)
		charged := false
		for range k.Rule.Limits {
			charged = charged || receipt.Has(n)
			n++
		}
		charged = charged || ids && k.Cost > 0 && !before(i).Known()
		if p := x.parts.of(k); charged && p != nil && x.count.Load() < maxPending {
			p.r.Own().Prepare(t.inputs(), k, q.Charge.ID, x.asker(q), receipt.Time, q.Until, before(i))
			p.apply(t)
		}
	}
}

// remembers reports whether the id of a check is remembered with this answer.
func remembers(c *arith.Charge, d *limiter.Decision) bool {
	return c.ID != nil && !c.Peek && d.Allowed && !d.Repeated
}

// asker returns the member that sent the request, this node included.
func (x *preparations) asker(q *route.Request) peer.Instance {
	if q.Reply.Call != nil {
		return x.self
	}
	return q.Reply.To
}

// conclude ends what its asker names, and takes back the charges that the
// receipt names, if they can be taken back here, see [replica.Ownership.Conclude]. If the whole
// check was denied, its id is forgotten for the keys that this attempt has charged. What a hold
// has charged is taken back as far as it was not settled and has not ended.
func (x *preparations) conclude(t *turn, q *route.Request) {
	from := q.Reply.To
	if from == 0 {
		from = x.self
	}
	n, here := 0, uint64(0) // limits whose charges can be taken back here, one bit each
	var restore []func()    // once they are
	for i := range q.Charge.Len() {
		k := q.Charge.Key(i)
		first := n
		n += len(k.Rule.Limits)
		p := x.parts.of(k)
		if p == nil {
			continue
		}
		back := arith.Fields(&q.Receipt).Charged & (1<<n - 1<<first)
		own := p.r.Own()
		if own == nil {
			continue
		}
		is, held, before := own.Conclude(t.inputs(), k, q.Charge.ID, from, arith.Fields(&q.Receipt).Time, back != 0)
		if back == 0 {
			before = nil
		}
		if before != nil {
			before.Compare(k)
		}
		switch {
		case !is:
		case held:
			done := (back != 0 || q.Denied) && x.table.CancelHold(t.At, q.Charge, i, arith.Fields(&q.Receipt).Time, back>>first,
				q.Denied)
			if done {
				own.Charged(t.inputs(), k, q.Charge.ID, false, 0)
			} else {
				before = nil // it is over, or settled
			}
		default:
			here |= back
			if q.Denied && x.table.ForgetID(t.At, q.Charge, i, arith.Fields(&q.Receipt).Time) {
				own.Charged(t.inputs(), k, q.Charge.ID, false, 0)
			}
		}
		if before != nil {
			restore = append(restore, func() { before.Restore(k, back>>first) })
		}
		p.apply(t)
	}
	if receipt := q.Receipt; here != 0 {
		arith.Fields(&receipt).Charged = here
		id := q.Charge.ID
		q.Charge.ID = nil // the charges alone: the id is forgotten, or stays although some are not made
		x.table.UndoIn(table.EveryPartition, t.At, q.Charge, receipt)
		q.Charge.ID = id
	}
	for _, f := range restore {
		f()
	}
}

// doubtful finds out whether a check would be denied because of charges that may be
// taken back. It returns a partition that has such charges, or nil if the check can be
// decided. d is overwritten with what a peek returns. The partitions are locked.
func (x *preparations) doubtful(t *turn, parts []*partition, k *arith.Charge, d *limiter.Decision) *partition {
	if k.Peek || !slices.ContainsFunc(parts, func(p *partition) bool { return p.r.Own().InDoubt() }) {
		return nil
	}
	var units [limiter.MaxKeys]uint64
	any := uint64(0)
	for i := range k.Len() {
		if p := x.parts.of(k.Key(i)); p != nil && p.r.Own().InDoubt() {
			units[i] = p.r.Own().InDoubtOf(k.Key(i))
			any |= units[i]
		}
	}
	if any == 0 {
		return nil
	}
	k.Peek = true
	err := x.table.Decide(t.At, k, d)
	k.Peek = false
	if err != nil {
		return nil
	}
	var at *partition
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
			at, block = x.parts.of(k.Key(l.Key)), block || begins
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
	return units > 0 && !l.Blocked && !l.Never && !l.Overflow && max(l.Cost, 1) <= l.Remaining+units
}

// provisional makes d, the denial of a peek, the answer to a check that cannot wait for
// charges to be settled.
func (x *preparations) provisional(t *turn, q *route.Request, k *arith.Charge, d *limiter.Decision) {
	q.Reply.Provisional = true
	for i := range d.Len() {
		l := d.Limit(i)
		key := k.Key(l.Key)
		own := x.parts.of(key).r.Own()
		if l.Allowed || !caused(l, own.InDoubtOf(key)) {
			continue
		}
		l.RetryAfter = min(l.RetryAfter, own.DecidedWithin(t.inputs(), key).Duration())
	}
	arith.Conclude(d)
}
