package route

import (
	"github.com/weirlimit/weir/internal/cluster/replica"
	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/limiter/arith"
)

// here runs a call at this node, as owner.
func (o *Call) here(t *Turn) {
	o.mu.Lock()
	sent := len(o.progress.sent) > 0
	o.mu.Unlock()
	q := Request{Wait: replica.Wait{Settles: o.task.prepare, Final: o.task.final, Sent: sent, Until: o.task.until},
		Kind: o.task.kind, Receipt: o.task.refunded(), Prepare: o.task.prepare, Amend: o.task.amend, Back: o.task.back,
		Reply: ReplyTo{Call: o}}
	switch v, _ := o.Run(t, &q); v {
	case Answered:
	case NotOwner, Overloaded, AtGiver:
		o.later(t, RetryEvery)
	default:
		o.mu.Lock()
		o.progress.again, o.progress.owner = 0, o.c.config.Self
		o.mu.Unlock()
	}
}

// asHeir runs a call at this node, as heir. sent means that the owner may have
// executed it.
func (o *Call) asHeir(t *Turn, sent bool) {
	q := Request{
		Wait: replica.Wait{Settles: o.task.prepare, Final: o.task.final, Sent: sent, Until: o.task.until},
		Kind: o.task.kind, Receipt: o.task.refunded(), Prepare: o.task.prepare, Amend: o.task.amend, Back: o.task.back,
		Heir: true, Reply: ReplyTo{Call: o},
	}
	switch v, _ := o.Run(t, &q); v {
	case NotOwner, Overloaded, AtGiver: // the last if it has become the owner meanwhile
		o.later(t, RetryEvery)
	}
}

// Run handles a call at this node, in memory of its own. A policy writes the
// caller's memory at the deadline, and an abandoned caller reuses it, while run may
// still be at work.
func (o *Call) Run(t *Turn, q *Request) (Verdict, uint16) {
	o.mu.Lock()
	if o.progress.ended {
		o.mu.Unlock()
		return Answered, NoPartition
	}
	o.progress.tried++
	q.Charge = o.task.charge.Clone()
	o.mu.Unlock()
	answer, idle := new(limiter.Decision), (*limiter.Decision)(nil)
	if o.task.idle != nil {
		idle = new(limiter.Decision)
	}
	v, at := t.Node.Handle(q, answer, idle)
	switch v {
	case Answered:
		o.explained(q.Reply.Reasons)
		o.Decided(t, q.Charge, answer, idle, q.Outcome)
	case Withheld:
	case Pointless:
		o.policy(t)
		return Answered, NoPartition
	default:
		o.mu.Lock()
		o.progress.tried--
		o.mu.Unlock()
	}
	return v, at
}

// Decided ends a call that this node has executed.
func (o *Call) Decided(t *Turn, charge *arith.Charge, answer, idle *limiter.Decision, x Outcome) {
	o.mu.Lock()
	if o.progress.ended {
		o.mu.Unlock()
		return
	}
	o.progress.ended, o.result.by, o.result.outcome = true, o.c.config.Self, x
	if answer != o.task.answer {
		o.task.charge.Unnamed = charge.Unnamed
		*o.task.answer = *answer
		if o.task.idle != nil && idle != nil {
			*o.task.idle = *idle
		}
	}
	o.mu.Unlock()
	o.retire(t)
}
