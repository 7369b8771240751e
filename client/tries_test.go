package client

import (
	"context"
	"errors"
	"net"
	"testing"
	"testing/synctest"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/weirlimit/weir/limiter"
	weirv1 "github.com/weirlimit/weir/proto/weir/v1"
	"github.com/weirlimit/weir/rules"
)

// checking is a node whose answers to checks are lost.
type checking struct {
	weirv1.LimiterClient
	calls int
}

func (s *checking) Check(_ context.Context, _ *weirv1.CheckRequest, opts ...grpc.CallOption) (*weirv1.CheckResponse,
	error) {
	s.calls++
	for _, o := range opts {
		if p, ok := o.(grpc.PeerCallOption); ok {
			p.PeerAddr.Addr = &net.TCPAddr{}
		}
	}
	return nil, status.Error(codes.Unavailable, "the connection broke")
}

// A check that nodes do not remember by its id is not sent again if it may have been counted, as far as the client
// knows the rules. It is if it certainly was not.
func TestNotRepeatedWithoutID(t *testing.T) {
	set, err := rules.Parse("rules", []byte(`
version: 1
quotas: [{name: own, key: [user], limits: [10/day]}, {name: pool, key: [rule], limits: [90/day]}]
rules:
  - {name: either, match: {path: /either}, quotas: [{any: [own, pool]}]}
  - {name: plain, match: {path: /plain}, key: [user], limits: [10/day]}
`), rules.Options{})
	if err != nil {
		t.Fatal(err)
	}
	for name, row := range map[string]struct {
		r         limiter.Request
		peek      bool
		unknown   bool // the client has no ring
		untouched bool
		again     bool
	}{
		"any":                      {r: limiter.Request{Path: "/either"}},
		"any, by name":             {r: limiter.Request{Path: "/plain", Rule: "either"}},
		"any, an optional id":      {r: limiter.Request{Path: "/either", ID: "1", IDOptional: true}},
		"any, certainly untouched": {r: limiter.Request{Path: "/either"}, untouched: true, again: true},
		"any, a peek":              {r: limiter.Request{Path: "/either"}, peek: true, again: true},
		"any, not known":           {r: limiter.Request{Path: "/either"}, unknown: true, again: true},
		"plain":                    {r: limiter.Request{Path: "/plain"}, again: true},
	} {
		for _, batch := range []bool{false, true} {
			if batch && row.peek {
				continue
			}
			synctest.Test(t, func(t *testing.T) {
				c, n := bench()
				if !row.unknown {
					c.ring.Store(&ring{set: set})
				}
				row.r.User = "ada"
				ended := make(chan error, 1)
				go func() {
					if !batch {
						ended <- c.ask(t.Context(), &row.r, new(limiter.Decision), row.peek)
						return
					}
					_, err := c.CheckBatch(t.Context(), []limiter.Request{row.r})
					var some *BatchError
					if errors.As(err, &some) {
						err = some.Errs[0]
					}
					ended <- err
				}()
				synctest.Wait()
				c.release(n.next())
				n.land(errors.New("the connection broke"), row.untouched)
				synctest.Wait()
				if again := len(n.queue) == 1; again != row.again {
					t.Errorf("%s, batch %t: it is sent again: %t", name, batch, again)
				}
				n.fail(ErrClosed)
				err := <-ended
				if errors.Is(err, ErrUnanswered) != !row.untouched {
					t.Errorf("%s, batch %t: %v", name, batch, err)
				}
			})
		}
		if row.peek || row.untouched {
			continue
		}
		c, n := bench()
		if !row.unknown {
			c.ring.Store(&ring{set: set})
		}
		first, second := new(checking), new(checking)
		n.api = first
		c.nodes = append(c.nodes, &node{client: c, index: 1, addr: "beside", condition: up, api: second})
		_, err := c.CheckWithReceipt(t.Context(), row.r)
		if again := second.calls == 1; again != row.again || first.calls != 1 || !errors.Is(err, ErrUnanswered) {
			t.Errorf("%s: a call by itself is made again: %t, %v", name, again, err)
		}
	}
}
