package table

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/limiter/arith"
)

// assignment is one rate that a holder was told, until its time is over.
type assignment struct {
	rate  uint64
	until limiter.Tick
}

// holder is who uses a slice as a bucket that begins full. It may use any of its assignments that are not over: the
// later ones may be lost on their way.
type holder struct {
	id, burst uint64
	assigned  []assignment
	level     uint64 // in millionths of a unit
}

// rate drops the assignments that are over, and returns the highest rate of the others.
func (h *holder) rate(now limiter.Tick) (most uint64) {
	n := 0
	for _, a := range h.assigned {
		if a.until > now {
			h.assigned[n], most = a, max(most, a.rate)
			n++
		}
	}
	h.assigned = h.assigned[:n]
	return most
}

// slicing is a key whose rate is divided among holders, who are asked as well as its owner.
type slicing struct {
	lending
	holders []*holder
	granted int
}

// pass lets time pass. The holders' buckets fill at the highest rate that they may have.
func (w *slicing) pass(by limiter.Tick) {
	for end := w.now + by; w.now < end; {
		next := end
		for _, h := range w.holders {
			for _, a := range h.assigned {
				if a.until > w.now {
					next = min(next, a.until)
				}
			}
		}
		for _, h := range w.holders {
			h.level = min(h.level+h.rate(w.now)*uint64(next-w.now), h.burst*1e6)
		}
		w.now = next
	}
	live := w.holders[:0]
	for _, h := range w.holders {
		if h.rate(w.now) > 0 || len(h.assigned) > 0 {
			live = append(live, h)
		}
	}
	w.holders = live
}

// assign asks for a slice of holder h, or renews it, and returns the rate that it got.
func (w *slicing) assign(h *holder, rate uint64, span time.Duration) uint64 {
	counted := max(rate, h.rate(w.now))
	c := w.charge(h.burst + 1)
	c.ID = &arith.Idempotency{ID: h.id, Life: time.Second, Hold: span, Keep: true, Lent: true, Rate: counted}
	var d limiter.Decision
	if err := w.table.Decide(w.now, c, &d); err != nil {
		w.t.Fatal(err)
	}
	got := min(d.Remarks().Assigned, rate)
	if !d.Allowed || got == 0 {
		return 0
	}
	w.granted++
	h.assigned = append(h.assigned, assignment{got, w.now + limiter.Span(span)})
	return got
}

func (w *slicing) step() {
	switch n := w.r.IntN(100); {
	case n < 25:
		if c := 1 + w.r.Uint64N(3); w.ask(c) {
			w.told = append(w.told, arith.NewReceipt(arith.ReceiptFields{Time: w.now, Charged: c}))
		}
	case n < 33:
		w.ids++
		h := &holder{id: w.ids, burst: 1 + w.r.Uint64N(8)}
		h.level = h.burst * 1e6
		if w.assign(h, 1+w.r.Uint64N(40), time.Duration(50+w.r.IntN(2000))*time.Millisecond) > 0 {
			w.holders = append(w.holders, h)
		}
	case n < 48 && len(w.holders) > 0:
		w.assign(w.holders[w.r.IntN(len(w.holders))], 1+w.r.Uint64N(40),
			time.Duration(50+w.r.IntN(2000))*time.Millisecond)
	case n < 80 && len(w.holders) > 0:
		h := w.holders[w.r.IntN(len(w.holders))]
		if c := 1 + w.r.Uint64N(max(1, h.level/1e6)); c*1e6 <= h.level && len(h.assigned) > 0 {
			h.level -= c * 1e6
			w.told = append(w.told, arith.NewReceipt(arith.ReceiptFields{Time: w.now, Charged: c}))
		}
	case n < 82:
		w.move(PartitionOf(w.charge(1).Key(0)))
	default:
		w.pass(limiter.Tick(w.r.Int64N(int64(120 * limiter.Millisecond))))
	}
}

