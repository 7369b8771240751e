package table

import (
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

// idRule is a rule with a window and a bucket.
func idRule(t testing.TB, name string) *limiter.Rule {
	t.Helper()
	r := &limiter.Rule{Name: name}
	for _, s := range []limiter.Spec{
		{Limit: 20, Window: 10 * time.Second, Algorithm: limiter.FixedWindow},
		{Limit: 6, Window: time.Second, Algorithm: limiter.GCRA},
	} {
		l, err := limiter.NewLimit(s)
		if err != nil {
			t.Fatal(err)
		}
		r.Limits = append(r.Limits, l)
	}
	return r
}

const idStart = limiter.Tick(1767614400e6)

// idModel is what a table with ids must do: a table without ids, and a list of what is
// remembered.
type idModel struct {
	table *Table
	known map[idKey]idKnown
}

type idKey struct {
	key arith.Hash
	id  uint64
}

type idKnown struct {
	until, at limiter.Tick
	cost      uint64
	charged   uint64
}

// has reports whether an id is remembered for a key.
func (m *idModel) has(now limiter.Tick, k *arith.Key, id uint64) bool {
	return m.known[idKey{k.Hash, id}].until > now
}

// decide decides a charge, and reports whether it was a repetition.
func (m *idModel) decide(t *testing.T, now limiter.Tick, c *arith.Charge, d *limiter.Decision) (repeated bool) {
	t.Helper()
	var rest arith.Charge
	costs := 0
	for i := range c.Len() {
		k := *c.Key(i)
		if k.Cost > 0 {
			costs++
		}
		if c.ID == nil || k.Cost == 0 || !m.has(now, &k, c.ID.ID) {
			rest.Add(k)
		}
	}
	known := c.Len() - rest.Len()
	rest.Peek = c.Peek
	if known > 0 && known == costs {
		d.Clear()
		return true
	}
	if err := m.table.Decide(now, &rest, d); err != nil {
		t.Fatal(err)
	}
	if c.ID == nil || c.Peek || !d.Allowed {
		return false
	}
	n := 0
	for i := range rest.Len() {
		k := rest.Key(i)
		if k.Cost > 0 {
			m.known[idKey{k.Hash, c.ID.ID}] = idKnown{now + limiter.Span(c.ID.Life), now, k.Cost, chargedOf(&d.Receipt, n, k)}
		}
		n += len(k.Rule.Limits)
	}
	return false
}

// refund takes a charge back.
func (m *idModel) refund(now limiter.Tick, c *arith.Charge, r limiter.Receipt) {
	n := 0
	for i := range c.Len() {
		k := c.Key(i)
		bits := chargedOf(&r, n, k)
		if c.ID != nil && k.Cost > 0 && m.has(now, k, c.ID.ID) {
			at := idKey{k.Hash, c.ID.ID}
			if have := m.known[at]; have.at == arith.Fields(&r).Time && have.cost == k.Cost && have.charged == bits {
				delete(m.known, at)
			} else {
				arith.Fields(&r).Charged &^= (1<<len(k.Rule.Limits) - 1) << n
			}
		}
		n += len(k.Rule.Limits)
	}
	plain := c.Clone()
	plain.ID = nil
	m.table.Refund(now, plain, r)
}

// moved returns a table with all counters of another one, as another member would have them.
func moved(t *testing.T, from *Table, now limiter.Tick, mode ImportMode) *Table {
	t.Helper()
	to := New(Config{})
	for part := range 2 * Partitions {
		var all []Entry
		from.Export(part, now, func(e Entry) {
			e.Words = slices.Clone(e.Words)
			all = append(all, e)
		})
		if len(all) == 0 {
			continue
		}
		if err := to.Import(part, now, all, mode); err != nil {
			t.Fatal(err)
		}
	}
	return to
}

// A table with ids does what a table without ids does, apart from what is remembered: for
// random charges of one and several keys, peeks, refunds, and moves to other tables.
func TestIDsAreAModel(t *testing.T) {
	inWire(t)
	rules := []*limiter.Rule{idRule(t, "a"), idRule(t, "b")}
	seeds := uint64(100)
	if n, err := strconv.ParseUint(os.Getenv("WEIR_SEEDS"), 10, 64); err == nil {
		seeds = n
	} else if raceEnabled {
		seeds = 6 // one goroutine: the detector only makes it twenty times longer
	}
	for seed := range seeds {
		rng := rand.New(rand.NewPCG(seed, 21))
		now, tab := idStart, New(Config{})
		m := &idModel{table: New(Config{}), known: map[idKey]idKnown{}}
		type made struct {
			c *arith.Charge
			r limiter.Receipt
		}
		var receipts []made
		for step := range 400 {
			c := &arith.Charge{Peek: rng.IntN(8) == 0}
			for i := range 1 + rng.IntN(2) {
				c.Add(arith.Key{
					Hash: arith.Hash{Hi: 1000 + rng.Uint64N(3), Lo: uint64(i)<<40 + 7}, Rule: rules[i], Cost: rng.Uint64N(4),
				})
			}
			if rng.IntN(4) > 0 {
				c.ID = &arith.Idempotency{ID: 1 + rng.Uint64N(6)<<20, Life: time.Duration(1+rng.IntN(3000)) * time.Millisecond}
			}
			where := fmt.Sprintf("seed %d, step %d, id %+v", seed, step, c.ID)
			switch rng.IntN(10) {
			case 0:
				now += limiter.Tick(rng.IntN(4000)) * limiter.Millisecond
			case 1:
				tab, m.table = moved(t, tab, now, ImportMode(rng.IntN(2))), moved(t, m.table, now, Replace)
			case 2:
				if len(receipts) > 0 {
					i := rng.IntN(len(receipts))
					tab.Refund(now, receipts[i].c, receipts[i].r)
					m.refund(now, receipts[i].c, receipts[i].r)
					receipts = slices.Delete(receipts, i, i+1)
				}
			default:
				now += limiter.Tick(rng.IntN(100)) * limiter.Millisecond
				var got, want limiter.Decision
				repeated := m.decide(t, now, c, &want)
				if err := tab.Decide(now, c, &got); err != nil {
					t.Fatal(err)
				}
				if got.Repeated != repeated || repeated && !got.Allowed || !repeated && got.Allowed != want.Allowed {
					t.Fatalf("%s: repeated %t, allowed %t; want %t, %t", where, got.Repeated, got.Allowed, repeated, want.Allowed)
				}
				if !repeated && arith.Fields(&got.Receipt).Charged != 0 && c.Fits(got.Receipt) {
					receipts = append(receipts, made{c, got.Receipt})
				}
			}
			for i := range 2 {
				for hi := range uint64(3) {
					var peek arith.Charge
					peek.Peek = true
					peek.Add(arith.Key{Hash: arith.Hash{Hi: 1000 + hi, Lo: uint64(i)<<40 + 7}, Rule: rules[i], Cost: 1})
					var got, want limiter.Decision
					if err := tab.Decide(now, &peek, &got); err != nil {
						t.Fatal(err)
					}
					if err := m.table.Decide(now, &peek, &want); err != nil {
						t.Fatal(err)
					}
					for j := range got.Len() {
						if g, w := got.Limit(j).Remaining, want.Limit(j).Remaining; g != w {
							t.Fatalf("%s: of key %d of rule %d limit %d has %d left, want %d", where, hi, i, j, g, w)
						}
					}
				}
			}
			live := 0
			for _, k := range m.known {
				if k.until > now {
					live++
				}
			}
			if s := tab.Stats(); int(s.IDs) < live || s.IDsForgotten > 0 {
				t.Fatalf("%s: %+v, want at least %d ids", where, s, live)
			}
		}
	}
}

// charge1 is a charge of one key.
func charge1(rule *limiter.Rule, hi, id uint64, cost uint64) *arith.Charge {
	c := &arith.Charge{}
	c.Add(arith.Key{Hash: arith.Hash{Hi: hi, Lo: 7}, Rule: rule, Cost: cost})
	if id != 0 {
		c.ID = &arith.Idempotency{ID: id, Life: time.Minute}
	}
	return c
}

// A repetition has the receipt of the first charge, which takes that back and forgets the id.
// With another cost it has none.
func TestRepeatedReceipt(t *testing.T) {
	tab, rule := New(Config{}), idRule(t, "a")
	var first, again, other, after limiter.Decision
	ask := func(now limiter.Tick, cost uint64, d *limiter.Decision) {
		if err := tab.Decide(now, charge1(rule, 1, 9, cost), d); err != nil {
			t.Fatal(err)
		}
	}
	ask(idStart, 3, &first)
	ask(idStart+5, 3, &again)
	ask(idStart+6, 2, &other)
	if first.Repeated || !again.Repeated || again.Receipt != first.Receipt || !other.Repeated ||
		other.Receipt != (limiter.Receipt{}) {
		t.Fatalf("%+v\n%+v\n%+v", first.Receipt, again.Receipt, other.Receipt)
	}
	tab.Refund(idStart+7, charge1(rule, 1, 9, 3), again.Receipt)
	ask(idStart+8, 3, &after)
	if after.Repeated || after.Limit(0).Remaining != 17 || after.Limit(1).Remaining != 3 {
		t.Errorf("%+v", after)
	}
	tab.UndoIn(EveryPartition, idStart+9, charge1(rule, 1, 9, 3), first.Receipt) // late, of an earlier attempt
	ask(idStart+10, 3, &again)
	if !again.Repeated || again.Limit(0).Remaining != 17 {
		t.Errorf("a late cancel has taken back a later charge: %+v", again)
	}
}

// The ids of one key take a small part of what ids may take, also those of reservations that
// were settled: others' ids are remembered, and others may reserve.
func TestIDsOfAKeyAreBounded(t *testing.T) {
	const most = 16 * 500
	tab, rule := New(Config{MaxKeys: most}), windowRule(t, 1e6)
	var d limiter.Decision
	ask := func(c *arith.Charge) bool {
		t.Helper()
		if err := tab.Decide(idStart, c, &d); err != nil {
			t.Fatal(err)
		}
		return d.Allowed
	}
	for i := range uint64(2 * most) {
		if !ask(charge1(rule, 1, i+1, 1)) {
			t.Fatal("a check with an id is denied")
		}
	}
	if s := tab.Stats(); s.IDs > most/idsOfKey || s.IDs < most/idsOfKey-5 || s.IDsForgotten != 2*most-s.IDs {
		t.Errorf("%+v", s)
	}
	reserved := 0
	for i := range uint64(2 * most) {
		if c := held1(rule, 1, 1<<32+i, 1, time.Hour); ask(c) {
			reserved++
			tab.Amend(idStart, c, limiter.Amend{})
		}
	}
	if s := tab.Stats(); reserved == 0 || s.IDs > forHolds*most/idsOfKey ||
		s.OverflowedBy != [Bounds]int64{BoundHolds: int64(2*most - reserved)} {
		t.Errorf("%d reserved, %+v", reserved, s)
	}
	if a, changed := tab.Amend(idStart, charge1(rule, 1, 1<<40, 5), limiter.Amend{}); a.State != limiter.AmendFull ||
		changed {
		t.Errorf("a settlement of an unknown id of that key: %+v", a)
	}
	other := held1(rule, 1, 1, 1, time.Hour)
	other.Key(0).Hash.Lo += 1 << 60
	if first := ask(other); !first || !ask(other) || !d.Repeated {
		t.Errorf("a reservation of another key: %+v", d)
	}
}

// Ids take at most half of a table, so that a flood of them keeps out no other
// key. A check whose id finds no room is charged; ids are remembered again when others are
// over.
func TestIDsAreBounded(t *testing.T) {
	inWire(t)
	const most = 2000
	tab, rule := New(Config{MaxKeys: most}), idRule(t, "a")
	now := idStart
	var d limiter.Decision
	for i := range uint64(3 * most) {
		now += limiter.Second // the bucket is full again
		c := charge1(rule, 1, i+1, 1)
		c.Key(0).Hash.Lo += i << 58
		c.ID.Life = 24 * time.Hour
		if err := tab.Decide(now, c, &d); err != nil || !d.Allowed || d.Repeated {
			t.Fatalf("check %d: %+v, %v", i, d, err)
		}
	}
	s := tab.Stats()
	if s.IDs != most/2 || s.IDsForgotten != 3*most-most/2 || s.Overflowed != 0 {
		t.Fatalf("%+v", s)
	}
	for i := range uint64(most/2 - 2) {
		if err := tab.Decide(now, charge1(rule, 5+i, 0, 1), &d); err != nil || !d.Allowed && i < most/4-1 {
			t.Fatalf("key %d: %+v, %v", i, d, err)
		}
	}
	now += 24 * limiter.Hour
	for want := range 2 {
		if err := tab.Decide(now, charge1(rule, 1, 1<<50, 1), &d); err != nil || d.Repeated != (want == 1) {
			t.Fatalf("after a day: %+v, %v", d, err)
		}
	}
}

// A charge with an id allocates nothing.
func TestIDsAllocateNothing(t *testing.T) {
	tab, rule := New(Config{}), idRule(t, "a")
	now, d, c := idStart, limiter.Decision{}, charge1(rule, 1, 1, 1)
	n := testing.AllocsPerRun(1000, func() {
		now += limiter.Minute
		for range 2 {
			if err := tab.Decide(now, c, &d); err != nil {
				t.Error(err)
			}
		}
	})
	if n > 0 {
		t.Errorf("%v allocations", n)
	}
}

func BenchmarkDecideID(b *testing.B) {
	for _, with := range []bool{false, true} {
		b.Run(fmt.Sprint(with), func(b *testing.B) {
			tab, rule := New(Config{}), idRule(b, "a")
			now, d, c := idStart, limiter.Decision{}, charge1(rule, 1, 1, 1)
			id := *c.ID
			if !with {
				c.ID = nil
			}
			b.ReportAllocs()
			for i := range b.N {
				now += limiter.Second
				if with {
					c.ID.ID = id.ID + uint64(i)*0x9e3779b97f4a7c15
				}
				if err := tab.Decide(now, c, &d); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
