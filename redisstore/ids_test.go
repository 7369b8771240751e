package redisstore_test

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/redisstore"
)

// entries returns the names of what a Redis holds for Weir, without the probes.
func entries(srv *server) (ids, others []string) {
	for _, k := range srv.do("KEYS", "weir:*").([]any) {
		switch name := k.(string); {
		case strings.Contains(name, "!id:"):
			ids = append(ids, name)
		case !strings.HasSuffix(name, "!probe"):
			others = append(others, name)
		}
	}
	return ids, others
}

// An id takes one entry for each key, which expires by itself. A check without one has none.
func TestIDsExpire(t *testing.T) {
	srv := startServer(t)
	n := newNode(t, openStore(t, redisstore.Config{Addrs: []string{srv.addr()}}),
		"version: 1\nrules: [{name: r, keys: [[user], [ip]], id_ttl: 1h, limits: [10/day, 100/week]}]\n")
	r := weir.Request{User: "ada", IP: "192.0.2.1"}
	check := func(repeated bool, left uint64) {
		t.Helper()
		if d, err := n.Check(t.Context(), r); err != nil || d.Source != limiter.SourceRedis || d.Repeated != repeated ||
			d.Limit(0).Remaining != left {
			t.Fatalf("%+v, %v", d, err)
		}
	}
	check(false, 9)
	if ids, others := entries(srv); len(ids) != 0 || len(others) != 4 {
		t.Fatalf("without an id there are %q and %q", ids, others)
	}
	r.ID, r.IDTTL = strings.Repeat("x", limiter.MaxIDBytes), time.Minute
	check(false, 8)
	check(true, 8)
	ids, others := entries(srv)
	if len(ids) != 2 || len(others) != 4 {
		t.Fatalf("with an id there are %q and %q", ids, others)
	}
	for _, id := range ids {
		if ttl := srv.do("PTTL", id).(int64); ttl < 1 || ttl > 60_000 {
			t.Errorf("%s expires in %d ms", id, ttl)
		}
		if size := srv.do("STRLEN", id).(int64); size != 21 {
			t.Errorf("%s has %d bytes", id, size)
		}
		srv.do("DEL", id)
	}
	check(false, 7)
}

// Nodes that share a Redis know each other's ids.
func TestIDsAcrossNodes(t *testing.T) {
	srv := startServer(t)
	open := func() *weir.Node {
		return newNode(t, openStore(t, redisstore.Config{Addrs: []string{srv.addr()}}),
			"version: 1\nrules: [{name: r, key: [user], limits: [10/day]}]\n")
	}
	a, b := open(), open()
	rs := []weir.Request{{User: "ada", ID: "1", Cost: weir.Units(3)}, {User: "ada", ID: "2"},
		{User: "ada", ID: "1", Cost: weir.Units(3)}}
	ds, err := a.CheckBatch(t.Context(), rs)
	if err != nil || ds[0].Repeated || ds[1].Repeated || !ds[2].Repeated || ds[2].Limit(0).Remaining != 6 {
		t.Fatalf("%+v, %v", ds, err)
	}
	d, err := b.Check(t.Context(), rs[0])
	if err != nil || !d.Repeated || d.Limit(0).Remaining != 6 || d.Receipt != ds[0].Receipt {
		t.Fatalf("%+v, %v, want receipt %+v", d, err, ds[0].Receipt)
	}
	e, err := b.Explain(t.Context(), rs[0])
	if err != nil || !e.Answer.Repeated || e.Limits[0].State[len(e.Limits[0].State)-1].Name != "id remembered until" {
		t.Errorf("%+v, %v", e, err)
	}
	if err := b.Refund(t.Context(), rs[0], d.Receipt); err != nil {
		t.Fatal(err)
	}
	if d, err := a.Check(t.Context(), rs[0]); err != nil || d.Repeated || d.Limit(0).Remaining != 6 {
		t.Errorf("after a refund: %+v, %v", d, err)
	}
}

