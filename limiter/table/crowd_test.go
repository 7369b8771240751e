package table

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/limiter/arith"
)

// An order is a permutation, and undone exactly.
func TestOrderIsUndone(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 7))
	for range 1000 {
		o := newOrder(r)
		for _, h := range []uint64{0, 1, math.MaxUint64, 1 << 63, 1 << 32, r.Uint64(), r.Uint64()} {
			if got := o.hash(o.of(h)); got != h {
				t.Fatalf("%x became %x", h, got)
			}
		}
	}
	if a, b := New(Config{}).order, New(Config{}).order; a.factor == b.factor || a.add == b.add {
		t.Error("two tables have one order")
	}
}

// crowds are lists of hashes that an attacker who knows the hash of keys might search
// for, so that the keys are adjacent: at one end, in a progression, with equal first or
// last bits, and sums of a few numbers.
func crowds(n int) map[string]func(i int) uint64 {
	few := make([]uint64, 14)
	r := rand.New(rand.NewPCG(2, 7))
	for i := range few {
		few[i] = r.Uint64()
	}
	return map[string]func(int) uint64{
		"at the end":        func(i int) uint64 { return math.MaxUint64 - uint64(i) },
		"at the beginning":  func(i int) uint64 { return uint64(i) },
		"in a home":         func(i int) uint64 { return 0x55555<<44 | uint64(i)<<20 },
		"alike at the top":  func(i int) uint64 { return 0xabcde<<44 | hash(uint64(i)).Hi>>20 },
		"alike at the end":  func(i int) uint64 { return hash(uint64(i)).Hi << 32 },
		"in large steps":    func(i int) uint64 { return uint64(i) << 48 },
		"in steps":          func(i int) uint64 { return uint64(i) * (math.MaxUint64 / uint64(n)) },
		"in steps of golds": func(i int) uint64 { return uint64(i) * 0x9e3779b97f4a7c15 },
		"sums": func(i int) (sum uint64) {
			for j := range few {
				if i>>j&1 == 1 {
					sum += few[j]
				}
			}
			return sum
		},
	}
}

// longest returns how far an entry is from its home at most.
func (t *slots) longest() (most int) {
	for i := range t.size {
		if s := t.at(i); s.limit != 0 {
			most = max(most, i-t.home(s.place))
		}
	}
	return most
}

// Ten thousand keys of one partition, chosen by their public hashes, take what as many
// random ones do, and are found as fast: in their owner, and in an heir that gets a
// snapshot or updates of them.
func TestChosenHashesDoNotCrowd(t *testing.T) {
	inWire(t)
	const n = 10_000
	rule := window(t, 5, time.Hour)
	fill := func(order uint64, hi func(int) uint64) *Table {
		table := New(Config{Order: rand.NewPCG(order, 3)})
		var c arith.Charge
		var d limiter.Decision
		for i := range n {
			c.Clear()
			c.Add(arith.Key{Hash: arith.Hash{Hi: hi(i)}, Rule: rule, Cost: 1})
			if err := table.Decide(hourStart, &c, &d); err != nil || !d.Allowed {
				t.Fatal(i, err, d.Limit(0))
			}
		}
		return table
	}
	random := fill(0, func(i int) uint64 { return hash(uint64(i)).Hi })
	hold := func(t *testing.T, what string, table *Table) {
		t.Helper()
		p := &table.parts[0]
		if got, most := table.Stats().Bytes, random.Stats().Bytes*3/2; got > most {
			t.Errorf("%s: %d bytes, more than 1.5 times the %d of random keys", what, got, random.Stats().Bytes)
		}
		if got := p.slots.longest(); got > 1000 {
			t.Errorf("%s: a search passes %d counters", what, got)
		}
		if got := table.Count(0); got != n {
			t.Errorf("%s: %d counters", what, got)
		}
		table.checkAll(t)
	}
	for name, hi := range crowds(n) {
		t.Run(name, func(t *testing.T) {
			for order := range uint64(2) {
				owner := fill(order, hi)
				hold(t, "owner", owner)
				heir, other := New(Config{Order: rand.NewPCG(order, 4)}), New(Config{Order: rand.NewPCG(order, 5)})
				all := exported(owner, 0, hourStart)
				if err := heir.Import(0, hourStart, all, Replace); err != nil {
					t.Fatal(err)
				}
				hold(t, "heir", heir)
				for i := range all {
					if err := other.ReplaceKey(0, all[i].Hi, hourStart, all[i:i+1]); err != nil {
						t.Fatal(err)
					}
				}
				hold(t, "heir by updates", other)
			}
		})
	}
}

