package server

import (
	"context"
	"crypto/sha256"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"path/filepath"
	"time"

	"github.com/weirlimit/weir/internal/certs"
	"github.com/weirlimit/weir/internal/envoy"
	"github.com/weirlimit/weir/internal/envoy/config"
	"github.com/weirlimit/weir/internal/envoy/files"
	"github.com/weirlimit/weir/internal/envoy/xds"
	"github.com/weirlimit/weir/internal/smallfile"
	"github.com/weirlimit/weir/metrics"
	"github.com/weirlimit/weir/transport"
)

// EnvoyConfig is how a node serves Envoy's rate limit service.
type EnvoyConfig struct {
	// Addr is the address to listen on, as host:port, and QuotaAddr that of the quota service; empty: none.
	Addr, QuotaAddr string
	// HTTPAddrs are the addresses of /healthcheck, /json, /rlconfig and /metrics, as
	// host:port. Empty: none.
	HTTPAddrs []string
	// NeedsConfig makes /healthcheck fail until a configuration is in force.
	NeedsConfig bool
	// Dir has the files with descriptors; it is followed as it changes. Empty: none.
	// IgnoreDotFiles leaves out those whose names begin with a dot.
	Dir            string
	IgnoreDotFiles bool
	// XDS, if not nil, is the management server that has the descriptors, in place of Dir.
	// Without either only the domains of Options.Overrides are served. Until it has sent a first
	// configuration the node is not ready, and connections to Addr are closed, unless
	// StartWithoutConfig is set.
	XDS                *EnvoyXDS
	StartWithoutConfig bool
	// Files says how the files, or the resources of XDS, are read.
	Files config.Options
	// Options are those of the service. Their Config is filled in.
	Options envoy.Options
}

// maxEnvoyHTTP bounds EnvoyConfig.HTTPAddrs.
const maxEnvoyHTTP = 4

// EnvoyXDS is a management server of xDS.
type EnvoyXDS struct {
	// Addr is its address, as host:port, and NodeID what it knows this node by; default
	// "default".
	Addr, NodeID string
	// CAFile has the authorities of its certificate, ServerName the name in it; default the
	// host of Addr. CertFile and KeyFile are this node's certificate. Empty CAFile and
	// CertFile: without TLS.
	CAFile, ServerName, CertFile, KeyFile string
}

// envoyServer serves Envoy's rate limit service. Its zero value serves nothing.
type envoyServer struct {
	config   *EnvoyConfig
	listener net.Listener // nil: none
	service  *envoy.Service
	server   *transport.Server
	quotas   quotaServer
	aside    []net.Listener   // of site
	site     *transport.Apart // nil: none
	registry metrics.Registerer
	scraped  http.Handler      // what registry has
	xds      *xds.Client       // nil: none
	trust    *certs.Store      // of xds, nil: no TLS
	tried    [sha256.Size]byte // the files that were tried last
	failed   string            // why they could not be read, "" if they could
}

// envoyPoll is how often the directory is read. Files are taken when two readings are the
// same, so that none is taken while it is written.
const envoyPoll = time.Second

// open makes the service, with the configuration in its directory.
func (e *envoyServer) open(s *Server) (err error) {
	c := s.config.Envoy
	if c == nil {
		return nil
	}
	o := c.Options
	o.Config, e.config = s.frontendOf(), c
	if e.service, err = envoy.NewService(o); err != nil {
		return err
	}
	if err := metrics.NewEnvoy(e.registry, func() metrics.EnvoyStats { return envoyStats(e.service) }); err != nil {
		return err
	}
	if len(e.aside) > 0 {
		e.site = e.siteOf(s)
	}
	if c.Dir != "" {
		found, err := files.Read(c.Dir, c.IgnoreDotFiles)
		if err != nil {
			return err
		}
		for _, f := range found {
			if w := smallfile.Writable("file of descriptors", filepath.Join(c.Dir, filepath.FromSlash(f.Name))); w != "" {
				s.config.Log.Warn(w)
			}
		}
		parsed, err := config.Parse(found, c.Files)
		if err != nil {
			return err
		}
		if err := e.service.SetConfig(parsed); err != nil {
			return err
		}
		e.tried = files.Hash(found)
	}
	if e.server, err = e.serverOf(s, e.service); err == nil {
		err = e.quotas.open(s)
	}
	if err == nil && c.XDS != nil {
		err = e.openXDS(s.config.Log) // the last, as it has a connection
	}
	return err
}

