package frontend

import (
	"context"
	"errors"
	"fmt"

	"github.com/weirlimit/weir/limiter"
)

// Session is one message, or one connection, of a caller. One goroutine at a time may use it.
type Session struct {
	of     *Frontend
	caller Caller       // nil: all callers are alike, or it is not known
	from   fmt.Stringer // the address of the connection; nil: not known

	gathers  bool
	gathered int // new keys that are not charged yet
}

// Name returns the name of the identity, "" for none.
func (s *Session) Name() string {
	if s.caller == nil {
		return ""
	}
	return s.caller.Name()
}

// Tenant returns the owner of the caller's counters, "" for none.
func (s *Session) Tenant() string {
	if s.caller == nil {
		return ""
	}
	return s.caller.Tenant()
}

// Identified reports whether the caller has an identity.
func (s *Session) Identified() bool { return s.caller != nil }

// Spend charges the caller's budget, see [Caller].
func (s *Session) Spend(checks, bytes int) error {
	if s.caller == nil {
		return nil
	}
	return s.caller.Spend(checks, bytes)
}

// OpenStream counts a stream of the caller's, see [Caller]. It returns what ends it.
func (s *Session) OpenStream() (end func(), err error) {
	if s.caller == nil {
		return func() {}, nil
	}
	return s.caller.CloseStream, s.caller.OpenStream()
}

// May returns the rules to which the caller may do something, nil for all, or why it may not.
func (s *Session) May(a Action) (limiter.Scope, error) {
	if s.caller == nil {
		return nil, nil
	}
	return s.caller.May(a)
}

// Check decides a request, or only looks.
func (s *Session) Check(ctx context.Context, r *limiter.Request, d *limiter.Decision, peek bool) error {
	if peek {
		return s.of.Decider.PeekInto(ctx, r, d)
	}
	return s.CheckBy(ctx, s.of.Decider, r, d)
}

// Checker decides checks.
type Checker interface {
	CheckInto(ctx context.Context, r *limiter.Request, d *limiter.Decision) error
}

// CheckBy decides a request by something else than the frontend's decider.
func (s *Session) CheckBy(ctx context.Context, by Checker, r *limiter.Request, d *limiter.Decision) error {
	err := by.CheckInto(ctx, r, d)
	if err == nil {
		s.madeOne(d)
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
		err = s.of.oneByOne(ctx, rs, ds, peeks)
	}
	s.madeMany(ds, peeks, err)
	return err
}

// Peek is Decide for requests that are all peeked.
func (s *Session) Peek(ctx context.Context, rs []limiter.Request, ds []limiter.Decision) error {
	if s.of.peeker != nil {
		return s.of.peeker.PeekBatchInto(ctx, rs, ds, nil)
	}
	return s.of.oneByOne(ctx, rs, ds, nil)
}

// oneByOne decides a batch for a decider that takes no batches with peeks. If peeks is nil, all are.
func (f *Frontend) oneByOne(ctx context.Context, rs []limiter.Request, ds []limiter.Decision, peeks []bool) error {
	var failed limiter.BatchError
	for i := range rs {
		ask := f.Decider.CheckInto
		if peeks == nil || peeks[i] {
			ask = f.Decider.PeekInto
		}
		if err := ask(ctx, &rs[i], &ds[i]); err != nil {
			ds[i].Clear()
			ds[i].Allowed = false
			failed.Index, failed.Errs = append(failed.Index, i), append(failed.Errs, err)
		}
	}
	if len(failed.Index) == 0 {
		return nil
	}
	return &failed
}

// ErrUnexplained is the error of a decider that cannot explain.
var ErrUnexplained = errors.New("this server cannot explain its decisions: ask a node")

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

// ErrNoReservations is the error of a decider without reservations.
var ErrNoReservations = fmt.Errorf("%w: there are no reservations here", limiter.ErrInvalid)

// Settle ends a reservation, see [Reserver].
func (s *Session) Settle(ctx context.Context, r limiter.Request, actual int64, opts ...limiter.SettleOption) (limiter.Amended, error) {
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
