package redisstore_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/limiter/arith"
	"github.com/weirlimit/weir/limiter/limitertest"
	"github.com/weirlimit/weir/redisstore"
)

const slotsRule = "version: 1\nrules: [{name: r, key: [user], hold: 30s, id_ttl: 1m, limits: [{limit: 2, algorithm: " +
	"concurrency}, {name: hour, limit: 100, window: 1h, algorithm: fixed_window}]}]\n"

// A counter of slots lives as long as the last of its holds, also if only an extension prolongs that. It
// is gone, like all else of the key, when that is over.
func TestSlotsLiveAsLongAsTheirHolds(t *testing.T) {
	srv := startServer(t)
	s := newSubject(t, openStore(t, redisstore.Config{Addrs: []string{srv.addr()}}),
		strings.Replace(slotsRule, "hold: 30s", "hold: 24h", 1))
	r := weir.Request{User: "ada", ID: "1", Hold: time.Second}
	if d, err := s.Check(t.Context(), r); err != nil || !d.Allowed || arith.Fields(&d.Receipt).Charged != 0 {
		t.Fatalf("%+v, %v", d, err)
	}
	key := srv.do("KEYS", "*:concurrency").([]any)[0]
	r.Hold = 24 * time.Hour
	if a, err := s.Extend(t.Context(), r); err != nil || a.State != weir.AmendDone {
		t.Fatalf("%+v, %v", a, err)
	}
	if ttl := srv.do("PTTL", key).(int64); ttl < 24*3600*1000 {
		t.Errorf("the counter expires in %d ms, before its hold ends", ttl)
	}
	peek := func(after limiter.Tick, left uint64) {
		t.Helper()
		s.SetTime(s.now + after)
		if d, err := s.Peek(t.Context(), weir.Request{User: "ada"}); err != nil || d.Limit(0).Remaining != left {
			t.Errorf("%+v, %v", d, err)
		}
	}
	peek(24*limiter.Hour-1, 1)
	peek(1, 2)
	if left := srv.do("KEYS", "*:concurrency").([]any); len(left) != 0 {
		t.Errorf("%q is left", left)
	}
}

// Of many callers no more hold at a time than the limit says, by their own count, and none finds a slot
// that nobody gave back. A node by itself does not know what others hold: Redis does.
func TestSlotsOfManyCallers(t *testing.T) {
	srv := startServer(t)
	const limit = 5
	rules := fmt.Sprintf("version: 1\nrules: [{name: r, key: [user], hold: 1h, limits: [{limit: %d, algorithm: "+
		"concurrency}]}]\n", limit)
	var nodes []*weir.Node
	for range 2 {
		nodes = append(nodes, newNode(t, openStore(t, redisstore.Config{Addrs: []string{srv.addr()}}), rules))
	}
	var held, most, admitted atomic.Int64
	var callers sync.WaitGroup
	for c := range 16 {
		callers.Go(func() {
			for i := range 40 {
				r := weir.Request{User: "ada", ID: fmt.Sprint(c, "-", i)}
				d, err := nodes[c%2].Check(context.Background(), r)
				if err != nil || d.Source != limiter.SourceRedis {
					t.Errorf("%+v, %v", d, err)
					return
				}
				if !d.Allowed {
					continue
				}
				admitted.Add(1)
				for now, was := held.Add(1), most.Load(); now > was && !most.CompareAndSwap(was, now); was = most.Load() {
				}
				held.Add(-1)
				if _, err := nodes[i%2].Cancel(context.Background(), r); err != nil {
					t.Error(err)
				}
			}
		})
	}
	callers.Wait()
	if most.Load() > limit || admitted.Load() < limit {
		t.Errorf("%d were held at a time, %d in all", most.Load(), admitted.Load())
	}
	if d, err := nodes[0].Peek(t.Context(), weir.Request{User: "ada"}); err != nil || d.Limit(0).Remaining != limit ||
		d.Limit(0).ResetAfter != 0 {
		t.Errorf("all was given back: %+v, %v", d, err)
	}
}

// A check that needs a hold and has none is refused, alone and in a batch, and so is one with an id that
// is spent. The others of the batch are decided.
func TestSlotsNeedAHold(t *testing.T) {
	srv := startServer(t)
	s := newSubject(t, openStore(t, redisstore.Config{Addrs: []string{srv.addr()}}), slotsRule)
	ok := weir.Request{User: "ada", ID: "1"}
	if _, err := s.Check(t.Context(), weir.Request{User: "ada"}); !errors.Is(err, weir.ErrInvalid) {
		t.Errorf("without an id: %v", err)
	}
	ds, err := s.CheckBatch(t.Context(), []weir.Request{{User: "ada"}, ok, {User: "bob"}})
	var bad *weir.BatchError
	if !errors.As(err, &bad) || fmt.Sprint(bad.Index) != "[0 2]" || !ds[1].Allowed || ds[1].Limit(0).Remaining != 1 {
		t.Fatalf("%+v, %v", ds, err)
	}
	if a, err := s.Settle(t.Context(), ok, 1); err != nil || a.State != weir.AmendDone {
		t.Fatalf("%+v, %v", a, err)
	}
	ds, err = s.CheckBatch(t.Context(), []weir.Request{{User: "ada", ID: "2"}, ok, {User: "ada", ID: "3"}})
	if !errors.As(err, &bad) || fmt.Sprint(bad.Index) != "[1]" || !errors.Is(bad.Errs[0], weir.ErrSettled) ||
		!ds[0].Allowed || !ds[2].Allowed || ds[2].Limit(0).Remaining != 0 || ds[2].Limit(1).Remaining != 97 {
		t.Errorf("%+v, %v", ds, err)
	}
}

