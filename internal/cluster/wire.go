package cluster

import (
	"github.com/weirlimit/weir/internal/cluster/mesh"
	"github.com/weirlimit/weir/internal/cluster/replica"
	"github.com/weirlimit/weir/internal/cluster/route"
	"github.com/weirlimit/weir/internal/peer"
	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/limiter/arith"
	"github.com/weirlimit/weir/limiter/table"
)

// intake takes frames in: it checks what they contain, and hands each part to the
// partition, the call or the registry that it is for.
type intake struct {
	parts    partitions
	table    *table.Table
	rules    *mesh.Dictionary
	decider  *decider
	calls    *route.Router
	members  *memberNews
	reports  *reports
	deadline limiter.Tick // of requests without a deadline of their own
	note     func(from peer.Instance, n peer.Note)
}

// frame takes in a frame that is for this node.
func (in *intake) frame(t *turn, f *peer.Frame) {
	in.rules.Learn(f.Rules)
	in.control(t, f)
	in.checks(t, f)
	in.replies(t, f)
	if len(f.Known) > 0 {
		via := f.Via
		if !f.Relayed {
			via = 0
		}
		in.members.hear(t, f.From, f.Known, via)
	}
	if len(f.Expelled) > 0 && !f.Relayed {
		in.members.hearExpelled(t, f.From, f.Expelled)
	}
	in.names(f)
	if in.note != nil && !f.Relayed {
		for i := range f.Notes {
			in.note(f.From, f.Notes[i])
		}
	}
}

// message hands a message to the replica of its partition.
func (in *intake) message(t *turn, from peer.Instance, id uint16, m replica.Message) {
	in.parts.at(t, id, func(r *replica.Replica, s *replica.Step) { r.Step(s, from, m) })
}

// messages hands each message of a kind that may be true to its partition. what names the kind to who reads of the
// others; of returns the partition and what the replica is told.
func messages[T any](in *intake, t *turn, from peer.Instance, list []T, what string, may func(*T) bool,
	of func(*T) (partition uint16, m replica.Message)) {
	for i := range list {
		if !may(&list[i]) {
			in.reports.distrust(from, what)
			continue
		}
		id, m := of(&list[i])
		in.message(t, from, id, m)
	}
}

func (in *intake) control(t *turn, f *peer.Frame) {
	may := credibleAt(t.Now)
	messages(in, t, f.From, f.Announces, "an announcement", may.announce,
		func(a *peer.Announce) (uint16, replica.Message) { return a.Partition, replica.Message{Announce: a} })
	messages(in, t, f.From, f.Claims, "a claim", may.claim,
		func(k *peer.Claim) (uint16, replica.Message) { return k.Partition, replica.Message{Claim: k} })
	messages(in, t, f.From, f.Answers, "an answer", may.answer,
		func(a *peer.Answer) (uint16, replica.Message) { return a.Partition, replica.Message{Answer: a} })
	messages(in, t, f.From, f.Revokes, "a revocation", func(r *peer.Revoke) bool { return may.revoke(f.From, r) },
		func(r *peer.Revoke) (uint16, replica.Message) { return r.Partition, replica.Message{Revoke: r} })
	in.batches(t, f, &may)
	for i := range f.Acks {
		a := &f.Acks[i]
		if next := i + table.Ahead; next < len(f.Acks) {
			in.parts.touch(int(f.Acks[next].Partition))
		}
		if !may.ack(a) {
			in.reports.distrust(f.From, "an acknowledgement")
			continue
		}
		in.message(t, f.From, a.Partition, replica.Message{Ack: a})
	}
}

func (in *intake) batches(t *turn, f *peer.Frame, may *credible) {
	if len(f.Batches) == 0 {
		return
	}
	limits := make([]*limiter.Limit, len(f.Limits))
	for i := range f.Limits {
		l, err := in.rules.Limit(&f.Limits[i])
		if err != nil {
			in.reports.problem("another node's limit cannot be read", err)
			return
		}
		limits[i] = l
	}
	source := in.table.Source(t.view().NameOf(f.From))
	rest, ids, ahead := f.Entries, f.IDs, lookahead{table: in.table, frame: f}
	for i := range f.Batches {
		b := &f.Batches[i]
		if next := i + table.Ahead; next < len(f.Batches) {
			in.parts.touch(int(f.Batches[next].Partition))
		}
		ahead.next(int(b.Keys))
		ahead.nextIDs(i)
		keys, left, ok := t.scratch.split(rest, int(b.Keys), limits, source)
		if !ok {
			return
		}
		if int(b.IDs) > len(ids) {
			return
		}
		came := t.scratch.idsOf(ids[:b.IDs])
		rest, ids = left, ids[b.IDs:]
		if !may.batch(f.From, b) || !may.entries(b.Partition, keys) {
			in.reports.distrust(f.From, "a batch")
			continue
		}
		in.message(t, f.From, b.Partition, replica.Message{Batch: b, Keys: keys, IDs: came, Source: source})
	}
}