// What clients are told by holders of slices and by the owner is what the limits alone would admit, whatever rates are
// assigned, raised, lowered, lost or abandoned, and after takeovers. Of a sliding window no interval as long as the
// window has more than the limit. It counts a sub-window longer than that, and a slice has its rate all the same: else
// all of them together could use 10 of 11 units.
func TestSlicesAdmitNothingTwice(t *testing.T) {
	seeds := 300
	if testing.Short() {
		seeds = 60
	}
	for _, rule := range lentRules(t) {
		granted, table, other, alone, judge := 0, New(Config{}), New(Config{}), New(Config{}), rule
		if rule.Name == "window" {
			judge = &limiter.Rule{Name: rule.Name, Limits: []*limiter.Limit{
				limit(t, limiter.Spec{Algorithm: limiter.SlidingLog, Limit: 60, Window: time.Second})}}
		}
		for seed := range uint64(seeds) {
			w := slicing{lending: lending{t: t, table: table, other: other, key: seed, rule: rule, now: limiter.Tick(1e15),
				r: rand.New(rand.NewPCG(seed, 55))}}
			for range 300 {
				w.step()
			}
			granted += w.granted
			w.rule = judge
			for i, told := range w.told {
				var d limiter.Decision
				of := arith.Fields(&told)
				if err := alone.Decide(of.Time, w.charge(of.Charged), &d); err != nil || !d.Allowed {
					t.Fatalf("%s, seed %d: admission %d of %d units at %d is one that the limits deny: %v", rule.Name, seed, i,
						arith.Fields(&told).Charged, arith.Fields(&told).Time-1e15, err)
				}
			}
		}
		if granted < seeds*5 {
			t.Errorf("%s: %d assignments in %d runs", rule.Name, granted, seeds)
		}
	}
}

// renew renews what is lent of the key, entry by entry, or together. It reports whether that was possible.
func (w *slicing) renew(together bool) (done bool) {
	k := w.charge(1).Key(0)
	p := &w.table.parts[PartitionOf(k)]
	p.mu.Lock()
	defer p.mu.Unlock()
	b := p.ledgerOf(k)
	if !b.exists() {
		return false
	}
	if b.expire(w.now); together {
		return b.s.state.A > 0 && loans{b}.renewTogether(w.now)
	}
	loans{b}.renewEach(w.now)
	return true
}

// Charges that move together are those that move entry by entry: nobody is told anything else.
func TestRenewsTogetherAsEach(t *testing.T) {
	for _, rule := range lentRules(t) {
		done := 0
		for seed := range uint64(15) {
			var both [2]slicing
			for i := range both {
				both[i] = slicing{lending: lending{t: t, table: New(Config{}), other: New(Config{}), key: seed, rule: rule,
					now: limiter.Tick(1e15), r: rand.New(rand.NewPCG(seed, 56))}}
			}
			for step := range 300 {
				for i := range both {
					both[i].step()
				}
				both[0].renew(false)
				if both[1].renew(true) {
					done++
				}
				one, two := &both[0], &both[1]
				if !slices.Equal(one.told, two.told) || one.granted != two.granted || one.left() != two.left() {
					t.Fatalf("%s, seed %d, step %d: %d admissions, %d assignments, %d left; together %d, %d, %d", rule.Name, seed,
						step, len(one.told), one.granted, one.left(), len(two.told), two.granted, two.left())
				}
			}
		}
		if done < 500 {
			t.Errorf("%s: premise: %d of 4500 times all moved together", rule.Name, done)
		}
	}
}

