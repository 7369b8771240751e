package cluster

import (
	"context"
	"sync/atomic"

	"github.com/weirlimit/weir/internal/cluster/replica"
	"github.com/weirlimit/weir/internal/peer"
	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/limiter/table"
)

// Begin starts a check and calls done once when it is decided, possibly before Begin
// returns. Until then the core owns answer. The charge must not be reused even
// afterwards: if the deadline ended the check, the core may still read it for a moment.
// until is when the policy answers; 0 means the configured deadline.
func (c *Core) Begin(charge *limiter.Charge, answer *limiter.Decision, until limiter.Tick, done func()) {
	t := c.begin()
	defer t.end()
	if c.begun(t, charge, answer, until, done) == nil {
		t.later = append(t.later, func(*turn) { done() })
	}
}

// begun starts a check and returns the operation that waits for its decision. It returns
// nil if the check is decided already; then done is not called.
func (c *Core) begun(t *turn, charge *limiter.Charge, answer *limiter.Decision, until limiter.Tick, done func()) (o *op) {
	if charge.Len() == 0 {
		answer.Clear()
		return nil
	}
	defer c.catchBegun(t, charge, answer, &o)
	to, same := c.destination(charge)
	if c.refusedHere(t, to, charge, answer) {
		return nil
	}
	o = t.op()
	*o = op{c: c, charge: charge, answer: answer, until: until, begunAt: t.at, remember: c.denials.remembered(charge), wake: done}
	if o.until == 0 {
		o.until = t.now + c.config.Deadline
	}
	return c.beginAt(t, o, to, same)
}

// catchBegun recovers from a panic of begun and sets its result to the operation that
// waits for the decision, or nil. It must be deferred directly.
func (c *Core) catchBegun(t *turn, charge *limiter.Charge, answer *limiter.Decision, o **op) {
	if c.config.Panicked == nil {
		return
	}
	if v := recover(); v != nil {
		t.broken = true
		c.caught(v)
		*o = c.interrupted(t, *o, charge, answer)
	}
}

// interrupted returns the operation that still waits for the decision of a check that a
// panic interrupted. That is o if o has a number, so that it is answered at its
// deadline, or has ended. Otherwise the policy answers, and interrupted returns nil.
func (c *Core) interrupted(t *turn, o *op, charge *limiter.Charge, answer *limiter.Decision) *op {
	if o != nil {
		t.fresh = nil // o may still be referenced, so its memory is not reused
		if o.over() || o.id != 0 && c.ops.get(o.id) == o {
			t.arm = true
			return o
		}
		o.abandon()
	}
	c.answerByPolicy(t, charge, answer, nil)
	return nil
}

// beginAt starts a check at the node that should decide it: at this node, or at the
// member to if same reports that to owns all keys. It returns nil if the check is
// decided already.
func (c *Core) beginAt(t *turn, o *op, to peer.Instance, same bool) *op {
	if same && to == c.self {
		q := request{Wait: replica.Wait{Charge: o.charge, Until: o.until}, reply: replyTo{op: o}}
		o.owner = c.self
		switch v, _ := c.handle(t, &q, o.answer, nil); v {
		case answered:
			return nil
		case notOwner, overloaded:
			o.owner = 0
		case pointless:
			c.event(EventFallback, int(c.part(o.charge.Key(0)).id))
			c.decideByPolicy(t, o.charge, o.answer, nil)
			return nil
		default:
			t.taken()
			c.register(t, o)
			return o
		}
	}
	t.taken()
	if !same || !c.askOwner(t, o, to) {
		c.start(t, o)
	}
	return o
}

// askOwner starts a check by sending its first request to the owner of its keys. It is a
// short cut for [op.route] when the owner is connected. It reports false and changes
// nothing if the owner is unknown or not connected, if waiting is pointless, or if too
// many operations are under way.
func (c *Core) askOwner(t *turn, o *op, to peer.Instance) bool {
	if to == 0 || o.hopeless(t) {
		return false
	}
	if !c.mesh.Reachable(to) {
		return false
	}
	o.sent, o.tries = o.one[:0], 0
	o.asks(to)
	o.askedAt, o.owner = t.now, to
	if !c.ops.add(o, t) {
		o.sent, o.tries, o.askedAt, o.owner = nil, 0, 0, 0
		return false
	}
	t.arm = true
	o.write(t, to, attempt{id: o.id})
	return true
}

// register numbers an operation that already waits at this node. If there are too many,
// the policy answers.
func (c *Core) register(t *turn, o *op) {
	o.mu.Lock()
	ok := o.ended || c.ops.add(o, t)
	o.mu.Unlock()
	t.arm = true
	if !ok {
		o.policy(t)
	}
}

// Refund takes back a charge by its receipt. It calls done once with the outcome, at the
// deadline at the latest. A receipt of a policy, or of an ownership before the present
// one, is void; that is no failure. A second member is asked only if the first has
// certainly not executed the refund: executed twice, it would admit too much.
func (c *Core) Refund(charge *limiter.Charge, r limiter.Receipt, done func(Outcome)) {
	t := c.begin()
	defer t.end()
	defer t.catch()
	if r.Charged == 0 {
		t.later = append(t.later, func(*turn) { done(Outcome{}) })
		return
	}
	c.start(t, &op{kind: opRefund, charge: charge, answer: new(limiter.Decision), receipt: r, done: func(_ *turn, o *op) {
		// Not before: denials from before it may still have been on their way.
		c.denials.forget(charge)
		done(o.outcome)
	}})
}