func (in *intake) checks(t *turn, f *peer.Frame) {
	rest, traces, holds := f.Keys, f.Traces, f.Holds
	t.asked.rule = namedRule{}
	var may credible
	in.prefetch(rest, 0, table.Ahead)
	for i := range f.Checks {
		q := &f.Checks[i]
		if int(q.Keys) > len(rest) {
			return
		}
		keys := rest[:q.Keys]
		in.prefetch(rest, table.Ahead, table.Ahead+int(q.Keys))
		rest = rest[q.Keys:]
		var trace *peer.Trace
		if len(traces) > 0 && traces[0].ID == q.ID {
			trace, traces = &traces[0], traces[1:]
		}
		var hold *peer.Hold
		hold, holds = holdOf(q.ID, holds)
		if !may.check(q) || !may.keys(keys) || !may.held(q, hold) {
			in.reports.distrust(f.From, "a check")
			continue
		}
		in.check(t, f, q, keys, trace, hold)
	}
	for i := range f.Refunds {
		q := &f.Refunds[i]
		if int(q.Keys) > len(rest) {
			return
		}
		keys := rest[:q.Keys]
		rest = rest[q.Keys:]
		var hold *peer.Hold
		hold, holds = holdOf(q.ID, holds)
		if !may.refund(q) || !may.keys(keys) || !may.amendment(q, hold) {
			in.reports.distrust(f.From, "a refund")
			continue
		}
		in.refund(t, f, q, keys, hold)
	}
}

// holdOf returns what the request with a number says of a reservation, and the others; nil if
// it says nothing.
func holdOf(number uint64, holds []peer.Hold) (*peer.Hold, []peer.Hold) {
	if len(holds) == 0 || holds[0].ID != number {
		return nil, holds
	}
	return &holds[0], holds[1:]
}

// chargeOf makes a charge, t.asked.charge, of the keys of a check. known is false if a rule is
// not known here; then the charge is incomplete. rules are the rules applied, one for
// each key, if any of them differs from the one that was asked for; otherwise rules is
// nil.
func (in *intake) chargeOf(t *turn, f *peer.Frame, keys []peer.Key) (rules []*limiter.Rule, known bool) {
	t.asked.charge.Clear()
	for i := range keys {
		k := &keys[i]
		if int(k.Rule) >= len(f.Rules) {
			return nil, false
		}
		if have := &t.asked.rule; have.rule == nil || have.index != k.Rule || have.closed != k.Closed {
			// Most checks of a frame have the same rule as the check before.
			r, same := in.rules.Lookup(&f.Rules[k.Rule], k.Closed)
			*have = namedRule{index: k.Rule, closed: k.Closed, rule: r, same: same}
		}
		r, same := t.asked.rule.rule, t.asked.rule.same
		if r == nil {
			return nil, false
		}
		if !same && rules == nil {
			rules = make([]*limiter.Rule, 0, len(keys))
			for j := range i {
				rules = append(rules, t.asked.charge.Key(j).Rule)
			}
		}
		t.asked.charge.Add(arith.Key{Hash: arith.Hash{Hi: k.Hi, Lo: k.Lo}, Rule: r, Cost: k.Cost, Index: k.Index, By: k.By})
		if rules != nil {
			rules = append(rules, r)
		}
	}
	return rules, true
}

func (in *intake) check(t *turn, f *peer.Frame, q *peer.Check, keys []peer.Key, trace *peer.Trace, hold *peer.Hold) {
	reply := route.ReplyTo{To: f.From, ID: q.ID}
	rules, known := in.chargeOf(t, f, keys)
	if trace != nil {
		reply.Traced = t.traces(&t.asked.charge, trace)
	}
	if !known {
		t.refuse(reply, peer.Reply{Status: peer.NeedRule})
		return
	}
	reply.Rules = rules
	t.asked.charge.Peek = q.Peek
	t.asked.once(q.ChargeID, limiter.Tick(q.Life).Duration())
	if hold != nil {
		t.asked.id.Hold, t.asked.id.Keep, t.asked.id.Lent = limiter.Tick(hold.Span).Duration(), hold.Keep, hold.Lent
		t.asked.id.Shape, t.asked.id.Rate, t.asked.id.Fast = arith.Shape(hold.Shape), hold.Rate, hold.Fast
	}
	ask := route.Request{
		Wait: replica.Wait{Charge: &t.asked.charge, Settles: q.Settles, Final: q.Final, Sent: q.Sent,
			Until: t.Now + min(limiter.Tick(q.Wait), limiter.Minute)},
		Prepare: q.Prepare && !q.Explain, Heir: q.Heir, Reply: reply,
	}
	if q.Explain {
		ask.Kind = route.KindExplain
	}
	var idle *limiter.Decision
	if ask.Prepare {
		idle = &t.asked.idle
	}
	v, at := in.decider.handle(t, &ask, &t.asked.answer, idle)
	if v == route.Answered {
		t.reply(ask.Reply, &t.asked.answer, idle)
	}
	unexecuted(t, v, at, q.Heir && q.Sent, reply)
}

