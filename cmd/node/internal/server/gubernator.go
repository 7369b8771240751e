package server

import (
	"cmp"
	"errors"
	"net"

	"github.com/weirlimit/weir/internal/gubernator"
	"github.com/weirlimit/weir/transport"
)

// GubernatorConfig is how a node serves the protocol of Gubernator's clients.
type GubernatorConfig struct {
	// Addr is the address for gRPC and HTTPAddr that for JSON over HTTP, as host:port.
	// Empty: none.
	Addr, HTTPAddr string
	// Zone is the time zone of units of the calendar; default UTC.
	Zone string
}

// gubernatorServer serves Gubernator's protocol. Its zero value serves nothing.
type gubernatorServer struct {
	served
	grpc, http net.Listener // what the configuration names; nil: nothing
}

// errShuttingDown is told by LiveCheck. Clients know the text.
var errShuttingDown = errors.New("server is shutting down")

func (g *gubernatorServer) open(s *Server) error {
	c := &s.config
	if g.grpc == nil && g.http == nil {
		return nil
	}
	o := gubernator.Options{
		Config: s.frontendOf(), Zone: c.Gubernator.Zone, Peers: g.peers(s), Ready: s.Ready, Observer: s.metrics,
		Live: func() error {
			if s.stopping.Load() {
				return errShuttingDown
			}
			return nil
		},
	}
	for _, m := range s.node.Cluster().Members() {
		if m.Self {
			o.Name = m.Name
		}
	}
	to := transport.Options{
		Decider: s.node, Access: o.Config.Access, Audit: o.Config.Audit, Tracer: o.Config.Tracer,
		Ready: s.Ready, Stopping: s.stopping.Load, Observer: s.metrics, Logger: c.Log,
		MaxMessageBytes: gubernator.MaxMessageBytes, MaxHeaderBytes: gubernator.MaxHeaderBytes,
		TLS: s.secured.forClients(), Hosts: c.hosts(c.HTTPHosts, c.Gubernator.HTTPAddr),
		MaxConnections: c.MaxConnections, MaxConnectionsPerAddress: c.MaxConnectionsPerAddress,
		MaxConnectionAge: c.MaxConnectionAge, ClientTimeout: c.ClientTimeout,
	}
	service, err := gubernator.NewService(o)
	if err != nil {
		return err
	}
	to.Services, to.Routes = []transport.GRPCService{service}, service.Routes()
	server, err := transport.NewServer(to)
	if err != nil {
		return err
	}
	g.served = served{"the server of Gubernator's protocol", func() error { return server.Serve(g.grpc, g.http) },
		server.Shutdown}
	return nil
}

// peers returns the function that lists the members that are not dead, by their addresses for
// Weir's own clients. A node outside a cluster is a member by itself, at the address of this
// protocol.
func (g *gubernatorServer) peers(s *Server) func() []gubernator.Peer {
	return func() (out []gubernator.Peer) {
		for _, m := range s.node.Cluster().Members() {
			if m.State != "dead" {
				out = append(out, gubernator.Peer{Address: m.GRPCAddr, Self: m.Self})
			}
		}
		if out == nil {
			own := cmp.Or(g.grpc, g.http)
			out = append(out, gubernator.Peer{Address: own.Addr().String(), Self: true})
		}
		return out
	}
}
