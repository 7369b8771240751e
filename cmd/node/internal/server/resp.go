package server

import (
	"context"
	"net"

	"github.com/weirlimit/weir/internal/guard"
	"github.com/weirlimit/weir/internal/resp"
)

// respServer serves the Redis protocol. Its zero value serves nothing.
type respServer struct {
	listener net.Listener // what Config.RedisListen names; nil: nothing
	bounded  net.Listener // the same, with its bounds and TLS
	server   *resp.Server
}

// open makes the server.
func (r *respServer) open(s *Server) (err error) {
	c := &s.config
	if r.listener == nil {
		return nil
	}
	o := resp.Options{
		Config: s.frontendOf(), HandshakeFailed: s.handshakes("Redis", "redis"),
		Observer: s.metrics, Guard: guard.New(c.Log, s.metrics.Observer().Panicked), Logger: c.Log, Version: c.Version,
	}
	if r.server, err = resp.NewServer(o); err != nil {
		return err
	}
	r.bounded = s.boundedBy(r.listener)
	return nil
}

// run starts the server's goroutines.
func (r *respServer) run(s *Server) {
	if r.server == nil {
		return
	}
	s.background.start("the server of the Redis protocol", func() {
		if err := r.server.Serve(r.bounded); err != nil {
			s.failed <- err
		}
	})
}

// shutdown stops the server after it has answered.
func (r *respServer) shutdown(ctx context.Context) error {
	if r.server == nil {
		return nil
	}
	return r.server.Shutdown(ctx)
}

// RedisAddr returns the address of the Redis protocol, "" if it is not served.
func (s *Server) RedisAddr() string {
	if s.protocols.resp.listener == nil {
		return ""
	}
	return s.protocols.resp.listener.Addr().String()
}
