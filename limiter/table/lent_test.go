package table

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/limiter/arith"
)

// lentRules are rules whose units may be lent: of each algorithm, and of several limits.
func lentRules(t *testing.T) (out []*limiter.Rule) {
	specs := map[string][]limiter.Spec{
		"fixed":    {{Algorithm: limiter.FixedWindow, Limit: 60, Window: time.Second}},
		"log":      {{Algorithm: limiter.SlidingLog, Limit: 40, Window: time.Second}},
		"window":   {{Algorithm: limiter.SlidingWindow, Limit: 60, Window: time.Second}},
		"counter":  {{Algorithm: limiter.SlidingCounter, Limit: 60, Window: time.Second}},
		"token":    {{Algorithm: limiter.TokenBucket, Limit: 60, Window: time.Second, Burst: 40}},
		"leaky":    {{Algorithm: limiter.LeakyBucket, Limit: 60, Window: time.Second, Burst: 40}},
		"gcra":     {{Algorithm: limiter.GCRA, Limit: 60, Window: time.Second, Burst: 40}},
		"together": {{Limit: 50, Window: time.Second}, {Algorithm: limiter.TokenBucket, Limit: 90, Window: 2 * time.Second}},
	}
	for _, name := range []string{"fixed", "log", "window", "counter", "token", "leaky", "gcra", "together"} {
		r := &limiter.Rule{Name: name}
		for i, s := range specs[name] {
			s.Name = fmt.Sprint(name, i)
			r.Limits = append(r.Limits, limit(t, s))
		}
		out = append(out, r)
	}
	return out
}

// lease is what a holder was lent of a key.
type lease struct {
	id, left, used uint64
	until          limiter.Tick
}

// lending is a key of which units are lent to holders, and what clients were told of it.
type lending struct {
	t      *testing.T
	table  *Table
	other  *Table // to which they move
	key    uint64
	rule   *limiter.Rule
	now    limiter.Tick
	r      *rand.Rand
	leases []lease
	ids    uint64
	told   []limiter.Receipt // Time and, as Charged, the units of each admission
}

func (w *lending) charge(cost uint64) *arith.Charge {
	return charge(cost, arith.Key{Hash: hash(w.key), Rule: w.rule})
}

// ask asks the owner, and reports whether it admits.
func (w *lending) ask(cost uint64) bool {
	var d limiter.Decision
	if err := w.table.Decide(w.now, w.charge(cost), &d); err != nil {
		w.t.Fatal(err)
	}
	return d.Allowed
}

// lend lends n units until an instant.
func (w *lending) lend(n uint64, span time.Duration) bool {
	w.ids++
	c := w.charge(n)
	c.ID = &arith.Idempotency{ID: w.ids, Life: time.Second, Hold: span, Keep: true, Lent: true}
	var d limiter.Decision
	if err := w.table.Decide(w.now, c, &d); err != nil {
		w.t.Fatal(err)
	}
	if d.Allowed {
		w.leases = append(w.leases, lease{id: w.ids, left: n, until: w.now + limiter.Span(span)})
	}
	return d.Allowed
}

// giveBack ends lease i: what it used is charged.
func (w *lending) giveBack(i int) {
	l := w.leases[i]
	c := w.charge(l.used)
	c.ID = &arith.Idempotency{ID: l.id, Life: time.Second}
	if out, _ := w.table.Amend(w.now, c, limiter.Amend{IgnoreUnknown: true}); out.State != limiter.AmendDone {
		w.t.Fatalf("a lease is settled: %v", out.State)
	}
	w.leases = append(w.leases[:i], w.leases[i+1:]...)
}

// move brings the counters to another table, as to an heir.
func (w *lending) move(part int) {
	var entries []Entry
	w.table.Export(part, w.now, func(e Entry) {
		e.Words = append([]uint64(nil), e.Words...)
		entries = append(entries, e)
	})
	w.table.Drop(part)
	w.table, w.other = w.other, w.table
	if err := w.table.Import(part, w.now, entries, Replace); err != nil {
		w.t.Fatal(err)
	}
}

