package transport

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/health"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/reflection"

	"github.com/weirlimit/weir/internal/guard"
	weirv1 "github.com/weirlimit/weir/proto/weir/v1"
)

// Bounds of time and size for those who send slowly, or nothing, or too much.
const (
	handshakeTimeout = 5 * time.Second  // from a connection to its first request's header
	readTimeout      = 10 * time.Second // for a whole HTTP request, and at most ClientTimeout
	writeTimeout     = 20 * time.Second // for an HTTP answer, and at most ClientTimeout
	idleTimeout      = 2 * time.Minute  // between two HTTP requests
	maxHeaderBytes   = 16 << 10

	keepaliveIdle    = 15 * time.Minute // a gRPC connection without calls is closed
	keepaliveTime    = time.Minute      // a silent one is asked whether it lives
	keepaliveTimeout = 20 * time.Second // and closed without an answer
	keepaliveMinTime = 10 * time.Second // those who ask us more often are sent away

	// The windows of gRPC do not grow: a stream has as many bytes here that nobody has
	// looked at, beside the message that is read.
	streamWindow = 128 << 10
	connWindow   = 1 << 20
)

// Server serves a [Decider] over gRPC and HTTP. Its methods may be called from
// many goroutines.
type Server struct {
	options Options
	grpc    *grpc.Server
	health  *healthService
	http    *http.Server

	draining context.Context // ends when Shutdown is called
	drain    context.CancelFunc
}

// NewServer makes a server; nothing listens yet. The error says what is wrong
// with the options.
func NewServer(o Options) (*Server, error) {
	o, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	s := &Server{options: o}
	s.draining, s.drain = context.WithCancel(context.Background())
	s.health = &healthService{Server: health.NewServer(), ready: s.ready}
	s.health.SetServingStatus(weirv1.Limiter_ServiceDesc.ServiceName, healthv1.HealthCheckResponse_SERVING)
	service := newService(o)
	s.grpc = newGRPC(s.draining, service.guard, o)
	s.grpc.RegisterService(service.description(), service)
	healthv1.RegisterHealthServer(s.grpc, s.health)
	reflection.Register(s.grpc)
	s.http = &http.Server{
		Handler:           newFront(service, s.ready, &o),
		ReadHeaderTimeout: handshakeTimeout,
		ReadTimeout:       min(readTimeout, o.ClientTimeout),
		WriteTimeout:      min(writeTimeout, o.ClientTimeout),
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    maxHeaderBytes,
		ErrorLog:          slog.NewLogLogger(o.Logger.Handler(), slog.LevelWarn),
	}
	return s, nil
}

func newGRPC(draining context.Context, g *guard.Guard, o Options) *grpc.Server {
	return grpc.NewServer(
		forceCodec(g),
		grpc.MaxRecvMsgSize(o.MaxMessageBytes),
		grpc.MaxConcurrentStreams(uint32(o.MaxStreams)),
		grpc.MaxHeaderListSize(maxHeaderBytes),
		grpc.ConnectionTimeout(handshakeTimeout),
		grpc.KeepaliveParams(keepalive.ServerParameters{
			MaxConnectionIdle: keepaliveIdle, Time: keepaliveTime, Timeout: keepaliveTimeout,
			// gRPC adds up to a tenth more or less. Streams end by themselves before the
			// grace does: see endStreams.
			MaxConnectionAge: o.MaxConnectionAge, MaxConnectionAgeGrace: o.MaxConnectionAge + graceBeyondStreams,
		}),
		grpc.StaticStreamWindowSize(streamWindow),
		grpc.StaticConnWindowSize(connWindow),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{
			MinTime: keepaliveMinTime, PermitWithoutStream: true,
		}),
		grpc.StreamInterceptor(endStreams(draining, o.MaxConnectionAge, g)),
		grpc.UnaryInterceptor(guardCalls(g)),
	)
}

// guardCalls ends calls that panic, of those methods whose handlers are gRPC's own.
func guardCalls(g *guard.Guard) grpc.UnaryServerInterceptor {
	return func(ctx context.Context, in any, _ *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (out any, err error) {
		defer g.Recover(guard.GRPC, func(e error) { out, err = nil, statusOf(internalError{e}) })
		return handle(ctx, in)
	}
}

// Handler is what the server serves over HTTP, for those who serve it otherwise.
func (s *Server) Handler() http.Handler { return s.http.Handler }

// Serve serves gRPC and HTTP on the listeners, either of which may be nil, until
// [Server.Shutdown] has been called or one of them fails, which ends the other.
// It returns nil after a Shutdown, and closes the listeners in any case. It may
// be called once.
func (s *Server) Serve(grpcListener, httpListener net.Listener) error {
	ended := make(chan error, 2)
	serving := 0
	if grpcListener != nil {
		serving++
		watched, stop := watch(s.bound(grpcListener), &s.options)
		defer stop()
		go func() { ended <- wrap("gRPC", s.grpc.Serve(watched)) }()
	}
	if httpListener != nil {
		serving++
		go func() { ended <- wrap("HTTP", s.http.Serve(s.bound(httpListener))) }()
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

// bound bounds the connections of a listener.
func (s *Server) bound(l net.Listener) net.Listener {
	return bound(l, s.options.MaxConnections, s.options.MaxConnectionsPerAddress, s.options.Logger)
}

// wrap says of which protocol an error is; the end of a server is none.
func wrap(protocol string, err error) error {
	if err == nil || errors.Is(err, http.ErrServerClosed) || errors.Is(err, grpc.ErrServerStopped) {
		return nil
	}
	return fmt.Errorf("serving %s: %w", protocol, err)
}

// ready says why the server should not be asked.
func (s *Server) ready() error {
	if s.draining.Err() != nil {
		return errStopping
	}
	return s.options.Ready()
}

// Shutdown ends the server gracefully: it says that it is not ready, accepts no
// more connections, answers what it has begun, and ends streams between two
// messages. What is not answered when the context ends is cut off, and the
// context's error returned. Afterwards no goroutine of the server's is left, but
// for a handler of HTTP that was cut off and is about to return. The decider
// must stay open until Shutdown returns.
func (s *Server) Shutdown(ctx context.Context) error {
	s.health.Shutdown()
	s.drain()
	drained := make(chan struct{})
	go func() {
		s.grpc.GracefulStop()
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
		return fmt.Errorf("transport: calls were cut off at the end of the time for stopping: %w", err)
	}
	return nil
}

// stop ends the server at once.
func (s *Server) stop() {
	s.drain()
	s.grpc.Stop()
	_ = s.http.Close() // of listeners and connections: there is nobody to tell
}

// healthService is grpc.health.v1. Check asks whether the node is ready; those
// who Watch are told of the end only.
type healthService struct {
	*health.Server
	ready func() error
}

// Check implements the service.
func (h *healthService) Check(ctx context.Context, m *healthv1.HealthCheckRequest) (*healthv1.HealthCheckResponse, error) {
	out, err := h.Server.Check(ctx, m)
	if err == nil && h.ready() != nil {
		out.Status = healthv1.HealthCheckResponse_NOT_SERVING
	}
	return out, err
}
