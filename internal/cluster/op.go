package cluster

import (
	"slices"
	"sync"

	"github.com/weirlimit/weir/internal/peer"
	"github.com/weirlimit/weir/limiter"
)

// opKind is what is asked of an owner.
type opKind uint8

const (
	opCheck opKind = iota
	opRefund
	opReset
	opExplain // a check that is a peek, with its reasons
)

// op is one request to the owner of some keys, from its start to its end. It
// may be asked of several members in turn, never twice of one.
type op struct {
	c       *Core
	kind    opKind
	reserve bool // part of a check over several owners, which ends it
	ends    bool // a refund that ends a reservation, asked once of who made it
	// remember tells that a denial may be given again.
	remember bool

	charge  *limiter.Charge
	answer  *limiter.Decision
	idle    *limiter.Decision // reservations: what holds if another part denies
	receipt limiter.Receipt   // of a refund
	until   limiter.Tick
	begunAt limiter.Tick // in the counters' time
	// wake is called when it has ended; done, for those who need more.
	wake func()
	done func(*turn, *op)

	mu       sync.Mutex
	ended    bool
	contests bool // it ended because charges were not settled in time
	hasHeir  bool // the heir was asked, or cannot be
	define   bool
	divided  bool // its parts are asked, and end it
	id       uint64
	sent     []inquiry       // who may have executed it
	one      [2]inquiry      // room for them
	tries    uint16          // how often anybody was asked, see inquiry
	askedAt  limiter.Tick    // when the owner was asked; 0: it was not
	owner    peer.Instance   // who was asked as owner
	heirs    []peer.Instance // who was asked as heir
	again    limiter.Tick    // when to route once more, 0: not now
	attempts int
	tried    int // runs at this node that may have executed it, or may yet

	by      peer.Instance              // who decided; 0: a policy
	outcome Outcome                    // of a reset or refund
	told    []limiter.LimitExplanation // the reasons, nil if there were none
}

// inquiry is that a member was asked. Replies bear its number: what a member said of an
// earlier asking says nothing of this one, and may come late, and twice.
type inquiry struct {
	of  peer.Instance
	try uint16
}

// asks notes that a member is asked. o.mu is held.
func (o *op) asks(to peer.Instance) {
	o.sent = append(o.sent, inquiry{to, o.tries})
	o.tries = (o.tries + 1) & maxTry
}

// asked returns the index in sent of a member, -1 if it was not asked, or has said
// that it did nothing. o.mu is held.
func (o *op) asked(i peer.Instance) int {
	for at := range o.sent {
		if o.sent[at].of == i {
			return at
		}
	}
	return -1
}

// tell tells whoever waits that it has ended.
func (o *op) tell(t *turn) {
	if o.done != nil {
		o.done(t, o)
		return
	}
	o.wake()
}

// start begins an operation.
func (c *Core) start(t *turn, o *op) {
	o.c = c
	o.sent = o.one[:0]
	if o.until == 0 {
		o.until = t.now + c.config.Deadline
	}
	if !c.ops.add(o, t) {
		o.policy(t)
		return
	}
	t.arm = true
	o.route(t)
}

// retire has whoever waits told that the operation has ended. It is called once,
// by whoever has set ended.
func (o *op) retire(t *turn) {
	o.c.ops.remove(o.id)
	t.ended = append(t.ended, o)
}

// abandon ends the operation without telling anybody, and reports whether it had
// not ended yet: then nothing is written any more where its caller could see it.
func (o *op) abandon() bool {
	o.mu.Lock()
	was := o.ended
	o.ended = true
	o.mu.Unlock()
	if !was {
		o.c.ops.remove(o.id)
	}
	return !was
}

func (o *op) over() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.ended
}

// route asks whoever should decide.
func (o *op) route(t *turn) {
	if o.over() {
		return
	}
	if o.kind == opCheck && (o.hopeless(t) || o.deserted(t)) {
		o.policy(t)
		return
	}
	to, same := o.c.destination(o.charge)
	switch {
	case !same && o.reserve && o.clean():
		o.contest(t) // its keys have come apart: the whole check is divided anew
	case !same && o.kind == opCheck && !o.reserve && o.split(t):
	case !same && o.kind == opReset:
		o.split(t)
	case to == o.c.self:
		o.here(t)
	case to == 0:
		o.later(t, retryEvery)
	default:
		o.ask(t, to)
	}
}

