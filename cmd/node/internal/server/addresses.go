package server

import "net"

// Addresses are those at which a node listens, each as host:port; empty: it does not.
type Addresses struct {
	GRPC, HTTP string
	// Admin is for operators, Health for probes. Either may be unix:PATH.
	Admin, Health string
	// Envoy is for its rate limit service, EnvoyHTTP for that over HTTP, and Quotas for its rate limit quota service.
	Envoy, Quotas string
	EnvoyHTTP     []string
	// Redis is for clients of Redis, SPOE for HAProxy's filter.
	Redis, SPOE string
	// Gubernator and GubernatorHTTP are for Gubernator's clients.
	Gubernator, GubernatorHTTP string
}

// Addresses returns where the node listens.
func (s *Server) Addresses() Addresses {
	p, e := &s.protocols, &s.envoy
	a := Addresses{
		GRPC: addrOf(s.grpc), HTTP: addrOf(s.http), Admin: s.admin.addr(), Health: s.health.addr(),
		Envoy: addrOf(e.listener), Quotas: addrOf(e.quotas.listener),
		Redis: addrOf(p.resp.listener), SPOE: addrOf(p.spoe.listener),
		Gubernator: addrOf(p.gubernator.grpc), GubernatorHTTP: addrOf(p.gubernator.http),
	}
	for _, l := range e.aside {
		a.EnvoyHTTP = append(a.EnvoyHTTP, addrOf(l))
	}
	return a
}

// addrOf returns the address of a listener, "" of nil.
func addrOf(l net.Listener) string {
	if l == nil {
		return ""
	}
	return l.Addr().String()
}
