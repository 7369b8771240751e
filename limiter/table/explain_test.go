package table

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/limiter/arith"
)

// told is the part of a decision that is not only for its decider.
func told(d *limiter.Decision) (out []limiter.LimitDecision, all [5]any) {
	for i := range d.Len() {
		l := *d.Limit(i)
		l.Rule, l.Limit = nil, nil
		out = append(out, l)
	}
	return out, [5]any{d.Allowed, d.Never, d.ShadowDenied, limiter.Span(d.RetryAfter), d.Source}
}

func sameAnswer(t *testing.T, what string, got, want *limiter.Decision) {
	t.Helper()
	gotLimits, gotAll := told(got)
	wantLimits, wantAll := told(want)
	if !slices.Equal(gotLimits, wantLimits) || gotAll != wantAll {
		t.Fatalf("%s: %v, want %v\ngot  %+v\nwant %+v", what, gotAll, wantAll, gotLimits, wantLimits)
	}
}

// A table that explains at every step decides like one that never does, even if the
// explanations are for other limits than those that count: no counter is converted. The
// explanations agree with peeks, also of keys with reservations.
func TestExplainChangesNothing(t *testing.T) {
	if testing.Short() {
		t.Skip("long; make wire runs it")
	}
	all := specs()
	rng := rand.New(rand.NewPCG(6, 6))
	for trial := range 300 {
		// Limits of one name, of any algorithms, which replace each other.
		var versions []*limiter.Rule
		for range 3 {
			s := all[rng.IntN(len(all))]
			s.Name, s.Limit, s.Window = "x", int64(3+rng.IntN(6)), time.Duration(3*(1+rng.IntN(3)))*time.Second
			if rng.IntN(3) == 0 {
				s.Block = time.Second
			}
			versions = append(versions, &limiter.Rule{Name: "r", Limits: []*limiter.Limit{limit(t, s)}})
		}
		asked, quiet := New(Config{}), New(Config{})
		at, inForce := 1_800_000_000*limiter.Second, versions[0]
		for step := range 60 {
			at += limiter.Tick(rng.Int64N(int64(700 * limiter.Millisecond)))
			if rng.IntN(12) == 0 {
				inForce = versions[rng.IntN(len(versions))]
			}
			k := arith.Key{Hash: hash(uint64(rng.IntN(3))), Rule: inForce}
			cost := uint64(1 + rng.IntN(3))
			var explained, peeked, got, want limiter.Decision
			for _, r := range versions {
				other := k
				other.Rule = r
				asked.Explain(at, charge(cost, other), &explained)
			}
			x := asked.Explain(at, charge(cost, k), &explained)
			peek := charge(cost, k)
			peek.Peek = true
			if err := asked.Decide(at, peek, &peeked); err != nil {
				t.Fatal(err)
			}
			sameAnswer(t, "explained, and a peek", &explained, &peeked)
			if yes := strings.HasSuffix(x[0].Arithmetic, ": yes"); yes != explained.Limit(0).Allowed || x[0].Now != at {
				t.Fatalf("%v is explained as %q, at %d", explained.Limit(0), x[0].Arithmetic, x[0].Now)
			}
			made := func() *arith.Charge {
				c := charge(cost, k)
				if trial%2 == 1 {
					c.ID = &arith.Idempotency{ID: uint64(step + 1), Life: time.Second, Hold: time.Duration(cost) * 2 * time.Second}
				}
				return c
			}
			if err := asked.Decide(at, made(), &got); err != nil {
				t.Fatal(err)
			}
			if err := quiet.Decide(at, made(), &want); err != nil {
				t.Fatal(err)
			}
			if t.Failed() {
				t.Fatalf("trial %d, step %d", trial, step)
			}
			sameAnswer(t, "with and without explanations", &got, &want)
		}
		asked.checkAll(t)
	}
}

// An explained key enters no list of top keys and is not added. Without room it is
// explained as a new key would be decided, and the table counts no overflow.
func TestExplainIsNotCounted(t *testing.T) {
	table := New(Config{MaxKeys: 1})
	rule := &limiter.Rule{Name: "r", Limits: []*limiter.Limit{limit(t,
		limiter.Spec{Algorithm: limiter.FixedWindow, Limit: 1, Window: time.Hour})}}
	k := func(n uint64) arith.Key { return arith.Key{Hash: hash(n), Rule: rule} }
	now := 1_800_000_000 * limiter.Second
	var d limiter.Decision
	for range 100 {
		table.Explain(now, charge(2, k(1)), &d)
	}
	if table.Stats().Keys != 0 || !d.Never {
		t.Errorf("%+v, never %v", table.Stats(), d.Never)
	}
	if err := table.Decide(now, charge(1, k(1)), &d); err != nil || !d.Allowed {
		t.Fatal(err)
	}
	for range 40 { // one in 16 is looked at, and denied are all
		if err := table.Decide(now, charge(1, k(1)), &d); err != nil {
			t.Fatal(err)
		}
	}
	one := k(1)
	table.SetName(&one, []byte("one"))
	hottest, denied := table.Top(10, nil)
	for range 100 {
		table.Explain(now, charge(1, k(1)), &d)
	}
	if h, n := table.Top(10, nil); len(h) != 1 || len(n) != 1 || !slices.Equal(h, hottest) || !slices.Equal(n, denied) {
		t.Errorf("listed %v and %v, before that %v and %v", h, n, hottest, denied)
	}
	x := table.Explain(now, charge(1, k(2)), &d)
	if d.Allowed || !d.Limit(0).Overflow || !strings.HasSuffix(x[0].Arithmetic,
		"yes; but the key is new, and the table is full") {
		t.Errorf("without room: allowed %v, overflow %v, %q", d.Allowed, d.Limit(0).Overflow, x[0].Arithmetic)
	}
	if s := table.Stats(); s.Overflowed != 0 || s.Keys != 1 {
		t.Errorf("%+v", s)
	}
	// Recovered counters make room, for an explanation as for a check.
	if table.Explain(now+2*limiter.Hour, charge(1, k(2)), &d); !d.Allowed || d.Limit(0).Overflow {
		t.Errorf("with room again: allowed %v", d.Allowed)
	}
	if x := table.Explain(now, &arith.Charge{}, &d); x != nil || !d.Allowed || d.Source != limiter.SourceNone {
		t.Errorf("nothing: %v, allowed %v by %v", x, d.Allowed, d.Source)
	}
}
