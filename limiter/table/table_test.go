package table

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/limiter/arith"
)

func limit(tb testing.TB, s limiter.Spec) *limiter.Limit {
	tb.Helper()
	l, err := limiter.NewLimit(s)
	if err != nil {
		tb.Fatal(err)
	}
	return l
}

func hash(n uint64) arith.Hash {
	r := rand.New(rand.NewPCG(n, 99))
	return arith.Hash{Hi: r.Uint64(), Lo: r.Uint64()}
}

func charge(cost uint64, keys ...arith.Key) *arith.Charge {
	c := &arith.Charge{}
	for _, k := range keys {
		k.Cost = cost
		c.Add(k)
	}
	return c
}

func (t *Table) checkAll(tb testing.TB) {
	tb.Helper()
	taken := 0
	for i := range t.parts {
		if err := t.parts[i].check(); err != nil {
			tb.Fatalf("partition %d: %v", i, err)
		}
		taken += t.parts[i].used()
	}
	if int64(taken) != t.room.keys.Load() {
		tb.Fatalf("%d slots are taken, %d keys are counted", taken, t.room.keys.Load())
	}
	if err := t.checkCounts(); err != nil {
		tb.Fatal(err)
	}
	t.checkTenants(tb)
}

// specs is every algorithm with every option, at small numbers.
func specs() []limiter.Spec {
	weight := 300
	var out []limiter.Spec
	for _, s := range []limiter.Spec{
		{Algorithm: limiter.FixedWindow}, {Algorithm: limiter.FixedWindow, Align: limiter.AlignFirstHit},
		{Algorithm: limiter.SlidingLog}, {Algorithm: limiter.SlidingWindow},
		{Algorithm: limiter.SlidingWindow, Coverage: limiter.CoverageLenient, SubWindows: 3},
		{}, {Rounding: limiter.RoundFloor}, {Rounding: limiter.RoundNearest}, {Weight: &weight},
		{Algorithm: limiter.TokenBucket}, {Algorithm: limiter.LeakyBucket, Burst: 3},
		{Algorithm: limiter.LeakyBucket, Drip: limiter.DripInterval}, {Algorithm: limiter.GCRA, Burst: 9},
	} {
		for _, count := range []limiter.CountRejected{limiter.CountNone, limiter.CountRoom, limiter.CountAll} {
			s.CountRejected = count
			out = append(out, s)
		}
	}
	return out
}

// The table decides like one Counter for each key: many keys in few partitions,
// several limits, changes of limits, refunds and resets, and time that lets
// counters recover.
func TestDecidesLikeCounters(t *testing.T) {
	seeds := uint64(30)
	if testing.Short() {
		seeds = 3
	}
	if n, err := strconv.ParseUint(os.Getenv("WEIR_SEEDS"), 10, 64); err == nil {
		seeds = n
	}
	for seed := range seeds {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) { compareWithCounters(t, seed) })
	}
}

