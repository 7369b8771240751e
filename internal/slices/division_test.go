package slices

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/limiter/arith"
)

// given is one assignment of a trace.
type given struct {
	id, rate uint64
	until    limiter.Tick
}

// trace is a division with what it assigned, and a table that counts its slices.
type trace struct {
	d     Division
	all   []given
	table map[uint64]Held
}

func (x *trace) held(now limiter.Tick) (held []Held) {
	for id, h := range x.table {
		if h.Until > now {
			held = append(held, h)
		} else {
			delete(x.table, id)
		}
	}
	return held
}

// ask asks for a slice and has the table count it.
func (x *trace) ask(now limiter.Tick, w Wish, total uint64) (assigned uint64) {
	assigned, counted := x.d.Assign(now, w, total, x.held(now))
	if assigned > 0 {
		x.all = append(x.all, given{w.ID, assigned, now + w.For})
		x.table[w.ID] = Held{ID: w.ID, Rate: counted, Until: max(now+w.For, x.table[w.ID].Until)}
	}
	return assigned
}

// highest returns the sum over the holders of the highest rate of any assignment that is not over.
func (x *trace) highest(now limiter.Tick) (sum uint64) {
	most := make(map[uint64]uint64)
	for _, a := range x.all {
		if a.until > now {
			most[a.id] = max(most[a.id], a.rate)
		}
	}
	for _, rate := range most {
		sum += rate
	}
	return sum
}

// At each instant the sum over the holders of the highest rate of any assignment that is not over is at most the
// total: whatever holders ask for, come or die, and whether the owner changes and only the table is left.
// Where the total has fallen, nothing more is assigned until that holds again.
func TestStrictIsWithinTheTotal(t *testing.T) {
	assigned, changed := 0, 0
	for seed := range uint64(3000) {
		rnd := rand.New(rand.NewPCG(seed, 1))
		x := trace{table: make(map[uint64]Held)}
		total, now := 1+rnd.Uint64N(2000), limiter.Tick(0)
		holders := 1 + rnd.Uint64N(12)
		for step := range 150 {
			now += limiter.Tick(rnd.Uint64N(700_000))
			before := x.highest(now)
			switch rnd.IntN(30) {
			case 0: // another owner, which knows the table
				x.d = Division{}
				changed++
			case 1:
				total = 1 + rnd.Uint64N(2000)
			}
			w := Wish{ID: rnd.Uint64N(holders), Demand: rnd.Uint64N(3000), For: limiter.Tick(rnd.Uint64N(4_000_000))}
			if rnd.IntN(20) == 0 {
				w.Demand = math.MaxUint64
			}
			if x.ask(now, w, total) > 0 {
				assigned++
			}
			if sum := x.highest(now); sum > max(total, before) {
				t.Fatalf("seed %d step %d: %d of %d units a second are assigned, %d before", seed, step, sum, total, before)
			}
		}
	}
	if assigned < 50_000 || changed < 5_000 {
		t.Errorf("the traces have %d assignments and %d changes of the owner", assigned, changed)
	}
}

// What counts in the table is at least what any of the holder's assignments allows that is not over, and no more.
func TestTheTableCountsTheHighest(t *testing.T) {
	var d Division
	ask := func(now limiter.Tick, id, demand uint64, held ...Held) (uint64, uint64) {
		return d.Assign(now*limiter.Second, Wish{ID: id, Demand: demand, For: 2 * limiter.Second}, 1000, held)
	}
	if a, c := ask(0, 1, 2000); a != 1000 || c != 1000 {
		t.Fatalf("the only holder is assigned %d, and counts %d", a, c)
	}
	first := Held{ID: 1, Rate: 1000, Until: 2 * limiter.Second}
	if a, c := ask(0, 2, 2000, first); a != 0 || c != 0 {
		t.Fatalf("beside it %d is assigned and %d counts", a, c)
	}
	if a, c := ask(1, 1, 2000, first); a != 500 || c != 1000 {
		t.Fatalf("one of two is assigned %d and counts %d", a, c)
	}
	// Of the first holder 1000 counts until 2 s: an assignment that ends then, in a table that says 3 s.
	first.Until = 3 * limiter.Second
	if a, c := ask(2, 2, 2000, first); a != 500 || c != 500 {
		t.Fatalf("when the earlier assignment is over, %d is assigned and %d counts", a, c)
	}
	d = Division{} // another owner
	if a, _ := ask(2, 2, 2000, first); a != 0 {
		t.Fatalf("another owner, which knows only the table, assigned %d", a)
	}
}

// A rate that is lowered is free at once in fast mode, and the sum of the newest assignments is at most the total.
func TestFastIsWithinTheTotalByTheNewest(t *testing.T) {
	for seed := range uint64(500) {
		rnd := rand.New(rand.NewPCG(seed, 2))
		x := trace{table: make(map[uint64]Held)}
		newest := make(map[uint64]given)
		now := limiter.Tick(0)
		for range 150 {
			now += limiter.Tick(rnd.Uint64N(700_000))
			w := Wish{ID: rnd.Uint64N(9), Demand: rnd.Uint64N(3000), For: 2 * limiter.Second, Fast: true}
			if a := x.ask(now, w, 1000); a > 0 {
				newest[w.ID] = given{w.ID, a, now + w.For}
			}
			sum := uint64(0)
			for _, a := range newest {
				if a.until > now {
					sum += a.rate
				}
			}
			if sum > 1000 {
				t.Fatalf("seed %d: %d of 1000 units a second are assigned", seed, sum)
			}
		}
	}
	var d Division
	fast := func(id, demand uint64) uint64 {
		a, _ := d.Assign(0, Wish{ID: id, Demand: demand, For: 2 * limiter.Second, Fast: true}, 1000, nil)
		return a
	}
	if a := fast(1, 2000); a != 1000 {
		t.Fatalf("the only holder is assigned %d", a)
	}
	fast(2, 2000)
	fast(1, 2000)
	if a := fast(2, 2000); a != 500 {
		t.Errorf("once the first is lowered, the second is assigned %d", a)
	}
}

