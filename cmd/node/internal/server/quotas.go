package server

import (
	"net"

	"github.com/weirlimit/weir/internal/envoy"
	"github.com/weirlimit/weir/metrics"
)

// quotaServer serves Envoy's rate limit quota service. Its zero value serves nothing.
type quotaServer struct {
	served
	listener net.Listener // nil: none
}

func (q *quotaServer) open(s *Server) error {
	if q.listener == nil {
		return nil
	}
	quotas := envoy.NewQuotas(s.envoy.service, s.config.Log)
	if err := metrics.NewQuotas(s.envoy.registry, func() metrics.QuotaStats {
		return metrics.QuotaStats(quotas.Stats())
	}); err != nil {
		return err
	}
	server, err := s.envoy.serverOf(s, quotas)
	if err != nil {
		return err
	}
	q.served = served{"the server of Envoy's rate limit quota service",
		func() error { return server.Serve(gate{q.listener, &s.envoy}, nil) }, server.Shutdown}
	return nil
}
