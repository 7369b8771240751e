//go:build unix

package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	weirv1 "github.com/weirlimit/weir/proto/weir/v1"
)

const (
	// patience is how long an asker tries to get a correct answer: the longest that one
	// may take, whatever happens to one node.
	patience = 3 * time.Second
	// retryAfter is how long it waits when all nodes were unavailable, or when a
	// policy answered.
	retryAfter = 5 * time.Millisecond
)

// asker checks over gRPC, like a client that knows all addresses: if one node is
// unavailable it asks the next.
type asker struct{ nodes []weirv1.LimiterClient }

func newAsker(t *testing.T, all []*seat) *asker {
	t.Helper()
	a := &asker{}
	for _, s := range all {
		shown := s.shown
		if shown == nil {
			shown = insecure.NewCredentials()
		}
		conn, err := grpc.NewClient(s.grpc, grpc.WithTransportCredentials(shown),
			grpc.WithConnectParams(grpc.ConnectParams{
				Backoff: backoff.Config{BaseDelay: 10 * time.Millisecond, Multiplier: 1.5,
					MaxDelay: 100 * time.Millisecond},
				MinConnectTimeout: time.Second,
			}))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close() })
		a.nodes = append(a.nodes, weirv1.NewLimiterClient(conn))
	}
	return a
}

// keys are some of the keys of a group.
type keys struct {
	group   string
	numbers []int
}

// shard returns one of so many equal parts of a group.
func shard(group string, i, of int) keys {
	k := keys{group: group}
	for n := i * clusterKeys / of; n < (i+1)*clusterKeys/of; n++ {
		k.numbers = append(k.numbers, n)
	}
	return k
}

func (k keys) checks() []*weirv1.CheckRequest {
	out := make([]*weirv1.CheckRequest, len(k.numbers))
	for i, n := range k.numbers {
		out[i] = &weirv1.CheckRequest{Path: "/k", User: k.group + strconv.Itoa(n)}
	}
	return out
}

// ask has each check decided once, starting at one of the nodes. If a node is
// unavailable it asks the next, until ctx ends. The error is for checks that were still
// undecided then, or is one other than unavailable.
func (a *asker) ask(ctx context.Context, first int, checks []*weirv1.CheckRequest) ([]*weirv1.CheckResponse, error) {
	out := make([]*weirv1.CheckResponse, len(checks))
	left := make([]int, len(checks))
	for i := range left {
		left[i] = i
	}
	var last error
	for try := 0; len(left) > 0; try++ {
		if try > 0 && try%len(a.nodes) == 0 {
			pause(ctx, retryAfter)
		}
		if ctx.Err() != nil {
			return nil, fmt.Errorf("%d of %d checks were never answered: %w", len(left), len(checks), cmp.Or(last, ctx.Err()))
		}
		var req weirv1.CheckBatchRequest
		for _, i := range left {
			req.Checks = append(req.Checks, checks[i])
		}
		resp, err := a.nodes[(first+try)%len(a.nodes)].CheckBatch(ctx, &req)
		if status.Code(err) == codes.Unavailable {
			last = err
			continue
		}
		if err != nil || len(resp.GetResults()) != len(left) {
			return nil, fmt.Errorf("%d answers, %w", len(resp.GetResults()), err)
		}
		var again []int
		for n, r := range resp.GetResults() {
			switch e := r.GetError(); {
			case e == nil:
				out[left[n]] = r.GetDecision()
			case codes.Code(e.GetCode()) == codes.Unavailable:
				again, last = append(again, left[n]), errors.New(e.GetMessage())
			default:
				return nil, fmt.Errorf("%s: %s", codes.Code(e.GetCode()), e.GetMessage())
			}
		}
		left = again
	}
	return out, nil
}

// pause waits, for the pace of demand and nothing else.
func pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// right reports whether the key's owner or its heir decided.
func right(d *weirv1.CheckResponse) bool {
	return d.GetSource() == weirv1.Source_SOURCE_SHARE || d.GetSource() == weirv1.Source_SOURCE_OWNER ||
		d.GetSource() == weirv1.Source_SOURCE_HEIR
}

// counts is what came of asking for the keys of one group: how often each was
// admitted, by its owner or heir, and by policy at each node.
type counts struct {
	mu      sync.Mutex
	counted [clusterKeys]int
	policed map[int]*[clusterKeys]int // by the node that was asked
	usedUp  [clusterKeys]bool         // denied by its owner or heir
	asked   int
	policy  int // answers of a policy
	denied  int // of them
	errs    []error
	took    []time.Duration
}

// add takes in what a node answered for some keys.
func (c *counts) add(node int, k keys, answers []*weirv1.CheckResponse) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.asked += len(answers)
	for i, d := range answers {
		switch {
		case !right(d):
			c.policy++
			if !d.GetAllowed() {
				c.denied++
				continue
			}
			if c.policed == nil {
				c.policed = make(map[int]*[clusterKeys]int)
			}
			if c.policed[node] == nil {
				c.policed[node] = new([clusterKeys]int)
			}
			c.policed[node][k.numbers[i]]++
		case d.GetAllowed():
			c.counted[k.numbers[i]]++
		default:
			c.usedUp[k.numbers[i]] = true
		}
	}
}

func (c *counts) fail(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.errs = append(c.errs, err)
}

// times asks for every key of a group so often, of the nodes in turn.
func (c *counts) times(t *testing.T, n int, a *asker, group string) {
	t.Helper()
	all := shard(group, 0, 1)
	for i := range n {
		ctx, cancel := context.WithTimeout(t.Context(), soon)
		answers, err := a.ask(ctx, i, all.checks())
		cancel()
		if err != nil {
			t.Fatal(err)
		}
		c.add(i%len(a.nodes), all, answers)
	}
}

// besides returns the keys that owners and heirs admitted less often than some
// number, or more often than another.
func (c *counts) besides(least, most int) (wrong []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for k, n := range c.counted {
		if n < least || n > most {
			wrong = append(wrong, fmt.Sprintf("key %d %d times", k, n))
		}
	}
	return wrong
}

// quantile returns the duration below which a part of the others lies.
func quantile(sorted []time.Duration, q float64) time.Duration {
	if len(sorted) == 0 {
		return 0
	}
	return sorted[min(int(q*float64(len(sorted))), len(sorted)-1)]
}
