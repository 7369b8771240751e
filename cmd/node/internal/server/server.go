// Package server runs a node as a service: it listens, decides, follows its rules file,
// exports metrics to Prometheus, and stops in good order.
package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/cluster"
	"github.com/weirlimit/weir/cmd/node/internal/rulesfile"
	"github.com/weirlimit/weir/cmd/node/internal/tracing"
	"github.com/weirlimit/weir/internal/access"
	"github.com/weirlimit/weir/internal/forward"
	"github.com/weirlimit/weir/metrics"
	"github.com/weirlimit/weir/redisstore"
	"github.com/weirlimit/weir/rules"
	"github.com/weirlimit/weir/serve"
	"github.com/weirlimit/weir/transport"
)

// Config is how a node is to run. All fields are required unless their comment says
// otherwise.
type Config struct {
	// GRPCAddr and HTTPAddr are the addresses to listen on, as host:port. Port 0 is any
	// free one.
	GRPCAddr, HTTPAddr string
	// AdminAddr is the address for operators, as host:port or unix:PATH. HealthAddr is
	// the address for probes. Empty: none. AdminHosts are further names by which the
	// administration may be addressed, besides those of [transport.NewAdmin] and the
	// host of AdminAddr.
	AdminAddr, HealthAddr string
	AdminHosts            []string
	// HTTPHosts are further names by which browsers may address HTTPAddr, besides those
	// of [transport.Options], the host of HTTPAddr and that of Cluster.Advertise.
	HTTPHosts []string
	// RulesFile is read, and followed as it changes. If it is empty, Rules, which may
	// be empty too, stay in force.
	RulesFile string
	Rules     []byte
	// StrictRules is that of [weir.Config].
	StrictRules bool
	// MaxKeys, MaxBytes, Overflow, Secret and ClusterName are those of [weir.Config].
	MaxKeys  int
	MaxBytes int64
	Overflow weir.Overflow
	Secret   []byte
	// SecondSecret is that of [weir.Config].
	SecondSecret []byte
	ClusterName  string
	// Replication is that of [weir.Config].
	Replication weir.Replication
	// Redis, if not nil, holds the counters instead of memory, for all nodes that use
	// the same Redis.
	Redis *redisstore.Config
	// Cluster, if not nil, makes the node a member of a cluster. The server fills in
	// the addresses for clients.
	Cluster *cluster.Config
	// AllowRequestLimits, AllowReset, AllowRefunds and the bounds of clients are those of
	// [transport.Options]. The bounds may be left out.
	AllowRequestLimits, AllowReset           bool
	AllowRefunds                             bool
	MaxConnections, MaxConnectionsPerAddress int
	MaxConnectionAge, ClientTimeout          time.Duration
	// Envoy, if not nil, serves Envoy's rate limit service.
	Envoy *EnvoyConfig
	// RedisListen is the address for the Redis protocol, as host:port. Empty: none.
	RedisListen string
	// SPOEListen is the address for HAProxy's filter spoe, as host:port, which needs Auth.
	// Empty: none.
	SPOEListen string
	// Gubernator serves the protocol of Gubernator's clients, if it has an address.
	Gubernator GubernatorConfig
	// Auth, if not nil, answers the sub-requests of web proxies, at HTTPAddr. Decider is
	// filled in.
	Auth *forward.Options
	// Permissions is the permissions file, which is followed as it changes. If it is not
	// empty, it decides in place of AllowRequestLimits, AllowReset and AllowRefunds, at all
	// addresses of clients.
	Permissions string
	// Audit is the file of the audit, "stderr", or empty for none.
	Audit string
	// Denials is which denials are recorded.
	Denials DenialsConfig
	// ShareRing publishes to clients which member to ask for which counter. With it go
	// the rules and the key of the hash of counters.
	ShareRing bool
	// TLS, if not nil, secures what clients and operators use.
	TLS *TLSConfig
	// Trace, if not nil, sends traces of requests to a collector.
	Trace *TraceConfig
	// ShutdownDelay is how long requests are still accepted after the node has reported
	// that it is not ready; 0 for no delay.
	ShutdownDelay time.Duration
	// ShutdownTimeout bounds all of Stop, including ShutdownDelay.
	ShutdownTimeout time.Duration
	// ClockOffset is the error of the counters' clock, for tests; 0 for none.
	ClockOffset time.Duration
	// Version of the program, for metrics.
	Version string
	// Log receives everything that an operator should know.
	Log *slog.Logger
}

// errStopping is why a node that is stopping is not ready.
var errStopping = errors.New("the node is stopping")

