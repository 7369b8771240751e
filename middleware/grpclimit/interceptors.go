package grpclimit

import (
	"context"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
)

// serverHeader returns what sets metadata of the response to a call that this
// process serves.
func serverHeader(ctx context.Context) func(metadata.MD) error {
	return func(md metadata.MD) error { return grpc.SetHeader(ctx, md) }
}

// UnaryServer returns an interceptor that lets a server handle only the unary
// calls that are allowed.
func (l *Limiter) UnaryServer() grpc.UnaryServerInterceptor {
	return func(ctx context.Context, req any, info *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
		call := Call{Method: info.FullMethod, Kind: Unary, Message: req}
		if err := l.check(ctx, &call, serverHeader(ctx)); err != nil {
			return nil, err
		}
		return next(ctx, req)
	}
}

// StreamServer returns an interceptor that lets a server handle only the streams
// that are allowed. With [PerMessage] it is asked again for each message that is
// received; one that is denied ends the stream with the error of the denial, as
// soon as the method returns what RecvMsg gave it.
func (l *Limiter) StreamServer() grpc.StreamServerInterceptor {
	return func(srv any, ss grpc.ServerStream, info *grpc.StreamServerInfo, next grpc.StreamHandler) error {
		call := Call{Method: info.FullMethod, Kind: Stream}
		if err := l.check(ss.Context(), &call, ss.SetHeader); err != nil {
			return err
		}
		if !l.perMessage {
			return next(srv, ss)
		}
		limited := &messages{ServerStream: ss, limiter: l, call: Call{Method: info.FullMethod, Kind: Message}}
		err := next(srv, limited)
		if limited.denied != nil {
			return limited.denied // also where the method made it another error, or none
		}
		return err
	}
}

// messages is a stream whose messages are counted as they are received. Receiving
// is for one goroutine at a time, as in any stream.
type messages struct {
	grpc.ServerStream
	limiter *Limiter
	call    Call
	denied  error
}

// RecvMsg receives a message, and returns the error of the denial if it may not
// pass; from then on it receives no more.
func (s *messages) RecvMsg(m any) error {
	if s.denied != nil {
		return s.denied
	}
	if err := s.ServerStream.RecvMsg(m); err != nil {
		return err
	}
	s.call.Message = m
	err := s.limiter.check(s.Context(), &s.call, nil)
	s.call.Message = nil
	s.denied = err
	return err
}

// UnaryClient returns an interceptor that sends only the calls that are allowed:
// for a client that keeps to the limits of what it calls. What is denied fails
// here, with the error that a server would give.
func (l *Limiter) UnaryClient() grpc.UnaryClientInterceptor {
	return func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
		call := Call{Method: method, Kind: Unary, Client: true, Message: req}
		if err := l.check(ctx, &call, nil); err != nil {
			return err
		}
		return invoke(ctx, method, req, reply, cc, opts...)
	}
}

// StreamClient returns an interceptor that opens only the streams that are
// allowed.
func (l *Limiter) StreamClient() grpc.StreamClientInterceptor {
	return func(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, open grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
		call := Call{Method: method, Kind: Stream, Client: true}
		if err := l.check(ctx, &call, nil); err != nil {
			return nil, err
		}
		return open(ctx, desc, cc, method, opts...)
	}
}
