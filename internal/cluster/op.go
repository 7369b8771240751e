package cluster

import (
	"slices"
	"sync"

	"github.com/weirlimit/weir/internal/cluster/replica"
	"github.com/weirlimit/weir/internal/cluster/view"
	"github.com/weirlimit/weir/internal/peer"
	"github.com/weirlimit/weir/limiter"
)

// opKind is the kind of an operation.
type opKind uint8

const (
	opCheck opKind = iota
	opRefund
	opReset
	opExplain // a peek that also returns the reasons
)

// op is one operation on keys of one owner, from its start to its end; if its keys have
// several owners, it is split. It may be sent to several members in turn. It is not sent
// to a member again unless that member has said that it did not execute it.
type op struct {
	c       *Core
	kind    opKind
	reserve bool // part of a check over several owners: it reserves
	ends    bool // a refund that ends a reservation; only the member that made it is asked
	// remember means that a denial may be cached.
	remember bool

	charge  *limiter.Charge
	answer  *limiter.Decision
	idle    *limiter.Decision // of a reservation: the answer if another part denies
	receipt limiter.Receipt   // of a refund
	until   limiter.Tick
	begunAt limiter.Tick // in the counters' time
	// wake is called when the operation has ended; if done is set, done is called
	// instead.
	wake func()
	done func(*turn, *op)

	mu       sync.Mutex
	ended    bool
	contests bool // it ended because other charges were not settled in time
	hasHeir  bool // the heir was asked
	define   bool
	divided  bool // it was split; its parts end it
	id       uint64
	sent     []inquiry       // members that were asked and may have executed it
	one      [2]inquiry      // storage for sent
	tries    uint16          // number of requests sent, see inquiry
	askedAt  limiter.Tick    // when the owner was asked; 0 if it was not
	owner    peer.Instance   // the member that was asked as owner
	heirs    []peer.Instance // members that were asked as heir
	again    limiter.Tick    // when to route again; 0 if not scheduled
	attempts int
	tried    int // runs at this node that may have executed it, or still may

	by      peer.Instance              // the member that decided; 0 for a policy
	outcome Outcome                    // result of a reset or refund
	told    []limiter.LimitExplanation // reasons of an explanation; nil if there are none
}

// inquiry is one request to a member. A reply carries the number of its request (try): a
// reply to an earlier request says nothing about this one, and may arrive late or twice.
type inquiry struct {
	of  peer.Instance
	try uint16
}

// asks records that a member is asked. o.mu is held.
func (o *op) asks(to peer.Instance) {
	o.sent = append(o.sent, inquiry{to, o.tries})
	o.tries = (o.tries + 1) & maxTry
}

// asked returns the index of a member in sent; -1 if it was not asked, or has said that
// it did not execute the operation. o.mu is held.
func (o *op) asked(i peer.Instance) int {
	for at := range o.sent {
		if o.sent[at].of == i {
			return at
		}
	}
	return -1
}

// tell tells the caller that the operation has ended.
func (o *op) tell(t *turn) {
	if o.done != nil {
		o.done(t, o)
		return
	}
	o.wake()
}

// start numbers an operation and routes it. If too many are under way, the policy
// answers.
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

// retire removes an ended operation from the table; its caller is told at the end of the
// turn. It is called once, by the code that set ended.
func (o *op) retire(t *turn) {
	o.c.ops.remove(o.id)
	t.ended = append(t.ended, o)
}

// abandon ends the operation without telling its caller. It reports whether the
// operation had not ended yet; then nothing is written to the caller's memory any more.
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

// route sends the operation to the node that should decide it.
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
		o.contest(t) // its keys have different owners now: the whole check is split anew
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

// destination returns the owner of the first key of a charge, and reports whether it is
// the owner of all of them.
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

