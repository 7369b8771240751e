package table

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/limiter/arith"
)

// The published layout leads to the slot where a key's search starts, after partitions
// have grown, shrunk and been dropped.
func TestLayoutsAreThoseOfTheSlots(t *testing.T) {
	tab, rule := New(Config{}), benchLimits(t, limiter.FixedWindow, time.Second)
	rng := rand.New(rand.NewPCG(3, 9))
	now := limiter.Tick(1e15)
	var c arith.Charge
	var d limiter.Decision
	for step := range 60_000 {
		c.Clear()
		c.Add(arith.Key{Hash: arith.Hash{Hi: rng.Uint64(), Lo: rng.Uint64()>>7 | rng.Uint64()<<57}, Rule: rule, Cost: 1})
		tab.PrefetchPartitions(&c)
		tab.Prefetch(&c)
		if err := tab.Decide(now, &c, &d); err != nil {
			t.Fatal(err)
		}
		switch {
		case step%20_000 == 19_999:
			now += 10 * limiter.Second // all have recovered
		case step%1000 == 0:
			tab.Drop(rng.IntN(Partitions))
		}
	}
	shared := 0
	for i := range tab.parts {
		p, l := &tab.parts[i], tab.layouts[i].Load()
		if (l == nil) != (p.slots.homes == 0) {
			t.Fatalf("partition %d has %d homes and the layout %v", i, p.slots.homes, l)
		}
		if l == nil {
			continue
		}
		for range 20 {
			hi := rng.Uint64()
			at := p.slots.home(hi) + 1
			if block, i := l.near(hi); block == nil || &block[i] != p.slots.at(at) {
				t.Fatalf("partition %d: the hint for %x is not slot %d", i, hi, at)
			}
			shared++
		}
	}
	if shared < 1000 {
		t.Fatalf("only %d slots were looked at", shared)
	}
}

// A partition that does not exist, which another node may send, is ignored.
func TestPrefetchOfNoPartition(t *testing.T) {
	tab := New(Config{})
	for _, p := range []int{-1, 2 * Partitions, 1 << 20} {
		tab.PrefetchKey(p, 7)
		tab.PrefetchIDs(p)
	}
}
