package weir_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/limiter/limitertest"
)

// clock is a clock that the test moves.
type clock struct{ at time.Time }

func (c *clock) now() time.Time { return c.at }

func open(tb testing.TB, c weir.Config) *weir.Node {
	tb.Helper()
	n, err := weir.Open(context.Background(), c)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { n.Close() })
	return n
}

func check(tb testing.TB, n *weir.Node, r weir.Request) *weir.Decision {
	tb.Helper()
	d, err := n.Check(context.Background(), r)
	if err != nil {
		tb.Fatal(err)
	}
	return &d
}

// B4, B3: at 250 requests a second for an hour that starts on the hour, three
// fixed windows together admit exactly the 240 of the hour.
func TestExactlyTheHoursLimit(t *testing.T) {
	if testing.Short() {
		t.Skip("long under the race detector; make wire runs it without, make test-long with it")
	}
	at := &clock{time.Date(2026, 1, 5, 9, 0, 0, 0, time.UTC)}
	n := open(t, weir.Config{Now: at.now, Rules: []byte(`
version: 1
defaults: {algorithm: fixed_window}
rules: [{name: api, limits: [10/second, 120/minute, 240/hour]}]
`)})
	allowed := 0
	var d weir.Decision
	for range 250 * 3600 {
		if err := n.CheckInto(context.Background(), &weir.Request{Path: "/", User: "ada"}, &d); err != nil {
			t.Fatal(err)
		}
		if d.Allowed {
			allowed++
		}
		at.at = at.at.Add(4 * time.Millisecond)
	}
	if allowed != 240 {
		t.Errorf("admitted %d, want 240", allowed)
	}
}

// B5: limits come with the request, under a key of their own; they need no
// rules, and a change of them keeps what was consumed.
func TestLimitsWithTheRequest(t *testing.T) {
	at := &clock{time.Unix(1e9, 0)}
	n := open(t, weir.Config{Now: at.now, Rules: []byte(`{version: 1, rules: [{name: none, limits: [1/hour]}]}`)})
	two := limitertest.Limit(t, weir.Spec{Limit: 2, Window: time.Hour})
	three := limitertest.Limit(t, weir.Spec{Limit: 3, Window: time.Hour})
	ask := func(l *weir.Limit) bool {
		return check(t, n, weir.Request{Path: "/x", User: "ada", Limits: []*weir.Limit{l}}).Allowed
	}
	got := []bool{ask(two), ask(two), ask(two), ask(three), ask(three)}
	if want := "[true true false true false]"; fmt.Sprint(got) != want {
		t.Errorf("got %v, want %v", got, want)
	}
	_, err := n.Check(context.Background(), weir.Request{Path: "/x", Limits: []*weir.Limit{two, three}})
	if !errors.Is(err, weir.ErrInvalid) {
		t.Errorf("two limits of one name: %v", err)
	}
}

// C4: time is frozen and moved by the test; A4, A5: all windows or none, and
// what remains in each.
func TestFrozenTime(t *testing.T) {
	at := &clock{time.Date(2026, 1, 5, 9, 0, 0, 0, time.UTC)}
	n := open(t, weir.Config{Now: at.now, Rules: []byte(`
version: 1
defaults: {algorithm: fixed_window}
rules: [{name: api, limits: [2/second, 3/minute]}]
`)})
	r := weir.Request{Path: "/", User: "ada"}
	for i, want := range []string{"true 1 2", "true 0 1", "false 0 1", "false 0 1"} {
		d := check(t, n, r)
		if got := fmt.Sprint(d.Allowed, d.Limit(0).Remaining, d.Limit(1).Remaining); got != want {
			t.Errorf("check %d: %s, want %s", i, got, want)
		}
	}
	at.at = at.at.Add(time.Second)
	if d := check(t, n, r); !d.Allowed || d.Limit(0).Remaining != 1 || d.Limit(1).Remaining != 0 {
		t.Errorf("a second later: %+v", d)
	}
	if d := check(t, n, r); d.Allowed || d.RetryAfter != 59*time.Second || d.BlockedBy().FullName() != "api/minute" {
		t.Errorf("then: %+v", d)
	}
}

func TestNoRuleAllows(t *testing.T) {
	n := open(t, weir.Config{})
	d := check(t, n, weir.Request{Path: "/"})
	if !d.Allowed || d.Rule != "" || d.Source.String() != "no_rule" || d.Len() != 0 {
		t.Errorf("got %+v", d)
	}
	a := n.Answer(&weir.Request{Path: "/"}, d)
	if !a.Allowed || a.Source != "no_rule" || a.Limits == nil {
		t.Errorf("answer %+v", a)
	}
}

