package redisstore_test

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/limiter/arith"
	"github.com/weirlimit/weir/redisstore"
)

// A hold ends although nobody has a timer: the next script on its key takes it off, whichever node
// asks, also one that knows of no holds. What a settlement or an end leaves behind expires by itself.
func TestHoldsEndWithoutATimer(t *testing.T) {
	srv := startServer(t)
	open := func() *subject {
		return newSubject(t, openStore(t, redisstore.Config{Addrs: []string{srv.addr()}}),
			"version: 1\nrules: [{name: r, key: [user], id_ttl: 1m, limits: [{name: hour, limit: 100, window: 1h, algorithm: "+
				"fixed_window}, {limit: 100, window: 1m, algorithm: sliding_log}]}]\n")
	}
	a := open()
	r := weir.Request{User: "ada", ID: "1", Hold: 10 * time.Second, Cost: weir.Units(60)}
	if d, err := a.Check(t.Context(), r); err != nil || !d.Allowed || arith.Fields(&d.Receipt).Charged != 0 {
		t.Fatalf("%+v, %v", d, err)
	}
	for _, k := range srv.do("KEYS", "weir:*").([]any) {
		if ttl := srv.do("PTTL", k).(int64); ttl < 0 && !strings.HasSuffix(k.(string), "!probe") {
			t.Errorf("%s does not expire", k)
		}
	}
	for _, step := range []struct {
		after time.Duration
		left  uint64
	}{{10*time.Second - time.Microsecond, 40}, {10 * time.Second, 100}} {
		b := open() // has met no holds
		b.SetTime(a.now + limiter.Span(step.after))
		d, err := b.Peek(t.Context(), weir.Request{User: "ada"})
		if err != nil || d.Source != limiter.SourceRedis || d.Limit(0).Remaining != step.left ||
			d.Limit(1).Remaining != step.left {
			t.Errorf("after %v: %+v, %v", step.after, d, err)
		}
		b.now++
	}
	if sets := srv.do("KEYS", "*!holds").([]any); len(sets) != 0 {
		t.Error("the hold that ended is still in its set")
	}
}

// A counter with holds is one that an explanation reads, with what is held of it, and its command runs.
func TestExplainsHolds(t *testing.T) {
	srv := startServer(t)
	for _, row := range []struct{ limit, cost int64 }{{100, 60}, {limiter.MaxUnits, limiter.MaxUnits - 40}} {
		srv.do("FLUSHALL")
		s := newSubject(t, openStore(t, redisstore.Config{Addrs: []string{srv.addr()}}), strings.ReplaceAll(
			"version: 1\nrules: [{name: r, key: [user], limits: [{limit: N, window: 1h, algorithm: fixed_window}, {limit: N, "+
				"window: 24h, burst: N, algorithm: token_bucket}, {name: c, limit: N, calendar: day}, {limit: N, algorithm: "+
				"concurrency}]}]\n",
			"N", strconv.FormatInt(row.limit, 10)))
		r := weir.Request{User: "ada", ID: "1", Hold: time.Minute, Cost: weir.Units(row.cost)}
		if d, err := s.Check(t.Context(), r); err != nil || !d.Allowed {
			t.Fatalf("%+v, %v", d, err)
		}
		e, err := s.Explain(t.Context(), weir.Request{User: "ada", ID: "2", Hold: time.Minute})
		if err != nil || len(e.Limits) != 4 {
			t.Fatalf("%+v, %v", e, err)
		}
		for i, l := range e.Limits {
			text := fmt.Sprint(l.State)
			if !strings.Contains(text, fmt.Sprintf("{held %d, in 1 charges}", row.cost)) ||
				!strings.Contains(text, fmt.Sprintf("{hold %d until 2026-01-01T00:01:00.000000Z, then given back}", row.cost)) {
				t.Errorf("of a limit it says %s", text)
			}
			if left := int64(e.Answer.Limits[i].Remaining); left != row.limit-row.cost {
				t.Errorf("%d are left of %s", left, l.Name)
			}
		}
		if !strings.Contains(e.Commands[0], "ZRANGEBYSCORE") {
			t.Error("the command does not know holds")
		}
	}
}

