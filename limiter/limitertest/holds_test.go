package limitertest

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/limiter/arith"
	"github.com/weirlimit/weir/limiter/table"
)

// holdTrial is a table beside an oracle, through one seed.
type holdTrial struct {
	t      *testing.T
	c      Choices
	table  *table.Table
	oracle *holdOracle
	rules  []*limiter.Rule
	now    Tick
	ends   []Tick // of holds
	story  []string
	made   []madeCharge
	done   map[limiter.AmendState]int
	kind   holdKind
}

// holdKind is what a trial is about.
type holdKind uint8

const (
	ofAll     holdKind = iota // all algorithms
	ofSlots                   // one limit of three is one on concurrency, and there are no refunds
	ofBuckets                 // buckets, many holds that overlap, and little time at once
	ofHits                    // the same for windows of the first hit
)

// madeCharge is a charge that may be refunded.
type madeCharge struct {
	c  *arith.Charge
	r  limiter.Receipt
	at Tick
}

// A table does what the oracle says, in all numbers of all answers: for checks with and without
// ids and holds, settlements, extensions, refunds, resets, holds that end, and counters that
// move to another table or are merged with their own copy.
func TestHoldsAreRight(t *testing.T) { holdsAreRight(t, ofAll) }

// So it does with limits on concurrency among the others. They have no receipts.
func TestConcurrencyIsRight(t *testing.T) { holdsAreRight(t, ofSlots) }

// And so it does with buckets, which give back what they would have.
func TestBucketsAreRight(t *testing.T) { holdsAreRight(t, ofBuckets) }

// And windows of the first hit, which begin with the first that stands.
func TestFirstHitsAreRight(t *testing.T) { holdsAreRight(t, ofHits) }

func holdsAreRight(t *testing.T, kind holdKind) {
	t.Helper()
	seeds, done := uint64(120), map[limiter.AmendState]int{}
	if testing.Short() {
		seeds = 30
	}
	for seed := range seeds {
		h := newHoldTrial(t, SeededChoices(seed), kind, done)
		h.log("seed %d", seed)
		if h.run(); t.Failed() {
			return
		}
	}
	for _, s := range []limiter.AmendState{
		limiter.AmendDone, limiter.AmendRepeated, limiter.AmendCharged, limiter.AmendUnknown, limiter.AmendSettled,
		limiter.AmendDenied,
	} {
		if done[s] < int(seeds)/8 {
			t.Errorf("only %d were %s", done[s], s)
		}
	}
}

// FuzzHolds is all of them, with choices that the fuzzer makes.
func FuzzHolds(f *testing.F) {
	rng := rand.New(rand.NewPCG(5, 6))
	for i := range 16 {
		b := make([]byte, 64<<(i%4))
		for j := range b {
			b[j] = byte(rng.UintN(256))
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		c := ByteChoices(b)
		newHoldTrial(t, c, holdKind(c.Pick(3)), map[limiter.AmendState]int{}).run()
	})
}

func newHoldTrial(t *testing.T, c Choices, kind holdKind, done map[limiter.AmendState]int) *holdTrial {
	t.Helper()
	h := &holdTrial{t: t, c: c, table: table.New(table.Config{}), oracle: newHoldOracle(), now: Start() + 4*limiter.Day,
		done: done, kind: kind}
	for i := range 2 {
		rule := &limiter.Rule{Name: fmt.Sprint("r", i)}
		for j := range 1 + c.Pick(2) {
			spec := RandomWideSpec(c, limiter.Algorithm(c.Pick(algorithmCount())), fmt.Sprint("l", j), 14*24*time.Hour)
			if kind == ofBuckets {
				spec = RandomSpec(c, pick(c, limiter.TokenBucket, limiter.LeakyBucket, limiter.GCRA), spec.Name, time.Hour)
				spec.CountRejected, spec.Block = limiter.CountNone, 0
			}
			if kind == ofHits {
				spec = limiter.Spec{
					Name: spec.Name, Algorithm: limiter.FixedWindow, Align: limiter.AlignFirstHit,
					Window: pick(c, time.Second, time.Minute),
					Limit:  pick[int64](c, 3, 10, 60, 100, 5_000_000_000), Block: spec.Block, CountRejected: spec.CountRejected,
				}
			}
			if kind == ofSlots && c.Pick(3) == 0 {
				spec = limiter.Spec{Name: spec.Name, Algorithm: limiter.Concurrency, Limit: pick[int64](c, 1, 3, 10, 100),
					Block: spec.Block}
			}
			l, err := limiter.NewLimit(spec)
			if err != nil {
				t.Fatal(err)
			}
			rule.Limits = append(rule.Limits, l)
		}
		h.rules = append(h.rules, rule)
	}
	return h
}