// A rate moves from one holder to another at once, and the owner has what is left over.
func TestARateMoves(t *testing.T) {
	for _, rule := range lentRules(t) {
		w := slicing{lending: lending{t: t, table: New(Config{}), rule: rule, now: limiter.Tick(1e15)}}
		one, two := &holder{id: 1, burst: 4}, &holder{id: 2, burst: 4}
		const span = 2 * time.Second
		if got := w.assign(one, 20, span); got != 20 {
			t.Fatalf("%s: a rate of %d of 20", rule.Name, got)
		}
		w.assign(two, 1, span)
		for range 30 {
			w.pass(100 * limiter.Millisecond)
			w.assign(one, 20, span)
			w.assign(two, 1, span)
		}
		for one.rate(w.now) > 1 {
			w.pass(500 * limiter.Millisecond)
			w.assign(one, 1, span)
			w.assign(two, 1, span)
		}
		if got := w.assign(two, 20, span); got != 20 {
			t.Errorf("%s: a rate of %d of 20, once the other one has 1", rule.Name, got)
		}
		if l := rule.Limits[0]; len(rule.Limits) == 1 && !arith.Accrues(l) && w.left() != l.Capacity()-10-21 {
			t.Errorf("%s: %d are left of %d, of which 10 and a rate of 21 are assigned", rule.Name, w.left(), l.Capacity())
		}
		var all []string
		for _, h := range w.table.Lent(w.charge(1).Key(0)) {
			all = append(all, fmt.Sprint(h.ID, h.Rate, h.Cost))
		}
		if want := "[1 1 5 2 20 5]"; fmt.Sprint(all) != want {
			t.Errorf("%s: slices %v, want %s", rule.Name, all, want)
		}
		got := w.assign(one, 20, span)
		if l := rule.Limits[0]; len(rule.Limits) == 1 && !arith.Accrues(l) && w.left() != l.Capacity()-10-20-got {
			t.Errorf("%s: %d are left of %d, of which 10 and rates of 20 and %d are assigned", rule.Name, w.left(),
				l.Capacity(), got)
		}
	}
}

// set asks for a slice with a rate that counts from now on, whatever was assigned before.
func (w *slicing) set(burst, rate uint64, span time.Duration) uint64 {
	c := w.charge(burst)
	c.ID = &arith.Idempotency{ID: 1, Life: time.Second, Hold: span, Keep: true, Lent: true, Rate: rate}
	var d limiter.Decision
	if err := w.table.Decide(w.now, c, &d); err != nil || !d.Allowed {
		w.t.Fatalf("a slice: %v, %+v", err, d)
	}
	return d.Remarks().Assigned
}

func bucketOf(t *testing.T, limited, burst int64) *limiter.Rule {
	return &limiter.Rule{Name: "r", Limits: []*limiter.Limit{limit(t, limiter.Spec{Name: "bucket",
		Algorithm: limiter.TokenBucket, Limit: limited, Window: time.Second, Burst: burst})}}
}

// Whenever a rate changes, the part of a unit that is not charged yet is. Else a rate that changes often would cost
// less than it gives.
func TestARateThatChangesIsCharged(t *testing.T) {
	w := slicing{lending: lending{t: t, table: New(Config{}), rule: bucketOf(t, 2, 200), now: limiter.Tick(1e15)}}
	if !w.ask(190) {
		t.Fatal("premise: 190 of 200 are admitted")
	}
	used := uint64(0) // in millionths
	for range 50 {
		for _, x := range []struct{ rate, milli uint64 }{{2, 450}, {1, 550}} {
			w.set(10, x.rate, 2*time.Second)
			used += x.rate * x.milli * 1000
			w.now += limiter.Tick(x.milli) * limiter.Millisecond
		}
	}
	if left := w.left(); left > (100e6-used)/1e6 {
		t.Errorf("%d are left when 100 have come back, and a holder may have used %d millionths of a unit", left, used)
	}
}

// A slice whose time is over without another look at its key is charged until then.
func TestASliceIsChargedToItsEnd(t *testing.T) {
	w := slicing{lending: lending{t: t, table: New(Config{}), rule: bucketOf(t, 60, 40), now: limiter.Tick(1e15)}}
	if got := w.set(5, 60, time.Second); got != 60 || !w.ask(35) {
		t.Fatal("premise: the bucket is empty", got)
	}
	w.now += limiter.Second
	if left := w.left(); left != 0 {
		t.Errorf("%d are left at the end of a slice that has the rate of its limit", left)
	}
	w.now += limiter.Second / 2
	if left := w.left(); left != 30 {
		t.Errorf("%d are left half a second later, want 30", left)
	}
}

