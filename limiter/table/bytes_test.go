package table

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/limiter/arith"
)

func logs(tb testing.TB, name string, n int64, w time.Duration) *limiter.Rule {
	tb.Helper()
	return &limiter.Rule{Name: name, Limits: []*limiter.Limit{limit(tb,
		limiter.Spec{Name: "log", Algorithm: limiter.SlidingLog, Limit: n, Window: w})}}
}

// New keys overflow where their slots would take more memory than there may be, as at
// the bound of keys, and no counter is lost by it.
func TestMaxBytesOfKeys(t *testing.T) {
	inWire(t)
	const most = 2 << 20
	for _, overflow := range []Overflow{OverflowDeny, OverflowAllow} {
		table := New(Config{MaxBytes: most, Overflow: overflow})
		rule := window(t, 1, time.Hour)
		var held []int
		for i := range 60_000 {
			d := decide(t, table, hourStart, charge(1, arith.Key{Hash: hash(uint64(i)), Rule: rule}))
			switch {
			case !d.Limit(0).Overflow:
				held = append(held, i)
			case d.Allowed != (overflow == OverflowAllow) || !d.Allowed && limiter.Span(d.RetryAfter) < 1:
				t.Fatalf("new key %d: %+v", i, d)
			}
		}
		s := table.Stats()
		if s.Bytes > most || s.Keys != len(held) || s.Overflowed != int64(60_000-len(held)) {
			t.Errorf("%s: %+v, %d were taken", overflow, s, len(held))
		}
		// Most of the memory is used: a counter takes 48 bytes and a half to spare.
		if len(held) < most/80 {
			t.Errorf("%s: only %d counters in %d bytes", overflow, len(held), most)
		}
		for _, i := range held {
			if decide(t, table, hourStart+1, charge(1, arith.Key{Hash: hash(uint64(i)), Rule: rule})).Allowed {
				t.Fatalf("key %d was used up and is allowed again", i)
			}
		}
		table.checkAll(t)
		// Recovered counters make room for the same number of others.
		taken := 0
		for i := range held {
			if !decide(t, table, hourStart+limiter.Hour, charge(1,
				arith.Key{Hash: hash(uint64(1_000_000 + i)), Rule: rule})).Limit(0).Overflow {
				taken++
			}
		}
		if taken < len(held)*3/4 {
			t.Errorf("%s: %d of as many as before are taken when all have recovered", overflow, taken)
		}
		table.checkAll(t)
	}
}

// A log that cannot grow denies, whatever overflow is, and so does its whole check. Its
// contents stay. Peeks and explanations agree.
func TestMaxBytesOfLogs(t *testing.T) {
	if testing.Short() {
		t.Skip("long; make wire runs it")
	}
	const most = 3 << 20
	for _, overflow := range []Overflow{OverflowDeny, OverflowAllow} {
		table := New(Config{MaxBytes: most, Overflow: overflow})
		both := logs(t, "r", 100_000, time.Minute)
		both.Limits = append(both.Limits, limit(t, limiter.Spec{Name: "window", Algorithm: limiter.FixedWindow,
			Limit: 1_000_000, Window: time.Hour}))
		now := hourStart
		admitted, full := make(map[uint64]uint64), 0
		for i := range 250_000 {
			now++
			k := arith.Key{Hash: hash(uint64(i % 40)), Rule: both}
			peek := charge(1, k)
			peek.Peek = true
			var p, x limiter.Decision
			if i%997 == 0 {
				p = *decide(t, table, now, peek)
				table.Explain(now, peek, &x)
			}
			d := decide(t, table, now, charge(1, k))
			if i%997 == 0 && (p.Allowed != d.Allowed || x.Allowed != d.Allowed || p.Limit(0).Overflow != d.Limit(0).Overflow ||
				x.Limit(0).Overflow != d.Limit(0).Overflow) {
				t.Fatalf("check %d: %+v, a peek said %+v and an explanation %+v", i, d.Limit(0), p.Limit(0), x.Limit(0))
			}
			switch {
			case d.Allowed:
				admitted[uint64(i%40)]++
			case !d.Limit(0).Overflow || d.Limit(1).Overflow || limiter.Span(d.RetryAfter) < 1 || d.BlockedBy() != d.Limit(0):
				t.Fatalf("check %d: %+v", i, d)
			default:
				full++
			}
			if got := d.Limit(1).Remaining; got != 1_000_000-admitted[uint64(i%40)] {
				t.Fatalf("check %d: %d remain in the window after %d that were admitted", i, got, admitted[uint64(i%40)])
			}
		}
		s := table.Stats()
		if s.Bytes > most || full == 0 || s.Overflowed < int64(full) {
			t.Errorf("%s: %+v, %d were denied", overflow, s, full)
		}
		held := make(map[uint64]uint64) // by each log
		for part := range 2 * Partitions {
			table.Export(part, now, func(e Entry) {
				if len(e.Words) > 0 {
					held[e.Hi] = uint64(e.State.A)
				}
			})
		}
		sum := uint64(0)
		for i, n := range admitted {
			sum += n
			if got := held[hash(i).Hi]; got != n {
				t.Errorf("a log holds %d after %d", got, n)
			}
			c := charge(1, arith.Key{Hash: hash(i), Rule: both})
			c.Peek = true
			want, l := 100_000-n, decide(t, table, now, c).Limit(0)
			if l.Overflow { // it cannot grow
				want = 0
			}
			if l.Remaining != want {
				t.Errorf("%d remain of a log of %d, want %d", l.Remaining, n, want)
			}
		}
		if sum < most/8/4 {
			t.Errorf("only %d entries in %d bytes", sum, most)
		}
		table.checkAll(t)
		if d := decide(t, table, now+2*limiter.Minute, charge(1, arith.Key{Hash: hash(1), Rule: both})); !d.Allowed {
			t.Errorf("when the log has recovered: %+v", d.Limit(0))
		}
	}
}