// later schedules another routing: after the given wait, or, from the fifth attempt on,
// after a wait that grows with the attempts up to 20 ms.
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
		// The owner may have executed it. Only its reply, or the heir's, can help.
		o.mu.Unlock()
		o.later(t, retryEvery)
		return
	}
	if !o.c.mesh.Reachable(to) {
		if o.hasHeir {
			// The heir has answered that the owner is alive. The check goes to the owner
			// by a relay.
			o.asks(to)
			o.askedAt, o.owner, o.again = t.now, to, 0
			o.mu.Unlock()
			o.send(t, to, false)
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
	o.send(t, to, false)
}

// askHeir asks the heir, because the owner does not answer. If the heir is unknown, it
// asks the member that the ring would choose, then any other.
func (o *op) askHeir(t *turn) {
	c := o.c
	p := c.part(o.charge.Key(0))
	heir := peer.Instance(p.toHeir.Load())
	v := c.view.Load()
	o.mu.Lock()
	if o.ended || o.kind == opRefund && (len(o.sent) > 0 || o.tried > 0) {
		// Another member may have executed the refund. Executed twice, it would admit
		// too much.
		o.mu.Unlock()
		return
	}
	if heir == 0 || slices.Contains(o.heirs, heir) {
		heir = 0
		for _, m := range append([]peer.Instance{v.Successor(p.id), v.Owner(p.id)}, instances(v)...) {
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
	o.send(t, heir, true)
}

func instances(v *view.View) []peer.Instance {
	out := make([]peer.Instance, len(v.Members))
	for i := range v.Members {
		out[i] = v.Members[i].Instance
	}
	return out
}

// contest ends a part of a check that was not executed, so that the whole check is tried
// again.
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

// clean reports whether no member can have executed the operation.
func (o *op) clean() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return len(o.sent) == 0 && o.tried == 0 && !o.ended
}

// unreachable handles that a member may not answer any more.
func (o *op) unreachable(t *turn, i peer.Instance) {
	o.mu.Lock()
	if o.ends && o.asked(i) >= 0 {
		o.mu.Unlock()
		o.policy(t) // it may be lost, and no other member may be asked
		return
	}
	mine := !o.ended && o.asked(i) >= 0 && (o.owner == i || slices.Contains(o.heirs, i))
	o.mu.Unlock()
	if mine {
		o.askHeir(t)
	}
}

// tick does the work that is due.
func (o *op) tick(t *turn) {
	o.mu.Lock()
	again, asked, heir, over, divided, owner := o.again, o.askedAt, o.hasHeir, o.ended, o.divided, o.owner
	o.mu.Unlock()
	switch {
	case over, divided && t.now-o.until < limiter.Second: // its parts end it, unless a panic lost one
	case t.now >= o.until:
		o.policy(t)
	case again != 0 && t.now >= again:
		o.mu.Lock()
		o.again = 0
		o.mu.Unlock()
		o.route(t)
	case again == 0 && asked != 0 && !heir && owner != o.c.self && t.now-asked >= o.c.mesh.Patience(owner, silentAfter):
		o.askHeir(t)
	}
}

// replied handles a reply that does not decide the operation.
func (o *op) replied(t *turn, from peer.Instance, r *peer.Reply) {
	o.mu.Lock()
	who := from
	if r.Status == peer.Lost {
		who = r.Owner.Instance
	}
	i := o.asked(who)
	if i < 0 || tryOf(r.ID) != o.sent[i].try {
		// A duplicate, or a reply to an earlier request: a reply may travel two ways,
		// and its consequences must not happen twice.
		o.mu.Unlock()
		return
	}
	if r.Status != peer.Alive {
		o.sent = slices.Delete(o.sent, i, i+1) // the member did not execute it
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
		o.policy(t) // the reservation is void or lost
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
			o.askHeir(t) // no member could relay it to the owner
		}
		return
	}
	if r.Owner.Instance != 0 {
		o.c.at(t, r.Partition, func(m *replica.Replica, s *replica.Turn) { m.Learn(s, r.Owner, r.Status == peer.NotOwner) })
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

// policy ends an operation that no member answered in time. A check is answered by its
// rule's policy. The outcome of a reset or refund says what is not known.
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
