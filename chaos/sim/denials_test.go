package sim

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/limiter/arith"
	"github.com/weirlimit/weir/limiter/table"
	"github.com/weirlimit/weir/rules"
)

// A cluster whose nodes remember denials keeps the bounds that it keeps without,
// and grants what it owes.
func TestCachedDenialsKeepTheBounds(t *testing.T) {
	worlds(t)
	for kind := range Kinds {
		refused := 0
		for seed := range seeds(t, 6) {
			w := worldOf(kind, uint64(seed))
			w.near.cached = true
			if err := w.play(kind, uint64(seed)); err != nil {
				t.Error(err)
			}
			refused += w.near.refused
		}
		if refused == 0 {
			t.Errorf("%v: no denial was given again", kind)
		}
		t.Logf("%v: %d denials were given again", kind, refused)
	}
}

// remembering is a cluster of three whose nodes remember denials, asked at one of
// them.
func remembering(t *testing.T, yaml string) *subject {
	t.Helper()
	s, ok := newSubjectOf(t, yaml, func(w *World) { w.near.cached = true }).(*subject)
	if !ok {
		t.Fatal("no subject")
	}
	s.only = true
	return s
}

const everyAlgorithm = `
version: 1
rules:
  - {name: log, limits: [{limit: 5, window: 700ms, algorithm: sliding_log}, 9/minute]}
  - {name: fixed, algorithm: fixed_window, limits: [3/second, {name: long, limit: 8, window: 4s}]}
  - {name: counter, algorithm: sliding_counter, limits: [4/second]}
  - {name: window, algorithm: sliding_window, limits: [5/second]}
  - {name: bucket, algorithm: token_bucket, limits: [{limit: 3, window: 1s, burst: 4}]}
  - {name: gcra, algorithm: gcra, limits: [{limit: 7, window: 2s, burst: 2}]}
  - {name: leaky, algorithm: leaky_bucket, limits: [{limit: 3, window: 1s, burst: 3, drip: interval}]}
  - {name: block, limits: [{limit: 2, window: 300ms, algorithm: fixed_window, block: 1500ms}]}
  - {name: all, algorithm: sliding_log, count_rejected: all, limits: [3/second]}
  - {name: shadow, shadow: true, limits: [2/second]}
  - {name: five, algorithm: fixed_window, limits: [2/second, {name: b, limit: 3, window: 2s}, {name: c, limit: 4, window: 3s}, {name: d, limit: 5, window: 4s}, {name: e, limit: 6, window: 5s}]}
`

// Asked at one node, a cluster that remembers denials answers as one table does:
// never a denial that is over, never a wait that is wrong, also after refunds and
// resets.
func TestCachedDenialsAreTheOwners(t *testing.T) {
	worlds(t)
	s := remembering(t, everyAlgorithm)
	one := table.New(table.Config{})
	set, err := rules.Parse("rules", []byte(everyAlgorithm), rules.Options{})
	if err != nil {
		t.Fatal(err)
	}
	rng := rand.New(rand.NewPCG(3, 9))
	infos := set.Rules()
	again, remembered := 0, map[string]int{}
	type receipts struct {
		request   limiter.Request
		charge    arith.Charge
		got, want limiter.Receipt
	}
	charged := map[string]receipts{}
	steps := 3000
	if raceEnabled {
		steps /= 10
	}
	for step := range steps {
		s.clock += limiter.Tick(rng.Int64N(25_000)) * limiter.Tick(rng.IntN(3))
		r := limiter.Request{
			Rule: infos[rng.IntN(len(infos))].Rule.Name, Path: "/x", User: fmt.Sprint("user", rng.IntN(2)),
			Cost: limiter.Units(int64(1 + rng.IntN(2))),
		}
		var c arith.Charge
		if _, err := set.Resolve(&r, &c); err != nil {
			t.Fatal(err)
		}
		var want, got limiter.Decision
		if err := s.CheckInto(context.Background(), &r, &got); err != nil {
			t.Fatal(err)
		}
		if err := one.Decide(s.clock, &c, &want); err != nil {
			t.Fatal(err)
		}
		if a, b := spell(&want), spell(&got); a != b {
			t.Fatalf("step %d, %s of %s by %s:\n%s, but a table says\n%s", step, r.Rule, r.User, got.Source, b, a)
		}
		if arith.Fields(&got.Receipt).Charged != 0 {
			charged[r.Rule+r.User] = receipts{r, *c.Clone(), got.Receipt, want.Receipt}
		}
		if got.Source == limiter.SourceCached {
			again++
			remembered[r.Rule]++
		}
		switch rng.IntN(30) {
		case 0:
			if err := s.Reset(context.Background(), r); err != nil {
				t.Fatal(err)
			}
			one.Reset(s.clock, &c)
			s.clock++ // an owner lets what follows a reset be of a later instant
		case 1, 2, 3:
			last, ok := charged[r.Rule+r.User] // before the denials that are remembered
			if !ok {
				continue
			}
			delete(charged, r.Rule+r.User)
			if err := s.Refund(context.Background(), last.request, last.got); err != nil {
				t.Fatal(err)
			}
			one.Refund(s.clock, &last.charge, last.want)
		}
	}
	for _, r := range infos {
		never := r.Rule.Name == "all" || r.Rule.Name == "shadow" || r.Rule.Name == "five"
		if n := remembered[r.Rule.Name]; (n == 0) != never && !raceEnabled {
			t.Errorf("rule %s: %d denials were given again", r.Rule.Name, n)
		}
	}
	t.Logf("%d of the answers were given again", again)
}

