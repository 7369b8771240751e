package server

import (
	"net"
	"net/http"
	"net/http/pprof"

	"github.com/weirlimit/weir/transport"
)

// aside is what is served apart from checks. Without a listener it is not served.
type aside struct {
	listener net.Listener
	site     *transport.Apart
}

// serve serves until close, or until the listener fails.
func (a *aside) serve() error {
	if a.listener == nil {
		return nil
	}
	return a.site.Serve(a.listener)
}

// close ends serve.
func (a *aside) close() error { return a.site.Close() }

// addr is where it is served, "" if it is not.
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

// AdminAddr returns where operators ask, as host:port or unix:PATH, "" if nowhere.
func (s *Server) AdminAddr() string { return s.admin.addr() }

// HealthAddr returns where probes ask, "" if nowhere.
func (s *Server) HealthAddr() string { return s.health.addr() }

// tcpAdminAddr returns where operators on other machines may ask, "" if nowhere.
func (s *Server) tcpAdminAddr() string {
	if l := s.admin.listener; l != nil && l.Addr().Network() != "unix" {
		return s.AdminAddr()
	}
	return ""
}

// administration makes the site of operators.
func (s *Server) administration(metrics http.Handler) *transport.Apart {
	c := &s.config
	o := transport.AdminOptions{Metrics: metrics, Profiles: profiles(), Hosts: c.AdminHosts, Logger: c.Log, Panicked: s.metrics.Panicked}
	if host, _, err := net.SplitHostPort(c.AdminAddr); err == nil && host != "" {
		o.Hosts = append(o.Hosts[:len(o.Hosts):len(o.Hosts)], host)
	}
	if c.Cluster != nil {
		o.Directory = directory{s.node}
		if c.Cluster.Advertise != "" {
			o.Hosts = append(o.Hosts[:len(o.Hosts):len(o.Hosts)], c.Cluster.Advertise) // where the others say that it is
		}
	}
	if c.Redis == nil {
		o.Top = s.top
	}
	return transport.NewAdmin(o)
}

// profiles serves what net/http/pprof has, whose own paths are on a mux that
// everything in the program shares.
func profiles() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("/debug/pprof/", pprof.Index)
	mux.HandleFunc("/debug/pprof/cmdline", pprof.Cmdline)
	mux.HandleFunc("/debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("/debug/pprof/symbol", pprof.Symbol)
	mux.HandleFunc("/debug/pprof/trace", pprof.Trace)
	return mux
}