// Server is a running node.
type Server struct {
	config   Config
	service  *serve.Service
	node     *weir.Node // the service's, as is the next
	metrics  *metrics.Metrics
	follower *rulesfile.Follower // nil: there is no file to follow
	access   *access.Access      // nil: there is no permissions file
	audit    accounts
	tracer   *tracing.Tracer // nil: nothing is traced

	grpc, http    net.Listener
	admin, health aside
	protocols     protocols
	envoy         envoyServer
	secured       secured
	watching      watching

	stopping   atomic.Bool
	unfollow   context.CancelFunc
	background background
	failed     chan error
}

// Start starts a node and returns when it accepts requests. If it fails, everything is
// cleaned up. The context is for starting only.
func Start(ctx context.Context, c Config) (*Server, error) {
	s := &Server{config: c, failed: make(chan error, 6+maxEnvoyHTTP)}
	if err := s.readRules(); err != nil {
		return nil, err
	}
	var err error
	if c.Permissions != "" {
		if s.access, err = access.Open(c.Permissions, c.Log); err != nil {
			return nil, err
		}
	}
	if s.secured, err = openTLS(c.TLS); err != nil {
		return nil, err
	}
	if s.audit, err = openAccounts(c.Audit, c.Permissions, c.Log); err != nil {
		return nil, err
	}
	if s.access != nil {
		s.access.Changed, s.access.CertificateFlag = s.permissionsChanged(), c.TLS.unasked(clientCertFlag)
	}
	if err := s.openConsole(); err != nil {
		return nil, errors.Join(err, s.audit.Close())
	}
	if err := s.listen(ctx); err != nil {
		return nil, errors.Join(err, s.audit.Close())
	}
	if err := s.openTracer(ctx); err != nil {
		return nil, errors.Join(err, s.closeListeners(), s.audit.Close())
	}
	if err := s.open(ctx); err != nil {
		s.closeTracer(ctx)
		return nil, errors.Join(err, s.closeListeners(), s.audit.Close())
	}
	// That of Envoy is the last, as its last step opens a connection.
	for _, open := range []func(*Server) error{s.protocols.open, s.envoy.open} {
		if err := open(s); err != nil {
			s.closeTracer(ctx)
			return nil, errors.Join(err, s.service.Close(), s.closeListeners(), s.audit.Close())
		}
	}
	s.run(context.WithoutCancel(ctx))
	return s, nil
}

// readRules reads and parses the rules file, if there is one. It does so before the
// node can be seen by others, so that an invalid file has no effect on them.
func (s *Server) readRules() (err error) {
	c := &s.config
	if c.RulesFile == "" {
		return nil
	}
	if c.Rules, err = rulesfile.Read(c.RulesFile); err != nil {
		return err
	}
	for _, w := range rulesfile.Warnings(c.RulesFile) {
		c.Log.Warn(w)
	}
	_, err = rules.Parse(c.RulesFile, c.Rules, rules.Options{Strict: c.StrictRules})
	return err
}

