package redisstore_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/certs/certstest"
	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/limiter/arith"
	"github.com/weirlimit/weir/redisstore"
)

// decidesThere verifies that decisions of a store come from its Redis.
func decidesThere(t *testing.T, c redisstore.Config) {
	t.Helper()
	node := newNode(t, openStore(t, c), policyRules)
	for i := range 2 {
		d, err := node.Check(context.Background(), weir.Request{Path: "/local", User: "ada"})
		if err != nil || d.Source != limiter.SourceRedis || d.Limit(0).Remaining != uint64(29-i) {
			t.Fatalf("%+v, %v", d, err)
		}
	}
	// A limit changes, so that its counters are converted, and charges are taken back.
	if err := node.SetRules([]byte(strings.ReplaceAll(policyRules, "30/day",
		"{name: day, limit: 30, window: 1h}"))); err != nil {
		t.Fatal(err)
	}
	r := weir.Request{Path: "/local", User: "ada", ID: "7"}
	for range 2 {
		d, err := node.Check(context.Background(), r)
		if err != nil || d.Source != limiter.SourceRedis || d.Limit(0).Remaining != 27 {
			t.Fatalf("%+v, %v", d, err)
		}
		if err := node.Refund(context.Background(), r, node.SealReceipt(&r, &d)); err != nil {
			t.Fatal(err)
		}
	}
	// A reservation is extended and settled, and one ends.
	r.Hold, r.Cost = time.Second, weir.Units(2)
	if d, err := node.Check(context.Background(), r); err != nil || d.Source != limiter.SourceRedis {
		t.Fatalf("%+v, %v", d, err)
	}
	if _, err := node.Extend(context.Background(), r); err != nil {
		t.Fatal(err)
	}
	if _, err := node.Settle(context.Background(), r, 1); err != nil {
		t.Fatal(err)
	}
	r.ID, r.Hold = "8", time.Millisecond
	if d, err := node.Check(context.Background(), r); err != nil || d.Source != limiter.SourceRedis {
		t.Fatalf("%+v, %v", d, err)
	}
	await(t, "the reservation ends", func() bool {
		e, err := node.Explain(context.Background(), weir.Request{Path: r.Path, User: r.User})
		if err != nil {
			t.Fatal(err)
		}
		return e.Answer.Limits[0].Remaining == 27 // but for what was settled
	})
	if n, err := node.Reset(context.Background(), r); n != 1 || err != nil {
		t.Fatalf("%d, %v", n, err)
	}
}

// refuses checks that a store does not open if Redis refuses it, and that the error says why and what
// to do.
func refuses(t *testing.T, c redisstore.Config, why ...string) {
	t.Helper()
	c.Timeout = patience
	s, err := redisstore.Open(t.Context(), c)
	if s != nil || !errors.Is(err, limiter.ErrInvalid) {
		t.Fatalf("opened %v, %v", s != nil, err)
	}
	for _, part := range append(why, strings.Join(c.Addrs, ",")) {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("the error does not say %q: %v", part, err)
		}
	}
}

// A11: host, port, database and password.
func TestPasswordAndDatabase(t *testing.T) {
	srv := startServer(t, "--requirepass", "open sesame")
	c := redisstore.Config{Addrs: []string{srv.addr()}, DB: 3}
	refuses(t, c, "NOAUTH", "give the password")
	c.Password = "sesame"
	refuses(t, c, "WRONGPASS", "check the user name and the password")
	c.Password = "open sesame"
	decidesThere(t, c)
	c.DB = 16
	refuses(t, c, "DB index is out of range", "check the number")
	c.DB, c.Cluster = 0, true
	refuses(t, c, "cluster support disabled", "not a node of a Redis Cluster")
	c.Cluster = false

	admin := srv.client()
	if err := admin.Do(context.Background(), "AUTH", "open sesame").Err(); err != nil {
		t.Fatal(err)
	}
	info, err := admin.Info(context.Background(), "keyspace").Result()
	if err != nil || !strings.Contains(info, "db3:") || strings.Contains(info, "db0:") {
		t.Errorf("the counters are in %q, %v", info, err)
	}
}

// A11: a user of an access list that may do no more than Weir does, on the keys
// that are Weir's. docs/redis.md names the same commands.
func TestUserOfAnAccessList(t *testing.T) {
	srv := startServer(t)
	allowUser(srv, "+select")
	c := redisstore.Config{Addrs: []string{srv.addr()}, Username: "weir", Password: "secret", DB: 3}
	decidesThere(t, c)
	if denied := srv.do("ACL", "LOG").([]any); len(denied) != 0 {
		t.Errorf("denied: %v", denied)
	}
	c.Prefix = "others:"
	refuses(t, c, "NOPERM", "allow this user")
	c.Prefix = ""
	for _, command := range listed[1:] {
		allowUser(srv, "+select", "-"+strings.TrimPrefix(command, "+"))
		refuses(t, c, "allow this user")
	}
	allowUser(srv, "+select", "-info")
	p := newPatient(t, c)
	await(t, "it is logged that memory is not watched", func() bool { return p.log.count("may not use INFO") == 1 })
}