// run takes steps while there are choices, until one is wrong, and lets all holds end.
func (h *holdTrial) run() {
	h.t.Helper()
	for i := 0; i < 120 && h.c.More(); i++ {
		if h.step(); h.oracle.rounded() {
			return
		}
		h.compare()
		if h.t.Failed() {
			h.t.Fatalf("%s\n%s\n%v", h.rules[0].Limits, h.rules[1].Limits,
				append(h.story[:1:1], h.story[max(1, len(h.story)-40):]...))
		}
	}
	h.now += 1000 * limiter.Day
	h.compare()
	if s := h.table.Stats(); s.Holds != 0 {
		h.t.Errorf("%d holds are left after all have ended", s.Holds)
	}
}

func (h *holdTrial) log(format string, args ...any) {
	h.story = append(h.story, fmt.Sprintf("\n+%d: ", h.now-Start()-4*limiter.Day)+fmt.Sprintf(format, args...))
}

// pass lets time pass, often up to the end of a hold.
func (h *holdTrial) pass() {
	w := limiter.Span(h.rules[0].Limits[0].Window())
	if (h.kind == ofBuckets || h.kind == ofHits) && h.c.Pick(2) == 0 {
		h.now += Tick(h.c.Pick(150)) * w / 1000
		return
	}
	switch h.c.Pick(8) {
	case 0:
		h.now += Tick(h.c.Pick(2000)) * w / 1000
	case 1:
		h.now++
	case 2, 3:
		if h.ends = slices.DeleteFunc(h.ends, func(t Tick) bool { return t <= h.now }); len(h.ends) > 0 {
			h.now = max(h.now, h.ends[h.c.Pick(len(h.ends))]+Tick(h.c.Pick(3)-1))
		}
	}
}

// charge returns a random charge.
func (h *holdTrial) charge() *arith.Charge {
	c := &arith.Charge{}
	for i := range 1 + h.c.Pick(2) {
		rule := h.rules[(i+h.c.Pick(2))%2]
		k := arith.Key{Hash: arith.Hash{Hi: 1000, Lo: 7}, Rule: rule}
		if rule == h.rules[1] {
			k.Hash = arith.Hash{Hi: 1001, Lo: 9 << 60}
		}
		if i > 0 && c.Key(0).Hash == k.Hash {
			continue
		}
		c.Add(k)
	}
	cost := h.cost()
	for i := range c.Len() {
		c.Key(i).Cost = cost
	}
	w := h.rules[0].Limits[0].Window()
	span := func() time.Duration {
		d := time.Duration(1+h.c.Pick(2000)) * w / 1000
		return min(max(d.Truncate(time.Microsecond), limiter.MinHold), limiter.MaxHold)
	}
	ids := 3
	if h.kind == ofBuckets || h.kind == ofHits {
		ids = 8
	}
	c.ID = &arith.Idempotency{ID: 1 + uint64(h.c.Pick(ids))<<20, Life: span(), Hold: span(), Keep: h.c.Pick(4) == 0}
	return c
}

func (h *holdTrial) cost() uint64 {
	most := h.rules[h.c.Pick(2)].Limits[0].Capacity()
	switch h.c.Pick(8) {
	case 0:
		return 1
	case 1:
		return max(1, most)
	case 2:
		return 1 + most/2
	default:
		return max(1, most/uint64(2+h.c.Pick(12)))
	}
}

