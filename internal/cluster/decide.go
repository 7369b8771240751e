package cluster

import (
	"math"
	"slices"

	"github.com/weirlimit/weir/internal/cluster/replica"
	"github.com/weirlimit/weir/internal/cluster/route"
	"github.com/weirlimit/weir/internal/engine"
	"github.com/weirlimit/weir/internal/peer"
	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/limiter/arith"
	"github.com/weirlimit/weir/limiter/table"
)

// decider decides requests at this node, as owner or heir of their partitions. Requests
// of other members that it cannot decide yet wait, in the replicas of their partitions.
type decider struct {
	parts        partitions
	table        *table.Table
	name         string // of this node
	refuseResets bool   // resets of other members are refused
	preparations preparations
	pending      pending
	shares       shares
	slices       engine.Slices
}

// forbids reports whether a request is a reset by another member and this node refuses
// those. Only the member that holds the key decides that.
func (d *decider) forbids(q *route.Request) bool {
	return q.Kind == route.KindReset && q.Reply.Call == nil && d.refuseResets
}

// handle decides a request or keeps it. It also returns the first partition that stood
// in the way, whose owner the caller can name; nil if none did.
func (d *decider) handle(t *turn, q *route.Request, answer, idle *limiter.Decision) (v route.Verdict, at *partition) {
	var buf [4]*partition
	parts := d.parts.ofCharge(q.Charge, buf[:0])
	for _, p := range parts {
		p.mu.Lock()
	}
	defer t.leaveAll(parts, &v, &at)
	for _, p := range parts {
		t.c.config.fault(p.id)
	}
	return d.handleLocked(t, q, parts, answer, idle)
}

func (d *decider) handleLocked(t *turn, q *route.Request, parts []*partition, answer,
	idle *limiter.Decision) (route.Verdict, *partition) {
	for _, p := range parts {
		switch role := p.r.Role(); {
		case role == peer.Owned && q.Changes() && q.Sent && p.r.GiverAnswers(t.inputs(), t.c.config.Deadline):
			return route.AtGiver, p
		case role == peer.Owned:
		case q.Ends && role != peer.Sealed: // what this node has of the reservation is ended
		case role == peer.Heir && q.Heir && d.forbids(q): // a refused reset is no reason for a takeover
			return route.Forbidden, p
		case role == peer.Sealed, role == peer.Heir && q.Heir && p.takesOver(t):
			return d.pending.park(t, p, q), p
		case q.Kind == route.KindRefund && slices.ContainsFunc(parts, func(p *partition) bool {
			return p.r.Role() == peer.Owned
		}):
			return route.Answered, nil // void: one node owned all keys, and some have a new owner
		default:
			return route.NotOwner, p
		}
	}
	switch q.Kind {
	case route.KindRefund:
		if q.Ends {
			d.preparations.conclude(t, q)
		} else if current(parts, q.Receipt) {
			// Refunds of keys that have no counter are not copied, so invented keys cost
			// no copies.
			receipt := q.Receipt
			arith.Fields(&receipt).Epoch = 0 // of an ownership, and none of the table's
			if known := d.table.Remembers(t.At, q.Charge); d.table.Refund(t.At, q.Charge, receipt) > 0 || known {
				d.touched(t, q.Charge, q.Charge.ID, math.MaxUint32)
			}
		}
		return route.Answered, nil
	case route.KindReset:
		if d.forbids(q) {
			return route.Forbidden, nil
		}
		if q.Stale() && len(parts) > 0 {
			return route.NotOwner, parts[0]
		}
		if len(parts) > 0 && (parts[0].r.Own().Congested() || d.pending.crowded(&q.Reply)) {
			return route.Overloaded, parts[0]
		}
		answer.Receipt = limiter.Receipt{}
		d.reset(t, q, parts, answer)
		return d.confirm(t, q, parts, answer), nil
	}
	switch q.Kind {
	case route.KindExplain:
		d.explain(t, q, parts, answer)
		return route.Answered, nil
	case route.KindAmend:
		return d.amend(t, q, parts, answer)
	}
	if len(parts) > 0 && (parts[0].r.Own().Congested() || d.pending.crowded(&q.Reply)) {
		return route.Overloaded, parts[0]
	}
	if q.Charge.ID != nil && slices.ContainsFunc(parts, func(p *partition) bool { return p.r.Own().Behind() }) {
		return route.Overloaded, parts[0]
	}
	if d.refusesLease(t, q.Charge) {
		d.lendsNothing(t, q.Charge, answer)
		return route.Answered, nil
	}
	if d.pointless(t, q.Charge) {
		return route.Pointless, parts[0]
	}
	return d.decide(t, q, parts, answer, idle), nil
}

