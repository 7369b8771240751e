package frontend

import (
	"context"
	"errors"
	"fmt"

	"github.com/weirlimit/weir/limiter"
)

// Checker decides checks.
type Checker interface {
	CheckInto(ctx context.Context, r *limiter.Request, d *limiter.Decision) error
}

// Decider decides requests: a node. It may also be a [BatchPeeker], an [Explainer], a [Refunder] and a [Reserver].
// Its methods are called from many goroutines.
type Decider interface {
	Checker
	// PeekInto returns what CheckInto would answer, and charges nothing.
	PeekInto(ctx context.Context, r *limiter.Request, d *limiter.Decision) error
	// CheckBatchInto decides requests in order, at one instant.
	CheckBatchInto(ctx context.Context, rs []limiter.Request, ds []limiter.Decision) error
	// Reset deletes the counters of a request and returns how many there were.
	Reset(ctx context.Context, r limiter.Request) (int, error)
}

// BatchPeeker decides the peeks of a batch together with its checks. Without it the requests of a batch
// with peeks are decided one after the other.
type BatchPeeker interface {
	// PeekBatchInto only peeks request i if peeks[i] is true. If peeks is nil, it peeks all.
	PeekBatchInto(ctx context.Context, rs []limiter.Request, ds []limiter.Decision, peeks []bool) error
}

// Explainer explains what a check would answer.
type Explainer interface {
	Explain(ctx context.Context, r limiter.Request) (*limiter.Explanation, error)
}

// Refunder gives receipts to clients, and takes charges back.
type Refunder interface {
	// SealReceipt returns the receipt of a decision as a text, see Sealed, empty if there is none.
	SealReceipt(r *limiter.Request, d *limiter.Decision) limiter.Receipt
	// Refund takes back the charge that a receipt names.
	Refund(ctx context.Context, r limiter.Request, rc limiter.Receipt) error
}

// Reserver ends and extends reservations.
type Reserver interface {
	// Settle ends the reservation with the request's id: the request has used actual units. If
	// the id is not known, they are charged, unless an option says otherwise.
	Settle(ctx context.Context, r limiter.Request, actual int64, opts ...limiter.SettleOption) (limiter.Amended, error)
	// Extend lets the reservation last for the request's Hold from now on.
	Extend(ctx context.Context, r limiter.Request) (limiter.Amended, error)
}

// oneByOne decides a batch for a decider that takes no batches with peeks. If peeks is nil, all are.
func oneByOne(ctx context.Context, by Decider, rs []limiter.Request, ds []limiter.Decision, peeks []bool) error {
	var failed limiter.BatchError
	for i := range rs {
		ask := by.CheckInto
		if peeks == nil || peeks[i] {
			ask = by.PeekInto
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

// ErrNoReservations is the error of a decider without reservations.
var ErrNoReservations = fmt.Errorf("%w: there are no reservations here", limiter.ErrInvalid)
