package cluster

import (
	"slices"
	"sync/atomic"

	"github.com/weirlimit/weir/internal/peer"
	"github.com/weirlimit/weir/limiter"
)

type atomicCounter struct{ n atomic.Uint64 }

func (a *atomicCounter) add() uint64 { return a.n.Add(1) }

// replyTo says where an answer goes: to an operation of this node, or to the
// member that asked.
type replyTo struct {
	op *op
	to peer.Instance
	id uint64
	// rules that were applied, where they are not those that were asked for.
	rules []*limiter.Rule
	// unnamed are the keys whose names are missing here.
	unnamed uint32
	// told are the reasons, nil if they were not asked for.
	told []limiter.LimitExplanation
	// provisional tells that the answer is not to be given again.
	provisional bool
}

func (r *replyTo) over() bool { return r.op != nil && r.op.over() }

// parked is a request that waits for a partition to be settled.
type parked struct {
	kind    opKind
	charge  *limiter.Charge
	receipt limiter.Receipt
	reserve bool
	settles bool // the asker says when the reservation ends
	ends    bool // a refund that ends a reservation
	last    bool // it waits no more for charges to be settled
	heir    bool // asked as heir
	sent    bool // the owner may have it
	reply   replyTo
	until   limiter.Tick
	count   int // of counters that a reset forgot
	// waitsUntil is when it waits no longer for charges to be settled, 0 before it does.
	waitsUntil limiter.Tick
}

// verdict is what came of a request at this node.
type verdict uint8

const (
	answered verdict = iota
	withheld
	waiting
	notOwner
	overloaded
	inVain    // it would have to wait, for what cannot come
	forbidden // this node takes no resets from other members
)

// forbids reports whether a request is a reset that another member asks of this node,
// which takes none. It is for whoever holds the key to say: others do not know.
func (c *Core) forbids(q *parked) bool {
	return q.kind == opReset && q.reply.op == nil && c.config.RefuseResets
}

// partsOf returns the partitions of a charge, each once, in the order in which
// they are locked.
func (c *Core) partsOf(k *limiter.Charge, dst []*part) []*part {
	for i := range k.Len() {
		if p := c.part(k.Key(i)); p != nil && !slices.Contains(dst, p) {
			dst = append(dst, p)
		}
	}
	slices.SortFunc(dst, func(a, b *part) int { return int(a.id) - int(b.id) })
	return dst
}

// handle decides a request, or keeps it. It returns the first of the partitions
// that stood in the way, for what it knows of the owner.
func (c *Core) handle(t *turn, q *parked, answer, idle *limiter.Decision) (v verdict, at *part) {
	var buf [4]*part
	parts := c.partsOf(q.charge, buf[:0])
	for _, p := range parts {
		p.mu.Lock()
	}
	defer c.leaveAll(t, parts, &v, &at)
	for _, p := range parts {
		p.fault()
	}
	return c.handleLocked(t, q, parts, answer, idle)
}

func (c *Core) handleLocked(t *turn, q *parked, parts []*part, answer, idle *limiter.Decision) (verdict, *part) {
	for _, p := range parts {
		switch {
		case p.role == peer.Owned:
		case q.ends && p.role != peer.Sealed: // what is here of it is ended
		case p.role == peer.Heir && q.heir && c.forbids(q): // no takeover for that
			return forbidden, p
		case p.role == peer.Sealed, p.role == peer.Heir && q.heir && p.takesOver(t):
			return p.park(t, q), p
		case q.kind == opRefund && slices.ContainsFunc(parts, func(p *part) bool { return p.role == peer.Owned }):
			return answered, nil // void: one node owned them all, and some have changed hands
		default:
			return notOwner, p
		}
	}
	switch q.kind {
	case opRefund:
		if q.ends {
			c.settle(t, q)
		} else if c.current(parts, q.receipt) {
			// Of keys that are not there nothing is to be copied, whoever invents them.
			if c.table.Refund(t.at, q.charge, q.receipt) > 0 {
				c.touched(t, q.charge)
			}
		}
		return answered, nil
	case opReset:
		if c.forbids(q) {
			return forbidden, nil
		}
		if q.count = c.table.Reset(t.at, q.charge); q.count > 0 {
			c.touched(t, q.charge)
		}
		return answered, nil
	}
	if q.kind == opExplain {
		c.explain(t, q, parts, answer)
		return answered, nil
	}
	if len(parts) > 0 && (len(parts[0].own.held) >= maxHeld || c.crowded(&q.reply)) {
		return overloaded, parts[0]
	}
	if c.stuck(t, q.charge) {
		return inVain, parts[0]
	}
	return c.decide(t, q, parts, answer, idle), nil
}

// current tells whether a receipt was given under the present ownership.
func (c *Core) current(parts []*part, r limiter.Receipt) bool {
	for _, p := range parts {
		if r.Epoch < p.own.first || r.Epoch > p.epoch.Counter {
			return false
		}
	}
	return true
}

// touched takes note that keys changed without an admission.
func (c *Core) touched(t *turn, k *limiter.Charge) {
	for i := range k.Len() {
		if p := c.part(k.Key(i)); p != nil && p.own != nil {
			p.charged(t, k.Key(i), 0)
		}
	}
}

