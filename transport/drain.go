package transport

import (
	"context"
	"sync/atomic"

	"google.golang.org/grpc"
)

// A stream that waits for its next message would keep a server from stopping
// for as long as its asker likes. So streams are served by a goroutine of their
// own, and when the server begins to stop, the one that the stream came with
// ends it: at once if it waits for a message, else when it comes back for the
// next one. A message is thus answered if it was looked at, and was not looked
// at if it is not answered.

// endStreams ends streams between two messages once draining has ended.
func endStreams(draining context.Context) grpc.StreamServerInterceptor {
	return func(srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handle grpc.StreamHandler) error {
		ctx, cancel := context.WithCancel(stream.Context())
		defer cancel()
		s := &endingStream{ServerStream: stream, ctx: ctx, draining: draining}
		ended := make(chan error, 1)
		go func() { ended <- handle(srv, s) }()
		select {
		case err := <-ended:
			return err
		case <-draining.Done():
		}
		if s.state.Swap(stopping) == waiting {
			// To return wakes the goroutine that waits, and it ends.
			stream.SetTrailer(undecided())
			return statusOf(errStopping)
		}
		if !info.IsClientStream {
			cancel() // it will not come back for a message, as those that watch health do not
		}
		return <-ended
	}
}

// States of a stream.
const (
	working int32 = iota
	waiting
	stopping
)

// endingStream is a stream that can be ended while it waits for a message.
type endingStream struct {
	grpc.ServerStream
	ctx      context.Context
	draining context.Context
	state    atomic.Int32
}

// Context implements [grpc.ServerStream].
func (s *endingStream) Context() context.Context { return s.ctx }

// RecvMsg implements [grpc.ServerStream]. A message that comes when the stream
// is to end is not looked at, also where the goroutine that the stream came with
// has not got round to ending it.
func (s *endingStream) RecvMsg(m any) error {
	if s.draining.Err() != nil || !s.state.CompareAndSwap(working, waiting) {
		s.SetTrailer(undecided())
		return statusOf(errStopping)
	}
	err := s.ServerStream.RecvMsg(m)
	if !s.state.CompareAndSwap(waiting, working) {
		return statusOf(errStopping) // the trailer is set by who stops it
	}
	return err
}
