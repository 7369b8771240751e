package server

import (
	"net"
	"net/http"
	"net/http/pprof"
	"slices"

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

// tcpAddr returns the address for other machines, "" if there is none.
func (a *aside) tcpAddr() string {
	if l := a.listener; l != nil && l.Addr().Network() != "unix" {
		return a.addr()
	}
	return ""
}

// site returns what the administration serves beside what comes from the node.
func (s *Server) site() transport.AdminOptions {
	c := &s.config
	o := transport.AdminOptions{Profiles: profiles(), Hosts: c.hosts(c.AdminHosts, c.AdminAddr), TLS: s.secured.forAdmin(),
		Routes: s.watching.console.Routes(), Token: s.watching.console.Token,
		Overrides: s.watching.console.Overriding}
	if c.RulesFile != "" {
		o.Reload = s.reloadNow
	}
	return o
}

// hosts returns names, the host of addr, and the host that other members use.
func (c *Config) hosts(names []string, addr string) []string {
	names = slices.Clone(names)
	if host, _, err := net.SplitHostPort(addr); err == nil && host != "" {
		names = append(names, host)
	}
	if c.Cluster != nil && c.Cluster.Advertise != "" {
		names = append(names, c.Cluster.Advertise)
	}
	return names
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
