package server

import (
	"net"
	"net/http"
	"net/http/pprof"

	"github.com/weirlimit/weir/transport"
)

// aside is a site that is served apart from checks, if it has a listener.
type aside struct {
	listener net.Listener
	site     *transport.Apart
}

// serve serves until close is called or the listener fails.
func (a *aside) serve() error {
	if a.listener == nil {
		return nil
	}
	return a.site.Serve(a.listener)
}

// close makes serve return.
func (a *aside) close() error { return a.site.Close() }

// addr returns the address of the listener, "" if there is none.
func (a *aside) addr() string {
	switch l := a.listener; {
	case l == nil:
		return ""
	case l.Addr().Network() == "unix":
		return "unix:" + l.Addr().String()
	default:
		return l.Addr().String()
	}
}

// AdminAddr returns the address for operators, as host:port or unix:PATH, "" if there
// is none.
func (s *Server) AdminAddr() string { return s.admin.addr() }

// HealthAddr returns the address for probes, "" if there is none.
func (s *Server) HealthAddr() string { return s.health.addr() }

// tcpAdminAddr returns the address for operators on other machines, "" if there is
// none.
func (s *Server) tcpAdminAddr() string {
	if l := s.admin.listener; l != nil && l.Addr().Network() != "unix" {
		return s.AdminAddr()
	}
	return ""
}

// administration makes the site for operators.
func (s *Server) administration(metrics http.Handler) *transport.Apart {
	c := &s.config
	o := transport.AdminOptions{Metrics: metrics, Profiles: profiles(), Hosts: c.AdminHosts, Logger: c.Log, Panicked: s.metrics.Panicked}
	if host, _, err := net.SplitHostPort(c.AdminAddr); err == nil && host != "" {
		o.Hosts = append(o.Hosts[:len(o.Hosts):len(o.Hosts)], host)
	}
	if c.Cluster != nil {
		o.Directory = directory{s.node}
		if c.Cluster.Advertise != "" {
			o.Hosts = append(o.Hosts[:len(o.Hosts):len(o.Hosts)], c.Cluster.Advertise) // the host that other members use
		}
	}
	if c.Redis == nil {
		o.Top = s.top
	}
	return transport.NewAdmin(o)
}

// profiles serves the handlers of net/http/pprof. They are not registered on the
// default mux, which all packages of a program share.
func profiles() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("/debug/pprof/", pprof.Index)
	mux.HandleFunc("/debug/pprof/cmdline", pprof.Cmdline)
	mux.HandleFunc("/debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("/debug/pprof/symbol", pprof.Symbol)
	mux.HandleFunc("/debug/pprof/trace", pprof.Trace)
	return mux
}
