package cluster

import (
	"sync/atomic"

	"github.com/weirlimit/weir/internal/cluster/replica"
	"github.com/weirlimit/weir/internal/cluster/route"
	"github.com/weirlimit/weir/internal/peer"
	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/limiter/arith"
)

// maxPending bounds the requests of other members that wait at this node in all. Each
// partition has bounds of its own, but a node has thousands of partitions, and a member
// could fill each. This node's own requests are bounded where they begin, by its router.
const maxPending = 1 << 17

// pending counts the requests of other members that wait at this node. Requests of this
// node are not counted.
type pending struct{ atomic.Int64 }

// admits reports whether one more request may wait, and counts it. Requests of this node
// are always admitted.
func (n *pending) admits(r *route.ReplyTo) bool {
	if r.Call != nil {
		return true
	}
	if n.Add(1) > maxPending {
		n.Add(-1)
		return false
	}
	return true
}

// ended counts down a request that stops waiting, or that will be counted anew.
func (n *pending) ended(r *route.ReplyTo) {
	if r.Call == nil {
		n.Add(-1)
	}
}

// crowded reports whether no further request of other members may wait now.
func (n *pending) crowded(r *route.ReplyTo) bool { return r.Call == nil && n.Load() >= maxPending }

// park keeps a request until it is known who owns the partition, which is locked.
func (n *pending) park(t *turn, p *partition, q *route.Request) route.Verdict {
	if p.r.Full() || !n.admits(&q.Reply) {
		return route.Overloaded
	}
	p.r.Park(t.inputs(), kept(q))
	p.apply(t)
	return route.Kept
}

// kept returns a copy of a request that may wait when the caller has returned.
func kept(q *route.Request) *route.Request {
	kept := *q
	kept.Waited = true
	if q.Reply.Call == nil {
		kept.Charge = q.Charge.Clone()
	}
	return &kept
}

// rerun handles a request again that had to wait.
func (d *decider) rerun(t *turn, q *route.Request) {
	if q.Reply.Over() || t.Now >= q.Until {
		t.expired(q)
		return
	}
	var v route.Verdict
	var at *partition
	answer, idle := new(limiter.Decision), (*limiter.Decision)(nil)
	if q.Prepare {
		idle = new(limiter.Decision)
	}
	if o := q.Reply.Call; o != nil {
		var id uint16
		if v, id = o.Run(&t.Turn, q); id != route.NoPartition {
			at = d.parts.byID[id]
		}
	} else if v, at = d.handle(t, q, answer, idle); v == route.Answered {
		t.respond(q, answer, idle)
	}
	switch v {
	case route.NotOwner:
		t.refuseFor(at, q.Reply, peer.NotOwner)
	case route.AtGiver:
		t.refuseFor(at, q.Reply, peer.Alive)
	case route.Forbidden:
		t.refuse(q.Reply, peer.Reply{Status: peer.Forbidden})
	case route.Overloaded, route.Pointless:
		t.refuse(q.Reply, peer.Reply{Status: peer.Overloaded})
	}
}

// contend makes a request wait for charges of a partition to be settled. It reports
// false if there is no time or no room for that.
func (n *pending) contend(t *turn, p *partition, q *route.Request) bool {
	if !p.r.Own().MayWait(t.inputs(), &q.Wait) || !n.admits(&q.Reply) {
		return false
	}
	kept := *q
	kept.Charge = q.Charge.Clone()
	p.r.Own().WaitFor(t.inputs(), &kept)
	p.apply(t)
	return true
}

// complete ends the wait of a request or of a withheld reply.
func (d *decider) complete(t *turn, p *partition, e *replica.Effect) {
	if e.Kind == replica.Release {
		if h := e.Reply.(*withheldReply); h.released() {
			d.pending.ended(&h.reply)
			if h.traced != nil {
				h.traced()
			}
			h.send(t)
		}
		return
	}
	if h, ok := e.Reply.(*withheldReply); ok {
		d.pending.ended(&h.reply)
		if h.traced != nil {
			h.traced()
		}
		if h.Several {
			d.endAwaited(t, p, h)
		}
		t.refuse(h.reply, peer.Reply{Status: e.Status, Owner: e.Owner, Partition: p.id})
		return
	}
	q := e.Request.(*route.Request)
	d.pending.ended(&q.Reply)
	switch e.Kind {
	case replica.Refuse:
		t.refuse(q.Reply, peer.Reply{Status: e.Status, Owner: e.Owner, Partition: p.id})
	case replica.Expire:
		t.expired(q)
	case replica.Rerun:
		t.later = append(t.later, func(t *turn) { d.rerun(t, q) })
	}
}