// Reset forgets the counters of a charge, wherever they are. It calls done once with the
// outcome, at the deadline at the latest. It asks the owner and, if the owner does not
// answer, its heir. Resetting twice has the same effect as resetting once.
func (c *Core) Reset(charge *limiter.Charge, done func(Outcome)) {
	t := c.begin()
	defer t.end()
	defer t.catch()
	if charge.Len() == 0 {
		t.later = append(t.later, func(*turn) { done(Outcome{}) })
		return
	}
	c.start(t, &op{kind: opReset, charge: charge, answer: new(limiter.Decision), done: func(_ *turn, o *op) {
		c.denials.forget(charge)
		done(o.outcome)
	}})
}

// Check decides a check and waits for the decision, at most for the configured deadline;
// then the policy answers. If ctx ends while it waits, Check returns the error of ctx:
// the check may have been charged, answer is not written any more, and the charge must
// not be reused.
func (c *Core) Check(ctx context.Context, charge *limiter.Charge, answer *limiter.Decision) error {
	t := c.begin()
	if c.fast(t, charge, answer) {
		t.end()
		return nil
	}
	w := c.waiters.Get().(*awaited)
	w.open.Store(1)
	o := c.begun(t, charge, answer, 0, w.wake)
	t.end()
	if o != nil && ctx.Done() == nil {
		<-w.c
	} else if o != nil {
		select {
		case <-w.c:
		case <-ctx.Done():
			if o.abandon() {
				c.waiters.Put(w) // w.wake will not be called any more
				return ctx.Err()
			}
			<-w.c // it is decided, and w.wake is about to be called
		}
	}
	c.waiters.Put(w)
	return nil
}

// CheckMany decides several checks, each as Check does, and waits for all of them.
// Checks for the same member share frames. If ctx ends while it waits, CheckMany returns
// the indices of the undecided checks in ascending order; their charges must not be
// reused, and their answers are not written any more.
func (c *Core) CheckMany(ctx context.Context, charges []limiter.Charge, answers []limiter.Decision) (undecided []int) {
	t := c.begin()
	w := c.waiters.Get().(*awaited)
	w.open.Store(1) // 1 for this function until all have begun
	var ops []*op   // by index of the charge; only if ctx can end
	for i := range min(table.Ahead, len(charges)) {
		c.prefetchOwned(t, &charges[i])
	}
	for i := range charges {
		if next := i + table.Ahead; next < len(charges) {
			c.prefetchOwned(t, &charges[next])
		}
		if c.fast(t, &charges[i], &answers[i]) {
			continue
		}
		w.open.Add(1)
		o := c.begun(t, &charges[i], &answers[i], 0, w.wake)
		switch {
		case o == nil:
			w.open.Add(-1)
		case ctx.Done() != nil:
			if ops == nil {
				ops = make([]*op, len(charges))
			}
			ops[i] = o
		}
	}
	t.end()
	if w.open.Add(-1) > 0 {
		select {
		case <-w.c:
		case <-ctx.Done():
			undecided = w.abandon(ops)
		}
	}
	c.waiters.Put(w)
	return undecided
}

// awaited is a caller that waits for one or more checks.
type awaited struct {
	c    chan struct{}
	open atomic.Int32 // number of undecided checks
	wake func()       // called once for each decided check; the last call sends on c
}

func newAwaited() any {
	w := &awaited{c: make(chan struct{}, 1)}
	w.wake = func() {
		if w.open.Add(-1) == 0 {
			w.c <- struct{}{}
		}
	}
	return w
}

// abandon stops waiting for the undecided checks and returns their indices. It waits for
// those that are decided and about to report.
func (w *awaited) abandon(ops []*op) (undecided []int) {
	for i, o := range ops {
		if o != nil && o.abandon() {
			undecided = append(undecided, i)
		}
	}
	if n := int32(len(undecided)); n == 0 || w.open.Add(-n) > 0 {
		<-w.c // the others are decided and about to call wake
	}
	return undecided
}

// fast decides a check of one key that this node owns, if the reply need not be
// withheld, without an operation. In every other case it reports false and changes
// nothing.
func (c *Core) fast(t *turn, charge *limiter.Charge, answer *limiter.Decision) bool {
	if charge.Len() != 1 || charge.Key(0).Rule == nil {
		return false
	}
	k := charge.Key(0)
	p := c.part(k)
	if p == nil || peer.Instance(p.to.Load()) != c.self {
		return false
	}
	p.mu.Lock()
	defer p.leave(t)
	c.fault(p.id)
	if r := p.r; r.Role() != peer.Owned || r.Unsettled() || !charge.Peek && k.Cost > 0 && !r.RoomFor(t.inputs(), k) {
		return false
	}
	q := request{Wait: replica.Wait{Charge: charge}}
	return c.decide(t, &q, []*part{p}, answer, nil) == answered
}
