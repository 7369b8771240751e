package transport

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/health"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/reflection"
	"google.golang.org/grpc/status"

	"github.com/weirlimit/weir/internal/frontend"
	"github.com/weirlimit/weir/internal/frontend/overgrpc"
	"github.com/weirlimit/weir/internal/frontend/overhttp"
	"github.com/weirlimit/weir/internal/guard"
	"github.com/weirlimit/weir/internal/listen"
	weirv1 "github.com/weirlimit/weir/proto/weir/v1"
)

// Server serves a [Decider] over gRPC and HTTP. It is safe for concurrent use.
type Server struct {
	options Options
	grpc    func() *grpc.Server // made when it is first asked for: it has goroutines from then on
	service *service
	health  *healthService
	http    *http.Server

	draining context.Context // cancelled when Shutdown is called
	drain    context.CancelFunc
}

// NewServer makes a server that does not listen yet. It returns an error for options
// that are not valid.
func NewServer(o Options) (*Server, error) {
	o, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	s := &Server{options: o}
	s.draining, s.drain = context.WithCancel(context.Background())
	s.health = &healthService{Server: health.NewServer(), ready: s.ready}
	for _, name := range o.healthNames() {
		s.health.SetServingStatus(name, healthv1.HealthCheckResponse_SERVING)
	}
	service := newService(o)
	s.service = service
	s.grpc = sync.OnceValue(func() *grpc.Server {
		g := newGRPC(s.draining, service, o)
		for _, other := range o.Services {
			g.RegisterService(other.ServiceDesc())
		}
		if len(o.Services) == 0 {
			g.RegisterService(service.description(), service)
		}
		healthv1.RegisterHealthServer(g, s.health)
		reflection.Register(g)
		return g
	})
	s.http = &http.Server{
		Handler:           newFront(service, s.ready, &o),
		ReadHeaderTimeout: handshakeTimeout,
		ReadTimeout:       min(readTimeout, o.ClientTimeout),
		WriteTimeout:      min(writeTimeout, o.ClientTimeout),
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    maxHeaderBytes,
		ConnState:         listen.NoteState,
		ConnContext:       overhttp.WithKnown,
		ErrorLog:          slog.NewLogLogger(listen.HTTPLog(o.Logger, newFrontend(&o, "http")), slog.LevelWarn),
	}
	return s, nil
}

// healthNames returns the names of services by which the server's health can be asked for.
func (o *Options) healthNames() []string {
	if len(o.Services) == 0 {
		return []string{weirv1.Limiter_ServiceDesc.ServiceName}
	}
	names := slices.Clone(o.HealthNames)
	for _, other := range o.Services {
		desc, _ := other.ServiceDesc()
		names = append(names, desc.ServiceName)
	}
	return names
}

func newGRPC(draining context.Context, s *service, o Options) *grpc.Server {
	g := s.guard
	var creds, readBuffer grpc.ServerOption = grpc.EmptyServerOption{}, grpc.EmptyServerOption{}
	if o.TLS != nil {
		creds = grpc.Creds(listen.ServerTLS(o.TLS, listen.NewHandshakeLog(o.Logger, "gRPC", s.front)))
		if !o.TLS.Optional { // others would need a system call for each of these buffers
			readBuffer = grpc.ReadBufferSize(securedReadBuffer)
		}
	}
	intercept := []grpc.UnaryServerInterceptor{guardCalls(g)} // of Options.Services; the service itself calls none
	if o.Tracer != nil {
		intercept = append(intercept, traceCalls(s.front))
	}
	var note grpc.ServerOption = grpc.EmptyServerOption{}
	if o.notesShown() {
		note = grpc.InTapHandle(listen.NoteShown)
	}
	if o.MaxHeaderBytes > maxHeaderBytes {
		note = grpc.InTapHandle(listen.NoteFew)
	}
	return grpc.NewServer(
		creds,
		readBuffer,
		note,
		forceCodec(g),
		grpc.MaxRecvMsgSize(o.MaxMessageBytes),
		grpc.MaxConcurrentStreams(uint32(o.MaxStreams)),
		grpc.MaxHeaderListSize(uint32(o.MaxHeaderBytes)),
		grpc.ConnectionTimeout(handshakeTimeout),
		grpc.KeepaliveParams(keepalive.ServerParameters{
			MaxConnectionIdle: keepaliveIdle, Time: keepaliveTime, Timeout: keepaliveTimeout,
			// gRPC varies the age by up to a tenth. Streams end by themselves before
			// the grace period does: see endStreams.
			MaxConnectionAge: o.MaxConnectionAge, MaxConnectionAgeGrace: o.MaxConnectionAge + graceBeyondStreams,
		}),
		grpc.NumStreamWorkers(streamWorkers),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{
			MinTime: keepaliveMinTime, PermitWithoutStream: true,
		}),
		grpc.StreamInterceptor(endStreams(draining, o.MaxConnectionAge, g)),
		grpc.ChainUnaryInterceptor(intercept...),
	)
}

