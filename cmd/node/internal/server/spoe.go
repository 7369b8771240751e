package server

import (
	"cmp"
	"context"
	"net"

	"github.com/weirlimit/weir/internal/guard"
	"github.com/weirlimit/weir/internal/spoe"
	"github.com/weirlimit/weir/transport"
)

// spoeServer is the agent for HAProxy's filter. Its zero value serves nothing.
type spoeServer struct {
	listener net.Listener // what Config.SPOEListen names; nil: nothing
	bounded  net.Listener // the same, with its bounds and TLS
	server   *spoe.Server
}

// open makes the agent. It asks what answers at /v1/auth, as whoever the certificate of the
// connection names.
func (p *spoeServer) open(s *Server) (err error) {
	if p.listener == nil {
		return nil
	}
	c := &s.config
	handler, err := s.authOf()
	if err != nil {
		return err
	}
	with := s.frontendOf()
	site := transport.SiteOptions{
		Name: "the agent for HAProxy", Access: with.Access, Tracer: with.Tracer, Audit: with.Audit, Over: "spoe",
		Panicked: s.metrics.Observer().Panicked, Logger: c.Log,
		Routes: map[string]transport.SiteRoute{
			"/v1/auth": {Open: true, Traced: true, Checks: true, Serve: handler.ServeHTTP,
				Action: transport.ActionCheck.String()},
		},
	}
	p.server, err = spoe.NewServer(spoe.Options{
		Handler: transport.NewSite(site).Handler(), HandshakeFailed: s.handshakes("SPOE", "spoe"),
		Admit: c.Auth.Believes,
		URI:   cmp.Or(c.Auth.URI, "X-Original-URI"), Method: cmp.Or(c.Auth.Method, "X-Original-Method"),
		Address: cmp.Or(c.Auth.Address, "X-Forwarded-For"), User: c.Auth.User, Group: c.Auth.Group, ID: c.Auth.ID,
		Guard: guard.New(c.Log, s.metrics.Observer().Panicked), Logger: c.Log,
	})
	if err != nil {
		return err
	}
	p.bounded = s.boundedBy(p.listener)
	return nil
}

func (p *spoeServer) run(s *Server) {
	if p.server == nil {
		return
	}
	s.background.start("the agent for HAProxy", func() {
		if err := p.server.Serve(p.bounded); err != nil {
			s.failed <- err
		}
	})
}

func (p *spoeServer) shutdown(ctx context.Context) error {
	if p.server == nil {
		return nil
	}
	return p.server.Shutdown(ctx)
}

// SPOEAddr returns the address of the agent for HAProxy's filter, "" if it is not served.
func (s *Server) SPOEAddr() string {
	if s.protocols.spoe.listener == nil {
		return ""
	}
	return s.protocols.spoe.listener.Addr().String()
}
