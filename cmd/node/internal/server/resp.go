package server

import (
	"net"

	"github.com/weirlimit/weir/internal/guard"
	"github.com/weirlimit/weir/internal/resp"
)

// respServer serves the Redis protocol. Its zero value serves nothing.
type respServer struct {
	served
	listener net.Listener // what Config.RedisListen names; nil: nothing
}

func (r *respServer) open(s *Server) error {
	c := &s.config
	if r.listener == nil {
		return nil
	}
	o := resp.Options{
		Config: s.frontendOf(), HandshakeFailed: s.handshakes("Redis", "redis"),
		Observer: s.metrics, Guard: guard.New(c.Log, s.metrics.Observer().Panicked), Logger: c.Log, Version: c.Version,
	}
	server, err := resp.NewServer(o)
	if err != nil {
		return err
	}
	bounded := s.boundedBy(r.listener)
	r.served = served{"the server of the Redis protocol", func() error { return server.Serve(bounded) }, server.Shutdown}
	return nil
}