func TestRulesThatCannotBe(t *testing.T) {
	_, err := weir.Open(context.Background(), weir.Config{RulesName: "my.yaml",
		Rules: []byte("version: 1\nrules:\n  - {name: a, limits: [0/second]}\n  - {name: a, limts: [1/second]}\n")})
	if !errors.Is(err, weir.ErrInvalid) {
		t.Fatalf("got %v", err)
	}
	for _, want := range []string{"my.yaml:3:", "my.yaml:4:", "limits"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q is not in %q", want, err)
		}
	}
	n := open(t, weir.Config{Rules: []byte(`{version: 1, rules: [{name: a, limits: [1/hour]}]}`)})
	check(t, n, weir.Request{Path: "/"})
	if err := n.SetRules([]byte("version: 1\nrules: 7\n")); !errors.Is(err, weir.ErrInvalid) {
		t.Fatalf("got %v", err)
	}
	if check(t, n, weir.Request{Path: "/"}).Allowed {
		t.Error("a bad file must leave the old rules and their counts in force")
	}
}

// B7 in part: a reload, changed or not, loses no count.
func TestReloadUnderLoad(t *testing.T) {
	const limit, workers = 1000, 4
	file := func(i int) []byte {
		return fmt.Appendf(nil,
			"{version: 1, rules: [{name: a, limits: [{limit: %d, window: day, algorithm: fixed_window}]}, {name: b%d, limits: "+
				"[1/second]}]}", limit, i)
	}
	n := open(t, weir.Config{Rules: file(0), Now: (&clock{time.Unix(1e9, 0)}).now})
	var wg sync.WaitGroup
	var allowed [workers]int
	for w := range workers {
		wg.Go(func() {
			var d weir.Decision
			for range 2 * limit {
				if err := n.CheckInto(context.Background(), &weir.Request{Path: "/", User: "ada"}, &d); err != nil {
					t.Error(err)
					return
				}
				if d.Allowed {
					allowed[w]++
				}
			}
		})
	}
	for i := range 100 {
		if err := n.SetRules(file(i)); err != nil {
			t.Error(err)
		}
	}
	wg.Wait()
	if sum := allowed[0] + allowed[1] + allowed[2] + allowed[3]; sum != limit {
		t.Errorf("admitted %d, want %d", sum, limit)
	}
}

func TestBatch(t *testing.T) {
	ctx := context.Background()
	n := open(t, weir.Config{Rules: []byte(`{version: 1, rules: [{name: a, limits: [2/hour]}]}`)})
	rs := []weir.Request{{Path: "/"}, {Path: "/", Cost: weir.Units(-1)}, {Path: "/"}, {Path: strings.Repeat("x", 9000)},
		{Path: "/"}}
	ds := make([]weir.Decision, len(rs))
	err := n.CheckBatchInto(ctx, rs, ds)
	var bad *weir.BatchError
	if !errors.As(err, &bad) || fmt.Sprint(bad.Index) != "[1 3]" || !errors.Is(err, weir.ErrInvalid) {
		t.Fatalf("got %v", err)
	}
	var got []bool
	for i := range ds {
		got = append(got, ds[i].Allowed)
	}
	if want := "[true false true false false]"; fmt.Sprint(got) != want {
		t.Errorf("got %v, want %v", got, want)
	}
	if err := n.CheckBatchInto(ctx, rs, ds[:1]); !errors.Is(err, weir.ErrInvalid) {
		t.Errorf("unequal lengths: %v", err)
	}
}

func TestResetAndClose(t *testing.T) {
	ctx := context.Background()
	n := open(t, weir.Config{Rules: []byte(`{version: 1, rules: [{name: a, limits: [1/hour]}]}`)})
	r := weir.Request{Path: "/", User: "ada"}
	check(t, n, r)
	if k, err := n.Reset(ctx, r); k != 1 || err != nil {
		t.Errorf("reset %d counters, %v", k, err)
	}
	if !check(t, n, r).Allowed {
		t.Error("denied after a reset")
	}
	n.Close()
	n.Close()
	if _, err := n.Check(ctx, r); !errors.Is(err, weir.ErrClosed) {
		t.Errorf("got %v, want ErrClosed", err)
	}
	cancelled, cancel := context.WithCancel(ctx)
	cancel()
	if _, err := weir.Open(cancelled, weir.Config{}); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want context.Canceled", err)
	}
}

