package client

import (
	"context"
	"crypto/rand"
	"fmt"

	"google.golang.org/grpc"

	"github.com/weirlimit/weir/internal/weirwire"
	"github.com/weirlimit/weir/limiter"
	weirv1 "github.com/weirlimit/weir/proto/weir/v1"
)

// Amended is what was done with a reservation.
type Amended = limiter.Amended

// SettleOption changes how [Client.Settle] settles. It is [limiter.SettleOption].
type SettleOption = limiter.SettleOption

// IgnoreUnknown charges nothing if the id is not known. By default the units that were used are charged then. It is
// [limiter.IgnoreUnknown].
func IgnoreUnknown() SettleOption { return limiter.IgnoreUnknown() }

// Actual settles each counter with the cost that its rule or quota computes from what was used of each attribute. It
// is [limiter.Actual].
func Actual(units map[string]int64) SettleOption { return limiter.Actual(units) }

// ErrSettled is wrapped by the error of Settle, Cancel and Extend if the id stands for a charge
// that is final. It is [limiter.ErrSettled].
var ErrSettled = limiter.ErrSettled

// ErrRaised is wrapped by the error of Extend if the estimate was raised as often as it may be. The
// reservation stands. It is [limiter.ErrRaised].
var ErrRaised = limiter.ErrRaised

// ErrCosts is wrapped by the error of Settle if several rules have reserved different numbers of units: one
// number cannot settle both. Settle with [Actual]. The reservation stands. It is [limiter.ErrCosts].
var ErrCosts = limiter.ErrCosts

// Reserve is [Client.Check] of a request with a Hold, to which it gives an id if it has none: by
// the request it is settled later. After an error that wraps [ErrUnanswered], or that of the context, it may have been
// reserved: cancel it, or it ends by itself. Settle, Cancel and Extend wait, within Timeout, for a check of the same id
// that this client still has on a stream. The nodes must allow refunds (their flag
// --allow-refunds); else the error wraps [ErrDenied].
func (c *Client) Reserve(ctx context.Context, r *limiter.Request) (limiter.Decision, error) {
	if r.Hold == 0 {
		return limiter.Decision{}, fmt.Errorf("%w: the request is to be reserved for no time: give it a hold", ErrInvalid)
	}
	if r.ID == "" {
		r.ID = rand.Text()
	}
	return c.Check(ctx, *r)
}

// Settle ends the reservation that a check of the same request with a Hold made, as Settle of a
// node does: the request has used actual units. An id that is not known is charged with them;
// with [IgnoreUnknown] nothing is.
//
// Settling again with the same number changes nothing, at any node. So if a node does not
// answer, another one is asked once, and a settlement whose error wraps [ErrUnanswered] can be
// repeated. With another number the error wraps [ErrSettled] and names the first one. If several rules
// have reserved different numbers, it wraps [ErrCosts]: settle with [Actual]. After any other
// error nothing has changed.
func (c *Client) Settle(ctx context.Context, r limiter.Request, actual int64, opts ...SettleOption) (Amended, error) {
	unknown, how, number := weirv1.IfUnknown_IF_UNKNOWN_CHARGE, limiter.Settlement(opts...), &actual
	if how.IgnoreUnknown {
		unknown = weirv1.IfUnknown_IF_UNKNOWN_IGNORE
	}
	if how.Named {
		if actual != 0 || len(how.Actual) == 0 {
			return Amended{}, fmt.Errorf("%w: the request is settled with %d, and with numbers for %d attributes: give "+
				"either a number, or what was used of at least one attribute", ErrInvalid, actual, len(how.Actual))
		}
		number = nil
	}
	return c.amend(ctx, &r, func(ctx context.Context, q *weirv1.CheckRequest, api weirv1.LimiterClient,
		o ...grpc.CallOption) (*weirv1.ReservationResponse, error) {
		return api.Settle(ctx, &weirv1.SettleRequest{
			Path: q.GetPath(), Method: q.GetMethod(), User: q.GetUser(), Ip: q.GetIp(), Group: q.GetGroup(),
			Attributes: q.GetAttributes(), Rule: q.GetRule(), Limits: q.GetLimits(), Id: q.GetId(), IdTtlUs: q.GetIdTtlUs(),
			Actual: number, IfUnknown: unknown, ActualByAttribute: how.Actual,
		}, o...)
	})
}

