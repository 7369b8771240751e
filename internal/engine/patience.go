package engine

import (
	"context"
	"time"
)

type patience struct{}

// WithPatience returns a context whose checks wait for other members until an instant at most. Then
// the policies of their rules answer, as at the deadline of the cluster if that is earlier.
func WithPatience(ctx context.Context, until time.Time) context.Context {
	return context.WithValue(ctx, patience{}, until)
}

// Patience returns how long a check may wait for other members by [WithPatience], at least a
// microsecond; 0 means that nothing is said.
func Patience(ctx context.Context) time.Duration {
	until, said := ctx.Value(patience{}).(time.Time)
	if !said {
		return 0
	}
	return max(time.Until(until), time.Microsecond)
}
