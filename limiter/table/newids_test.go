package table

import (
	"cmp"
	"errors"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/limiter/arith"
)

// idsOf returns the ids of a partition that count at now, in an order of their own.
func idsOf(t *Table, part int, now limiter.Tick) (all []Entry) {
	t.Export(part, now, func(e Entry) {
		if e.isID(t.ids.limit) {
			e.Limit, e.Words, e.From = nil, nil, 0
			all = append(all, e)
		}
	})
	slices.SortFunc(all, func(a, b Entry) int { return cmp.Or(cmp.Compare(a.Hi, b.Hi), cmp.Compare(a.Lo, b.Lo)) })
	return all
}

// A copy has the ids of its owner if it gets those that came since the last time, and those that changed otherwise:
// that were forgotten, or remembered again where they were.
func TestACopyGetsTheIDsThatCame(t *testing.T) {
	rule := window(t, 1_000_000, 24*time.Hour)
	for seed := range uint64(3) {
		r := rand.New(rand.NewPCG(seed, 50))
		owner, heir := New(Config{}), New(Config{})
		now, last, after, d := idStart, idStart, uint64(0), limiter.Decision{}
		var changed []uint64
		came, stayed := 0, 0
		const part = 0
		for step := range 4000 {
			if now += limiter.Tick(r.IntN(60_000)); step%1000 > 900 {
				now -= limiter.Tick(r.IntN(50_000)) // more ids than ever, so that the ring grows
				now = max(now, last)
			}
			last = now
			c := &arith.Charge{ID: &arith.Idempotency{ID: hash(r.Uint64N(400)).Hi | 1,
				Life: time.Duration(1+r.IntN(9)) * time.Second}}
			c.Add(arith.Key{Hash: arith.Hash{Hi: r.Uint64N(3)}, Rule: rule, Cost: 1})
			if r.IntN(4) == 0 { // as if another owner had the other key
				c.Add(arith.Key{Hash: arith.Hash{Hi: 7}, Rule: rule, Cost: 1})
			}
			if err := owner.Decide(now, c, &d); err != nil || !d.Allowed {
				t.Fatal(d, err)
			}
			for i := range c.Len() {
				if id := IDOf(c.Key(i), c.ID.ID).Hi; c.ID.Came&(1<<i) == 0 {
					changed = append(changed, id)
					stayed++
				} else if came++; r.IntN(20) == 0 {
					owner.UndoIn(EveryPartition, now, c, d.Receipt)
					changed = append(changed, IDOf(c.Key(0), c.ID.ID).Hi, IDOf(c.Key(c.Len()-1), c.ID.ID).Hi)
					break
				}
			}
			if r.IntN(400) == 0 {
				owner.reclaim(now, (*partition).sweepOne)
			}
			if r.IntN(10) > 0 {
				continue
			}
			replace := func(hi uint64, list ...Entry) {
				if err := heir.ReplaceKey(part, hi, now, list); err != nil {
					t.Fatal(err)
				}
			}
			var all []ID
			after = owner.ExportIDs(part, after, now, func(i ID) { all = append(all, i) })
			if err := heir.ImportIDs(part, now, 0, all); err != nil {
				t.Fatal(err)
			}
			for _, hi := range changed {
				replace(hi, exportedKey(owner, part, hi, now)...)
			}
			changed = changed[:0]
			if have, want := idsOf(heir, part, now), idsOf(owner, part, now); !slices.EqualFunc(have, want,
				func(a, b Entry) bool { return a.Hi == b.Hi && a.Lo == b.Lo && a.State == b.State }) {
				t.Fatalf("seed %d, step %d: a copy has %d ids, its owner %d", seed, step, len(have), len(want))
			}
		}
		heir.checkAll(t)
		if came < 1000 || stayed < 100 {
			t.Errorf("seed %d: %d ids came and %d were there: the test shows nothing", seed, came, stayed)
		}
	}
}

// Nothing is exported of ids to whom has them all.
func TestNoIDsAreExportedTwice(t *testing.T) {
	tab, d := New(Config{}), limiter.Decision{}
	rule := window(t, 1_000_000, 24*time.Hour)
	for id := range uint64(5) {
		c := &arith.Charge{ID: &arith.Idempotency{ID: id + 1, Life: time.Minute}}
		c.Add(arith.Key{Rule: rule, Cost: 1})
		if err := tab.Decide(idStart, c, &d); err != nil {
			t.Fatal(err)
		}
	}
	for after, want := range map[uint64]int{0: 5, 3: 2, 4: 1, 5: 0, NoIDs: 0} {
		n := 0
		if came := tab.ExportIDs(0, after, idStart, func(ID) { n++ }); n != want || came != 5 {
			t.Errorf("after %d come %d of %d, want %d of 5", after, n, came, want)
		}
	}
	if n := tab.ExportIDs(2*Partitions, 0, idStart, func(ID) { t.Error("of no partition") }); n != 0 {
		t.Errorf("%d came to no partition", n)
	}
}

