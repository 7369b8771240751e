package transport

import (
	"context"

	"github.com/weirlimit/weir/limiter"
	weirv1 "github.com/weirlimit/weir/proto/weir/v1"
)

// Reset implements the service.
func (s *service) Reset(ctx context.Context, m *weirv1.ResetRequest) (*weirv1.ResetResponse, error) {
	begin := s.begin()
	n, err := s.reset(ctx, m)
	return &weirv1.ResetResponse{Counters: int64(n)}, s.end("Reset", begin, err)
}

func (s *service) reset(ctx context.Context, m *weirv1.ResetRequest) (int, error) {
	if err := s.front.Allows(ActionReset); err != nil {
		return 0, err
	}
	var r limiter.Request
	by, err := s.admit(ctx, &r, m, ActionReset)
	if err == nil {
		err = by.About(&r, m.GetTenant(), ActionReset)
	}
	if err != nil {
		return 0, err
	}
	return by.Reset(ctx, r)
}