func compareWithCounters(t *testing.T, seed uint64) {
	r := rand.New(rand.NewPCG(seed, 1))
	all := specs()
	limits := 1 + r.IntN(6)
	// The rest of a sliding_counter may be rounded to nothing, and its entry may or may
	// not be dropped. A limit that rounds it up would show the difference, so all
	// limits of one name round alike.
	var like [6]limiter.Spec
	for i := range like {
		for like[i] = all[r.IntN(len(all))]; like[i].Algorithm != limiter.SlidingCounter; {
			like[i] = all[r.IntN(len(all))]
		}
	}
	randomRule := func() *limiter.Rule {
		rule := &limiter.Rule{Name: "r"}
		for i := range limits {
			s := all[r.IntN(len(all))]
			if s.Algorithm == limiter.SlidingCounter {
				s.Rounding, s.Weight = like[i].Rounding, like[i].Weight
			}
			s.Name, s.Limit = fmt.Sprint("l", i), 1+r.Int64N(8)
			s.Window = time.Duration(1+r.IntN(4)) * 6 * time.Millisecond
			if r.IntN(4) == 0 {
				s.Block = time.Duration(r.IntN(20)) * time.Millisecond
			}
			rule.Limits = append(rule.Limits, limit(t, s))
		}
		return rule
	}
	rule := randomRule()
	table := New(Config{Order: rand.NewPCG(seed, 2)})
	keys := make([]arith.Key, 400)
	counters := make([]*arith.Counter, len(keys))
	for i := range keys {
		keys[i].Hash = hash(uint64(i))
		keys[i].Hash.Lo %= 1 << 54 // three partitions, so that they grow past a block
		counters[i] = arith.NewCounter(rule.Limits...)
	}
	now := limiter.Tick(1e15)
	var got, want limiter.Decision
	denied, refunds := 0, 0
	var issued limiter.Receipt // the last one, for key of at the cost paid
	var of int
	var paid uint64
	resets := make([]limiter.Tick, len(keys)) // the last one of each key
	since := map[int]bool{}                   // the keys that were reset since the receipt
	const steps = 4000
	for step := range steps {
		now += limiter.Tick(r.IntN(300))
		i := r.IntN(len(keys))
		if r.IntN(2) == 0 {
			i = r.IntN(8)
		}
		if r.IntN(400) == 0 {
			now += limiter.Second
		}
		if r.IntN(1000) == 0 {
			rule = randomRule()
			for _, c := range counters {
				c.SetLimits(rule.Limits...)
			}
		}
		keys[i].Rule = rule
		cost := uint64(r.IntN(4))
		c := charge(cost, keys[i])
		switch c.Peek = r.IntN(10) == 0; r.IntN(12) {
		case 0:
			table.Reset(now, c)
			counters[i].Reset()
			if resets[i] = now; i == of {
				issued = limiter.Receipt{}
			}
			since[i] = true
			continue
		case 1:
			keys[of].Rule = rule
			look := charge(0, keys[of]) // after a change the limits are left when the key is asked about
			look.Peek = true
			if err := table.Decide(now, look, &got); err != nil {
				t.Fatal(err)
			}
			counters[of].Peek(now, 0, &want)
			// also by other keys, of which the counter knows nothing
			left := slices.ContainsFunc(rule.Limits, func(l *limiter.Limit) bool {
				return table.registry.left.has(l, rule, table.order.of(keys[of].Hash.Hi), uint16(PartitionOf(&keys[of])),
					arith.Fields(&issued).Time)
			})
			if arith.Fields(&issued).Charged != 0 && len(since) < maxResets && !left {
				table.Refund(now, charge(paid, keys[of]), issued)
				counters[of].Refund(now, issued, paid)
				refunds++
				issued = limiter.Receipt{}
			}
			continue
		}
		if err := table.Decide(now, c, &got); err != nil {
			t.Fatal(err)
		}
		if c.Peek {
			counters[i].Peek(now, cost, &want)
		} else {
			counters[i].Check(now, cost, &want)
		}
		if !got.Allowed {
			denied++
		}
		if arith.Fields(&got.Receipt).Charged != 0 && now > resets[i] { // in the tick of a reset they are void too
			issued, of, paid = got.Receipt, i, cost
			clear(since)
		}
		compare(t, step, &got, &want)
	}
	if denied < steps/50 || denied > steps*9/10 || refunds < steps/50 {
		t.Errorf("premise: %d of %d denied, %d refunds", denied, steps, refunds)
	}
	table.checkAll(t)
}

func compare(t *testing.T, step int, got, want *limiter.Decision) {
	t.Helper()
	if got.Allowed != want.Allowed || got.Never != want.Never || got.RetryAfter != want.RetryAfter ||
		got.Len() != want.Len() {
		t.Fatalf("step %d: got %+v, want %+v", step, got, want)
	}
	for i := range got.Len() {
		g, w := *got.Limit(i), *want.Limit(i)
		g.Rule, g.Limit, w.Rule, w.Limit = nil, nil, nil, nil
		if g != w {
			t.Fatalf("step %d, limit %d %v:\ngot  %+v\nwant %+v", step, i, want.Limit(i).Limit, g, w)
		}
	}
}

