package cluster

import (
	"sync"

	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/peer"
)

// several is a check over keys that several nodes own. A part of the check goes
// to each, which reserves: its charge counts at once. When all have answered,
// the charges that the whole check does not make are cancelled.
type several struct {
	c      *Core
	charge *limiter.Charge
	answer *limiter.Decision
	until  limiter.Tick
	done   func(*turn)

	mu    sync.Mutex
	parts []*reservation
	open  int
}

// reservation is the part of a check over several owners that one of them has.
type reservation struct {
	op     op
	keys   []int // indices into the whole charge
	charge limiter.Charge
	answer limiter.Decision
	idle   limiter.Decision
}

// split makes parts of an operation whose keys have several owners. It is called
// before anything of it was executed.
func (o *op) split(t *turn) bool {
	o.mu.Lock()
	clean := len(o.sent) == 0 && !o.ended
	o.mu.Unlock()
	if !clean || o.kind == opRefund {
		return false
	}
	// The parts work on memory of their own: when its caller waits no longer for the
	// whole, he has his back, and they may still be at work.
	s := &several{c: o.c, charge: o.charge.Clone(), answer: new(limiter.Decision), until: o.until}
	s.done = func(t *turn) {
		o.mu.Lock()
		if o.ended {
			o.mu.Unlock()
			return
		}
		o.charge.Unnamed = s.charge.Unnamed
		*o.answer = *s.answer
		if o.idle != nil {
			s.whatIf(o.idle)
		}
		o.outcome, o.by, o.ended = s.outcome(), s.by(), true
		o.mu.Unlock()
		o.retire(t)
	}
	o.mu.Lock()
	// Its parts end it: each asks the policy at the deadline for its own keys.
	o.again, o.askedAt, o.owner, o.divided = 0, 0, o.c.self, true
	o.mu.Unlock()
	s.divide(o.kind)
	s.open = len(s.parts)
	for _, r := range s.parts {
		o.c.start(t, &r.op)
	}
	return true
}

// divide makes the parts, by who owns the keys now.
func (s *several) divide(kind opKind) {
	for i := range s.charge.Len() {
		k := *s.charge.Key(i)
		to := s.c.part(&k).to.Load()
		var r *reservation
		for _, have := range s.parts {
			if s.c.part(have.charge.Key(0)).to.Load() == to {
				r = have
			}
		}
		if r == nil {
			r = &reservation{}
			r.op = op{kind: kind, charge: &r.charge, answer: &r.answer, idle: &r.idle, reserve: true, until: s.until, done: s.partDone}
			s.parts = append(s.parts, r)
		}
		r.charge.Peek = s.charge.Peek
		r.charge.Add(k)
		r.keys = append(r.keys, i)
	}
}

func (s *several) partDone(t *turn, _ *op) {
	s.mu.Lock()
	s.open--
	last := s.open == 0
	s.mu.Unlock()
	if last {
		s.conclude(t)
		s.done(t)
	}
}

// conclude makes one decision of the parts', and cancels the charges that it
// does not make.
func (s *several) conclude(t *turn) {
	if s.parts[0].op.kind == opReset {
		return
	}
	s.gather(s.answer)
	s.gatherUnnamed()
	if s.charge.Peek {
		return
	}
	n := make([]int, s.charge.Len()) // index of each key's first limit
	for i, at := 0, 0; i < len(n); i++ {
		n[i] = at
		at += s.limits(i)
	}
	for _, r := range s.parts {
		s.cancel(t, r, n)
	}
	s.answer.Conclude()
	s.answer.Receipt = limiter.Receipt{}
}

// gather copies the parts' answers into one decision, and settles it.
func (s *several) gather(d *limiter.Decision) {
	d.Clear()
	total := 0
	for i := range s.charge.Len() {
		total += s.limits(i)
	}
	d.Grow(total)
	at := 0
	source := limiter.SourceNone
	for i := range s.charge.Len() {
		r, j := s.find(i)
		for k := range r.answer.Len() {
			if l := r.answer.Limit(k); l.Key == j {
				*d.Limit(at) = *l
				d.Limit(at).Key = i
				at++
			}
		}
		if source != limiter.SourceFallbackClosed {
			source = max(source, r.answer.Source)
		}
	}
	d.Source = source
	d.Settle(s.charge.Peek)
	d.Conclude()
}

// limits returns how many limits answered for key i.
func (s *several) limits(i int) (n int) {
	r, j := s.find(i)
	for k := range r.answer.Len() {
		if r.answer.Limit(k).Key == j {
			n++
		}
	}
	return n
}

// find returns the part that has key i, and its index there.
func (s *several) find(i int) (*reservation, int) {
	for _, r := range s.parts {
		for j, k := range r.keys {
			if k == i {
				return r, j
			}
		}
	}
	return nil, 0
}

// cancel takes back what a part charged and the whole check does not charge, and
// has the decision say what holds then.
func (s *several) cancel(t *turn, r *reservation, first []int) {
	undo := r.answer.Receipt
	undo.Charged = 0
	at := make([]int, len(r.keys)) // limits of each key seen so far
	for k := range r.answer.Len() {
		l := r.answer.Limit(k)
		i := first[r.keys[l.Key]] + at[l.Key]
		at[l.Key]++
		if charge, _ := s.answer.Charges(i); charge || !r.answer.Receipt.Has(k) {
			continue
		}
		undo.Charged |= 1 << k
		if k < r.idle.Len() {
			was := s.answer.Limit(i)
			idle := *r.idle.Limit(k)
			was.Remaining, was.ResetAfter, was.RetryAfter = idle.Remaining, idle.ResetAfter, idle.RetryAfter
		}
	}
	if undo.Charged == 0 || r.op.by == 0 {
		return
	}
	s.c.cancel(t, &r.charge, undo, r.op.by)
}

// cancel takes a reservation back where it was made, once.
func (c *Core) cancel(t *turn, k *limiter.Charge, undo limiter.Receipt, at peer.Instance) {
	if at == c.self {
		q := parked{kind: opRefund, charge: k, receipt: undo, until: t.now}
		c.handle(t, &q, nil, nil)
		return
	}
	o := &op{c: c, kind: opRefund, charge: k, receipt: undo, until: t.now}
	c.sendOp(t, o, at, false)
}

// whatIf fills what holds if the whole check, itself a part, is cancelled.
func (s *several) whatIf(d *limiter.Decision) { *d = *s.answer.Clone() }

// by returns who decided, if that was one.
func (s *several) by() peer.Instance {
	by := s.parts[0].op.by
	for _, r := range s.parts {
		if r.op.by != by {
			return 0
		}
	}
	return by
}