// What was assigned before counts on when the limit falls.
func TestARateStaysWhenItsLimitFalls(t *testing.T) {
	w := slicing{lending: lending{t: t, table: New(Config{}), rule: bucketOf(t, 60, 40), now: limiter.Tick(1e15)}}
	w.set(5, 20, time.Second)
	w.rule = bucketOf(t, 10, 40)
	w.now += limiter.Second / 2
	if got := w.set(5, 20, time.Second); got != 20 {
		t.Errorf("a rate of %d counts, and 20 were assigned", got)
	}
	if got := w.set(5, 30, time.Second); got != 20 {
		t.Errorf("a rate of %d counts, and 20 were assigned of a limit of 10", got)
	}
}

// What a rate that has fallen may have used comes back: other slices have it at once, the owner a window after the
// next renewal.
func TestWhatARateLeavesComesBack(t *testing.T) {
	for _, rule := range lentRules(t)[:4] {
		w := slicing{lending: lending{t: t, table: New(Config{}), rule: rule, now: limiter.Tick(1e15)}}
		w.set(5, 20, 10*time.Second)
		for range 30 {
			w.now += limiter.Second / 10
			w.set(5, 1, 10*time.Second)
		}
		if left, all := w.left(), rule.Limits[0].Capacity(); left != all-6 {
			t.Errorf("%s: %d of %d are left beside a slice of 5 and 1 a second", rule.Name, left, all)
		}
	}
}

// Nobody knows what the holder of a slice has used: whoever settles it is charged all.
func TestASliceIsNotSettled(t *testing.T) {
	for _, rule := range lentRules(t) {
		w := slicing{lending: lending{t: t, table: New(Config{}), rule: rule, now: limiter.Tick(1e15)}}
		w.set(5, 10, time.Second)
		w.now += limiter.Second / 2
		before := w.left()
		c := w.charge(0)
		c.ID = &arith.Idempotency{ID: 1, Life: time.Second}
		if _, changed := w.table.Amend(w.now, c, limiter.Amend{IgnoreUnknown: true}); !changed || w.left() != before {
			t.Errorf("%s: %d are left, and %d before", rule.Name, w.left(), before)
		}
		if all := w.table.Lent(w.charge(1).Key(0)); len(all) > 0 {
			t.Errorf("%s: there are still slices: %v", rule.Name, all)
		}
	}
}

// renewed asks for a slice that there is, with a cost, and returns whether that is allowed and what it is assigned.
func (w *slicing) renewed(burst uint64) (bool, uint64) {
	c := w.charge(burst)
	c.ID = &arith.Idempotency{ID: 1, Life: time.Second, Hold: 10 * time.Second, Keep: true, Lent: true, Rate: 10}
	var d limiter.Decision
	if err := w.table.Decide(w.now, c, &d); err != nil {
		w.t.Fatal(err)
	}
	return d.Allowed, d.Remarks().Assigned
}

// A slice is renewed as what it is: with its burst, and while all limits of its rule count it. Else it ends.
func TestASliceIsRenewedAsItIs(t *testing.T) {
	w := slicing{lending: lending{t: t, table: New(Config{}), rule: bucketOf(t, 60, 40), now: limiter.Tick(1e15)}}
	w.set(5, 10, time.Second)
	if ok, got := w.renewed(30); ok || got != 0 {
		t.Error("it is renewed with another burst")
	}
	both := *w.rule
	both.Limits = append([]*limiter.Limit{limit(t, limiter.Spec{Name: "new", Limit: 60, Window: time.Second})},
		both.Limits...)
	w.rule = &both
	if ok, got := w.renewed(5); ok || got != 0 {
		t.Error("it is renewed though a limit does not count it")
	}
	w.now += limiter.Second
	if ok, got := w.renewed(5); !ok || got != 10 || len(w.table.Lent(w.charge(1).Key(0))) != 1 || w.left() != 30 {
		t.Errorf("once it is over: allowed %v, a rate of %d, %d left", ok, got, w.left())
	}
}

