package frontend

import (
	"context"
	"errors"

	"github.com/weirlimit/weir/limiter"
)

// Check decides a request, or only looks.
func (s *Session) Check(ctx context.Context, r *limiter.Request, d *limiter.Decision, peek bool) error {
	if peek {
		return s.of.Decider.PeekInto(ctx, r, d)
	}
	return s.CheckBy(ctx, s.of.Decider, r, d)
}

// CheckBy decides a request by something else than the frontend's decider.
func (s *Session) CheckBy(ctx context.Context, by Checker, r *limiter.Request, d *limiter.Decision) error {
	err := by.CheckInto(ctx, r, d)
	if err == nil {
		s.madeOne(d)
		if !d.Allowed && s.of.Denials != nil {
			s.of.Denials.Denied(s.of.Over, r, d)
		}
	}
	return err
}

// Decide decides requests in order, at one instant. peeks says which are only peeked; nil: none is. If only
// some could not be decided, the error wraps a [*limiter.BatchError].
func (s *Session) Decide(ctx context.Context, rs []limiter.Request, ds []limiter.Decision, peeks []bool) (err error) {
	switch {
	case peeks == nil:
		err = s.of.Decider.CheckBatchInto(ctx, rs, ds)
	case s.of.peeker != nil:
		err = s.of.peeker.PeekBatchInto(ctx, rs, ds, peeks)
	default:
		err = oneByOne(ctx, s.of.Decider, rs, ds, peeks)
	}
	s.madeMany(ds, peeks, err)
	if s.of.Denials != nil {
		s.denied(rs, ds, peeks, err)
	}
	return err
}

// denied reports the denials among the decisions of a batch that ended with an error, nil for none.
func (s *Session) denied(rs []limiter.Request, ds []limiter.Decision, peeks []bool, err error) {
	some, ok := errors.AsType[*limiter.BatchError](err)
	if err != nil && !ok {
		return
	}
	failed := 0
	for i := range ds {
		if ok && failed < len(some.Index) && some.Index[failed] == i {
			failed++
			continue
		}
		if !ds[i].Allowed && !rs[i].Lent && (peeks == nil || !peeks[i]) {
			s.of.Denials.Denied(s.of.Over, &rs[i], &ds[i])
		}
	}
}

// Peek is Decide for requests that are all peeked.
func (s *Session) Peek(ctx context.Context, rs []limiter.Request, ds []limiter.Decision) error {
	if s.of.peeker != nil {
		return s.of.peeker.PeekBatchInto(ctx, rs, ds, nil)
	}
	return oneByOne(ctx, s.of.Decider, rs, ds, nil)
}

// Explain returns what a check would answer, and why. The
// commands of a backend are removed, because they contain its address and
// login name, which clients must not see.
func (s *Session) Explain(ctx context.Context, r limiter.Request) (*limiter.Explanation, error) {
	if s.of.explainer == nil {
		return nil, ErrUnexplained
	}
	e, err := s.of.explainer.Explain(ctx, r)
	if err != nil {
		return nil, err
	}
	e.Commands = nil
	return e, nil
}

// Reset deletes the counters of a request and returns how many there were.
func (s *Session) Reset(ctx context.Context, r limiter.Request) (int, error) {
	return s.of.Decider.Reset(ctx, r)
}

// Refund takes a charge back, see [Refunder].
func (s *Session) Refund(ctx context.Context, r limiter.Request, rc limiter.Receipt) error {
	if s.of.refunder == nil {
		return s.of.notAllowed(ActionRefund)
	}
	return s.of.refunder.Refund(ctx, r, rc)
}

// Settle ends a reservation, see [Reserver].
func (s *Session) Settle(ctx context.Context, r limiter.Request, actual int64,
	opts ...limiter.SettleOption) (limiter.Amended, error) {
	if s.of.reserver == nil {
		return limiter.Amended{}, ErrNoReservations
	}
	out, err := s.of.reserver.Settle(ctx, r, actual, opts...)
	if err == nil {
		s.amended(&out)
	}
	return out, err
}

// Extend lets a reservation last longer, see [Reserver].
func (s *Session) Extend(ctx context.Context, r limiter.Request) (limiter.Amended, error) {
	if s.of.reserver == nil {
		return limiter.Amended{}, ErrNoReservations
	}
	out, err := s.of.reserver.Extend(ctx, r)
	if err == nil {
		s.amended(&out)
	}
	return out, err
}
