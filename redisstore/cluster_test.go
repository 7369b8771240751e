package redisstore_test

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/limiter/arith"
	"github.com/weirlimit/weir/limiter/limitertest"
	"github.com/weirlimit/weir/redisstore"
)

// startCluster starts three masters that share the slots.
func startCluster(tb testing.TB) []*server {
	tb.Helper()
	masters := make([]*server, 3)
	args := []string{"--cluster", "create"}
	for i := range masters {
		masters[i] = startServer(tb, "--cluster-enabled", "yes", "--cluster-node-timeout", "15000",
			"--cluster-require-full-coverage", "no")
		args = append(args, masters[i].addr())
	}
	if out, err := exec.Command("redis-cli", append(args, "--cluster-yes")...).CombinedOutput(); err != nil {
		tb.Fatalf("%v\n%s", err, out)
	}
	for _, m := range masters {
		await(tb, "the cluster is whole", func() bool {
			return strings.Contains(fmt.Sprint(m.do("CLUSTER", "INFO")), "cluster_state:ok")
		})
	}
	return masters
}

func clusterConfig(masters []*server) redisstore.Config {
	var c redisstore.Config
	for _, m := range masters {
		c.Addrs = append(c.Addrs, m.addr())
	}
	return c
}

// C3: the transcripts in a Redis Cluster of three masters, where the keys of one
// check lie on several of them; with WEIR_SEEDS, as in make test-long, the whole
// suite, which is otherwise that of one server.
func TestRedisClusterConforms(t *testing.T) {
	if raceEnabled && testing.Short() {
		t.Skip("one caller, many times slower under the race detector; make wire runs it")
	}
	t.Parallel()
	masters := startCluster(t)
	run := limitertest.Transcripts
	if os.Getenv("WEIR_SEEDS") != "" {
		run = limitertest.Run
	}
	run(t, func(tb testing.TB, yaml string) limitertest.Subject {
		for _, m := range masters {
			m.do("FLUSHALL")
		}
		return newSubject(tb, openStore(tb, clusterConfig(masters)), yaml)
	})
}

// owner returns the master that has a key, and the key's slot.
func owner(tb testing.TB, masters []*server, key string) (of *server, slot int64) {
	tb.Helper()
	slot = masters[0].do("CLUSTER", "KEYSLOT", key).(int64)
	for _, m := range masters {
		for _, r := range m.do("CLUSTER", "SLOTS").([]any) {
			r := r.([]any)
			if r[0].(int64) <= slot && slot <= r[1].(int64) && r[2].([]any)[1].(int64) == int64(m.port) {
				return m, slot
			}
		}
	}
	tb.Fatalf("nobody has slot %d", slot)
	return nil, 0
}

// keysOf returns the names of a request's counters in Redis.
func keysOf(tb testing.TB, masters []*server) (keys []string) {
	tb.Helper()
	for _, m := range masters {
		for _, k := range m.do("KEYS", "weir:*").([]any) {
			if !strings.HasSuffix(k.(string), "!probe") {
				keys = append(keys, k.(string))
			}
		}
	}
	return keys
}

// A slot that moves takes its counters along, and no check is lost or answered by
// a policy: not while it is being moved, nor after.
func TestSlotMoves(t *testing.T) {
	t.Parallel()
	masters := startCluster(t)
	log := &logBuffer{}
	c := clusterConfig(masters)
	c.Log = slog.New(slog.NewJSONHandler(log, nil))
	node := newNode(t, openStore(t, c), `
version: 1
rules: [{name: r, key: [user], limits: [1000/day, {limit: 2000, window: 48h, algorithm: sliding_log}]}]
`)
	left := uint64(1000)
	check := func(when string) {
		t.Helper()
		d, err := node.Check(context.Background(), weir.Request{Path: "/", User: "ada"})
		if err != nil {
			t.Fatal(err)
		}
		left--
		if d.Source != limiter.SourceRedis || d.Limit(0).Remaining != left {
			t.Fatalf("%s: %s decides, %d left, want %d; the log has %s", when, d.Source, d.Limit(0).Remaining, left, log)
		}
	}
	check("before")
	keys := keysOf(t, masters)
	if len(keys) != 2 {
		t.Fatalf("the keys are %q", keys)
	}
	from, slot := owner(t, masters, keys[0])
	to := masters[0]
	if to == from {
		to = masters[1]
	}
	to.do("CLUSTER", "SETSLOT", slot, "IMPORTING", from.do("CLUSTER", "MYID"))
	from.do("CLUSTER", "SETSLOT", slot, "MIGRATING", to.do("CLUSTER", "MYID"))
	check("while the slot is about to move")
	from.do("MIGRATE", "127.0.0.1", to.port, "", 0, 5000, "KEYS", keys[0], keys[1])
	check("when the counters have moved")
	for _, m := range masters {
		m.do("CLUSTER", "SETSLOT", slot, "NODE", to.do("CLUSTER", "MYID"))
	}
	for range 20 {
		check("when the slot has moved")
	}
	if text := log.String(); text != "" {
		t.Errorf("the log has %s", text)
	}
}

