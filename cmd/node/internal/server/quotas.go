package server

import (
	"context"
	"net"

	"github.com/weirlimit/weir/internal/envoy"
	"github.com/weirlimit/weir/metrics"
	"github.com/weirlimit/weir/transport"
)

// quotaServer serves Envoy's rate limit quota service. Its zero value serves nothing.
type quotaServer struct {
	listener net.Listener // nil: none
	server   *transport.Server
}

// listen opens the listener of the service.
func (q *quotaServer) listen(ctx context.Context, s *Server) (err error) {
	c := s.config.Envoy
	if c.QuotaAddr == "" {
		return nil
	}
	if q.listener, err = transport.Listen(ctx, "--rlqs-addr", c.QuotaAddr); err != nil {
		return err
	}
	if s.config.TLS == nil || s.config.TLS.Optional {
		warnIfOpen(s.config.Log, "--rlqs-addr", q.listener.Addr())
	}
	return nil
}

// open makes the service and its server.
func (q *quotaServer) open(s *Server) (err error) {
	if q.listener == nil {
		return nil
	}
	quotas := envoy.NewQuotas(s.envoy.service, s.config.Log)
	if err := metrics.NewQuotas(s.envoy.registry, func() metrics.QuotaStats {
		return metrics.QuotaStats(quotas.Stats())
	}); err != nil {
		return err
	}
	q.server, err = s.envoy.serverOf(s, quotas)
	return err
}

// run starts the server's goroutines.
func (q *quotaServer) run(s *Server) {
	if q.server == nil {
		return
	}
	s.background.start("the server of Envoy's rate limit quota service", func() {
		if err := q.server.Serve(gate{q.listener, &s.envoy}, nil); err != nil {
			s.failed <- err
		}
	})
}

// shutdown stops the server after it has answered.
func (q *quotaServer) shutdown(ctx context.Context) error {
	if q.server == nil {
		return nil
	}
	return q.server.Shutdown(ctx)
}

// QuotaAddr returns the address of Envoy's rate limit quota service, "" if it is not served.
func (s *Server) QuotaAddr() string {
	if l := s.envoy.quotas.listener; l != nil {
		return l.Addr().String()
	}
	return ""
}
