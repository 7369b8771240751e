package cluster

import (
	"github.com/weirlimit/weir/internal/cluster/route"
	"github.com/weirlimit/weir/internal/peer"
	"github.com/weirlimit/weir/limiter"
)

// park keeps a request until it is known who owns the partition, which is locked.
func (c *Core) park(t *turn, p *part, q *route.Request) route.Verdict {
	if p.r.Full() || !c.admits(&q.Reply) {
		return route.Overloaded
	}
	p.r.Park(t.inputs(), kept(q))
	p.apply(t)
	return route.Kept
}

// kept returns a copy of a request that may wait when the caller has returned.
func kept(q *route.Request) *route.Request {
	kept := *q
	if q.Reply.Call == nil {
		kept.Charge = q.Charge.Clone()
	}
	return &kept
}

// rerun handles a request again that had to wait.
func (c *Core) rerun(t *turn, q *route.Request) {
	if q.Reply.Over() || t.Now >= q.Until {
		return
	}
	var v route.Verdict
	var at *part
	answer, idle := new(limiter.Decision), (*limiter.Decision)(nil)
	if q.Reserve {
		idle = new(limiter.Decision)
	}
	if o := q.Reply.Call; o != nil {
		var id uint16
		if v, id = o.Run(&t.Turn, q); id != route.NoPartition {
			at = c.byID[id]
		}
	} else if v, at = c.handle(t, q, answer, idle); v == route.Answered {
		c.answer(t, q, answer, idle)
	}
	switch v {
	case route.NotOwner:
		c.refuseFor(t, at, q.Reply, peer.NotOwner)
	case route.Forbidden:
		c.refuse(t, q.Reply, peer.Reply{Status: peer.Forbidden})
	case route.Overloaded, route.Pointless:
		c.refuse(t, q.Reply, peer.Reply{Status: peer.Overloaded})
	}
}

// answer sends another member the result of its request.
func (c *Core) answer(t *turn, q *route.Request, answer, idle *limiter.Decision) {
	switch {
	case q.Kind == route.KindCheck || q.Kind == route.KindExplain:
		c.sendReply(t, q.Reply, answer, idle)
	case q.Reply.ID != 0:
		t.Out.Status(q.Reply.To, peer.Reply{ID: q.Reply.ID, Status: peer.Done, Count: uint32(q.Count)})
	}
}
