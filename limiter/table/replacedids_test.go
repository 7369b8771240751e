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
	const most, now = 40, limiter.Tick(1e15)
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