// reset executes a reset, but for keys for which its id is remembered: of them this node has a copy of
// what an earlier owner did, and that one's answer was lost or comes late. The receipt says when.
func (d *decider) reset(t *turn, q *route.Request, parts []*partition, answer *limiter.Decision) {
	for _, p := range parts {
		p.instant(t)
	}
	made := q.Charge
	if id := q.Charge.ID; id == nil || slices.ContainsFunc(parts, func(p *partition) bool { return p.r.Own().Behind() }) {
		q.Charge.ID = nil // an id is one more change
		q.Outcome.Counters = d.table.Reset(t.At, q.Charge)
	} else if q.Outcome.Counters, made = d.table.ResetOnce(t.At, q.Charge); made.Len() == 0 {
		return
	}
	answer.Receipt = arith.NewReceipt(arith.ReceiptFields{Time: t.At})
	if q.Outcome.Counters > 0 || made.ID != nil {
		d.touched(t, made, made.ID, math.MaxUint32)
	}
	t.At++ // receipts of the instant of a reset are void, and those of what follows are not
	for _, p := range parts {
		p.instant(t)
	}
	d.wereReset(made)
}

// current reports whether a receipt was given under the present ownership of all
// partitions. A credit names no charge, so it is good under any.
func current(parts []*partition, r limiter.Receipt) bool {
	if arith.Fields(&r).IsCredit() {
		return true
	}
	for _, p := range parts {
		if !p.r.Own().Issued(r) {
			return false
		}
	}
	return true
}

// wereReset has the owners of keys remember that they were reset, even if they had no
// counters of them: a former owner may have some.
func (d *decider) wereReset(k *arith.Charge) {
	for i := range k.Len() {
		if p := d.parts.of(k.Key(i)); p != nil && p.r.Own() != nil {
			p.r.Own().Reset(k.Key(i), p.r.Owner().Counter)
		}
	}
}

// confirm withholds the reply to a reset or an amendment until the heirs of its partitions have
// it. This node may have been fenced and not know: then it has changed what is void.
func (d *decider) confirm(t *turn, q *route.Request, parts []*partition, answer *limiter.Decision) route.Verdict {
	var h *withheldReply
	for _, p := range parts {
		if own := p.r.Own(); own != nil {
			stamp, wait := replica.Confirm(t.inputs(), own, admits(q))
			p.apply(t)
			if wait {
				h = d.pending.withhold(t, p, h, q, stamp, answer, nil)
			}
		}
	}
	if h != nil {
		return route.Withheld
	}
	return route.Answered
}

// touched records that some keys of a charge changed without an admission, and perhaps an id for each. Bit i of keys
// names key i.
func (d *decider) touched(t *turn, k *arith.Charge, id *arith.Idempotency, keys uint32) {
	for i := 0; i < k.Len() && keys>>i != 0; i++ {
		if p := d.parts.of(k.Key(i)); keys&(1<<i) != 0 && p != nil && p.r.Own() != nil {
			p.charged(t, k.Key(i), id, false, 0)
		}
	}
}

