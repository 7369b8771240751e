package table

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/limiter/arith"
)

// exported returns the export of a partition, or of one of its keys. The words are
// copied, as a sender does.
func exported(t *Table, part int, now limiter.Tick) (out []Entry) {
	t.Export(part, now, func(e Entry) {
		e.Words = slices.Clone(e.Words)
		out = append(out, e)
	})
	return out
}

func exportedKey(t *Table, part int, hi uint64, now limiter.Tick) (out []Entry) {
	t.ExportKey(part, hi, now, func(e Entry) {
		e.Words = slices.Clone(e.Words)
		out = append(out, e)
	})
	return out
}

// randomRule has up to six limits of any kind.
func randomRule(tb testing.TB, r *rand.Rand) *limiter.Rule {
	rule, all := &limiter.Rule{Name: "r"}, specs()
	for i := range 1 + r.IntN(6) {
		s := all[r.IntN(len(all))]
		s.Name, s.Limit = fmt.Sprint("l", i), 1+r.Int64N(8)
		s.Window = time.Duration(1+r.IntN(4)) * 6 * time.Second
		if r.IntN(4) == 0 {
			s.Block = time.Duration(r.IntN(20)) * time.Second
		}
		rule.Limits = append(rule.Limits, limit(tb, s))
	}
	return rule
}

// A partition that moves to another table decides there as it would have here:
// as a whole, key by key, into an empty table, over an older copy, and over one
// that is merged.
func TestPartitionMoves(t *testing.T) {
	seeds := uint64(40)
	if testing.Short() {
		seeds = 4
	}
	for seed := range seeds {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) { movePartitions(t, rand.New(rand.NewPCG(seed, 3))) })
	}
}

func movePartitions(t *testing.T, r *rand.Rand) {
	rule := randomRule(t, r)
	here, there := New(Config{}), New(Config{})
	keys := make([]arith.Key, 300)
	for i := range keys {
		keys[i] = arith.Key{Hash: hash(uint64(i)), Rule: rule}
		keys[i].Hash.Lo %= 1 << 54
	}
	parts := map[int]bool{}
	now := limiter.Tick(1767614400e6)
	ask := func(tables ...*Table) {
		now += limiter.Tick(r.IntN(30_000))
		k := keys[r.IntN(len(keys))]
		if r.IntN(3) > 0 {
			k = keys[r.IntN(8)]
		}
		parts[PartitionOf(&k)] = true
		c := charge(uint64(r.IntN(3)), k)
		d := decide(t, tables[0], now, c)
		for _, other := range tables[1:] {
			compare(t, 0, decide(t, other, now, c), d)
		}
	}
	move := func() {
		for part := range parts {
			switch r.IntN(3) {
			case 0:
				there.Drop(part)
				if err := there.Import(part, now, exported(here, part, now), Replace); err != nil {
					t.Fatal(err)
				}
			case 1: // what is there is an ancestor, or nothing
				if err := there.Import(part, now, exported(here, part, now), Merge); err != nil {
					t.Fatal(err)
				}
			default:
				for _, k := range keys {
					if PartitionOf(&k) != part {
						continue
					}
					if err := there.ReplaceKey(part, k.Hash.Hi, now, exportedKey(here, part, k.Hash.Hi, now)); err != nil {
						t.Fatal(err)
					}
				}
			}
			if a, b := exported(here, part, now), exported(there, part, now); len(a) != len(b) {
				t.Fatalf("partition %d: %d counters moved, %d arrived", part, len(a), len(b))
			}
		}
	}
	for range 4 {
		for range 400 {
			ask(here)
		}
		move()
		for range 400 {
			ask(here, there)
		}
	}
	here.checkAll(t)
	there.checkAll(t)
	for part := range parts {
		there.Drop(part)
		if n := there.Count(part); n != 0 {
			t.Errorf("partition %d holds %d counters after it was dropped", part, n)
		}
	}
	there.checkAll(t)
	if s := there.Stats(); s.Keys != 0 {
		t.Errorf("%d keys are counted after all were dropped", s.Keys)
	}
}

