package transport

import (
	"context"
	"sync/atomic"

	"google.golang.org/grpc"
	"google.golang.org/grpc/tap"

	weirv1 "github.com/weirlimit/weir/proto/weir/v1"
)

// A stream that waits for its next message would keep a server from stopping
// for as long as its asker likes. Only the end of its context wakes it, so the
// server makes that context: tapStream gives every stream one that can be
// cancelled.

type cancelKey struct{}

// tapStream is called before a call begins. Calls that answer once need no
// help to end.
func tapStream(ctx context.Context, info *tap.Info) (context.Context, error) {
	switch info.FullMethodName {
	case weirv1.Limiter_Check_FullMethodName, weirv1.Limiter_CheckBatch_FullMethodName:
		return ctx, nil
	}
	ctx, cancel := context.WithCancel(ctx)
	return context.WithValue(ctx, cancelKey{}, cancel), nil
}

// cancelOf returns what cancels the context of a stream.
func cancelOf(ctx context.Context) context.CancelFunc {
	if cancel, ok := ctx.Value(cancelKey{}).(context.CancelFunc); ok {
		return cancel
	}
	return func() {}
}

// endWith ends streams of other services, such as those that watch health, as
// soon as draining ends. Streams of checks end themselves, see waiter.
func endWith(draining context.Context) grpc.StreamServerInterceptor {
	return func(srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handle grpc.StreamHandler) error {
		if info.FullMethod != weirv1.Limiter_CheckStream_FullMethodName {
			stop := context.AfterFunc(draining, cancelOf(stream.Context()))
			defer stop()
		}
		return handle(srv, stream)
	}
}

// waiter ends a stream between two messages when the server begins to stop: at
// once if it waits, else as soon as it has answered. So a check is answered if
// it was decided, and was not decided if it was not answered.
type waiter struct {
	state  atomic.Int32
	cancel context.CancelFunc
	stop   func() bool
}

// States of a waiter.
const (
	working int32 = iota
	waiting
	stopping
)

func newWaiter(draining, stream context.Context) *waiter {
	w := &waiter{cancel: cancelOf(stream)}
	w.stop = context.AfterFunc(draining, func() {
		if w.state.Swap(stopping) == waiting {
			w.cancel()
		}
	})
	return w
}

// wait is called before the stream waits for a message; it reports false if it
// is to end instead.
func (w *waiter) wait() bool { return w.state.CompareAndSwap(working, waiting) }

// work is called when a message came; it reports false if the stream is to end
// without looking at it.
func (w *waiter) work() bool { return w.state.CompareAndSwap(waiting, working) }

// done frees what the waiter holds.
func (w *waiter) done() {
	w.stop()
	w.cancel()
}
