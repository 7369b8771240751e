package cluster

import (
	"github.com/weirlimit/weir/internal/cluster/replica"
	"github.com/weirlimit/weir/internal/peer"
	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/limiter/table"
)

// Deliver processes a frame that arrived. The frame is the caller's again when Deliver
// returns. After [Core.Close] it ignores all frames.
func (c *Core) Deliver(f *peer.Frame) {
	if c.closed.Load() {
		return
	}
	t := c.begin()
	defer t.end()
	defer t.catch()
	if f.To != c.self {
		t.out.Relay(f)
		return
	}
	if f.From == 0 || f.From == c.self {
		return // without a sender, or this node's own, relayed back to it
	}
	c.mesh.Received(f, t.now)
	c.rules.Learn(f.Rules)
	c.deliverControl(t, f)
	c.deliverChecks(t, f)
	c.deliverReplies(t, f)
	if len(f.Known) > 0 {
		c.hearOfMembers(t, f.From, f.Known, !f.Relayed)
	}
	c.deliverNames(f)
}

// at runs f under the lock of a partition, if this core manages it.
func (c *Core) at(t *turn, id uint16, f func(*replica.Replica, *replica.Turn)) {
	if int(id) < len(c.byID) && c.byID[id] != nil {
		c.in(t, c.byID[id], f)
	}
}

// message hands a message to the replica of its partition.
func (c *Core) message(t *turn, from peer.Instance, id uint16, m replica.Message) {
	c.at(t, id, func(r *replica.Replica, s *replica.Turn) { r.Step(s, from, m) })
}

func (c *Core) deliverControl(t *turn, f *peer.Frame) {
	may := c.credible(t.now)
	for i := range f.Announces {
		a := &f.Announces[i]
		if !may.announce(a) {
			c.distrust(f.From, "an announcement")
			continue
		}
		c.message(t, f.From, a.Partition, replica.Message{Announce: a})
	}
	for i := range f.Claims {
		k := &f.Claims[i]
		if !may.claim(k) {
			c.distrust(f.From, "a claim")
			continue
		}
		c.message(t, f.From, k.Partition, replica.Message{Claim: k})
	}
	for i := range f.Answers {
		a := &f.Answers[i]
		if !may.answer(a) {
			c.distrust(f.From, "an answer")
			continue
		}
		c.message(t, f.From, a.Partition, replica.Message{Answer: a})
	}
	for i := range f.Revokes {
		r := &f.Revokes[i]
		if !may.revoke(f.From, r) {
			c.distrust(f.From, "a revocation")
			continue
		}
		c.message(t, f.From, r.Partition, replica.Message{Revoke: r})
	}
	c.deliverBatches(t, f, &may)
	for i := range f.Acks {
		a := &f.Acks[i]
		if !may.ack(a) {
			c.distrust(f.From, "an acknowledgement")
			continue
		}
		c.message(t, f.From, a.Partition, replica.Message{Ack: a})
	}
}

func (c *Core) deliverBatches(t *turn, f *peer.Frame, may *credible) {
	if len(f.Batches) == 0 {
		return
	}
	limits := make([]*limiter.Limit, len(f.Limits))
	for i := range f.Limits {
		l, err := c.rules.Limit(&f.Limits[i])
		if err != nil {
			c.complain("another node's limit cannot be read", err)
			return
		}
		limits[i] = l
	}
	rest, ahead := f.Entries, lookahead{table: c.table, frame: f}
	for i := range f.Batches {
		b := &f.Batches[i]
		ahead.next(int(b.Keys))
		keys, left, ok := t.split(rest, int(b.Keys), limits)
		if !ok {
			return
		}
		rest = left
		if !may.batch(f.From, b) || !may.entries(b.Partition, keys) {
			c.distrust(f.From, "a batch")
			continue
		}
		c.message(t, f.From, b.Partition, replica.Message{Batch: b, Keys: keys})
	}
}

func (c *Core) deliverChecks(t *turn, f *peer.Frame) {
	rest := f.Keys
	t.rule = namedRule{}
	var may credible
	c.prefetch(rest, 0, table.Ahead)
	for i := range f.Checks {
		q := &f.Checks[i]
		if int(q.Keys) > len(rest) {
			return
		}
		keys := rest[:q.Keys]
		c.prefetch(rest, table.Ahead, table.Ahead+int(q.Keys))
		rest = rest[q.Keys:]
		if !may.check(q) || !may.keys(keys) {
			c.distrust(f.From, "a check")
			continue
		}
		c.onCheck(t, f, q, keys)
	}
	for i := range f.Refunds {
		q := &f.Refunds[i]
		if int(q.Keys) > len(rest) {
			return
		}
		keys := rest[:q.Keys]
		rest = rest[q.Keys:]
		if !may.refund(q) || !may.keys(keys) {
			c.distrust(f.From, "a refund")
			continue
		}
		c.onRefund(t, f, q, keys)
	}
}

