package client

import (
	"context"
	"fmt"

	"google.golang.org/grpc"

	"github.com/weirlimit/weir/internal/explained"
	"github.com/weirlimit/weir/internal/weirwire"
	"github.com/weirlimit/weir/limiter"
	weirv1 "github.com/weirlimit/weir/proto/weir/v1"
)

// Explain returns the decision that a check of the request would get, and the reasons: each
// counter with its limit, its state and the comparison that decides, and in a cluster the
// owner and the member that answered. It charges nothing, and any node can answer it. The
// errors are those of Check, and one that wraps [ErrUnanswered] if no member that holds a
// counter answered in time, or if the nodes do not support explanations.
func (c *Client) Explain(ctx context.Context, r limiter.Request) (*limiter.Explanation, error) {
	if err := sendable(&r); err != nil {
		return nil, err
	}
	var m *weirv1.ExplainResponse
	err := c.alone(ctx, func(ctx context.Context, api weirv1.LimiterClient, o ...grpc.CallOption) (err error) {
		m, err = api.Explain(ctx, weirwire.NewCheckRequest(&r, true), o...)
		return err
	})
	if err != nil {
		return nil, err
	}
	return c.explanation(m)
}

// explanation turns a response into an explanation. It returns an error if the reasons are
// not those of the limits.
func (c *Client) explanation(m *weirv1.ExplainResponse) (*limiter.Explanation, error) {
	limits := m.GetDecision().GetLimits()
	if len(limits) != len(m.GetLimits()) {
		return nil, &nodeError{fmt.Sprintf("%v: it explains %d limits of %d", errReply, len(m.GetLimits()), len(limits)),
			ErrUnanswered}
	}
	d := new(limiter.Decision)
	if err := c.decode(m.GetDecision(), d); err != nil {
		return nil, err
	}
	return &limiter.Explanation{
		Now: limiter.Tick(m.GetNowUnixUs()), Rules: append([]string{}, m.GetRules()...), Unlimited: m.GetUnlimited(),
		Decision: d,
		Answer: limiter.NewAnswer(d, func(i int) string {
			return limits[i].GetKey()
		}), Limits: explained.Limits(m.GetLimits()),
	}, nil
}
