package redisstore_test

import (
	"context"
	"log/slog"
	"testing"

	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/limiter/arith"
	"github.com/weirlimit/weir/redisstore"
)

// unassign takes a slot from its owner, so that no master serves it.
func unassign(tb testing.TB, masters []*server, key string) (from *server, slot int64) {
	tb.Helper()
	from, slot = owner(tb, masters, key)
	for _, m := range append([]*server{from}, masters...) {
		// Those who learned of it already refuse, with an error.
		_ = m.client().Do(context.Background(), "CLUSTER", "DELSLOTS", slot).Err()
	}
	return from, slot
}

// A slot without an owner fails the checks of its keys only, and is no outage.
func TestUnassignedSlot(t *testing.T) {
	t.Parallel()
	log := &logBuffer{}
	s := newSlots(t, func(c *redisstore.Config) {
		c.Log = slog.New(slog.NewJSONHandler(log, nil))
	})
	r := &limiter.Rule{Name: "r", Limits: limitsOf(t, 1, 1000)}
	lost, others := s.on(s.masters[1], r), []arith.Key{s.on(s.masters[0], r), s.on(s.masters[1], r),
		s.on(s.masters[2], r)}
	s.one(lost)
	from, slot := unassign(t, s.masters, s.name(lost))
	await(t, "the policy decides the keys of the slot", func() bool {
		return s.one(lost).Source == limiter.SourceFallbackLocal
	})
	for range 20 {
		if d := s.one(lost); d.Source != limiter.SourceFallbackLocal {
			t.Errorf("%s decides the keys of the slot", d.Source)
		}
		for i, k := range others {
			if d := s.one(k); d.Source != limiter.SourceRedis {
				t.Fatalf("%s decides on master %d; the log has %s", d.Source, i, log)
			}
		}
	}
	if log.count("redis is unavailable") != 0 || log.count("not decided by redis") != 1 {
		t.Errorf("the log has %s", log)
	}
	for _, m := range s.masters {
		m.do("CLUSTER", "SETSLOT", slot, "NODE", from.do("CLUSTER", "MYID"))
	}
	await(t, "Redis decides the keys of the slot", func() bool { return s.one(lost).Source == limiter.SourceRedis })
}

// The slot that a store writes to when it opens may be one without an owner.
func TestOpenWithUnassignedSlot(t *testing.T) {
	t.Parallel()
	masters := startCluster(t)
	log := &logBuffer{}
	c := clusterConfig(masters)
	c.Log = slog.New(slog.NewJSONHandler(log, nil))
	unassign(t, masters, "weir:{probe}!probe")
	s := &slots{tb: t, masters: masters, store: openStore(t, c)}
	r := &limiter.Rule{Name: "r", Limits: limitsOf(t, 1, 1000)}
	for _, m := range masters {
		if d := s.one(s.on(m, r)); d.Source != limiter.SourceRedis {
			t.Errorf("%s decides; the log has %s", d.Source, log)
		}
	}
	if log.count("redis is unavailable") != 0 {
		t.Errorf("the log has %s", log)
	}
}
