package grpclimit_test

import (
	"context"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/middleware/grpclimit"
)

// endless is a stream that always has a message, and takes each.
type endless struct {
	grpc.ServerStream
	ctx context.Context
}

func (s endless) Context() context.Context     { return s.ctx }
func (s endless) SetHeader(metadata.MD) error  { return nil }
func (s endless) RecvMsg(any) error            { return s.ctx.Err() }
func (s endless) SendMsg(any) error            { return s.ctx.Err() }
func (s endless) SetTrailer(metadata.MD)       {}
func (s endless) SendHeader(metadata.MD) error { return nil }

// A method may return while a goroutine of its own still receives and sends, as in proxies that end when either
// side does. The race detector judges.
func TestMethodsThatReturnBeforeTheirGoroutines(t *testing.T) {
	n := node(t, nil, "  - {name: all, key: [group], limits: [1000000/hour]}\n")
	l := limit(t, n, grpclimit.PerMessage(), grpclimit.Settle(time.Minute,
		func(_ context.Context, _ *grpclimit.Call, out *grpclimit.Result) limiter.Cost {
			if out.Sent == 0 || out.Last == nil {
				t.Error("nothing was sent")
			}
			return limiter.Units(out.Sent)
		}))
	for range 20 {
		ctx, cancel := context.WithCancel(t.Context())
		ended, after := make(chan struct{}), make(chan struct{})
		method := func(_ any, ss grpc.ServerStream) error {
			first := make(chan struct{})
			go func() {
				defer close(ended)
				for i := 0; ss.RecvMsg(nil) == nil && ss.SendMsg(i) == nil; i++ {
					switch i {
					case 0:
						close(first)
					case 100:
						<-after
					}
				}
			}()
			<-first
			return nil
		}
		err := l.StreamServer()(nil, endless{ctx: ctx}, &grpc.StreamServerInfo{FullMethod: stream}, method)
		close(after)
		cancel()
		<-ended
		if err != nil {
			t.Fatal(err)
		}
	}
}
