package table

import (
	"errors"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/limiter/arith"
)

// Ids that another node sends one by one, as the copies of checks are, count and are bounded as those of a snapshot.
func TestReplacedIDsCount(t *testing.T) {
	const most, now = 42, limiter.Tick(1e15) // no ring has room for exactly 2 or 3 times as many
	from, to := New(Config{}), New(Config{MaxKeys: most})
	rule, r := benchLimits(t, limiter.SlidingCounter, time.Hour), rand.New(rand.NewPCG(3, 9))
	var (
		last Entry // that was taken
		part int
	)
	send := func(source string) error { // a new id
		id := arith.Idempotency{ID: r.Uint64(), Life: time.Minute}
		c := arith.Charge{ID: &id}
		// Those of one node are in one partition, so that their ring has room mostly.
		c.Add(arith.Key{Hash: arith.Hash{Hi: r.Uint64(), Lo: uint64(len(source)) << 62}, Rule: rule, Cost: 1})
		if err := from.Decide(now, &c, new(limiter.Decision)); err != nil {
			t.Fatal(err)
		}
		var e Entry
		from.ExportKey(PartitionOf(c.Key(0)), IDOf(c.Key(0), id.ID).Hi, now, func(x Entry) { e = x })
		e.From = to.Source(source)
		err := to.ReplaceKey(PartitionOf(c.Key(0)), e.Hi, now, []Entry{e})
		if err == nil {
			last, part = e, PartitionOf(c.Key(0))
		}
		return err
	}
	counted := func(want int) {
		t.Helper()
		held := int(to.registry.held(to.ids.limit))
		if s := to.Stats(); s.Keys != want || held != want {
			t.Fatalf("%d counters, %d of them ids, of %d ids", s.Keys, held, want)
		}
	}
	for i := range maxOfSource(most) {
		if err := send("a"); err != nil {
			t.Fatalf("after %d: %v", i, err)
		}
		counted(int(i) + 1)
	}
	if err := send("a"); !errors.Is(err, ErrFull) {
		t.Errorf("one node may send more than twice max_keys: %v", err)
	}
	for i := range most {
		if err := send("bb"); err != nil {
			t.Fatalf("another, after %d: %v", i, err)
		}
	}
	if err := send("bb"); !errors.Is(err, ErrFull) {
		t.Errorf("all may send more than three times max_keys: %v", err)
	}
	counted(replicaFactor * most)
	if err := to.ReplaceKey(part, last.Hi, now, nil); err != nil {
		t.Fatal(err)
	}
	if err := send("bb"); err != nil {
		t.Fatal(err)
	}
	last.State = arith.State{} // it is over there
	if err := to.ReplaceKey(part, last.Hi, now, []Entry{last}); err != nil {
		t.Fatal(err)
	}
	counted(replicaFactor*most - 1)
	for i := range to.parts {
		if err := to.parts[i].check(); err != nil {
			t.Fatal(err)
		}
	}
}

