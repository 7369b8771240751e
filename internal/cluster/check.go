package cluster

import (
	"context"
	"math"
	"sync/atomic"

	"github.com/weirlimit/weir/internal/peer"
	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/limiter/table"
)

// Begin starts a check and calls done when it is decided: before Begin returns,
// where that is possible. The decision is the core's until then, and the charge
// is not to be used again: one that the deadline has ended may still be looked
// at for a moment. until is when a policy answers, 0 for the deadline that was
// configured.
func (c *Core) Begin(charge *limiter.Charge, answer *limiter.Decision, until limiter.Tick, done func()) {
	t := c.begin()
	defer t.end()
	if c.begun(t, charge, answer, until, done) == nil {
		t.later = append(t.later, func(*turn) { done() })
	}
}

// begun starts a check, and returns what waits for its decision: nil if it is
// decided already, and done is not called.
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

// catchBegun ends a panic of begun, and what that returns is what waits for the decision.
// It is deferred, directly.
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

// interrupted returns what waits for the decision of a check that a panic interrupted: o,
// if that is numbered, so that it is answered at its deadline, or has ended. Else the
// policy answers.
func (c *Core) interrupted(t *turn, o *op, charge *limiter.Charge, answer *limiter.Decision) *op {
	if o != nil {
		t.fresh = nil // o may be kept somewhere
		if o.over() || o.id != 0 && c.ops.get(o.id) == o {
			t.arm = true
			return o
		}
		o.abandon()
	}
	c.answerByPolicy(t, charge, answer, nil)
	return nil
}

// beginAt begins a check at whoever should decide it: at this node, or at the member to,
// if it is the same for all its keys.
func (c *Core) beginAt(t *turn, o *op, to peer.Instance, same bool) *op {
	if same && to == c.self {
		q := parked{charge: o.charge, reply: replyTo{op: o}, until: o.until}
		o.owner = c.self
		switch v, _ := c.handle(t, &q, o.answer, nil); v {
		case answered:
			return nil
		case notOwner, overloaded:
			o.owner = 0
		case inVain:
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

// askOwner begins a check by asking its owner, which nobody was before: what start
// comes to where the owner can be reached. It reports false, having done nothing,
// where it cannot.
func (c *Core) askOwner(t *turn, o *op, to peer.Instance) bool {
	if to == 0 || o.hopeless(t) {
		return false
	}
	l := t.to(to)
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.up {
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
	c.addOp(t, l, o, o.id, false, false, false)
	return true
}

// register numbers an operation that waits here already.
func (c *Core) register(t *turn, o *op) {
	o.mu.Lock()
	ok := o.ended || c.ops.add(o, t)
	o.mu.Unlock()
	t.arm = true
	if !ok {
		o.policy(t)
	}
}

// Refund takes back a charge by its receipt; done is told what came of it, at
// the deadline at the latest. What a policy answered, or an owner before the
// present one, is void, which is no failure. It is asked of one member, and of
// another only where the first has surely not done it.
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

// Reset forgets the counters of a charge, wherever they are; done is told what
// came of it, at the deadline at the latest. It is asked of an owner and, where
// that does not answer, of its heir: done twice it is no other than done once.
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

// Check decides a check and waits for the decision: not longer than the deadline
// that was configured; then a policy answers. If the context ends while it
// waits, its error is returned: then the check may be charged, nothing is written
// into the decision any more, and the charge is not to be used again.
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
				c.waiters.Put(w) // nobody wakes it any more
				return ctx.Err()
			}
			<-w.c // it is decided, and about to be told
		}
	}
	c.waiters.Put(w)
	return nil
}

// CheckMany decides checks, as Check does each, and waits for all. Those for one
// member travel together. If the context ends meanwhile, it returns which are not
// decided, in order, of which the same holds as of Check's.
func (c *Core) CheckMany(ctx context.Context, charges []limiter.Charge, answers []limiter.Decision) (undecided []int) {
	t := c.begin()
	w := c.waiters.Get().(*awaited)
	w.open.Store(1) // this function, until all have begun
	var ops []*op   // of charges, where the context may end
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

// awaited is somebody who waits for checks.
type awaited struct {
	c    chan struct{}
	open atomic.Int32 // how many are not decided
	wake func()       // one is; whoever tells of the last one sends on c
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

// abandon waits no longer for what is not decided, and returns which that is.
func (w *awaited) abandon(ops []*op) (undecided []int) {
	for i, o := range ops {
		if o != nil && o.abandon() {
			undecided = append(undecided, i)
		}
	}
	if n := int32(len(undecided)); n == 0 || w.open.Add(-n) > 0 {
		<-w.c // the others are decided, and about to be told
	}
	return undecided
}

// fast decides a check of one key that is owned here, if its reply need not be
// withheld, without setting anything up. It reports false, having done nothing,
// in any other case.
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
	p.fault()
	if p.role != peer.Owned || len(p.own.unsettled) > 0 || !charge.Peek && k.Cost > 0 && !p.roomFor(k) {
		return false
	}
	q := parked{charge: charge}
	return c.decide(t, &q, []*part{p}, answer, nil) == answered
}

// roomFor tells whether an admission of a key could be answered at once.
func (p *part) roomFor(k *limiter.Key) bool {
	limit := p.cap(k.Rule)
	if limit == math.MaxUint64 {
		return true
	}
	have := uint64(k.Cost)
	if d := p.own.dirty.find(k.Hash.Hi); d != nil {
		have += d.old + d.new
	}
	return have <= limit
}