// Cancel settles a reservation with 0, which gives back all of the estimate. Otherwise it does
// what [Client.Settle] does. An id that is not known is not an error.
func (c *Client) Cancel(ctx context.Context, r limiter.Request) (Amended, error) {
	return c.amend(ctx, &r, func(ctx context.Context, q *weirv1.CheckRequest, api weirv1.LimiterClient,
		o ...grpc.CallOption) (*weirv1.ReservationResponse, error) {
		return api.Cancel(ctx, &weirv1.CancelRequest{
			Path: q.GetPath(), Method: q.GetMethod(), User: q.GetUser(), Ip: q.GetIp(), Group: q.GetGroup(),
			Attributes: q.GetAttributes(), Rule: q.GetRule(), Limits: q.GetLimits(), Id: q.GetId(), IdTtlUs: q.GetIdTtlUs(),
		}, o...)
	})
}

// Extend lets a reservation last for the request's Hold from now on, and raises its estimate to
// the request's cost if that is higher and the limits admit it, as Extend of a node does. It can
// be repeated as [Client.Settle] can.
func (c *Client) Extend(ctx context.Context, r limiter.Request) (Amended, error) {
	return c.amend(ctx, &r, func(ctx context.Context, q *weirv1.CheckRequest, api weirv1.LimiterClient,
		o ...grpc.CallOption) (*weirv1.ReservationResponse, error) {
		return api.Extend(ctx, &weirv1.ExtendRequest{
			Path: q.GetPath(), Method: q.GetMethod(), User: q.GetUser(), Ip: q.GetIp(), Group: q.GetGroup(),
			Attributes: q.GetAttributes(), Cost: q.Cost, Rule: q.GetRule(), Limits: q.GetLimits(), Id: q.GetId(),
			IdTtlUs: q.GetIdTtlUs(), HoldUs: q.GetHoldUs(),
		}, o...)
	})
}

// amend makes a call about a reservation, first to the owner of its first counter.
func (c *Client) amend(ctx context.Context, r *limiter.Request,
	call func(ctx context.Context, q *weirv1.CheckRequest, api weirv1.LimiterClient,
		o ...grpc.CallOption) (*weirv1.ReservationResponse, error)) (Amended, error) {
	if err := sendable(r); err != nil {
		return Amended{}, err
	}
	q := weirwire.NewCheckRequest(r, false)
	ctx, cancel := context.WithTimeoutCause(ctx, c.config.Timeout, ErrUnanswered)
	defer cancel()
	if err := c.behind(ctx, r.ID); err != nil {
		return Amended{}, err
	}
	var m *weirv1.ReservationResponse
	of := c.resolve(r)
	owner := of.owner()
	of.forget(c)
	err := c.aloneBy(ctx, owner, false, func(ctx context.Context, api weirv1.LimiterClient,
		o ...grpc.CallOption) (err error) {
		m, err = call(ctx, q, api, o...)
		return err
	})
	if err != nil {
		return Amended{}, err
	}
	out := Amended{
		State: limiter.AmendState(m.GetState()), Estimate: m.GetEstimate(), Over: m.GetOver(),
		RetryAfter: limiter.Tick(m.GetRetryAfterUs()).Duration(),
	}
	if _, ok := weirv1.ReservationState_name[int32(m.GetState())]; !ok {
		return Amended{}, &nodeError{fmt.Sprintf("%v: it has state %d of a reservation", errReply, m.GetState()),
			ErrUnanswered}
	}
	if err := checkUnits([]uint64{out.Estimate}); err != nil {
		return Amended{}, &nodeError{err.Error(), ErrUnanswered}
	}
	return out, nil
}