// guardCalls recovers from panics in unary methods whose handlers are gRPC's own, and
// ends those calls.
func guardCalls(g *guard.Guard) grpc.UnaryServerInterceptor {
	return func(ctx context.Context, in any, _ *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (out any, err error) {
		defer g.Recover(guard.GRPC, func(e error) { out, err = nil, overgrpc.Status(internalError{e}) })
		return handle(ctx, in)
	}
}

// Handler returns the HTTP handler, for programs that serve it themselves.
func (s *Server) Handler() http.Handler { return s.http.Handler }

// Serve serves gRPC and HTTP on the listeners, either of which may be nil, until
// [Server.Shutdown] is called or one of them fails, which stops the other. It returns
// nil after a Shutdown, and always closes the listeners. It may be called once.
func (s *Server) Serve(grpcListener, httpListener net.Listener) error {
	ended := make(chan error, 2)
	serving := 0
	if grpcListener != nil {
		serving++
		watched := s.watched(grpcListener)
		defer watched.Run()()
		go func() { ended <- wrap("gRPC", s.grpc().Serve(watched)) }()
	}
	if httpListener != nil {
		serving++
		go func() {
			ended <- wrap("HTTP", s.http.Serve(listen.SecureHTTP(s.bound(httpListener), s.options.TLS, handshakeTimeout)))
		}()
	}
	var first error
	for range serving {
		if err := <-ended; err != nil && first == nil {
			first = err
			s.stop()
		}
	}
	return first
}

// watched returns a listener of gRPC with the bounds of the options, whose connections are watched.
func (s *Server) watched(l net.Listener) *listen.Watcher {
	return watcher(s.bound(l), &s.options, s.service)
}

func watcher(l net.Listener, o *Options, s *service) *listen.Watcher {
	return listen.NewWatcher(l, listen.WatchOptions{
		Room: &s.room, Secured: o.TLS != nil, Noted: o.notesShown(), Patience: o.ClientTimeout, Streams: o.MaxStreams,
		Most: o.MaxDecodingBytes,
	})
}

// bound returns a listener with the bounds of the options.
func (s *Server) bound(l net.Listener) net.Listener {
	o := &s.options
	return listen.Bounded(l, listen.Bounds{Most: o.MaxConnections, MostFrom: o.MaxConnectionsPerAddress, Log: o.Logger,
		Observer: o.Observer})
}

// ready returns why the server should not be sent requests, nil if it should.
func (s *Server) ready() error {
	if s.draining.Err() != nil {
		return errStopping
	}
	return s.options.Ready()
}

// Shutdown stops the server gracefully. It reports not ready, accepts no more
// connections, answers the requests it has begun, and ends streams between two
// messages. If the context ends first, the remaining requests are cut off, and an error
// that wraps the context's is returned. Afterwards none of the server's goroutines is
// left, except an HTTP handler that was cut off and is about to return. The decider
// must stay open until Shutdown returns.
func (s *Server) Shutdown(ctx context.Context) error {
	s.health.Shutdown()
	s.drain()
	drained := make(chan struct{})
	go func() {
		s.grpc().GracefulStop()
		close(drained)
	}()
	err := s.http.Shutdown(ctx)
	select {
	case <-drained:
	case <-ctx.Done():
		err = ctx.Err()
	}
	s.stop()
	<-drained
	if err != nil {
		return fmt.Errorf("transport: calls were cut off because the time for stopping had ended: %w", err)
	}
	return nil
}

// stop stops the server at once.
func (s *Server) stop() {
	s.drain()
	s.grpc().Stop()
	_ = s.http.Close() // errors of closing have no consequence
}

// healthService is grpc.health.v1. Check reports whether the node is ready. Watch
// reports only that the server stops.
type healthService struct {
	*health.Server
	ready func() error
}

func (h *healthService) Check(ctx context.Context, m *healthv1.HealthCheckRequest) (*healthv1.HealthCheckResponse,
	error) {
	out, err := h.Server.Check(ctx, m)
	if err == nil && h.ready() != nil {
		out.Status = healthv1.HealthCheckResponse_NOT_SERVING
	}
	return out, err
}

// maxServiceBytes bounds the name of a service that a client watches. The health
// service keeps it for as long as the call lives.
const maxServiceBytes = 128

// Watch implements the service. A longer name than any service has ends the call; other
// names that are unknown are answered with SERVICE_UNKNOWN, as the protocol says.
func (h *healthService) Watch(m *healthv1.HealthCheckRequest, stream healthv1.Health_WatchServer) error {
	if n := len(m.GetService()); n > maxServiceBytes {
		return status.Errorf(codes.InvalidArgument, "the name of the service has %d bytes; at most %d are allowed", n,
			maxServiceBytes)
	}
	return h.Server.Watch(m, stream)
}

// Health returns a site with /healthz and /readyz of the server, to be served on a
// separate listener. On the clients' listener, many clients can make a probe fail, and
// a supervisor would then restart the node. The server itself serves both paths, too.
func (s *Server) Health() *Apart {
	a := newApart("health", newSite(map[string]route{
		"/healthz": {methods: reading(), serve: serveHealthy, open: true},
		"/readyz":  {methods: reading(), serve: serveReady(s.ready, s.options.Warnings), open: true},
	}, new(frontend.Frontend), nil, s.options.guard()), s.options.Logger)
	a.http.SetKeepAlivesEnabled(false) // no probe occupies a connection
	return a
}