// spell writes what an asker goes by.
func spell(d *limiter.Decision) string {
	text := fmt.Sprintf("allowed %t never %t wait %d:", d.Allowed, d.Never, limiter.Span(d.RetryAfter))
	for i := range d.Len() {
		l := d.Limit(i)
		text += fmt.Sprintf(" %s %t %t wait %d reset %d;", l.FullName(), l.Allowed, l.Blocked, limiter.Span(l.RetryAfter),
			limiter.Span(l.ResetAfter))
	}
	return text
}

// A denial is given again until it is over, a second at most, with what is left of
// the wait; and the other nodes' refunds are seen by then.
func TestACachedDenialEnds(t *testing.T) {
	worlds(t)
	s := remembering(t, `
version: 1
rules:
  - {name: short, algorithm: fixed_window, limits: [{limit: 1, window: 600ms}]}
  - {name: long, algorithm: fixed_window, limits: [{limit: 1, window: 1m}]}
`)
	for name, window := range map[string]limiter.Tick{"short": 600 * ms, "long": limiter.Minute} {
		s.clock = (s.clock/limiter.Minute + 1) * limiter.Minute
		began := s.clock
		r := limiter.Request{Rule: name, User: s.elsewhere(t, name)}
		ask := func(at limiter.Tick, allowed bool, source limiter.Source) {
			t.Helper()
			s.clock = began + at
			var d limiter.Decision
			if err := s.CheckInto(context.Background(), &r, &d); err != nil {
				t.Fatal(err)
			}
			wait := window - at
			if allowed {
				wait = 0
			}
			if d.Allowed != allowed || d.Source != source || limiter.Span(d.RetryAfter) != wait {
				t.Errorf("%s, %v after it began: allowed %t by %s, wait %v; want %t by %s, wait %v",
					name, at.Duration(), d.Allowed, d.Source, d.RetryAfter, allowed, source, wait.Duration())
			}
		}
		ask(0, true, limiter.SourceOwner)
		ask(100*ms, false, limiter.SourceOwner)
		ask(100*ms, false, limiter.SourceCached)
		ask(600*ms-1, false, limiter.SourceCached)
		if name == "short" {
			ask(600*ms, true, limiter.SourceOwner)
			continue
		}
		ask(1100*ms-1, false, limiter.SourceCached)
		ask(1100*ms, false, limiter.SourceOwner)
	}
}

// elsewhere returns a user whose counter another node than the one that is asked
// owns.
func (s *subject) elsewhere(t *testing.T, rule string) string {
	t.Helper()
	for i := range 1000 {
		var c arith.Charge
		r := limiter.Request{Rule: rule, User: fmt.Sprint("user", i)}
		if _, err := s.set.Resolve(&r, &c); err != nil {
			t.Fatal(err)
		}
		n := s.w.live()[0]
		if to, one := n.core.Owner(&c); one && to != n.inst && to != 0 {
			return r.User
		}
	}
	t.Fatal("one node owns all")
	return ""
}
