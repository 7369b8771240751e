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

// ringModel is what a ring must have: a list, in the order of its ids.
type ringModel struct {
	ids []idEntry
}

func (m *ringModel) find(place, lo uint64) int {
	return slices.IndexFunc(m.ids, func(e idEntry) bool { return e.place == place && e.lo == lo })
}

// end removes the ids whose time is over: all, or only the oldest.
func (m *ringModel) end(now limiter.Tick, all bool) (n int) {
	kept := m.ids[:0:0]
	for i, e := range m.ids {
		if e.state.Time <= now && (all || n == 0 && i == 0) {
			n++
			continue
		}
		kept = append(kept, e)
	}
	m.ids = kept
	return n
}

// A ring has the same ids as a list after any sequence of operations: with places that are spread and
// with ones that crowd, small and of many sizes.
func TestIDRing(t *testing.T) {
	for seed, most := range []int{3, 8, 30, 200, 1500} {
		rng := rand.New(rand.NewPCG(uint64(seed), 3))
		var (
			g    idRing
			m    ringModel
			now  = idStart
			spot = ^uint64(0) >> (seed % 3 * 20) // the bits in which places differ
		)
		for step := range 2000 + 8*most {
			now += limiter.Tick(rng.IntN(4))
			switch n := rng.IntN(100); {
			case n < 70:
				if g.full() {
					if g.over(now) {
						g.leave()
						m.end(now, false)
					}
				}
				if g.full() {
					g.resize(largerRing(int(g.n)))
				}
				e := idEntry{place: rng.Uint64() & spot, lo: rng.Uint64N(3),
					state: arith.State{Time: now + 1 + limiter.Tick(rng.IntN(2*most)), A: uint32(step)}}
				if m.find(e.place, e.lo) < 0 {
					g.push(e.place, e.lo, e.state)
					m.ids = append(m.ids, e)
				}
			case n < 80 && len(m.ids) > 0:
				i := rng.IntN(len(m.ids))
				g.take(g.find(m.ids[i].place, m.ids[i].lo))
				m.ids = slices.Delete(m.ids, i, i+1)
			case n < 82:
				before := g.used()
				if dropped, _ := g.drop(now, func(*idEntry) {}); dropped != m.end(now, true) || g.used() != before-dropped {
					t.Fatalf("ring %d, step %d: %d are dropped of %d, and %d are left", seed, step, dropped, before, g.used())
				}
			case n < 83:
				g.resize(ringSize(g.used()))
			}
			compareRing(t, &g, &m, rng)
		}
		if len(g.ring) < most/4 {
			t.Errorf("premise: the ring %d has only %d positions", seed, len(g.ring))
		}
	}
}

func compareRing(t *testing.T, g *idRing, m *ringModel, rng *rand.Rand) {
	t.Helper()
	if g.used() != len(m.ids) {
		t.Fatalf("%d ids, want %d", g.used(), len(m.ids))
	}
	for range min(len(m.ids), 20) {
		e := m.ids[rng.IntN(len(m.ids))]
		pos := g.find(e.place, e.lo)
		if pos < 0 || g.ring[pos] != e {
			t.Fatalf("id %v is at %d", e, pos)
		}
		want := 0
		for _, o := range m.ids {
			if o.place == e.place {
				want++
			}
		}
		if at := g.all(e.place, nil); len(at) != want || !slices.Contains(at, pos) {
			t.Fatalf("the ids at the place of %v are at %v, want %d", e, at, want)
		}
	}
	if pos := g.find(rng.Uint64(), 9); pos >= 0 {
		t.Fatalf("an unknown id is at %d", pos)
	}
	if rng.IntN(50) > 0 {
		return
	}
	if err := g.check(); err != nil {
		t.Fatal(err)
	}
	at := g.byPlace()
	if len(at) != len(m.ids) || !slices.IsSortedFunc(at, func(a, b int) int {
		return cmp.Compare(g.ring[a].place, g.ring[b].place)
	}) {
		t.Fatalf("%d ids by place, want %d", len(at), len(m.ids))
	}
}

// A ring of any size has room for its ids, and grows by at least one and by less than a third beyond small sizes.
func TestSizesOfRings(t *testing.T) {
	for n := range 5000 {
		size, more := ringSize(n), largerRing(n)
		if size < n || more <= n || more > n+n/3+16 || bytesOfRing(size) < int64(size)*idBytes {
			t.Fatalf("%d ids have a ring of %d, and the next is of %d", n, size, more)
		}
	}
}

