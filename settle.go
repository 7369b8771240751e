package weir

import (
	"context"
	"fmt"
	"strings"

	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/rules"
)

// Amended is what was done with a reservation.
type Amended = limiter.Amended

// What was done with a reservation.
const (
	AmendDone     = limiter.AmendDone
	AmendRepeated = limiter.AmendRepeated
	AmendCharged  = limiter.AmendCharged
	AmendUnknown  = limiter.AmendUnknown
	AmendDenied   = limiter.AmendDenied
)

// SettleOption changes how [Node.Settle] settles. By default an id that is not known is charged with the units that
// were used.
type SettleOption = limiter.SettleOption

// IgnoreUnknown charges nothing if the id is not known, since its hold has ended, its counters were lost, or it was
// never reserved. By default the units that were used are charged then.
func IgnoreUnknown() SettleOption { return limiter.IgnoreUnknown() }

// ErrSettled is wrapped by the error of Settle, Cancel and Extend if the id stands for a charge
// that is final: it was settled with another number, kept when it expired, or never held. It is also
// wrapped by the error of a check by a rule on concurrency, if a reservation with the same id has ended.
var ErrSettled = limiter.ErrSettled

// ErrRaised is wrapped by the error of Extend if the estimate was raised as often as it may be. The
// reservation stands.
var ErrRaised = limiter.ErrRaised

// ErrCosts is wrapped by the error of Settle if several rules count the request and have reserved different
// numbers of units, such as 1 request and 2000 tokens: one number cannot settle both. The reservation
// stands. Settle it with [Actual], or cancel it.
var ErrCosts = limiter.ErrCosts

// ErrNoRoom is wrapped by the error of Settle and Extend if the table has no room for what they
// would charge.
var ErrNoRoom = limiter.ErrNoRoom

// Actual settles each counter with the cost that its rule or quota computes from what was used of each attribute. It
// is [limiter.Actual].
func Actual(units map[string]int64) SettleOption { return limiter.Actual(units) }

// Settle ends the reservation that a check of the same request with [Request.Hold] made: the
// request has used actual units, 0 or more. The cost of the request is ignored. If the estimate
// was too high, the rest is given back where it was charged, as by a refund. If it was too low,
// the rest is charged in full, also beyond the limit: see [Amended.Over].
//
// Settling again with the same number within the request's id_ttl does nothing (AmendRepeated).
// With another number the error wraps [ErrSettled] and names the first one. An id that is not
// known, since its hold has ended or the node was started anew, is charged with actual
// (AmendCharged), or with [IgnoreUnknown] left alone (AmendUnknown). If several rules count the request and have
// reserved different numbers, the error wraps [ErrCosts]; rules in shadow and those on concurrency alone do not
// matter. With [Actual] each counter is settled with its own number.
//
// If the request lacks something that the check had, such as an attribute, and so does not name all counters that
// were charged, the error wraps [ErrInvalid] and says what it lacks.
//
// For a request without an id, or if a backend has no reservations, the error wraps [ErrInvalid].
// In a cluster it wraps [ErrUnanswered] if no member that holds the keys answered within the
// deadline. After an error nothing has changed, unless the error says that a member or a backend
// did not answer. Then the caller can settle again with the same number.
func (n *Node) Settle(ctx context.Context, r Request, actual int64, opts ...SettleOption) (Amended, error) {
	if actual < 0 || actual > limiter.MaxUnits {
		return Amended{}, fmt.Errorf("%w: the request is settled with %d: give 0 to %d units", ErrInvalid, actual,
			int64(limiter.MaxUnits))
	}
	a := limiter.Settlement(opts...)
	r.Cost = limiter.Units(actual)
	if a.Named {
		if actual != 0 {
			return Amended{}, fmt.Errorf("%w: the request is settled with %d, and with numbers for attributes: give one of the "+
				"two", ErrInvalid, actual)
		}
		r.Cost = limiter.Cost{}
		if err := limiter.NameActual(&r, a.Actual); err != nil {
			return Amended{}, err
		}
	}
	return n.amend(ctx, &r, a.Amend)
}

// Cancel settles a reservation with 0, which gives back all of the estimate. Otherwise it does
// what [Node.Settle] does. An id that is not known is not an error (AmendUnknown).
func (n *Node) Cancel(ctx context.Context, r Request) (Amended, error) {
	return n.Settle(ctx, r, 0, IgnoreUnknown())
}