// listed are the commands that docs/redis.md lists. EVAL, SCRIPT LOAD and INFO can be done without.
var listed = []string{"+info +eval +script|load", "+evalsha", "+time", "+get", "+set", "+del", "+getrange", "+setrange",
	"+type",
	"+pexpire", "+pttl", "+exists", "+hset", "+hmget", "+hlen", "+zadd", "+zrem", "+zcard", "+zrange", "+zrangebyscore",
	"+zremrangebyscore"}

// A node of a Redis Cluster that is not treated as one answers only some keys.
func TestNodeOfAClusterAsAServer(t *testing.T) {
	t.Parallel()
	for _, m := range startCluster(t) {
		refuses(t, redisstore.Config{Addrs: []string{m.addr()}}, "node of a Redis Cluster: treat it as one")
	}
}

// allowUser allows a user what Weir does, and more commands.
func allowUser(srv *server, more ...any) {
	srv.tb.Helper()
	args := []any{"ACL", "SETUSER", "weir", "reset", "on", ">secret", "~weir:*"}
	for _, command := range strings.Fields(strings.Join(listed, " ")) {
		args = append(args, command)
	}
	srv.do(append(args, more...)...)
}

// On a Redis Cluster the client asks for the slots, too, and for nothing else, also while a
// slot moves.
func TestUserOfAnAccessListOfACluster(t *testing.T) {
	t.Parallel()
	masters := startCluster(t)
	for _, m := range masters {
		allowUser(m, "+cluster|slots", "+asking")
	}
	c := clusterConfig(masters)
	c.Username, c.Password = "weir", "secret"
	decidesThere(t, c)
	s := &slots{tb: t, masters: masters, store: openStore(t, c)}
	r := &limiter.Rule{Name: "r", Limits: limitsOf(t, 2, 1)}
	a, b := s.on(masters[0], r), s.on(masters[1], r)
	s.one(a)
	if d := s.one(a, b); d.Allowed || d.Source != limiter.SourceRedis || s.left(b) != 1 {
		t.Errorf("allowed %v by %s, %d left", d.Allowed, d.Source, s.left(b))
	}
	if e, err := s.store.Explain(context.Background(), arith.Instant{}, charge(a), nil); err != nil ||
		len(e.Limits) != 2 {
		t.Errorf("%+v, %v", e, err)
	}
	slot := masters[0].do("CLUSTER", "KEYSLOT", s.name(a))
	masters[1].do("CLUSTER", "SETSLOT", slot, "IMPORTING", masters[0].do("CLUSTER", "MYID"))
	masters[0].do("CLUSTER", "SETSLOT", slot, "MIGRATING", masters[1].do("CLUSTER", "MYID"))
	masters[0].do("MIGRATE", "127.0.0.1", masters[1].port, "", 0, 5000, "KEYS", s.name(a),
		strings.TrimSuffix(s.name(a), "l0")+"l1")
	if d := s.one(a); d.Source != limiter.SourceRedis {
		t.Errorf("%s decides while a slot moves", d.Source)
	}
	for _, m := range masters {
		if denied := m.do("ACL", "LOG").([]any); len(denied) != 0 {
			t.Errorf("denied: %v", denied)
		}
		if n := m.calls("command"); n != 0 {
			t.Errorf("the list of commands was asked for %d times", n)
		}
	}
}

func TestUnixSocket(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	startServer(t, "--unixsocket", path)
	decidesThere(t, redisstore.Config{Addrs: []string{path}})
}

// certificate makes a certificate for 127.0.0.1, and files with it, its key and its authority.
func certificate(t *testing.T) (files certstest.Paths, pool *x509.CertPool) {
	t.Helper()
	ca := certstest.New(t, "redis")
	pool = x509.NewCertPool()
	pool.AppendCertsFromPEM(ca.PEM)
	return ca.Write(t, t.TempDir(), certstest.Leaf{Hosts: []string{"127.0.0.1"}}), pool
}

func TestTLS(t *testing.T) {
	files, pool := certificate(t)
	tlsPort := freePort(t)
	startServer(t, "--tls-port", strconv.Itoa(tlsPort), "--tls-cert-file", files.Cert, "--tls-key-file", files.Key,
		"--tls-auth-clients", "no")
	c := redisstore.Config{Addrs: []string{fmt.Sprint("127.0.0.1:", tlsPort)}}
	c.TLS = &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}
	decidesThere(t, c)
	c.TLS = &tls.Config{RootCAs: x509.NewCertPool(), MinVersion: tls.VersionTLS12}
	refuses(t, c, "unknown authority", "give the authority")
}

