package table

import (
	"testing"
	"time"

	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/limiter/arith"
)

func window(tb testing.TB, n int64, w time.Duration) *limiter.Rule {
	tb.Helper()
	return &limiter.Rule{Name: "r", Limits: []*limiter.Limit{limit(tb,
		limiter.Spec{Name: "l", Algorithm: limiter.FixedWindow, Limit: n, Window: w})}}
}

func decide(tb testing.TB, t *Table, now limiter.Tick, c *arith.Charge) *limiter.Decision {
	tb.Helper()
	var d limiter.Decision
	if err := t.Decide(now, c, &d); err != nil {
		tb.Fatal(err)
	}
	return &d
}

const hourStart = limiter.Hour * 1000

// A counter that recovers sooner than was known, because its limit changed or
// its charge was refunded, makes room as soon as it has.
func TestRoomOfCountersThatRecoverEarly(t *testing.T) {
	var first limiter.Receipt
	fill := func() *Table {
		table := New(Config{MaxKeys: 1})
		first = decide(t, table, hourStart, charge(1, arith.Key{Hash: hash(1), Rule: window(t, 1, time.Hour)})).Receipt
		if decide(t, table, hourStart+1, charge(1, arith.Key{Hash: hash(2), Rule: window(t, 1, time.Hour)})).Allowed {
			t.Fatal("premise: full")
		}
		return table
	}
	t.Run("refund", func(t *testing.T) {
		table := fill()
		table.Refund(hourStart+2, charge(1, arith.Key{Hash: hash(1), Rule: window(t, 1, time.Hour)}), first)
		if !decide(t, table, hourStart+3, charge(1, arith.Key{Hash: hash(2), Rule: window(t, 1, time.Hour)})).Allowed {
			t.Error("no room after a refund")
		}
	})
	t.Run("not before", func(t *testing.T) {
		table := fill()
		end := hourStart + limiter.Hour
		for at, want := range map[limiter.Tick]bool{end - 1: false, end: true} {
			c := charge(1, arith.Key{Hash: hash(2), Rule: window(t, 1, time.Hour)})
			c.Peek = true
			if at == end-1 && decide(t, fill(), at, c).Allowed != want || at == end && decide(t, table, at, c).Allowed != want {
				t.Errorf("a tick around the end of the window: want %v", want)
			}
		}
	})
	t.Run("changed limit", func(t *testing.T) {
		table := fill()
		second := window(t, 1, time.Second)
		decide(t, table, hourStart+2, charge(0, arith.Key{Hash: hash(1), Rule: second}))
		if !decide(t, table, hourStart+limiter.Second, charge(1, arith.Key{Hash: hash(2), Rule: second})).Allowed {
			t.Error("no room when the shorter window has ended")
		}
	})
}

// A check has one existing counter and one new one. Without room, the new one denies
// it, and the existing one is not reported as overflowing.
func TestOverflowOfTheNewCounterOnly(t *testing.T) {
	table := New(Config{MaxKeys: 1})
	known, fresh := arith.Key{Hash: hash(1), Rule: window(t, 5, time.Hour)},
		arith.Key{Hash: hash(2), Rule: window(t, 5, time.Hour)}
	decide(t, table, hourStart, charge(1, known))
	d := decide(t, table, hourStart, charge(1, known, fresh))
	if d.Allowed || d.Limit(0).Overflow || !d.Limit(0).Allowed || d.Limit(0).Remaining != 4 {
		t.Errorf("the known counter says %+v", d.Limit(0))
	}
	if !d.Limit(1).Overflow || d.BlockedBy() != d.Limit(1) {
		t.Errorf("the new counter says %+v", d.Limit(1))
	}
}

// Words are given back when a log grows out of them, when its key is reset and
// when it has recovered.
func TestWordsAreGivenBack(t *testing.T) {
	inWire(t)
	rule := &limiter.Rule{Name: "r", Limits: []*limiter.Limit{limit(t,
		limiter.Spec{Algorithm: limiter.SlidingLog, Limit: 5000, Window: time.Second})}}
	table := New(Config{})
	now := hourStart
	cycle := func(reset bool) {
		k := arith.Key{Hash: hash(1), Rule: rule}
		for range 200 {
			now++
			decide(t, table, now, charge(1, k))
		}
		if reset {
			table.Reset(now, charge(1, k))
			return
		}
		now += limiter.Minute
		p := &table.parts[PartitionOf(&k)]
		p.mu.Lock()
		if p.sweep(now) != 1 {
			t.Fatal("premise: it was swept")
		}
		p.mu.Unlock()
	}
	cycle(true)
	cycle(false)
	want := table.Stats().Bytes
	for i := range 1000 {
		cycle(i%2 == 0)
	}
	if got := table.Stats().Bytes; got != want {
		t.Errorf("%d bytes after 1,000 logs that came and went, %d after two", got, want)
	}
	table.checkAll(t)
}

