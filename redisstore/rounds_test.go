package redisstore_test

import (
	"context"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/limiter/arith"
	"github.com/weirlimit/weir/limiter/limitertest"
	"github.com/weirlimit/weir/redisstore"
)

// slots finds keys on the masters of a cluster, and decides charges of them.
type slots struct {
	tb      testing.TB
	masters []*server
	store   *redisstore.Store
	next    uint64
}

func newSlots(tb testing.TB, change func(*redisstore.Config)) *slots {
	tb.Helper()
	masters := startCluster(tb)
	c := clusterConfig(masters)
	if change != nil {
		change(&c)
	}
	return &slots{tb: tb, masters: masters, store: openStore(tb, c)}
}

// limitsOf returns so many equal limits a day.
func limitsOf(tb testing.TB, n int, most int64) (ls []*limiter.Limit) {
	tb.Helper()
	for i := range n {
		l := limitertest.Limit(tb, limiter.Spec{Name: fmt.Sprint("l", i), Limit: most, Window: 24 * time.Hour})
		ls = append(ls, l)
	}
	return ls
}

// on returns a new key of a rule whose counters are on a master.
func (s *slots) on(m *server, r *limiter.Rule) arith.Key {
	s.tb.Helper()
	for {
		s.next++
		k := arith.Key{Hash: arith.Hash{Hi: s.next}, Rule: r, Cost: 1}
		if of, _ := owner(s.tb, s.masters, s.name(k)); of == m {
			return k
		}
	}
}

// name returns the name of a key's first counter in Redis.
func (s *slots) name(k arith.Key) string {
	hash := binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint64(nil, k.Hash.Hi), k.Hash.Lo)
	return "weir:{" + k.Rule.Name + ":" + base64.RawURLEncoding.EncodeToString(hash) + "}:l0"
}

func charge(ks ...arith.Key) *arith.Charge {
	var c arith.Charge
	for _, k := range ks {
		c.Add(k)
	}
	return &c
}

// decide decides charges as one batch.
func (s *slots) decide(ctx context.Context, cs ...*arith.Charge) ([]*limiter.Decision, error) {
	ds := make([]*limiter.Decision, len(cs))
	for i := range ds {
		ds[i] = new(limiter.Decision)
	}
	return ds, s.store.Decide(ctx, arith.Instant{}, cs, ds, nil)
}

// one decides a charge of some keys.
func (s *slots) one(ks ...arith.Key) *limiter.Decision {
	s.tb.Helper()
	ds, err := s.decide(context.Background(), charge(ks...))
	if err != nil {
		s.tb.Fatal(err)
	}
	return ds[0]
}

// left returns what remains of the limit with the least, for a key.
func (s *slots) left(k arith.Key) uint64 {
	s.tb.Helper()
	c := charge(k)
	c.Peek = true
	ds, err := s.decide(context.Background(), c)
	if err != nil {
		s.tb.Fatal(err)
	}
	least := ds[0].Limit(0).Remaining
	for i := range ds[0].Len() {
		least = min(least, ds[0].Limit(i).Remaining)
	}
	return least
}

// A check of a batch is not denied for what another check of the batch reserved and did
// not get.
func TestBatchOfReservations(t *testing.T) {
	t.Parallel()
	var trips atomic.Int64
	s := newSlots(t, func(c *redisstore.Config) { c.Observe = func(int, time.Duration, error) { trips.Add(1) } })
	r := &limiter.Rule{Name: "r", Limits: limitsOf(t, 1, 1)}
	full := s.on(s.masters[0], r)
	s.one(full)
	for name, several := range map[string]bool{"a check of several keys": true, "a check of one key": false} {
		key, other := s.on(s.masters[1], r), s.on(s.masters[2], r)
		second := charge(key)
		if several {
			second = charge(other, key)
		}
		ds, err := s.decide(context.Background(), charge(full, key), second, charge(full, key))
		if err != nil {
			t.Fatal(err)
		}
		if ds[0].Allowed || !ds[1].Allowed || ds[2].Allowed {
			t.Errorf("%s: allowed %v, %v, %v; only the second is to be", name, ds[0].Allowed, ds[1].Allowed, ds[2].Allowed)
		}
	}

	// Without common keys all are asked at once: one round trip to each master.
	var cs []*arith.Charge
	for range 20 {
		cs = append(cs, charge(s.on(s.masters[0], r), s.on(s.masters[1], r)), charge(s.on(s.masters[2], r)))
	}
	trips.Store(0)
	ds, err := s.decide(context.Background(), cs...)
	if err != nil {
		t.Fatal(err)
	}
	for i, d := range ds {
		if !d.Allowed || d.Source != limiter.SourceRedis {
			t.Errorf("charge %d: allowed %v by %s", i, d.Allowed, d.Source)
		}
	}
	if n := trips.Load(); n != 3 {
		t.Errorf("40 charges without common keys took %d round trips, want 3", n)
	}
}

// A caller who goes leaves no reservation behind, and what the batch has not asked yet is
// not asked.
func TestCallerGoesWithReservations(t *testing.T) {
	t.Parallel()
	s := newSlots(t, func(c *redisstore.Config) { c.Timeout = time.Minute })
	r := &limiter.Rule{Name: "r", Limits: limitsOf(t, 1, 5)}
	open, full := s.on(s.masters[0], r), s.on(s.masters[1], r)
	for range 5 {
		s.one(full)
	}
	s.masters[1].do("CLIENT", "PAUSE", 60_000, "WRITE")
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	done := make(chan error, 1)
	go func() {
		_, err := s.decide(ctx, charge(open, full), charge(open))
		done <- err
	}()
	await(t, "the first part is reserved", func() bool { return s.left(open) == 4 })
	cancel()
	s.masters[1].do("CLIENT", "UNPAUSE")
	select {
	case err := <-done:
		if !errors.Is(err, context.Canceled) {
			t.Errorf("the batch of a caller who went ends with %v", err)
		}
	case <-time.After(30 * time.Second):
		t.Fatal("the batch of a caller who went does not end")
	}
	if n := s.left(open); n != 5 {
		t.Errorf("%d of 5 are left: the caller who went left a charge", n)
	}
}

// A receipt has room for 64 limits; reservations are cancelled beyond that, too, in Redis
// and in this process.
func TestReservationsOfManyLimits(t *testing.T) {
	t.Parallel()
	s := newSlots(t, nil)
	r := &limiter.Rule{Name: "r", Limits: limitsOf(t, limiter.MaxLimits, 5), OnUnreachable: limiter.UnreachableOpen}
	full := s.on(s.masters[0], r)
	full.Cost = 5
	s.one(full)
	full.Cost = 1
	keys := []arith.Key{full}
	for range 6 {
		keys = append(keys, s.on(s.masters[1], r))
	}
	if d := s.one(keys...); d.Allowed || d.Source != limiter.SourceRedis {
		t.Fatalf("allowed %v by %s", d.Allowed, d.Source)
	}
	for i, k := range keys[1:] {
		if n := s.left(k); n != 5 {
			t.Errorf("%d of 5 are left of key %d", n, i+1)
		}
	}
	s.masters[1].stop()
	await(t, "the policy decides", func() bool { return s.one(keys[1]).Source == limiter.SourceFallbackOpen })
	if d := s.one(keys...); d.Allowed || d.Source != limiter.SourceFallbackOpen {
		t.Fatalf("allowed %v by %s", d.Allowed, d.Source)
	}
	for i, k := range keys[2:] {
		if n := s.left(k); n != 5 {
			t.Errorf("%d of 5 are left of key %d by policy", n, i+2)
		}
	}
}