// withheldReply is a decision whose reply is withheld, in one partition or in several.
type withheldReply struct {
	replica.Withheld // its receipt is a copy: a policy may overwrite the answer at the deadline

	answer *limiter.Decision
	idle   *limiter.Decision // only of a reservation
	reply  route.ReplyTo
	result route.Outcome // of what is not a check
	traced func()        // ends the span of its wait; nil if it is not traced
	waits  atomic.Int32  // number of partitions that still withhold it
	ended  atomic.Int32  // how its wait ended; 0: it has not
}

// How the wait of a withheld reply ends.
const (
	answered  = 1
	takenBack = 2
)

// Facts returns what a replica must know of the reply.
func (h *withheldReply) Facts() *replica.Withheld { return &h.Withheld }

// Over reports whether its wait has ended, perhaps in another partition, and whether its charge is
// taken back.
func (h *withheldReply) Over() (over, back bool) {
	how := h.ended.Load()
	return how != 0, how == takenBack
}

// TakeBack ends its wait because its charge is taken back. It reports false if the wait had ended
// already.
func (h *withheldReply) TakeBack() bool { return h.ended.CompareAndSwap(0, takenBack) }

// released ends its wait in one partition. It reports whether that was the last one, and
// ended its wait altogether.
func (h *withheldReply) released() bool {
	return h.waits.Add(-1) <= 0 && h.ended.CompareAndSwap(0, answered)
}

// withhold keeps a reply until the heir has the charge. Each partition that must wait
// keeps the same reply.
func (n *pending) withhold(t *turn, p *partition, h *withheldReply, q *route.Request, stamp uint64, answer,
	idle *limiter.Decision) *withheldReply {
	if h == nil {
		h = &withheldReply{answer: answer, idle: idle, reply: q.Reply}
		h.Withheld = replica.Withheld{Charge: q.Charge, Receipt: answer.Receipt, Since: t.Now, Until: q.Until}
		if q.Kind == route.KindReset {
			// Its asker gives up first, and says that the reset may be done.
			h.Reset, h.result, h.Until = true, q.Outcome, q.Until+limiter.Second
		}
		if q.Kind == route.KindAmend {
			h.Amends, h.Late, h.Extension, h.result = true, charges(q), q.Outcome.Extension, q.Outcome
			h.Admits, h.Receipt = admits(q), arith.NewReceipt(arith.ReceiptFields{Time: t.At})
		}
		if q.Charge.Trace != nil {
			_, h.traced = t.c.config.Tracer.Start(q.Charge.Trace, SpanHeir)
		}
		if q.Reply.Call == nil {
			n.Add(1)
			h.Charge, h.answer = q.Charge.Clone(), answer.Clone()
			if idle != nil {
				h.idle = idle.Clone()
			}
		}
	}
	h.waits.Add(1)
	p.r.Own().Withhold(t.inputs(), h, stamp)
	p.apply(t)
	return h
}

// await has each partition of a check know that its reply is withheld by some of them.
func (h *withheldReply) await(t *turn, parts []*partition) route.Verdict {
	if h.Several = len(parts) > 1; !h.Several {
		return route.Withheld
	}
	for _, p := range parts {
		replica.Await(t.inputs(), p.r.Own(), h)
		p.apply(t)
	}
	return route.Withheld
}

// endAwaited has the other partitions of a reply take back what it has charged there, before its asker
// tries again.
func (d *decider) endAwaited(t *turn, p *partition, h *withheldReply) {
	var buf [4]*partition
	for _, q := range d.parts.ofCharge(h.Charge, buf[:0]) {
		if q != p {
			t.later = append(t.later, func(t *turn) {
				q.run(t, func(r *replica.Replica, s *replica.Step) { r.EndAwaited(s) })
			})
		}
	}
}

// send sends the decision to the asker.
func (h *withheldReply) send(t *turn) {
	if h.reply.Call != nil {
		h.reply.Call.Decided(&t.Turn, h.Charge, h.answer, h.idle, h.result)
		return
	}
	if h.Reset || h.Amends {
		t.done(h.reply, h.result)
		return
	}
	t.reply(h.reply, h.answer, h.idle)
}
