package weir_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/limiter/arith"
	"github.com/weirlimit/weir/limiter/limitertest"
	"github.com/weirlimit/weir/limiter/table"
)

// tableBackend is a backend that counts in a table, and records its arguments.
type tableBackend struct {
	table  *table.Table
	nows   []arith.Instant
	names  []string
	sizes  []int
	closed int
	err    error
	ahead  limiter.Tick // of its clock over limitertest.Start
}

func (b *tableBackend) at(now arith.Instant) limiter.Tick {
	b.nows = append(b.nows, now)
	return now.Or(func() limiter.Tick { return limitertest.Start() + b.ahead })
}

func (b *tableBackend) Decide(_ context.Context, now arith.Instant, cs []*arith.Charge, ds []*weir.Decision,
	name arith.KeyNamer) error {
	if b.err != nil {
		return b.err
	}
	at := b.at(now)
	b.sizes = append(b.sizes, len(cs))
	for i, c := range cs {
		if c.Len() > 0 {
			b.names = append(b.names, string(name(nil, i, c.Len()-1)))
		}
		if err := b.table.Decide(at, c, ds[i]); err != nil {
			return err
		}
	}
	return nil
}

func (b *tableBackend) Refund(_ context.Context, now arith.Instant, c *arith.Charge, r weir.Receipt,
	_ arith.KeyNamer) error {
	b.table.Refund(b.at(now), c, r)
	return b.err
}

func (b *tableBackend) Reset(_ context.Context, now arith.Instant, c *arith.Charge, _ arith.KeyNamer) (int,
	error) {
	return b.table.Reset(b.at(now), c), b.err
}

func (b *tableBackend) Explain(_ context.Context, now arith.Instant, c *arith.Charge,
	name arith.KeyNamer) (*weir.Explanation, error) {
	at := b.at(now)
	return &weir.Explanation{Now: at, Limits: b.table.Explain(at, c, new(weir.Decision)),
		Commands: []string{string(name(nil, 0, 0))}}, b.err
}

func (b *tableBackend) Extras() (none weir.BackendExtras) { return none }

func (b *tableBackend) Close() error {
	b.closed++
	return b.err
}

// backendSubject is a node whose backend counts.
type backendSubject struct {
	*weir.Node
	now limiter.Tick
}

func (s *backendSubject) SetTime(t limiter.Tick)     { s.now = t }
func (s *backendSubject) SetRules(yaml string) error { return s.Node.SetRules([]byte(yaml)) }
func (s *backendSubject) Reset(ctx context.Context, r limiter.Request) error {
	_, err := s.Node.Reset(ctx, r)
	return err
}

// C3: a node decides by its backend as by its own table.
func TestBackendDecidesEveryTranscript(t *testing.T) {
	limitertest.Transcripts(t, func(tb testing.TB, yaml string) limitertest.Subject {
		s := &backendSubject{now: limitertest.Start()}
		var err error
		s.Node, err = weir.Open(context.Background(), weir.Config{
			Rules: []byte(yaml), Backend: &tableBackend{table: table.New(table.Config{})}, Now: func() time.Time {
				return s.now.Time()
			},
		})
		if err != nil {
			tb.Fatal(err)
		}
		return s
	})
}

// TestABackendIsAskedForAllUnits: limits and costs up to 2^53-1 go to the backend, from requests and from rules.
func TestABackendIsAskedForAllUnits(t *testing.T) {
	n, _ := newBackendNode(t)
	wide := limitertest.Limit(t, weir.Spec{Limit: limiter.MaxUnits, Window: time.Minute})
	ask := func(r weir.Request, left uint64) {
		t.Helper()
		d, err := n.Check(t.Context(), r)
		if err != nil || !d.Allowed || d.Limit(0).Remaining != left {
			t.Errorf("%+v: %+v, %v", r, d, err)
		}
	}
	ask(weir.Request{Path: "/r", User: "u", Cost: weir.Units(limiter.MaxUnits - 1), Limits: []*weir.Limit{wide}}, 1)
	if err := n.SetRules([]byte("version: 1\nquotas: [{name: q, key: [user], limits: [4294967297/day]}]\nrules: [{name: " +
		"a, quotas: [q], limits: [9007199254740991/day]}]")); err != nil {
		t.Fatal(err)
	}
	ask(weir.Request{Path: "/", User: "u", Cost: weir.Units(4294967296)}, 9007199254740991-4294967296)
}

