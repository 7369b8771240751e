package load

import (
	"context"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/cmd/weir/internal/term"
	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/limiter/arith"
	"github.com/weirlimit/weir/rules"
)

// broken is a node that decides as a test defines.
type broken struct {
	*weir.Node
	decide func(n *weir.Node, r *limiter.Request, d *limiter.Decision) error
}

func (b *broken) CheckInto(_ context.Context, r *limiter.Request, d *limiter.Decision) error {
	return b.decide(b.Node, r, d)
}

func (b *broken) CheckBatchInto(_ context.Context, rs []limiter.Request, ds []limiter.Decision) error {
	for i := range rs {
		if err := b.decide(b.Node, &rs[i], &ds[i]); err != nil {
			return err
		}
	}
	return nil
}

// With as many keys as there are by default next to none reaches its limit. A node
// that does not keep to it is found all the same, and a right one is not blamed.
func TestPlantedInManyKeys(t *testing.T) {
	// once returns for each limited key whether it is seen for the first time.
	once := func() func(*limiter.Request) bool {
		var seen sync.Map
		return func(r *limiter.Request) bool {
			_, before := seen.LoadOrStore(r.Path+r.User, true)
			return !before && strings.HasPrefix(r.Path, limitedPath)
		}
	}
	forgetting, forgiving := once(), once()
	ctx := t.Context()
	for name, c := range map[string]struct {
		decide func(*weir.Node, *limiter.Request, *limiter.Decision) error
		look   func(*Limits) bool
	}{
		"right": {func(n *weir.Node, r *limiter.Request, d *limiter.Decision) error { return n.CheckInto(ctx, r, d) },
			func(l *Limits) bool { return l.Wrong() == nil }},
		"always allows": {func(n *weir.Node, r *limiter.Request, d *limiter.Decision) error {
			err := n.CheckInto(ctx, r, d)
			d.Allowed = true
			return err
		}, func(l *Limits) bool { return l.Unequal == 0 && l.Missed == l.Exhausted }},
		"one more than the limit": {func(n *weir.Node, r *limiter.Request, d *limiter.Decision) error {
			err := n.CheckInto(ctx, r, d)
			if !d.Allowed {
				d.Allowed = forgiving(r)
			}
			return err
		}, func(l *Limits) bool { return l.Unequal == 0 && l.Missed == l.Exhausted }},
		"one charge of some keys forgotten": {func(n *weir.Node, r *limiter.Request, d *limiter.Decision) error {
			if strings.HasSuffix(r.User, "7") && forgetting(r) {
				return n.PeekInto(ctx, r, d)
			}
			return n.CheckInto(ctx, r, d)
		}, func(l *Limits) bool { return l.Unequal > l.Peeked/20 && l.Unequal < l.Peeked/5 && l.Low == 0 }},
		"charged twice": {func(n *weir.Node, r *limiter.Request, d *limiter.Decision) error {
			if err := n.CheckInto(ctx, r, d); err != nil {
				return err
			}
			return n.CheckInto(ctx, r, d)
		}, func(l *Limits) bool { return l.Unequal == l.Peeked && l.Low == l.Peeked && l.Missed > 0 }},
		"right, and charged twice where a policy answers": {func(n *weir.Node, r *limiter.Request,
			d *limiter.Decision) error {
			if err := n.CheckInto(ctx, r, d); err != nil || !strings.HasSuffix(r.User, "7") {
				return err
			}
			err := n.CheckInto(ctx, r, d)
			d.Source = limiter.SourceFallbackLocal
			return err
		}, func(l *Limits) bool { return l.Wrong() == nil }},
		"right, and charged twice where an heir answers": {func(n *weir.Node, r *limiter.Request, d *limiter.Decision) error {
			if err := n.CheckInto(ctx, r, d); err != nil || !strings.HasSuffix(r.User, "7") {
				return err
			}
			err := n.CheckInto(ctx, r, d)
			d.Source = limiter.SourceHeir
			return err
		}, func(l *Limits) bool { return l.Wrong() == nil }},
	} {
		config := config(serveBroken(t, c.decide))
		config.Modes, config.Rates, config.Keys, config.Limited = []Mode{Stream}, []float64{0}, 100_000, 10
		config.Batch, config.Duration, config.least = MaxBatch, time.Millisecond, 5
		r, err := Run(ctx, config)
		if err != nil {
			t.Fatal(err)
		}
		p := &r.Points[0]
		l := &p.Limits
		if !c.look(l) || strings.HasPrefix(name, "right") != (r.Wrong() == nil) || p.Decisions.Denied > 0 || l.Hit == 0 ||
			l.Reached > 0 || l.Peeked != l.Hit || l.Exhausted != maxExhausted && !strings.HasSuffix(name, "a policy answers") {
			t.Errorf("%s: %+v, %v", name, l, r.Wrong())
		}
		if !strings.HasPrefix(name, "right") && (l.Example == "" || !strings.Contains(r.Wrong().Error(), limitedPath)) {
			t.Errorf("%s: %v", name, r.Wrong())
		}
	}
}