// A number that was freed and given to another limit is not remembered for the
// limit that had it.
func TestFreedNumbers(t *testing.T) {
	table := New(Config{})
	old := window(t, 7, time.Hour)
	decide(t, table, hourStart, charge(1, arith.Key{Hash: hash(1), Rule: old}))
	table.Reset(hourStart, charge(1, arith.Key{Hash: hash(1), Rule: old}))
	table.collectLimits(hourStart)
	other := window(t, 9, time.Hour)
	decide(t, table, hourStart, charge(1, arith.Key{Hash: hash(2), Rule: other})) // takes the number
	decide(t, table, hourStart, charge(1, arith.Key{Hash: hash(3), Rule: old}))
	for i, want := range map[uint64]*limiter.Rule{2: other, 3: old} {
		k := arith.Key{Hash: hash(i), Rule: want}
		p := &table.parts[PartitionOf(&k)]
		at, found := p.slots.find(table.order.of(k.Hash.Hi), identity(&k, want.Limits[0]))
		if !found || !table.registry.limit(p.slots.at(at).limit).Equal(want.Limits[0]) {
			t.Errorf("key %d is kept under another limit than its own", i)
		}
	}
}

// Charges in a single sub-window, or at a single instant of a log, are stored in the
// slot. Words are allocated for further ones.
func TestWordsAreTakenLate(t *testing.T) {
	sub := limit(t, limiter.Spec{Algorithm: limiter.SlidingWindow, Limit: 50, Window: 10 * time.Second})
	log := limit(t, limiter.Spec{Algorithm: limiter.SlidingLog, Limit: 50, Window: 10 * time.Second})
	for _, c := range []struct {
		limit *limiter.Limit
		later limiter.Tick // the second charge
		ends  limiter.Tick // of what was charged first
		words int64
	}{{sub, limiter.Second, 11 * limiter.Second, 8}, {log, 1, 10 * limiter.Second, 4}} {
		table := New(Config{})
		k := arith.Key{Hash: hash(1), Rule: &limiter.Rule{Name: "r", Limits: []*limiter.Limit{c.limit}}}
		for range 5 {
			decide(t, table, hourStart, charge(3, k))
		}
		if n := table.room.slab.bytes(); n != 0 {
			t.Errorf("%v: %d bytes of words for one instant", c.limit, n)
		}
		d := decide(t, table, hourStart+c.later, charge(3, k))
		if got := d.Limit(0).Remaining; got != 50-18 {
			t.Errorf("%v: %d remain", c.limit, got)
		}
		p := &table.parts[PartitionOf(&k)]
		i, _ := p.slots.findKey(table.order.of(k.Hash.Hi))
		if n := len(table.words(p.slots.at(i))); int64(n) != c.words {
			t.Errorf("%v: %d words, want %d", c.limit, n, c.words)
		}
		if got := decide(t, table, hourStart+c.ends, charge(0, k)).Limit(0).Remaining; got != 47 {
			t.Errorf("%v: %d remain when the first have ended, want 47", c.limit, got)
		}
	}
}

// Blocks of a line and more begin with one, whatever was cut before, none overlaps
// another, and each is empty.
func TestBlocksBeginWithLines(t *testing.T) {
	var s slab
	seen := map[uint32]bool{}
	for i := range 20_000 {
		words := []int{3, 4, 5, 3, 9, 4, 40}[i%7]
		ref, class, ok := s.get(words, 1<<40)
		if n := classWords(class); !ok || n < words || n > 4 && ref%2 != 0 {
			t.Fatalf("%d words at unit %d for %d", n, ref, words)
		}
		for u := range uint32(classWords(class) / unitWords) {
			if seen[ref+u] {
				t.Fatalf("unit %d is in two blocks", ref+u)
			}
			seen[ref+u] = true
		}
		block := s.block(ref, class)
		for j := range block {
			if block[j] != 0 {
				t.Fatal("a block is not empty")
			}
			block[j] = 1
		}
	}
}

// The limits of a rule whose zone each request chooses are counted: a caller who names one
// zone after the other holds one number, and counters that have gone hold none.
func TestZonesGiveTheirNumbersBack(t *testing.T) {
	table := New(Config{})
	l := limit(t, limiter.Spec{Name: "day", Limit: 1000, Calendar: limiter.CalendarDay})
	rule := (&limiter.Rule{Name: "own", Limits: []*limiter.Limit{l}}).Zoned([]int{0})
	now := limiter.TickOf(time.Date(2026, 1, 5, 12, 0, 0, 0, time.UTC))
	numbers := func() int {
		table.registry.mu.Lock()
		defer table.registry.mu.Unlock()
		return len(table.registry.byKey)
	}
	zones := []string{"Asia/Tokyo", "Europe/Berlin", "America/Lima", "Africa/Cairo", "Australia/Perth"}
	for i := range 100 {
		v, ok := rule.In(zones[i%len(zones)])
		if !ok {
			t.Fatal(zones)
		}
		if d := decide(t, table, now, charge(1, arith.Key{Hash: hash(1), Rule: v})); d.Limit(0).Remaining != uint64(999-i) {
			t.Fatalf("check %d: %+v", i, d.Limit(0))
		}
		if n := numbers(); n != 1 {
			t.Fatalf("check %d: %d numbers", i, n)
		}
	}
	for i, z := range zones {
		v, _ := rule.In(z)
		decide(t, table, now, charge(1, arith.Key{Hash: hash(uint64(2 + i)), Rule: v}))
	}
	if n := numbers(); n != len(zones) {
		t.Errorf("%d numbers", n)
	}
	table.checkAll(t)
	for i := range 2 + len(zones) {
		table.Reset(now, charge(1, arith.Key{Hash: hash(uint64(i)), Rule: rule}))
	}
	if n := numbers(); n != 0 {
		t.Errorf("%d numbers of none", n)
	}
	table.checkAll(t)
}