// A denial that charges leaves out a log that cannot grow, and charges the others.
func TestDenialsWhereLogsCannotGrow(t *testing.T) {
	rule := &limiter.Rule{Name: "r", Limits: []*limiter.Limit{
		limit(t, limiter.Spec{Name: "log", Algorithm: limiter.SlidingLog, Limit: 100_000, Window: time.Hour,
			CountRejected: limiter.CountAll}),
		limit(t, limiter.Spec{Name: "all", Algorithm: limiter.FixedWindow, Limit: 1_000_000, Window: time.Hour,
			CountRejected: limiter.CountAll}),
	}}
	table := New(Config{MaxBytes: 2 << 20})
	n := uint64(0)
	for i := range limiter.Tick(100_000) {
		d := decide(t, table, hourStart+i, charge(1, arith.Key{Hash: hash(1), Rule: rule}))
		if n++; d.Limit(1).Remaining != 1_000_000-n {
			t.Fatalf("check %d: %d remain", n, d.Limit(1).Remaining)
		}
		if !d.Allowed {
			if n < 1000 || !d.Limit(0).Overflow {
				t.Fatalf("check %d: %+v", n, d.Limit(0))
			}
			table.checkAll(t)
			return
		}
	}
	t.Error("the log grew for ever")
}

// Memory of words of one size is there for those of another when it is free.
func TestWordsOfOneSizeMakeRoomForOthers(t *testing.T) {
	inWire(t)
	const most = 6 << 20
	table := New(Config{MaxBytes: most})
	fill := func(now limiter.Tick, keys, entries int, from uint64) (full bool) {
		rule := logs(t, "r", 10_000, time.Minute)
		for j := range entries {
			for i := range uint64(keys) {
				now++
				if d := decide(t, table, now, charge(1, arith.Key{Hash: hash(from + i), Rule: rule})); d.Limit(0).Overflow {
					full = true
				}
			}
			if full && j > 2 {
				return true
			}
		}
		return full
	}
	now := hourStart
	for round := range 4 {
		keys, entries := 8000, 6
		if round%2 == 1 {
			keys, entries = 60, 2500
		}
		now += 2 * limiter.Minute
		full := fill(now, keys, entries, uint64(round)*100_000)
		words := table.room.slab.bytes()
		if full || words < 500_000 {
			t.Fatalf("round %d: full %v, %d bytes of words of %d", round, full, words, table.Stats().Bytes)
		}
		table.checkAll(t)
		now += limiter.Minute
		for i := range table.parts {
			p := &table.parts[i]
			p.mu.Lock()
			p.sweep(now + limiter.Hour)
			p.mu.Unlock()
		}
		if got := table.room.slab.bytes(); got > slabClasses*chunkWords*wordBytes {
			t.Fatalf("round %d: %d bytes of words are kept of none", round, got)
		}
	}
	table.checkAll(t)
}

