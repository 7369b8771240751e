package route

import (
	"slices"
	"sync"

	"github.com/weirlimit/weir/internal/cluster/replica"
	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/limiter/arith"
)

// fanOut is a check over keys of several owners. Each owner gets a part and reserves
// it: its charge counts at once. When all parts have answered, the charges that the
// whole check does not make are cancelled. A reset or an amendment over several owners is
// divided the same way, and reserves nothing.
type fanOut struct {
	c      *Router
	charge *arith.Charge
	answer *limiter.Decision
	until  limiter.Tick
	exact  bool // until is of its own
	began  limiter.Tick
	done   func(*Turn)

	// again starts the whole check anew.
	again func(*Turn)
	rest  bool // its id is known for all keys that can never admit it, and the rest is to be charged

	mu    sync.Mutex
	parts []*portion
	open  int        // number of parts, later of those that charged, that have not ended
	later []*portion // those that start once the first has ended

	estimate uint64 // of the first key that is to be settled and has a hold
}

// anew is why a check over several owners begins anew, apart from charges in doubt.
type anew uint8

const (
	_         anew = iota
	forDenial      // an owner denied a part of the last attempt, and another one's met charges in doubt
	forRest        // the last attempt only peeked, see fanOut.mayTry
)

// portion is the part of a check for one owner.
type portion struct {
	call   Call
	keys   []int // indices into the whole charge
	charge arith.Charge
	answer limiter.Decision
	idle   limiter.Decision
}

// split divides a call whose keys have several owners, and starts the parts. It
// reports false, and does nothing, for refunds and for a call that some member may
// have executed.
func (o *Call) split(t *Turn) bool {
	if !o.clean() || o.task.kind == KindRefund {
		return false
	}
	// The parts work on memory of their own: the caller may stop waiting, and reuse its
	// memory, while they are still at work.
	s := &fanOut{c: o.c, charge: o.task.charge.Clone(), answer: new(limiter.Decision), until: o.task.until,
		exact: o.task.exact, began: t.Now}
	s.done = func(t *Turn) {
		o.mu.Lock()
		if o.progress.ended {
			o.mu.Unlock()
			return
		}
		o.task.charge.Unnamed = s.charge.Unnamed
		*o.task.answer = *s.answer
		o.result.outcome, o.progress.ended = s.outcome(), true
		o.mu.Unlock()
		o.retire(t)
	}
	s.again = func(t *Turn) {
		// A random pause, so that competing checks do not collide again.
		after := limiter.Tick(1)
		if !s.rest { // it met other charges
			after += s.c.config.Places.Random(2 * RetryEvery)
		}
		o.mu.Lock()
		o.progress.divided, o.progress.again, o.progress.took = false, t.Now+after, max(o.progress.took, t.Now+after-s.began)
		switch o.progress.anew = 0; {
		case s.rest:
			o.progress.anew = forRest
		case slices.ContainsFunc(s.parts, (*portion).denies):
			o.progress.anew = forDenial
		}
		o.c.calls.expect(o)
		o.mu.Unlock()
		t.Tick = true
	}
	o.mu.Lock()
	// The parts end it. At the deadline each asks the policy for its own keys.
	o.progress.again, o.progress.askedAt, o.progress.owner, o.progress.divided = 0, 0, o.c.config.Self, true
	took, denied := o.progress.took, o.progress.anew == forDenial
	s.rest = o.progress.anew == forRest
	o.mu.Unlock()
	amend := o.task.amend
	amend.Lacks = false // which compare finds out
	s.divide(o.task.kind, amend)
	s.markFinal(t.Now, took, denied)
	now := s.parts
	if o.task.kind == KindAmend && (!amend.Extend || o.task.amend.Lacks) {
		if !amend.Extend {
			now, s.later = now[:1], now[1:]
		}
		s.compare(t, now, o.task.amend.Lacks)
		return true
	}
	s.start(t, now)
	return true
}

func (s *fanOut) start(t *Turn, parts []*portion) {
	s.open = len(parts)
	for _, r := range parts {
		s.c.start(t, &r.call)
	}
}

