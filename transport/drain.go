package transport

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"

	"github.com/weirlimit/weir/internal/frontend/overgrpc"
	"github.com/weirlimit/weir/internal/guard"
)

// A stream that waits for its next message would keep a server from stopping for as
// long as its client likes. So each stream is handled in a goroutine of its own. When
// the server begins to stop, the stream's original goroutine ends it: at once if it
// waits for a message, otherwise when it asks for the next one. So a message that was
// read is answered, and a message that is not answered was not read.

// graceBeyondStreams is how much longer a connection that has reached its age lives
// than the last of its streams.
const graceBeyondStreams = 10 * time.Second

// errAged ends a stream that has reached its age.
var errAged = errors.New("the stream has reached its maximum age: open another one")

// endStreams ends streams between two messages when draining ends, or at a random age
// between age/2 and age. Connections end later, so their age interrupts no answer. A
// stream whose handler panics ends, too.
func endStreams(draining context.Context, age time.Duration, g *guard.Guard) grpc.StreamServerInterceptor {
	return func(srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handle grpc.StreamHandler) error {
		ctx, cancel := context.WithCancel(stream.Context())
		defer cancel()
		s := &endingStream{ServerStream: stream, ctx: ctx, draining: draining}
		ended := make(chan error, 1)
		go func() {
			defer g.Recover(guard.GRPC, func(err error) { ended <- overgrpc.Status(internalError{err}) })
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
			// the return wakes the waiting handler, which ends
			stream.SetTrailer(undecided())
			return overgrpc.Status(why)
		}
		if !info.IsClientStream {
			cancel() // it will not ask for a message; the health service's Watch does not
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
	why      atomic.Pointer[error] // set before state becomes stopping
}

// reason returns why the stream ends.
func (s *endingStream) reason() error {
	if why := s.why.Load(); why != nil {
		return overgrpc.Status(*why)
	}
	return overgrpc.Status(errStopping)
}

func (s *endingStream) Context() context.Context { return s.ctx }

// RecvMsg implements [grpc.ServerStream]. It returns no message once the stream is to
// end, even if the original goroutine has not ended the stream yet.
func (s *endingStream) RecvMsg(m any) error {
	if s.draining.Err() != nil || !s.state.CompareAndSwap(working, waiting) {
		s.SetTrailer(undecided())
		return s.reason()
	}
	err := s.ServerStream.RecvMsg(m)
	if !s.state.CompareAndSwap(waiting, working) {
		return s.reason() // the goroutine that stops it sets the trailer
	}
	return err
}