// destination returns who should be asked about the keys of a charge, and
// whether that is the same for all.
func (c *Core) destination(k *limiter.Charge) (to peer.Instance, same bool) {
	for i := range k.Len() {
		p := c.part(k.Key(i))
		if p == nil {
			continue
		}
		if at := peer.Instance(p.to.Load()); i == 0 {
			to = at
		} else if at != to {
			return to, false
		}
	}
	return to, true
}

// later has the operation routed again after a while.
func (o *op) later(t *turn, after limiter.Tick) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.attempts++; o.attempts > 4 {
		after = min(after*limiter.Tick(o.attempts), 20*limiter.Millisecond)
	}
	o.again = t.now + after
	o.askedAt, o.owner = 0, 0
	t.arm = true
}

// ask sends the operation to the owner.
func (o *op) ask(t *turn, to peer.Instance) {
	o.mu.Lock()
	if o.ended {
		o.mu.Unlock()
		return
	}
	if o.asked(to) >= 0 {
		// It may have executed it; only its reply, or the heir's, can help.
		o.mu.Unlock()
		o.later(t, retryEvery)
		return
	}
	if !o.c.reachable(to) {
		if o.hasHeir {
			// The heir has spoken: the owner is alive. The check takes the other way.
			o.asks(to)
			o.askedAt, o.owner, o.again = t.now, to, 0
			o.mu.Unlock()
			o.c.sendOp(t, o, to, false)
			return
		}
		o.owner = to
		o.mu.Unlock()
		o.askHeir(t)
		return
	}
	o.asks(to)
	o.askedAt, o.owner, o.again = t.now, to, 0
	o.mu.Unlock()
	o.c.sendOp(t, o, to, false)
}

// askHeir asks the heir, because the owner is out of reach.
func (o *op) askHeir(t *turn) {
	c := o.c
	p := c.part(o.charge.Key(0))
	heir := peer.Instance(p.toHeir.Load())
	v := c.view.Load()
	o.mu.Lock()
	if o.ended || o.kind == opRefund && (len(o.sent) > 0 || o.tried > 0) {
		// Somebody may have taken it back: taken back twice, it would admit too much.
		o.mu.Unlock()
		return
	}
	if heir == 0 || slices.Contains(o.heirs, heir) {
		heir = 0
		for _, m := range append([]peer.Instance{v.successor(p.id), v.owner(p.id)}, instances(v)...) {
			if m != 0 && m != o.owner && !slices.Contains(o.heirs, m) && o.asked(m) < 0 {
				heir = m
				break
			}
		}
	}
	if heir == 0 || o.asked(heir) >= 0 {
		o.heirs = nil
		o.mu.Unlock()
		o.later(t, retryEvery)
		return
	}
	o.heirs = append(o.heirs, heir)
	o.hasHeir = true
	sent := o.asked(o.owner) >= 0
	if heir != c.self {
		o.asks(heir)
	}
	o.again = 0
	if !sent {
		o.askedAt = t.now
	}
	o.mu.Unlock()
	if heir == c.self {
		o.asHeir(t, sent)
		return
	}
	c.sendOp(t, o, heir, true)
}

func instances(v *View) []peer.Instance {
	out := make([]peer.Instance, len(v.Members))
	for i := range v.Members {
		out[i] = v.Members[i].Instance
	}
	return out
}

// contest ends a part of a check that was not executed, so that the whole check is
// tried again.
func (o *op) contest(t *turn) {
	if !o.reserve || t.now >= o.until {
		o.later(t, retryEvery) // the policy answers, if it is time
		return
	}
	o.mu.Lock()
	if o.ended {
		o.mu.Unlock()
		return
	}
	o.ended, o.contests = true, true
	o.mu.Unlock()
	o.retire(t)
}