const backendRules = `
version: 1
rules:
  - {name: r, match: {path: "^/r"}, limits: [2/minute]}
`

func newBackendNode(t *testing.T) (*weir.Node, *tableBackend) {
	t.Helper()
	b := &tableBackend{table: table.New(table.Config{})}
	n, err := weir.Open(context.Background(), weir.Config{Rules: []byte(backendRules), Backend: b})
	if err != nil {
		t.Fatal(err)
	}
	return n, b
}

// Without a clock of the embedder's the backend's own is used.
func TestBackendsClock(t *testing.T) {
	n, b := newBackendNode(t)
	if d, err := n.Check(context.Background(), weir.Request{Path: "/r", User: "ada"}); err != nil || !d.Allowed ||
		d.Rule != "r" {
		t.Fatalf("%+v, %v", d, err)
	}
	if !slices.Equal(b.nows, []arith.Instant{{}}) || !slices.Equal(b.names, []string{"/r:ada"}) {
		t.Errorf("asked at %v for %q", b.nows, b.names)
	}
	if s := n.Stats(); s.Keys != 0 {
		t.Errorf("the node's own table has %d keys", s.Keys)
	}
}

// A batch goes to the backend as one, without the requests that cannot be decided.
func TestBackendDecidesBatches(t *testing.T) {
	n, b := newBackendNode(t)
	rs := []weir.Request{
		{Path: "/r", User: "a"}, {Path: "/r", Cost: weir.Units(-1)}, {Path: "/r", User: "b"}, {Path: "/other"},
		{Path: "/r", User: "a", Cost: weir.Units(2)},
	}
	ds := make([]weir.Decision, len(rs))
	err := n.CheckBatchInto(context.Background(), rs, ds)
	var bad *weir.BatchError
	if !errors.As(err, &bad) || !slices.Equal(bad.Index, []int{1}) || !errors.Is(err, weir.ErrInvalid) {
		t.Fatalf("got %v", err)
	}
	for i, want := range []bool{true, false, true, true, false} {
		if ds[i].Allowed != want {
			t.Errorf("request %d: allowed %v", i, ds[i].Allowed)
		}
	}
	if !slices.Equal(b.sizes, []int{4}) || !slices.Equal(b.names, []string{"/r:a", "/r:b", "/r:a"}) {
		t.Errorf("batches of %v, keys %q", b.sizes, b.names)
	}
}

// A batch with peeks goes to the backend as one, too.
func TestBackendPeeksInBatches(t *testing.T) {
	n, b := newBackendNode(t)
	rs := slices.Repeat([]weir.Request{{Path: "/r", User: "a", Cost: weir.Units(2)}}, 4)
	ds := make([]weir.Decision, len(rs))
	for _, peeks := range [][]bool{nil, {true, false, true, false}} {
		if err := n.PeekBatchInto(context.Background(), rs, ds, peeks); err != nil {
			t.Fatal(err)
		}
		for i := range ds {
			if want := peeks == nil || i < 2; ds[i].Allowed != want {
				t.Errorf("with peeks %v: request %d: allowed %t", peeks, i, ds[i].Allowed)
			}
		}
	}
	if !slices.Equal(b.sizes, []int{4, 4}) {
		t.Errorf("batches of %v", b.sizes)
	}
}