// Copies of others' counters leave checks their memory, and all together have a bound.
func TestCopiesLeaveMemory(t *testing.T) {
	const most = 2 << 20
	rule := logs(t, "r", 10_000, time.Hour)
	source, table := New(Config{}), New(Config{MaxBytes: most})
	for i := range limiter.Tick(2000) {
		for j := range uint64(60) {
			decide(t, source, hourStart+i, charge(1, arith.Key{Hash: arith.Hash{Hi: j}, Rule: rule}))
		}
	}
	now := hourStart + limiter.Minute
	all := exported(source, 0, now)
	table.SetCopy(0, true)
	if err := table.Import(0, now, all, Replace); err != nil {
		t.Fatal(err)
	}
	if table.Stats().Bytes < most/2 {
		t.Fatal("premise: the copy is large")
	}
	grow := func() (full bool) {
		now += limiter.Minute
		for i := range limiter.Tick(900) {
			for j := range uint64(40) {
				h := arith.Hash{Hi: 100 + j, Lo: 1 << 63}
				full = full || decide(t, table, now+i, charge(1, arith.Key{Hash: h, Rule: rule})).Limit(0).Overflow
			}
		}
		return full
	}
	if grow() {
		t.Error("logs cannot grow beside a copy")
	}
	table.checkAll(t)
	table.SetCopy(0, false)
	if !grow() {
		t.Error("what was taken over does not count")
	}
	table.SetCopy(0, true)
	// Another copy is too much in all.
	before := exported(table, 0, now)
	for i := range all {
		all[i].Hi += 1000
	}
	var err error
	for range 10 {
		if err = table.Import(0, now, all, Merge); err != nil {
			break
		}
		before = exported(table, 0, now)
		for i := range all {
			all[i].Hi += 1000
		}
	}
	if !errors.Is(err, ErrFull) {
		t.Errorf("%d bytes were imported: %v", table.Stats().Bytes, err)
	}
	if got := table.Stats().Bytes; got > replicaFactor*most {
		t.Errorf("%d bytes are held", got)
	}
	if len(exported(table, 0, now)) != len(before) {
		t.Error("an import that was refused changed what was there")
	}
	table.checkAll(t)
}

// A rule with a share leaves the rest of the table to others, both counters and bytes
// of words. Its overflow does not affect the other rules of the same check.
func TestShares(t *testing.T) {
	a, b := window(t, 1, time.Hour), window(t, 1, time.Hour)
	a.Name, a.MaxShare, b.Name = "a", 200, "b"
	for _, overflow := range []Overflow{OverflowDeny, OverflowAllow} {
		table := New(Config{MaxKeys: 1000, Overflow: overflow})
		n := 0
		for i := range 5000 {
			d := decide(t, table, hourStart, charge(1, arith.Key{Hash: hash(uint64(i)), Rule: a}))
			if !d.Limit(0).Overflow {
				n++
			} else if d.Allowed != (overflow == OverflowAllow) {
				t.Fatalf("%s, key %d: %+v", overflow, i, d)
			}
		}
		if n != 200 {
			t.Errorf("%s: %d counters of a fifth of 1000", overflow, n)
		}
		// A check of both: b's new key is counted as ever where a's is let pass.
		d := decide(t, table, hourStart, charge(1, arith.Key{Hash: hash(9000), Rule: a},
			arith.Key{Hash: hash(9001), Rule: b}))
		if !d.Limit(0).Overflow || d.Limit(1).Overflow || d.Allowed != (overflow == OverflowAllow) {
			t.Errorf("%s: a check of both: %+v, %+v", overflow, d.Limit(0), d.Limit(1))
		}
		if overflow == OverflowAllow && table.Stats().Keys != 201 {
			t.Errorf("%d counters: the other rule's key is not counted", table.Stats().Keys)
		}
		peek := charge(1, arith.Key{Hash: hash(9000), Rule: a})
		peek.Peek = true
		var x limiter.Decision
		if table.Explain(hourStart, peek, &x); !decide(t, table, hourStart, peek).Limit(0).Overflow || !x.Limit(0).Overflow {
			t.Errorf("%s: a peek or an explanation says that there is room", overflow)
		}
		for i := range 700 {
			if d := decide(t, table, hourStart, charge(1, arith.Key{Hash: hash(uint64(10_000 + i)),
				Rule: b})); d.Limit(0).Overflow {
				t.Fatalf("%s: key %d of another rule overflows", overflow, i)
			}
		}
		if decide(t, table, hourStart+1, charge(1, arith.Key{Hash: hash(3), Rule: a})).Allowed {
			t.Errorf("%s: a counter was lost", overflow)
		}
		table.checkAll(t)
		if d := decide(t, table, hourStart+limiter.Hour, charge(1,
			arith.Key{Hash: hash(20_000), Rule: a})); d.Limit(0).Overflow {
			t.Errorf("%s: no room when all have recovered", overflow)
		}
		table.checkAll(t)
	}
}

