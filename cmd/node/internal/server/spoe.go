package server

import (
	"cmp"
	"net"

	"github.com/weirlimit/weir/internal/guard"
	"github.com/weirlimit/weir/internal/spoe"
	"github.com/weirlimit/weir/transport"
)

// spoeServer is the agent for HAProxy's filter. Its zero value serves nothing.
type spoeServer struct {
	served
	listener net.Listener // what Config.SPOEListen names; nil: nothing
}

// open makes the agent. It asks what answers at /v1/auth, as whoever the certificate of the
// connection names.
func (p *spoeServer) open(s *Server) error {
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
	server, err := spoe.NewServer(spoe.Options{
		Handler: transport.NewSite(site).Handler(), HandshakeFailed: s.handshakes("SPOE", "spoe"),
		Admit: c.Auth.Believes,
		URI:   cmp.Or(c.Auth.URI, "X-Original-URI"), Method: cmp.Or(c.Auth.Method, "X-Original-Method"),
		Address: cmp.Or(c.Auth.Address, "X-Forwarded-For"), User: c.Auth.User, Group: c.Auth.Group, ID: c.Auth.ID,
		Guard: guard.New(c.Log, s.metrics.Observer().Panicked), Logger: c.Log,
	})
	if err != nil {
		return err
	}
	bounded := s.boundedBy(p.listener)
	p.served = served{"the agent for HAProxy", func() error { return server.Serve(bounded) }, server.Shutdown}
	return nil
}
