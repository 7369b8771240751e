package transport

import (
	"context"

	"github.com/weirlimit/weir/limiter"
	weirv1 "github.com/weirlimit/weir/proto/weir/v1"
)

// reset is the gRPC method Reset.
func (s *service) reset(ctx context.Context, m *weirv1.ResetRequest) (*weirv1.ResetResponse, error) {
	if err := s.front.Allows(ActionReset); err != nil {
		return nil, err
	}
	var r limiter.Request
	by, err := s.admit(ctx, &r, m, ActionReset)
	if err == nil {
		err = by.About(&r, m.GetTenant(), ActionReset)
	}
	if err != nil {
		return nil, err
	}
	n, err := by.Reset(ctx, r)
	return &weirv1.ResetResponse{Counters: int64(n)}, err
}