// Three rounds after a change all holders have their part by water-filling, for whatever demand.
func TestDividesByDemand(t *testing.T) {
	for _, c := range []struct {
		name   string
		total  uint64
		demand []uint64
		want   []uint64
	}{
		{"even", 900, []uint64{500, 500, 500}, []uint64{300, 300, 300}},
		{"what does not divide", 10, []uint64{9, 9, 9}, []uint64{4, 3, 3}},
		{"by demand", 1000, []uint64{1350, 75, 75}, []uint64{850, 75, 75}},
		{"a floor for who starts", 1000, []uint64{1350, 0, 75}, []uint64{915, 10, 75}},
		{"enough: the rest is shared with one that may come", 1000, []uint64{100, 200, 300},
			[]uint64{200, 300, 400}},
		{"more holders than units", 2, []uint64{5, 5, 5}, []uint64{1, 1, 0}},
		{"endless", 1000, []uint64{math.MaxUint64, math.MaxUint64}, []uint64{500, 500}},
	} {
		x := trace{table: make(map[uint64]Held)}
		got := make([]uint64, len(c.demand))
		for round := range limiter.Tick(6) {
			for i, demand := range c.demand {
				w := Wish{ID: uint64(i), Demand: demand, For: 2 * limiter.Second}
				got[i] = x.ask(round*limiter.Second, w, c.total)
			}
		}
		for i, want := range c.want {
			if got[i] != want {
				t.Errorf("%s: %v of %d is divided into %v, want %v", c.name, c.demand, c.total, got, c.want)
				break
			}
		}
	}
}

// A holder that is dead leaves its part to the others within the time of its last assignment.
func TestTheDeadLeaveTheirPart(t *testing.T) {
	x := trace{table: make(map[uint64]Held)}
	ask := func(now limiter.Tick, id uint64) uint64 {
		return x.ask(now, Wish{ID: id, Demand: 1000, For: 2 * limiter.Second}, 1000)
	}
	for round := range limiter.Tick(6) {
		ask(round*limiter.Second, 1)
		ask(round*limiter.Second, 2)
	}
	if a := ask(7*limiter.Second-1, 1); a != 500 {
		t.Errorf("while the other's assignment lasts, one is assigned %d", a)
	}
	if a := ask(7*limiter.Second, 1); a != 1000 {
		t.Errorf("when it is over, one is assigned %d", a)
	}
}

// Holders beyond the bound are assigned nothing, and what the table counts of them counts all the same.
func TestHoldersAreBounded(t *testing.T) {
	var d Division
	ask := func(id uint64, held []Held) uint64 {
		a, _ := d.Assign(0, Wish{ID: id, Demand: 10, For: limiter.Second}, 10_000, held)
		return a
	}
	for id := range uint64(MaxHolders) {
		if ask(id, nil) == 0 {
			t.Fatalf("holder %d is assigned nothing", id)
		}
	}
	if a := ask(MaxHolders, nil); a != 0 || len(d.holders) != MaxHolders {
		t.Errorf("beyond the bound %d is assigned, and there are %d holders", a, len(d.holders))
	}
	d = Division{}
	held := make([]Held, MaxHolders+1)
	for i := range held {
		held[i] = Held{ID: uint64(i), Rate: 1, Until: limiter.Second}
	}
	held[MaxHolders].Rate = 10_000
	if a := ask(0, held); a != 0 {
		t.Errorf("beside a slice that there is no room for, %d is assigned", a)
	}
}

// Keys that nobody asks for are forgotten, and as many are kept as there is room for.
func TestDivisionsAreBounded(t *testing.T) {
	var x Divisions
	w := Wish{ID: 1, Demand: 10, For: limiter.Second}
	ask := func(now limiter.Tick, key uint64, held ...Held) uint64 {
		a, _ := x.Assign(now, arith.Hash{Lo: key}, w, 100, held)
		return a
	}
	ask(0, 1)
	ask(idleFor, 2)
	if n := x.Len(); n != 2 {
		t.Errorf("after a minute %d keys are kept", n)
	}
	ask(2*idleFor, 3)
	if n := x.Len(); n != 2 {
		t.Errorf("one is kept that was not asked for in two minutes: %d are", n)
	}
	for key := range uint64(maxAll + maxAll/2) {
		ask(2*idleFor, key)
	}
	if n := x.Len(); n > 2*maxAll || n < maxAll {
		t.Errorf("%d keys are kept", n)
	}
	// What the table counts of a key that was forgotten still counts.
	x = Divisions{}
	if a := ask(0, 7, Held{ID: 2, Rate: 100, Until: limiter.Second}); a != 0 {
		t.Errorf("%d is assigned beside all of it", a)
	}
}

func BenchmarkAssign(b *testing.B) {
	var x Divisions
	held := make([]Held, 50)
	for i := range held {
		held[i] = Held{ID: uint64(i), Rate: 20, Until: math.MaxInt64}
	}
	i := uint64(0)
	for b.Loop() {
		i++
		x.Assign(limiter.Tick(i), arith.Hash{Lo: 1}, Wish{ID: i % 50, Demand: 10 + i%50, For: limiter.Second}, 1000, held)
	}
}