// Memory is proportional to the number of counters even if their places crowd, which
// only someone who knows the order could cause.
func TestCrowdedPlacesTakeLittle(t *testing.T) {
	for name, place := range map[string]func(i int) uint64{
		"at the end": func(i int) uint64 { return math.MaxUint64 - uint64(i) },
		"one place":  func(int) uint64 { return math.MaxUint64 },
		"one home":   func(i int) uint64 { return 7<<60 | uint64(i) },
		"in halves":  func(i int) uint64 { return math.MaxUint64 >> (i % 8) },
	} {
		t.Run(name, func(t *testing.T) {
			var s slots
			for i := range 2000 {
				e := slot{place: place(i), lo: uint64(i), limit: 1}
				if s.full() {
					s.rebuild(nil, false)
				}
				for {
					if at, _ := s.find(e.place, e.lo); s.insert(at, e) {
						break
					}
					s.extend()
				}
				if most := max(2*blockSlots, sizeFor(s.used+s.used/4+1)+s.used+blockSlots); s.size > most {
					t.Fatalf("%d entries take %d slots, more than %d", s.used, s.size, most)
				}
			}
			if err := s.check(); err != nil {
				t.Fatal(err)
			}
			for i := range 1900 {
				at, found := s.find(place(i), uint64(i))
				if !found {
					t.Fatalf("entry %d is lost", i)
				}
				s.remove(at)
			}
			s.rebuild(nil, false)
			if err := s.check(); err != nil || s.used != 100 || s.size > sizeFor(126)+100+blockSlots {
				t.Errorf("%d entries in %d slots: %v", s.used, s.size, err)
			}
		})
	}
}

// A key has a bounded number of counters, so that no search is long. Beyond, new ones
// overflow, and what is imported with more is refused.
func TestCountersOfOneKey(t *testing.T) {
	table := New(Config{})
	k := arith.Key{Hash: arith.Hash{Hi: math.MaxUint64}}
	for i := range maxPerKey {
		k.Rule = &limiter.Rule{Name: "r", Limits: []*limiter.Limit{limit(t,
			limiter.Spec{Name: fmt.Sprint(i), Limit: 5, Window: time.Hour})}}
		if d := decide(t, table, hourStart, charge(1, k)); !d.Allowed {
			t.Fatalf("counter %d of %d: %+v", i+1, maxPerKey, d.Limit(0))
		}
	}
	k.Rule = window(t, 5, time.Hour)
	for _, peek := range []bool{true, false} {
		c := charge(1, k)
		c.Peek = peek
		if d := decide(t, table, hourStart, c); d.Allowed || !d.Limit(0).Overflow {
			t.Errorf("one more, peek %v: %+v", peek, d.Limit(0))
		}
	}
	var d limiter.Decision
	if x := table.Explain(hourStart, charge(1, k), &d); d.Allowed || !d.Limit(0).Overflow || len(x) != 1 {
		t.Errorf("one more is explained as %+v", d.Limit(0))
	}
	if got := table.Stats(); got.Keys != maxPerKey || got.Overflowed != 2 {
		t.Errorf("stats %+v", got)
	}
	if d := decide(t, table, hourStart, charge(1, arith.Key{Hash: arith.Hash{Hi: 1}, Rule: k.Rule})); !d.Allowed {
		t.Errorf("another key: %+v", d.Limit(0))
	}
	// When they have recovered there is room again.
	if d := decide(t, table, hourStart+2*limiter.Hour, charge(1, k)); !d.Allowed {
		t.Errorf("later: %+v", d.Limit(0))
	}
	table.checkAll(t)
}

