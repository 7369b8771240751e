package limitertest

import (
	"context"
	"testing"
	"time"

	"github.com/weirlimit/weir/limiter"
)

// Subject is one decider under test, with a clock that the test moves. The
// suite calls it from one goroutine.
type Subject interface {
	// Check decides as a node does: rules are matched, counters are charged.
	Check(ctx context.Context, r *limiter.Request, d *limiter.Decision) error
	// Reset forgets the counters of a request, and their blocks.
	Reset(ctx context.Context, r *limiter.Request) error
	// SetTime moves the clock, mostly on, and in one part of the suite back. The suite
	// moves it to [Start] or later before it asks anything.
	SetTime(t limiter.Tick)
	// SetRules replaces the rules in force, or returns an error and leaves them.
	SetRules(yaml string) error
}

// Refunder is implemented by subjects that can take a charge back. The parts of
// the suite that need it are skipped for others.
type Refunder interface {
	Refund(ctx context.Context, r *limiter.Request, rc limiter.Receipt) error
}

// Peeker is implemented by subjects that can be asked about a cost without
// charging it. A peek at a cost of 0, which is a check, needs none.
type Peeker interface {
	Peek(ctx context.Context, r *limiter.Request, d *limiter.Decision) error
}

// KeyNamer is implemented by subjects that can tell the names of counters as
// people see them, such as "/towns:ada:minute".
type KeyNamer interface {
	KeyName(r *limiter.Request, l *limiter.LimitDecision) string
}

// Factory makes a subject, fresh and empty, with these rules in force. Whatever
// has to be closed is closed by tb.Cleanup; what cannot be made ends the test by
// tb.Fatal.
type Factory func(tb testing.TB, rulesYAML string) Subject

// Start is the instant at or before which the clock of a fresh subject stands:
// the beginning of 2026, in UTC.
func Start() limiter.Tick {
	return limiter.TickOf(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))
}