// B1: keys in different partitions are charged together or not at all.
func TestSeveralKeysAllOrNothing(t *testing.T) {
	table := New(Config{})
	few := &limiter.Rule{Name: "few", Limits: []*limiter.Limit{limit(t, limiter.Spec{Limit: 2, Window: time.Minute})}}
	many := &limiter.Rule{Name: "many", Limits: []*limiter.Limit{limit(t, limiter.Spec{Limit: 10, Window: time.Minute})}}
	a, b := arith.Key{Hash: hash(1), Rule: few}, arith.Key{Hash: hash(2), Rule: many}
	var d limiter.Decision
	for i, want := range []bool{true, true, false, false} {
		table.Decide(1e15, charge(1, a, b), &d)
		if d.Allowed != want {
			t.Fatalf("check %d: allowed %v", i, d.Allowed)
		}
	}
	if got := d.Limit(1).Remaining; got != 8 {
		t.Errorf("the key with room has %d left, want 8: denials charge nothing", got)
	}
	if d.BlockedBy().Rule != few || d.Rule != "few" {
		t.Errorf("denied by %v, want few", d.BlockedBy().FullName())
	}
}

// Checks of several keys from many goroutines, in every order of keys, neither
// deadlock nor lose a count.
func TestConcurrentSeveralKeys(t *testing.T) {
	const workers, each = 8, 500
	table := New(Config{})
	rule := &limiter.Rule{Name: "r", Limits: []*limiter.Limit{limit(t,
		limiter.Spec{Algorithm: limiter.FixedWindow, Limit: 1e6, Window: time.Hour})}}
	done := make(chan error)
	for w := range workers {
		go func() {
			r := rand.New(rand.NewPCG(uint64(w), 0))
			var d limiter.Decision
			for range each {
				var ks []arith.Key
				for _, i := range r.Perm(6) {
					ks = append(ks, arith.Key{Hash: hash(uint64(i)), Rule: rule})
				}
				table.Decide(1e15, charge(1, ks...), &d)
			}
			done <- nil
		}()
	}
	for range workers {
		<-done
	}
	var d limiter.Decision
	for i := range 6 {
		table.Decide(1e15, charge(0, arith.Key{Hash: hash(uint64(i)), Rule: rule}), &d)
		if got := 1e6 - d.Limit(0).Remaining; got != workers*each {
			t.Errorf("key %d counted %d, want %d", i, got, workers*each)
		}
	}
}

// At the bound a key in debt keeps its record, whatever else arrives, and new
// keys are decided by overflow; once counters recover there is room again.
func TestMaxKeys(t *testing.T) {
	inWire(t)
	const most = 5000
	for _, overflow := range []Overflow{OverflowDeny, OverflowAllow} {
		t.Run(overflow.String(), func(t *testing.T) {
			table := New(Config{MaxKeys: most, Overflow: overflow})
			rule := &limiter.Rule{Name: "r", Limits: []*limiter.Limit{limit(t,
				limiter.Spec{Algorithm: limiter.FixedWindow, Limit: 1, Window: time.Hour})}}
			ask := func(now limiter.Tick, i int) *limiter.Decision {
				var d limiter.Decision
				if err := table.Decide(now, charge(1, arith.Key{Hash: hash(uint64(i)), Rule: rule}), &d); err != nil {
					t.Fatal(err)
				}
				return &d
			}
			now := limiter.Hour * 1000
			for i := range most {
				if !ask(now, i).Allowed {
					t.Fatalf("key %d of %d is denied", i, most)
				}
			}
			for i := range 10 * most {
				d := ask(now, most+i)
				if d.Allowed != (overflow == OverflowAllow) || !d.Limit(0).Overflow {
					t.Fatalf("fresh key %d: %+v", i, d)
				}
				if overflow == OverflowDeny && (limiter.Span(d.RetryAfter) != limiter.Hour || d.BlockedBy() == nil) {
					t.Fatalf("fresh key %d: retry after %v", i, d.RetryAfter)
				}
			}
			for i := range most {
				if ask(now+limiter.Hour-1, i).Allowed {
					t.Fatalf("exhausted key %d is admitted again", i)
				}
			}
			if s := table.Stats(); s.Keys != most || s.Overflowed != 10*most {
				t.Errorf("stats %+v", s)
			}
			for i := range most {
				if d := ask(now+limiter.Hour, 20*most+i); !d.Allowed || d.Limit(0).Overflow {
					t.Fatalf("fresh key %d after all recovered: %+v", i, d)
				}
			}
			table.checkAll(t)
		})
	}
}

