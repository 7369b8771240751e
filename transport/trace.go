package transport

import (
	"context"
	"path"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/weirlimit/weir/internal/frontend"
)

// The fields of Trace Context.
const (
	fieldParent = "traceparent"
	fieldState  = "tracestate"
)

// traced returns serve with a span around it; serve itself without a tracer.
func traced(front *frontend.Frontend, method string, serve unary) unary {
	if front.Tracer == nil {
		return serve
	}
	return func(ctx context.Context, decode func(any) error) (out any, err error) {
		md, _ := metadata.FromIncomingContext(ctx)
		ctx, traceparent, end := front.Trace(ctx, method, first(md, fieldParent), first(md, fieldState))
		if end == nil {
			return serve(ctx, decode)
		}
		_ = grpc.SetHeader(ctx, metadata.Pairs(fieldParent, traceparent)) // the client knows its own trace without it
		code := codes.Internal                                            // of a panic
		defer func() { end(code.String()) }()
		out, err = serve(ctx, decode)
		code = status.Code(err)
		return out, err
	}
}

// traceCalls traces calls of Options.Services, by the names of their methods. Those that ask for
// the health of the server are not traced.
func traceCalls(front *frontend.Frontend) grpc.UnaryServerInterceptor {
	return func(ctx context.Context, in any, of *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (any, error) {
		if strings.HasPrefix(of.FullMethod, "/"+healthv1.Health_ServiceDesc.ServiceName+"/") {
			return handle(ctx, in)
		}
		return traced(front, path.Base(of.FullMethod), func(ctx context.Context, _ func(any) error) (any, error) {
			return handle(ctx, in)
		})(ctx, nil)
	}
}

func first(md metadata.MD, name string) string {
	if all := md.Get(name); len(all) > 0 {
		return all[0]
	}
	return ""
}