// A partition exports counters and ids in the order of their places, alone and mixed. Where they are imported,
// the ids are known, and they leave when they are replaced by nothing.
func TestCountersAndIDsHaveOneOrder(t *testing.T) {
	rule := window(t, 1_000_000, time.Hour)
	from, to := New(Config{Order: rand.NewPCG(1, 1)}), New(Config{Order: rand.NewPCG(2, 2)})
	var charges []*arith.Charge
	for i := range uint64(300) {
		c := charge1(rule, hash(i%60).Hi, hash(1000+i).Hi|1, 1+i)
		decide(t, from, idStart, c)
		charges = append(charges, c)
	}
	part := PartitionOf(charges[0].Key(0))
	all := exported(from, part, idStart)
	kinds, turns := make(map[limiter.Algorithm]int), 0
	for i, e := range all {
		kinds[e.Limit.Algorithm()]++
		if i > 0 && from.order.of(e.Hi) < from.order.of(all[i-1].Hi) {
			t.Errorf("entry %d is before the one before", i)
		}
		if i > 0 && e.Limit.Algorithm() != all[i-1].Limit.Algorithm() {
			turns++
		}
	}
	if kinds[arith.Remembered] != 300 || len(all) != 360 || turns < 60 {
		t.Fatalf("premise: %v are exported, which change %d times", kinds, turns)
	}
	if err := to.Import(part, idStart, all, Replace); err != nil {
		t.Fatal(err)
	}
	to.checkAll(t)
	if s := to.Stats(); s.IDs != 300 || s.Keys != 360 || to.Count(part) != 360 {
		t.Fatalf("%+v", s)
	}
	for i, c := range charges {
		if d := decide(t, to, idStart+1, c); !d.Repeated {
			t.Fatalf("id %d is not known", i)
		}
		hi := IDOf(c.Key(0), c.ID.ID).Hi
		one := exportedKey(from, part, hi, idStart)
		if len(one) != 1 || one[0].Hi != hi || arith.IDCost(&one[0].State) != uint64(1+i) {
			t.Fatalf("id %d is exported as %+v", i, one)
		}
		if i%2 == 0 {
			if err := to.ReplaceKey(part, hi, idStart+1, nil); err != nil {
				t.Fatal(err)
			}
		}
	}
	to.checkAll(t)
	if n := to.Stats().IDs; n != 150 {
		t.Fatalf("%d ids are left", n)
	}
	for i, c := range charges {
		if d := decide(t, to, idStart+1, c); d.Repeated == (i%2 == 0) {
			t.Fatalf("id %d: repeated is %v", i, d.Repeated)
		}
	}
	to.Drop(part)
	to.checkAll(t)
	if s := to.Stats(); s.IDs != 0 || s.Bytes != New(Config{}).Stats().Bytes {
		t.Errorf("%+v after all were dropped", s)
	}
}

// idFlow checks random keys, with a new id each, and returns the bytes for each id that is remembered: what
// the table has beyond one with the same keys and no ids.
func idFlow(t *testing.T, keys, lives int) float64 {
	t.Helper()
	var bytes [2]int64
	for with := range bytes {
		tab, hashes, rule := New(Config{}), benchHashes(keys), benchLimits(t, limiter.SlidingCounter, time.Hour)
		r, now := rand.New(rand.NewPCG(1, 7)), limiter.Tick(1e15)
		var c arith.Charge
		var d limiter.Decision
		id := arith.Idempotency{Life: time.Duration(keys) * limiter.TickDuration}
		check := func(h arith.Hash) {
			now++
			c.Clear()
			c.Add(arith.Key{Hash: h, Rule: rule, Cost: 1})
			if with == 1 {
				id.ID = r.Uint64() | 1
				c.ID = &id
			}
			if tab.Decide(now, &c, &d) != nil || !d.Allowed || d.Repeated {
				t.Fatalf("%+v", d)
			}
		}
		for _, h := range hashes {
			check(h)
		}
		for range lives * keys * with {
			check(hashes[r.IntN(keys)])
		}
		bytes[with] = tab.Stats().Bytes
		tab.checkAll(t)
	}
	return float64(bytes[1]-bytes[0]) / float64(keys)
}

// An id takes at most 64 bytes where a hundred of a partition or more are remembered, and a few more in a small table,
// whose partitions have room for what they had at most.
func TestBytesOfIDs(t *testing.T) {
	for keys, most := range map[int]float64{30_000: 66, 100_000: 58} {
		if got := idFlow(t, keys, 6); got > most || got < idBytes {
			t.Errorf("%d ids take %.1f bytes each, want at most %.0f", keys, got, most)
		}
	}
}

