package transport

import (
	"context"

	weirv1 "github.com/weirlimit/weir/proto/weir/v1"
)

func (s *service) Ring(ctx context.Context, _ *weirv1.RingRequest) (*weirv1.RingResponse, error) {
	begin := s.begin()
	by, err := s.identify(ctx)
	if err == nil {
		_, err = by.May(ActionRing)
	}
	if err != nil {
		s.audited.call(ctx, ActionRing, false, "", err)
		return nil, s.end("Ring", begin, err)
	}
	out, err := s.placement()
	return out, s.end("Ring", begin, err)
}

func (s *service) placement() (*weirv1.RingResponse, error) {
	if s.ring == nil {
		return nil, errRing
	}
	if p := s.ring.Placement(); p != nil {
		return p, nil
	}
	return nil, errNoRing
}
