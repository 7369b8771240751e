package transport

import (
	"context"
	"net/http"
	"strconv"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

// Tracer traces requests. Its methods are called from many goroutines and must not block.
type Tracer interface {
	// Serve begins the span of a request. Method is as for an [Observer]. Parent and state are
	// what the client sent as traceparent and tracestate of the W3C's Trace Context, "" for
	// none; they may be invalid. Serve returns the context for the decider, the traceparent of
	// the span, which the answer gets, and the end of the span, which is called once with the
	// code of the answer. If the request is not traced, end is nil and the context is ctx.
	Serve(ctx context.Context, method, parent, state string) (_ context.Context, traceparent string, end func(code string))
}

// The fields of Trace Context.
const (
	fieldParent = "traceparent"
	fieldState  = "tracestate"
)

// unary serves a unary call.
type unary func(context.Context, func(any) error) (any, error)

// traced returns serve with a span around it; serve itself without a tracer.
func (s *service) traced(method string, serve unary) unary {
	if s.tracer == nil {
		return serve
	}
	return func(ctx context.Context, decode func(any) error) (out any, err error) {
		md, _ := metadata.FromIncomingContext(ctx)
		ctx, traceparent, end := s.tracer.Serve(ctx, method, first(md, fieldParent), first(md, fieldState))
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

func first(md metadata.MD, name string) string {
	if all := md.Get(name); len(all) > 0 {
		return all[0]
	}
	return ""
}

// serveTraced serves a route with a span around it.
func (s *site) serveTraced(name string, of route, w *statusWriter, r *http.Request) {
	ctx, traceparent, end := s.tracer.Serve(r.Context(), name, r.Header.Get(fieldParent), r.Header.Get(fieldState))
	if end == nil {
		s.serve(of, w, r)
		return
	}
	w.Header().Set(fieldParent, traceparent)
	s.serve(of, w, r.WithContext(ctx))
	end(strconv.Itoa(w.status))
}