// serverOf makes the server of a service, with the bounds and the permissions of clients.
func (e *envoyServer) serverOf(s *Server, service transport.GRPCService) (*transport.Server, error) {
	c := s.frontendOf()
	return transport.NewServer(transport.Options{
		Decider: s.node, Services: []transport.GRPCService{service}, HealthNames: []string{"ratelimit"},
		Ready: s.Ready, Stopping: s.stopping.Load, Observer: s.metrics, Logger: s.config.Log,
		MaxMessageBytes: envoy.MaxMessageBytes, MaxHeaderBytes: envoy.MaxHeaderBytes,
		// of handshakes; the service tells of requests
		TLS: s.secured.forClients(), Tracer: c.Tracer, Audit: c.Audit,
		MaxConnections: s.config.MaxConnections, MaxConnectionsPerAddress: s.config.MaxConnectionsPerAddress,
		MaxConnectionAge: s.config.MaxConnectionAge, ClientTimeout: s.config.ClientTimeout,
	})
}

// openXDS makes the client of the management server.
func (e *envoyServer) openXDS(log *slog.Logger) (err error) {
	c := e.config.XDS
	if c.CAFile != "" || c.CertFile != "" {
		if e.trust, err = certs.Open(certs.Config{What: "management server", CAFile: c.CAFile, CertFile: c.CertFile,
			KeyFile: c.KeyFile}); err != nil {
			return err
		}
	}
	e.xds, err = xds.New(xds.Config{
		Addr: c.Addr, NodeID: c.NodeID, Certs: e.trust, ServerName: c.ServerName, Log: log,
		Apply: func(resources [][]byte) error {
			parsed, err := config.ParseMessages(resources, e.config.Files)
			if err != nil {
				e.service.NotLoaded()
				return err
			}
			return e.service.SetConfig(parsed)
		},
	})
	return err
}

// siteOf returns what is served over HTTP. /json and /rlconfig answer this machine only
// where clients use TLS: these addresses have none.
func (e *envoyServer) siteOf(s *Server) *transport.Apart {
	with, near := s.frontendOf(), s.config.TLS != nil
	return transport.NewSite(transport.SiteOptions{
		Name: "Envoy's rate limit service over HTTP", Flag: "--http-host", Hosts: s.config.HTTPHosts,
		Access: with.Access, Audit: with.Audit, Tracer: with.Tracer, Over: "envoy", Panicked: s.metrics.Observer().Panicked,
		Logger: s.config.Log,
		Routes: map[string]transport.SiteRoute{
			"/healthcheck": {Open: true, Serve: func(w http.ResponseWriter, _ *http.Request) {
				err := s.Ready()
				if err == nil && e.config.NeedsConfig && !e.service.Configured() {
					err = errors.New("no rate limit configuration loaded")
				}
				if err != nil {
					http.Error(w, err.Error(), http.StatusInternalServerError)
					return
				}
				_, _ = w.Write([]byte("OK")) // an error means that the client is gone
			}},
			"/json": {Post: true, Traced: true, Near: near, Serve: e.service.ServeJSON,
				Action: transport.ActionCheck.String()},
			"/rlconfig": {Near: near, Admin: true, Serve: e.service.ServeConfig},
			"/metrics":  {Admin: true, Serve: e.scraped.ServeHTTP},
		},
	})
}

// envoyStats returns the statistics of a service as metrics have them.
func envoyStats(of *envoy.Service) metrics.EnvoyStats {
	s := of.Stats()
	out := metrics.EnvoyStats{
		Calls: s.Calls, Failed: s.Failed, Seconds: s.Seconds, Loaded: s.Loaded, NotLoaded: s.NotLoaded,
		Shadowed: s.Shadowed, NoDomain: s.NoDomain, Times: make(map[float64]uint64),
	}
	for i, upTo := range envoy.Buckets() {
		out.Times[upTo] = s.Times[i]
	}
	for i := range s.Limits {
		out.Limits = append(out.Limits, metrics.EnvoyHits(s.Limits[i]))
	}
	return out
}

