package transport

import (
	"context"

	"github.com/weirlimit/weir/internal/frontend"
	"github.com/weirlimit/weir/internal/weirwire"
	"github.com/weirlimit/weir/limiter"
	weirv1 "github.com/weirlimit/weir/proto/weir/v1"
)

// aboutReservation is a message that names a reservation.
type aboutReservation interface {
	aboutOne
	GetIdTtlUs() int64
}

// reserves returns the gRPC method of a name that does what its message asks for with a reservation.
func reserves[T any, M interface {
	*T
	aboutReservation
}](s *service, name string) unary {
	return full(s, name, func(ctx context.Context, m M) (*weirv1.ReservationResponse, error) {
		return s.reservation(ctx, m)
	})
}

// reservation does what a message asks for. It needs the permission to refund, as over HTTP.
func (s *service) reservation(ctx context.Context, m aboutReservation) (*weirv1.ReservationResponse, error) {
	if err := s.mayAmend(); err != nil {
		return nil, err
	}
	var q question
	by, err := s.admit(ctx, &q.request, m, ActionRefund)
	var out limiter.Amended
	if err == nil {
		q.request.IDTTL = weirwire.IDTime(m.GetIdTtlUs())
		out, err = amendBy(ctx, &by, &q, m)
	}
	if err != nil {
		return nil, err
	}
	return &weirv1.ReservationResponse{
		State: weirv1.ReservationState(out.State), Estimate: out.Estimate, Over: out.Over,
		RetryAfterUs: int64(limiter.Span(out.RetryAfter)),
	}, nil
}

// amendBy completes a question by what its message has of its own, and does it.
func amendBy(ctx context.Context, by *frontend.Session, q *question, m aboutReservation) (limiter.Amended, error) {
	switch m := m.(type) {
	case *weirv1.SettleRequest:
		switch u := m.GetIfUnknown(); u {
		case weirv1.IfUnknown_IF_UNKNOWN_CHARGE, weirv1.IfUnknown_IF_UNKNOWN_IGNORE:
			q.amend = amendment{m.Actual, m.GetActualByAttribute(), u == weirv1.IfUnknown_IF_UNKNOWN_IGNORE}
		default:
			return limiter.Amended{}, invalid("there is no if_unknown number %d", u)
		}
		return settle(ctx, by, q)
	case *weirv1.ExtendRequest:
		q.request.Hold = weirwire.IDTime(m.GetHoldUs())
		if m.Cost != nil {
			q.request.Cost = limiter.Units(m.GetCost())
		}
		return extend(ctx, by, q)
	}
	return cancel(ctx, by, q)
}