// Extend lets a reservation last for the request's Hold from now on. If the request's cost is
// above the estimate and the limits admit the difference, it is charged, and the cost becomes the
// estimate. If they deny it, the reservation stays as it is (AmendDenied). If the id is not
// known, nothing is done (AmendUnknown): make a new reservation. After the settlement the error
// wraps [ErrSettled]. The estimate can be raised 63 times, after which the error wraps [ErrRaised].
func (n *Node) Extend(ctx context.Context, r Request) (Amended, error) {
	if r.Hold == 0 {
		return Amended{}, fmt.Errorf("%w: the reservation is to be extended by no time: give the request a hold", ErrInvalid)
	}
	return n.amend(ctx, &r, limiter.Amend{Extend: true})
}

func (n *Node) amend(ctx context.Context, r *Request, a limiter.Amend) (Amended, error) {
	if err := n.usable(ctx); err != nil {
		return Amended{}, err
	}
	set := n.node.Rules.Load()
	if r.ID != "" {
		for _, charged := range set.Charged(r) {
			known := a
			known.IgnoreUnknown, known.Lacks = true, true // it may be known for some keys only, and for all by the next
			if out, err := n.amendBy(ctx, charged, r, known); !elsewhere(out) {
				return out, err
			}
		}
	}
	return n.amendBy(ctx, set, r, a)
}

// elsewhere reports whether a reservation is not one by the set of rules that was asked, if it is one at all.
func elsewhere(a Amended) bool { return a.State == AmendUnknown || a.State == limiter.AmendLacks }

// amendBy is amend by a set of rules. With Lacks it is one of several, so a state that says it is not the one is not
// observed.
func (n *Node) amendBy(ctx context.Context, set *rules.Set, r *Request, a limiter.Amend) (Amended, error) {
	if r.ID == "" {
		return Amended{}, fmt.Errorf("%w: the request has no id: give that of the check that made the reservation",
			ErrInvalid)
	}
	q, err := resolveBy(set, r)
	if err != nil {
		return Amended{}, err
	}
	if q.Charge.Len() == 0 || q.Charge.ID == nil { // no rule counts it, or none by an id
		return Amended{State: AmendUnknown}, nil
	}
	if err := limiter.UnreadActual(r); err != nil {
		return Amended{}, err
	}
	if r.Lent {
		q.Charge.ID.Lent = false // it ends a lease: no other hold has its number
		a.Lent = !a.IgnoreUnknown
	}
	lacking := q.Set.Lacking(r)
	one := a.Lacks
	a.Lacks = one || len(lacking) > 0
	out, err := n.decider.Amend(ctx, q, a)
	if err == nil && n.node.Observer.Settled != nil && !r.Lent && !(one && elsewhere(out)) {
		n.node.Observer.Settled(strings.TrimPrefix(q.Charge.Key(0).Rule.Name, rules.OverridePrefix), a.Extend, out.State)
	}
	switch {
	case err != nil:
		return Amended{}, err
	case out.State == AmendCharged:
		out.Keys = q.Charge.Len()
	case out.State == limiter.AmendSettled:
		return out, fmt.Errorf("%w: the id stands for %d units for good, since it was settled with that, was kept when it "+
			"expired, or was never reserved", ErrSettled, out.First)
	case out.State == limiter.AmendRaised:
		return out, fmt.Errorf("%w: %d times, and the reservation stands with the last one: raise it by more at a time, or "+
			"settle it and reserve anew", ErrRaised, limiter.MaxHoldParts-1)
	case out.State == limiter.AmendLacks:
		return out, fmt.Errorf("%w: the check was charged to counters that this request does not name, and the reservation "+
			"stands: repeat what the check had of what this request lacks: %.1000s", ErrInvalid, strings.Join(lacking, ", "))
	case out.State == limiter.AmendDiffers && out.First == 0:
		return out, fmt.Errorf("%w: rules of the request draw different numbers on one quota, and the first counter has "+
			"reserved %d units, so one number cannot settle all: say how much was used of each attribute that states a cost, "+
			"or cancel the reservation", ErrCosts, out.Estimate)
	case out.State == limiter.AmendDiffers:
		return out, fmt.Errorf("%w: the rules of the request have reserved %d and %d units, and one number cannot settle "+
			"both: say how much was used of each attribute that states a cost, such as {tokens: 800, udollars: 1930}, or "+
			"cancel the reservation", ErrCosts,
			out.Estimate, out.First)
	case out.State == limiter.AmendFull:
		return out, fmt.Errorf("%w: the table holds as many counters or ids as it may: raise max_keys, or ask again later",
			ErrNoRoom)
	}
	return out, nil
}