// TestAnIDEndsWithItsReplacedHold: a copy of a reservation came a minute late, so it ends that much later there. Then
// its key comes in time, without it: it has ended at the owner. Its id is over at the copy, too, whether the key has
// another reservation or not, but for an id that stands for a cost, or that was used for a check since.
func TestAnIDEndsWithItsReplacedHold(t *testing.T) {
	l := hundred(t, limiter.FixedWindow, 24*time.Hour)
	over := noon + limiter.Hour + limiter.Second
	for what, test := range map[string]struct {
		keep, beside, keyFirst bool
		then                   func(from *Table) // at the owner, before the key is copied again
		cost                   uint64            // that the copy is to be settled with
		want                   limiter.AmendState
	}{
		"ended":                {cost: 4, want: limiter.AmendUnknown},
		"ended, beside others": {beside: true, cost: 4, want: limiter.AmendUnknown},
		"kept":                 {keep: true, cost: 4, want: limiter.AmendSettled},
		"kept, beside others":  {keep: true, beside: true, cost: 4, want: limiter.AmendSettled},
		"settled":              {then: settleLong(l), cost: 3, want: limiter.AmendRepeated},
		"settled, key first":   {then: settleLong(l), keyFirst: true, cost: 3, want: limiter.AmendRepeated},
		"used for a check": {then: func(from *Table) {
			again := heldCharge(l, 1, 10)
			again.ID.Hold = 0
			mustDecide(t, from, over, again)
		}, beside: true, cost: 4, want: limiter.AmendSettled},
	} {
		from, into := New(Config{MaxKeys: 1000}), New(Config{MaxKeys: 1000})
		c, other := heldCharge(l, 1, 10), heldCharge(l, 2, 10)
		c.ID.Keep, other.ID.Hold = test.keep, 2*time.Hour
		part, key, id := PartitionOf(c.Key(0)), c.Key(0).Hash.Hi, IDOf(c.Key(0), 1).Hi
		if mustDecide(t, from, noon, c); test.beside {
			mustDecide(t, from, noon, other)
		}
		moveTo(t, from, part, noon, into, noon+limiter.Minute, Replace)
		order := []uint64{id, key}
		if test.keyFirst {
			order = []uint64{key, id}
		}
		if test.then != nil {
			test.then(from)
		} else {
			order = []uint64{key} // the id did not change
		}
		for _, hi := range order {
			if err := into.ReplaceKey(part, hi, over, exportedKey(from, part, hi, over)); err != nil {
				t.Fatal(err)
			}
		}
		out, _ := into.Amend(over, heldCharge(l, 1, test.cost), limiter.Amend{IgnoreUnknown: true})
		if out.State != test.want {
			t.Errorf("%s: settled with %d: %v, want %v", what, test.cost, out.State, test.want)
		}
	}
}

// settleLong settles id 1 with 3 units half an hour after noon, to be remembered for hours.
func settleLong(l *limiter.Limit) func(*Table) {
	return func(from *Table) {
		c := heldCharge(l, 1, 3)
		c.ID.Life = 3 * time.Hour
		from.Amend(noon+30*limiter.Minute, c, limiter.Amend{})
	}
}

// TestAnIDStaysWithItsReplacedHold: the reservations of a key come again in another order.
func TestAnIDStaysWithItsReplacedHold(t *testing.T) {
	l := hundred(t, limiter.FixedWindow, 24*time.Hour)
	into, c := heldTable(t, l, noon, 1)
	mustDecide(t, into, noon, heldCharge(l, 2, 10))
	from, _ := heldTable(t, l, noon, 2)
	mustDecide(t, from, noon, c)
	part, hi := PartitionOf(c.Key(0)), c.Key(0).Hash.Hi
	if err := into.ReplaceKey(part, hi, noon, exportedKey(from, part, hi, noon)); err != nil {
		t.Fatal(err)
	}
	for _, id := range []uint64{1, 2} {
		if !into.Remembers(noon, heldCharge(l, id, 10)) {
			t.Errorf("id %d is over, and its reservation is not", id)
		}
	}
}

// TestAnExtensionThatComesLate: a reservation is extended at the last moment, and its copy comes when it would have
// been over. Its id comes first. The old end of the reservation does not end the id that has just come.
func TestAnExtensionThatComesLate(t *testing.T) {
	l := hundred(t, limiter.FixedWindow, 24*time.Hour)
	from, c := heldTable(t, l, noon, 1)
	into := New(Config{MaxKeys: 1000})
	part, key, id := PartitionOf(c.Key(0)), c.Key(0).Hash.Hi, IDOf(c.Key(0), 1).Hi
	moveTo(t, from, part, noon, into, noon, Replace)
	end := noon + limiter.Hour
	if out, _ := from.Amend(end-1, heldCharge(l, 1, 10), limiter.Amend{Extend: true}); out.State != limiter.AmendDone {
		t.Fatalf("premise: it is extended: %+v", out)
	}
	for _, hi := range []uint64{id, key} {
		if err := into.ReplaceKey(part, hi, end+1, exportedKey(from, part, hi, end)); err != nil {
			t.Fatal(err)
		}
	}
	if out, _ := into.Amend(end+2, heldCharge(l, 1, 4), limiter.Amend{}); out.State != limiter.AmendDone {
		t.Errorf("settled with 4 at the copy: %+v, want done", out)
	}
}
