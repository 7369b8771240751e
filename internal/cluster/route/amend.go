package route

import (
	"slices"

	"github.com/weirlimit/weir/internal/peer"
	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/limiter/arith"
	"github.com/weirlimit/weir/limiter/table"
)

// Amend settles or extends the reservation of a charge's ID, at the owner of each key or, if it
// does not answer, at its heir. It calls done once with the outcome, at the deadline at the
// latest. A second execution changes nothing, so several members may be asked. Keys of several
// owners are settled by each of them once none refuses, by that of the first key before the others. They are all
// extended, or none is.
func (c *Router) Amend(t *Turn, charge *arith.Charge, a limiter.Amend, done func(Outcome)) {
	c.start(t, &Call{task: task{kind: KindAmend, charge: charge, answer: new(limiter.Decision), amend: a,
		done: func(_ *Turn, o *Call) {
			c.denials.forget(charge)
			done(o.result.outcome)
		}}})
}

// settled continues a settlement over several owners once the owner of the first key has made its part.
// It decides which of two settlements with different numbers is the first: the others are asked only if it
// has done what they are to do.
func (s *fanOut) settled(t *Turn) {
	later, first := s.later, &s.parts[0].call.result.outcome
	s.later = nil
	if first.Amended != nil && !refuses(first.Amended.State) {
		s.start(t, later)
		return
	}
	if first.Unanswered != 0 {
		for _, r := range later {
			r.call.result.outcome.Unanswered = 1<<len(r.keys) - 1
		}
	}
	s.done(t)
}

// compare begins a settlement by asking what each key has reserved, or what its id stands for: one number does not
// settle different estimates, an id that stands for another number at some key charges no other one, and what
// one owner has settled is not taken back. A question is an extension to be taken back that nobody made. Members
// that do not answer it with either settle whatever was reserved. The first portions go on then, unless the request
// lacks keys of the check.
func (s *fanOut) compare(t *Turn, first []*portion, lacks bool) {
	s.open = s.charge.Len()
	all := make([]*Call, s.charge.Len())
	for i := range all {
		one := &arith.Charge{ID: s.charge.ID}
		one.Add(*s.charge.Key(i))
		all[i] = &Call{task: task{
			kind: KindAmend, charge: one, answer: new(limiter.Decision), back: &table.Extension{End: 1, WasEnd: 1},
			until: s.until, exact: s.exact,
			done: func(t *Turn, _ *Call) {
				if s.closed() {
					s.compared(t, all, first, lacks)
				}
			},
		}}
	}
	for _, o := range all {
		s.c.start(t, o)
	}
}

// compared goes on with a settlement once the owners have answered what is reserved.
func (s *fanOut) compared(t *Turn, all []*Call, first []*portion, lacks bool) {
	var e arith.Estimates
	var final *limiter.Amended
	var shape arith.Shape
	unanswered, known, held, inForce := false, false, false, 0
	for _, o := range all {
		x, k := &o.result.outcome, o.task.charge.Key(0)
		unanswered = unanswered || x.Unanswered != 0
		if x.Amended != nil && (x.Amended.State == limiter.AmendSettled || x.Amended.Estimate > 0) {
			if known = true; !k.Rule.Shadow {
				inForce++
			}
		}
		shape = max(shape, x.Shape)
		switch a := x.Amended; {
		case a == nil:
		case a.State == limiter.AmendSettled && a.First != k.Cost && final == nil:
			final = a
		case a.Estimate > 0:
			if held = true; s.estimate == 0 {
				s.estimate = a.Estimate
			}
			e.Add(k, a.Estimate)
		}
	}
	differs, differ := e.Differ(shape)
	switch how := s.parts[0].call.task.amend; {
	case unanswered:
		for _, r := range s.parts {
			r.call.result.outcome.Unanswered = 1<<len(r.keys) - 1
		}
	case final != nil && !how.Extend:
		s.parts[0].call.result.outcome.Amended = final
	case lacks && inForce < shape.Keys():
		s.parts[0].call.result.outcome.Amended = &limiter.Amended{State: limiter.AmendLacks}
	case differ && !how.Named && !how.Extend:
		s.parts[0].call.result.outcome.Amended = &differs
	default:
		for _, r := range s.parts {
			uncharged := r.charge.Key(0).Rule.Shadow || !how.Named && (!held || shape.Whole(inForce))
			if known && uncharged && !how.Extend { // the check has not charged it, or it is settled already
				r.call.task.amend.IgnoreUnknown = true
			}
		}
		s.start(t, first)
		return
	}
	s.later = nil
	s.done(t)
}

