package redisstore_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/redisstore"
)

// A sealed receipt takes back its charge once, whichever of the nodes that share the Redis
// are asked, on each of the keys. A receipt that is too old is void.
func TestReceiptsAcrossNodes(t *testing.T) {
	srv := startServer(t)
	now := time.Date(2026, 1, 5, 12, 0, 0, 0, time.UTC)
	node := func(secret string) *weir.Node {
		n, err := weir.Open(context.Background(), weir.Config{
			Rules:   []byte("version: 1\nrules: [{name: r, keys: [[ip], [user]], limits: [{limit: 10, calendar: month}, 20/hour]}]\n"),
			Backend: openStore(t, redisstore.Config{Addrs: []string{srv.addr()}}), Secret: []byte(secret), Now: func() time.Time { return now },
		})
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	nodes := []*weir.Node{node("one secret"), node("one secret")}
	r := weir.Request{Path: "/", User: "ada", IP: "192.0.2.1", Cost: weir.Units(2)}
	left := func() (out []uint32) {
		d, err := nodes[0].Peek(t.Context(), r)
		if err != nil || d.Source != limiter.SourceRedis {
			t.Fatalf("%+v, %v", d, err)
		}
		for i := range d.Len() {
			out = append(out, d.Limit(i).Remaining)
		}
		return out
	}
	var receipts []weir.Receipt
	for i := range 4 {
		d, err := nodes[i%2].Check(t.Context(), r)
		if err != nil || !d.Allowed {
			t.Fatalf("%+v, %v", d, err)
		}
		receipts = append(receipts, nodes[i%2].SealReceipt(&r, &d))
	}
	is := func(what string, month, hour uint32) {
		t.Helper()
		if got := left(); got[0] != month || got[1] != hour || got[2] != month || got[3] != hour {
			t.Errorf("%s: %v left", what, got)
		}
	}
	for range 3 {
		for _, n := range nodes {
			if err := n.Refund(t.Context(), r, receipts[0]); err != nil {
				t.Fatal(err)
			}
		}
	}
	is("one receipt, six times", 4, 14)
	if err := nodes[0].Refund(t.Context(), r, receipts[1]); err != nil {
		t.Fatal(err)
	}
	is("another of the same instant", 6, 16)
	if err := node("another secret").Refund(t.Context(), r, receipts[2]); !errors.Is(err, weir.ErrInvalid) {
		t.Error(err)
	}
	if err := node("").Refund(t.Context(), r, receipts[2]); !errors.Is(err, weir.ErrInvalid) {
		t.Error(err)
	}
	now = now.Add(10*time.Minute - time.Microsecond)
	if err := nodes[1].Refund(t.Context(), r, receipts[2]); err != nil {
		t.Fatal(err)
	}
	is("in time", 8, 18)
	now = now.Add(time.Microsecond)
	if err := nodes[1].Refund(t.Context(), r, receipts[3]); err != nil {
		t.Fatal(err)
	}
	is("too late", 8, 18)
}

// A credit takes back what others were charged, never below nothing, as a node's own table
// does.
func TestCredit(t *testing.T) {
	srv := startServer(t)
	for algorithm, want := range map[string]uint32{
		"fixed_window": 5, "sliding_counter": 5, "token_bucket": 5, "leaky_bucket": 5, "gcra": 5,
		"leaky_bucket, drip: interval": 5, "sliding_log": 2, "sliding_window": 2,
	} {
		rules := "version: 1\nrules: [{name: " + fmt.Sprintf("r%x", algorithm) + ", key: [user], limits: [{limit: 10, window: 1h, algorithm: " + algorithm + "}]}]\n"
		n, err := weir.Open(t.Context(), weir.Config{Rules: []byte(rules), Backend: openStore(t, redisstore.Config{Addrs: []string{srv.addr()}})})
		if err != nil {
			t.Fatal(err)
		}
		r := weir.Request{User: algorithm, Cost: weir.Units(8)}
		if d, err := n.Check(t.Context(), r); err != nil || d.Source != limiter.SourceRedis {
			t.Fatalf("%+v, %v", d, err)
		}
		for _, x := range []struct {
			cost int64
			want uint32
		}{{3, want}, {1 << 31, 10}} {
			r.Cost = weir.Units(x.cost)
			if err := n.Refund(t.Context(), r, limiter.Credit()); err != nil {
				t.Fatal(err)
			}
			r.Cost = limiter.Cost{}
			if d, err := n.Peek(t.Context(), r); err != nil || d.Limit(0).Remaining != x.want && want == 5 {
				t.Errorf("%s: after a credit of %d %d left, %v", algorithm, x.cost, d.Limit(0).Remaining, err)
			}
		}
	}
}
