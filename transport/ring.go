package transport

import (
	"context"
	"errors"

	weirv1 "github.com/weirlimit/weir/proto/weir/v1"
)

// Ring tells clients which node to ask for which counter. Its methods are called from
// many goroutines, View for each message of a stream.
type Ring interface {
	// View is a number of what Placement returns, 0 while that is nothing.
	View() uint64
	// Placement returns the answer to those who ask, nil while there is none. It is
	// not changed any more.
	Placement() *weirv1.RingResponse
}

var (
	errRing   = errors.New("the ring is not told here: the operator must start the node with --share-ring")
	errNoRing = errors.New("this node knows of no ring now: it is in no cluster, or joins one")
)

// Ring implements the service.
func (s *service) Ring(context.Context, *weirv1.RingRequest) (*weirv1.RingResponse, error) {
	begin := s.begin()
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

// view is what replies tell of the ring.
func (s *service) view() uint64 {
	if s.ring == nil {
		return 0
	}
	return s.ring.View()
}