// A reset forgets what was charged, and keeps what is lent: its units still count, and what was used is charged when
// the lease is given back.
func TestAResetKeepsWhatIsLent(t *testing.T) {
	for _, rule := range lentRules(t) {
		w := lending{t: t, table: New(Config{}), rule: rule, now: limiter.Tick(1e15)}
		if !w.ask(20) || !w.lend(8, 300*time.Millisecond) {
			t.Fatal(rule.Name)
		}
		before := w.left()
		w.now += limiter.Millisecond
		w.table.Reset(w.now, w.charge(1))
		if got := w.left(); got < before+18 || got > before+20 { // a bucket leaks
			t.Errorf("%s: %d are left after the reset, and %d before", rule.Name, got, before)
		}
		w.now += limiter.Millisecond
		w.leases[0].used = 3
		w.giveBack(0)
		if got := w.left(); got < before+23 || got > before+25 {
			t.Errorf("%s: %d are left when 3 of 8 were used, and %d before the reset", rule.Name, got, before)
		}
	}
}

// left returns what is left, the least of all limits.
func (w *lending) left() uint64 {
	var d limiter.Decision
	if err := w.table.Decide(w.now, w.charge(0), &d); err != nil {
		w.t.Fatal(err)
	}
	left := d.Limit(0).Remaining
	for i := range d.Len() {
		left = min(left, d.Limit(i).Remaining)
	}
	return left
}

// Nothing extends a lease, whatever ordinary reservations may: it ends when it was to, also after a reset.
func TestNothingExtendsALease(t *testing.T) {
	for _, rule := range lentRules(t) {
		w := lending{t: t, table: New(Config{}), rule: rule, now: limiter.Tick(1e15)}
		if !w.lend(8, 300*time.Millisecond) {
			t.Fatal(rule.Name)
		}
		for _, units := range []uint64{1, 8, 9} {
			c := w.charge(units)
			c.ID = &arith.Idempotency{ID: w.leases[0].id, Life: time.Second, Hold: 24 * time.Hour}
			if out, _, changed := w.table.Extend(w.now, c, limiter.Amend{Extend: true}); out.State != limiter.AmendUnknown ||
				changed {
				t.Errorf("%s, to %d units: %+v", rule.Name, units, out)
			}
		}
		w.table.Reset(w.now, w.charge(1))
		w.now += 300 * limiter.Millisecond
		if w.left(); len(w.table.Lent(w.charge(1).Key(0))) > 0 {
			t.Errorf("%s: it is lent still", rule.Name)
		}
	}
}

// What another table has lent counts when that is merged into this one, whichever of two counters is the larger.
func TestWhatIsLentIsMerged(t *testing.T) {
	rule := lentRules(t)[0]
	ours, theirs := New(Config{}), New(Config{})
	w := lending{t: t, table: theirs, other: ours, rule: rule, now: limiter.Tick(1e15)}
	if !w.lend(8, 300*time.Millisecond) {
		t.Fatal("nothing is lent")
	}
	w.table = ours
	if !w.ask(30) {
		t.Fatal("30 of 60 are denied")
	}
	part := PartitionOf(w.charge(1).Key(0))
	moveTo(t, theirs, part, w.now, ours, w.now, Merge)
	if left := w.left(); left != 22 {
		t.Errorf("%d are left of 60, of which 30 are used and 8 lent", left)
	}
	moveTo(t, theirs, part, w.now, ours, w.now, Merge)
	if left := w.left(); left != 22 {
		t.Errorf("%d are left once it has come twice", left)
	}
	w.leases[0].used = 2
	w.giveBack(0)
	if left := w.left(); left != 28 {
		t.Errorf("%d are left when 2 of 8 were used", left)
	}
}

