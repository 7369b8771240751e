package table

import (
	"errors"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/limiter/arith"
)

// checkSources verifies that what is counted for other nodes is what the table has of them.
func (t *Table) checkSources(tb testing.TB) {
	tb.Helper()
	var keys, bytes [maxSources]int64
	copied := int64(0)
	for i := range t.parts {
		p, c := &t.parts[i], &t.copies[i]
		n, words := 0, int64(0)
		for j := range p.slots.size {
			if s := p.slots.at(j); s.limit != 0 && s.from != 0 {
				n++
				words += int64(len(t.words(s))) * wordBytes
				keys[s.from]++
				bytes[s.from] += int64(len(t.words(s))) * wordBytes
			}
		}
		keys[c.sent.idsOf] += int64(c.sent.ids)
		if n != c.sent.slots || words != c.sent.words || c.sent.ids > t.ring(p).used() {
			tb.Fatalf("partition %d has %d counters that were sent, with %d bytes, and %+v are counted", i, n, words, c.sent)
		}
		if copied += int64(n + c.sent.ids); c.on {
			copied += int64(p.used() - n - c.sent.ids)
		}
	}
	for i := range keys {
		if u := &t.room.usages.sources.usage[i]; u.keys.Load() != keys[i] || u.bytes.Load() != bytes[i] {
			tb.Fatalf("node %d has sent %d counters and %d bytes, and %d and %d are counted", i, keys[i], bytes[i],
				u.keys.Load(), u.bytes.Load())
		}
	}
	if have := t.room.copied.Load(); have != copied {
		tb.Fatalf("%d counters are copies or were sent, and %d are counted", copied, have)
	}
}

// invented sends counters of keys that nobody asks about to a partition, as owners do or as one that was fenced does,
// until one is refused or so many are there. It returns how many were taken.
func invented(t *testing.T, table *Table, from uint8, most int, mode ImportMode, r *limiter.Rule) (taken int) {
	t.Helper()
	state := arith.State{Time: -1, A: 1}
	for n := range most {
		h := hash(uint64(from)<<32 | uint64(n))
		k := arith.Key{Hash: h, Rule: r}
		e := Entry{Hi: h.Hi, Lo: h.Lo ^ arith.NameID(r.Limits[0]), Limit: r.Limits[0], State: state, From: from}
		switch err := table.Import(PartitionOf(&k), hourStart, []Entry{e}, mode); {
		case errors.Is(err, ErrFull):
			return taken
		case err != nil:
			t.Fatal(err)
		}
		taken++
	}
	return taken
}

// What a node sends, whatever and however much, leaves a third of the room to others, and denies no new key:
// neither while it owns, nor when this node takes its place. What is asked for counts as the node's own.
func TestANodeFillsAShare(t *testing.T) {
	const most = 2000
	for _, mode := range []ImportMode{Replace, Merge} {
		r := window(t, 5, time.Hour)
		table := New(Config{MaxKeys: most})
		if mode == Replace {
			for i := range 2 * Partitions {
				table.SetCopy(i, true)
			}
		}
		evil, good := table.Source("evil"), table.Source("good")
		if n := invented(t, table, evil, 10*most, mode, r); n != 2*most {
			t.Errorf("mode %d: one node sent %d counters, want %d", mode, n, 2*most)
		}
		if n := invented(t, table, good, most, mode, r); n != most {
			t.Errorf("mode %d: another sent %d, want all its %d", mode, n, most)
		}
		table.checkSources(t)
		for i := range 2 * Partitions {
			table.SetCopy(i, false)
		}
		table.checkSources(t)
		if n := fill(t, table, hourStart, "", 1<<40, r); n != most {
			t.Errorf("mode %d: %d new keys find room, want %d", mode, n, most)
		}
		// A key that was sent and is asked for is the node's own.
		before := table.room.usages.sources.usage[good].keys.Load()
		decide(t, table, hourStart, charge(1, arith.Key{Hash: hash(uint64(good) << 32), Rule: r}))
		if after := table.room.usages.sources.usage[good].keys.Load(); after != before-1 {
			t.Errorf("mode %d: of %d counters that were sent %d are left, one of them was asked for", mode, before, after)
		}
		table.checkSources(t)
		table.checkTenants(t)
	}
}

// However counters come and go, what is counted for nodes is what they have sent.
func TestWhatNodesSentIsCounted(t *testing.T) {
	log := &limiter.Rule{Name: "r", Limits: []*limiter.Limit{
		limit(t, limiter.Spec{Name: "l", Algorithm: limiter.SlidingLog, Limit: 20, Window: time.Minute}),
		limit(t, limiter.Spec{Name: "f", Algorithm: limiter.FixedWindow, Limit: 100, Window: time.Minute}),
	}}
	for seed := range uint64(20) {
		rng := rand.New(rand.NewPCG(seed, 5))
		source, table := New(Config{}), New(Config{MaxKeys: 300})
		from := []uint8{0, table.Source("a"), table.Source("b")}
		now := hourStart
		key := func() arith.Key {
			k := arith.Key{Hash: hash(rng.Uint64N(200)), Rule: log}
			k.Hash.Lo = rng.Uint64N(3) * (1 << 62)
			return k
		}
		for range 400 {
			now += limiter.Tick(rng.Int64N(int64(limiter.Second)))
			k := key()
			part := PartitionOf(&k)
			c := charge(1, k)
			if rng.IntN(3) == 0 {
				c.ID = &arith.Idempotency{ID: rng.Uint64()%50 + 1, Life: 10 * time.Second}
			}
			var d limiter.Decision
			switch rng.IntN(8) {
			case 0, 1, 2:
				_ = source.Decide(now, c, &d)
			case 3:
				if !table.copies[part].on { // nobody asks a copy
					_ = table.Decide(now, c, &d)
				}
			case 4:
				entries := exported(source, part, now)
				for i := range entries {
					entries[i].From = from[seed%3]
				}
				_ = table.Import(part, now, entries, ImportMode(rng.IntN(2)))
			case 5:
				var of []Entry
				source.ExportKey(part, k.Hash.Hi, now, func(e Entry) {
					e.From = from[rng.IntN(3)]
					e.Words = append([]uint64(nil), e.Words...)
					of = append(of, e)
				})
				_ = table.ReplaceKey(part, k.Hash.Hi, now, of)
			case 6:
				table.SetCopy(part, rng.IntN(2) == 0)
			default:
				switch {
				case rng.IntN(4) == 0:
					table.Drop(part)
				case !table.copies[part].on:
					table.Reset(now, c)
				}
			}
			table.checkSources(t)
		}
		table.checkAll(t)
	}
}
