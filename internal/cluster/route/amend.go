package route

import (
	"slices"

	"github.com/weirlimit/weir/internal/peer"
	"github.com/weirlimit/weir/limiter"
)

// Amend settles or extends the reservation of a charge's ID, at the owner of each key or, if it
// does not answer, at its heir. It calls done once with the outcome, at the deadline at the
// latest. A second execution changes nothing, so several members may be asked. Keys of several
// owners are settled by each of them. If one of them denies what an extension adds, the others
// have added it: too much is reserved there until the reservation is settled or ends.
func (c *Router) Amend(t *Turn, charge *limiter.Charge, a limiter.Amend, done func(Outcome)) {
	c.start(t, &Call{task: task{kind: KindAmend, charge: charge, answer: new(limiter.Decision), amend: a, done: func(_ *Turn, o *Call) {
		c.denials.forget(charge)
		done(o.outcome)
	}}})
}

// together returns the result of an amendment by several owners. Either may be nil.
func together(a, b *limiter.Amended) *limiter.Amended {
	switch {
	case a == nil:
		return b
	case b == nil:
		return a
	}
	out := *a
	if rank(b.State) > rank(a.State) {
		out.State, out.First = b.State, b.First
	}
	if out.Estimate == 0 {
		out.Estimate = b.Estimate
	}
	out.Over, out.RetryAfter = max(a.Over, b.Over), max(a.RetryAfter, b.RetryAfter)
	return &out
}

// rank orders the states of amendments: if owners differ, the one with the highest rank is told.
func rank(s limiter.AmendState) int {
	return slices.Index([]limiter.AmendState{
		limiter.AmendUnknown, limiter.AmendRepeated, limiter.AmendDone, limiter.AmendCharged,
		limiter.AmendDenied, limiter.AmendSettled, limiter.AmendFull,
	}, s)
}

// holdOut returns what an amendment with a number says of a reservation.
func holdOut(number uint64, id *limiter.Idempotency, a limiter.Amend) *peer.Hold {
	h := peer.Hold{ID: number, Life: uint64(limiter.Span(id.Life)), Extend: a.Extend, Ignore: a.IgnoreUnknown}
	if a.Extend {
		h.Span = uint64(limiter.Span(id.Hold))
	}
	return &h
}

// amendedIn returns the result of an amendment, nil for nil.
func amendedIn(a *peer.Amended) *limiter.Amended {
	if a == nil {
		return nil
	}
	return &limiter.Amended{
		State: limiter.AmendState(a.State), First: a.First, Estimate: a.Estimate, Over: a.Over, RetryAfter: limiter.Tick(a.RetryAfter).Duration(),
	}
}

// AmendedOut returns the result of an amendment as the reply with a number carries it.
func AmendedOut(number uint64, a *limiter.Amended) peer.Amended {
	return peer.Amended{
		ID: number, State: uint8(a.State), First: a.First, Estimate: a.Estimate, Over: a.Over, RetryAfter: int64(limiter.Span(a.RetryAfter)),
	}
}