// divide makes the parts by the present owners of the keys. A check that can never be
// allowed charges nothing anywhere, so its parts only peek, unless it has turned out that
// its id is known where it could not be allowed. If only its rules in shadow
// can never admit it, the parts of those keys peek, unless they are to remember its id.
func (s *fanOut) divide(kind Kind, amend limiter.Amend) {
	peeks, shadowPeeks := never(s.charge, false) && !s.rest, s.charge.ID == nil && never(s.charge, true)
	for i := range s.charge.Len() {
		k := *s.charge.Key(i)
		to := s.c.where(&k).Owner
		peek := kind != KindAmend && (s.charge.Peek || peeks || shadowPeeks && k.Rule.Shadow)
		var r *portion
		for _, have := range s.parts {
			// Each key of an extension is a part, since each has an estimate of its own. Rules in shadow may be
			// settled otherwise than those in force.
			other := amend.Extend || kind == KindAmend && have.charge.Key(0).Rule.Shadow != k.Rule.Shadow
			if s.c.where(have.charge.Key(0)).Owner == to && have.charge.Peek == peek && !other {
				r = have
			}
		}
		if r == nil {
			r = &portion{}
			r.call = Call{task: task{kind: kind, amend: amend, charge: &r.charge, answer: &r.answer, until: s.until,
				exact: s.exact, done: s.partDone}}
			if kind == KindCheck && !peek {
				r.call.task.prepare, r.call.task.idle = true, &r.idle
			}
			r.call.task.final = peek && !s.charge.Peek
			r.charge.Peek, r.charge.Trace, r.charge.ID = peek, s.charge.Trace, s.charge.ID
			s.parts = append(s.parts, r)
		}
		r.charge.Add(k)
		r.keys = append(r.keys, i)
	}
}

// aRound is how long a part waits for another check's charges, with the tick that ends its wait.
// A check that begins anew pauses no longer.
const aRound = 3 * replica.TickEvery

// markFinal notes whether there is no time for the check to begin anew: to wait for other charges,
// be refused, take back what is reserved, pause, and wait once more. That is three rounds, and three
// round trips to the slowest owner. took is how long an earlier attempt took before it began anew, 0 if there
// was none: another one may take as long, and the last one four times as long. Its charge waits for the
// heir's answer to what was sent before, and then for its own.
// denied means that another part was denied while one met charges in doubt. Then the check is denied, most likely: it
// begins anew once only.
func (s *fanOut) markFinal(now, took limiter.Tick, denied bool) {
	takes := max(3*aRound, 5*took)
	for _, r := range s.parts {
		if to := s.c.where(r.charge.Key(0)).Owner; to != 0 && to != s.c.config.Self {
			takes = max(takes, 3*aRound+s.c.config.Mesh.Patience(to, s.c.config.Deadline/4))
		}
	}
	for _, r := range s.parts {
		if r.call.task.prepare {
			r.call.task.final = denied || s.until-now < takes
		}
	}
}

// never reports whether a check can never be admitted: a limit of a rule, in shadow or
// not as given, has less capacity than the cost.
func never(k *arith.Charge, shadow bool) bool {
	for i := range k.Len() {
		key := k.Key(i)
		for _, l := range key.Rule.Limits {
			if key.Rule.Shadow == shadow && key.Cost > l.Capacity() {
				return true
			}
		}
	}
	return false
}

func (s *fanOut) partDone(t *Turn, _ *Call) {
	if !s.closed() {
		return
	}
	switch r := s.parts[0]; {
	case len(s.later) > 0:
		s.settled(t)
	case r.call.task.kind == KindAmend && r.call.task.amend.Extend:
		s.extended(t)
	case r.call.task.kind != KindCheck:
		s.done(t)
	case slices.ContainsFunc(s.parts, func(r *portion) bool { return r.call.result.contests }):
		s.retreat(t)
	default:
		s.conclude(t)
	}
}

// closed counts one end down, and reports whether it was the last.
func (s *fanOut) closed() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.open--
	return s.open == 0
}
