package redisstore_test

import (
	"context"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/limiter/arith"
	"github.com/weirlimit/weir/limiter/limitertest"
	"github.com/weirlimit/weir/limiter/table"
	"github.com/weirlimit/weir/redisstore"
)

// calls returns how often Redis was called by a command, such as evalsha.
func (s *server) calls(command string) int {
	s.tb.Helper()
	m := regexp.MustCompile(`cmdstat_` + regexp.QuoteMeta(command) +
		`:calls=(\d+)`).FindStringSubmatch(fmt.Sprint(s.do("INFO", "commandstats")))
	if m == nil {
		return 0
	}
	n, err := strconv.Atoi(m[1])
	if err != nil {
		s.tb.Fatal(err)
	}
	return n
}

const threeWindows = `
version: 1
rules: [{name: r, key: [user], algorithm: fixed_window, limits: [5/second, 100/minute, 1000/hour]}]
`

// A5, B6: one script call decides all windows, and tells what remains of each. The
// script is loaded in the round trip of the first check, and with a new connection, and called by its hash.
func TestOneCallForAllWindows(t *testing.T) {
	srv := startServer(t)
	node := newNode(t, openStore(t, redisstore.Config{Addrs: []string{srv.addr()}}), threeWindows)
	for range 20 {
		d, err := node.Check(context.Background(), weir.Request{Path: "/", User: "ada"})
		if err != nil || d.Source != limiter.SourceRedis || d.Len() != 3 {
			t.Fatalf("%+v, %v", d, err)
		}
	}
	if n, loads, whole := srv.calls("evalsha"), srv.calls("script|load"), srv.calls("eval"); n != 21 || loads > 2 ||
		whole != 1 {
		t.Errorf("a probe, which is also sent whole, and 20 checks are %d calls by hash, %d scripts loaded and %d sent whole",
			n, loads, whole)
	}
}

// A check of several keys is one call too, where they are on one server.
func TestOneCallForAllKeys(t *testing.T) {
	srv := startServer(t)
	node := newNode(t, openStore(t, redisstore.Config{Addrs: []string{srv.addr()}}),
		"version: 1\nrules: [{name: r, keys: [[ip], [user]], limits: [5/second, 9/hour]}]\n")
	for range 3 {
		if d, err := node.Check(context.Background(), weir.Request{Path: "/", User: "ada", IP: "10.0.0.1"}); err != nil ||
			d.Len() != 4 {
			t.Fatalf("%+v, %v", d, err)
		}
	}
	if n := srv.calls("evalsha"); n != 4 {
		t.Errorf("a probe and 3 checks are %d calls", n)
	}
}

// E2: several processes on one Redis share their counters: with many callers at
// once exactly the limit is admitted, and their calls share round trips.
func TestManyCallersShareALimit(t *testing.T) {
	srv := startServer(t)
	var trips, carried atomic.Int64
	nodes := make([]*weir.Node, 2)
	for i := range nodes {
		nodes[i] = newNode(t, openStore(t, redisstore.Config{
			Addrs: []string{srv.addr()},
			Observe: func(calls int, _ time.Duration, err error) {
				if err == nil {
					trips.Add(1)
					carried.Add(int64(calls))
				}
			},
		}), "version: 1\nrules: [{name: r, limits: [1000/day, {limit: 1000, window: 48h, algorithm: sliding_log}]}]\n")
	}
	var admitted atomic.Int64
	var callers sync.WaitGroup
	for i := range 64 {
		callers.Go(func() {
			for range 50 {
				d, err := nodes[i%2].Check(context.Background(), weir.Request{Path: "/", User: "all"})
				if err != nil || d.Source != limiter.SourceRedis {
					t.Errorf("%+v, %v", d, err)
					return
				}
				if d.Allowed {
					admitted.Add(1)
				}
			}
		})
	}
	callers.Wait()
	if n := admitted.Load(); n != 1000 {
		t.Errorf("%d are admitted, want 1000", n)
	}
	t.Logf("%d calls in %d round trips", carried.Load(), trips.Load())
	if carried.Load() < 2*trips.Load() {
		t.Errorf("%d calls took %d round trips; two or more were to share one", carried.Load(), trips.Load())
	}
}

// A batch is decided in its order, in one round trip.
func TestBatch(t *testing.T) {
	srv := startServer(t)
	var trips atomic.Int64
	store := openStore(t, redisstore.Config{Addrs: []string{srv.addr()}, Observe: func(int, time.Duration, error) {
		trips.Add(1)
	}})
	node := newNode(t, store, "version: 1\nrules: [{name: r, limits: [7/day]}]\n")
	if _, err := node.Check(context.Background(), weir.Request{Path: "/", User: "other"}); err != nil {
		t.Fatal(err) // loads the script
	}
	trips.Store(0)
	rs, ds := make([]weir.Request, 500), make([]weir.Decision, 500)
	for i := range rs {
		rs[i] = weir.Request{Path: "/", User: fmt.Sprint("u", i%50)}
	}
	if err := node.CheckBatchInto(context.Background(), rs, ds); err != nil {
		t.Fatal(err)
	}
	for i := range ds {
		if d := &ds[i]; d.Source != limiter.SourceRedis || d.Allowed != (i/50 < 7) {
			t.Fatalf("request %d: allowed %v by %s", i, d.Allowed, d.Source)
		}
	}
	if n := trips.Load(); n != 1 {
		t.Errorf("500 checks took %d round trips", n)
	}
}

