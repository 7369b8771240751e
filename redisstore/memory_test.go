package redisstore_test

import (
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/redisstore"
)

// A server that may evict counters is warned of when the store opens; that it evicts is warned of, and
// counted, when it does.
func TestEvictions(t *testing.T) {
	srv := startServer(t, "--maxmemory", "3mb", "--maxmemory-policy", "noeviction")
	log := &logBuffer{}
	s := openStore(t, redisstore.Config{Addrs: []string{srv.addr()}, Log: slog.New(slog.NewJSONHandler(log, nil))})
	node := newNode(t, s, policyRules)
	if text := log.String(); text != "" || node.Warnings() != nil {
		t.Errorf("without evictions: %s, %v", text, node.Warnings())
	}
	srv.do("CONFIG", "SET", "maxmemory-policy", "volatile-lru")
	s.LookAtMemory()
	s.LookAtMemory()
	if log.count("may evict counters") != 1 || log.count("has evicted") != 0 || s.Evicted() != 0 {
		t.Errorf("with a policy that evicts: %d evicted, %s", s.Evicted(), log)
	}
	if w := node.Warnings(); len(w) != 1 || !strings.Contains(w[0], srv.addr()) ||
		!strings.Contains(w[0], "volatile-lru") {
		t.Errorf("warnings: %v", w)
	}
	other := srv.client()
	for i := range 100 { // another application's keys; what does not fit is an error
		_ = other.Set(t.Context(), fmt.Sprint("other", i), strings.Repeat("x", 30_000), time.Hour).Err()
	}
	s.LookAtMemory()
	evicted := s.Evicted()
	if evicted == 0 || log.count("redis has evicted keys") != 1 {
		t.Errorf("%d evicted; the log has %s", evicted, log)
	}
	srv.stop()
	srv.start() // it counts from zero
	s.LookAtMemory()
	if s.Evicted() != evicted || log.count("redis has evicted keys") != 1 {
		t.Errorf("after a restart: %d evicted, %s", s.Evicted(), log)
	}
	srv.do("CONFIG", "SET", "maxmemory-policy", "noeviction")
	s.LookAtMemory()
	if node.Warnings() != nil {
		t.Errorf("then: %v", node.Warnings())
	}
}

// A Redis that was never usable leaves the node not ready; one that was and is gone does not.
func TestReadyOnceRedisWorked(t *testing.T) {
	srv := &server{tb: t, dir: t.TempDir(), port: freePort(t)}
	t.Cleanup(srv.stop)
	p := newPatient(t, redisstore.Config{Addrs: []string{srv.addr()}})
	if err := p.Ready(); err == nil || errors.Is(err, weir.ErrClosed) || !strings.Contains(err.Error(), srv.addr()) {
		t.Errorf("without Redis: %v", err)
	}
	if d := p.ask("/open"); !d.Allowed {
		t.Error("policies do not decide")
	}
	srv.start()
	await(t, "the node is ready", func() bool { return p.Ready() == nil })
	srv.stop()
	for range 5 {
		p.ask("/open")
	}
	if err := p.Ready(); err != nil {
		t.Errorf("while Redis is gone: %v", err)
	}
}

// Without the replicas that it needs Redis was never usable, and the log names the flag.
func TestReadyOnceReplicasFollowed(t *testing.T) {
	t.Parallel()
	master := startServer(t)
	p := newPatient(t, redisstore.Config{Addrs: []string{master.addr()}, Replicas: 1, Timeout: faultTimeout})
	p.untilFrom("/open", limiter.SourceFallbackOpen)
	if err := p.Ready(); err == nil {
		t.Error("the node is ready, and no check is decided by Redis")
	}
	if p.log.count("--redis-replicas") == 0 || p.log.count("Config.Replicas") > 0 {
		t.Errorf("the log has %s", p.log)
	}
	replica := startServer(t)
	replica.do("REPLICAOF", "127.0.0.1", master.port)
	await(t, "the node is ready", func() bool { return p.Ready() == nil })
}

// Sentinels that do not know the name leave the node not ready, and the log says why.
func TestSentinelsDoNotKnowTheName(t *testing.T) {
	master := startServer(t)
	sentinel := startSentinel(t, master, master.port)
	p := newPatient(t, redisstore.Config{Addrs: []string{sentinel.addr()}, SentinelMaster: "another"})
	if err := p.Ready(); err == nil {
		t.Error("the node is ready")
	}
	if p.log.count("redis is unavailable") != 1 {
		t.Errorf("the log has %s", p.log)
	}
}