// A check of two limits of which only one fits adds neither.
func TestMaxKeysAllOrNothing(t *testing.T) {
	table := New(Config{MaxKeys: 3})
	rule := &limiter.Rule{Name: "r", Limits: []*limiter.Limit{
		limit(t, limiter.Spec{Limit: 5, Window: time.Minute}), limit(t, limiter.Spec{Limit: 9, Window: time.Hour}),
	}}
	var d limiter.Decision
	table.Decide(1e15, charge(1, arith.Key{Hash: hash(1), Rule: rule}), &d)
	table.Decide(1e15, charge(1, arith.Key{Hash: hash(2), Rule: rule}), &d)
	if d.Allowed || table.Stats().Keys != 2 {
		t.Errorf("allowed %v, %d keys; want a denial and 2", d.Allowed, table.Stats().Keys)
	}
}

// Counters that recovered leave room without their partition growing for ever.
func TestRecoveredSlotsAreReused(t *testing.T) {
	inWire(t)
	table := New(Config{})
	rule := &limiter.Rule{Name: "r", Limits: []*limiter.Limit{limit(t,
		limiter.Spec{Algorithm: limiter.SlidingLog, Limit: 5, Window: time.Second})}}
	var d limiter.Decision
	most := int64(0)
	for i := range 200_000 {
		now := 1e15 + limiter.Tick(i)*limiter.Millisecond // about 1,000 live keys
		table.Decide(now, charge(1, arith.Key{Hash: hash(uint64(i)), Rule: rule}), &d)
		if i%1000 == 0 {
			most = max(most, table.Stats().Bytes)
		}
	}
	if most > 4<<20 {
		t.Errorf("200,000 keys, of which 1,000 live at a time, took %d bytes", most)
	}
	table.checkAll(t)
}

func TestTooManyLimits(t *testing.T) {
	inWire(t)
	table := New(Config{})
	ask := func(now limiter.Tick, i int) error {
		rule := &limiter.Rule{Name: "r", Limits: []*limiter.Limit{limit(t,
			limiter.Spec{Limit: int64(i + 1), Window: time.Second})}}
		var d limiter.Decision
		return table.Decide(now, charge(1, arith.Key{Hash: hash(uint64(i)), Rule: rule}), &d)
	}
	for i := range maxLimits {
		if err := ask(1e15, i); err != nil {
			t.Fatal(i, err)
		}
	}
	if err := ask(1e15, maxLimits); !errors.Is(err, ErrTooManyLimits) {
		t.Fatalf("got %v, want ErrTooManyLimits", err)
	}
	// Once counters have recovered and been swept, their limits are free.
	for i := range maxLimits {
		p := &table.parts[i%len(table.parts)]
		p.mu.Lock()
		p.sweep(1e15 + limiter.Minute)
		p.mu.Unlock()
		if i > len(table.parts) {
			break
		}
	}
	if err := ask(1e15+limiter.Minute, maxLimits); err != nil {
		t.Fatal(err)
	}
	table.checkAll(t)
}

