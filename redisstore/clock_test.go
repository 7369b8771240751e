package redisstore_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/limiter/arith"
	"github.com/weirlimit/weir/redisstore"
)

// near reports whether an instant is the given one, as far as clocks tell it.
func near(at limiter.Tick, want time.Time) bool { return at.Time().Sub(want).Abs() < 30*time.Minute }

// A store of a cluster learns the server's clock also if all checks have several keys.
func TestClockIsLearntFromChecksOfSeveralKeys(t *testing.T) {
	t.Parallel()
	s := newSlots(t, nil)
	r := &limiter.Rule{Name: "r", Limits: limitsOf(t, 1, 1000)}
	a, b := s.on(s.masters[0], r), s.on(s.masters[1], r)
	s.store.SetAhead(time.Hour)
	if at := arith.Fields(&s.one(a, b).Receipt).Time; !near(at, time.Now().Add(time.Hour)) {
		t.Fatalf("the first check is decided at %v", at.Time())
	}
	if at := arith.Fields(&s.one(a, b).Receipt).Time; !near(at, time.Now()) {
		t.Errorf("a later check is decided at %v", at.Time())
	}
}

// A store asks for the server's clock when it opens, before any check.
func TestClockIsLearntAtOpen(t *testing.T) {
	t.Parallel()
	p := startPuppet(t, func(int64) string { return "" })
	p.ahead.Store(int64(24 * time.Hour))
	if at := arith.Fields(&p.decide(t).Receipt).Time; !near(at, time.Now().Add(24*time.Hour)) {
		t.Errorf("the policy decides at %v", at.Time())
	}
}

// A caller's clock is not taken for the server's.
func TestCallersClockIsNotLearnt(t *testing.T) {
	t.Parallel()
	srv := startServer(t)
	store := openStore(t, redisstore.Config{Addrs: []string{srv.addr()}})
	c := charge(arith.Key{Hash: arith.Hash{Hi: 1}, Cost: 1,
		Rule: &limiter.Rule{Name: "r", Limits: limitsOf(t, 1, 1000)}})
	decide := func(now arith.Instant) (d limiter.Decision) {
		t.Helper()
		if err := store.Decide(context.Background(), now, []*arith.Charge{c}, []*limiter.Decision{&d}, nil); err != nil {
			t.Fatal(err)
		}
		return d
	}
	if d := decide(arith.At(limiter.TickOf(time.Now().Add(-24 * time.Hour)))); d.Source != limiter.SourceRedis {
		t.Fatalf("%s decides", d.Source)
	}
	srv.stop()
	if d := decide(arith.Instant{}); d.Source != limiter.SourceFallbackLocal ||
		!near(arith.Fields(&d.Receipt).Time, time.Now()) {
		t.Errorf("%s decides at %v", d.Source, arith.Fields(&d.Receipt).Time.Time())
	}
}

// Checks that wait for Redis when the store closes are decided at once.
func TestCloseEndsWaiting(t *testing.T) {
	t.Parallel()
	srv := startServer(t)
	store, err := redisstore.Open(context.Background(),
		redisstore.Config{Addrs: []string{srv.addr()}, Timeout: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	srv.do("CLIENT", "PAUSE", 60_000, "WRITE")
	rule := &limiter.Rule{Name: "r", Limits: limitsOf(t, 1, 1000)}
	done := make(chan error, 500)
	for i := range cap(done) {
		go func() {
			var d limiter.Decision
			c := charge(arith.Key{Hash: arith.Hash{Hi: uint64(i)}, Cost: 1, Rule: rule})
			done <- store.Decide(context.Background(), arith.Instant{}, []*arith.Charge{c}, []*limiter.Decision{&d}, nil)
		}()
	}
	await(t, "two round trips are under way", func() bool { return store.Waiting() > 0 })
	if err := store.Close(); err != nil {
		t.Fatal(err)
	}
	for i := range cap(done) {
		select {
		case err := <-done:
			if err != nil && !errors.Is(err, redisstore.ErrClosed) {
				t.Error(err)
			}
		case <-time.After(30 * time.Second):
			t.Fatalf("%d of %d checks wait for a store that is closed", cap(done)-i, cap(done))
		}
	}
}