// A Redis that wants certificates of its clients gets one. Without one it refuses the configuration, or, by
// TLS 1.3, whose server may close a connection before its client has read why, the store is not ready.
func TestClientCertificate(t *testing.T) {
	files, pool := certificate(t)
	port := freePort(t)
	startServer(t, "--tls-port", strconv.Itoa(port), "--tls-cert-file", files.Cert, "--tls-key-file", files.Key,
		"--tls-ca-cert-file", files.CA, "--tls-auth-clients", "yes")
	c := redisstore.Config{Addrs: []string{fmt.Sprint("127.0.0.1:", port)}, Timeout: patience,
		TLS: &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}}
	switch s, err := redisstore.Open(t.Context(), c); {
	case err != nil && (!errors.Is(err, limiter.ErrInvalid) || !strings.Contains(err.Error(), "give a certificate")):
		t.Error(err)
	case err == nil:
		if s.Extras().Ready() == nil {
			t.Error("the store is ready without a certificate")
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
	pair, err := tls.LoadX509KeyPair(files.Cert, files.Key)
	if err != nil {
		t.Fatal(err)
	}
	c.TLS.Certificates = []tls.Certificate{pair}
	decidesThere(t, c)
}

// startSentinel starts a Sentinel that knows a master by the name weir, and its replicas, which
// take what it writes from a port.
func startSentinel(t *testing.T, master *server, from int, replicas ...*server) *server {
	t.Helper()
	for _, r := range replicas {
		r.do("REPLICAOF", "127.0.0.1", from)
		await(t, "the replica is in step", func() bool {
			return strings.Contains(fmt.Sprint(r.do("INFO", "replication")), "master_link_status:up")
		})
	}
	port := freePort(t)
	conf := filepath.Join(t.TempDir(), "sentinel.conf")
	text := fmt.Sprintf("port %d\nbind 127.0.0.1\nsentinel monitor weir 127.0.0.1 %d 1\n"+
		"sentinel down-after-milliseconds weir 200\nsentinel failover-timeout weir 2000\n", port, master.port)
	if err := os.WriteFile(conf, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	sentinel := startServerAt(t, port, conf, "--sentinel")
	await(t, "the sentinel knows the replicas", func() bool {
		return strings.Contains(fmt.Sprint(sentinel.do("INFO", "sentinel")), fmt.Sprint("slaves=", len(replicas)))
	})
	return sentinel
}

// With Sentinels the store follows the master.
func TestSentinel(t *testing.T) {
	t.Parallel()
	master, replica := startServer(t), startServer(t)
	sentinel := startSentinel(t, master, master.port, replica)
	p := newPatient(t, redisstore.Config{Addrs: []string{sentinel.addr()}, SentinelMaster: "weir"})
	p.untilFrom("/local", limiter.SourceRedis)
	left := p.ask("/local").Limit(0).Remaining
	await(t, "the replica has the charge", func() bool { return len(replica.do("KEYS", "*:day").([]any)) == 1 })
	master.stop()
	p.untilFrom("/open", limiter.SourceFallbackOpen)
	p.untilFrom("/open", limiter.SourceRedis)
	if d := p.ask("/local"); d.Limit(0).Remaining > left {
		t.Errorf("%d are left after the failover, %d before", d.Limit(0).Remaining, left)
	}
}

// With Replicas, what fewer have is decided by policy, and counted once they have it again.
func TestTooFewReplicas(t *testing.T) {
	t.Parallel()
	master, replica := startServer(t), startServer(t)
	replica.do("REPLICAOF", "127.0.0.1", master.port)
	c := redisstore.Config{Addrs: []string{master.addr()}, Replicas: 1, Timeout: faultTimeout}
	p := newPatient(t, c)
	p.untilFrom("/closed", limiter.SourceRedis)
	if d := p.ask("/closed"); !d.Allowed {
		t.Fatal("denied")
	}
	replica.do("REPLICAOF", "NO", "ONE") // as when it is promoted, and the master does not know
	if d := p.ask("/closed"); d.Allowed || d.Source != limiter.SourceFallbackClosed {
		t.Errorf("no replica has the charge: allowed %v by %s", d.Allowed, d.Source)
	}
	await(t, "it is logged", func() bool { return p.log.count("too few replicas") > 0 })
	p.untilFrom("/open", limiter.SourceFallbackOpen)
	replica.do("REPLICAOF", "127.0.0.1", master.port)
	p.untilFrom("/closed", limiter.SourceRedis)
}

// A failover to a replica that lags grants again what the replica does not have; with Replicas, nothing.
func TestFailoverToAReplicaThatLags(t *testing.T) {
	t.Parallel()
	for _, row := range []struct{ replicas, granted int }{{0, 30 + 15}, {1, 30}} {
		t.Run(fmt.Sprint(row.replicas, " replicas"), func(t *testing.T) {
			t.Parallel()
			master, replica := startServer(t), startServer(t)
			r := startRelay(t, master.addr())
			sentinel := startSentinel(t, master, r.Addr().(*net.TCPAddr).Port, replica)
			p := newPatient(t, redisstore.Config{
				Addrs: []string{sentinel.addr()}, SentinelMaster: "weir", Replicas: row.replicas, Timeout: faultTimeout,
			})
			p.untilFrom("/open", limiter.SourceRedis)
			granted := 0
			ask := func() *weir.Decision {
				d := p.ask("/closed")
				if d.Allowed {
					granted++
				}
				return d
			}
			for range 10 {
				if d := ask(); !d.Allowed || d.Source != limiter.SourceRedis {
					t.Fatalf("%v by %s", d.Allowed, d.Source)
				}
			}
			await(t, "the replica has them", func() bool { return len(replica.do("KEYS", "*closed*:day").([]any)) == 1 })
			have := fmt.Sprint(master.do("GET", replica.do("KEYS", "*closed*:day").([]any)[0]))
			await(t, "the replica has all", func() bool {
				return fmt.Sprint(replica.do("GET", replica.do("KEYS", "*closed*:day").([]any)[0])) == have
			})
			hold := newTrap()
			hold.all, hold.replies = true, true
			release := sync.OnceFunc(func() { close(hold.release) })
			defer release()
			r.trap.Store(hold)
			for range 15 {
				ask()
			}
			master.stop()
			await(t, "the replica is the master", func() bool {
				return strings.Contains(fmt.Sprint(replica.do("INFO", "replication")), "role:master")
			})
			startServer(t).do("REPLICAOF", "127.0.0.1", replica.port)
			await(t, "Redis denies", func() bool {
				d := ask()
				return !d.Allowed && d.Source == limiter.SourceRedis
			})
			if granted != row.granted {
				t.Errorf("%d granted of 30, want %d", granted, row.granted)
			}
		})
	}
}

func TestConfig(t *testing.T) {
	for _, row := range []struct {
		config redisstore.Config
		says   string
	}{
		{redisstore.Config{}, "an address is missing"},
		{redisstore.Config{Addrs: []string{""}}, "an address is missing"},
		{redisstore.Config{Addrs: []string{"a:1"}, DB: -1}, "database -1"},
		{redisstore.Config{Addrs: []string{"a:1"}, DB: 1, Cluster: true}, "database 1"},
		{redisstore.Config{Addrs: []string{"a:1", "b:1"}, DB: 1}, "database 1"},
		{redisstore.Config{Addrs: []string{"a:1"}, Cluster: true, SentinelMaster: "m"}, "not both"},
		{redisstore.Config{Addrs: []string{"a:1"}, Timeout: time.Hour}, "timeout 1h0m0s"},
		{redisstore.Config{Addrs: []string{"a:1"}, Timeout: -1}, "timeout -1ns"},
		{redisstore.Config{Addrs: []string{"a:1"}, Nodes: -1}, "nodes -1"},
		{redisstore.Config{Addrs: []string{"a:1"}, Replicas: 17}, "17 replicas"},
		{redisstore.Config{Addrs: []string{"a:1"}, Username: "u"}, "has no password"},
		{redisstore.Config{Addrs: []string{"a:1"}, Prefix: "{w}:"}, "brace"},
	} {
		s, err := redisstore.Open(context.Background(), row.config)
		if s != nil || !errors.Is(err, limiter.ErrInvalid) || !strings.Contains(err.Error(), row.says) {
			t.Errorf("%+v: %v, want one that says %q", row.config, err, row.says)
		}
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := redisstore.Open(ctx, redisstore.Config{Addrs: []string{"a:1"}}); !errors.Is(err, context.Canceled) {
		t.Errorf("with a context that is over: %v", err)
	}
}

func TestClosedStore(t *testing.T) {
	srv := startServer(t)
	s := openStore(t, redisstore.Config{Addrs: []string{srv.addr()}})
	for range 2 {
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
	var c arith.Charge
	var d limiter.Decision
	_, resetErr := s.Reset(context.Background(), arith.Instant{}, &c, nil)
	_, explainErr := s.Explain(context.Background(), arith.Instant{}, &c, nil)
	for _, err := range []error{
		s.Decide(context.Background(), arith.Instant{}, []*arith.Charge{&c}, []*limiter.Decision{&d}, nil),
		s.Refund(context.Background(), arith.Instant{}, &c, limiter.Receipt{}, nil), resetErr, explainErr,
	} {
		if !errors.Is(err, redisstore.ErrClosed) {
			t.Errorf("got %v", err)
		}
	}
}
