package transport

import (
	"context"

	"google.golang.org/protobuf/proto"

	"github.com/weirlimit/weir/internal/frontend"
	"github.com/weirlimit/weir/internal/listen"
	"github.com/weirlimit/weir/limiter"
	weirv1 "github.com/weirlimit/weir/proto/weir/v1"
)

// serveReset is the gRPC method Reset.
func (s *service) serveReset(ctx context.Context, decode func(any) error) (any, error) {
	m := new(weirv1.ResetRequest)
	c := fullCall{message: m, hold: listen.Hold{Room: &s.room, Context: ctx}}
	defer c.hold.Release()
	begin := s.begin()
	if err := c.receive(s, "Reset", begin, decode); err != nil {
		return nil, err
	}
	out, err := s.Reset(ctx, m)
	if err != nil {
		return nil, err
	}
	reply, err := s.encode(out, &c.hold)
	if done, ok := reply.(encodedReply); ok {
		done.why = frontend.WhyReset(int(out.GetCounters()))
		return done, err
	}
	return reply, err
}

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
	by, err := s.identify(ctx)
	if err == nil {
		err = by.Spend(1, proto.Size(m))
	}
	if err == nil {
		err = s.fillRequest(&r, m)
	}
	if err == nil {
		err = by.Admit(&r, ActionReset)
	}
	if err == nil {
		err = by.About(&r, m.GetTenant(), ActionReset)
	}
	if err != nil {
		return 0, err
	}
	return by.Reset(ctx, r)
}
