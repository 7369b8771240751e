package redisstore_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
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
			Rules: []byte("version: 1\nrules: [{name: r, keys: [[ip], [user]], limits: [{limit: 10, calendar: month}, " +
				"20/hour]}]\n"),
			Backend: openStore(t, redisstore.Config{Addrs: []string{srv.addr()}}), Secret: []byte(secret),
			Now: func() time.Time {
				return now
			},
		})
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	nodes := []*weir.Node{node("one secret"), node("one secret")}
	r := weir.Request{Path: "/", User: "ada", IP: "192.0.2.1", Cost: weir.Units(2)}
	left := func() (out []uint64) {
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
	is := func(what string, month, hour uint64) {
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

// A limit is replaced and comes back between a charge and its refund, at each of two nodes.
// What the receipt names was forgotten meanwhile, and others were charged, so it takes nothing
// back. A limit that counts alike keeps it good, and so is a receipt from after that.
func TestReceiptsOfLimitsThatChangeBack(t *testing.T) {
	srv := startServer(t)
	now := time.Date(2026, 1, 5, 12, 0, 0, 0, time.UTC)
	file := func(limit int, window, more string) []byte {
		return fmt.Appendf(nil, "version: 1\nrules: [{name: r, key: [user], limits: [{name: x, limit: %d, window: %s%s}]}]\n",
			limit, window, more)
	}
	var nodes []*weir.Node
	for range 2 {
		n, err := weir.Open(t.Context(), weir.Config{
			Rules: file(1, "1h", ""), Backend: openStore(t, redisstore.Config{Addrs: []string{srv.addr()}}),
			Secret: []byte("one secret"), Now: func() time.Time { return now },
		})
		if err != nil {
			t.Fatal(err)
		}
		nodes = append(nodes, n)
	}
	set := func(rules []byte) {
		t.Helper()
		for _, n := range nodes {
			if err := n.SetRules(rules); err != nil {
				t.Fatal(err)
			}
		}
	}
	for i, algorithm := range []string{
		"fixed_window", "sliding_counter", "sliding_log", "sliding_window", "token_bucket", "leaky_bucket", "gcra",
		"leaky_bucket, drip: interval",
		"fixed_window, count_rejected: all",
	} {
		algorithm = ", algorithm: " + algorithm
		back := file(10, "1h", algorithm)
		spend := func(node int, cost int64) (weir.Request, weir.Receipt) {
			t.Helper()
			r := weir.Request{User: fmt.Sprint("user", i), Cost: weir.Units(cost)}
			d, err := nodes[node].Check(t.Context(), r)
			if err != nil || d.Source != limiter.SourceRedis || !d.Allowed {
				t.Fatalf("%s: %+v, %v", algorithm, d, err)
			}
			return r, nodes[node].SealReceipt(&r, &d)
		}
		left := func() uint64 {
			t.Helper()
			d, err := nodes[1].Peek(t.Context(), weir.Request{User: fmt.Sprint("user", i)})
			if err != nil || d.Source != limiter.SourceRedis {
				t.Fatalf("%+v, %v", d, err)
			}
			return d.Limit(0).Remaining
		}
		refund := func(node int, r weir.Request, rc weir.Receipt) {
			t.Helper()
			if err := nodes[node].Refund(t.Context(), r, rc); err != nil {
				t.Fatal(err)
			}
		}
		set(back)
		mine, receipt := spend(0, 6)
		now = now.Add(time.Second)
		set(file(10, "1s", algorithm))
		left() // the counter is converted
		now = now.Add(time.Minute)
		spend(1, 4)
		set(back)
		spend(0, 4)
		before := left()
		refund(1, mine, receipt)
		if got := left(); got != before {
			t.Errorf("%s: %d left, and %d before a refund that is void", algorithm, got, before)
		}
		now = now.Add(time.Microsecond)
		yours, receipt := spend(1, 1)
		if refund(0, yours, receipt); left() != before {
			t.Errorf("%s: %d left after a charge and its refund, and %d before", algorithm, left(), before)
		}
		if i >= 4 {
			continue // these forget in a time that depends on the limit
		}
		yours, receipt = spend(1, 1)
		set(file(20, "1h", algorithm))
		spend(0, 1)
		set(back)
		if refund(0, yours, receipt); left() != before-1 {
			t.Errorf("%s: %d left after a limit of 20 and a refund, want %d", algorithm, left(), before-1)
		}
	}
}

// A credit takes back what others were charged, never below nothing, as a node's own table
// does.
func TestCredit(t *testing.T) {
	srv, now := startServer(t), time.Date(2026, 1, 5, 12, 0, 0, 0, time.UTC)
	for algorithm, want := range map[string][2]uint64{
		"fixed_window": {5, 10}, "sliding_counter": {5, 10}, "token_bucket": {5, 10}, "leaky_bucket": {5, 10},
		"gcra": {5, 10}, "leaky_bucket, drip: interval": {5, 10}, "sliding_log": {2, 2}, "sliding_window": {2, 2},
	} {
		rules := "version: 1\nrules: [{name: " + fmt.Sprintf("r%x", algorithm) +
			", key: [user], limits: [{limit: 10, window: 1h, algorithm: " + algorithm + "}]}]\n"
		n, err := weir.Open(t.Context(), weir.Config{Rules: []byte(rules),
			Now:     func() time.Time { return now },
			Backend: openStore(t, redisstore.Config{Addrs: []string{srv.addr()}})})
		if err != nil {
			t.Fatal(err)
		}
		r := weir.Request{User: algorithm, Cost: weir.Units(8)}
		if d, err := n.Check(t.Context(), r); err != nil || d.Source != limiter.SourceRedis {
			t.Fatalf("%+v, %v", d, err)
		}
		for _, x := range []struct {
			cost int64
			want uint64
		}{{3, want[0]}, {1 << 31, want[1]}} {
			r.Cost = weir.Units(x.cost)
			if err := n.Refund(t.Context(), r, limiter.Credit()); err != nil {
				t.Fatal(err)
			}
			r.Cost = limiter.Cost{}
			if d, err := n.Peek(t.Context(), r); err != nil || d.Limit(0).Remaining != x.want {
				t.Errorf("%s: after a credit of %d %d left, %v", algorithm, x.cost, d.Limit(0).Remaining, err)
			}
		}
	}
}

// A limit that changes often makes earlier receipts of the key void, beyond what is remembered of it. What is reserved
// of another limit comes back all the same, and so does what a limit on concurrency held.
func TestManyChangesLeaveWhatIsHeld(t *testing.T) {
	srv := startServer(t)
	now := time.Date(2026, 1, 5, 12, 0, 0, 0, time.UTC)
	file := func(units, slots int, algorithm string) []byte {
		return fmt.Appendf(nil, "version: 1\nrules: [{name: r, key: [user], limits: [{name: a, limit: %d, window: 1h, "+
			"algorithm: token_bucket}, {name: b, limit: 10, window: 1h, algorithm: sliding_counter}, {name: c, limit: %d, "+
			"algorithm: %s}]}]\n", units, slots, algorithm)
	}
	n, err := weir.Open(t.Context(), weir.Config{Rules: file(1000, 100, "concurrency"),
		Now: func() time.Time { return now }, Backend: openStore(t, redisstore.Config{Addrs: []string{srv.addr()}})})
	if err != nil {
		t.Fatal(err)
	}
	ask := func(r weir.Request) []uint64 {
		t.Helper()
		d, err := n.Check(t.Context(), r)
		if err != nil || d.Source != limiter.SourceRedis || !d.Allowed {
			t.Fatalf("%+v, %v", d, err)
		}
		return []uint64{d.Limit(0).Remaining, d.Limit(1).Remaining, d.Limit(2).Remaining}
	}
	held := weir.Request{User: "ada", ID: "one", Hold: 30 * time.Minute, Cost: weir.Units(4)}
	ask(held)
	if err := n.SetRules(file(1000, 100, "fixed_window, window: 1h")); err != nil {
		t.Fatal(err)
	}
	ask(weir.Request{User: "ada", ID: "two", Hold: time.Hour, Cost: weir.Units(1)}) // the slots are left
	for i := range 70 {
		now = now.Add(time.Millisecond)
		if err := n.SetRules(file(1001+i, 100, "fixed_window, window: 1h")); err != nil {
			t.Fatal(err)
		}
		ask(weir.Request{User: "ada", Cost: weir.Units(0)})
	}
	if err := n.SetRules(file(1071, 100, "concurrency")); err != nil {
		t.Fatal(err)
	}
	if got, want := ask(weir.Request{User: "ada", Cost: weir.Units(0)}), []uint64{1066, 5, 96}; !slices.Equal(got, want) {
		t.Errorf("%v are left while 4 and 1 are held, want %v", got, want)
	}
	if _, err := n.Cancel(t.Context(), held); err != nil {
		t.Fatal(err)
	}
	if got, want := ask(weir.Request{User: "ada", Cost: weir.Units(0)}), []uint64{1070, 9, 100}; !slices.Equal(got, want) {
		t.Errorf("%v are left once 4 have come back, want %v", got, want)
	}
}

// TestTheProbeUsesEachCommand: a script that used another command would fail with the access list of docs/redis.md, and
// only when it runs.
func TestTheProbeUsesEachCommand(t *testing.T) {
	files, err := filepath.Glob("lua/*.lua")
	if err != nil || len(files) < 10 {
		t.Fatal(files, err)
	}
	used := regexp.MustCompile(`call\('([A-Z]+)'`)
	commands := func(file string) (names []string) {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range used.FindAllSubmatch(text, -1) {
			names = append(names, string(m[1]))
		}
		return names
	}
	probed := commands("lua/probe.lua")
	for _, file := range files {
		for _, name := range commands(file) {
			if !slices.Contains(probed, name) || !slices.Contains(listed, "+"+strings.ToLower(name)) {
				t.Errorf("%s uses %s, which the probe or the access list lacks", file, name)
			}
		}
	}
}