// A peek and an explanation ask only the keys that do not know the id, as the check does.
func TestPeekOfAnIDThatSomeKeysKnow(t *testing.T) {
	n := newNode(t, openStore(t, redisstore.Config{Addrs: []string{startServer(t).addr()}}),
		"version: 1\nrules: [{name: r, keys: [[ip], [user]], limits: [1/day]}]\n")
	r := weir.Request{User: "ada", IP: "192.0.2.1", ID: "1"}
	if d, err := n.Check(t.Context(), r); err != nil || !d.Allowed {
		t.Fatalf("%+v, %v", d, err)
	}
	for _, allowed := range []bool{true, false} {
		if r.IP = "192.0.2.2"; !allowed {
			r.IP = "192.0.2.3"
			if d, err := n.Check(t.Context(), weir.Request{IP: r.IP}); err != nil || !d.Allowed {
				t.Fatalf("%+v, %v", d, err)
			}
		}
		peek, err := n.Peek(t.Context(), r)
		if err != nil || peek.Allowed != allowed {
			t.Errorf("a peek: %+v, %v", peek, err)
		}
		e, err := n.Explain(t.Context(), r)
		if err != nil || e.Answer.Allowed != allowed || len(e.Answer.Limits) != 2 {
			t.Errorf("an explanation: %+v, %v", e, err)
		}
		if d, err := n.Check(t.Context(), r); err != nil || d.Allowed != allowed || d.Repeated {
			t.Errorf("the check: %+v, %v", d, err)
		}
	}
}

// A check whose reply is lost is answered by the policy, but it was counted. Its repetition is
// not counted again. What only a policy counted is not remembered.
func TestIDsOfChecksThatPoliciesAnswer(t *testing.T) {
	srv := startServer(t)
	r := startRelay(t, srv.addr())
	p := newPatient(t, redisstore.Config{Addrs: []string{r.Addr().String()}, Timeout: faultTimeout})
	pay := weir.Request{Path: "/open", User: "ada", ID: "order-7"}
	check := func(q weir.Request, s limiter.Source, repeated bool, left uint64) {
		t.Helper()
		d, err := p.Check(context.Background(), q)
		if err != nil || !d.Allowed || d.Source != s || d.Repeated != repeated || d.Limit(0).Remaining != left {
			t.Fatalf("by %s, want %s: %+v, %v", d.Source, s, d, err)
		}
	}
	check(weir.Request{Path: "/open", User: "ada", ID: "first"}, limiter.SourceRedis, false, 29) // the script is there
	lost := newTrap()
	lost.replies, lost.cut = true, true
	r.trap.Store(lost)
	check(pay, limiter.SourceFallbackOpen, false, 29)
	check(pay, limiter.SourceRedis, true, 28)
	check(pay, limiter.SourceRedis, true, 28)
	srv.stop()
	p.untilFrom("/local", limiter.SourceFallbackLocal)
	pay.ID = "order-8"
	check(pay, limiter.SourceFallbackOpen, false, 28)
	check(pay, limiter.SourceFallbackOpen, false, 27)
	srv.start()
	p.untilFrom("/local", limiter.SourceRedis)
	check(pay, limiter.SourceRedis, false, 29)
}

// While the keys of a check with an id lie on two masters, as while their slot is being moved, the check waits
// for them, for as long as a check may take, and Redis decides it.
func TestIDsWaitForTheirSlot(t *testing.T) {
	t.Parallel()
	masters := startCluster(t)
	node := newNode(t, openStore(t, clusterConfig(masters)), policyRules)
	check := func(id string, hold time.Duration) *weir.Decision {
		d, err := node.Check(t.Context(), weir.Request{Path: "/local", User: "ada", ID: id, Hold: hold})
		if err != nil {
			t.Error(err)
		}
		return &d
	}
	check("a", time.Hour)
	keys := keysOf(t, masters)
	from, slot := owner(t, masters, keys[0])
	to := masters[0]
	if to == from {
		to = masters[1]
	}
	to.do("CLUSTER", "SETSLOT", slot, "IMPORTING", from.do("CLUSTER", "MYID"))
	from.do("CLUSTER", "SETSLOT", slot, "MIGRATING", to.do("CLUSTER", "MYID"))
	move := func(some ...string) {
		args := []any{"MIGRATE", "127.0.0.1", to.port, "", 0, 5000, "KEYS"}
		for _, k := range some {
			args = append(args, k)
		}
		from.do(args...)
	}
	move(keys[0])
	refused := func() (n int) {
		for _, m := range masters {
			_, count, found := strings.Cut(fmt.Sprint(m.do("INFO", "errorstats")), "errorstat_TRYAGAIN:count=")
			if found {
				one, _ := strconv.Atoi(strings.Fields(count)[0])
				n += one
			}
		}
		return n
	}
	decided := make(chan *weir.Decision, 1)
	go func() { decided <- check("a", time.Hour) }()
	await(t, "it was refused ten times", func() bool { return refused() >= 10 || len(decided) > 0 })
	move(keys[1:]...)
	for _, m := range masters {
		m.do("CLUSTER", "SETSLOT", slot, "NODE", to.do("CLUSTER", "MYID"))
	}
	if d := <-decided; d.Source != limiter.SourceRedis || !d.Repeated || d.Limit(0).Remaining != 29 {
		t.Errorf("%s decides: repeated %v, %d left", d.Source, d.Repeated, d.Limit(0).Remaining)
	}
}
