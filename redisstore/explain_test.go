package redisstore_test

import (
	"context"
	"fmt"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/limiter/limitertest"
	"github.com/weirlimit/weir/redisstore"
)

// A10: what Redis holds is explained in the words of the table, limit by limit,
// also while a limit changes.
func TestExplainsAsTheTable(t *testing.T) {
	srv := startServer(t)
	store := openStore(t, redisstore.Config{Addrs: []string{srv.addr()}, Timeout: time.Minute})
	there := newSubject(t, store, "version: 1\nrules: []\n")
	now := limitertest.Start()
	here, err := weir.Open(context.Background(), weir.Config{Now: func() time.Time { return now.Time() }})
	if err != nil {
		t.Fatal(err)
	}
	ctx, known := context.Background(), 0
	for seed := range uint64(seeds(t, 60)) {
		c := limitertest.SeededChoices(seed)
		r := weir.Request{Path: "/", User: strconv.FormatUint(seed, 10)}
		for range 15 {
			if c.Pick(5) == 0 || len(r.Limits) == 0 {
				l := limitertest.Limit(t, limitertest.RandomWideSpec(c, limiter.Algorithm(c.Pick(7)), "l", 14*24*time.Hour))
				r.Limits = []*limiter.Limit{l}
			}
			now += limiter.Span(r.Limits[0].Window()) / 7 * limiter.Tick(c.Pick(4))
			there.SetTime(now)
			r.ID = []string{"", "1", "2"}[c.Pick(3)]
			r.Cost = weir.Units(max(1, int64(r.Limits[0].Capacity())/int64(1+c.Pick(9))))
			for _, n := range []*weir.Node{here, there.Node} {
				if _, err := n.Check(ctx, r); err != nil {
					t.Fatal(err)
				}
			}
			want, err := here.Explain(ctx, r)
			if err != nil {
				t.Fatal(err)
			}
			got, err := there.Explain(ctx, r)
			if err != nil {
				t.Fatal(err)
			}
			if got.Limits[0].Known {
				known++
			}
			got.Commands, got.Answer.Source = nil, want.Answer.Source
			got.Decision, want.Decision = nil, nil // what the answers were made of
			if d := cmp.Diff(alike(want), alike(got)); d != "" {
				t.Fatalf("seed %d, %s, now %d: table -, redis +\n%s", seed, r.Limits[0], now, d)
			}
		}
	}
	if known < 100 {
		t.Errorf("only %d explanations were of counters that count", known)
	}
}

// alike removes differences without meaning: Redis combines hits of one instant, and
// does not store where a window without counts is.
func alike(e *limiter.Explanation) *limiter.Explanation {
	out := *e
	out.Limits = nil
	for _, l := range e.Limits {
		var counts []limiter.WindowCount
		for _, c := range l.Counts {
			last := len(counts) - 1
			switch {
			case c.Count == 0:
			case last >= 0 && counts[last].Start == c.Start:
				counts[last].Count += c.Count
			default:
				counts = append(counts, c)
			}
		}
		l.Counts = counts
		l.State = nil
		out.Limits = append(out.Limits, l)
	}
	return &out
}

// A10: the exact EVAL, with its arguments, runs in a shell and decides as the
// check would have done.
func TestExplainPrintsTheCommand(t *testing.T) {
	if _, err := exec.LookPath("redis-cli"); err != nil {
		t.Fatalf("this test needs redis-cli, which comes with redis-server: %v", err)
	}
	srv := startServer(t)
	store := openStore(t, redisstore.Config{Addrs: []string{srv.addr()}})
	node := newNode(t, store, `
version: 1
rules:
  - {name: "it's", match: {path: "^/a"}, key: [user], limits: [2/minute, {name: "an hour's", limit: 5, window: 1h, algorithm: gcra}]}
`)
	r := weir.Request{Path: "/a", User: `o'neill "$HOME" {x}`}
	for i, want := range []string{"2", "1", "0"} {
		e, err := node.Explain(context.Background(), r)
		if err != nil || len(e.Commands) != 1 {
			t.Fatalf("%+v, %v", e, err)
		}
		if left := fmt.Sprint(e.Answer.Limits[0].Remaining); left != want {
			t.Fatalf("before command %d %s are left, want %s", i+1, left, want)
		}
		out, err := exec.Command("sh", "-c", e.Commands[0]).CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %s\n%s", err, out, e.Commands[0])
		}
		lines := strings.Fields(string(out))
		if len(lines) != 7 {
			t.Fatalf("the command answers %q", out)
		}
		// 8*remaining + allowed 1 + charged 4, of the first limit.
		if flags := []string{"13", "5", "0"}[i]; lines[1] != flags {
			t.Errorf("command %d answers %q, want %s for the first limit", i+1, out, flags)
		}
	}
}

// An explanation charges nothing, and reports when Redis does not have a key.
func TestExplainChargesNothing(t *testing.T) {
	srv := startServer(t)
	node := newNode(t, openStore(t, redisstore.Config{Addrs: []string{srv.addr()}}),
		"version: 1\nrules: [{name: r, limits: [1/hour]}]\n")
	for range 3 {
		e, err := node.Explain(context.Background(), weir.Request{Path: "/", User: "u"})
		if err != nil || e.Limits[0].Known || !e.Answer.Allowed {
			t.Fatalf("%+v, %v", e, err)
		}
	}
	if n := srv.do("DBSIZE"); n != int64(1) { // the mark of the first attempt to write
		t.Errorf("redis has %v keys", n)
	}
}

// A foreign value is not taken for a counter: it is dropped, as a check would.
func TestExplainTakesNoForeignValue(t *testing.T) {
	srv := startServer(t)
	node := newNode(t, openStore(t, redisstore.Config{Addrs: []string{srv.addr()}}),
		"version: 1\nrules: [{name: r, limits: [1/hour]}]\n")
	r := weir.Request{Path: "/", User: "u"}
	if _, err := node.Check(context.Background(), r); err != nil {
		t.Fatal(err)
	}
	key := srv.do("KEYS", "*:hour").([]any)[0].(string)
	if !strings.HasPrefix(key, "weir:{r:/:u:") {
		t.Errorf("the counter is called %q", key)
	}
	for _, value := range []string{"x", "]", "[1,2]", "[1,1,3600000000,1,0,0,0,0]short", `["a"]`,
		"[17,9007199254740991,3600000000,9007199254740991,0,0,0,0]xxxxxxxxxxxxxxxxxxxxxxxxxxxxx"} {
		srv.do("SET", key, value)
		if e, err := node.Explain(context.Background(), r); err != nil || e.Limits[0].Known || !e.Answer.Allowed ||
			e.Answer.Source != "redis" {
			t.Errorf("%q: %+v, %v", value, e, err)
		}
	}
}