// An id that lasts long does not keep those behind it, and is known until its time is over.
func TestOneIDThatLastsKeepsNoOthers(t *testing.T) {
	tab, rule := New(Config{}), window(t, 1_000_000, time.Hour)
	long := charge1(rule, 1, 1, 1)
	long.ID.Life = time.Hour
	decide(t, tab, idStart, long)
	now := idStart
	for i := range uint64(20_000) {
		now += limiter.Millisecond
		c := charge1(rule, 1, 2+i, 1)
		c.ID.Life = 100 * time.Millisecond
		if d := decide(t, tab, now, c); d.Repeated || !d.Allowed {
			t.Fatalf("check %d: %+v", i, d)
		}
	}
	if n := tab.Stats().IDs; n > 150 {
		t.Errorf("%d ids are stored for 101", n)
	}
	if d := decide(t, tab, now, long); !d.Repeated {
		t.Error("the id that lasts is not known")
	}
	tab.checkAll(t)
}

// An id that comes again each time when its time is over keeps no others in the ring, and takes no
// second place there.
func TestAnIDThatComesAgainKeepsNoOthers(t *testing.T) {
	tab, rule := New(Config{}), window(t, 1_000_000, time.Hour)
	now := idStart
	for i := range uint64(20_000) {
		now += limiter.Millisecond
		c := charge1(rule, 1, 1000+i, 1)
		if i%101 == 0 {
			c = charge1(rule, 1, 1+i%3, 1)
		}
		c.ID.Life = 100 * time.Millisecond
		if d := decide(t, tab, now, c); d.Repeated {
			t.Fatalf("check %d repeats one", i)
		}
		if d := decide(t, tab, now, c); !d.Repeated {
			t.Fatalf("check %d is not known", i)
		}
	}
	if n := tab.Stats().IDs; n > 150 {
		t.Errorf("%d ids are stored for 100", n)
	}
	tab.checkAll(t)
}

// Ids keep the bounds of a table: its bytes, its counters, and those of one key.
func TestIDsKeepTheBounds(t *testing.T) {
	rule := window(t, 10_000_000, time.Hour)
	for _, config := range []Config{{MaxBytes: 3 << 20}, {MaxKeys: 10_000}} {
		tab, d := New(config), limiter.Decision{}
		for i := range uint64(60_000) {
			k := arith.Key{Hash: hash(i % 2000), Rule: rule}
			c := charge(1, k)
			c.ID = &arith.Idempotency{ID: 1 + i, Life: time.Hour}
			if err := tab.Decide(hourStart, c, &d); err != nil || !d.Allowed {
				t.Fatalf("check %d: %+v, %v", i, d, err)
			}
			s := tab.Stats()
			if config.MaxBytes > 0 && s.Bytes > config.MaxBytes || config.MaxKeys > 0 &&
				(s.Keys > config.MaxKeys || 2*s.IDs > int64(config.MaxKeys)) {
				t.Fatalf("%+v after %d checks", s, i+1)
			}
		}
		if s := tab.Stats(); s.IDsForgotten == 0 || s.IDs < 4000 {
			t.Errorf("premise: %+v", s)
		}
		tab.checkAll(t)
	}
}

// An import is refused if it would put more ids at one place than a key may have counters: a search passes all
// of them. What is there stays.
func TestImportsOfIDsAtOnePlace(t *testing.T) {
	tab, k := New(Config{}), arith.Key{Hash: arith.Hash{Hi: 7, Lo: 7}, Rule: window(t, 1, time.Hour)}
	name := arith.NameID(tab.ids.limit)
	entries := func(from, n uint64) (out []Entry) {
		for lo := from; lo < from+n; lo++ {
			s := arith.NewID(limiter.Minute, 0, 1, 1)
			out = append(out, Entry{Hi: 9, Lo: lo ^ name, Limit: tab.ids.limit, State: s})
		}
		return out
	}
	part := PartitionOf(&k)
	if err := tab.Import(part, idStart, entries(0, maxImportedPerKey), Merge); err != nil {
		t.Fatal(err)
	}
	if err := tab.Import(part, idStart, entries(maxImportedPerKey, 1), Merge); !errors.Is(err, limiter.ErrInvalid) {
		t.Errorf("one more: %v", err)
	}
	if err := tab.Import(part, idStart, entries(0, maxImportedPerKey), Merge); err != nil {
		t.Errorf("the same again: %v", err)
	}
	if n := tab.Stats().IDs; n != maxImportedPerKey {
		t.Errorf("%d ids", n)
	}
	tab.checkAll(t)
}