// chargeOf makes a charge, t.charge, of the keys of a check. known is false if a rule is
// not known here; then the charge is incomplete. rules are the rules applied, one for
// each key, if any of them differs from the one that was asked for; otherwise rules is
// nil.
func (c *Core) chargeOf(t *turn, f *peer.Frame, keys []peer.Key) (rules []*limiter.Rule, known bool) {
	t.charge.Clear()
	for i := range keys {
		k := &keys[i]
		if int(k.Rule) >= len(f.Rules) {
			return nil, false
		}
		if have := &t.rule; have.rule == nil || have.index != k.Rule || have.closed != k.Closed {
			// Most checks of a frame have the same rule as the check before.
			r, same := c.rules.Lookup(&f.Rules[k.Rule], k.Closed)
			*have = namedRule{index: k.Rule, closed: k.Closed, rule: r, same: same}
		}
		r, same := t.rule.rule, t.rule.same
		if r == nil {
			return nil, false
		}
		if !same && rules == nil {
			rules = make([]*limiter.Rule, 0, len(keys))
			for j := range i {
				rules = append(rules, t.charge.Key(j).Rule)
			}
		}
		t.charge.Add(limiter.Key{Hash: limiter.Hash{Hi: k.Hi, Lo: k.Lo}, Rule: r, Cost: k.Cost, Index: k.Index})
		if rules != nil {
			rules = append(rules, r)
		}
	}
	return rules, true
}

func (c *Core) onCheck(t *turn, f *peer.Frame, q *peer.Check, keys []peer.Key) {
	reply := replyTo{to: f.From, id: q.ID}
	rules, known := c.chargeOf(t, f, keys)
	if !known {
		c.refuse(t, reply, peer.Reply{Status: peer.NeedRule})
		return
	}
	reply.rules = rules
	t.charge.Peek = q.Peek
	ask := request{
		Wait:    replica.Wait{Charge: &t.charge, Settles: q.Settles, Sent: q.Sent, Until: t.now + min(limiter.Tick(q.Wait), limiter.Minute)},
		reserve: q.Reserve && !q.Explain, heir: q.Heir, reply: reply,
	}
	if q.Explain {
		ask.kind = opExplain
	}
	var idle *limiter.Decision
	if ask.reserve {
		idle = &t.idle
	}
	switch v, at := c.handle(t, &ask, &t.answer, idle); v {
	case answered:
		c.sendReply(t, ask.reply, &t.answer, idle)
	case notOwner:
		status := peer.NotOwner
		if q.Heir && q.Sent && peer.Instance(at.to.Load()) != c.self {
			status = peer.Alive
		}
		c.refuseFor(t, at, reply, status)
	case overloaded, pointless:
		c.refuse(t, reply, peer.Reply{Status: peer.Overloaded})
	}
}

func (c *Core) onRefund(t *turn, f *peer.Frame, q *peer.Refund, keys []peer.Key) {
	reply := replyTo{to: f.From, id: q.ID}
	if _, known := c.chargeOf(t, f, keys); !known {
		if q.ID != 0 {
			c.refuse(t, reply, peer.Reply{Status: peer.NeedRule})
		}
		return
	}
	wait := replica.Wait{Charge: &t.charge, Sent: q.Sent, Until: t.now + c.config.Deadline}
	ask := request{Wait: wait, kind: opRefund, heir: q.Heir, reply: reply, receipt: limiter.Receipt{
		Epoch: q.Receipt.Epoch.Counter, Time: limiter.Tick(q.Receipt.Time), Charged: q.Receipt.Charged, Set: q.Receipt.Set,
	}}
	switch q.Kind {
	case peer.ResetKeys:
		ask.kind = opReset
	case peer.RefundReserved:
		ask.ends = true
	}
	v, at := c.handle(t, &ask, &t.answer, nil)
	switch {
	case v == answered:
		ask.answer(c, t, &t.answer, nil)
	case q.ID == 0 || v == waiting:
	case v == notOwner:
		status := peer.NotOwner
		if q.Heir && q.Sent && peer.Instance(at.to.Load()) != c.self {
			status = peer.Alive
		}
		c.refuseFor(t, at, reply, status)
	case v == forbidden:
		c.refuse(t, reply, peer.Reply{Status: peer.Forbidden})
	default:
		c.refuse(t, reply, peer.Reply{Status: peer.Overloaded})
	}
}

// attempt is how an operation is sent to a member. id is its number with the number of
// this request, see [inquiry]. sent means that the owner may have executed it, and define
// that the rules are defined too.
type attempt struct {
	id                 uint64
	heir, sent, define bool
}

// send sends an operation to a member, as owner or as heir.
func (o *op) send(t *turn, to peer.Instance, heir bool) {
	o.mu.Lock()
	r := attempt{id: o.id, heir: heir, sent: heir && len(o.sent) > 1, define: o.define}
	if i := o.asked(to); i >= 0 {
		r.id = withTry(r.id, o.sent[i].try)
	}
	o.mu.Unlock()
	o.write(t, to, r)
}

// write puts an attempt into the frame for a member.
func (o *op) write(t *turn, to peer.Instance, r attempt) {
	switch o.kind {
	case opCheck, opExplain:
		t.out.Check(to, o.charge, r.define, peer.Check{
			ID: r.id, Peek: o.charge.Peek, Reserve: o.reserve, Settles: o.reserve, Heir: r.heir, Sent: r.sent, Explain: o.kind == opExplain,
			Wait: uint32(min(max(0, o.until-t.now), limiter.Minute)),
		})
		return
	}
	kind := peer.RefundAll
	switch {
	case o.kind == opReset:
		kind = peer.ResetKeys
	case o.ends:
		kind = peer.RefundReserved
	}
	t.out.Refund(to, o.charge, r.define, peer.Refund{ID: r.id, Kind: kind, Heir: r.heir, Sent: r.sent, Receipt: receiptOut(o.receipt)})
}

func receiptOut(r limiter.Receipt) peer.Receipt {
	return peer.Receipt{Epoch: peer.Epoch{Counter: r.Epoch}, Time: int64(r.Time), Charged: r.Charged, Set: r.Set}
}
