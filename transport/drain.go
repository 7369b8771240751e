package transport

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"

	"github.com/weirlimit/weir/internal/guard"
)

// A stream that waits for its next message would keep a server from stopping
// for as long as its asker likes. So streams are served by a goroutine of their
// own, and when the server begins to stop, the one that the stream came with
// ends it: at once if it waits for a message, else when it comes back for the
// next one. A message is thus answered if it was looked at, and was not looked
// at if it is not answered.

// graceBeyondStreams is how long a connection that has reached its age lives on beyond
// the last of its streams.
const graceBeyondStreams = 10 * time.Second

// errAged ends a stream that has reached its age.
var errAged = errors.New("the stream has reached its age: open another one")

// endStreams ends streams between two messages once draining has ended, or when they have
// reached an age between half of the given one and all of it: then that of a connection
// costs nobody an answer. It ends those whose handler panics.
func endStreams(draining context.Context, age time.Duration, g *guard.Guard) grpc.StreamServerInterceptor {
	return func(srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handle grpc.StreamHandler) error {
		ctx, cancel := context.WithCancel(stream.Context())
		defer cancel()
		s := &endingStream{ServerStream: stream, ctx: ctx, draining: draining}
		ended := make(chan error, 1)
		go func() {
			defer g.Recover(guard.GRPC, func(err error) { ended <- statusOf(internalError{err}) })
			ended <- handle(srv, s)
		}()
		aged := time.NewTimer(age/2 + rand.N(age/2+1))
		defer aged.Stop()
		why := errStopping
		select {
		case err := <-ended:
			return err
		case <-draining.Done():
		case <-aged.C:
			why = errAged
		}
		s.why.Store(&why)
		if s.state.Swap(stopping) == waiting {
			// To return wakes the goroutine that waits, and it ends.
			stream.SetTrailer(undecided())
			return statusOf(why)
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
	why      atomic.Pointer[error] // set before it is stopping
}

// reason returns why the stream ends.
func (s *endingStream) reason() error {
	if why := s.why.Load(); why != nil {
		return statusOf(*why)
	}
	return statusOf(errStopping)
}

// Context implements [grpc.ServerStream].
func (s *endingStream) Context() context.Context { return s.ctx }

// RecvMsg implements [grpc.ServerStream]. A message that comes when the stream
// is to end is not looked at, also where the goroutine that the stream came with
// has not got round to ending it.
func (s *endingStream) RecvMsg(m any) error {
	if s.draining.Err() != nil || !s.state.CompareAndSwap(working, waiting) {
		s.SetTrailer(undecided())
		return s.reason()
	}
	err := s.ServerStream.RecvMsg(m)
	if !s.state.CompareAndSwap(waiting, working) {
		return s.reason() // the trailer is set by who stops it
	}
	return err
}
