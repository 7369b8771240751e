package envoy

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	ratelimit "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"

	"github.com/weirlimit/weir/internal/engine"
	"github.com/weirlimit/weir/internal/envoy/config"
	"github.com/weirlimit/weir/internal/frontend"
	"github.com/weirlimit/weir/limiter"
)

// hurried decides nothing, and records how long it may wait for others.
type hurried struct {
	frontend.Decider
	within time.Duration
}

func (h *hurried) PeekBatchInto(ctx context.Context, _ []limiter.Request, _ []limiter.Decision, _ []bool) error {
	h.within = engine.Patience(ctx)
	return errors.New("there is nothing")
}

func (h *hurried) CheckInto(ctx context.Context, _ *limiter.Request, _ *limiter.Decision) error {
	h.within = engine.Patience(ctx)
	return errors.New("there is nothing")
}

// Checks wait for other members 5 ms less than Envoy waits for the answer, or half as long if that
// is more. Without a deadline of Envoy's the node's own holds.
func TestPolicyAnswersBeforeEnvoysDeadline(t *testing.T) {
	c, err := config.Parse([]config.File{{Name: "f",
		Data: []byte("domain: d\ndescriptors: [{key: k, rate_limit: {unit: day, requests_per_unit: 2}}]")}}, config.Options{})
	if err != nil {
		t.Fatal(err)
	}
	for _, mode := range []Mode{Compat, Atomic} {
		h := new(hurried)
		s, err := NewService(Options{Config: frontend.Config{Decider: h}, Mode: mode})
		if err != nil {
			t.Fatal(err)
		}
		if err := s.SetConfig(c); err != nil {
			t.Fatal(err)
		}
		for timeout, want := range map[time.Duration]time.Duration{
			20 * time.Millisecond: 15 * time.Millisecond, 4 * time.Millisecond: 2 * time.Millisecond, 0: 0,
		} {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := t.Context(), context.CancelFunc(func() {})
				if timeout > 0 {
					ctx, cancel = context.WithTimeout(ctx, timeout)
				}
				defer cancel()
				_, _ = s.ShouldRateLimit(ctx, &rls.RateLimitRequest{Domain: "d", Descriptors: []*ratelimit.RateLimitDescriptor{
					{Entries: []*ratelimit.RateLimitDescriptor_Entry{{Key: "k", Value: "v"}}},
				}})
				if h.within != want {
					t.Errorf("mode %d: Envoy waits %v, and a check waits %v for others, want %v", mode, timeout, h.within, want)
				}
			})
		}
	}
}