// Where there is no room for a lease it is denied: charged at once, it would not count when it is used.
func TestNoRoomForALease(t *testing.T) {
	rule := lentRules(t)[0]
	for _, overflow := range []Overflow{OverflowAllow, OverflowDeny} {
		w := lending{t: t, table: New(Config{MaxKeys: 1, Overflow: overflow}), rule: rule, now: limiter.Tick(1e15)}
		if !w.ask(1) {
			t.Fatal("premise: a check is admitted")
		}
		if w.lend(8, 300*time.Millisecond) || w.left() != 59 {
			t.Errorf("overflow %v: lent, or charged: %d are left", overflow, w.left())
		}
	}
}

// A key has a bounded number of leases, since whoever looks at it moves all of them. Others ask for each check.
func TestTheLeasesOfAKeyAreBounded(t *testing.T) {
	limit, err := limiter.NewLimit(limiter.Spec{Algorithm: limiter.FixedWindow, Limit: 1e6, Window: 24 * time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	w := lending{t: t, table: New(Config{}), rule: &limiter.Rule{Name: "r", Limits: []*limiter.Limit{limit}, Leases: true},
		now: limiter.Tick(1e15)}
	n := 0
	for range 200 {
		if w.lend(1, time.Second) {
			n++
		}
	}
	if n != MaxLoans {
		t.Errorf("%d leases, want %d", n, MaxLoans)
	}
	if !w.ask(1) {
		t.Error("a check is denied for them")
	}
}

// What is lent still counts when a copy of its counter is swept, moved on and taken over, though its charges would have
// recovered there meanwhile.
func TestACopyKeepsWhatIsLent(t *testing.T) {
	for _, rule := range lentRules(t) {
		w := lending{t: t, table: New(Config{}), other: New(Config{}), rule: rule, now: limiter.Tick(1e15)}
		if !w.lend(8, time.Second) {
			t.Fatal(rule.Name)
		}
		part := PartitionOf(w.charge(1).Key(0))
		w.move(part)
		w.table.SetCopy(part, true)
		w.now += 950 * limiter.Millisecond
		w.table.parts[part].sweepOne(w.now)
		w.move(part) // from one copy to another
		w.table.SetCopy(part, false)
		whole := lending{t: t, table: New(Config{}), rule: rule, now: w.now}
		if lent, all := w.left(), whole.left(); lent != all-8 {
			t.Errorf("%s: %d are left of %d, of which 8 are lent", rule.Name, lent, all)
		}
		w.leases[0].used = 5
		if w.giveBack(0); w.left() != whole.left()-5 {
			t.Errorf("%s: %d are left of %d, of which 5 are used", rule.Name, w.left(), whole.left())
		}
	}
}

// What is lent counts under a limit that comes in place of the one by which it was lent.
func TestWhatIsLentCountsUnderANewLimit(t *testing.T) {
	all := lentRules(t)
	for _, from := range all[:7] {
		for _, to := range all[:7] {
			later := *to
			l := to.Limits[0].Spec()
			l.Name = from.Limits[0].Name()
			later.Name, later.Limits = from.Name, []*limiter.Limit{limit(t, l)}
			w := lending{t: t, table: New(Config{}), rule: from, now: limiter.Tick(1e15)}
			if !w.lend(8, time.Second) {
				t.Fatal(from.Name)
			}
			w.rule = &later
			w.left()
			w.now += 950 * limiter.Millisecond
			whole := lending{t: t, table: New(Config{}), rule: &later, now: w.now}
			if w.left() > whole.left()-8 {
				t.Errorf("%s to %s: %d are left of %d, of which 8 are lent", from.Name, to.Name, w.left(), whole.left())
			}
		}
	}
}

// Where only what is lent stands in the way, a check is worth asking again when it has come back at the latest. For any
// other the wait is as ever.
func TestWhenWhatIsLentComesBack(t *testing.T) {
	for _, rule := range lentRules(t) {
		days := *rule
		days.Limits = nil
		for _, l := range rule.Limits {
			spec := l.Spec()
			spec.Window = 24 * time.Hour
			days.Limits = append(days.Limits, limit(t, spec))
		}
		w := lending{t: t, table: New(Config{}), rule: &days, now: limiter.Tick(1e15)}
		w.ask(w.left() - 12)
		if !w.lend(4, 200*time.Millisecond) || !w.lend(2, 300*time.Millisecond) || w.left() != 6 {
			t.Fatalf("%s: %d are left", rule.Name, w.left())
		}
		wait := func(cost uint64) limiter.Tick {
			var d limiter.Decision
			if err := w.table.Decide(w.now, w.charge(cost), &d); err != nil || d.Allowed {
				t.Fatalf("%s: %+v, %v", rule.Name, d, err)
			}
			return limiter.Span(d.RetryAfter)
		}
		if got := wait(12); got != 300*limiter.Millisecond {
			t.Errorf("%s: after %v", rule.Name, got.Duration())
		}
		if got := wait(13); got < limiter.Minute {
			t.Errorf("%s: another unit, after %v", rule.Name, got.Duration())
		}
		w.now += 300*limiter.Millisecond - 1
		w.giveBack(1) // the other one has ended
		if w.left() != 8 {
			t.Errorf("%s: %d are left, and 4 of 6 are charged", rule.Name, w.left())
		}
	}
}

// A slice is renewed, so that nobody is told to wait for its end.
func TestASliceDoesNotComeBack(t *testing.T) {
	rule := &limiter.Rule{Name: "r", Limits: []*limiter.Limit{
		limit(t, limiter.Spec{Algorithm: limiter.FixedWindow, Limit: 1e6, Window: 24 * time.Hour}),
	}}
	w := lending{t: t, table: New(Config{}), rule: rule, now: limiter.Tick(1e15)}
	c := w.charge(10)
	c.ID = &arith.Idempotency{ID: 1, Life: time.Second, Hold: 10 * time.Second, Keep: true, Lent: true, Rate: 1}
	var d limiter.Decision
	if err := w.table.Decide(w.now, c, &d); err != nil || d.Remarks().Assigned != 1 {
		t.Fatalf("premise: a slice: %+v, %v", d, err)
	}
	w.ask(w.left() - 5)
	if err := w.table.Decide(w.now, w.charge(10), &d); err != nil || d.Allowed || d.RetryAfter < time.Minute {
		t.Errorf("%+v, %v", d, err)
	}
}

// A partition that comes is swept while it grows. What is lent of the key that has it grow counts as ever.
func TestWhatIsLentComesWhileATableGrows(t *testing.T) {
	rule := lentRules(t)[3]
	for others := range uint64(300) { // with some of them it grows where the lease comes
		now := limiter.Tick(1e15) + 900*limiter.Millisecond
		of := func(i uint64) *arith.Charge { // all in one partition
			return charge(40, arith.Key{Hash: arith.Hash{Hi: i, Lo: i << 8}, Rule: rule})
		}
		w := lending{t: t, table: New(Config{}), other: New(Config{}), now: now}
		decide := func(c *arith.Charge) (d limiter.Decision) {
			if err := w.table.Decide(w.now, c, &d); err != nil {
				t.Fatal(err)
			}
			return d
		}
		for i := range others {
			decide(of(1 + i))
		}
		c := of(0)
		c.ID = &arith.Idempotency{ID: 1, Life: time.Second, Hold: 300 * time.Millisecond, Keep: true, Lent: true}
		decide(c)
		w.move(0)
		w.now += 200 * limiter.Millisecond // in the next window
		if d := decide(of(0)); d.Allowed || d.Limit(0).Remaining != 20 {
			t.Errorf("beside %d others %d are left of 60, of which 40 are lent", others, d.Limit(0).Remaining)
		}
	}
}