func TestTopKeysHaveNames(t *testing.T) {
	n := open(t, weir.Config{Rules: []byte(`{version: 1, rules: [{name: a, limits: [1/hour]}]}`)})
	for range 64 {
		check(t, n, weir.Request{Path: "/a:b", User: "ada"})
	}
	hottest, denied := n.Top(5)
	if len(hottest) != 1 || hottest[0].Name != "/a%3Ab:ada" || hottest[0].Count != 64 {
		t.Errorf("hottest %+v", hottest)
	}
	if len(denied) != 1 || denied[0].Name != "/a%3Ab:ada:hour" || denied[0].Count != 63 {
		t.Errorf("most denied %+v", denied)
	}
}

// One check allocates nothing, whatever the algorithm.
func TestCheckAllocatesNothing(t *testing.T) {
	ctx := context.Background()
	n := open(t, weir.Config{Rules: []byte(`
version: 1
rules:
  - {name: one, match: {path: "^/one/[a-z]+$"}, limits: [5/minute]}
  - {name: four, match: {path: "^/four"}, keys: [[user], [ip]], limits: [5/minute, {limit: 7, window: hour, algorithm: gcra}]}
`)})
	r := weir.Request{User: "ada", IP: "192.0.2.1"}
	var d weir.Decision
	for _, path := range []string{"/one/x", "/four", "/none"} {
		r.Path = path
		if err := n.CheckInto(ctx, &r, &d); err != nil {
			t.Fatal(err)
		}
		if a := testing.AllocsPerRun(200, func() { n.CheckInto(ctx, &r, &d) }); a != 0 {
			t.Errorf("%s: %v allocations", path, a)
		}
	}
}

// New rules are in force at once, and none after Close.
func TestSetRulesReplaces(t *testing.T) {
	n := open(t, weir.Config{Rules: []byte(`{version: 1, rules: [{name: a, limits: [1/hour]}]}`)})
	check(t, n, weir.Request{Path: "/"})
	if err := n.SetRules([]byte(`{version: 1, rules: [{name: a, limits: [3/hour]}]}`)); err != nil {
		t.Fatal(err)
	}
	if d := check(t, n, weir.Request{Path: "/"}); !d.Allowed || d.Limit(0).Remaining != 1 {
		t.Errorf("under the new rules: %+v", d.Limit(0))
	}
	n.Close()
	if err := n.SetRules([]byte(`{version: 1, rules: []}`)); !errors.Is(err, weir.ErrClosed) {
		t.Errorf("got %v, want ErrClosed", err)
	}
}

// An empty limit is an error, and leaves no lock behind.
func TestEmptyLimit(t *testing.T) {
	n := open(t, weir.Config{})
	r := weir.Request{User: "z", Limits: []*weir.Limit{new(weir.Limit)}}
	for range 2 {
		if _, err := n.Check(context.Background(), r); !errors.Is(err, weir.ErrInvalid) {
			t.Fatalf("got %v", err)
		}
	}
}

// A peek at a full node returns what a check would.
func TestPeekWhenFull(t *testing.T) {
	n := open(t, weir.Config{MaxKeys: 1, Rules: []byte(`{version: 1, rules: [{name: a, limits: [1/hour]}]}`)})
	check(t, n, weir.Request{Path: "/"})
	for _, r := range []weir.Request{{Path: "/new", Cost: weir.Units(0)}, {Path: "/new"}} {
		var d weir.Decision
		if err := n.PeekInto(context.Background(), &r, &d); err != nil || d.Allowed || !d.Limit(0).Overflow {
			t.Errorf("%v, %+v", err, d)
		}
	}
	if d := check(t, n, weir.Request{Path: "/new", Cost: weir.Units(0)}); d.Allowed {
		t.Error("a check of cost 0 for a new key is allowed though there is no room")
	}
}

// Replication reaches the rules, at Open and later; the rules file wins.
func TestReplication(t *testing.T) {
	const file = `rules: [{name: a, match: {path: ^/a}, limits: [1/second]}, {name: b, limits: [1/second], replication: ` +
		`lag}]`
	n := open(t, weir.Config{Rules: []byte(file), Replication: weir.ReplicationStrict})
	for range 2 {
		if r := n.Rules(); r[0].Rule.Replication != weir.ReplicationStrict || r[1].Rule.Replication != weir.ReplicationLag {
			t.Errorf("%s, %s", r[0].Rule.Replication, r[1].Rule.Replication)
		}
		if err := n.SetRules([]byte(file)); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := weir.Open(t.Context(), weir.Config{Replication: 3}); !errors.Is(err, weir.ErrInvalid) ||
		!strings.Contains(err.Error(), "Replication") {
		t.Errorf("a mode that there is not: %v", err)
	}
}