// decide decides a check whose partitions this node owns and has locked.
func (d *decider) decide(t *turn, q *route.Request, parts []*partition, answer, idle *limiter.Decision) route.Verdict {
	for _, p := range parts {
		p.instant(t)
	}
	charge := d.shares.of(t, q.Charge)
	if p := d.attempted(t, charge, parts); p != nil {
		if d.pending.contend(t, p, q) {
			return route.Kept
		}
		return route.Overloaded // and is repeated a little later
	}
	switch p := d.preparations.doubtful(t, parts, charge, answer); {
	case p == nil:
		if !d.charge(t, q.Final, charge, answer, idle) {
			return route.Overloaded
		}
		if d.awaitsLent(t, q, charge, answer) {
			return route.Kept
		}
	case d.pending.contend(t, p, q):
		return route.Kept
	default:
		d.preparations.provisional(t, q, charge, answer)
		if idle != nil {
			*idle = *answer.Clone()
		}
	}
	if charge != q.Charge {
		relabel(q, charge, answer, idle)
	}
	q.Reply.Unnamed = q.Charge.Unnamed
	q.Reply.Known = leftOut(q.Charge, answer, idle)
	for i := range answer.Len() {
		answer.Limit(i).Owner = d.name
	}
	if len(parts) > 0 {
		answer.Source = t.sourceOf(parts, charge != q.Charge)
		arith.Fields(&answer.Receipt).Epoch = parts[0].r.Lineage()
	}
	if q.Charge.ID != nil && answer.Allowed && !q.Charge.Peek {
		d.stands(q.Charge)
	}
	d.touched(t, charge, nil, charge.Converted) // whatever the answer is, heirs convert it at the same instant
	if answer.Repeated {
		if slices.ContainsFunc(parts, func(p *partition) bool {
			return !p.r.Own().ChargedHere(arith.Fields(&answer.Receipt).Time)
		}) {
			answer.Receipt = limiter.Receipt{} // of another ownership: it is void
		}
		return route.Answered
	}
	if q.Settles {
		d.preparations.add(t, q, answer)
	}
	id := q.Charge.ID
	if answer.Allowed && arith.Fields(&answer.Receipt).Charged == 0 && !arith.BlockBegan(answer) &&
		(id == nil || q.Charge.Peek) {
		return route.Answered
	}
	if !answer.Allowed {
		id = nil // it is not remembered
	}
	var h *withheldReply
	n := 0
	for i := range q.Charge.Len() {
		k := q.Charge.Key(i)
		limits := limitsOf(answer, i)
		changed, admitted := changes(answer, n, limits)
		n += limits
		if !changed && id == nil {
			continue
		}
		cost := uint64(0)
		if admitted {
			cost = k.Cost
		}
		p := d.parts.of(k)
		if stamp, wait := p.charged(t, k, id, id != nil && charge.ID.Came&(1<<i) != 0, cost); wait {
			h = d.pending.withhold(t, p, h, q, stamp, answer, idle)
		}
	}
	if h == nil {
		return route.Answered
	}
	return h.await(t, parts)
}

// relabel names the limits of a request in answers that were given for a share of them.
func relabel(q *route.Request, share *arith.Charge, answer, idle *limiter.Decision) {
	route.Relabel(q.Charge, answer)
	if idle != nil {
		route.Relabel(q.Charge, idle)
	}
	q.Charge.Unnamed = share.Unnamed
}

// stands records that a check with an id was admitted by charges that may be an earlier
// attempt's. The partitions are locked.
func (d *decider) stands(k *arith.Charge) {
	for i := range k.Len() {
		if p := d.parts.of(k.Key(i)); p != nil {
			p.r.Own().Stands(k.Key(i), k.ID)
		}
	}
}

// attempted returns a partition in which an earlier attempt of a check has charged one of its
// keys, and may still take that back; nil if there is none. The partitions are locked.
func (d *decider) attempted(t *turn, k *arith.Charge, parts []*partition) *partition {
	if k.ID == nil || k.Peek {
		return nil
	}
	pending := func(p *partition) bool { return p.r.Own().InDoubt() || p.r.Own().Awaits() }
	if !slices.ContainsFunc(parts, pending) || !d.table.Remembers(t.At, k) {
		return nil // usually the former, without a search in the table
	}
	return d.inDoubt(k)
}

