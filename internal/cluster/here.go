package cluster

import (
	"github.com/weirlimit/weir/internal/cluster/replica"
	"github.com/weirlimit/weir/limiter"
)

// here runs an operation at this node, as owner.
func (o *op) here(t *turn) {
	q := request{Wait: replica.Wait{Settles: o.reserve, Until: o.until}, kind: o.kind, receipt: o.receipt, reserve: o.reserve, reply: replyTo{op: o}}
	switch v, _ := o.run(t, &q); v {
	case answered:
	case notOwner, overloaded:
		o.later(t, retryEvery)
	default:
		o.mu.Lock()
		o.again, o.owner = 0, o.c.self
		o.mu.Unlock()
	}
}

// asHeir runs an operation at this node, as heir. sent means that the owner may have
// executed it.
func (o *op) asHeir(t *turn, sent bool) {
	q := request{
		Wait: replica.Wait{Settles: o.reserve, Sent: sent, Until: o.until},
		kind: o.kind, receipt: o.receipt, reserve: o.reserve, heir: true, reply: replyTo{op: o},
	}
	switch v, _ := o.run(t, &q); v {
	case notOwner, overloaded:
		o.later(t, retryEvery)
	}
}

// run handles an operation at this node, in memory of its own. A policy writes the
// caller's memory at the deadline, and an abandoned caller reuses it, while run may
// still be at work.
func (o *op) run(t *turn, q *request) (verdict, *part) {
	o.mu.Lock()
	if o.ended {
		o.mu.Unlock()
		return answered, nil
	}
	o.tried++
	q.Charge = o.charge.Clone()
	o.mu.Unlock()
	answer, idle := new(limiter.Decision), (*limiter.Decision)(nil)
	if o.idle != nil {
		idle = new(limiter.Decision)
	}
	v, at := o.c.handle(t, q, answer, idle)
	switch v {
	case answered:
		o.explained(q.reply.told)
		o.decided(t, q.Charge, answer, idle, q.count)
	case withheld:
	case pointless:
		o.policy(t)
		return answered, nil
	default:
		o.mu.Lock()
		o.tried--
		o.mu.Unlock()
	}
	return v, at
}

// decided ends an operation that this node has executed.
func (o *op) decided(t *turn, charge *limiter.Charge, answer, idle *limiter.Decision, counters int) {
	o.mu.Lock()
	if o.ended {
		o.mu.Unlock()
		return
	}
	o.ended, o.by, o.outcome = true, o.c.self, Outcome{Counters: counters}
	if answer != o.answer {
		o.charge.Unnamed = charge.Unnamed
		*o.answer = *answer
		if o.idle != nil && idle != nil {
			*o.idle = *idle
		}
	}
	o.mu.Unlock()
	o.retire(t)
}

// reply sends a decision that was withheld to the asker.
func (c *Core) reply(t *turn, h *withheldReply) {
	if h.reply.op != nil {
		h.reply.op.decided(t, h.Charge, h.answer, h.idle, 0)
		return
	}
	c.sendReply(t, h.reply, h.answer, h.idle)
}