// A missing master is an outage for its keys only.
func TestMasterStops(t *testing.T) {
	t.Parallel()
	masters := startCluster(t)
	log := &logBuffer{}
	c := clusterConfig(masters)
	c.Log = slog.New(slog.NewJSONHandler(log, nil))
	node := newNode(t, openStore(t, c), "version: 1\nrules: [{name: r, key: [user], limits: [1000/day]}]\n")
	source := func(user string) limiter.Source {
		d, err := node.Check(context.Background(), weir.Request{Path: "/", User: user})
		if err != nil {
			t.Fatal(err)
		}
		return d.Source
	}
	users := map[*server]string{}
	for i := 0; len(users) < len(masters); i++ {
		user := fmt.Sprint("u", i)
		if s := source(user); s != limiter.SourceRedis {
			t.Fatalf("%s decides; the log has %s", s, log)
		}
		for _, k := range keysOf(t, masters) {
			if strings.Contains(k, ":"+user+":") {
				m, _ := owner(t, masters, k)
				users[m] = user
			}
		}
	}
	masters[1].stop()
	await(t, "the policy decides the keys of the master that is gone", func() bool {
		return source(users[masters[1]]) == limiter.SourceFallbackLocal
	})
	for range 50 {
		if s := source(users[masters[0]]); s != limiter.SourceRedis {
			t.Fatalf("%s decides the keys of another; the log has %s", s, log)
		}
		if s := source(users[masters[1]]); s != limiter.SourceFallbackLocal {
			t.Fatalf("%s decides the keys of the master that is gone", s)
		}
	}
	masters[1].start()
	await(t, "Redis decides all keys again", func() bool { return source(users[masters[1]]) == limiter.SourceRedis })
	if log.count("redis is unavailable") != 1 || log.count("redis is available again") != 1 {
		t.Errorf("the log has %s", log)
	}
}

// B1: several identifiers at once, on several masters: all or nothing, and what
// was reserved is given back where another denied.
func TestReservationsAreCancelled(t *testing.T) {
	t.Parallel()
	masters := startCluster(t)
	node := newNode(t, openStore(t, clusterConfig(masters)), `
version: 1
rules:
  - name: login
    keys: [[ip], [user]]
    limits: [{limit: 3, window: 24h, algorithm: sliding_log}, {name: all, limit: 1000, window: 24h, count_rejected: all}]
`)
	check := func(ip, user string) *weir.Decision {
		t.Helper()
		d, err := node.Check(context.Background(), weir.Request{Path: "/", IP: ip, User: user})
		if err != nil || d.Source != limiter.SourceRedis {
			t.Fatalf("%v, %v", d, err)
		}
		return &d
	}
	for i := range 3 {
		if d := check("10.0.0.1", fmt.Sprint("u", i)); !d.Allowed {
			t.Fatalf("check %d is denied by %s", i, d.BlockedBy().FullName())
		}
	}
	// The address has nothing left, so the user is not charged.
	for range 5 {
		d := check("10.0.0.1", "fresh")
		if d.Allowed || d.BlockedBy().Key != 0 {
			t.Fatalf("allowed %v", d.Allowed)
		}
		if user := d.Limit(2); user.Limit.Name() != "day" || user.Remaining != 3 || !user.Allowed || user.ResetAfter != 0 {
			t.Errorf("of the user's %s %d are left, allowed %v, reset after %d", user.Limit.Name(), user.Remaining, user.Allowed,
				user.ResetAfter)
		}
		if arith.Fields(&d.Receipt).Charged != 0b1010 {
			t.Errorf("charged %b", arith.Fields(&d.Receipt).Charged)
		}
	}
	d := check("10.0.0.2", "fresh")
	if !d.Allowed || d.Limit(2).Remaining != 2 {
		t.Errorf("allowed %v, %d left of the user's", d.Allowed, d.Limit(2).Remaining)
	}
	// count_rejected: all has counted the denials, on both sides.
	if a, b := check("10.0.0.1", "fresh").Limit(1).Remaining, check("10.0.0.1", "fresh").Limit(3).Remaining; a != 991 ||
		b != 992 {
		t.Errorf("of count_rejected all %d and %d are left", a, b)
	}
	// One receipt takes back the charges of all masters.
	r := weir.Request{Path: "/", IP: "10.0.0.2", User: "fresh"}
	if err := node.Refund(context.Background(), r, d.Receipt); err != nil {
		t.Fatal(err)
	}
	var after weir.Decision
	if err := node.PeekInto(context.Background(), &r, &after); err != nil || after.Limit(0).Remaining != 3 ||
		after.Limit(2).Remaining != 3 {
		t.Errorf("after a refund %d and %d are left, %v", after.Limit(0).Remaining, after.Limit(2).Remaining, err)
	}
}

