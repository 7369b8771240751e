package redisstore_test

import (
	"slices"
	"testing"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/limiter/limitertest"
	"github.com/weirlimit/weir/redisstore"
)

const orderRules = `
version: 1
rules:
  - {name: both, match: {path: ^/both}, continue: true, key: [user], limits: [{limit: 100, window: 1h, algorithm: fixed_window}]}
  - name: plans
    match: {path: ^/plans}
    keys: [[ip], [user]]
    limits: [{limit: {by: "attr:plan", of: {free: 4, pro: 6}, else: 2}, window: 1h, algorithm: fixed_window}]
  - {name: r, key: [ip], limits: [{limit: 6, window: 1h, algorithm: fixed_window}]}
`

// ordered is one Redis of two nodes, and a node of the same rules that counts in memory.
type ordered struct {
	t          *testing.T
	srv        *server
	one, other *subject
	memory     *weir.Node
}

func newOrdered(t *testing.T) *ordered {
	t.Helper()
	o := &ordered{t: t, srv: startServer(t)}
	open := func() *subject {
		return newSubject(t, openStore(t, redisstore.Config{Addrs: []string{o.srv.addr()}}), orderRules)
	}
	o.one, o.other = open(), open()
	var err error
	if o.memory, err = weir.Open(t.Context(), weir.Config{Rules: []byte(orderRules), Now: func() time.Time {
		return o.one.now.Time()
	}}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { o.memory.Close() })
	return o
}

// check checks in Redis, at a node, and in memory.
func (o *ordered) check(at *subject, rs ...weir.Request) {
	o.t.Helper()
	var all [2][]bool
	for i, n := range []*weir.Node{at.Node, o.memory} {
		results, err := n.CheckBatch(o.t.Context(), rs)
		if err != nil {
			o.t.Fatal(err)
		}
		for _, r := range results {
			if i == 0 && r.Source != limiter.SourceRedis {
				o.t.Fatalf("%s decides", r.Source)
			}
			all[i] = append(all[i], r.Allowed)
		}
	}
	if !slices.Equal(all[0], all[1]) {
		o.t.Errorf("allowed %v in Redis, %v in memory", all[0], all[1])
	}
}

func plain(cost int64) weir.Request {
	return weir.Request{Path: "/", IP: "192.0.2.1", Cost: weir.Units(cost)}
}

func reserved(id string, cost int64) weir.Request {
	r := plain(cost)
	r.ID, r.Hold = id, time.Minute
	return r
}

func (o *ordered) batch() []weir.Request {
	return []weir.Request{plain(4), reserved("a", 5), reserved("a", 1), plain(2)}
}

// A batch is decided in order, whichever of its scripts the server has.
func TestBatchInOrderOfScripts(t *testing.T) {
	elsewhere := reserved("e", 1)
	elsewhere.IP = "192.0.2.2"
	for name, before := range map[string]func(o *ordered){
		"the first script is new": func(o *ordered) { o.check(o.one, elsewhere) },
		"the server was restarted": func(o *ordered) {
			o.check(o.one, plain(0), elsewhere)
			o.srv.stop()
			o.srv.start()
			o.check(o.other, elsewhere) // has some scripts loaded
		},
		"the scripts were flushed": func(o *ordered) {
			o.check(o.one, plain(0), elsewhere)
			o.srv.do("SCRIPT", "FLUSH")
		},
		"the scripts were flushed and met": func(o *ordered) {
			o.check(o.one, plain(0), elsewhere)
			o.srv.do("SCRIPT", "FLUSH")
			o.check(o.one, elsewhere)
		},
	} {
		t.Run(name, func(t *testing.T) {
			o := newOrdered(t)
			before(o)
			o.check(o.one, o.batch()...)
		})
	}
}

// A batch is decided in order where another node has made reservations of its keys.
func TestBatchInOrderOfHolds(t *testing.T) {
	both := plain(3)
	both.Path, both.User = "/both", "ada"
	for name, first := range map[string]weir.Request{"one key": plain(3), "several keys": both} {
		t.Run(name, func(t *testing.T) {
			o := newOrdered(t)
			o.check(o.one, reserved("a", 2))
			o.check(o.other, first, reserved("b", 2), plain(1))
		})
	}
}

// A batch is decided in order where its checks count one key by the limits of different plans, or by limits of their
// own.
func TestBatchInOrderOfPlans(t *testing.T) {
	limit := func(name string, n int64) []*limiter.Limit {
		l := limitertest.Limit(t, limiter.Spec{Name: name, Limit: n, Window: time.Hour, Algorithm: limiter.FixedWindow})
		return []*limiter.Limit{l}
	}
	o := newOrdered(t)
	var plans, own []weir.Request
	for i := range 9 {
		plan, n := "free", int64(4)
		if i%2 == 1 {
			plan, n = "pro", 6
		}
		plans = append(plans, weir.Request{Path: "/plans", User: "ada", IP: "192.0.2.1",
			Attributes: map[string]string{"plan": plan}})
		own = append(own, weir.Request{Path: "/own", User: "ada", Limits: limit("own", n)})
	}
	o.check(o.one, plans...)
	o.check(o.one, own...)
	// A limit of another name comes first for the same key.
	asks := func(name string, n, cost int64) weir.Request {
		return weir.Request{Path: "/own", User: "eve", Limits: limit(name, n), Cost: weir.Units(cost)}
	}
	o.check(o.one, asks("own", 6, 3))
	o.check(o.one, asks("another", 9, 1), asks("own", 4, 1), asks("own", 6, 2))
	o.check(o.one, plain(4), plain(1))
}