// open makes the node, with its rules, its metrics and its servers.
func (s *Server) open(ctx context.Context) error {
	c := &s.config
	config := weir.Config{
		RulesName: c.RulesFile, StrictRules: c.StrictRules, MaxKeys: c.MaxKeys, MaxBytes: c.MaxBytes, Overflow: c.Overflow,
		Secret: c.Secret, SecondSecret: c.SecondSecret, ClusterName: c.ClusterName, Replication: c.Replication, Logger: c.Log,
	}
	if c.ClockOffset != 0 {
		began := time.Now()
		config.Now = func() time.Time { return began.Add(c.ClockOffset + time.Since(began)) }
	}
	if c.Cluster != nil {
		member := *c.Cluster
		member.HTTPAddr, member.GRPCAddr, member.AdminAddr = addrOf(s.http), addrOf(s.grpc), s.admin.tcpAddr()
		if s.audit.Log != nil {
			member.PeerRefused = s.audit.peerRefused
			member.FilesChanged = s.audit.memberFilesChanged
		}
		member.Notes, member.Kept = s.watching.notes, s.watching.kept
		member.RefuseResets = !c.AllowReset && s.access == nil
		if s.tracer != nil {
			member.Tracer = s.tracer
		}
		config.Cluster, config.Rules = &member, c.Rules // published to the other members
	}
	if c.Redis != nil {
		var err error
		if config.Backend, err = redisstore.Open(ctx, *c.Redis); err != nil {
			return err
		}
	}
	auth, err := s.authOf()
	if err != nil {
		return err
	}
	site, by := s.site(), transport.Access(nil)
	if c.Envoy != nil { // its metrics are registered later
		registry := metrics.NewRegistry()
		site.Metrics = metrics.Handler(registry)
		s.envoy.registry, s.envoy.scraped = registry, site.Metrics
	}
	if s.access != nil {
		site.Access, by = s.access.At(c.TLS.unasked(adminCertFlag)), s.access
	}
	site.Audit = s.audit.auditor()
	s.service, err = serve.Open(ctx, serve.Config{
		Node: config, Registerer: s.envoy.registry, Runtime: true, Version: c.Version, Validities: s.secured.validities,
		ShareRing: c.ShareRing, Site: site,
		Wire: transport.Options{
			Access:  by,
			Audit:   s.audit.auditor(),
			Denials: s.recorder(), Auth: auth,
			AllowRequestLimits: c.AllowRequestLimits, AllowReset: c.AllowReset, AllowRefunds: c.AllowRefunds, Ready: s.Ready,
			Stopping:       s.stopping.Load,
			Hosts:          c.hosts(c.HTTPHosts, c.HTTPAddr),
			TLS:            s.secured.forClients(),
			Tracer:         s.forRequests(),
			MaxConnections: c.MaxConnections, MaxConnectionsPerAddress: c.MaxConnectionsPerAddress,
			MaxConnectionAge: c.MaxConnectionAge, ClientTimeout: c.ClientTimeout,
		},
	})
	if err != nil {
		return clusterHelp(err, c.Cluster)
	}
	s.watching.opened(s.service.Node(), c.Log)
	s.node, s.metrics = s.service.Node(), s.service.Metrics()
	defer s.warnUnsettled()
	if config.Cluster == nil && len(c.Rules) > 0 || c.RulesFile != "" && len(config.Rules) == 0 {
		// Open would treat an empty file as no file.
		if err := s.node.SetRules(c.Rules); err != nil {
			return errors.Join(err, s.service.Close())
		}
	}
	s.admin.site, s.health.site = s.service.AdminSite(), s.service.Wire().Health()
	if s.access != nil {
		s.node.SetTenantShares(s.access.TenantShares())
	}
	return nil
}

func (s *Server) listen(ctx context.Context) (err error) {
	c := &s.config
	if err := s.envoy.listen(ctx, &s.config); err != nil {
		return errors.Join(err, s.closeListeners())
	}
	for _, l := range []struct {
		flag, address string
		to            *net.Listener
	}{
		{"--redis-listen", c.RedisListen, &s.protocols.resp.listener},
		{"--spoe-listen", c.SPOEListen, &s.protocols.spoe.listener},
		{"--gubernator-addr", c.Gubernator.Addr, &s.protocols.gubernator.grpc},
		{"--gubernator-http-addr", c.Gubernator.HTTPAddr, &s.protocols.gubernator.http},
		{"--grpc-addr", c.GRPCAddr, &s.grpc}, {"--http-addr", c.HTTPAddr, &s.http},
		{"--admin-addr", c.AdminAddr, &s.admin.listener}, {"--health-addr", c.HealthAddr, &s.health.listener},
	} {
		secure := c.TLS != nil && !c.TLS.Optional && l.flag != "--health-addr"
		if *l.to, err = listenAt(ctx, c.Log, l.flag, l.address, secure); err != nil {
			return errors.Join(err, s.closeListeners())
		}
	}
	return nil
}

// listenAt opens the listener of an address, nil of "". Unless it is secure, a warning is logged about an address that
// other machines can reach.
func listenAt(ctx context.Context, log *slog.Logger, flag, address string, secure bool) (net.Listener, error) {
	if address == "" {
		return nil, nil //nolint:nilnil // none is asked for
	}
	l, err := transport.Listen(ctx, flag, address)
	if err != nil {
		return nil, err
	}
	if tcp, ok := l.Addr().(*net.TCPAddr); ok && !secure && !tcp.IP.IsLoopback() {
		log.Warn("this address can be reached from other machines, without TLS and authentication: "+
			"keep it on a network that you trust", "flag", flag, "address", tcp.String())
	}
	return l, nil
}

func (s *Server) closeListeners() error {
	var err error
	for _, l := range slices.Concat([]net.Listener{s.grpc, s.http, s.admin.listener, s.health.listener},
		s.protocols.listeners(), s.envoy.listeners()) {
		if l != nil {
			err = errors.Join(err, l.Close())
		}
	}
	return err
}

