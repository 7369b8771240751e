package client

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	weirv1 "github.com/weirlimit/weir/proto/weir/v1"
)

// ringless is a node that returns an error for the ring.
type ringless struct {
	weirv1.LimiterClient
	code  codes.Code
	asked int
}

func (r *ringless) Ring(context.Context, *weirv1.RingRequest, ...grpc.CallOption) (*weirv1.RingResponse, error) {
	r.asked++
	return nil, status.Error(r.code, "no ring")
}

// A caller that may not have the ring asks for it once a minute, and not with each new view that a
// reply reports: each refusal is a line in the node's audit.
func TestARefusedRingIsAskedForSeldom(t *testing.T) {
	for code, want := range map[codes.Code]int{codes.PermissionDenied: 10, codes.Unavailable: 6000} {
		synctest.Test(t, func(t *testing.T) {
			api := &ringless{code: code}
			c := &Client{learns: make(chan *node, 1), config: Config{Timeout: time.Second}}
			n := &node{client: c, api: api}
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute-time.Millisecond)
			defer cancel()
			var replies sync.WaitGroup
			replies.Go(func() {
				for view := uint64(1); ctx.Err() == nil; view++ {
					c.told(n, view)
					time.Sleep(10 * time.Millisecond)
				}
			})
			c.learn(ctx)
			replies.Wait()
			if api.asked < want-1 || api.asked > want {
				t.Errorf("%v: asked %d times in ten minutes, want %d", code, api.asked, want)
			}
		})
	}
}
