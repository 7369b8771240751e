package cluster

import (
	"slices"

	"github.com/weirlimit/weir/internal/peer"
	"github.com/weirlimit/weir/limiter"
)

// park keeps a request until it is known who owns the partition.
func (p *part) park(t *turn, q *parked) verdict {
	if len(p.parked) >= maxParked || !p.c.admits(&q.reply) {
		return overloaded
	}
	kept := *q
	if q.reply.op == nil {
		kept.charge = q.charge.Clone()
	}
	p.parked = append(p.parked, kept)
	p.watch(t)
	return waiting
}

// settleParked handles the parked requests again, once it is known who owns.
func (p *part) settleParked(t *turn) {
	if len(p.parked) == 0 || p.role == peer.Sealed || p.role == peer.Heir && p.round != nil {
		return
	}
	all := p.unpark()
	if p.role == peer.Owned {
		t.later = append(t.later, func(t *turn) {
			for i := range all {
				p.c.rerun(t, &all[i])
			}
		})
		return
	}
	for i := range all {
		p.c.refuse(t, all[i].reply, peer.NotOwner, p)
	}
}

// answerParked refuses the parked requests, because the owner is alive. alive is the
// owner, 0 if unknown.
func (p *part) answerParked(t *turn, alive peer.Instance) {
	all := p.unpark()
	for i := range all {
		status := peer.NotOwner
		if all[i].sent && alive != 0 {
			status = peer.Alive
		}
		p.c.refuse(t, all[i].reply, status, p)
	}
}

// expireParked drops the parked requests whose deadline has passed.
func (p *part) expireParked(t *turn) {
	p.parked = slices.DeleteFunc(p.parked, func(q parked) bool {
		over := t.now >= q.until
		if over {
			p.c.ended(&q.reply)
		}
		return over
	})
}

// unpark removes and returns all parked requests.
func (p *part) unpark() []parked {
	all := p.parked
	p.parked = nil
	for i := range all {
		p.c.ended(&all[i].reply)
	}
	return all
}

// rerun handles a request again that had to wait.
func (c *Core) rerun(t *turn, q *parked) {
	if q.reply.over() || t.now >= q.until {
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
		c.in(t, at, func(p *part) { c.refuse(t, q.reply, peer.NotOwner, p) })
	case forbidden:
		c.refuse(t, q.reply, peer.Forbidden, nil)
	case overloaded, inVain:
		c.refuse(t, q.reply, peer.Overloaded, nil)
	}
}

// answer sends another member the result of its request.
func (q *parked) answer(c *Core, t *turn, answer, idle *limiter.Decision) {
	switch {
	case q.kind == opCheck || q.kind == opExplain:
		c.sendReply(t, q.reply, answer, idle)
	case q.reply.id != 0:
		c.sendStatus(t, q.reply.to, peer.Reply{ID: q.reply.id, Status: peer.Done, Count: uint32(q.count)})
	}
}
