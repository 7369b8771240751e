package server

import (
	"context"
	"errors"
	"net"

	"github.com/weirlimit/weir/internal/frontend"
	"github.com/weirlimit/weir/internal/listen"
)

// protocols are what other programs speak to a node, each at a listener of its own. The zero
// value serves none.
type protocols struct {
	resp       respServer
	spoe       spoeServer
	gubernator gubernatorServer
}

func (p *protocols) open(s *Server) error {
	for _, open := range []func(*Server) error{p.resp.open, p.spoe.open, p.gubernator.open} {
		if err := open(s); err != nil {
			return err
		}
	}
	return nil
}

// frontendOf returns what the servers of all of them are given.
func (s *Server) frontendOf() frontend.Config {
	c := &s.config
	out := frontend.Config{
		Decider: s.node, AllowRequestLimits: c.AllowRequestLimits, AllowReset: c.AllowReset, AllowRefunds: c.AllowRefunds,
		Audit: s.audit.auditor(), Tracer: s.forRequests(), Denials: s.recorder(),
	}
	if s.access != nil {
		out.Access = s.access
	}
	return out
}

// boundedBy returns a listener with the TLS and the bounds of connections of clients.
func (s *Server) boundedBy(l net.Listener) net.Listener {
	c := &s.config
	return listen.Secure(listen.Bounded(l, listen.Bounds{
		Most: c.MaxConnections, MostFrom: c.MaxConnectionsPerAddress, Log: c.Log, Observer: s.metrics,
	}), s.secured.forClients(), listen.HandshakeTimeout)
}

// handshakes returns what tells the log and the audit of handshakes of a protocol that failed.
func (s *Server) handshakes(protocol, over string) func(from, why string) {
	front := frontend.New(s.frontendOf(), frontend.Protocol{Over: over})
	return listen.NewHandshakeLog(s.config.Log, protocol, front).Refused
}

// served is what serves a protocol. Its zero value serves nothing.
type served struct {
	name     string
	serve    func() error
	shutdown func(context.Context) error
}

func (p *served) run(s *Server) {
	if p.serve != nil {
		s.background.serve(p.name, s.failed, p.serve)
	}
}

// stop stops what serves after it has answered.
func (p *served) stop(ctx context.Context) error {
	if p.shutdown == nil {
		return nil
	}
	return p.shutdown(ctx)
}

func (p *protocols) run(s *Server) {
	p.resp.run(s)
	p.spoe.run(s)
	p.gubernator.run(s)
}

// listeners returns their listeners, some of which may be nil.
func (p *protocols) listeners() []net.Listener {
	return []net.Listener{p.resp.listener, p.spoe.listener, p.gubernator.grpc, p.gubernator.http}
}

// shutdown stops them after they have answered.
func (p *protocols) shutdown(ctx context.Context) error {
	done := make(chan error, 1)
	go func() { done <- p.spoe.stop(ctx) }()
	return errors.Join(p.resp.stop(ctx), p.gubernator.stop(ctx), <-done)
}