// decide decides a check whose partitions are owned here, and locked.
func (c *Core) decide(t *turn, q *parked, parts []*part, answer, idle *limiter.Decision) verdict {
	charge := c.shareOf(q.charge)
	switch p := c.doubtful(t, parts, charge, answer); {
	case p == nil:
		if !c.charge(t, charge, answer, idle) {
			return overloaded
		}
	case p.contend(t, q):
		return waiting
	default:
		c.provisional(t, q, charge, answer)
		if idle != nil {
			*idle = *answer.Clone()
		}
	}
	if charge != q.charge {
		named(q.charge, answer)
		if idle != nil {
			named(q.charge, idle)
		}
		q.charge.Unnamed = charge.Unnamed
	}
	q.reply.unnamed = q.charge.Unnamed
	for i := range answer.Len() {
		answer.Limit(i).Owner = c.config.Self.Name
	}
	if len(parts) > 0 {
		answer.Source = parts[0].source()
		answer.Receipt.Epoch = parts[0].epoch.Counter
	}
	if q.settles && answer.Receipt.Charged != 0 {
		c.reserved(t, q, answer)
	}
	if answer.Allowed && answer.Receipt.Charged == 0 {
		return answered
	}
	var h *held
	n := 0
	for i := range q.charge.Len() {
		k := q.charge.Key(i)
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
			h = p.withhold(t, h, q, stamp, answer, idle)
		}
	}
	if h != nil {
		return withheld
	}
	return answered
}

// charge has the table decide a check, and reports false where it cannot. Of a
// reservation idle says what holds if another part denies: of a limit whose charge is
// taken back then what was there before, of one that counts rejected checks what is
// there now, and the wait of an asker who was denied.
func (c *Core) charge(t *turn, k *limiter.Charge, answer, idle *limiter.Decision) bool {
	if idle == nil {
		return c.table.Decide(t.at, k, answer) == nil
	}
	peek := k.Peek
	defer func() { k.Peek = peek }()
	k.Peek = true
	if c.table.Decide(t.at, k, idle) != nil {
		return false
	}
	k.Peek = peek
	if c.table.Decide(t.at, k, answer) != nil {
		return false
	}
	if !countsRejected(k) || !answer.Allowed {
		return true
	}
	var after limiter.Decision
	k.Peek = true
	if c.table.Decide(t.at, k, &after) != nil {
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

// changes tells whether a decision changed a counter of a key, and whether it
// admitted something there. The key's limits are n, beginning with that of index
// from. A denial that charges nothing changes nothing, so that who is denied and goes
// on asking costs no copies: a block is copied when it begins. A receipt has room for 64
// limits; those beyond count as changed where any of these was charged.
func changes(d *limiter.Decision, from, n int) (changed, admitted bool) {
	for j := from; j < from+n; j++ {
		if d.Receipt.Has(j) || j >= 64 && d.Receipt.Charged != 0 || d.BlockBegan() && d.Limit(j).Blocked {
			changed = true
		}
	}
	return changed, changed && d.Allowed
}

// withhold keeps a reply until the heir knows of the charge, in each partition
// that calls for it.
func (p *part) withhold(t *turn, h *held, q *parked, stamp uint64, answer, idle *limiter.Decision) *held {
	own := p.own
	if h == nil {
		h = &held{charge: q.charge, answer: answer, idle: idle, reply: q.reply, receipt: answer.Receipt, since: t.now, until: q.until}
		if q.reply.op == nil {
			p.c.pending.Add(1)
			h.charge, h.answer = q.charge.Clone(), answer.Clone()
			if idle != nil {
				h.idle = idle.Clone()
			}
		}
	}
	h.waits.Add(1)
	own.held = append(own.held, waiter{held: h, stamp: stamp})
	if own.waitSince == 0 {
		own.waitSince = t.now
	}
	own.hurry(t, p)
	p.watch(t)
	return h
}

// shareOf returns the charge as this node may decide it: an available owner in a
// minority decides with its share.
func (c *Core) shareOf(k *limiter.Charge) *limiter.Charge {
	v := c.view.Load()
	if !v.minority() {
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
		out.Key(i).Rule = c.book.share(key.Rule, uint64(len(v.Members)), uint64(v.Recent))
	}
	if out == nil {
		return k
	}
	return out
}

// named makes a decision name the rules and limits of a charge, where it was
// made with their shares.
func named(k *limiter.Charge, d *limiter.Decision) {
	n := 0
	for i := range k.Len() {
		key := k.Key(i)
		for _, l := range key.Rule.Limits {
			if n < d.Len() {
				d.Limit(n).Rule, d.Limit(n).Limit = key.Rule, l
			}
			n++
		}
	}
}

// refuse says that a request was not executed; p, if it is not nil, is the
// partition that stood in the way, and locked.
func (c *Core) refuse(t *turn, r replyTo, status peer.ReplyStatus, p *part) {
	if r.op == nil && r.id == 0 {
		return // nobody waits
	}
	out := peer.Reply{ID: r.id, Status: status}
	if p != nil {
		out.Owner, out.Partition = p.owner, p.id
	}
	if r.op == nil {
		c.send(t, r.to, 60, false, func(_ *link, f *peer.Frame) { f.Replies = append(f.Replies, out) })
		return
	}
	t.later = append(t.later, func(t *turn) {
		if status == peer.Alive {
			return // its owner has it
		}
		if status == peer.Contested {
			r.op.contest(t)
			return
		}
		if status == peer.NotOwner && out.Owner.Instance != 0 && out.Owner.Instance != c.self {
			r.op.route(t)
			return
		}
		r.op.later(t, retryEvery)
	})
}

// takesOver begins a takeover if there is none, and reports whether one is
// under way; it is asked for when somebody cannot reach the owner.
func (p *part) takesOver(t *turn) bool {
	if p.round != nil && p.round.kind == peer.Takeover {
		return true
	}
	if p.round != nil || p.fresh {
		return false
	}
	if t.now < p.quiet {
		return false
	}
	p.takeOver(t)
	return p.role == peer.Owned || p.round != nil
}

// takeOver claims the partition of an owner that cannot be reached.
func (p *part) takeOver(t *turn) {
	if t.now < p.quiet {
		p.watch(t)
		return
	}
	p.ask(t, peer.Takeover, p.c.self, p.epoch)
}