// A share bounds the words of a rule's logs too, and a change of it or of the rule's
// limits is followed.
func TestSharesOfBytes(t *testing.T) {
	const most = 8 << 20
	table := New(Config{MaxBytes: most})
	rule := logs(t, "a", 100_000, time.Hour)
	rule.MaxShare = 100
	now := hourStart
	fill := func(rule *limiter.Rule) (bytes int64) {
		for i := range 200_000 {
			now++
			if decide(t, table, now, charge(1, arith.Key{Hash: hash(uint64(i % 20)), Rule: rule})).Limit(0).Overflow {
				_, bytes = table.registry.taken("a")
				return bytes
			}
		}
		t.Fatal("no bound")
		return 0
	}
	if got := fill(rule); got > most/10 || got < most/40 {
		t.Errorf("%d bytes of words are a tenth of %d", got, most)
	}
	if s := table.Stats(); s.OverflowedBy != [Bounds]int64{BoundShare: s.Overflowed} || s.Overflowed == 0 ||
		table.Full(BoundShare).Rule != "a" {
		t.Errorf("the share was used up, and it is reported as %v", s.OverflowedBy)
	}
	more := *rule
	more.MaxShare = 300
	if got := fill(&more); got > most*3/10 || got <= most/10 {
		t.Errorf("%d bytes of words are three tenths of %d", got, most)
	}
	table.checkAll(t)
	// Its counters become those of another limit, and stay in the share.
	changed := logs(t, "a", 90_000, time.Hour)
	changed.MaxShare = 300
	for i := range uint64(20) {
		decide(t, table, now, charge(1, arith.Key{Hash: hash(i), Rule: changed}))
	}
	if keys, bytes := table.registry.taken("a"); keys != 20 || bytes <= most/10 {
		t.Errorf("%d counters and %d bytes are in the share", keys, bytes)
	}
	table.checkAll(t)
	for i := range uint64(20) {
		table.Reset(now, charge(1, arith.Key{Hash: hash(i), Rule: changed}))
	}
	if keys, bytes := table.registry.taken("a"); keys != 0 || bytes != 0 {
		t.Errorf("%d counters and %d bytes are in the share of none", keys, bytes)
	}
	table.checkAll(t)
}

// A key with too many counters is reported as that, even if its rule has a share.
func TestTheBoundOfAKeyIsTold(t *testing.T) {
	for _, share := range []uint16{0, 1000} {
		table := New(Config{})
		for i := range maxPerKey + 2 {
			rule := &limiter.Rule{Name: "a", MaxShare: share,
				Limits: []*limiter.Limit{limit(t, limiter.Spec{Name: fmt.Sprint(i), Limit: 1, Window: time.Hour})}}
			decide(t, table, hourStart, charge(1, arith.Key{Hash: hash(1), Rule: rule}))
		}
		if s := table.Stats(); s.OverflowedBy != [Bounds]int64{BoundKey: 2} || s.Overflowed != 2 {
			t.Errorf("it is reported as %v", s.OverflowedBy)
		}
	}
}

// An import leaves the counters of a rule in its share, and others out of it.
func TestImportsAndShares(t *testing.T) {
	rule := window(t, 9, time.Hour)
	rule.Name, rule.MaxShare = "a", 500
	table, source := New(Config{MaxKeys: 100}), New(Config{})
	var all []Entry
	for i := range uint64(8) {
		k := arith.Key{Hash: arith.Hash{Hi: i}, Rule: rule}
		if i < 4 {
			decide(t, table, hourStart, charge(1, k))
		}
		decide(t, source, hourStart, charge(2, k))
	}
	all = exported(source, 0, hourStart)
	for _, mode := range []ImportMode{Merge, Replace} {
		if err := table.Import(0, hourStart, all, mode); err != nil {
			t.Fatal(err)
		}
		if keys, _ := table.registry.taken("a"); keys != 4 || table.Count(0) != 8 {
			t.Errorf("%d of %d counters are in the share", keys, table.Count(0))
		}
		table.checkAll(t)
	}
	for i := range all {
		if err := table.ReplaceKey(0, all[i].Hi, hourStart, all[i:i+1]); err != nil {
			t.Fatal(err)
		}
	}
	if keys, _ := table.registry.taken("a"); keys != 4 {
		t.Errorf("%d counters are in the share after updates", keys)
	}
	table.checkAll(t)
}

