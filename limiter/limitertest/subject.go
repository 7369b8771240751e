package limitertest

import (
	"context"
	"testing"
	"time"

	"github.com/weirlimit/weir/limiter"
)

// Subject is a decider under test, with a clock that the test sets. The suite calls it
// from one goroutine.
type Subject interface {
	// CheckInto decides as a node does: it matches rules and charges counters.
	CheckInto(ctx context.Context, r *limiter.Request, d *limiter.Decision) error
	// Reset deletes the counters of a request, with their blocks.
	Reset(ctx context.Context, r limiter.Request) error
	// SetTime sets the clock, usually forwards, and in one part of the suite backwards.
	// The suite sets it to [Start] or later before the first check.
	SetTime(t limiter.Tick)
	// SetRules replaces the rules in force, or returns an error and keeps them.
	SetRules(yaml string) error
}

// Refunder is implemented by subjects with refunds. For others, the parts of the suite
// with refunds are skipped.
type Refunder interface {
	Refund(ctx context.Context, r limiter.Request, rc limiter.Receipt) error
}

// Amender is implemented by subjects with reservations. For others, the parts of the suite with
// them are skipped.
type Amender interface {
	// Amend settles or extends the reservation of a request's id. The cost of the request is
	// what was used, or the new estimate; if a.Named, a.Actual says what was used, and the request has no cost.
	Amend(ctx context.Context, r limiter.Request, a limiter.Settling) (limiter.Amended, error)
}

// Settled resolves a request by which a reservation is amended, as a node does, for subjects without one.
func Settled(r *limiter.Request, a *limiter.Settling, resolve func() error,
	lacking func(r *limiter.Request) []string) error {
	if a.Named {
		if err := limiter.NameActual(r, a.Actual); err != nil {
			return err
		}
	}
	if err := resolve(); err != nil {
		return err
	}
	a.Lacks = len(lacking(r)) > 0
	return limiter.UnreadActual(r)
}

// Concurrent is implemented by subjects with limits on concurrency. For others, the transcripts with
// them are skipped.
type Concurrent interface{ LimitsConcurrency() }

// Peeker is implemented by subjects with peeks at a given cost. A check with cost 0,
// which is also a peek, does not need it.
type Peeker interface {
	PeekInto(ctx context.Context, r *limiter.Request, d *limiter.Decision) error
}

// KeyNamer is implemented by subjects that return the displayed names of counters, such
// as "/towns:ada:minute".
type KeyNamer interface {
	KeyName(r *limiter.Request, l *limiter.LimitDecision) string
}

// Factory makes a new, empty subject with these rules in force. It registers what must
// be closed with tb.Cleanup, and ends the test with tb.Fatal if it fails.
type Factory func(tb testing.TB, rulesYAML string) Subject

// Limit returns the limit of a spec, which must be valid.
func Limit(tb testing.TB, s limiter.Spec) *limiter.Limit {
	tb.Helper()
	l, err := limiter.NewLimit(s)
	if err != nil {
		tb.Fatal(err)
	}
	return l
}

// Start returns the beginning of 2026, in UTC. The clock of a new subject is at this
// instant or earlier.
func Start() limiter.Tick {
	return limiter.TickOf(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))
}
