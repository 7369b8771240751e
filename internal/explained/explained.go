// Package explained reads the explanations that nodes send.
package explained

import (
	"github.com/weirlimit/weir/limiter"
	weirv1 "github.com/weirlimit/weir/proto/weir/v1"
)

// Limits returns the explanations of the limits of a response, in their order. The result
// is empty and not nil if there are none.
func Limits(messages []*weirv1.LimitExplanation) []limiter.LimitExplanation {
	out := make([]limiter.LimitExplanation, 0, len(messages))
	for _, l := range messages {
		x := limiter.LimitExplanation{
			Name: l.GetName(), Key: l.GetKey(), Limit: l.GetLimit(), Known: l.GetKnown(), Arithmetic: l.GetArithmetic(),
			Owner: l.GetOwner(), ToldBy: l.GetToldBy(), Now: limiter.Tick(l.GetNowUnixUs()),
		}
		for _, f := range l.GetState() {
			x.State = append(x.State, limiter.Field{Name: f.GetName(), Value: f.GetValue()})
		}
		for _, w := range l.GetCounts() {
			x.Counts = append(x.Counts, limiter.WindowCount{
				Start: limiter.Tick(w.GetStartUnixUs()), End: limiter.Tick(w.GetEndUnixUs()), Count: w.GetCount(),
			})
		}
		out = append(out, x)
	}
	return out
}