// One key has so many holds at most. A further one is denied, and charges nothing; a check without a
// hold is not.
func TestHoldsOfAKeyAreBounded(t *testing.T) {
	srv := startServer(t)
	s := newSubject(t, openStore(t, redisstore.Config{Addrs: []string{srv.addr()}}),
		"version: 1\nrules: [{name: r, key: [user], limits: [{name: hour, limit: 1000000, window: 1h}]}]\n")
	r := weir.Request{User: "ada", ID: "1", Hold: time.Minute}
	if d, err := s.Check(t.Context(), r); err != nil || !d.Allowed {
		t.Fatalf("%+v, %v", d, err)
	}
	key := strings.SplitAfter(srv.do("KEYS", "*:hour").([]any)[0].(string), "}")[0] + "!holds"
	fill := []any{"ZADD", key}
	for i := range 4095 {
		fill = append(fill, int64(s.now)+60_000_000, fmt.Sprintf("\xff\xff\xff\xff\xff\xff\x0f\x00\x00\x00%d", i))
	}
	srv.do(fill...)
	r.ID = "2"
	d, err := s.Check(t.Context(), r)
	if err != nil || d.Allowed || !d.Limit(0).Overflow || d.RetryAfter <= 0 || d.Source != limiter.SourceRedis {
		t.Errorf("%+v, %v", d, err)
	}
	if d, err := s.Check(t.Context(), weir.Request{User: "ada"}); err != nil || !d.Allowed ||
		d.Limit(0).Remaining != 999_998 {
		t.Errorf("%+v, %v", d, err)
	}
}

// Of a reservation with keys in several slots one is denied: nothing is charged, and nobody holds
// anything. One that all admit is settled for all keys or, with another number, for none.
func TestHoldsOfSeveralSlots(t *testing.T) {
	t.Parallel()
	masters := startCluster(t)
	s := newSubject(t, openStore(t, clusterConfig(masters)),
		"version: 1\nrules: [{name: r, keys: [[user], [ip]], limits: [{name: hour, limit: 10, window: 1h, algorithm: "+
			"fixed_window}]}]\n")
	r := weir.Request{User: "ada", IP: "192.0.2.1", ID: "1", Hold: time.Minute}
	left := func(user, ip uint64) {
		t.Helper()
		d, err := s.Peek(t.Context(), weir.Request{User: "ada", IP: "192.0.2.1"})
		if err != nil || d.Limit(0).Remaining != user || d.Limit(1).Remaining != ip {
			t.Errorf("%d and %d are left, want %d and %d, %v", d.Limit(0).Remaining, d.Limit(1).Remaining, user, ip, err)
		}
	}
	if d, err := s.Check(t.Context(), weir.Request{User: "bob", IP: "192.0.2.1", Cost: weir.Units(4)}); err != nil ||
		!d.Allowed {
		t.Fatalf("%+v, %v", d, err)
	}
	r.Cost = weir.Units(7)
	if d, err := s.Check(t.Context(), r); err != nil || d.Allowed {
		t.Fatalf("%+v, %v", d, err)
	}
	left(10, 6)
	for _, k := range keysOf(t, masters) {
		if strings.Contains(k, "!id:") || strings.HasSuffix(k, "!holds") {
			t.Errorf("%s is left", k)
		}
	}
	r.Cost = weir.Units(5)
	if d, err := s.Check(t.Context(), r); err != nil || !d.Allowed {
		t.Fatalf("%+v, %v", d, err)
	}
	left(5, 1)
	r.Cost = weir.Units(7)
	// it ends before there is room
	if a, err := s.Extend(t.Context(), r); err != nil || a.State != weir.AmendDenied || a.RetryAfter != 0 {
		t.Errorf("%+v, %v", a, err)
	}
	left(5, 1)
	r.Cost = weir.Units(6)
	if a, err := s.Extend(t.Context(), r); err != nil || a.State != weir.AmendDone || a.Estimate != 6 {
		t.Errorf("%+v, %v", a, err)
	}
	left(4, 0)
	if a, err := s.Settle(t.Context(), r, 8); err != nil || a.State != weir.AmendDone || a.Estimate != 6 || a.Over != 2 {
		t.Errorf("%+v, %v", a, err)
	}
	left(2, 0)
	if a, err := s.Settle(t.Context(), r, 8); err != nil || a.State != weir.AmendRepeated {
		t.Errorf("%+v, %v", a, err)
	}
	if a, err := s.Settle(t.Context(), r, 7); err == nil || a.First != 8 {
		t.Errorf("%+v, %v", a, err)
	}
	left(2, 0)
}

