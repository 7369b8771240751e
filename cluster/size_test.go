package cluster_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/cluster"
	"github.com/weirlimit/weir/internal/redistest"
	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/redisstore"
)

// oversized returns requests with one string each that is a byte too long, and one with
// an attribute too many, by what is wrong with them.
func oversized() map[string]weir.Request {
	long := strings.Repeat("x", limiter.MaxFieldBytes+1)
	many := map[string]string{}
	for i := range limiter.MaxAttributes + 1 {
		many[fmt.Sprint(i)] = "v"
	}
	return map[string]weir.Request{
		"the path":                      {Path: long},
		"the method":                    {Path: "/r", Method: long},
		"the user":                      {Path: "/r", User: long},
		"the ip":                        {Path: "/r", IP: long},
		"the group":                     {Path: "/r", Group: long},
		"the rule":                      {Path: "/r", Rule: long},
		"attribute \"a\"":               {Path: "/r", Attributes: map[string]string{"a": long}},
		"the name of an attribute":      {Path: "/r", Attributes: map[string]string{long: "v"}},
		"17 attributes; at most 16 are": {Path: "/r", Attributes: many},
	}
}

// TestOversizedRequests holds every method of a node to the bounds of a request: in
// memory, with Redis, and in a cluster.
func TestOversizedRequests(t *testing.T) {
	const file = "version: 1\nrules: [{name: r, match: {path: '^/r'}, key: [rule], limits: [5/minute]}]\n"
	ctx := context.Background()
	store, err := redisstore.Open(ctx, redisstore.Config{Addrs: []string{redistest.Start(t).Socket},
		Timeout: 30 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	for mode, c := range map[string]weir.Config{
		"memory": {Rules: []byte(file)},
		"redis":  {Rules: []byte(file), Backend: store},
		"cluster": {Rules: []byte(file), Cluster: &cluster.Config{Name: "alone", PeerAddr: "127.0.0.1:0",
			GossipAddr: "127.0.0.1:0"}},
	} {
		t.Run(mode, func(t *testing.T) {
			n, err := weir.Open(ctx, c)
			if err != nil {
				t.Fatal(err)
			}
			defer n.Close()
			for tick := time.NewTicker(5 * time.Millisecond); n.Ready() != nil; { // the test's own deadline bounds it
				<-tick.C
			}
			var d weir.Decision
			for what, r := range oversized() {
				_, explained := n.Explain(ctx, r)
				_, reset := n.Reset(ctx, r)
				batch := n.CheckBatchInto(ctx, []weir.Request{r, {Path: "/other"}}, make([]weir.Decision, 2))
				for method, err := range map[string]error{
					"Check": n.CheckInto(ctx, &r, &d), "Peek": n.PeekInto(ctx, &r, &d), "CheckBatch": batch,
					"Explain": explained, "Reset": reset, "Refund": n.Refund(ctx, r, weir.Receipt{}),
				} {
					if !errors.Is(err, weir.ErrInvalid) || !strings.Contains(err.Error(), what) {
						t.Errorf("%s, %s: %v", method, what, err)
					}
				}
				var some *weir.BatchError
				if errors.As(batch, &some); some == nil || len(some.Index) != 1 || some.Index[0] != 0 {
					t.Errorf("%s: the rest of the batch was not decided: %v", what, batch)
				}
			}
			exact := strings.Repeat("x", limiter.MaxFieldBytes)
			r := weir.Request{Path: "/r", User: exact, Method: exact, Attributes: map[string]string{exact: exact}}
			if err := n.CheckInto(ctx, &r, &d); err != nil {
				t.Errorf("strings of exactly the bound: %v", err)
			}
		})
	}
}