// charge decides a check in the table. It reports false if the table cannot. For a
// reservation it also fills idle, the answer if another part denies. For a limit whose
// charge would be taken back, idle has the state before the check. For a limit that
// counts rejected checks, it has the state after it, and the wait for a denied asker.
// final tells that a peek stands for a check.
func (d *decider) charge(t *turn, final bool, k *arith.Charge, answer, idle *limiter.Decision) bool {
	if final && k.Peek && d.table.Spent(t.At, k) {
		return denySpent(d.table, t.At, k, answer)
	}
	t.before = t.before[:0]
	if idle == nil {
		return d.decided(t, k, answer)
	}
	peek := k.Peek
	defer func() { k.Peek = peek }()
	k.Peek = true
	if d.table.Decide(t.At, k, idle) != nil {
		return false
	}
	k.Peek = peek
	for i := range k.Len() {
		t.before = append(t.before, table.NewBefore(d.table, t.At, k, i))
	}
	if !d.decided(t, k, answer) {
		return false
	}
	for i, b := range t.before {
		b.Charged(k.Key(i))
	}
	if !countsRejected(k) || !answer.Allowed {
		return true
	}
	var after limiter.Decision
	if d.table.DecideDenied(t.At, k, &after) != nil {
		return false
	}
	for i := range idle.Len() {
		if l := idle.Limit(i); l.Limit.CountRejected() != limiter.CountNone && arith.Fields(&answer.Receipt).Has(i) {
			now := after.Limit(i)
			l.Remaining, l.ResetAfter, l.RetryAfter = now.Remaining, now.ResetAfter, now.RetryAfter
		}
	}
	return true
}

// countsRejected reports whether a limit of a charge counts rejected checks.
func countsRejected(k *arith.Charge) bool {
	for i := range k.Len() {
		for _, l := range k.Key(i).Rule.Limits {
			if l.CountRejected() != limiter.CountNone {
				return true
			}
		}
	}
	return false
}

// changes reports whether a decision changed a counter of a key, and whether it admitted
// something. The key has n limits, the first at index from. A denial that charges
// nothing changes nothing, so a denied client that keeps asking costs no copies; a block
// is copied when it begins. A receipt has room for 64 limits. Limits beyond that count
// as changed if any of the 64 was charged.
func changes(d *limiter.Decision, from, n int) (changed, admitted bool) {
	for j := from; j < from+n; j++ {
		if of := arith.Fields(&d.Receipt); of.Has(j) || j >= 64 && of.Charged != 0 ||
			arith.BlockBegan(d) && d.Limit(j).Blocked {
			changed = true
		}
	}
	return changed, changed && d.Allowed
}

// pointless reports whether a check whose partitions are all owned here, and locked,
// would wait in vain because this node is cut off: its reply would be withheld, and the
// heir's acknowledgement cannot come.
func (d *decider) pointless(t *turn, k *arith.Charge) bool {
	if k.Peek || !t.c.absent.cutOff(t.Now, t.view(), t.c.mesh) {
		return false
	}
	for i := range k.Len() {
		key := k.Key(i)
		if p := d.parts.of(key); p != nil && p.closed && key.Cost > 0 && !p.r.Own().RoomFor(t.inputs(), key) {
			return true
		}
	}
	return false
}

// fast decides a check of one key that this node owns, if the reply need not be
// withheld, without an operation. In every other case it reports false and changes
// nothing.
func (d *decider) fast(t *turn, charge *arith.Charge, answer *limiter.Decision) bool {
	if charge.Len() != 1 || charge.Key(0).Rule == nil {
		return false
	}
	k := charge.Key(0)
	if d.parts.owner(k) != t.c.self {
		return false
	}
	p := d.parts.of(k)
	p.mu.Lock()
	defer p.leave(t)
	t.c.config.fault(p.id)
	if r := &p.r; r.Role() != peer.Owned || r.Own().InDoubt() ||
		charge.ID != nil && (charge.ID.Lent || r.Own().Awaits() || r.Own().Behind()) ||
		!charge.Peek && k.Cost > 0 && !r.Own().RoomFor(t.inputs(), k) {
		return false
	}
	q := route.Request{Wait: replica.Wait{Charge: charge}}
	if d.decide(t, &q, []*partition{p}, answer, nil) != route.Answered {
		return false
	}
	at, _, _ := d.inTheWay(t, charge, answer)
	return at == nil // otherwise nothing has changed, and it may wait
}
