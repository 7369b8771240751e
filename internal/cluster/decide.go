package cluster

import (
	"slices"

	"github.com/weirlimit/weir/internal/cluster/replica"
	"github.com/weirlimit/weir/internal/cluster/route"
	"github.com/weirlimit/weir/internal/peer"
	"github.com/weirlimit/weir/limiter"
)

// forbids reports whether a request is a reset by another member and this node refuses
// those. Only the member that holds the key decides that.
func (c *Core) forbids(q *route.Request) bool {
	return q.Kind == route.KindReset && q.Reply.Call == nil && c.config.RefuseResets
}

// partsOf appends the partitions of a charge to dst, each once, in the order in which
// they must be locked.
func (c *Core) partsOf(k *limiter.Charge, dst []*part) []*part {
	for i := range k.Len() {
		if p := c.part(k.Key(i)); p != nil && !slices.Contains(dst, p) {
			dst = append(dst, p)
		}
	}
	slices.SortFunc(dst, func(a, b *part) int { return int(a.id) - int(b.id) })
	return dst
}

// handle decides a request or keeps it. It also returns the first partition that stood
// in the way, whose owner the caller can name; nil if none did.
func (c *Core) handle(t *turn, q *route.Request, answer, idle *limiter.Decision) (v route.Verdict, at *part) {
	var buf [4]*part
	parts := c.partsOf(q.Charge, buf[:0])
	for _, p := range parts {
		p.mu.Lock()
	}
	defer c.leaveAll(t, parts, &v, &at)
	for _, p := range parts {
		c.fault(p.id)
	}
	return c.handleLocked(t, q, parts, answer, idle)
}

func (c *Core) handleLocked(t *turn, q *route.Request, parts []*part, answer, idle *limiter.Decision) (route.Verdict, *part) {
	for _, p := range parts {
		switch role := p.r.Role(); {
		case role == peer.Owned:
		case q.Ends && role != peer.Sealed: // what this node has of the reservation is ended
		case role == peer.Heir && q.Heir && c.forbids(q): // a refused reset is no reason for a takeover
			return route.Forbidden, p
		case role == peer.Sealed, role == peer.Heir && q.Heir && p.takesOver(t):
			return c.park(t, p, q), p
		case q.Kind == route.KindRefund && slices.ContainsFunc(parts, func(p *part) bool { return p.r.Role() == peer.Owned }):
			return route.Answered, nil // void: one node owned all keys, and some have a new owner
		default:
			return route.NotOwner, p
		}
	}
	switch q.Kind {
	case route.KindRefund:
		if q.Ends {
			c.settle(t, q)
		} else if c.current(parts, q.Receipt) {
			// Refunds of keys that have no counter are not copied, so invented keys cost
			// no copies.
			if c.table.Refund(t.At, q.Charge, q.Receipt) > 0 {
				c.touched(t, q.Charge)
			}
		}
		return route.Answered, nil
	case route.KindReset:
		if c.forbids(q) {
			return route.Forbidden, nil
		}
		if q.Count = c.table.Reset(t.At, q.Charge); q.Count > 0 {
			c.touched(t, q.Charge)
		}
		return route.Answered, nil
	}
	if q.Kind == route.KindExplain {
		c.explain(t, q, parts, answer)
		return route.Answered, nil
	}
	if len(parts) > 0 && (parts[0].r.Congested() || c.crowded(&q.Reply)) {
		return route.Overloaded, parts[0]
	}
	if c.pointless(t, q.Charge) {
		return route.Pointless, parts[0]
	}
	return c.decide(t, q, parts, answer, idle), nil
}

// current reports whether a receipt was given under the present ownership of all
// partitions.
func (c *Core) current(parts []*part, r limiter.Receipt) bool {
	for _, p := range parts {
		if !p.r.Issued(r) {
			return false
		}
	}
	return true
}

// touched records that keys changed without an admission.
func (c *Core) touched(t *turn, k *limiter.Charge) {
	for i := range k.Len() {
		if p := c.part(k.Key(i)); p != nil && p.r.Owns() {
			p.charged(t, k.Key(i), 0)
		}
	}
}

// decide decides a check whose partitions this node owns and has locked.
func (c *Core) decide(t *turn, q *route.Request, parts []*part, answer, idle *limiter.Decision) route.Verdict {
	charge := c.shareOf(q.Charge)
	switch p := c.doubtful(t, parts, charge, answer); {
	case p == nil:
		if !c.charge(t, charge, answer, idle) {
			return route.Overloaded
		}
	case c.contend(t, p, q):
		return route.Kept
	default:
		c.provisional(t, q, charge, answer)
		if idle != nil {
			*idle = *answer.Clone()
		}
	}
	if charge != q.Charge {
		route.Relabel(q.Charge, answer)
		if idle != nil {
			route.Relabel(q.Charge, idle)
		}
		q.Charge.Unnamed = charge.Unnamed
	}
	q.Reply.Unnamed = q.Charge.Unnamed
	for i := range answer.Len() {
		answer.Limit(i).Owner = c.config.Self.Name
	}
	if len(parts) > 0 {
		answer.Source = parts[0].r.Source(t.inputs())
		answer.Receipt.Epoch = parts[0].r.Counter()
	}
	if q.Settles && answer.Receipt.Charged != 0 {
		c.reserved(t, q, answer)
	}
	if answer.Allowed && answer.Receipt.Charged == 0 {
		return route.Answered
	}
	var h *withheldReply
	n := 0
	for i := range q.Charge.Len() {
		k := q.Charge.Key(i)
		changed, admitted := changes(answer, n, len(k.Rule.Limits))
		n += len(k.Rule.Limits)
		if !changed {
			continue
		}
		cost := uint64(0)
		if admitted {
			cost = uint64(k.Cost)
		}
		p := c.part(k)
		if stamp, wait := p.charged(t, k, cost); wait {
			h = c.withhold(t, p, h, q, stamp, answer, idle)
		}
	}
	if h != nil {
		return route.Withheld
	}
	return route.Answered
}