// Entries of peers whose hashes are extreme or all the same end no import.
func TestImportOfOneKey(t *testing.T) {
	l := window(t, 5, time.Hour).Limits[0]
	entries := func(hi uint64, from, n int) (out []Entry) {
		for i := range n {
			out = append(out, Entry{Hi: hi, Lo: uint64(from+i) ^ arith.NameID(l), Limit: l, State: arith.State{A: 1}})
		}
		return out
	}
	for _, hi := range []uint64{0, 1, math.MaxUint64, 1 << 63} {
		table := New(Config{})
		for name, err := range map[string]error{
			"import":  table.Import(0, hourStart, entries(hi, 0, 5000), Replace),
			"merge":   table.Import(0, hourStart, entries(hi, 0, maxImportedPerKey+1), Merge),
			"replace": table.ReplaceKey(0, hi, hourStart, entries(hi, 0, 5000)),
		} {
			if !errors.Is(err, limiter.ErrInvalid) {
				t.Errorf("%s of too many counters of %x: %v", name, hi, err)
			}
		}
		if n := table.Count(0); n != 0 {
			t.Fatalf("%d were taken", n)
		}
		for from := range 2 {
			if err := table.Import(0, hourStart, entries(hi, from*maxImportedPerKey, maxImportedPerKey), Merge); err != nil &&
				from == 0 || err == nil && from == 1 {
				t.Errorf("the %d-th %d: %v", from+1, maxImportedPerKey, err)
			}
		}
		if got := exportedKey(table, 0, hi, hourStart); len(got) != maxImportedPerKey {
			t.Errorf("%d of %x are given away", len(got), hi)
		}
		table.checkAll(t)
		table.Drop(0)
		table.checkAll(t)
	}
}

// Whoever has found two hashes that are neighbours in memory, by the time that checks
// take, can make no others of their difference: neither by sums, nor by sums of what a
// shift makes of them.
func TestNeighboursTellNothing(t *testing.T) {
	inWire(t)
	const n, tries = 1024, 1 << 20
	for name, step := range map[string]func(r *rand.Rand) uint64{
		"any":   func(r *rand.Rand) uint64 { return r.Uint64() },
		"small": func(r *rand.Rand) uint64 { return r.Uint64() >> 42 },
		"large": func(r *rand.Rand) uint64 { return r.Uint64() << 32 },
		"even":  func(r *rand.Rand) uint64 { return r.Uint64() >> 42 << 10 },
	} {
		for seed := range uint64(6) {
			r := rand.New(rand.NewPCG(seed, 8))
			o, from := newOrder(r), r.Uint64()>>32<<32
			at := o.of
			if seed%2 == 1 {
				at = func(x uint64) uint64 { return o.of(x ^ x>>32) }
			}
			near, by := uint64(math.MaxUint64), uint64(0)
			for range tries {
				d := step(r)
				if gap := at(from+d) - at(from); d != 0 && min(gap, -gap) < near {
					near, by = min(gap, -gap), d
				}
			}
			seen := 0
			for i := range uint64(n) {
				if gap := at(from+i*by) - at(from); min(gap, -gap) < 1<<56 {
					seen++
				}
			}
			// A 128th of all are that near, if they are spread evenly.
			if seen > n/4 {
				t.Errorf("%s, seed %d: the nearest of %d is %x away, and of its multiples %d of %d are within a 128th", name, seed,
					tries, near, seen, n)
			}
		}
	}
}