// One key's counters leave the others alone, and a key that is replaced by
// nothing is reset.
func TestReplaceKey(t *testing.T) {
	one := limit(t, limiter.Spec{Name: "one", Limit: 5, Window: time.Hour, Algorithm: limiter.FixedWindow})
	two := limit(t, limiter.Spec{Name: "two", Limit: 5, Window: time.Hour, Algorithm: limiter.SlidingLog})
	both := &limiter.Rule{Name: "r", Limits: []*limiter.Limit{one, two}}
	first := &limiter.Rule{Name: "r", Limits: []*limiter.Limit{one}}
	a, b := hash(1), hash(2)
	b.Lo = a.Lo // of one partition
	table, other := New(Config{}), New(Config{})
	decide(t, table, hourStart, charge(2, arith.Key{Hash: a, Rule: both}))
	decide(t, table, hourStart, charge(2, arith.Key{Hash: b, Rule: both}))
	decide(t, other, hourStart, charge(3, arith.Key{Hash: a, Rule: first}))
	part := PartitionOf(&arith.Key{Hash: a, Rule: both})
	remaining := func(h arith.Hash, want ...uint64) {
		t.Helper()
		d := decide(t, table, hourStart, charge(0, arith.Key{Hash: h, Rule: both}))
		for i := range want {
			if got := d.Limit(i).Remaining; got != want[i] {
				t.Errorf("%d remain of %s, want %d", got, d.Limit(i).Limit.Name(), want[i])
			}
		}
	}
	if err := table.ReplaceKey(part, a.Hi, hourStart, exportedKey(other, part, a.Hi, hourStart)); err != nil {
		t.Fatal(err)
	}
	remaining(a, 2, 5) // the log is gone
	remaining(b, 3, 3)
	if n := table.Count(part); n != 3 {
		t.Errorf("%d counters are held, want 3", n)
	}
	if err := table.ReplaceKey(part, a.Hi, hourStart, nil); err != nil {
		t.Fatal(err)
	}
	remaining(a, 5, 5)
	remaining(b, 3, 3)
	if err := table.ReplaceKey(part, b.Hi, hourStart, exportedKey(other, part, a.Hi, hourStart)); !errors.Is(err,
		limiter.ErrInvalid) {
		t.Errorf("counters of another key were taken: %v", err)
	}
	remaining(b, 3, 3)
	table.checkAll(t)
}

// Merging keeps what either side used, also where the sides have different
// limits of one name: the counter becomes one of the limit that came.
func TestImportMerges(t *testing.T) {
	for _, s := range specs() {
		s.Name, s.Window, s.Burst = "l", time.Hour, 0
		if s.CountRejected != limiter.CountNone {
			continue
		}
		s.Limit = 10
		ten := &limiter.Rule{Name: "r", Limits: []*limiter.Limit{limit(t, s)}}
		s.Limit = 20
		twenty := &limiter.Rule{Name: "r", Limits: []*limiter.Limit{limit(t, s)}}
		k := arith.Key{Hash: hash(1)}
		part := PartitionOf(&arith.Key{Hash: k.Hash, Rule: ten})
		for _, used := range []uint64{2, 8} {
			table, other := New(Config{}), New(Config{})
			k.Rule = ten
			decide(t, table, hourStart, charge(5, k))
			k.Rule = twenty
			decide(t, other, hourStart, charge(used, k))
			if err := table.Import(part, hourStart, exported(other, part, hourStart), Merge); err != nil {
				t.Fatal(err)
			}
			got := decide(t, table, hourStart, charge(0, k)).Limit(0)
			if want := 20 - max(5, used); got.Remaining != want {
				t.Errorf("%v: %d remain after 5 and %d were merged, want %d", got.Limit, got.Remaining, used, want)
			}
			table.checkAll(t)
		}
	}
}

// A rule that came from another node, with equal limits, finds the same
// counters.
func TestForeignRule(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	for range 50 {
		rule := randomRule(t, r)
		rule.Limits = rule.Limits[:min(len(rule.Limits), 4)]
		foreign := &limiter.Rule{Name: rule.Name}
		for _, l := range rule.Limits {
			foreign.Limits = append(foreign.Limits, limit(t, l.Spec()))
		}
		one, two := New(Config{}), New(Config{})
		now := limiter.Tick(1767614400e6)
		for range 200 {
			now += limiter.Tick(r.IntN(1_000_000))
			cost := uint64(r.IntN(3))
			k := arith.Key{Hash: hash(uint64(r.IntN(5))), Rule: rule}
			want := decide(t, one, now, charge(cost, k))
			if r.IntN(2) == 0 {
				k.Rule = foreign
			}
			compare(t, 0, decide(t, two, now, charge(cost, k)), want)
		}
	}
}

