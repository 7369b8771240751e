package transport_test

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/weirlimit/weir/internal/frontend/overhttp"
	"github.com/weirlimit/weir/transport"
)

// nothing is a service without methods.
type nothing struct{}

func (nothing) ServiceDesc() (*grpc.ServiceDesc, any) {
	return &grpc.ServiceDesc{ServiceName: "test.Nothing", HandlerType: (*any)(nil)}, nothing{}
}

// A service of another protocol has its routes over HTTP and no others. What it is posted is
// bounded, and takes room only until it has answered.
func TestRoutesOfServices(t *testing.T) {
	s := newServer(t, "", func(o *transport.Options) {
		o.Services = []transport.GRPCService{nothing{}}
		o.Routes = map[string]overhttp.Route{
			"/v1/Live": {Get: func(w http.ResponseWriter, _ *http.Request) { w.Write([]byte("alive")) }},
			"/v1/Get": {Post: func(w http.ResponseWriter, _ *http.Request, body []byte) {
				w.Write([]byte(strconv.Itoa(len(body))))
			}},
		}
	})
	for _, x := range []struct {
		method, path, body string
		status             int
		want               string
	}{
		{"GET", "/v1/Live", "", 200, "alive"},
		{"POST", "/v1/Live", "", 405, "GET, HEAD"},
		{"POST", "/v1/Get", "", 200, "0"},
		{"POST", "/v1/Get", strings.Repeat("x", 1<<20), 200, "1048576"},
		{"POST", "/v1/Get", strings.Repeat("x", 1<<20+1), 413, "larger than 1 MiB"},
		{"GET", "/v1/Get", "", 405, "POST"},
		{"GET", "/v1/check", "", 404, "nothing at"},
		{"GET", "/v1/Gett", "", 404, "did you mean /v1/Get?"},
	} {
		if got := s.do(t, x.method, x.path, "", x.body); got.status != x.status || !strings.Contains(got.body, x.want) {
			t.Errorf("%s %s of %d bytes: %d, %s", x.method, x.path, len(x.body), got.status, got.body)
		}
	}
	if n := s.Room(); n != 0 {
		t.Errorf("%d bytes of room are still taken", n)
	}
}

// Without room for a body it is refused.
func TestRoomOfRoutes(t *testing.T) {
	s := newServer(t, "", func(o *transport.Options) {
		o.Services, o.MaxDecodingBytes = []transport.GRPCService{nothing{}}, 4<<20
		o.Routes = map[string]overhttp.Route{"/v1/Get": {Post: func(w http.ResponseWriter, _ *http.Request, _ []byte) {
			w.Write([]byte("yes"))
		}}}
	})
	for size, status := range map[int]int{10 << 10: 200, 50 << 10: 503} {
		if got := s.do(t, "POST", "/v1/Get", "", strings.Repeat("x", size)); got.status != status {
			t.Errorf("%d bytes: %d, %s", size, got.status, got.body)
		}
	}
}

// greeting is a service with a method of its own.
type greeting struct{}

func (greeting) ServiceDesc() (*grpc.ServiceDesc, any) {
	return &grpc.ServiceDesc{ServiceName: "test.Greeting", HandlerType: (*any)(nil), Methods: []grpc.MethodDesc{{
		MethodName: "Greet",
		Handler: func(_ any, ctx context.Context, decode func(any) error, intercept grpc.UnaryServerInterceptor) (any,
			error) {
			if err := decode(new(healthv1.HealthCheckRequest)); err != nil {
				return nil, err
			}
			return intercept(ctx, nil, &grpc.UnaryServerInfo{FullMethod: "/test.Greeting/Greet"},
				func(ctx context.Context, _ any) (any, error) {
					if ctx.Value(spanKey{}) == nil {
						return nil, status.Error(codes.FailedPrecondition, "the span is not in the context")
					}
					return nil, status.Error(codes.NotFound, "nobody")
				})
		},
	}}}, greeting{}
}

type spanKey struct{}

// tracer notes spans.
type tracer struct {
	mu    sync.Mutex
	spans []string
}

func (o *tracer) Serve(ctx context.Context, method, parent, state string) (_ context.Context, traceparent string,
	end func(string)) {
	return context.WithValue(ctx, spanKey{}, method), "of-the-span", func(code string) {
		o.mu.Lock()
		defer o.mu.Unlock()
		o.spans = append(o.spans, fmt.Sprint(method, " below ", parent, " ", state, ": ", code))
	}
}

// Calls of a service of another protocol are traced as those of the own one, and its routes
// over HTTP; questions about health are not.
func TestTracesOfServices(t *testing.T) {
	o := new(tracer)
	s := newServer(t, "", func(to *transport.Options) {
		to.Services, to.Tracer = []transport.GRPCService{greeting{}}, o
		to.Routes = map[string]overhttp.Route{
			"/v1/Greet": {Post: func(w http.ResponseWriter, r *http.Request, _ []byte) {
				if r.Context().Value(spanKey{}) == nil {
					t.Error("the span is not in the context of a request over HTTP")
				}
			}},
			"/v1/Live": {Get: func(http.ResponseWriter, *http.Request) {}},
		}
	})
	ctx := metadata.AppendToOutgoingContext(t.Context(), "traceparent", "p", "tracestate", "s")
	if _, err := healthv1.NewHealthClient(s.conn).Check(ctx, &healthv1.HealthCheckRequest{}); err != nil {
		t.Error(err)
	}
	var header metadata.MD
	err := s.conn.Invoke(ctx, "/test.Greeting/Greet", &healthv1.HealthCheckRequest{}, &healthv1.HealthCheckResponse{},
		grpc.Header(&header))
	if status.Code(err) != codes.NotFound || strings.Join(header.Get("traceparent"), " ") != "of-the-span" {
		t.Errorf("%v, with %v", err, header)
	}
	s.do(t, "POST", "/v1/Greet", "", "hello")
	s.do(t, "GET", "/v1/Live", "", "")
	o.mu.Lock()
	defer o.mu.Unlock()
	if want := []string{"Greet below p s: NotFound", "POST /v1/Greet below  : 200"}; !slices.Equal(o.spans, want) {
		t.Errorf("spans %q, want %q", o.spans, want)
	}
}
