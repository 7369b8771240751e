package client_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"

	"google.golang.org/grpc"

	"github.com/weirlimit/weir/client"
	"github.com/weirlimit/weir/limiter"
	weirv1 "github.com/weirlimit/weir/proto/weir/v1"
)

// fuse panics once in a goroutine of the client, when it has counted down to 0.
type fuse struct{ left atomic.Int64 }

func (f *fuse) burn() {
	if f.left.Add(-1) == 0 {
		panic("a defect")
	}
}

// fused is a stream that panics where it is asked to.
type fused struct {
	grpc.ClientStream
	send, receive *fuse
}

func (s *fused) SendMsg(m any) error { s.send.burn(); return s.ClientStream.SendMsg(m) }
func (s *fused) RecvMsg(m any) error { s.receive.burn(); return s.ClientStream.RecvMsg(m) }

// TestAPanicEndsNothingElse: a panic in a goroutine of the client is an error to those
// whose checks are in doubt, names its place, and the next checks are decided. Without
// the guard it ends this process.
func TestAPanicEndsNothingElse(t *testing.T) {
	s := serve(t, newNode(t, hour), "", nil)
	for name, after := range map[string]struct{ open, send, receive int64 }{
		"opening a stream": {open: 1},
		"the first word":   {send: 1},
		"the first reply":  {receive: 1},
		"sending":          {send: 2},
		"receiving":        {receive: 2},
	} {
		t.Run(name, func(t *testing.T) {
			var opening, send, receive fuse
			opening.left.Store(after.open)
			send.left.Store(after.send)
			receive.left.Store(after.receive)
			stream := func(ctx context.Context, d *grpc.StreamDesc, cc *grpc.ClientConn, method string, to grpc.Streamer,
				o ...grpc.CallOption) (grpc.ClientStream, error) {
				opening.burn()
				inner, err := to(ctx, d, cc, method, o...)
				return &fused{inner, &send, &receive}, err
			}
			c := open(t, client.Config{Addrs: []string{s.addr}, Timeout: long,
				Dial: []grpc.DialOption{grpc.WithStreamInterceptor(stream)}})
			var d limiter.Decision
			failed := 0
			eventually(t, "checks are decided after it", func() bool {
				err := c.CheckInto(t.Context(), request(name), &d)
				switch {
				case err == nil:
					return opening.left.Load() <= 0 && send.left.Load() <= 0 && receive.left.Load() <= 0
				case !errors.Is(err, client.ErrUnanswered) && !errors.Is(err, client.ErrUnavailable):
					t.Fatalf("unexpected error: %v", err)
				case !strings.Contains(err.Error(), "a defect") || !strings.Contains(err.Error(), "panics_test.go"):
					t.Fatalf("the error does not say what and where: %v", err)
				}
				failed++
				return false
			})
			if failed == 0 {
				t.Error("nobody was told")
			}
		})
	}
}

// TestAPanicAboutTheRing: the ring is not known then, and checks are decided all the same.
func TestAPanicAboutTheRing(t *testing.T) {
	s := play(t, func(stream weirv1.Limiter_CheckStreamServer) error {
		for {
			m, err := stream.Recv()
			if err != nil {
				return err
			}
			answer := allow(m)
			answer.View = 7
			if err := stream.Send(answer); err != nil {
				return err
			}
		}
	})
	unary := func(context.Context, string, any, any, *grpc.ClientConn, grpc.UnaryInvoker, ...grpc.CallOption) error {
		panic("a defect")
	}
	c := open(t, client.Config{Addrs: []string{s.Addr().String()}, Timeout: long,
		Dial: []grpc.DialOption{grpc.WithUnaryInterceptor(unary)}})
	eventually(t, "the panic is told", func() bool {
		var d limiter.Decision
		if err := c.CheckInto(t.Context(), request("ada"), &d); err != nil {
			t.Fatal(err)
		}
		err := c.Stats().RingError
		return err != nil && strings.Contains(err.Error(), "a defect")
	})
}
