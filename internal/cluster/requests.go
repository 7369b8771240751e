package cluster

import (
	"github.com/weirlimit/weir/internal/peer"
	"github.com/weirlimit/weir/limiter"
)

// park keeps a request until it is known who owns the partition, which is locked.
func (c *Core) park(t *turn, p *part, q *request) verdict {
	if p.r.Full() || !c.admits(&q.reply) {
		return overloaded
	}
	p.r.Park(t.inputs(), q.kept())
	p.apply(t)
	return waiting
}

// kept returns a copy of a request that may wait when the caller has returned.
func (q *request) kept() *request {
	kept := *q
	if q.reply.op == nil {
		kept.Charge = q.Charge.Clone()
	}
	return &kept
}

// rerun handles a request again that had to wait.
func (c *Core) rerun(t *turn, q *request) {
	if q.reply.over() || t.now >= q.Until {
		return
	}
	var v verdict
	var at *part
	answer, idle := new(limiter.Decision), (*limiter.Decision)(nil)
	if q.reserve {
		idle = new(limiter.Decision)
	}
	if o := q.reply.op; o != nil {
		v, at = o.run(t, q)
	} else if v, at = c.handle(t, q, answer, idle); v == answered {
		q.answer(c, t, answer, idle)
	}
	switch v {
	case notOwner:
		c.refuseFor(t, at, q.reply, peer.NotOwner)
	case forbidden:
		c.refuse(t, q.reply, peer.Reply{Status: peer.Forbidden})
	case overloaded, pointless:
		c.refuse(t, q.reply, peer.Reply{Status: peer.Overloaded})
	}
}

// answer sends another member the result of its request.
func (q *request) answer(c *Core, t *turn, answer, idle *limiter.Decision) {
	switch {
	case q.kind == opCheck || q.kind == opExplain:
		c.sendReply(t, q.reply, answer, idle)
	case q.reply.id != 0:
		t.out.Status(q.reply.to, peer.Reply{ID: q.reply.id, Status: peer.Done, Count: uint32(q.count)})
	}
}
