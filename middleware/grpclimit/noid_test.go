package grpclimit_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/middleware/grpclimit"
)

// A rule that takes no ids is not for a limiter that reserves. Its callers are not told that their calls are not valid.
func TestARuleThatTakesNoIDs(t *testing.T) {
	d := refusing{err: fmt.Errorf("%w: leave it out", limiter.ErrNoID)}
	settle := grpclimit.Settle(time.Minute, used)
	for _, test := range []struct {
		options []grpclimit.Option
		want    codes.Code
	}{{[]grpclimit.Option{settle}, codes.Unavailable}, {[]grpclimit.Option{settle, grpclimit.FailOpen()}, codes.OK}} {
		if err := call(limited(t, d, test.options...)); status.Code(err) != test.want {
			t.Errorf("%v, want %v", err, test.want)
		}
	}
}

type refusing struct{ err error }

func (f refusing) CheckInto(context.Context, *limiter.Request, *limiter.Decision) error { return f.err }

func (f refusing) Settle(context.Context, limiter.Request, int64, ...limiter.SettleOption) (limiter.Amended, error) {
	return limiter.Amended{}, f.err
}
