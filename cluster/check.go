package cluster

import (
	"math"
	"sync"

	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/limiter/table"
	"github.com/weirlimit/weir/peer"
)

// Begin starts a check and calls done when it is decided: before Begin returns,
// where that is possible. The charge and the decision are the core's until then.
// until is when a policy answers, 0 for the deadline that was configured.
func (c *Core) Begin(charge *limiter.Charge, answer *limiter.Decision, until limiter.Tick, done func()) {
	t := c.begin()
	defer t.end()
	if c.begun(t, charge, answer, until, done) {
		t.later = append(t.later, func(*turn) { done() })
	}
}

// begun starts a check, and reports whether it is decided already; if it is,
// done is not called.
func (c *Core) begun(t *turn, charge *limiter.Charge, answer *limiter.Decision, until limiter.Tick, done func()) bool {
	if charge.Len() == 0 {
		answer.Clear()
		return true
	}
	to, same := c.destination(charge)
	if c.refusedHere(t, to, charge, answer) {
		return true
	}
	o := c.pool.Get().(*op)
	*o = op{c: c, charge: charge, answer: answer, until: until, begunAt: t.at, remember: c.denials.remembered(charge)}
	if o.until == 0 {
		o.until = t.now + c.config.Deadline
	}
	if same && to == c.self {
		q := parked{charge: charge, reply: replyTo{op: o}, until: o.until}
		o.wake = done
		o.owner = c.self
		switch v, _ := c.handle(t, &q, answer, nil); v {
		case answered:
			o.wake = nil
			c.pool.Put(o)
			return true
		case notOwner, overloaded:
			o.owner = 0
		default:
			c.register(t, o)
			return false
		}
	}
	o.wake = done
	c.start(t, o)
	return false
}

// register numbers an operation that waits here already.
func (c *Core) register(t *turn, o *op) {
	o.mu.Lock()
	ok := o.ended || c.ops.add(o)
	o.mu.Unlock()
	c.arm(t.now)
	if !ok {
		o.policy(t)
	}
}

// Refund takes back a charge by its receipt; done is called when it is taken
// back, or cannot be.
func (c *Core) Refund(charge *limiter.Charge, r limiter.Receipt, done func()) {
	t := c.begin()
	defer t.end()
	c.start(t, &op{kind: opRefund, charge: charge, answer: new(limiter.Decision), receipt: r, done: func(*turn, *op) {
		// Not before: denials from before it may still have been on their way.
		c.denials.forget(charge)
		done()
	}})
}

// Reset forgets the counters of a charge; done is told how many there were.
func (c *Core) Reset(charge *limiter.Charge, done func(n int)) {
	t := c.begin()
	defer t.end()
	c.start(t, &op{kind: opReset, charge: charge, answer: new(limiter.Decision), done: func(_ *turn, o *op) {
		c.denials.forget(charge)
		done(o.count)
	}})
}

// Check decides a check and waits for the decision: not longer than the deadline
// that was configured; then a policy answers.
func (c *Core) Check(charge *limiter.Charge, answer *limiter.Decision) {
	t := c.begin()
	var w *waiting1
	if c.fast(t, charge, answer) {
		t.end()
		return
	}
	w = c.waiters.Get().(*waiting1)
	if c.begun(t, charge, answer, 0, w.wake) {
		t.end()
	} else {
		t.end()
		<-w.c
	}
	c.waiters.Put(w)
}

// CheckMany decides checks, as Check does each, and waits for all. Those for one
// member travel together.
func (c *Core) CheckMany(charges []limiter.Charge, answers []limiter.Decision) {
	t := c.begin()
	var w sync.WaitGroup
	done := w.Done
	for i := range min(table.Ahead, len(charges)) {
		c.table.Prefetch(&charges[i])
	}
	for i := range charges {
		if next := i + table.Ahead; next < len(charges) {
			c.table.Prefetch(&charges[next])
		}
		if c.fast(t, &charges[i], &answers[i]) {
			continue
		}
		w.Add(1)
		if c.begun(t, &charges[i], &answers[i], 0, done) {
			done()
		}
	}
	t.end()
	w.Wait()
}

// waiting1 is somebody who waits for one check.
type waiting1 struct {
	c    chan struct{}
	wake func()
}

func newWaiting() any {
	w := &waiting1{c: make(chan struct{}, 1)}
	w.wake = func() { w.c <- struct{}{} }
	return w
}

// fast decides a check of one key that is owned here, if its reply need not be
// withheld, without setting anything up. It reports false, having done nothing,
// in any other case.
func (c *Core) fast(t *turn, charge *limiter.Charge, answer *limiter.Decision) bool {
	if charge.Len() != 1 {
		return false
	}
	k := charge.Key(0)
	p := c.part(k)
	if p == nil || peer.Instance(p.to.Load()) != c.self {
		return false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.role != peer.Owned || !charge.Peek && k.Cost > 0 && !p.roomFor(k) {
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
	if i, ok := p.own.index[k.Hash.Hi]; ok {
		have += p.own.dirty[i].old + p.own.dirty[i].new
	}
	return have <= limit
}
