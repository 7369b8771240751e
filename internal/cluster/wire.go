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
		c.relay(t, f)
		return
	}
	if f.From == 0 || f.From == c.self {
		return // without a sender, or this node's own, relayed back to it
	}
	l := c.link(f.From)
	l.mu.Lock()
	l.confirmed(f, t.now)
	if f.Relayed {
		l.via = f.Via
	} else {
		l.heardAt = t.now
	}
	l.mu.Unlock()
	c.book.learn(f.Rules)
	c.deliverControl(t, f)
	c.deliverChecks(t, f)
	c.deliverReplies(t, f)
	if len(f.Known) > 0 {
		c.hearOfMembers(t, f.From, f.Known, !f.Relayed)
	}
	c.deliverNames(f)
}

// relay forwards a frame to the member it is for. A frame is relayed once only. If there
// is no good connection, or no room, the sender learns that its checks and refunds are
// lost.
func (c *Core) relay(t *turn, f *peer.Frame) {
	if f.Relayed {
		return
	}
	ok := false
	if l := c.links.Load().byID[f.To]; l != nil {
		l.mu.Lock()
		size := weight(f)
		ok = l.up && !l.suspect && len(l.relayed) < maxRelayed && l.relayedSize+size <= maxRelayedSize
		if ok {
			g := f.Clone()
			g.Relayed, g.Via = true, c.self
			l.relayed = append(l.relayed, g)
			l.relayedSize += size
			t.wake(l)
		}
		l.mu.Unlock()
	}
	if !ok {
		c.sendLost(t, f)
	}
}

// weight returns roughly how many bytes of memory a frame takes.
func weight(f *peer.Frame) int {
	n := 1<<10 + 128*(len(f.Claims)+len(f.Answers)+len(f.Announces)+len(f.Revokes)+len(f.Batches)+len(f.Acks)+
		len(f.Checks)+len(f.Keys)+len(f.Refunds)+len(f.Replies)+len(f.Results)+len(f.Limits)+len(f.Known)+len(f.Entries))
	for i := range f.Entries {
		n += 8 * len(f.Entries[i].Words)
	}
	for i := range f.Rules {
		n += 128 * (1 + len(f.Rules[i].Limits))
	}
	for i := range f.Names {
		n += 64 + len(f.Names[i].Text)
	}
	for i := range f.Explained {
		for j := range f.Explained[i].Limits {
			l := &f.Explained[i].Limits[j]
			n += 128 + len(l.Arithmetic) + 64*len(l.State) + 24*len(l.Counts)
		}
	}
	return n
}

// sendLost tells the sender of a frame that its checks and refunds were not forwarded,
// so that it can ask another member.
func (c *Core) sendLost(t *turn, f *peer.Frame) {
	if len(f.Checks)+len(f.Refunds) == 0 {
		return
	}
	c.send(t, f.From, 40*(len(f.Checks)+len(f.Refunds)), false, func(_ *link, g *peer.Frame) {
		lost := func(id uint64) {
			g.Replies = append(g.Replies, peer.Reply{ID: id, Status: peer.Lost, Owner: peer.Epoch{Instance: f.To}})
		}
		for i := range f.Checks {
			lost(f.Checks[i].ID)
		}
		for i := range f.Refunds {
			if f.Refunds[i].ID != 0 {
				lost(f.Refunds[i].ID)
			}
		}
	})
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
		l, err := c.book.limit(&f.Limits[i])
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
			r, same := c.ruleOf(&f.Rules[k.Rule], k.Closed)
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
	ask := parked{
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
	case overloaded, inVain:
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
	ask := parked{Wait: wait, kind: opRefund, heir: q.Heir, reply: reply, receipt: limiter.Receipt{
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

// sendOp sends an operation to a member, as owner or as heir.
func (c *Core) sendOp(t *turn, o *op, to peer.Instance, heir bool) {
	o.mu.Lock()
	define := o.define
	sent := heir && len(o.sent) > 1
	id := o.id
	if i := o.asked(to); i >= 0 {
		id = withTry(id, o.sent[i].try)
	}
	o.mu.Unlock()
	l := t.to(to)
	l.mu.Lock()
	defer l.mu.Unlock()
	c.addOp(t, l, o, id, heir, sent, define)
}

// addOp appends an operation to the frame of checks for a member. id is its number with
// the number of this request, see [inquiry]. l.mu is held.
func (c *Core) addOp(t *turn, l *link, o *op, id uint64, heir, sent, define bool) {
	if l.checks != nil && len(l.checks.Checks) >= maxChecks {
		l.closeChecks()
	}
	if l.checks == nil {
		l.checks = c.frame(l.to)
		l.rule = nil
	}
	f := l.checks
	keys := f.Keys // stored in the frame when complete, so that a panic leaves no keys without their check
	for i := range o.charge.Len() {
		k := o.charge.Key(i)
		keys = append(keys, peer.Key{
			Hi: k.Hash.Hi, Lo: k.Hash.Lo, Rule: l.ruleIndex(f, k.Rule, define),
			Closed: k.Rule.Class() == limiter.Closed, Index: k.Index, Cost: k.Cost,
		})
	}
	f.Keys = keys
	n := uint8(o.charge.Len())
	switch o.kind {
	case opCheck, opExplain:
		f.Checks = append(f.Checks, peer.Check{
			ID: id, Keys: n, Peek: o.charge.Peek, Reserve: o.reserve, Settles: o.reserve, Heir: heir, Sent: sent, Explain: o.kind == opExplain,
			Wait: uint32(min(max(0, o.until-t.now), limiter.Minute)),
		})
	default:
		kind := peer.RefundAll
		switch {
		case o.kind == opReset:
			kind = peer.ResetKeys
		case o.ends:
			kind = peer.RefundReserved
		}
		f.Refunds = append(f.Refunds, peer.Refund{ID: id, Keys: n, Kind: kind, Heir: heir, Sent: sent, Receipt: receiptOut(o.receipt)})
		// The keys of refunds follow those of checks.
		l.closeChecks()
	}
	l.asks = true
	t.wake(l)
}

// ruleIndex is the function ruleIndex for the frame of checks. It remembers the last
// rule. l.mu is held.
func (l *link) ruleIndex(f *peer.Frame, r *limiter.Rule, define bool) uint16 {
	if define {
		return ruleIndex(f, r, true)
	}
	if l.rule != r {
		l.rule, l.ruleAt = r, ruleIndex(f, r, false)
	}
	return l.ruleAt
}

func receiptOut(r limiter.Receipt) peer.Receipt {
	return peer.Receipt{Epoch: peer.Epoch{Counter: r.Epoch}, Time: int64(r.Time), Charged: r.Charged, Set: r.Set}
}

// ruleIndex returns the index of a rule in a frame, and appends the rule if necessary.
// With define it appends the whole definition, otherwise only name and ID.
func ruleIndex(f *peer.Frame, r *limiter.Rule, define bool) uint16 {
	id := r.ID()
	for i := len(f.Rules) - 1; i >= 0; i-- {
		if f.Rules[i].ID == id && (f.Rules[i].Defined || !define) {
			return uint16(i)
		}
	}
	f.Rules = append(f.Rules, ruleToPeer(r, id, define))
	return uint16(len(f.Rules) - 1)
}