// unexecuted refuses a request for the reason of a verdict, if that is one. again reports that this node is asked as
// heir for what another may have executed.
func unexecuted(t *turn, v route.Verdict, at *partition, again bool, reply route.ReplyTo) {
	switch v {
	case route.NotOwner:
		status := peer.NotOwner
		if again && peer.Instance(at.to.Load()) != t.c.self {
			status = peer.Alive
		}
		t.refuseFor(at, reply, status)
	case route.AtGiver:
		t.refuseFor(at, reply, peer.Alive)
	case route.Forbidden:
		t.refuse(reply, peer.Reply{Status: peer.Forbidden})
	case route.Overloaded, route.Pointless:
		t.refuse(reply, peer.Reply{Status: peer.Overloaded})
	}
}

func (in *intake) refund(t *turn, f *peer.Frame, q *peer.Refund, keys []peer.Key, hold *peer.Hold) {
	if q.Kind == peer.RecallLease {
		in.calls.Leases.Recall(&t.Turn, q.ChargeID)
		return
	}
	reply := route.ReplyTo{To: f.From, ID: q.ID}
	if _, known := in.chargeOf(t, f, keys); !known {
		if q.ID != 0 {
			t.refuse(reply, peer.Reply{Status: peer.NeedRule})
		}
		return
	}
	wait := replica.Wait{Charge: &t.asked.charge, Sent: q.Sent, Until: t.Now + in.deadline}
	receipt := arith.NewReceipt(arith.ReceiptFields{
		Epoch: q.Receipt.Epoch.Counter, Time: limiter.Tick(q.Receipt.Time), Charged: q.Receipt.Charged, Set: q.Receipt.Set,
		Once: q.Once,
	})
	ask := route.Request{Wait: wait, Kind: route.KindRefund, Heir: q.Heir, Reply: reply, Receipt: receipt}
	switch q.Kind {
	case peer.RefundLeased:
		in.calls.Leases.Refunded(&t.Turn, t.asked.charge.Clone(), ask.Receipt, func(route.Outcome) {})
		return
	case peer.ResetKeys:
		ask.Kind = route.KindReset
	case peer.RefundReserved:
		ask.Ends, ask.Denied = true, q.Denied
	}
	t.asked.once(q.ChargeID, (in.deadline + limiter.Second).Duration()) // that of a reset: longer than it is asked for
	if hold != nil {
		ask.Kind = route.KindAmend
		ask.Amend = limiter.Amend{Extend: hold.Extend, IgnoreUnknown: hold.Ignore, Named: hold.Named, Lacks: hold.Lacks,
			Lent: hold.Lent}
		t.asked.id.Life, t.asked.id.Hold = limiter.Tick(hold.Life).Duration(), limiter.Tick(hold.Span).Duration()
		if hold.Back {
			ask.Back = &table.Extension{End: limiter.Tick(hold.End), WasEnd: limiter.Tick(hold.WasEnd),
				Was: t.asked.charge.Key(0).Cost}
		}
	}
	v, at := in.decider.handle(t, &ask, &t.asked.answer, nil)
	if v == route.Answered {
		t.respond(&ask, &t.asked.answer, nil)
	} else if q.ID != 0 {
		unexecuted(t, v, at, q.Heir && q.Sent, reply)
	}
}

// replies hands replies to the calls that wait for them.
func (in *intake) replies(t *turn, f *peer.Frame) {
	rest, amended := f.Results, f.Amended
	from := ""
	if m := t.view().Member(f.From); m != nil && len(f.Replies) > 0 {
		from = m.Name
	}
	var may credible
	if len(f.Replies) > 0 {
		may = credibleAt(t.Now)
	}
	for i := range f.Replies {
		r := &f.Replies[i]
		if next := i + table.Ahead; next < len(f.Replies) {
			in.calls.Touch(f.Replies[next].ID)
		}
		n := int(r.Results)
		if r.Idle {
			n *= 2
		}
		if n > len(rest) {
			return
		}
		results := rest[:n]
		rest = rest[n:]
		var done *peer.Amended
		if len(amended) > 0 && amended[0].ID == r.ID {
			done, amended = &amended[0], amended[1:]
		}
		call := in.calls.Find(r.ID)
		if call == nil {
			continue
		}
		if !may.reply(r) || !may.results(results) || !may.amended(done) {
			in.reports.distrust(f.From, "a reply")
			continue
		}
		call.Reply(&t.Turn, f, from, r, results, done)
	}
}