// The id of another charge that lasts is no slice, and nothing extends one.
func TestASliceByAnotherID(t *testing.T) {
	w := slicing{lending: lending{t: t, table: New(Config{}), rule: lentRules(t)[1], now: limiter.Tick(1e15)}}
	w.lend(20, 300*time.Millisecond)
	if ok, got := w.renewed(5); ok || got != 0 || w.left() != 20 {
		t.Errorf("a lease becomes a slice: a rate of %d, %d left", got, w.left())
	}
	w = slicing{lending: lending{t: t, table: New(Config{}), rule: bucketOf(t, 60, 40), now: limiter.Tick(1e15)}}
	w.set(5, 10, time.Second)
	c := w.charge(7)
	c.ID = &arith.Idempotency{ID: 1, Life: time.Second, Hold: time.Hour}
	out, _ := w.table.Amend(w.now, c, limiter.Amend{Extend: true})
	if out.State != limiter.AmendUnknown || w.left() != 35 {
		t.Errorf("an extension: %v, %d left", out.State, w.left())
	}
}

// A settlement may come with an instant that is before the last look.
func TestASliceEndsBeforeTheLastLook(t *testing.T) {
	w := slicing{lending: lending{t: t, table: New(Config{}), rule: bucketOf(t, 1000, 40), now: limiter.Tick(1e15)}}
	w.set(5, 1000, time.Second)
	w.now += 10 * limiter.Millisecond
	before := w.left()
	c := w.charge(0)
	c.ID = &arith.Idempotency{ID: 1, Life: time.Second}
	w.table.Amend(w.now-limiter.Millisecond, c, limiter.Amend{})
	if left := w.left(); left+2 < before {
		t.Errorf("%d are left, and %d before", left, before)
	}
}

// The lists of top keys say of a key how many have slices and leases, what of, and until when. A slice is asked for
// each time that it is renewed.
func TestTopKeysSayWhatIsLent(t *testing.T) {
	w := slicing{lending: lending{t: t, table: New(Config{}), rule: lentRules(t)[0], now: limiter.Tick(1e15)}}
	one, two := &holder{id: 1, burst: 4}, &holder{id: 2, burst: 4}
	for range SampleOf {
		w.assign(one, 9, time.Second)
	}
	w.assign(two, 3, 2*time.Second)
	w.table.SetName(w.charge(1).Key(0), []byte("divided"))
	want := TopKey{Name: "divided", Count: SampleOf, part: PartitionOf(w.charge(1).Key(0)), key: w.charge(1).Key(0).Hash,
		Lent: Loans{Holders: 2, Units: 10, Rate: 12, Until: w.now + 2*limiter.Second}}
	if hottest, _ := w.table.Top(1, nil); len(hottest) != 1 || hottest[0] != want {
		t.Fatalf("listed are %+v, want %+v", hottest, want)
	}

	var d limiter.Decision
	if err := w.table.Decide(w.now, w.charge(1_000_000), &d); err != nil || d.Allowed {
		t.Fatal(err, d)
	}
	w.table.SetName(w.charge(1).Key(0), []byte("divided"))
	want.Name, want.Count = "divided:"+w.rule.Limits[0].Name(), 1
	if _, denied := w.table.Top(1, nil); len(denied) != 1 || denied[0] != want {
		t.Errorf("denied are %+v, want %+v", denied, want)
	}
	w.table.SetCopy(want.part, true)
	if hottest, _ := w.table.Top(1, nil); len(hottest) != 1 || hottest[0].Lent.Holders > 0 {
		t.Errorf("of a key whose counters are a copy %+v is listed", hottest)
	}
	w.table.SetCopy(want.part, false)
	w.pass(2 * limiter.Second)
	w.left() // takes off what is over
	if hottest, _ := w.table.Top(1, nil); hottest[0].Lent != (Loans{}) {
		t.Errorf("of what is over %+v is said to be lent", hottest[0].Lent)
	}
}