// extended ends an extension over several owners. If one of them refuses it, the others take it
// back. The answer waits until they have, or for the deadline: a caller that is told of a denial
// finds the former reservation at every owner. If the message is lost, too much is reserved there.
func (s *fanOut) extended(t *Turn) {
	if x := s.outcome(); x.Amended == nil || !refuses(x.Amended.State) {
		s.done(t)
		return
	}
	s.open = 1 // this function
	for _, r := range s.parts {
		if r.call.result.outcome.Extension != nil {
			s.takeBack(t, r)
		}
	}
	if s.closed() {
		s.done(t)
	}
}

// takeBack takes back the extension of one key.
func (s *fanOut) takeBack(t *Turn, r *portion) {
	c := r.charge.Clone()
	c.Key(0).Cost = r.call.result.outcome.Extension.Was
	o := &Call{task: task{kind: KindAmend, charge: c, answer: new(limiter.Decision), back: r.call.result.outcome.Extension,
		done: func(*Turn, *Call) {}}}
	if t.Now < s.until {
		s.mu.Lock()
		s.open++
		s.mu.Unlock()
		o.task.until = s.until
		o.task.done = func(t *Turn, _ *Call) {
			if s.closed() {
				s.done(t)
			}
		}
	}
	s.c.start(t, o)
}

// refuses reports whether an extension changes nothing in a state.
func refuses(s limiter.AmendState) bool { return rank(s) >= rank(limiter.AmendDenied) }

// together returns the result of an amendment by several owners. Either may be nil.
func together(a, b *limiter.Amended, extends bool) *limiter.Amended {
	switch {
	case a == nil:
		return b
	case b == nil:
		return a
	}
	out := *a
	switch is, was := rank(b.State), rank(a.State); {
	case is > was:
		out.State, out.First, out.RetryAfter = b.State, b.First, b.RetryAfter
	case is == was && b.RetryAfter == 0: // it is never admitted
		out.RetryAfter = 0
	case is == was && a.RetryAfter != 0:
		out.RetryAfter = max(a.RetryAfter, b.RetryAfter)
	}
	if out.Estimate == 0 {
		out.Estimate = b.Estimate
	}
	if extends && refuses(out.State) {
		out.Estimate = 0
	}
	out.Over = max(a.Over, b.Over)
	out.Known = a.Known + b.Known
	return &out
}

// rank orders the states of amendments: if owners differ, the one with the highest rank is told.
func rank(s limiter.AmendState) int {
	return slices.Index([]limiter.AmendState{
		limiter.AmendUnknown, limiter.AmendRepeated, limiter.AmendDone, limiter.AmendCharged,
		limiter.AmendDenied, limiter.AmendFull, limiter.AmendRaised, limiter.AmendDiffers, limiter.AmendLacks,
		limiter.AmendSettled,
	}, s)
}

// holdOut returns what an amendment with a number says of a reservation.
func holdOut(number uint64, id *arith.Idempotency, a limiter.Amend, back *table.Extension) *peer.Hold {
	h := peer.Hold{ID: number, Life: uint64(limiter.Span(id.Life)), Extend: a.Extend, Ignore: a.IgnoreUnknown,
		Named: a.Named, Lacks: a.Lacks, Lent: a.Lent}
	if a.Extend {
		h.Span = uint64(limiter.Span(id.Hold))
	}
	if back != nil {
		h.Back, h.End, h.WasEnd = true, uint64(back.End), uint64(back.WasEnd)
	}
	return &h
}

// amendedIn returns the result of an amendment, nil for nil.
func amendedIn(a *peer.Amended) *limiter.Amended {
	if a == nil {
		return nil
	}
	return &limiter.Amended{
		State: limiter.AmendState(a.State), First: a.First, Estimate: a.Estimate, Over: a.Over,
		RetryAfter: limiter.Tick(a.RetryAfter).Duration(), Known: int(a.Known),
	}
}

// extensionIn returns what an extension changed, nil if nothing.
func extensionIn(a *peer.Amended) *table.Extension {
	if a == nil || a.End == 0 {
		return nil
	}
	return &table.Extension{End: limiter.Tick(a.End), WasEnd: limiter.Tick(a.WasEnd), Was: a.Was}
}

// settledAt returns when a settlement charged what was used, 0 if the answer does not say.
func settledAt(a *peer.Amended) limiter.Tick {
	if a.End != 0 {
		return 0
	}
	return limiter.Tick(a.WasEnd)
}

// AmendedOut returns the result of an amendment as the reply with a number carries it.
func AmendedOut(number uint64, x *Outcome) peer.Amended {
	a := x.Amended
	out := peer.Amended{
		ID: number, State: uint8(a.State), First: a.First, Estimate: a.Estimate, Over: a.Over,
		RetryAfter: int64(limiter.Span(a.RetryAfter)), Shape: uint8(x.Shape), WasEnd: uint64(x.At), Known: uint8(a.Known),
	}
	if e := x.Extension; e != nil {
		out.Was, out.End, out.WasEnd = e.Was, uint64(e.End), uint64(e.WasEnd)
	}
	return out
}