// Rules that take turns are all decided the short way.
func TestForeignRuleIsNotSlower(t *testing.T) {
	one := window(t, 5, time.Hour)
	two := window(t, 5, time.Hour)
	table := New(Config{})
	p, place := &table.parts[PartitionOf(&arith.Key{Hash: hash(1), Rule: one})], table.order.of(hash(1).Hi)
	decide(t, table, hourStart, charge(1, arith.Key{Hash: hash(1), Rule: one}))
	for _, rule := range []*limiter.Rule{one, two, one} {
		var d limiter.Decision
		if !table.decideFound(p, place, hourStart, charge(1, arith.Key{Hash: hash(1), Rule: rule}), &d) ||
			d.Limit(0).Limit != rule.Limits[0] {
			t.Error("it took the long way")
		}
	}
	if table.decideFound(p, place, hourStart, charge(1, arith.Key{Hash: hash(1), Rule: window(t, 6, time.Hour)}),
		new(limiter.Decision)) {
		t.Error("another limit was taken for it")
	}
}

// Shares and the whole of a limit take turns, and together admit what the whole
// may: L in each window, whatever is counted.
func TestShareTakesTurns(t *testing.T) {
	for _, s := range specs() {
		s.Name, s.Limit, s.Window, s.Burst = "l", 12, time.Minute, 0
		whole := &limiter.Rule{Name: "r", Limits: []*limiter.Limit{limit(t, s)}}
		share := &limiter.Rule{Name: "r", Limits: []*limiter.Limit{arith.Scaled(whole.Limits[0], 1, 3)}}
		table := New(Config{})
		r := rand.New(rand.NewPCG(1, 2))
		admitted, now := 0, hourStart
		for range 400 {
			k := arith.Key{Hash: hash(1), Rule: whole}
			if r.IntN(2) == 0 {
				k.Rule = share
			}
			if decide(t, table, now, charge(1, k)).Allowed {
				admitted++
			}
			now += limiter.Tick(r.IntN(280_000)) // not quite the window in all
		}
		most := 12
		if a := s.Algorithm; a >= limiter.TokenBucket {
			most = 24 // the burst, and what comes in the meantime
		}
		if now-hourStart > limiter.Minute || admitted > most || admitted < 3 {
			t.Errorf("%v: %d admitted in %v", whole.Limits[0], admitted, (now - hourStart).Duration())
		}
	}
}

// Partitions move while they are asked, swept and counted: nothing is lost of
// the table's own bookkeeping.
func TestMovesWhileAsked(t *testing.T) {
	rule := randomRule(t, rand.New(rand.NewPCG(3, 3)))
	rule.Limits = append(rule.Limits[:min(3, len(rule.Limits))],
		limit(t, limiter.Spec{Name: "log", Algorithm: limiter.SlidingLog, Limit: 9, Window: time.Second}))
	table := New(Config{MaxKeys: 300})
	var wg sync.WaitGroup
	for worker := range uint64(4) {
		wg.Go(func() {
			r := rand.New(rand.NewPCG(worker, 4))
			var d limiter.Decision
			for i := range limiter.Tick(3000) {
				now := hourStart + i*1000
				k := arith.Key{Hash: hash(r.Uint64N(60)), Rule: rule}
				k.Hash.Lo %= 1 << 54
				part := r.IntN(4)
				switch {
				case worker < 2:
					if err := table.Decide(now, charge(1, k), &d); err != nil {
						t.Error(err)
					}
				case r.IntN(20) == 0:
					table.Drop(part)
				default:
					entries := exported(table, part, now)
					err := table.Import(part, now, entries, ImportMode(r.IntN(2)))
					if err == nil && len(entries) > 0 {
						err = table.ReplaceKey(part, entries[0].Hi, now, entries[:1])
					}
					if err != nil && !errors.Is(err, ErrFull) {
						t.Error(err)
					}
				}
			}
		})
	}
	wg.Wait()
	table.checkAll(t)
}
