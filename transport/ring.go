package transport

import (
	"context"
	"errors"

	"github.com/weirlimit/weir/internal/frontend"
	weirv1 "github.com/weirlimit/weir/proto/weir/v1"
)

// Ring publishes which node to ask for which counter. Its methods are called from many
// goroutines; View is called for each message of a stream.
type Ring interface {
	// View identifies the present result of Placement; 0 while that is nil.
	View() uint64
	// Placement returns the response to the method Ring, nil if there is none yet. The
	// response is not changed later.
	Placement() *weirv1.RingResponse
}

// errRing is why a client gets no ring.
const errRing = frontend.ForbiddenError("this node does not publish the ring: the operator must start it with --share-ring")

var errNoRing = errors.New("this node has no ring now: it is not in a cluster, or is still joining one")

// Ring implements the service.
func (s *service) Ring(ctx context.Context, _ *weirv1.RingRequest) (*weirv1.RingResponse, error) {
	begin := s.begin()
	by, err := s.identify(ctx)
	if err == nil {
		_, err = by.May(ActionRing)
	}
	if err != nil {
		s.account(ctx, ActionRing, false, "", err)
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

// view returns the view that replies carry, 0 if the ring is not published.
func (s *service) view() uint64 {
	if s.ring == nil {
		return 0
	}
	return s.ring.View()
}
