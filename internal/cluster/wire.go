package cluster

import (
	"github.com/weirlimit/weir/internal/cluster/replica"
	"github.com/weirlimit/weir/internal/cluster/route"
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
	defer t.Catch()
	if f.To != c.self {
		t.Out.Relay(f)
		return
	}
	if f.From == 0 || f.From == c.self {
		return // without a sender, or this node's own, relayed back to it
	}
	c.mesh.Received(f, t.Now)
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
	may := c.credible(t.Now)
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
	reply := route.ReplyTo{To: f.From, ID: q.ID}
	rules, known := c.chargeOf(t, f, keys)
	if !known {
		c.refuse(t, reply, peer.Reply{Status: peer.NeedRule})
		return
	}
	reply.Rules = rules
	t.charge.Peek = q.Peek
	ask := route.Request{
		Wait:    replica.Wait{Charge: &t.charge, Settles: q.Settles, Sent: q.Sent, Until: t.Now + min(limiter.Tick(q.Wait), limiter.Minute)},
		Reserve: q.Reserve && !q.Explain, Heir: q.Heir, Reply: reply,
	}
	if q.Explain {
		ask.Kind = route.KindExplain
	}
	var idle *limiter.Decision
	if ask.Reserve {
		idle = &t.idle
	}
	switch v, at := c.handle(t, &ask, &t.answer, idle); v {
	case route.Answered:
		c.sendReply(t, ask.Reply, &t.answer, idle)
	case route.NotOwner:
		status := peer.NotOwner
		if q.Heir && q.Sent && peer.Instance(at.to.Load()) != c.self {
			status = peer.Alive
		}
		c.refuseFor(t, at, reply, status)
	case route.Overloaded, route.Pointless:
		c.refuse(t, reply, peer.Reply{Status: peer.Overloaded})
	}
}

func (c *Core) onRefund(t *turn, f *peer.Frame, q *peer.Refund, keys []peer.Key) {
	reply := route.ReplyTo{To: f.From, ID: q.ID}
	if _, known := c.chargeOf(t, f, keys); !known {
		if q.ID != 0 {
			c.refuse(t, reply, peer.Reply{Status: peer.NeedRule})
		}
		return
	}
	wait := replica.Wait{Charge: &t.charge, Sent: q.Sent, Until: t.Now + c.config.Deadline}
	ask := route.Request{Wait: wait, Kind: route.KindRefund, Heir: q.Heir, Reply: reply, Receipt: limiter.Receipt{
		Epoch: q.Receipt.Epoch.Counter, Time: limiter.Tick(q.Receipt.Time), Charged: q.Receipt.Charged, Set: q.Receipt.Set,
	}}
	switch q.Kind {
	case peer.ResetKeys:
		ask.Kind = route.KindReset
	case peer.RefundReserved:
		ask.Ends = true
	}
	v, at := c.handle(t, &ask, &t.answer, nil)
	switch {
	case v == route.Answered:
		c.answer(t, &ask, &t.answer, nil)
	case q.ID == 0 || v == route.Kept:
	case v == route.NotOwner:
		status := peer.NotOwner
		if q.Heir && q.Sent && peer.Instance(at.to.Load()) != c.self {
			status = peer.Alive
		}
		c.refuseFor(t, at, reply, status)
	case v == route.Forbidden:
		c.refuse(t, reply, peer.Reply{Status: peer.Forbidden})
	default:
		c.refuse(t, reply, peer.Reply{Status: peer.Overloaded})
	}
}