// run starts all background goroutines.
func (s *Server) run(ctx context.Context) {
	ctx, s.unfollow = context.WithCancel(ctx)
	if c := &s.config; c.RulesFile != "" { // before the servers, which may be asked to reload
		s.follower = rulesfile.New(rulesfile.Config{
			Name: c.RulesFile, First: c.Rules, Log: c.Log, Apply: s.apply,
			Unreadable: func(err error) { s.metrics.Observer().RulesSet(s.node.RulesHash(), err) },
		})
	}
	s.background.start("the history and the overrides", func() { s.watching.console.Run(ctx) })
	s.secured.run(ctx, &s.background, s.config.Log, s.audit)
	s.background.serve("the servers of gRPC and HTTP", s.failed, func() error {
		return s.service.Wire().Serve(s.grpc, s.http)
	})
	for _, a := range []*aside{&s.admin, &s.health} {
		s.background.serve("a server of operators or probes", s.failed, a.serve)
	}
	s.envoy.run(ctx, s)
	s.protocols.run(s)
	if s.access != nil {
		s.background.start("reading of "+s.config.Permissions, func() { s.access.Follow(ctx) })
	}
	if s.follower != nil {
		s.background.start("reading of "+s.config.RulesFile, func() { s.follower.Run(ctx) })
	}
}

func (s *Server) apply(data []byte) error {
	err := s.node.SetRules(data)
	s.audit.fileChanged("rules", "rules "+s.RulesHash(), err)
	if err != nil {
		return err
	}
	s.warnUnsettled()
	s.config.Log.Info("rules are in force", "file", s.config.RulesFile, "rules", len(s.node.Rules()), "hash",
		s.RulesHash())
	return nil
}

// Ready returns nil if the node should get requests, and why not otherwise.
func (s *Server) Ready() error {
	if s.stopping.Load() {
		return errStopping
	}
	if err := s.node.Ready(); err != nil || !s.envoy.waits() {
		return err
	}
	return errNoEnvoyConfig
}

// Node returns the node, for use in the same process.
func (s *Server) Node() *weir.Node { return s.node }

// RulesHash returns the hash of the rules in force, formatted as in metrics.
func (s *Server) RulesHash() string { return fmt.Sprintf("%016x", s.node.RulesHash()) }

// Reload makes the node read the rules file and the permissions file again, even if they
// have not changed. It does not wait for the rules; the result is logged.
func (s *Server) Reload() {
	if s.access != nil {
		_ = s.access.Reload() // it is logged
	}
	if s.follower == nil {
		s.config.Log.Warn("there is nothing to reload: no rules file was named; give --rules FILE")
		return
	}
	s.follower.Reload()
}

// Failed returns a channel that receives why the node no longer serves, if that happens
// before Stop.
func (s *Server) Failed() <-chan error { return s.failed }

// cutOff is the divisor for the part of ShutdownTimeout that is reserved for closing
// what did not finish in time.
const cutOff = 10

// Stop stops the node. It reports not ready, waits for ShutdownDelay, hands over its
// counters in a cluster, stops accepting requests, answers those it has begun, and
// leaves the cluster. It returns within ShutdownTimeout, with an error if requests had
// to be cut off. Background work that does not end by then is left, and the log names it.
// Call it once.
func (s *Server) Stop() error {
	c := &s.config
	s.stopping.Store(true)
	s.unfollow()
	begun := time.Now()
	if c.ShutdownDelay > 0 {
		c.Log.Info("no longer ready", "still_serving_for", c.ShutdownDelay)
		time.Sleep(c.ShutdownDelay)
	}
	ctx, cancel := context.WithDeadline(context.Background(), begun.Add(c.ShutdownTimeout-c.ShutdownTimeout/cutOff))
	defer cancel()
	return s.service.Shutdown(ctx, s.envoy.shutdown, s.protocols.shutdown, func(context.Context) error {
		err := errors.Join(s.health.close(), s.audit.Close())
		s.watching.close()
		// what was just cut off has time to end
		ctx, cancel := context.WithDeadline(context.Background(), begun.Add(c.ShutdownTimeout-c.ShutdownTimeout/cutOff/2))
		defer cancel()
		s.closeTracer(ctx)
		if left := s.background.wait(ctx); len(left) > 0 {
			// They can be stuck in a call of the system, such as the reading of a rules
			// file from a file system that hangs. No request depends on them.
			c.Log.Warn("stopped without waiting any longer for background work", "left", strings.Join(left, ", "))
		}
		return err
	})
}
