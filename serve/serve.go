package serve

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync"
	"sync/atomic"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/limiter/table"
	"github.com/weirlimit/weir/metrics"
	"github.com/weirlimit/weir/transport"
)

// Config configures a [Service]. The zero value is usable.
type Config struct {
	// Node configures the node. Its Observer must be nil: the metrics observe it.
	Node weir.Config
	// Registerer is where the metrics are registered; default nil: a registry of the
	// service's own, which [Service.Admin] serves at /metrics. With a Registerer the
	// program serves them itself. For two services on one Registerer wrap it with a
	// label for each, see [metrics].
	Registerer metrics.Registerer
	// Runtime adds the metrics of the Go runtime and the process. Leave it false if the
	// program registers them itself.
	Runtime bool
	// Version is the version of the program, for weir_build_info.
	Version string
	// Validities returns how long the certificates of the listeners are valid, by what they
	// are for, for weir_certificate_expiry_seconds and weir_certificate_lifetime_seconds;
	// default nil. Those of a member's certificate and its authorities are added as "peer"
	// and "peer_authority".
	Validities func() map[string]metrics.Validity
	// Wire has the permissions and bounds of clients, see [transport.Options]. Decider,
	// Warnings and Observer are filled in. So are Ready and Logger, if they are nil: by
	// Ready of the node and by Node.Logger.
	Wire transport.Options
	// ShareRing publishes to clients which member to ask for which counter, with the rules
	// and the key of the hash of counters; see Ring of [transport.Options]. Set GRPCAddr of the
	// cluster.Config, too: clients do not ask a member directly whose address is empty.
	// Without a cluster there is nothing to publish.
	ShareRing bool
	// Site has the handlers and names of the administration that do not come from the
	// node, see [transport.AdminOptions]. Directory, Top, Metrics, Warnings and Panicked
	// are filled in, and so is Logger if it is nil.
	Site transport.AdminOptions
}

// Service is a node with its metrics and its servers. It is safe for concurrent use.
type Service struct {
	node    atomic.Pointer[weir.Node] // nil until it is open: a scrape may come before
	metrics *metrics.Metrics
	wire    *transport.Server
	admin   *transport.Apart
	maxKeys int

	ending sync.Once
	ended  error // of the call that ended the service
}

// Open opens a node with its metrics and servers. A member of a cluster listens for the
// other members at once; nothing is served to clients and operators yet. The errors are
// those of [weir.Open], [metrics.New] and [transport.NewServer]; for a Node.Observer it wraps
// [weir.ErrInvalid]. After an error Node.Backend is closed. ctx bounds the opening. The
// caller must call [Service.Close] or [Service.Shutdown].
func Open(ctx context.Context, c Config) (*Service, error) {
	if c.Node.Observer != nil {
		err := fmt.Errorf("%w: serve.Config.Node.Observer is given: leave it out, the service's metrics observe the node",
			weir.ErrInvalid)
		return nil, errors.Join(err, closeBackend(c.Node.Backend))
	}
	s := &Service{maxKeys: c.Node.MaxKeys}
	s.maxKeys = cmp.Or(s.maxKeys, table.DefaultMaxKeys)
	var own http.Handler
	if c.Registerer == nil {
		registry := metrics.NewRegistry()
		c.Registerer, own = registry, metrics.Handler(registry)
	}
	o := metrics.Options{Version: c.Version, Runtime: c.Runtime, Validities: s.validities(&c)}
	if c.Node.Backend == nil || c.Node.Backend.Extras().UseTable != nil {
		o.Table = s.table
	}
	if c.Node.Cluster != nil {
		o.Cluster = s.cluster
	}
	if b, counts := c.Node.Backend.(interface{ Evicted() uint64 }); counts {
		o.Evicted = b.Evicted
	}
	var err error
	if s.metrics, err = metrics.New(c.Registerer, o); err != nil {
		return nil, errors.Join(err, closeBackend(c.Node.Backend))
	}
	c.Node.Observer = s.metrics.Observer()
	node, err := weir.Open(ctx, c.Node)
	if err != nil {
		s.metrics.Close()
		return nil, errors.Join(err, closeBackend(c.Node.Backend))
	}
	s.node.Store(node)
	if err := s.serve(node, &c, own); err != nil {
		s.metrics.Close()
		return nil, errors.Join(err, node.Close())
	}
	return s, nil
}