// The bound follows from the number of keys where none is given.
func TestDefaultMaxBytes(t *testing.T) {
	for keys, want := range map[int]int64{0: 2_560_000_000, 1: 64 << 20, 10_000_000: 2_560_000_000} {
		if got := New(Config{MaxKeys: keys}).room.maxBytes; got != want || DefaultMaxBytes(keys) != want {
			t.Errorf("%d bytes for %d keys", got, keys)
		}
	}
	for _, bytes := range []int64{-1, 1 << 62} {
		table := New(Config{MaxBytes: bytes})
		if table.room.left() < 1<<60 || table.room.maxBytes*replicaFactor < 0 {
			t.Errorf("%d bytes are %d", bytes, table.room.maxBytes)
		}
		decide(t, table, hourStart, charge(1, arith.Key{Hash: hash(1), Rule: window(t, 5, time.Hour)}))
		if fmt.Sprint(table.Stats()) == "" || table.Stats().Bytes <= 0 {
			t.Error("nothing is held")
		}
	}
}

// A partition that grows alone, as with keys that were chosen for it, keeps the bound,
// and uses nearly all of it.
func TestMaxBytesOfOnePartition(t *testing.T) {
	const most = 3 << 20
	table, rule := New(Config{MaxBytes: most}), window(t, 1, time.Hour)
	var c arith.Charge
	var d limiter.Decision
	for i := range 60_000 {
		c.Clear()
		c.Add(arith.Key{Hash: arith.Hash{Hi: uint64(i)}, Rule: rule, Cost: 1})
		if err := table.Decide(hourStart, &c, &d); err != nil {
			t.Fatal(err)
		}
		if got := table.Stats().Bytes; got > most {
			t.Fatalf("%d bytes after %d keys", got, i+1)
		}
	}
	if got := table.Stats(); got.Bytes < most*8/10 || got.Overflowed == 0 {
		t.Errorf("%+v of %d bytes", got, most)
	}
	table.checkAll(t)
}

// A peek takes no memory, also where a charge would.
func TestPeeksTakeNoWords(t *testing.T) {
	table := New(Config{})
	k := arith.Key{Hash: hash(1), Rule: logs(t, "r", 100, time.Hour)}
	decide(t, table, hourStart, charge(1, k))
	peek := charge(1, k)
	peek.Peek = true
	for _, c := range []*arith.Charge{peek, charge(0, k)} {
		if d := decide(t, table, hourStart+1, c); !d.Allowed || table.room.slab.bytes() != 0 {
			t.Errorf("%d bytes were taken", table.room.slab.bytes())
		}
	}
	table.Explain(hourStart+1, peek, new(limiter.Decision))
	k.Rule = logs(t, "r", 200, time.Hour)
	table.Explain(hourStart+1, charge(1, k), new(limiter.Decision))
	if table.room.slab.bytes() != 0 {
		t.Errorf("%d bytes were taken by explanations", table.room.slab.bytes())
	}
	table.checkAll(t)
}

// A log that cannot grow grows all the same where others have recovered, at the first
// try.
func TestLogsGrowWhereOthersRecovered(t *testing.T) {
	table := New(Config{MaxBytes: 4 << 20})
	long, brief := logs(t, "r", 100_000, time.Hour), logs(t, "r", 100_000, time.Second)
	now, full := hourStart, false
	for i := 0; !full && i < 1_000_000; i++ {
		if i < 5 {
			decide(t, table, now, charge(1, arith.Key{Hash: hash(1), Rule: long}))
		}
		now++
		full = decide(t, table, now, charge(1, arith.Key{Hash: hash(uint64(2 + i%100)), Rule: brief})).Limit(0).Overflow
	}
	if !full {
		t.Fatal("premise: there is no memory left")
	}
	now += 2 * limiter.Second
	for i := range limiter.Tick(20_000) {
		if d := decide(t, table, now+i, charge(1, arith.Key{Hash: hash(1), Rule: long})); !d.Allowed {
			t.Fatalf("charge %d: %+v", i, d.Limit(0))
		}
	}
	table.checkAll(t)
}
