package grpclimit_test

import (
	"context"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/middleware/grpclimit"
)

// A call that costs 0 is answered and charges nothing: not the limit, and no block where
// denials begin one.
func TestCostZeroOnlyPeeks(t *testing.T) {
	c := limited(t, node(t, nil,
		`  - {name: all, key: [ip], limits: [{limit: 2, window: hour, count_rejected: all, block: 1h}]}`),
		grpclimit.CostFunc(func(ctx context.Context, _ *grpclimit.Call) limiter.Cost {
			if md, _ := metadata.FromIncomingContext(ctx); len(md.Get("free")) > 0 {
				return limiter.Units(0)
			}
			return limiter.Cost{}
		}))
	for used := range 3 {
		want := codes.OK
		if used == 2 { // a peek tells what a check would
			want = codes.ResourceExhausted
		}
		for range 20 {
			if err := call(c, "free", "yes"); status.Code(err) != want {
				t.Fatalf("a cost of 0 after %d of 2: %v, want %v", used, err, want)
			}
		}
		if err := call(c); used < 2 && err != nil {
			t.Errorf("call %d of 2: %v", used+1, err)
		}
	}
}