func closeBackend(b weir.Backend) error {
	if b == nil {
		return nil
	}
	return b.Close()
}

func (s *Service) serve(node *weir.Node, c *Config, own http.Handler) (err error) {
	w := c.Wire
	w.Decider, w.Warnings, w.Observer = node, node.Warnings, s.metrics
	if w.Ready == nil {
		w.Ready = node.Ready
	}
	w.Logger = cmp.Or(w.Logger, c.Node.Logger)
	if c.Node.Cluster != nil && c.ShareRing {
		w.Ring = &ring{node: node}
	}
	if s.wire, err = transport.NewServer(w); err != nil {
		return err
	}
	a := c.Site
	a.Warnings, a.Panicked = node.Warnings, s.metrics.Observer().Panicked
	if own != nil {
		a.Metrics = own
	}
	a.Logger = cmp.Or(a.Logger, c.Node.Logger)
	if c.Node.Cluster != nil {
		a.Directory = directory{node}
	}
	if c.Node.Backend == nil {
		a.Top = s.top
	}
	s.admin = transport.NewAdmin(a)
	return nil
}

// Node returns the node.
func (s *Service) Node() *weir.Node { return s.node.Load() }

// Metrics returns the metrics, for observers of the program's own, such as a follower of a
// rules file.
func (s *Service) Metrics() *metrics.Metrics { return s.metrics }

// Handler returns what the node program serves to clients over HTTP: checks, batches,
// explanations, resets, /healthz, /readyz and /openapi.yaml. The program that serves it
// sets the bounds of time and size of its server, and says who may ask.
func (s *Service) Handler() http.Handler { return s.wire.Handler() }

// Admin returns what the node program serves to operators: members, top keys and, unless
// Config.Registerer was given, /metrics. Serve it on a listener that only operators reach.
func (s *Service) Admin() http.Handler { return s.admin.Handler() }

// Wire returns the server of Handler, for its other methods.
func (s *Service) Wire() *transport.Server { return s.wire }

// AdminSite returns the site of Admin, for its other methods.
func (s *Service) AdminSite() *transport.Apart { return s.admin }

// Serve serves gRPC and HTTP, with all bounds of the node program, on the listeners, either
// of which may be nil. It returns nil after Shutdown or Close. If a listener fails it stops
// serving on both and returns the error; the node still runs, and the caller must close
// the service. It may be called once. See Serve of [transport.Server].
func (s *Service) Serve(grpc, http net.Listener) error { return s.wire.Serve(grpc, http) }

// Shutdown ends the service in good order: the node hands over its counters and is not
// ready any more, the service's servers answer what they have begun, others stops the
// program's own servers, and the node leaves its cluster and closes. Shutdown knows
// nothing of the servers on which the program serves Handler or Admin: give their Shutdown
// methods as others, so that the node stays open until they have answered. They are called
// one after the other. If the context ends first, Shutdown does the rest at once, and the
// error says so.
//
// A service ends once. Further calls of Shutdown and Close, also concurrent ones, wait for
// the first, do nothing else, and return its error.
func (s *Service) Shutdown(ctx context.Context, others ...func(context.Context) error) error {
	s.ending.Do(func() { s.ended = s.shutdown(ctx, others) })
	return s.ended
}

func (s *Service) shutdown(ctx context.Context, others []func(context.Context) error) error {
	node, leave := s.Node(), s.Node().Cluster().Leave
	err := node.Cluster().HandOver(ctx)
	if errors.Is(err, weir.ErrNoCluster) {
		err, leave = nil, func(context.Context) error { return node.Close() }
	}
	err = errors.Join(err, s.wire.Shutdown(ctx), s.admin.Close())
	for _, stop := range others {
		err = errors.Join(err, stop(ctx))
	}
	s.metrics.Close()
	return errors.Join(err, leave(ctx))
}

// Close ends the service at once; see Close of [weir.Node]. After Shutdown, or during it,
// it does the same as a further Shutdown.
func (s *Service) Close() error {
	s.ending.Do(func() {
		cut, cancel := context.WithCancel(context.Background())
		cancel()
		if err := s.wire.Shutdown(cut); err != nil && !errors.Is(err, context.Canceled) {
			s.ended = err
		}
		s.ended = errors.Join(s.ended, s.admin.Close())
		s.metrics.Close()
		s.ended = errors.Join(s.ended, s.Node().Close())
	})
	return s.ended
}
