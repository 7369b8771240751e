package cluster

import (
	"math"

	"github.com/weirlimit/weir/internal/cluster/mesh"
	"github.com/weirlimit/weir/internal/cluster/replica"
	"github.com/weirlimit/weir/internal/cluster/route"
	"github.com/weirlimit/weir/internal/peer"
	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/limiter/arith"
)

// respond sends another member the result of its request.
func (t *turn) respond(q *route.Request, answer, idle *limiter.Decision) {
	switch q.Kind {
	case route.KindCheck, route.KindExplain:
		t.reply(q.Reply, answer, idle)
	default:
		t.done(q.Reply, q.Outcome)
	}
}

// done tells the member that asked that a reset, a refund or an amendment is done, with its
// outcome.
func (t *turn) done(r route.ReplyTo, x route.Outcome) {
	if r.ID == 0 {
		return
	}
	out := peer.Reply{ID: r.ID, Status: peer.Done, Count: uint32(x.Counters)}
	if x.Amended != nil {
		t.Out.Amended(r.To, out, route.AmendedOut(r.ID, &x))
		return
	}
	t.Out.Status(r.To, out)
}

// reply sends a decision to the member that asked.
func (t *turn) reply(r route.ReplyTo, answer, idle *limiter.Decision) {
	if r.Traced != nil {
		r.Traced()
	}
	out := peer.Reply{
		ID: r.ID, Heir: answer.Source == limiter.SourceHeir, Idle: idle != nil, Results: uint16(answer.Len()),
		Receipt: mesh.Receipt(answer.Receipt, t.c.self), Unnamed: r.Unnamed, Known: r.Known, Provisional: r.Provisional,
		Repeated: answer.Repeated, Count: uint32(min(answer.Remarks().Assigned, math.MaxUint32)),
	}
	if r.Rules == nil && r.Reasons == nil {
		t.Out.Reply(r.To, out, answer, idle)
		return
	}
	var reasons *peer.Explanation
	if r.Reasons != nil {
		reasons = new(reasonsOut(r.ID, r.Reasons))
	}
	t.Out.ReplyWith(r.To, out, answer, idle, r.Rules, reasons, sizeOf(r.Reasons))
}

// refuse tells the asker that its request was not executed. out has the status, and the
// owner of the partition that stood in the way, if there is one.
func (t *turn) refuse(r route.ReplyTo, out peer.Reply) {
	if r.Call == nil && r.ID == 0 {
		return // no one waits
	}
	if r.Traced != nil {
		r.Traced()
	}
	out.ID = r.ID
	if r.Call == nil {
		t.Out.Status(r.To, out)
		return
	}
	t.later = append(t.later, func(t *turn) {
		if out.Status == peer.Alive && out.Owner.Instance != t.c.self {
			return // its owner may have executed it, and will answer
		}
		if out.Status == peer.Contested {
			r.Call.Contest(&t.Turn)
			return
		}
		if out.Status == peer.NotOwner && out.Owner.Instance != 0 && out.Owner.Instance != t.c.self {
			r.Call.Route(&t.Turn)
			return
		}
		r.Call.Retry(&t.Turn)
	})
}

// expired refuses a request of another member that has waited here until its deadline. Its asker may have
// a later one: of a reset, which has that of its own node, or of a late cancel.
func (t *turn) expired(q *route.Request) {
	if q.Reply.Call == nil {
		t.refuse(q.Reply, peer.Reply{Status: peer.Overloaded})
	}
}

// refuseFor refuses a request because of a partition, whose owner is named. It takes the
// partition's lock.
func (t *turn) refuseFor(p *partition, r route.ReplyTo, status peer.ReplyStatus) {
	p.run(t, func(m *replica.Replica, _ *replica.Step) {
		t.refuse(r, peer.Reply{Status: status, Owner: m.Owner(), Partition: p.id})
	})
}

// limitsOf returns how many limits of a key an answer has: none if it leaves out the key.
func limitsOf(answer *limiter.Decision, key int) (n int) {
	for i := range answer.Len() {
		if answer.Limit(i).Key == key {
			n++
		}
	}
	return n
}

// leftOut returns the keys of a denied check that its answer leaves out, since the check's id is
// remembered for them, one bit each. It removes their limits from idle.
func leftOut(k *arith.Charge, answer, idle *limiter.Decision) (known uint32) {
	if k.ID == nil || answer.Allowed {
		return 0
	}
	known = 1<<k.Len() - 1
	for i := range answer.Len() {
		known &^= 1 << answer.Limit(i).Key
	}
	if known == 0 || idle == nil {
		return known
	}
	var rest []limiter.LimitDecision
	for i := range idle.Len() {
		if l := idle.Limit(i); known&(1<<l.Key) == 0 {
			rest = append(rest, *l)
		}
	}
	idle.Grow(len(rest))
	for i := range rest {
		*idle.Limit(i) = rest[i]
	}
	return known
}

// sourceOf returns what decides for partitions that are owned here. shared means that
// this node applies its share of a limit.
func (t *turn) sourceOf(parts []*partition, shared bool) limiter.Source {
	if shared {
		return limiter.SourceShare
	}
	return parts[0].r.Source(t.inputs())
}
