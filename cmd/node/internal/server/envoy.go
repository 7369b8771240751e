package server

import (
	"context"
	"crypto/sha256"
	"net"
	"time"

	"github.com/weirlimit/weir/internal/envoy"
	"github.com/weirlimit/weir/internal/envoy/config"
	"github.com/weirlimit/weir/internal/envoy/files"
	"github.com/weirlimit/weir/transport"
)

// EnvoyConfig is how a node serves Envoy's rate limit service.
type EnvoyConfig struct {
	// Addr is the address to listen on, as host:port.
	Addr string
	// Dir has the files with descriptors; it is followed as it changes. Empty: none, and
	// only the domains of Options.Overrides are served.
	Dir string
	// Files says how the files are read.
	Files config.Options
	// Options are those of the service. Decider is filled in.
	Options envoy.Options
}

// envoyServer serves Envoy's rate limit service. Its zero value serves nothing.
type envoyServer struct {
	config   *EnvoyConfig
	listener net.Listener
	service  *envoy.Service
	server   *transport.Server
	tried    [sha256.Size]byte // the files that were tried last
	failed   string            // why they could not be read, "" if they could
}

// envoyPoll is how often the directory is read. Files are taken when two readings are the
// same, so that none is taken while it is written.
const envoyPoll = time.Second

// openEnvoy makes the service, with the configuration in its directory.
func (s *Server) openEnvoy() (err error) {
	e, c := &s.envoy, s.config.Envoy
	if c == nil {
		return nil
	}
	o := c.Options
	o.Decider = s.node
	e.config = c
	if e.service, err = envoy.NewService(o); err != nil {
		return err
	}
	if c.Dir != "" {
		found, err := files.Read(c.Dir)
		if err != nil {
			return err
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
	e.server, err = transport.NewServer(transport.Options{
		Decider: s.node, Services: []transport.GRPCService{e.service}, HealthNames: []string{"ratelimit"},
		Ready: s.ready, Observer: s.metrics, Logger: s.config.Log, MaxMessageBytes: envoy.MaxMessageBytes,
		TLS:            s.secured.forClients(),
		MaxConnections: s.config.MaxConnections, MaxConnectionsPerAddress: s.config.MaxConnectionsPerAddress,
		MaxConnectionAge: s.config.MaxConnectionAge, ClientTimeout: s.config.ClientTimeout,
	})
	return err
}

// runEnvoy starts the service's goroutines.
func (s *Server) runEnvoy(ctx context.Context) {
	e := &s.envoy
	if e.config == nil {
		return
	}
	s.background.start("the server of Envoy's rate limit service", func() {
		if err := e.server.Serve(e.listener, nil); err != nil {
			s.failed <- err
		}
	})
	if e.config.Dir != "" {
		s.background.start("reading of "+e.config.Dir, func() { s.followEnvoy(ctx) })
	}
}

// followEnvoy puts the files of the directory into force as they change. If they cannot be
// read or are not valid, the old ones stay.
func (s *Server) followEnvoy(ctx context.Context) {
	tick := time.NewTicker(envoyPoll)
	defer tick.Stop()
	last := s.envoy.tried
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			last = s.lookEnvoy(last)
		}
	}
}

// lookEnvoy reads the directory once. last is the hash of the reading before.
func (s *Server) lookEnvoy(last [sha256.Size]byte) [sha256.Size]byte {
	e, log := &s.envoy, s.config.Log
	found, err := files.Read(e.config.Dir)
	if err != nil {
		if text := err.Error(); text != e.failed {
			e.failed = text
			log.Error("the old descriptors stay in force", "error", text)
		}
		return last
	}
	e.failed = ""
	sum := files.Hash(found)
	if sum == e.tried || sum != last {
		return sum
	}
	e.tried = sum
	parsed, err := config.Parse(found, e.config.Files)
	if err == nil {
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
	return e.server.Shutdown(ctx)
}

// EnvoyAddr returns the address of Envoy's rate limit service, "" if it is not served.
func (s *Server) EnvoyAddr() string {
	if s.envoy.listener == nil {
		return ""
	}
	return s.envoy.listener.Addr().String()
}