// The policy decides a part whose master is missing, and if it denies, the reservations
// on the other masters are cancelled.
func TestPolicyDecidesAPart(t *testing.T) {
	t.Parallel()
	masters := startCluster(t)
	c := clusterConfig(masters)
	store := openStore(t, c)
	rule := func(name string, u limiter.Unreachable) *limiter.Rule {
		l := limitertest.Limit(t, limiter.Spec{Limit: 50, Window: 24 * time.Hour})
		return &limiter.Rule{Name: name, Limits: []*limiter.Limit{l}, OnUnreachable: u}
	}
	open, closed := rule("open", limiter.UnreachableOpen), rule("closed", limiter.UnreachableClosed)
	decide := func(keys ...arith.Key) *limiter.Decision {
		t.Helper()
		var ch arith.Charge
		for _, k := range keys {
			k.Cost = 1
			ch.Add(k)
		}
		var d limiter.Decision
		if err := store.Decide(context.Background(), arith.Instant{}, []*arith.Charge{&ch}, []*limiter.Decision{&d},
			nil); err != nil {
			t.Fatal(err)
		}
		return &d
	}
	// on returns a key of a rule that is, or is not, on the second master.
	on := func(r *limiter.Rule, second bool) arith.Key {
		for i := uint64(1); ; i++ {
			k := arith.Key{Hash: arith.Hash{Hi: i}, Rule: r}
			before := len(masters[1].do("KEYS", "*:day").([]any))
			decide(k)
			if (len(masters[1].do("KEYS", "*:day").([]any)) > before) == second {
				return k
			}
		}
	}
	here, there, shut := on(open, false), on(open, true), on(closed, true)
	masters[1].stop()
	await(t, "the policy decides", func() bool { return decide(there).Source == limiter.SourceFallbackOpen })
	left := decide(here).Limit(0).Remaining - 1
	d := decide(here, there)
	if !d.Allowed || d.Source != limiter.SourceFallbackOpen || d.Limit(0).Remaining != left {
		t.Errorf("allowed %v by %s, %d left", d.Allowed, d.Source, d.Limit(0).Remaining)
	}
	for range 3 {
		if d := decide(here, shut); d.Allowed || d.Source != limiter.SourceFallbackClosed || d.Limit(0).Remaining != left {
			t.Errorf("allowed %v by %s, %d left", d.Allowed, d.Source, d.Limit(0).Remaining)
		}
	}
	if d := decide(here); d.Source != limiter.SourceRedis || d.Limit(0).Remaining != left-1 {
		t.Errorf("%s decides, %d left", d.Source, d.Limit(0).Remaining)
	}
}

// An unreachable cluster has no owner for any slot.
func TestNoCluster(t *testing.T) {
	p := newPatient(t, redisstore.Config{Addrs: []string{fmt.Sprint("127.0.0.1:", freePort(t))}, Cluster: true})
	if d := p.ask("/open"); d.Source != limiter.SourceFallbackOpen {
		t.Errorf("%s decides", d.Source)
	}
	if p.log.count("redis is unavailable") != 1 {
		t.Errorf("the log has %s", p.log)
	}
}