// charge decides a check in the table. It reports false if the table cannot. For a
// reservation it also fills idle, the answer if another part denies. For a limit whose
// charge would be taken back, idle has the state before the check. For a limit that
// counts rejected checks, it has the state after it, and the wait for a denied asker.
func (c *Core) charge(t *turn, k *limiter.Charge, answer, idle *limiter.Decision) bool {
	if idle == nil {
		return c.table.Decide(t.At, k, answer) == nil
	}
	peek := k.Peek
	defer func() { k.Peek = peek }()
	k.Peek = true
	if c.table.Decide(t.At, k, idle) != nil {
		return false
	}
	k.Peek = peek
	if c.table.Decide(t.At, k, answer) != nil {
		return false
	}
	if !countsRejected(k) || !answer.Allowed {
		return true
	}
	var after limiter.Decision
	k.Peek = true
	if c.table.Decide(t.At, k, &after) != nil {
		return false
	}
	for i := range idle.Len() {
		if l := idle.Limit(i); l.Limit.CountRejected() != limiter.CountNone && answer.Receipt.Has(i) {
			now := after.Limit(i)
			l.Remaining, l.ResetAfter, l.RetryAfter = now.Remaining, now.ResetAfter, now.RetryAfter
		}
	}
	return true
}

// countsRejected reports whether a limit of a charge counts rejected checks.
func countsRejected(k *limiter.Charge) bool {
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
		if d.Receipt.Has(j) || j >= 64 && d.Receipt.Charged != 0 || limiter.BlockBegan(d) && d.Limit(j).Blocked {
			changed = true
		}
	}
	return changed, changed && d.Allowed
}

// withhold keeps a reply until the heir has the charge. Each partition that must wait
// keeps the same reply.
func (c *Core) withhold(t *turn, p *part, h *withheldReply, q *route.Request, stamp uint64, answer, idle *limiter.Decision) *withheldReply {
	if h == nil {
		h = &withheldReply{answer: answer, idle: idle, reply: q.Reply}
		h.Withheld = replica.Withheld{Charge: q.Charge, Receipt: answer.Receipt, Since: t.Now, Until: q.Until}
		if q.Reply.Call == nil {
			c.pending.Add(1)
			h.Charge, h.answer = q.Charge.Clone(), answer.Clone()
			if idle != nil {
				h.idle = idle.Clone()
			}
		}
	}
	h.waits.Add(1)
	p.r.Withhold(t.inputs(), h, stamp)
	p.apply(t)
	return h
}

// charged records that a decision changed a key of a partition, which is locked and
// owned, see [replica.Replica.Charged].
func (p *part) charged(t *turn, k *limiter.Key, cost uint64) (stamp uint64, wait bool) {
	stamp, wait = p.r.Charged(t.inputs(), k, cost)
	p.apply(t)
	return stamp, wait
}

// takesOver starts a takeover of a partition, which is locked, if none is under way. It
// reports whether one is.
func (p *part) takesOver(t *turn) bool {
	over := p.r.TakesOver(t.inputs())
	p.apply(t)
	return over
}

// shareOf returns the charge with the limits that this node may apply: an available
// owner in a minority applies its share of them. It returns k itself if nothing changes.
func (c *Core) shareOf(k *limiter.Charge) *limiter.Charge {
	v := c.view.Load()
	if !v.Minority() {
		return k
	}
	var out *limiter.Charge
	for i := range k.Len() {
		key := k.Key(i)
		if key.Rule.OnUnreachable != limiter.UnreachableLocal {
			continue
		}
		if out == nil {
			out = k.Clone()
		}
		out.Key(i).Rule = c.calls.Share(key.Rule, uint64(len(v.Members)), uint64(v.Recent))
	}
	if out == nil {
		return k
	}
	return out
}

// refuse tells the asker that its request was not executed. out has the status, and the
// owner of the partition that stood in the way, if there is one.
func (c *Core) refuse(t *turn, r route.ReplyTo, out peer.Reply) {
	if r.Call == nil && r.ID == 0 {
		return // no one waits
	}
	out.ID = r.ID
	if r.Call == nil {
		t.Out.Status(r.To, out)
		return
	}
	t.later = append(t.later, func(t *turn) {
		if out.Status == peer.Alive {
			return // its owner may have executed it, and will answer
		}
		if out.Status == peer.Contested {
			r.Call.Contest(&t.Turn)
			return
		}
		if out.Status == peer.NotOwner && out.Owner.Instance != 0 && out.Owner.Instance != c.self {
			r.Call.Route(&t.Turn)
			return
		}
		r.Call.Retry(&t.Turn)
	})
}

// refuseFor refuses a request because of a partition, whose owner is named. It takes the
// partition's lock.
func (c *Core) refuseFor(t *turn, p *part, r route.ReplyTo, status peer.ReplyStatus) {
	c.in(t, p, func(m *replica.Replica, _ *replica.Turn) {
		c.refuse(t, r, peer.Reply{Status: status, Owner: m.Owner(), Partition: p.id})
	})
}