// An explanation says who holds what, and until when.
func TestExplainsSlots(t *testing.T) {
	srv := startServer(t)
	s := newSubject(t, openStore(t, redisstore.Config{Addrs: []string{srv.addr()}}), slotsRule)
	r := weir.Request{User: "ada", ID: "1", Cost: weir.Units(2)}
	if d, err := s.Check(t.Context(), r); err != nil || !d.Allowed {
		t.Fatalf("%+v, %v", d, err)
	}
	explain := func() string {
		t.Helper()
		e, err := s.Explain(t.Context(), weir.Request{User: "ada"})
		if err != nil {
			t.Fatal(err)
		}
		return e.Limits[0].Arithmetic + fmt.Sprint(e.Limits[0].State)
	}
	if text := explain(); !strings.Contains(text, "2 held + 1 <= 2: no") ||
		!strings.Contains(text, "{hold 2 until 2026-01-01T00:00:30.000000Z, then given back}") {
		t.Errorf("it says %s", text)
	}
	if s.SetTime(s.now + 30*limiter.Second); !strings.Contains(explain(), "0 held + 1 <= 2: yes") {
		t.Errorf("it says %s", explain())
	}
}

// Of a check with keys in several slots one is denied: nobody holds anything. Without Redis a policy
// holds, for the time of the hold.
func TestSlotsOfSeveralMasters(t *testing.T) {
	t.Parallel()
	masters := startCluster(t)
	s := newSubject(t, openStore(t, clusterConfig(masters)),
		"version: 1\nrules: [{name: r, keys: [[user], [ip]], hold: 30s, limits: [{limit: 2, algorithm: concurrency}]}]\n")
	r := weir.Request{User: "ada", IP: "192.0.2.1", ID: "1"}
	left := func(user, ip uint64) {
		t.Helper()
		d, err := s.Peek(t.Context(), weir.Request{User: "ada", IP: "192.0.2.1"})
		if err != nil || d.Limit(0).Remaining != user || d.Limit(1).Remaining != ip {
			t.Errorf("%d and %d are left, want %d and %d, %v", d.Limit(0).Remaining, d.Limit(1).Remaining, user, ip, err)
		}
	}
	if d, err := s.Check(t.Context(), weir.Request{User: "bob", IP: "192.0.2.1", ID: "0",
		Cost: weir.Units(2)}); err != nil || !d.Allowed {
		t.Fatalf("%+v, %v", d, err)
	}
	if d, err := s.Check(t.Context(), r); err != nil || d.Allowed || d.RetryAfter != 30*time.Second {
		t.Fatalf("%+v, %v", d, err)
	}
	left(2, 0)
	if a, err := s.Cancel(t.Context(), weir.Request{User: "bob", IP: "192.0.2.1", ID: "0"}); err != nil ||
		a.State != weir.AmendDone {
		t.Errorf("%+v, %v", a, err)
	}
	if d, err := s.Check(t.Context(), r); err != nil || !d.Allowed {
		t.Errorf("%+v, %v", d, err)
	}
	left(1, 1)
	if a, err := s.Settle(t.Context(), r, 1); err != nil || a.State != weir.AmendDone {
		t.Errorf("%+v, %v", a, err)
	}
	if _, err := s.Check(t.Context(), r); !errors.Is(err, weir.ErrSettled) {
		t.Errorf("a spent id: %v", err)
	}
	r.Cost = weir.Units(3)
	if _, err := s.Check(t.Context(), r); !errors.Is(err, weir.ErrSettled) {
		t.Errorf("a spent id, and more than the limit: %v", err)
	}
	r.Cost = limiter.Cost{}
	r.User = "eve" // her part is charged, and taken back
	if _, err := s.Check(t.Context(), r); !errors.Is(err, weir.ErrSettled) {
		t.Errorf("a spent id of one key: %v", err)
	}
	left(2, 2)
	if d, err := s.Peek(t.Context(), weir.Request{User: "eve", IP: "192.0.2.1"}); err != nil || d.Limit(0).Remaining != 2 {
		t.Errorf("%+v, %v", d, err)
	}
}

// Without Redis a policy holds slots, for the time of the hold.
func TestSlotsWithoutRedis(t *testing.T) {
	srv := startServer(t)
	store := openStore(t, redisstore.Config{Addrs: []string{srv.addr()}, Timeout: faultTimeout})
	s := &subject{tb: t, now: limitertest.Start()}
	srv.stop()
	var err error
	if s.Node, err = weir.Open(t.Context(), weir.Config{Rules: []byte(slotsRule), Backend: store, Now: func() time.Time {
		return s.now.Time()
	}}); err != nil {
		t.Fatal(err)
	}
	check := func(id string, want bool) {
		t.Helper()
		d, err := s.Node.Check(t.Context(), weir.Request{User: "ada", ID: id})
		if err != nil || d.Allowed != want || d.Source != limiter.SourceFallbackLocal {
			t.Errorf("%s: allowed %t by %s, want %t, %v", id, d.Allowed, d.Source, want, err)
		}
	}
	check("1", true)
	check("1", true) // the same
	check("2", true)
	check("3", false)
	s.now += 30 * limiter.Second
	check("3", true)
	if d, err := s.Node.Peek(t.Context(), weir.Request{User: "ada"}); err != nil || d.Limit(0).Remaining != 1 ||
		d.Limit(1).Remaining != 97 {
		t.Errorf("%+v, %v", d, err)
	}
}