// Redis's own clock decides, and no key outlives its use: each expires when its
// counter is as new.
func TestKeysExpire(t *testing.T) {
	srv := startServer(t)
	specs := []limiter.Spec{
		{Algorithm: limiter.FixedWindow}, {Algorithm: limiter.FixedWindow, Align: limiter.AlignFirstHit},
		{Algorithm: limiter.SlidingCounter},
		{Algorithm: limiter.SlidingLog}, {Algorithm: limiter.SlidingWindow}, {Algorithm: limiter.TokenBucket},
		{Algorithm: limiter.LeakyBucket, Drip: limiter.DripInterval}, {Algorithm: limiter.GCRA, Burst: 3, Block: time.Hour},
		{Algorithm: limiter.LeakyBucket, Drip: limiter.DripInterval, DripUnits: 5},
	}
	node := newNode(t, openStore(t, redisstore.Config{Addrs: []string{srv.addr()}}), "version: 1\nrules: []\n")
	for i, s := range specs {
		s.Name, s.Limit, s.Window = "l", 10, time.Minute
		l := limitertest.Limit(t, s)
		r := weir.Request{Path: "/", User: fmt.Sprint(i), Limits: []*limiter.Limit{l}, Cost: weir.Units(3)}
		var d weir.Decision
		var err error
		for range 2 {
			before := srv.do("DBSIZE")
			if d, err = node.Check(context.Background(), r); err != nil || d.Source != limiter.SourceRedis {
				t.Fatalf("%+v, %v", d, err)
			}
			if arith.Fields(&d.Receipt).Charged == 0 && before != srv.do("DBSIZE") && !d.Limit(0).Blocked {
				t.Errorf("%s: a denial has written", l)
			}
		}
		keys := srv.do("KEYS", "weir:{request:/:"+fmt.Sprint(i)+":*}:l").([]any)
		if len(keys) != 1 {
			t.Fatalf("%s: the keys are %q", l, keys)
		}
		left, reset := srv.do("PTTL", keys[0]).(int64), limiter.Millis(d.Limit(0).ResetAfter)
		if left > reset || left < reset-5000 {
			t.Errorf("%s: the key lives for %d ms more, the counter for %d", l, left, reset)
		}
	}
	// A short one is gone by itself.
	l := limitertest.Limit(t, weir.Spec{Algorithm: limiter.FixedWindow, Limit: 1, Window: 20 * time.Millisecond})
	if _, err := node.Check(context.Background(), weir.Request{Path: "/short", Limits: []*limiter.Limit{l}}); err != nil {
		t.Fatal(err)
	}
	await(t, "the key expires", func() bool { return len(srv.do("KEYS", "*/short*").([]any)) == 0 })
}

// Counters of one key share a slot, and their names distinguish keys with the same
// readable part.
func TestKeyNames(t *testing.T) {
	srv := startServer(t)
	node := newNode(t, openStore(t, redisstore.Config{Addrs: []string{srv.addr()}}), `
version: 1
rules: [{name: "a{b}:%", keys: [[ip], [user]], limits: [5/second, {name: "{x}", limit: 9, window: 1h}]}]
`)
	for _, r := range []weir.Request{{Path: "/", IP: "192.0.2.1", User: "192.0.2.1"},
		{Path: "/", IP: "::1", User: "{}a:b\n"}} {
		if d, err := node.Check(context.Background(), r); err != nil || d.Source != limiter.SourceRedis {
			t.Fatalf("%+v, %v", d, err)
		}
	}
	keys := srv.do("KEYS", "weir:{a*").([]any)
	if len(keys) != 8 {
		t.Fatalf("%d keys: %q", len(keys), keys)
	}
	tags := map[string]int{}
	shape := regexp.MustCompile(`^weir:\{a%7Bb%7D%3A%25:(192\.0\.2\.1|` +
		`%3A%3A1|%7B%7Da%3Ab%0A):[-_A-Za-z0-9]{22}\}:(second|\{x\})$`)
	for _, k := range keys {
		m := shape.FindStringSubmatch(k.(string))
		if m == nil {
			t.Errorf("a key is named %q", k)
			continue
		}
		tags[strings.TrimSuffix(k.(string), ":"+m[2])]++
	}
	if len(tags) != 4 {
		t.Errorf("there are %d tags: %v", len(tags), tags)
	}
}

