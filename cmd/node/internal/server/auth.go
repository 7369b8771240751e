package server

import (
	"context"
	"net/http"

	"github.com/weirlimit/weir/internal/forward"
	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/transport"
)

// authOf returns what answers the sub-requests of web proxies, nil if nothing does.
func (s *Server) authOf() (http.Handler, error) {
	if s.config.Auth == nil {
		return nil, nil
	}
	o := *s.config.Auth
	o.Decider = transport.Admitting{Checker: deciding{s}}
	return forward.New(o)
}

// deciding decides by the server's node, which is opened after the handlers are made.
type deciding struct{ *Server }

// CheckInto implements [transport.Checker].
func (d deciding) CheckInto(ctx context.Context, r *limiter.Request, out *limiter.Decision) error {
	return d.node.CheckInto(ctx, r, out)
}