// The report states if no key has a limit, or none with one was checked.
func TestLimitNotTested(t *testing.T) {
	c := config(serve(t, allRules(), honest))
	c.Modes, c.Rates, c.Limited = []Mode{Batch}, []float64{0}, 0
	r, err := Run(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	if p := &r.Points[0]; p.Limits.Tested() || p.Limits.Hit != 0 ||
		!strings.Contains(r.Text(term.Style{}), "the limit was not tested") {
		t.Errorf("%+v: %s", p.Limits, r.Text(term.Style{}))
	}
}

// The report states which keys could not be verified, and still has the figures of the
// run.
func TestLookingFails(t *testing.T) {
	l := newLedger(&keys{n: 1, limited: []bool{true}, paths: []string{"/"}, users: []string{"a"}})
	l.ask(0)
	l.answer(0, allowed)
	seen := l.look(t.Context(), &Config{Servers: []string{"127.0.0.1:1"}})
	if seen.Hit != 1 || seen.Tested() || seen.Wrong() == nil || !strings.Contains(seen.Why, "node 127.0.0.1:1") {
		t.Errorf("%+v", seen)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if seen = l.look(ctx, &Config{Servers: []string{"127.0.0.1:1"}}); seen.Wrong() == nil {
		t.Errorf("%+v", seen)
	}
}

// However much of the window is over when a point begins, no unit of a key comes back
// while it lasts, and the table forgets its keys after three days.
func TestNothingComesBack(t *testing.T) {
	set, err := rules.Parse("load", []byte(allRules()), rules.Options{})
	if err != nil {
		t.Fatal(err)
	}
	const longest = warmWithin + MaxDuration + grace + scrapeWithin + lookWithin
	k, err := newKeys(&Config{Keys: 1, Limited: 100})
	if err != nil {
		t.Fatal(err)
	}
	var r limiter.Request
	k.request(&r, 0)
	var charge arith.Charge
	m, err := set.Resolve(&r, &charge)
	if err != nil {
		t.Fatal(err)
	}
	if m.Rule != limitedRule {
		t.Fatal(m.Rule)
	}
	l := charge.Key(0).Rule.Limits[0]
	if 2*l.Spec().Window > 72*time.Hour {
		t.Errorf("a window of %v", l.Spec().Window)
	}
	for before := time.Duration(0); before <= longest+time.Minute; before += time.Minute {
		now := time.Unix(0, 0).Add(10*l.Spec().Window - before)
		n, err := weir.Open(t.Context(), weir.Config{Rules: []byte(allRules()), Now: func() time.Time { return now }})
		if err != nil {
			t.Fatal(err)
		}
		for _, first := range []uint64{limit, limit / 2} {
			var d limiter.Decision
			r.User = strconv.Itoa(int(first))
			for range first {
				if err := n.CheckInto(t.Context(), &r, &d); err != nil || !d.Allowed {
					t.Fatalf("%+v, %v", d, err)
				}
			}
			now = now.Add(longest)
			if err := n.PeekInto(t.Context(), &r, &d); err != nil || d.Limit(0).Remaining != limit-first {
				t.Errorf("%v before the window's end: %d left after %d, %v", before, d.Limit(0).Remaining, first, err)
			}
			for i := range limit - first + 1 {
				if err := n.CheckInto(t.Context(), &r, &d); err != nil || d.Allowed != (i < limit-first) {
					t.Fatalf("%v before the window's end check %d is allowed: %t, %v", before, first+i, d.Allowed, err)
				}
			}
			now = now.Add(-longest)
		}
		if err := n.Close(); err != nil {
			t.Fatal(err)
		}
	}
}