// An id that takes the place of an ended one leaves what is counted as it is, whoever had that: another tenant, another
// member, or this node.
func TestAnIDInPlaceOfAnotherIsCountedOnce(t *testing.T) {
	rule, d := window(t, 1_000_000, 24*time.Hour), limiter.Decision{}
	for seed := range uint64(4) {
		r := rand.New(rand.NewPCG(seed, 51))
		tab, other := New(Config{}), New(Config{})
		var from [3]uint8
		for i, name := range []string{"", "a", "b"} {
			if name != "" {
				from[i] = tab.Source(name)
			}
		}
		now, taken := idStart, 0
		for range 3000 {
			now += limiter.Tick(r.IntN(30_000))
			tenant := []string{"", "x", "y"}[r.IntN(3)]
			k := ofTenant(tenant, 7, rule)
			k.Cost = 1
			c := &arith.Charge{ID: &arith.Idempotency{ID: r.Uint64() | 1, Life: time.Second}}
			c.Add(k)
			g := tab.ring(&tab.parts[PartitionOf(&k)])
			full := g.full() && g.over(now)
			if s := from[r.IntN(3)]; s != 0 {
				if err := other.Decide(now, c, &d); err != nil {
					t.Fatal(err)
				}
				e := exportedKey(other, PartitionOf(&k), IDOf(&k, c.ID.ID).Hi, now)[0]
				e.From = s
				if err := tab.ReplaceKey(PartitionOf(&k), e.Hi, now, []Entry{e}); err != nil {
					t.Fatal(err)
				}
			} else if err := tab.Decide(now, c, &d); err != nil {
				t.Fatal(err)
			}
			if full && g.full() {
				taken++
			}
			if have, want := tab.Stats().IDs, tab.idsHeld(); have != want {
				t.Fatalf("%d ids are counted, there are %d", have, want)
			}
		}
		tab.checkTenants(t)
		tab.checkSources(t)
		tab.checkAll(t)
		if taken < 40 {
			t.Errorf("seed %d: %d took the place of another: the test shows nothing", seed, taken)
		}
	}
}

// The ids of another member are its no more when this node's have taken their place.
func TestEndedIDsOfOthersMakeRoomForOnesOwn(t *testing.T) {
	rule, d := window(t, 1_000_000, 24*time.Hour), limiter.Decision{}
	tab, other := New(Config{}), New(Config{})
	check := func(where *Table, now limiter.Tick, id uint64) *arith.Charge {
		c := &arith.Charge{ID: &arith.Idempotency{ID: id, Life: time.Second}}
		if c.Add(arith.Key{Rule: rule, Cost: 1}); where.Decide(now, c, &d) != nil {
			t.Fatal(d)
		}
		return c
	}
	check(tab, idStart, 1000) // nothing is swept for its counter later
	for id := range uint64(32) {
		c := check(other, idStart, id+1)
		e := exportedKey(other, 0, IDOf(c.Key(0), c.ID.ID).Hi, idStart)
		e[0].From = tab.Source("a")
		if err := tab.ReplaceKey(0, e[0].Hi, idStart, e); err != nil {
			t.Fatal(err)
		}
	}
	if n := tab.room.copied.Load(); n != 32 {
		t.Fatalf("%d ids are counted for another, which has sent 32", n)
	}
	for id := range uint64(64) {
		check(tab, idStart+2*limiter.Second, 2000+id)
	}
	if n := tab.room.copied.Load(); n != 0 {
		t.Errorf("%d ids are counted for another, whose have gone", n)
	}
	tab.checkSources(t)
	tab.checkAll(t)
}

func (t *Table) idsHeld() (n int64) {
	for i := range t.parts {
		n += int64(t.ring(&t.parts[i]).used())
	}
	return n
}

// Ids of another table are refused if they are of another partition or contradict themselves, and where there is no
// room for more.
func TestIDsThatAreNotImported(t *testing.T) {
	from, d := New(Config{}), limiter.Decision{}
	rule := window(t, 1_000_000, 24*time.Hour)
	var ids []ID
	for id := range uint64(9) {
		c := &arith.Charge{ID: &arith.Idempotency{ID: id + 1, Life: time.Minute}}
		c.Add(arith.Key{Rule: rule, Cost: 1})
		if err := from.Decide(idStart, c, &d); err != nil {
			t.Fatal(err)
		}
	}
	from.ExportIDs(0, 0, idStart, func(i ID) { ids = append(ids, i) })
	small := New(Config{MaxKeys: 2}) // of copies it takes three times as many
	if err := small.ImportIDs(0, idStart, 0, ids); !errors.Is(err, ErrFull) || small.Count(0) != 6 {
		t.Errorf("of 9 ids %d are there, want 6: %v", small.Count(0), err)
	}
	small.checkAll(t)
	if err := small.ImportIDs(0, idStart+2*limiter.Minute, 0, ids[:5]); err != nil || small.Count(0) != 6 {
		t.Errorf("in place of ended ones there are %d: %v", small.Count(0), err)
	}
	small.checkAll(t)
	for name, spoil := range map[string]func(*ID) int{
		"of another partition": func(i *ID) int { i.Lo ^= 1 << 63; return 0 },
		"imported elsewhere":   func(*ID) int { return 1 },
		"in no partition":      func(*ID) int { return 2 * Partitions },
		"forgotten already":    func(i *ID) int { i.State.Time = -1; return 0 },
		"for ever":             func(i *ID) int { i.State.Time = never; return 0 },
	} {
		for others := range 4 { // for the first one no room has been made, as for one of another partition
			one := ids[8]
			tab := New(Config{})
			if err := tab.ImportIDs(0, idStart, 0, ids[:others]); err != nil {
				t.Fatal(err)
			}
			if err := tab.ImportIDs(spoil(&one), idStart, 0, []ID{one}); !errors.Is(err, limiter.ErrInvalid) {
				t.Errorf("%s, beside %d: %v", name, others, err)
			}
			if n := tab.Stats().Keys; n != others {
				t.Errorf("%s, beside %d: %d are there", name, others, n)
			}
		}
	}
}
