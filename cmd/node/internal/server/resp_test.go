package server

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weirlimit/weir/cluster"
	"github.com/weirlimit/weir/internal/certs/certstest"
)

// throttled asks for a key with a limit of 2 in a day, by a stock client.
func throttled(t *testing.T, c *redis.Client, key string) string {
	t.Helper()
	out, err := c.Do(t.Context(), "CL.THROTTLE", key, 1, 1, 86400).Int64Slice()
	if err != nil {
		return err.Error()
	}
	return fmt.Sprint(out[:3])
}

func redisClient(t *testing.T, o *redis.Options) *redis.Client {
	t.Helper()
	o.MaxRetries, o.ContextTimeoutEnabled, o.DisableIdentity = -1, true, true
	c := redis.NewClient(o)
	t.Cleanup(func() { c.Close() })
	return c
}

// Three members count the keys of Redis clients together, whichever is asked, and a flush at
// one of them holds at all.
func TestRESPOnThreeMembers(t *testing.T) {
	membersInOneProcess(t)
	var clients []*redis.Client
	var servers []*Server
	var join []string
	for i := range 3 {
		c, _ := plain()
		c.RedisListen, c.AllowRequestLimits, c.AllowReset = "127.0.0.1:0", true, true
		c.Cluster = &cluster.Config{Name: fmt.Sprint("node-", i), PeerAddr: "127.0.0.1:0", GossipAddr: "127.0.0.1:0",
			Join: join, Deadline: time.Second}
		s := start(t, c)
		eventually(t, "the member is ready", func() bool { return s.Ready() == nil })
		if i == 0 {
			join = []string{s.Node().Cluster().Members()[0].Address}
		}
		servers = append(servers, s)
		clients = append(clients, redisClient(t, &redis.Options{Addr: s.Addresses().Redis}))
	}
	for key := range 20 {
		name := fmt.Sprint("key-", key)
		for i, want := range []string{"[0 2 1]", "[0 2 0]", "[1 2 0]"} {
			if got := throttled(t, clients[i], name); got != want {
				t.Errorf("%s at member %d: %s, want %s", name, i, got, want)
			}
		}
	}
	pipe := clients[2].TxPipeline() // between MULTI and EXEC
	var replies []*redis.Cmd
	for range 3 {
		replies = append(replies, pipe.Do(t.Context(), "CL.THROTTLE", "tx", 1, 1, 86400))
	}
	if _, err := pipe.Exec(t.Context()); err != nil {
		t.Error(err)
	}
	for i, want := range []string{"[0 2 1]", "[0 2 0]", "[1 2 0]"} {
		if out, err := replies[i].Int64Slice(); err != nil || fmt.Sprint(out[:3]) != want {
			t.Errorf("of a transaction: %v, %v, want %s", out, err, want)
		}
	}
	of := redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{servers[1].Addresses().Redis}, MaxRedirects: -1})
	t.Cleanup(func() { of.Close() })
	for _, want := range []string{"[0 2 1]", "[0 2 0]", "[1 2 0]"} {
		if out, err := of.Do(t.Context(), "CL.THROTTLE", "of a cluster", 1, 1, 86400).Int64Slice(); err != nil ||
			fmt.Sprint(out[:3]) != want {
			t.Errorf("by a client of a Redis Cluster: %v, %v, want %s", out, err, want)
		}
	}
	if n, err := clients[2].Del(t.Context(), "key-1", "key-2", "none").Result(); n != 2 || err != nil {
		t.Errorf("DEL: %d, %v", n, err)
	}
	if got := throttled(t, clients[0], "key-1"); got != "[0 2 1]" {
		t.Errorf("after DEL at another member: %s", got)
	}
	if err := clients[1].FlushDB(t.Context()).Err(); err != nil {
		t.Error(err)
	}
	if got := throttled(t, clients[1], "key-3"); got != "[0 2 1]" {
		t.Errorf("after FLUSHDB at this member: %s", got)
	}
	// Another member learns of the flush within 100 ms. Until then it denies by the old counter, which charges nothing.
	got := ""
	eventually(t, "another member learns of the flush", func() bool {
		got = throttled(t, clients[0], "key-3")
		return got != "[1 2 0]"
	})
	if got != "[0 2 0]" {
		t.Errorf("after FLUSHDB at another member: %s", got)
	}
	for i, s := range servers {
		if _, body := get(t, "http://"+s.Addresses().Admin+"/metrics"); !strings.Contains(body, `method="RESP CL.THROTTLE"`) {
			t.Errorf("member %d has no metric of its replies", i)
		}
	}
}

// With TLS and permissions a client shows a certificate, and its tenant has keys of its own.
// One without is refused, and so is one without TLS.
func TestRESPWithTLS(t *testing.T) {
	authority := certstest.New(t, "clients")
	paths := authority.Write(t, t.TempDir(), certstest.Leaf{Name: "node", Hosts: []string{"127.0.0.1"}})
	c, _ := plain()
	c.RedisListen = "127.0.0.1:0"
	c.TLS = &TLSConfig{CertFile: paths.Cert, KeyFile: paths.Key, ClientCAFile: paths.CA,
		ClientCert: tls.VerifyClientCertIfGiven}
	c.Permissions = file(t, `
identities:
  - {name: shop, certificate: {cn: shop}, tenant: shop, may: {check: true, limits: true, reset: true}}
  - {name: bank, certificate: {cn: bank}, tenant: bank, may: {check: true, limits: true}}
  - {name: poor, certificate: {cn: poor}, may: {check: true}}
`)
	s := start(t, c)
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(authority.PEM)
	as := func(name string) *redis.Client {
		config := &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS13}
		if name != "" {
			cert, key := authority.Issue(t, certstest.Leaf{Name: name})
			pair, err := tls.X509KeyPair(cert, key)
			if err != nil {
				t.Fatal(err)
			}
			config.Certificates = []tls.Certificate{pair}
		}
		return redisClient(t, &redis.Options{Addr: s.Addresses().Redis, TLSConfig: config, Protocol: 2})
	}
	shop, bank := as("shop"), as("bank")
	for i, want := range []struct {
		c    *redis.Client
		want string
	}{{shop, "[0 2 1]"}, {shop, "[0 2 0]"}, {shop, "[1 2 0]"}, {bank, "[0 2 1]"}} {
		if got := throttled(t, want.c, "k"); got != want.want {
			t.Errorf("check %d: %s, want %s", i, got, want.want)
		}
	}
	if err := shop.FlushDB(t.Context()).Err(); err != nil {
		t.Error(err)
	}
	if err := bank.FlushDB(t.Context()).Err(); err == nil || !strings.HasPrefix(err.Error(), "NOPERM ") {
		t.Errorf("FLUSHDB of one who may not: %v", err)
	}
	if got := throttled(t, shop, "k") + throttled(t, bank, "k"); got != "[0 2 1][0 2 0]" {
		t.Errorf("after the flush of one tenant: %s", got)
	}
	for name, want := range map[string]string{"": "NOAUTH ", "poor": "NOPERM ", "nobody": "NOPERM "} {
		if got := throttled(t, as(name), "k"); !strings.HasPrefix(got, want) {
			t.Errorf("%q: %s, want %s", name, got, want)
		}
	}
	client := redisClient(t, &redis.Options{Addr: s.Addresses().Redis, Protocol: 2})
	if got := throttled(t, client, "k"); !strings.Contains(got, "EOF") && !strings.Contains(got, "reset") {
		t.Errorf("without TLS: %s", got)
	}
}