func TestTop(t *testing.T) {
	table := New(Config{})
	rule := &limiter.Rule{Name: "r", Limits: []*limiter.Limit{limit(t, limiter.Spec{Limit: 1, Window: time.Hour})}}
	r := rand.New(rand.NewPCG(1, 1))
	var d limiter.Decision
	for range 50_000 {
		i := r.IntN(1000)
		if r.IntN(3) == 0 {
			i = r.IntN(3) // a third of all goes to three keys
		}
		k := arith.Key{Hash: hash(uint64(i)), Rule: rule, Cost: 1}
		c := charge(1, k)
		table.Decide(1e15, c, &d)
		if c.Unnamed != 0 {
			table.SetName(&k, fmt.Appendf(nil, "/%d", i))
		}
	}
	hottest, denied := table.Top(3, nil)
	for _, list := range [][]TopKey{hottest, denied} {
		var names []string
		for _, k := range list {
			names = append(names, k.Name[:2])
			if k.Count-k.Error > 7000 || k.Count < 4500 {
				t.Errorf("%+v: about 5,570 were seen", k)
			}
		}
		slices.Sort(names)
		if !slices.Equal(names, []string{"/0", "/1", "/2"}) {
			t.Errorf("top keys %+v, want /0, /1 and /2", list)
		}
	}
	if denied[0].Name[2:] != ":hour" || hottest[0].Name[2:] != "" {
		t.Errorf("names %q and %q", denied[0].Name, hottest[0].Name)
	}
}

// A key that takes another's place is named when it is seen again: where all are as
// frequent, hardly any is before it has lost its place.
func TestNewcomersAreNamedLate(t *testing.T) {
	var top topKeys
	add := func(i int) bool { h := hash(uint64(i)); return top.add(h.Hi, h.Lo, nil, 1) }
	for i := range topPerPartition {
		if !add(i) {
			t.Errorf("key %d found a place, and is not to be named", i)
		}
	}
	if add(topPerPartition) {
		t.Error("a key that took another's place is named at once")
	}
	if got := top.list(nil, 0, nil); len(got) != 0 {
		t.Errorf("keys without names are listed: %+v", got)
	}
	if !add(topPerPartition) {
		t.Error("it was seen again, and is not to be named")
	}
	h := hash(topPerPartition)
	top.setName(h.Hi, h.Lo, []byte("/new"))
	if got, want := top.list(nil, 0, nil), []TopKey{{Name: "/new", Count: 3, Error: 1, key: h}}; !slices.Equal(got, want) {
		t.Errorf("listed are %+v, want %+v", got, want)
	}
	if add(topPerPartition) {
		t.Error("a key that has a name is to be named again")
	}
}

// B8, A10: what a key has used can be read, and why it is denied.
func TestExplain(t *testing.T) {
	table := New(Config{})
	rule := &limiter.Rule{Name: "r", Limits: []*limiter.Limit{
		limit(t, limiter.Spec{Algorithm: limiter.SlidingWindow, Limit: 5, SubWindows: 4, Window: time.Minute}),
	}}
	k := arith.Key{Hash: hash(1), Rule: rule, Cost: 2}
	start := limiter.TickOf(time.Date(2026, 1, 5, 12, 0, 0, 0, time.UTC))
	var d limiter.Decision
	for _, at := range []limiter.Tick{5, 20} {
		table.Decide(start+at*limiter.Second, charge(2, k), &d)
	}
	e := table.Explain(start+50*limiter.Second, charge(2, k), new(limiter.Decision))[0]
	var counts []uint64
	for _, w := range e.Counts {
		counts = append(counts, w.Count)
	}
	if !slices.Equal(counts, []uint64{0, 2, 2, 0, 0}) || e.Counts[1].Start != start ||
		e.Counts[1].End != start+15*limiter.Second {
		t.Errorf("counts %+v", e.Counts)
	}
	if e.Arithmetic != "4 counted + 2 <= 5: no" || !e.Known {
		t.Errorf("explained as %+v", e)
	}
	if got := table.Explain(start, charge(1, arith.Key{Hash: hash(2), Rule: rule}),
		new(limiter.Decision))[0]; got.Known || got.Arithmetic != "0 counted + 1 <= 5: yes" {
		t.Errorf("an unknown key is explained as %+v", got)
	}
}

