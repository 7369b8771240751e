package grpclimit

import (
	"context"
	"sync/atomic"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
)

// serverHeader returns a function that sets response metadata of a call that this
// process serves.
func serverHeader(ctx context.Context) func(metadata.MD) error {
	return func(md metadata.MD) error { return grpc.SetHeader(ctx, md) }
}

// UnaryServer returns a server interceptor that passes only allowed unary calls to
// their handlers.
func (l *Limiter) UnaryServer() grpc.UnaryServerInterceptor {
	return func(ctx context.Context, req any, info *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
		call := Call{Method: info.FullMethod, Kind: Unary, Message: req}
		if l.core.Settling == nil {
			if err := l.check(ctx, &call, serverHeader(ctx)); err != nil {
				return nil, err
			}
			return next(ctx, req)
		}
		var reply any
		err := l.serve(ctx, &call, serverHeader(ctx), func(out *Result) (err error) {
			if reply, err = next(ctx, req); err == nil {
				out.Last, out.Sent = reply, 1
			}
			return err
		})
		return reply, err
	}
}

// StreamServer returns a server interceptor that passes only allowed streams to their
// handlers. With [PerMessage] each received message is checked, too. A denied message
// ends the stream with the error of the denial, as soon as the method returns after the
// error of RecvMsg.
func (l *Limiter) StreamServer() grpc.StreamServerInterceptor {
	return func(srv any, ss grpc.ServerStream, info *grpc.StreamServerInfo, next grpc.StreamHandler) error {
		call := Call{Method: info.FullMethod, Kind: Stream}
		return l.serve(ss.Context(), &call, ss.SetHeader, func(out *Result) error {
			if l.core.Settling != nil {
				seen := &sending{ServerStream: ss}
				defer seen.report(out) // also if the method panics
				ss = seen
			}
			if !l.perMessage {
				return next(srv, ss)
			}
			limited := &messages{ServerStream: ss, limiter: l, call: Call{Method: info.FullMethod, Kind: Message}}
			err := next(srv, limited)
			if denied := limited.denied.Load(); denied != nil {
				return *denied // even if the method returned another error, or nil
			}
			return err
		})
	}
}

// messages is a stream that checks each received message. As with any stream, one
// goroutine at a time may receive. It may do so still when the method has returned.
type messages struct {
	grpc.ServerStream
	limiter *Limiter
	call    Call
	denied  atomic.Pointer[error]
}

// RecvMsg receives a message. If it is denied, RecvMsg returns the error of the denial,
// now and in all later calls.
func (s *messages) RecvMsg(m any) error {
	if denied := s.denied.Load(); denied != nil {
		return *denied
	}
	if err := s.ServerStream.RecvMsg(m); err != nil {
		return err
	}
	s.call.Message = m
	err := s.limiter.check(s.Context(), &s.call, nil)
	s.call.Message = nil
	if err != nil {
		s.denied.Store(&err)
	}
	return err
}

// UnaryClient returns a client interceptor that sends only allowed calls, for clients
// that keep to the limits of the service they call. A denied call fails locally, with
// the error that a server would return.
func (l *Limiter) UnaryClient() grpc.UnaryClientInterceptor {
	return func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker,
		opts ...grpc.CallOption) error {
		call := Call{Method: method, Kind: Unary, Client: true, Message: req}
		if err := l.check(ctx, &call, nil); err != nil {
			return err
		}
		return invoke(ctx, method, req, reply, cc, opts...)
	}
}

// StreamClient returns a client interceptor that opens only allowed streams.
func (l *Limiter) StreamClient() grpc.StreamClientInterceptor {
	return func(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, open grpc.Streamer,
		opts ...grpc.CallOption) (grpc.ClientStream, error) {
		call := Call{Method: method, Kind: Stream, Client: true}
		if err := l.check(ctx, &call, nil); err != nil {
			return nil, err
		}
		return open(ctx, desc, cc, method, opts...)
	}
}