// listen opens the listeners of the service.
func (e *envoyServer) listen(ctx context.Context, of *Config) (err error) {
	c := of.Envoy
	if c == nil {
		return nil
	}
	secure := of.TLS != nil && !of.TLS.Optional
	if e.listener, err = listenAt(ctx, of.Log, "--envoy-addr", c.Addr, secure); err != nil {
		return err
	}
	if e.quotas.listener, err = listenAt(ctx, of.Log, "--rlqs-addr", c.QuotaAddr, secure); err != nil {
		return err
	}
	for _, addr := range c.HTTPAddrs {
		l, err := listenAt(ctx, of.Log, "--envoy-http-addr", addr, false)
		if err != nil {
			return err
		}
		e.aside = append(e.aside, l)
	}
	return nil
}

// errNoEnvoyConfig is why a node is not ready.
var errNoEnvoyConfig = errors.New("no rate limit configuration loaded: the management server of --envoy-xds has sent " +
	"none yet")

// waits reports whether the service waits for the first configuration of a management server.
func (e *envoyServer) waits() bool {
	return e.config != nil && e.config.XDS != nil && !e.config.StartWithoutConfig && !e.service.Configured()
}

// gate is a listener that closes connections at once while the service waits. For an answer without a
// configuration Envoy would let the request pass; a connection that fails may make it ask another node.
type gate struct {
	net.Listener
	of *envoyServer
}

func (g gate) Accept() (net.Conn, error) {
	for {
		c, err := g.Listener.Accept()
		if err != nil || !g.of.waits() {
			return c, err
		}
		_ = c.Close() // nothing was sent
	}
}

// run starts the service's goroutines.
func (e *envoyServer) run(ctx context.Context, s *Server) {
	if e.config == nil {
		return
	}
	if e.listener != nil {
		s.background.serve("the server of Envoy's rate limit service", s.failed, func() error {
			return e.server.Serve(gate{e.listener, e}, nil)
		})
	}
	e.quotas.run(s)
	for _, l := range e.aside {
		s.background.start("the server of Envoy's rate limit service over HTTP", func() {
			if err := e.site.Serve(l); err != nil && !errors.Is(err, http.ErrServerClosed) {
				s.failed <- err
			}
		})
	}
	if e.xds != nil {
		s.background.start("following the management server", func() { e.xds.Run(ctx) })
	}
	if e.trust != nil {
		s.background.start("reading of the certificates for the management server", func() {
			tick := time.NewTicker(certs.Every)
			defer tick.Stop()
			e.trust.Watch(ctx, tick.C, s.config.Log, s.audit.certificatesChanged("xds"))
		})
	}
	if e.config.Dir != "" {
		s.background.start("reading of "+e.config.Dir, func() { e.follow(ctx, s.config.Log) })
	}
}

// follow puts the files of the directory into force as they change. If they cannot be
// read or are not valid, the old ones stay.
func (e *envoyServer) follow(ctx context.Context, log *slog.Logger) {
	tick := time.NewTicker(envoyPoll)
	defer tick.Stop()
	last := e.tried
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			last = e.look(last, log)
		}
	}
}

// look reads the directory once. last is the hash of the reading before.
func (e *envoyServer) look(last [sha256.Size]byte, log *slog.Logger) [sha256.Size]byte {
	found, err := files.Read(e.config.Dir, e.config.IgnoreDotFiles)
	if err != nil {
		if text := err.Error(); text != e.failed {
			e.failed = text
			log.Error("the old descriptors stay in force", "error", text)
		}
		return last
	}
	if e.failed != "" {
		log.Info("the files of descriptors can be read again", "directory", e.config.Dir)
		e.failed = ""
	}
	sum := files.Hash(found)
	if sum == e.tried || sum != last {
		return sum
	}
	e.tried = sum
	parsed, err := config.Parse(found, e.config.Files)
	if err != nil {
		e.service.NotLoaded()
	} else {
		err = e.service.SetConfig(parsed)
	}
	if err != nil {
		log.Error("the old descriptors stay in force", "error", err.Error())
		return sum
	}
	log.Info("descriptors are in force", "directory", e.config.Dir, "files", len(found), "domains", parsed.Domains())
	return sum
}

// shutdown stops the server after it has answered.
func (e *envoyServer) shutdown(ctx context.Context) error {
	if e.server == nil {
		return nil
	}
	err := errors.Join(e.server.Shutdown(ctx), e.quotas.stop(ctx))
	if e.site != nil {
		err = errors.Join(err, e.site.Close())
	}
	return err
}

// listeners returns the listeners of the services, some of which may be nil.
func (e *envoyServer) listeners() []net.Listener {
	return append([]net.Listener{e.listener, e.quotas.listener}, e.aside...)
}