// Decisions allocate nothing, also with more limits than a
// decision holds inline.
func TestNoAllocation(t *testing.T) {
	for _, windows := range []int{1, 3, 7} {
		for i, name := range limiter.AlgorithmNames() {
			rule := &limiter.Rule{Name: "r"}
			for w := range windows {
				rule.Limits = append(rule.Limits, limit(t, limiter.Spec{Algorithm: limiter.Algorithm(i), Limit: 100,
					Window: time.Duration(w+1) * time.Minute}))
			}
			table := New(Config{})
			cs, ds := make([]arith.Charge, 10), make([]limiter.Decision, 10)
			for j := range cs {
				cs[j].Add(arith.Key{Hash: hash(uint64(j)), Rule: rule, Cost: 1})
			}
			now := limiter.Tick(1e15)
			decide := func() {
				now += limiter.Second
				for j := range cs {
					table.Decide(now, &cs[j], &ds[j])
				}
			}
			for range 200 {
				decide()
			}
			n := testing.AllocsPerRun(100, decide)
			if n != 0 && !(raceEnabled && windows > inlineCounters) {
				t.Errorf("%s, %d windows: %v allocations", name, windows, n)
			}
		}
	}
}

func TestSlotsGrowAndShrinkInPlace(t *testing.T) {
	var s slots
	r := rand.New(rand.NewPCG(3, 3))
	var live []slot
	for round := range 40 {
		for range 200 {
			e := slot{place: r.Uint64(), lo: r.Uint64(), limit: 1}
			if round%3 == 0 {
				e.place |= 0xfff << 52 // a crowd at the end of the table
			}
			if s.full() {
				s.rebuild(nil, false)
			}
			for {
				if i, _ := s.find(e.place, e.lo); s.insert(i, e) {
					break
				}
				s.extend()
			}
			live = append(live, e)
		}
		r.Shuffle(len(live), func(i, j int) { live[i], live[j] = live[j], live[i] })
		for range r.IntN(2 * 200) {
			e := live[len(live)-1]
			live = live[:len(live)-1]
			i, found := s.find(e.place, e.lo)
			if !found {
				t.Fatal("an entry is lost")
			}
			s.remove(i)
			if len(live) == 0 {
				break
			}
		}
		if err := s.check(); err != nil {
			t.Fatal(err)
		}
		if s.used != len(live) {
			t.Fatalf("%d entries, want %d", s.used, len(live))
		}
	}
	size := s.size
	s.rebuild(func(e *slot) bool { return e.place%50 == 0 }, false)
	if err := s.check(); err != nil || s.size >= size/2 {
		t.Errorf("after dropping 98 of 100: %v, size %d of %d", err, s.size, size)
	}
}

// Partitions are locked in one order, each once, whatever the order of the
// keys: so two checks cannot wait for each other.
func TestPartitionsAreLockedInOrder(t *testing.T) {
	rule := &limiter.Rule{Name: "r"}
	closed := &limiter.Rule{Name: "c", OnUnreachable: limiter.UnreachableClosed}
	r := rand.New(rand.NewPCG(5, 5))
	var ks []arith.Key
	for i := range 7 {
		ks = append(ks, arith.Key{Hash: hash(uint64(i)), Rule: rule}, arith.Key{Hash: hash(uint64(i)), Rule: closed})
	}
	ks[1].Hash = ks[3].Hash // one partition twice
	var want []int
	for range 20 {
		r.Shuffle(len(ks), func(i, j int) { ks[i], ks[j] = ks[j], ks[i] })
		got := partitions(charge(1, ks...), nil)
		if !slices.IsSorted(got) || len(got) != len(ks)-1 || want != nil && !slices.Equal(got, want) {
			t.Fatalf("locked in the order %v, before %v", got, want)
		}
		want = got
	}
}