// Explanations, resets, refunds and errors are the backend's too.
func TestBackendAnswersTheRest(t *testing.T) {
	n, b := newBackendNode(t)
	ctx, r := context.Background(), weir.Request{Path: "/r", User: "ada"}
	var d weir.Decision
	if err := n.CheckInto(ctx, &r, &d); err != nil {
		t.Fatal(err)
	}
	if err := n.Refund(ctx, r, d.Receipt); err != nil {
		t.Fatal(err)
	}
	e, err := n.Explain(ctx, r)
	if err != nil || len(e.Limits) != 1 || e.Answer.Limits[0].Remaining != 2 || e.Limits[0].Name != "r/minute" ||
		e.Limits[0].Key != "/r:ada:minute" || !slices.Equal(e.Rules, []string{"r"}) ||
		!slices.Equal(e.Commands, []string{"/r:ada"}) {
		t.Errorf("%+v, %v", e, err)
	}
	if count, err := n.Reset(ctx, r); err != nil || count != 0 {
		t.Errorf("reset %d counters, and what was charged has come back: %v", count, err)
	}
	if err := n.CheckInto(ctx, &r, &d); err != nil {
		t.Fatal(err)
	}
	if count, err := n.Reset(ctx, r); err != nil || count != 1 {
		t.Errorf("reset %d, %v", count, err)
	}
	b.err = errors.New("broken")
	if err := n.CheckInto(ctx, &r, &d); !errors.Is(err, b.err) {
		t.Errorf("check: %v", err)
	}
	if err := n.CheckBatchInto(ctx, []weir.Request{r}, []weir.Decision{d}); !errors.Is(err, b.err) {
		t.Errorf("batch: %v", err)
	}
	if err := n.Close(); !errors.Is(err, b.err) || b.closed != 1 {
		t.Errorf("close: %v, closed %d times", err, b.closed)
	}
	if err := n.Close(); err != nil || b.closed != 1 {
		t.Errorf("closing again: %v, closed %d times", err, b.closed)
	}
}

// ownBackend is a backend that counts in the node's table, by a clock of its own, and
// recovers from panics.
type ownBackend struct {
	tableBackend
	observe func(place string)
}

func (b *ownBackend) Extras() weir.BackendExtras {
	return weir.BackendExtras{
		UseTable:      func(t *table.Table) { b.table = t },
		ObservePanics: func(observe func(place string)) { b.observe = observe },
	}
}

// An observer of panics receives those of a backend.
func TestPanicsOfABackend(t *testing.T) {
	b, places := &ownBackend{}, []string(nil)
	o := &weir.Observer{Panicked: func(place string) { places = append(places, place) }}
	if _, err := weir.Open(context.Background(), weir.Config{Backend: b, Observer: o}); err != nil {
		t.Fatal(err)
	}
	b.observe("redis")
	if !slices.Equal(places, []string{"redis"}) {
		t.Errorf("observed %q", places)
	}
}

// A warning of a full table stays for a minute of the node's clock, whatever the clock of
// the backend that counts in the table says.
func TestAFullTableIsToldByTheNodesClock(t *testing.T) {
	for _, ahead := range []limiter.Tick{0, -11_000 * limiter.Day} { // after and before the time of the test
		synctest.Test(t, func(t *testing.T) {
			b := &ownBackend{}
			b.ahead = ahead
			n, err := weir.Open(t.Context(), weir.Config{Rules: []byte("rules: [{name: r, key: [user], limits: [10/day]}]\n"),
				MaxKeys: 1, Backend: b})
			if err != nil {
				t.Fatal(err)
			}
			for _, user := range []string{"ada", "bob"} {
				if _, err := n.Check(t.Context(), weir.Request{User: user}); err != nil {
					t.Fatal(err)
				}
			}
			if w := n.Warnings(); len(w) != 1 || !strings.Contains(w[0], "is full") {
				t.Errorf("warnings %q", w)
			}
			time.Sleep(time.Minute)
			if w := n.Warnings(); w != nil {
				t.Errorf("a minute later: %q", w)
			}
		})
	}
}