func (h *holdTrial) step() {
	h.pass()
	c := h.charge()
	switch h.c.Pick(14) {
	case 0:
		h.table.Reset(h.now, c)
		h.oracle.reset(h.now, c)
		h.made = nil
		h.log("reset %d keys", c.Len())
		h.now++ // a receipt of the same instant would be void
	case 1:
		h.log("move")
		h.table = h.moved()
		h.oracle.moved(h.now)
	case 2:
		h.log("merge")
		h.merge()
	case 3:
		if len(h.made) > 0 && h.kind != ofSlots {
			i := h.c.Pick(len(h.made))
			m := h.made[i]
			h.table.Refund(h.now, m.c, m.r)
			h.oracle.refund(h.now, m.at, m.c, m.r)
			h.made = slices.Delete(h.made, i, i+1)
			h.log("refund")
		}
	case 4, 5, 6, 7:
		if h.c.Pick(6) == 0 {
			for i := range c.Len() {
				c.Key(i).Cost = 0
			}
		}
		if h.c.Pick(8) == 0 { // more than a narrow count holds
			for i := range c.Len() {
				c.Key(i).Cost = min(c.Key(i).Cost*pick[uint64](h.c, 1<<16, 1<<31, 1<<40), limiter.MaxUnits)
			}
		}
		a := limiter.Amend{IgnoreUnknown: h.c.Pick(3) == 0}
		if a.Named = h.c.Pick(4) == 0; a.Named { // each key has a number of its own
			for i := range c.Len() {
				c.Key(i).Cost = uint64(h.c.Pick(12))
			}
		}
		got, _ := h.table.Amend(h.now, c, a)
		want := h.oracle.settle(h.now, c, a)
		h.log("settle %d %d of %d keys: %+v", c.ID.ID>>20, c.Key(0).Cost, c.Len(), want)
		h.amended(got, want)
	case 8, 9:
		for i := range c.Len() {
			c.Key(i).Cost *= pick[uint64](h.c, 1, 3, 9)
		}
		got, _ := h.table.Amend(h.now, c, limiter.Amend{Extend: true})
		want := h.oracle.extend(h.now, c, false)
		h.ends = append(h.ends, h.now+limiter.Span(c.ID.Hold))
		h.log("extend %d to %d by %v: %+v", c.ID.ID>>20, c.Key(0).Cost, c.ID.Hold, want)
		h.amended(got, want)
	default:
		switch h.c.Pick(5) {
		case 0:
			c.ID = nil
		case 1:
			c.ID.Hold = 0
		default:
			h.ends = append(h.ends, h.now+limiter.Span(c.ID.Hold))
		}
		h.check(c)
	}
}

func (h *holdTrial) amended(got, want limiter.Amended) {
	h.done[want.State]++
	got.Known = 0 // an oracle sweeps nothing
	if got != want {
		h.t.Errorf("amended %+v, want %+v", got, want)
	}
}

func (h *holdTrial) check(c *arith.Charge) {
	var d limiter.Decision
	err := h.table.Decide(h.now, c, &d)
	if h.oracle.spent(h.now, c) {
		h.log("check with a spent id")
		if !errors.Is(err, limiter.ErrSettled) {
			h.t.Errorf("the id is spent, and the answer is %+v, %v", d, err)
		}
		return
	}
	if err != nil {
		h.t.Fatal(err)
	}
	want, repeated := h.oracle.check(h.now, c)
	h.log("check %d of %d keys, %+v: %t, repeated %t", c.Key(0).Cost, c.Len(), c.ID, want.Allowed, repeated)
	if d.Repeated != repeated || d.Allowed != want.Allowed {
		h.t.Errorf("repeated %t, allowed %t; want %t, %t", d.Repeated, d.Allowed, repeated, want.Allowed)
	}
	if diff := Diff(&d, want); !d.Allowed && !repeated && diff != "" {
		h.t.Errorf("a denial: %s", diff)
	}
	if d.Allowed && !repeated && arith.Fields(&d.Receipt).Charged != 0 && c.Fits(d.Receipt) {
		h.made = append(h.made, madeCharge{c, d.Receipt, h.now})
	}
}

// compare asks for all numbers.
func (h *holdTrial) compare() {
	for n := range 2 * len(h.rules) {
		i, cost := n%2, uint64(1)
		if n > 1 {
			cost = h.cost()
		}
		rule, c := h.rules[i], &arith.Charge{Peek: true}
		k := arith.Key{Hash: arith.Hash{Hi: 1000, Lo: 7}, Rule: rule, Cost: cost}
		if i == 1 {
			k.Hash = arith.Hash{Hi: 1001, Lo: 9 << 60}
		}
		c.Add(k)
		var d limiter.Decision
		if err := h.table.Decide(h.now, c, &d); err != nil {
			h.t.Fatal(err)
		}
		want, _ := h.oracle.check(h.now, c)
		if diff := Diff(&d, want); diff != "" {
			h.t.Errorf("rule %d: %s", i, diff)
		}
	}
}

// moved returns a table with all counters.
func (h *holdTrial) moved() *table.Table {
	to := table.New(table.Config{})
	h.each(func(part int, all []table.Entry) {
		if err := to.Import(part, h.now, all, table.Replace); err != nil {
			h.t.Fatal(err)
		}
	})
	return to
}

// merge merges all counters with themselves.
func (h *holdTrial) merge() {
	h.each(func(part int, all []table.Entry) {
		if err := h.table.Import(part, h.now, all, table.Merge); err != nil {
			h.t.Fatal(err)
		}
	})
}

func (h *holdTrial) each(f func(part int, all []table.Entry)) {
	for part := range 2 * table.Partitions {
		var all []table.Entry
		h.table.Export(part, h.now, func(e table.Entry) {
			e.Words = slices.Clone(e.Words)
			all = append(all, e)
		})
		if len(all) > 0 {
			f(part, all)
		}
	}
}
