package table

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/limiter/arith"
)

// Blocks of a large table are allocated once, without entries, and can be released; the
// memory of released blocks is freed.
func TestArena(t *testing.T) {
	a := &arena{live: arenaFrom}
	rng := rand.New(rand.NewPCG(5, 6))
	used := make(map[*slot]bool)
	var blocks [][]slot
	take := func() {
		b := a.block()
		if len(b) != blockSlots || used[&b[0]] {
			t.Fatalf("a block of %d slots, in use: %v", len(b), used[&b[0]])
		}
		for i := range b {
			if b[i] != (slot{}) {
				t.Fatalf("slot %d of a block is taken", i)
			}
			b[i].place, b[i].limit = rng.Uint64(), 1
		}
		used[&b[0]] = true
		blocks = append(blocks, b)
	}
	for range 3 * chunkBlocks {
		take()
	}
	if len(a.chunks) != 3 {
		t.Fatalf("%d blocks take %d chunks", len(blocks), len(a.chunks))
	}
	for range 20_000 {
		if n := len(blocks); n == 0 || n < 3*chunkBlocks && rng.IntN(2) == 0 {
			take()
			continue
		}
		i := rng.IntN(len(blocks))
		a.release(blocks[i : i+1])
		delete(used, &blocks[i][0])
		blocks[i] = blocks[len(blocks)-1]
		blocks = blocks[:len(blocks)-1]
	}
	if len(a.chunks) != 3 || a.live != arenaFrom+len(blocks) {
		t.Fatalf("%d chunks and %d blocks, of which %d are in use", len(a.chunks), a.live-arenaFrom, len(blocks))
	}
	a.release(blocks)
	if len(a.chunks) != 1 || a.live != arenaFrom {
		t.Errorf("%d chunks and %d blocks are kept of none", len(a.chunks), a.live-arenaFrom)
	}
	// Blocks of a small table are not the arena's, and releasing them does nothing.
	if a.release([][]slot{make([]slot, blockSlots)}); a.live != arenaFrom-1 || len(a.chunks) != 1 {
		t.Errorf("%d blocks after one of ordinary memory", a.live-arenaFrom)
	}
}

// A table that grows beyond ordinary memory keeps its counters, and gives back what it
// took when they expire.
func TestLargeTable(t *testing.T) {
	if testing.Short() {
		t.Skip("long; make wire runs it")
	}
	tab := New(Config{MaxKeys: 1 << 21})
	tab.room.arena.live = arenaFrom // so that it is large from the first block on
	rule := benchLimits(t, limiter.FixedWindow, time.Second)
	const keys = 800_000 // so that a partition has more than one block
	hashes := benchHashes(keys)
	var c arith.Charge
	var d limiter.Decision
	now := limiter.Tick(1e15)
	for round := range 3 {
		for i, h := range hashes {
			c.Clear()
			c.Add(arith.Key{Hash: h, Rule: rule, Cost: 1})
			tab.Decide(now, &c, &d)
			if want := uint64(1_000_000 - round - 1); d.Limit(0).Remaining != want {
				t.Fatalf("round %d, key %d: %d remain, want %d", round, i, d.Limit(0).Remaining, want)
			}
		}
	}
	tab.checkAll(t)
	if len(tab.room.arena.chunks) == 0 {
		t.Fatal("no chunk was taken")
	}
	most := tab.room.arena.live - arenaFrom
	for range keys / reclaimEnough {
		tab.reclaim(now+10*limiter.Second, (*partition).sweepOne)
	}
	tab.checkAll(t)
	if left := tab.room.arena.live - arenaFrom; left >= most/4 || len(tab.room.arena.chunks) > 1 {
		t.Errorf("of %d blocks %d are left, in %d chunks", most, left, len(tab.room.arena.chunks))
	}
	for i, h := range hashes {
		c.Clear()
		c.Add(arith.Key{Hash: h, Rule: rule, Cost: 1})
		if tab.Decide(now+20*limiter.Second, &c, &d); d.Limit(0).Remaining != 999_999 {
			t.Fatalf("key %d: %d remain when it has expired", i, d.Limit(0).Remaining)
		}
	}
	tab.checkAll(t)
	for i := range tab.parts {
		tab.Drop(i)
	}
	if tab.room.arena.live != arenaFrom || len(tab.room.arena.chunks) > 1 {
		t.Errorf("%d blocks are in use by nobody, in %d chunks", tab.room.arena.live-arenaFrom, len(tab.room.arena.chunks))
	}
}