// clean reports whether nobody can have executed the operation.
func (o *op) clean() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return len(o.sent) == 0 && o.tried == 0 && !o.ended
}

// unreachable tells that a member may not answer any more.
func (o *op) unreachable(t *turn, i peer.Instance) {
	o.mu.Lock()
	if o.ends && o.asked(i) >= 0 {
		o.mu.Unlock()
		o.policy(t) // it may be lost: nobody else is asked
		return
	}
	mine := !o.ended && o.asked(i) >= 0 && (o.owner == i || slices.Contains(o.heirs, i))
	o.mu.Unlock()
	if mine {
		o.askHeir(t)
	}
}

// tick does what time calls for.
func (o *op) tick(t *turn) {
	o.mu.Lock()
	again, asked, heir, over, divided, owner := o.again, o.askedAt, o.hasHeir, o.ended, o.divided, o.owner
	o.mu.Unlock()
	switch {
	case over, divided && t.now-o.until < limiter.Second: // its parts end it, unless one was lost by a panic
	case t.now >= o.until:
		o.policy(t)
	case again != 0 && t.now >= again:
		o.mu.Lock()
		o.again = 0
		o.mu.Unlock()
		o.route(t)
	case again == 0 && asked != 0 && !heir && owner != o.c.self && t.now-asked >= o.c.patience(owner, silentAfter):
		o.askHeir(t)
	}
}

// replied takes in what a member says.
func (o *op) replied(t *turn, from peer.Instance, r *peer.Reply) {
	o.mu.Lock()
	who := from
	if r.Status == peer.Lost {
		who = r.Owner.Instance
	}
	i := o.asked(who)
	if i < 0 || tryOf(r.ID) != o.sent[i].try {
		// It was said before: replies may travel two ways, and what followed the
		// first must not be done twice.
		o.mu.Unlock()
		return
	}
	if r.Status != peer.Alive {
		o.sent = slices.Delete(o.sent, i, i+1) // it did not execute it
	}
	ended, heir := o.ended, o.hasHeir
	if r.Status == peer.NeedRule {
		o.define = true
	}
	o.attempts++
	tired := o.attempts > maxAttempts
	o.mu.Unlock()
	if ended {
		return
	}
	if o.ends {
		o.policy(t) // it is void, or lost
		return
	}
	if r.Status == peer.Contested && o.reserve {
		o.contest(t)
		return
	}
	if r.Status == peer.Lost {
		if heir {
			o.later(t, retryEvery)
		} else {
			o.askHeir(t) // nobody reaches the owner
		}
		return
	}
	if r.Owner.Instance != 0 {
		o.c.at(t, r.Partition, func(p *part) {
			if p.learn(t, r.Owner, 0); r.Status == peer.NotOwner && r.Owner.Before(p.owner) {
				p.doubt(t)
			}
		})
	}
	switch {
	case r.Status == peer.Alive:
	case r.Status == peer.Overloaded || tired:
		o.later(t, 4*retryEvery)
	case r.Status == peer.NeedRule:
		o.route(t)
	case r.Owner.Instance != 0 && r.Owner.Instance != from:
		to, _ := o.c.destination(o.charge)
		if to == r.Owner.Instance {
			o.route(t)
			return
		}
		o.later(t, retryEvery)
	default:
		o.later(t, retryEvery)
	}
}

// policy has the rule's policy answer, because nobody else did in time. For a
// reset or refund there is none: what is not known of it is told.
func (o *op) policy(t *turn) {
	o.mu.Lock()
	if o.ended {
		o.mu.Unlock()
		return
	}
	o.ended = true
	if o.kind != opCheck {
		o.outcome = unanswered(o.charge, len(o.sent) > 0 || o.tried > 0)
	}
	o.mu.Unlock()
	o.c.doubtOwner(t, o.c.part(o.charge.Key(0)))
	if o.kind == opCheck {
		o.c.event(EventFallback, int(o.c.part(o.charge.Key(0)).id))
		o.c.answerByPolicy(t, o.charge, o.answer, o.idle)
	}
	o.retire(t)
}
