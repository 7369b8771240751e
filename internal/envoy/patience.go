package envoy

import (
	"context"
	"time"

	"github.com/weirlimit/weir/internal/engine"
)

// reserve is how long before Envoy's own deadline the answer begins to go back, at most half of
// the time that Envoy gives.
const reserve = 5 * time.Millisecond

// patient returns a context whose checks are answered by the policy before the caller's deadline,
// if another member has not answered by then. After the deadline Envoy lets the request pass, or
// not, without asking any limit.
func patient(ctx context.Context) context.Context {
	until, has := ctx.Deadline()
	if !has {
		return ctx
	}
	return engine.WithPatience(ctx, until.Add(-min(reserve, time.Until(until)/2)))
}