// Logs and windows too long to be fetched whole are changed in place, and decide
// as the table does.
func TestLongListsDecideAlike(t *testing.T) {
	if raceEnabled && testing.Short() {
		t.Skip("one caller, many times slower under the race detector; make wire runs it")
	}
	srv := startServer(t)
	store := openStore(t, redisstore.Config{Addrs: []string{srv.addr()}, Timeout: time.Minute})
	for i, s := range []limiter.Spec{
		{Algorithm: limiter.SlidingLog, Limit: 400}, {Algorithm: limiter.SlidingLog, Limit: 400,
			CountRejected: limiter.CountAll},
		{Algorithm: limiter.SlidingWindow, Limit: 5000, SubWindows: 1000},
		{Algorithm: limiter.SlidingWindow, Limit: 300, SubWindows: 500, CountRejected: limiter.CountAll},
	} {
		s.Name, s.Window = "l", time.Second
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			longList(t, store, s, uint64(i))
		})
	}
}

// A long log in steady use lets go of what has passed: it takes no more than twice
// what counts, and a little.
func TestLongLogStaysShort(t *testing.T) {
	srv := startServer(t)
	s := newSubject(t, openStore(t, redisstore.Config{Addrs: []string{srv.addr()}, Timeout: time.Minute}), `
version: 1
rules: [{name: r, limits: [{name: l, limit: 500, window: 1s, algorithm: sliding_log}]}]
`)
	longest := int64(0)
	for i := range 4000 {
		s.SetTime(limitertest.Start() + limiter.Tick(i)*2*limiter.Millisecond)
		var d weir.Decision
		if err := s.CheckInto(context.Background(), &weir.Request{Path: "/", User: "u"}, &d); err != nil || !d.Allowed {
			t.Fatalf("check %d: %+v, %v", i, d, err)
		}
		if i%100 == 99 {
			longest = max(longest, srv.do("STRLEN", srv.do("KEYS", "*:l").([]any)[0]).(int64))
		}
	}
	if longest < 12*500 || longest > 12*(2*500+110) {
		t.Errorf("a log of 500 takes up to %d bytes", longest)
	}
}

func longList(t *testing.T, store *redisstore.Store, s limiter.Spec, seed uint64) {
	t.Helper()
	d := &diff{store: store, table: table.New(table.Config{}), choices: limitertest.SeededChoices(seed),
		now: limitertest.Start(), log: t.Logf, counts: counts{}}
	d.log = func(string, ...any) {}
	longest, denied := 0, 0
	for i := range 6000 {
		if i == 500 || i == 1000 {
			s.Limit, s.Window = s.Limit+7, s.Window+100*time.Millisecond // adopted, whole
		}
		l := limitertest.Limit(t, s)
		d.now += limiter.Millisecond * limiter.Tick(d.choices.Pick(4))
		if d.choices.Pick(500) == 0 {
			d.now += limiter.Tick(d.choices.Pick(3)) * limiter.Span(l.Window()) / 2
		}
		var c arith.Charge
		c.Add(arith.Key{Hash: arith.Hash{Hi: 1000 + seed}, Rule: &limiter.Rule{Name: "long", Limits: []*limiter.Limit{l}},
			Cost: uint64(1 + d.choices.Pick(2))})
		if d.choices.Pick(3) == 0 {
			if err := d.takeBack(&c); err != nil {
				t.Fatal(err)
			}
		}
		var want, got limiter.Decision
		if err := d.table.Decide(d.now, &c, &want); err != nil {
			t.Fatal(err)
		}
		if err := store.Decide(context.Background(), arith.At(d.now), []*arith.Charge{&c}, []*limiter.Decision{&got},
			nil); err != nil {
			t.Fatal(err)
		}
		if a, b := show(&want), show(&got); a != b {
			t.Fatalf("step %d, %s: the table decides\n%s\nredis decides\n%s", i, l, a, b)
		}
		longest = max(longest, int(l.Capacity()-want.Limit(0).Remaining))
		if !want.Allowed {
			denied++
		}
		if arith.Fields(&want.Receipt).Charged != 0 {
			d.receipts = append(d.receipts, receipt{c, want.Receipt})
		}
	}
	t.Logf("up to %d units, %d denied", longest, denied)
	if longest < 150 {
		t.Errorf("no list was long: %d units", longest)
	}
}

// What a reset leaves behind expires, however often a key is reset.
func TestResetsDoNotAddUp(t *testing.T) {
	srv := startServer(t)
	node := newNode(t, openStore(t, redisstore.Config{Addrs: []string{srv.addr()}}),
		"version: 1\nrules: [{name: r, key: [user], limits: [5/minute]}]\n")
	for i := range 10 {
		r := weir.Request{User: "ada"}
		if d, err := node.Check(context.Background(), r); err != nil || d.Limit(0).Remaining != 4 {
			t.Fatalf("%+v, %v", d, err)
		}
		if _, err := node.Reset(context.Background(), r); err != nil {
			t.Fatal(err)
		}
		marks := srv.do("KEYS", "weir:{r:ada:*}!reset").([]any)
		if len(marks) != 1 {
			t.Fatalf("the marks are %q", marks)
		}
		if left := time.Duration(srv.do("PTTL", marks[0]).(int64)) * time.Millisecond; left < time.Minute ||
			left > 5*time.Minute {
			t.Errorf("after %d resets the mark lives for %v more", i+1, left)
		}
	}
}