// One number does not settle rules that have reserved different ones, in whichever slots their keys are.
func TestCostsOfSeveralSlots(t *testing.T) {
	t.Parallel()
	masters := startCluster(t)
	s := newSubject(t, openStore(t, clusterConfig(masters)), `version: 1
rules:
  - {name: requests, key: [user], continue: true, limits: [{limit: 100, window: 1h, algorithm: fixed_window}]}
  - {name: tokens, key: [user], limits: [{limit: 40000, window: 1h, algorithm: fixed_window}], cost: {from: "attr:tokens", default: 1}}
`)
	for u := range 8 {
		r := weir.Request{User: fmt.Sprint(u), ID: "1", Hold: time.Minute, Attributes: map[string]string{"tokens": "2000"}}
		left := func(requests, tokens uint64) {
			t.Helper()
			d, err := s.Peek(t.Context(), weir.Request{User: r.User})
			if err != nil || d.Limit(0).Remaining != requests || d.Limit(1).Remaining != tokens {
				t.Errorf("%d and %d are left, want %d and %d, %v", d.Limit(0).Remaining, d.Limit(1).Remaining, requests, tokens,
					err)
			}
		}
		if d, err := s.Check(t.Context(), r); err != nil || !d.Allowed {
			t.Fatalf("%+v, %v", d, err)
		}
		if a, err := s.Settle(t.Context(), r, 800); !errors.Is(err, weir.ErrCosts) || a.Estimate != 1 || a.First != 2000 {
			t.Errorf("%+v, %v", a, err)
		}
		left(99, 38000)
		if a, err := s.Cancel(t.Context(), r); err != nil || a.State != weir.AmendDone {
			t.Errorf("%+v, %v", a, err)
		}
		left(100, 40000)
	}
}

// Without Redis a reservation is charged by the policy, and settling it is an error: whether it was
// done is not known.
func TestHoldsWithoutRedis(t *testing.T) {
	srv := startServer(t)
	p := newPatient(t, redisstore.Config{Addrs: []string{srv.addr()}, Timeout: faultTimeout})
	r := weir.Request{Path: "/local", User: "ada", ID: "1", Hold: time.Minute}
	p.untilFrom("/local", limiter.SourceRedis)
	srv.stop()
	p.untilFrom("/local", limiter.SourceFallbackLocal)
	if d, err := p.Check(t.Context(), r); err != nil || d.Source != limiter.SourceFallbackLocal {
		t.Errorf("%+v, %v", d, err)
	}
	if _, err := p.Settle(t.Context(), r, 1); err == nil ||
		!strings.Contains(err.Error(), "the reservation may be as it was") {
		t.Errorf("%v", err)
	}
}

// A bucket that was empty, and so gone, while reservations of it were open gives nothing of them back to whoever
// charged it since, by a script that knows no holds: neither when the last of them is canceled nor when all end.
func TestNothingComesBackOfABucketThatWasEmpty(t *testing.T) {
	srv := startServer(t)
	open := func(limit string) *subject {
		return newSubject(t, openStore(t, redisstore.Config{Addrs: []string{srv.addr()}}),
			"version: 1\nrules: [{name: r, key: [user], limits: [{name: l, limit: 10, window: 10s, algorithm: "+limit+"}]}]\n")
	}
	for _, limit := range []string{"gcra", "leaky_bucket, drip: {amount: 5}"} {
		for _, row := range []struct {
			n       int
			cancels bool
		}{{1, true}, {2, true}, {1, false}, {2, false}} {
			srv.do("FLUSHALL")
			a, b := open(limit), open(limit) // b has met no holds
			var all []weir.Request
			for i := range row.n {
				r := weir.Request{User: "ada", ID: strconv.Itoa(i), Hold: time.Minute, Cost: weir.Units(3)}
				if d, err := a.Check(t.Context(), r); err != nil || !d.Allowed {
					t.Fatalf("%+v, %v", d, err)
				}
				all = append(all, r)
			}
			b.SetTime(a.now + 20*limiter.Second)
			srv.do("DEL", srv.do("KEYS", "*:l").([]any)[0]) // it has expired
			d, err := b.Check(t.Context(), weir.Request{User: "ada", Cost: weir.Units(10)})
			if err != nil || !d.Allowed || d.Limit(0).Remaining != 0 {
				t.Fatalf("%+v, %v", d, err)
			}
			a.SetTime(b.now)
			if row.cancels {
				for _, r := range all {
					if done, err := a.Cancel(t.Context(), r); err != nil || done.State != limiter.AmendDone {
						t.Fatalf("%+v, %v", done, err)
					}
				}
			} else {
				a.SetTime(a.now + limiter.Minute)
				srv.do("DEL", srv.do("KEYS", "*:l").([]any)[0])
				b.SetTime(a.now)
				if d, err = b.Check(t.Context(), weir.Request{User: "ada", Cost: weir.Units(10)}); err != nil || !d.Allowed {
					t.Fatalf("%+v, %v", d, err)
				}
			}
			d, err = a.Check(t.Context(), weir.Request{User: "ada", ID: "new", Hold: time.Minute})
			if err != nil || d.Allowed || d.Limit(0).Remaining != 0 {
				t.Errorf("%s, %+v: %+v, %v", limit, row, d.Limit(0), err)
			}
		}
	}
}
