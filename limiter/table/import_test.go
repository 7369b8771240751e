package table

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/limiter/arith"
)

// Copies of other nodes' counters may take three times the table's bound. Existing ones
// are kept if there is no room for more.
func TestRoomForCopies(t *testing.T) {
	rule := window(t, 5, time.Hour)
	source, table := New(Config{}), New(Config{MaxKeys: 10})
	for i := range uint64(40) {
		h := hash(i)
		h.Lo = 0
		decide(t, source, hourStart, charge(1, arith.Key{Hash: h, Rule: rule}))
	}
	all := exported(source, 0, hourStart)
	if err := table.Import(0, hourStart, all[:28], Replace); err != nil {
		t.Fatal(err)
	}
	before := exported(table, 0, hourStart)
	if err := table.Import(0, hourStart, all[28:], Replace); !errors.Is(err, ErrFull) {
		t.Errorf("40 of 30 counters were taken: %v", err)
	}
	if after := exported(table, 0, hourStart); !slices.EqualFunc(before, after, sameEntry) {
		t.Error("an import that was refused changed what was there")
	}
	if err := table.Import(0, hourStart, all[:30], Merge); err != nil {
		t.Errorf("28 that are there, and two: %v", err)
	}
	if err := table.ReplaceKey(0, all[30].Hi, hourStart, all[30:31]); !errors.Is(err, ErrFull) {
		t.Errorf("a key more: %v", err)
	}
	if err := table.ReplaceKey(0, all[29].Hi, hourStart, all[29:30]); err != nil {
		t.Errorf("a key that is there: %v", err)
	}
	// Recovered counters of any partition make room.
	next := exported(source, 0, hourStart)
	if err := table.Import(0, hourStart+2*limiter.Hour, next, Replace); !errors.Is(err, ErrFull) {
		t.Errorf("40 of 30, later: %v", err)
	}
	if err := table.Import(0, hourStart+2*limiter.Hour, next[10:], Replace); err != nil {
		t.Errorf("30 of 30, when all that was there has recovered: %v", err)
	}
	if n := table.Stats().Keys; n != 30 {
		t.Errorf("%d keys are counted", n)
	}
	table.checkAll(t)
}

func sameEntry(a, b Entry) bool {
	return a.Hi == b.Hi && a.Lo == b.Lo && a.Limit.Equal(b.Limit) && a.State == b.State && slices.Equal(a.Words, b.Words)
}

// An import that is wrong in one entry changes nothing.
func TestImportRefusesWhole(t *testing.T) {
	rule := window(t, 5, time.Hour)
	source, table := New(Config{}), New(Config{})
	k := arith.Key{Hash: hash(1), Rule: rule}
	part := PartitionOf(&k)
	decide(t, source, hourStart, charge(2, k))
	good := exported(source, part, hourStart)[0]
	for name, spoil := range map[string]func(*Entry){
		"no limit":          func(e *Entry) { e.Limit = nil },
		"another partition": func(e *Entry) { e.Lo += 1 << 60 },
		"words":             func(e *Entry) { e.Words = []uint64{1} },
		"a state":           func(e *Entry) { e.State.Time = -10 * limiter.Day },
	} {
		bad := good
		spoil(&bad)
		if err := table.Import(part, hourStart, []Entry{good, bad}, Merge); !errors.Is(err, limiter.ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
		if table.Count(part) != 0 || table.Stats().Keys != 0 {
			t.Errorf("%s: something was imported", name)
		}
	}
	for _, part := range []int{-1, 2 * Partitions} {
		if err := table.Import(part, hourStart, nil, Replace); !errors.Is(err, limiter.ErrInvalid) {
			t.Errorf("there is no partition %d: %v", part, err)
		}
		if table.Count(part) != 0 {
			t.Error("it holds something")
		}
		table.Drop(part)
		table.Export(part, hourStart, func(Entry) { t.Error("it holds something") })
		table.ExportKey(part, 0, hourStart, func(Entry) { t.Error("it holds something") })
	}
	// The same counter of the class Closed is of another partition.
	if err := table.Import(part+Partitions, hourStart, []Entry{good}, Replace); err != nil {
		t.Errorf("a partition of the other class: %v", err)
	}
}

// A clock that is ahead leaves no trace in the partition: time goes on there by
// its own clock.
func TestImportDoesNotMoveTheClock(t *testing.T) {
	rule := window(t, 5, time.Second)
	source, table := New(Config{}), New(Config{})
	k := arith.Key{Hash: hash(1), Rule: rule}
	part := PartitionOf(&k)
	decide(t, source, hourStart+limiter.Hour, charge(5, k))
	if err := table.Import(part, hourStart+limiter.Second/10, exported(source, part, hourStart+limiter.Hour),
		Replace); err != nil {
		t.Fatal(err)
	}
	other := arith.Key{Hash: hash(2), Rule: rule}
	other.Hash.Lo = k.Hash.Lo
	now := hourStart + limiter.Second/5
	if d := decide(t, table, now, charge(5, k)); d.Allowed || limiter.Span(d.RetryAfter) > 2*limiter.Second {
		t.Errorf("%+v", d.Limit(0))
	}
	if d := decide(t, table, now, charge(5, other)); !d.Allowed ||
		limiter.Span(d.Limit(0).ResetAfter) != limiter.Second*4/5 {
		t.Errorf("%+v", d.Limit(0))
	}
	if d := decide(t, table, now+2*limiter.Second, charge(5, k)); !d.Allowed {
		t.Errorf("it is frozen: %+v", d.Limit(0))
	}
}

// Words are given back, whatever becomes of the counters that come.
func TestImportGivesWordsBack(t *testing.T) {
	rule := &limiter.Rule{Name: "r", Limits: []*limiter.Limit{
		limit(t, limiter.Spec{Name: "log", Algorithm: limiter.SlidingLog, Limit: 50, Window: time.Minute}),
		limit(t, limiter.Spec{Name: "sub", Algorithm: limiter.SlidingWindow, Limit: 50, Window: time.Minute}),
	}}
	source, table := New(Config{}), New(Config{})
	k := arith.Key{Hash: hash(1), Rule: rule}
	part := PartitionOf(&k)
	for i := range limiter.Tick(40) {
		decide(t, source, hourStart+i, charge(1, k))
	}
	now := hourStart + 50
	all := exported(source, part, now)
	cycle := func() {
		for i, mode := range []ImportMode{Replace, Replace, Merge, Merge} {
			if err := table.Import(part, now, all, mode); err != nil {
				t.Fatal(err)
			}
			if i%2 == 0 {
				decide(t, table, now, charge(1, k))
			}
		}
		now += 1000
		switch now / 1000 % 3 {
		case 0:
			table.Drop(part)
		case 1:
			if err := table.ReplaceKey(part, k.Hash.Hi, now, all[:1]); err != nil {
				t.Fatal(err)
			}
		}
	}
	for range 6 {
		cycle()
	}
	want := table.room.slab.bytes()
	for range 6000 {
		cycle()
	}
	if got := table.room.slab.bytes(); got > want {
		t.Errorf("%d bytes of words after 6,000 imports, %d after six", got, want)
	}
	table.checkAll(t)
}

// An imported counter that has ended by the importer's clock ends the importer's own.
func TestImportOfWhatHasEnded(t *testing.T) {
	rule := window(t, 5, time.Second)
	source, table := New(Config{}), New(Config{})
	k := arith.Key{Hash: hash(1), Rule: rule}
	part := PartitionOf(&k)
	decide(t, source, hourStart+limiter.Second*9/10, charge(5, k))
	now := hourStart + limiter.Second*21/20 // a clock that is ahead
	decide(t, table, now, charge(3, k))
	gone := exported(source, part, hourStart+limiter.Second*9/10)
	if err := table.Import(part, now, gone, Merge); err != nil || table.Count(part) != 1 {
		t.Errorf("merged, %d counters are left (%v)", table.Count(part), err)
	}
	if err := table.Import(part, now, gone, Replace); err != nil || table.Count(part) != 0 {
		t.Errorf("replaced, %d counters are left (%v)", table.Count(part), err)
	}
	table.checkAll(t)
}

// A partition that was dropped knows nothing, and refunds nothing that comes
// again.
func TestDrop(t *testing.T) {
	rule := window(t, 2, time.Hour)
	table := New(Config{})
	k := arith.Key{Hash: hash(1), Rule: rule}
	part := PartitionOf(&k)
	first := decide(t, table, hourStart, charge(1, k))
	for range 30 {
		if c := charge(1, k); !decide(t, table, hourStart+1, c).Allowed || c.Unnamed != 0 {
			table.SetName(&k, []byte("/a"))
		}
	}
	if hot, denied := table.Top(9, nil); len(hot) == 0 || len(denied) == 0 {
		t.Fatal("premise: it is listed")
	}
	was := exported(table, part, hourStart+1)
	table.Drop(part)
	if hot, denied := table.Top(9, nil); len(hot)+len(denied) != 0 {
		t.Errorf("still listed: %v, %v", hot, denied)
	}
	if err := table.Import(part, hourStart+1, was, Replace); err != nil {
		t.Fatal(err)
	}
	table.Refund(hourStart+1, charge(1, k), first.Receipt)
	if d := decide(t, table, hourStart+1, charge(0, k)); d.Limit(0).Remaining != 0 {
		t.Errorf("%d remain", d.Limit(0).Remaining)
	}
}

// A key whose counters make place for as many others needs no more room.
func TestReplaceKeyInAFullTable(t *testing.T) {
	table, source := New(Config{MaxKeys: 1}), New(Config{})
	k := arith.Key{Hash: hash(1)}
	var turns [][]Entry
	for _, name := range []string{"a", "b"} {
		k.Rule = &limiter.Rule{Name: "r"}
		for i := range 3 {
			k.Rule.Limits = append(k.Rule.Limits, limit(t, limiter.Spec{Name: fmt.Sprint(name, i), Limit: 5, Window: time.Hour}))
		}
		decide(t, source, hourStart, charge(1, k))
		turns = append(turns, exportedKey(source, PartitionOf(&k), k.Hash.Hi, hourStart))
		source.Reset(hourStart, charge(1, k))
	}
	for i := range 4 {
		if err := table.ReplaceKey(PartitionOf(&k), k.Hash.Hi, hourStart, turns[i%2]); err != nil || table.Stats().Keys != 3 {
			t.Errorf("%d keys (%v)", table.Stats().Keys, err)
		}
	}
	table.checkAll(t)
}

// Limits whose counters have recovered make room for imported ones.
func TestImportOfManyLimits(t *testing.T) {
	table := New(Config{})
	one := func(i int) (int, []Entry) {
		l := limit(t, limiter.Spec{Name: "l", Limit: int64(i + 1), Window: time.Second, Algorithm: limiter.FixedWindow})
		h := hash(uint64(i))
		k := arith.Key{Hash: h, Rule: &limiter.Rule{Limits: []*limiter.Limit{l}}}
		return PartitionOf(&k), []Entry{{Hi: h.Hi, Lo: identity(&k, l), Limit: l, State: arith.State{A: 1}}}
	}
	for i := range maxForeignLimits {
		part, e := one(i)
		if err := table.Import(part, hourStart, e, Replace); err != nil {
			t.Fatal(i, err)
		}
	}
	// A rule's own has room.
	decide(t, table, hourStart, charge(1, arith.Key{Hash: hash(1 << 40), Rule: window(t, 5, time.Hour)}))
	part, e := one(maxForeignLimits)
	if err := table.Import(part, hourStart, e, Replace); !errors.Is(err, ErrTooManyLimits) {
		t.Errorf("a limit too many: %v", err)
	}
	if err := table.Import(part, hourStart+limiter.Minute, e, Replace); err != nil {
		t.Errorf("when all others have recovered: %v", err)
	}
	table.checkAll(t)
}

// FuzzImport puts whatever it is given into a table and asks about it: nothing
// panics, and what was taken can be given away again.
func FuzzImport(f *testing.F) {
	var all []*limiter.Limit
	for i, s := range specs() {
		s.Name, s.Limit, s.Window = "l", 1+int64(i%9), time.Duration(1+i%4)*6*time.Second
		if i%5 == 0 {
			s.Block = 3 * time.Second
		}
		all = append(all, limit(f, s))
	}
	for i, s := range specs() { // beyond the others, so that what the fuzzer found keeps its limits
		if s.Algorithm == limiter.SlidingLog || i%3 == 1 {
			continue
		}
		s.Name, s.Limit, s.Window, s.Block = "l", limiter.NarrowUnits+1, time.Hour, time.Minute
		if s.Burst != 0 {
			s.Burst += s.Limit
		}
		all = append(all, limit(f, s))
	}
	for i, l := range all {
		// An export, which the fuzzer then corrupts.
		source := New(Config{})
		k := arith.Key{Hash: hash(1), Rule: &limiter.Rule{Name: "r", Limits: []*limiter.Limit{l}}}
		for j := range limiter.Tick(5) {
			cost := uint64(1)
			if arith.Wide(l) {
				cost = l.Capacity()/3 + 1 // so that it is blocked
			}
			decide(f, source, 1767614400e6+j*300_000, charge(cost, k))
		}
		source.Export(PartitionOf(&k), 1767614400e6+1_500_000, func(e Entry) {
			var data []byte
			for _, w := range e.Words {
				data = binary.LittleEndian.AppendUint64(data, w)
			}
			f.Add(uint8(i), uint8(i+1), int64(e.State.Time), int64(e.State.Until), e.State.A, e.State.B, int64(7_000), data,
				uint16(63), uint64(1), uint16(1))
		})
		f.Add(uint8(i), uint8(i), int64(-5), int64(0), uint32(3), uint32(0), int64(0), []byte(nil), uint16(20),
			uint64(math.MaxUint64), uint16(300))
		f.Add(uint8(i), uint8(i+3), int64(400_000), int64(5), uint32(3), uint32(2), int64(-300_000), make([]byte, 24),
			uint16(20), uint64(1)<<63, uint16(2000))
	}
	// One key, or keys beside each other, with many counters of a hash that is extreme.
	f.Add(uint8(0), uint8(1), int64(0), int64(0), uint32(3), uint32(0), int64(0), []byte(nil), uint16(1|8),
		uint64(math.MaxUint64), uint16(1500))
	f.Add(uint8(0), uint8(1), int64(0), int64(0), uint32(3), uint32(0), int64(0), []byte(nil), uint16(2|16),
		uint64(math.MaxUint64), uint16(900))
	f.Fuzz(func(t *testing.T, which, then uint8, at, until int64, a, b uint32, skew int64, data []byte, steps uint16,
		hi uint64, many uint16) {
		words := make([]uint64, len(data)/8)
		for i := range words {
			words[i] = binary.LittleEndian.Uint64(data[8*i:])
		}
		k := arith.Key{Hash: arith.Hash{Hi: hi, Lo: hash(1).Lo}}
		l := all[int(which)%len(all)]
		rule := &limiter.Rule{Name: "r", Limits: []*limiter.Limit{l}}
		k.Rule = rule
		part := PartitionOf(&k)
		e := Entry{Hi: k.Hash.Hi, Lo: identity(&k, l), Limit: l, Words: words,
			State: arith.State{Time: limiter.Tick(at), Until: limiter.Tick(until), A: a, B: b}}
		now := limiter.Tick(1767614400e6)
		table := New(Config{MaxBytes: []int64{0, 4 << 20}[steps>>2&1]})
		if steps&1 == 0 {
			before := &limiter.Rule{Limits: []*limiter.Limit{all[int(then)%len(all)]},
				MaxShare: steps >> 6 % (limiter.WholeShare + 1)}
			if steps>>5&1 == 0 {
				before.Name = limiter.RequestRule
			}
			decide(t, table, now, charge(1, arith.Key{Hash: k.Hash, Rule: before}))
		}
		entries := []Entry{e, e}
		for i := range uint64(many % 2048) {
			next := e
			if steps>>3&1 == 1 {
				next.Lo ^= i + 1 // another limit's
			} else {
				next.Hi -= i + 1
			}
			entries = append(entries, next)
		}
		err := table.Import(part, now+limiter.Tick(skew%1e15), entries, ImportMode(steps>>1&1))
		if steps>>4&1 == 1 && err == nil {
			err = table.ReplaceKey(part, hi, now, entries[:1])
		}
		table.checkAll(t)
		if err != nil {
			if !errors.Is(err, limiter.ErrInvalid) && !errors.Is(err, ErrFull) {
				t.Fatal(err)
			}
			return
		}
		useImported(t, table, k, now, steps, all[int(then)%len(all)])
	})
}

// useImported asks, charges, takes back, changes the limit and moves on.
func useImported(t *testing.T, table *Table, k arith.Key, now limiter.Tick, steps uint16, then *limiter.Limit) {
	part := PartitionOf(&k)
	for i := range limiter.Tick(steps % 64) {
		at := now + i*100_000
		d := decide(t, table, at, charge(uint64(i%3), k))
		if d.Limit(0).Remaining > d.Limit(0).Limit.Capacity() || d.RetryAfter < 0 || d.Limit(0).ResetAfter < 0 {
			t.Fatalf("%+v", d.Limit(0))
		}
		table.Explain(at, charge(1, k), new(limiter.Decision))
		if i%4 == 3 && arith.Fields(&d.Receipt).Charged != 0 {
			table.Refund(at, charge(uint64(i%3), k), d.Receipt)
		}
		if i == 30 {
			k.Rule = &limiter.Rule{Name: "r", Limits: []*limiter.Limit{then}}
		}
	}
	other := New(Config{})
	at := table.parts[part].clock // which the import may have set ahead
	if err := other.Import(part, at, exported(table, part, at), Merge); err != nil {
		t.Fatalf("what was given away is refused: %v", err)
	}
	if len(exported(other, part, at)) != len(exported(table, part, at)) {
		t.Fatal("something was lost")
	}
	table.checkAll(t)
	other.checkAll(t)
}

// Copies of others' counters leave new keys of checks their room.
func TestCopiesLeaveRoom(t *testing.T) {
	rule := window(t, 5, time.Hour)
	source, table := New(Config{}), New(Config{MaxKeys: 10})
	for i := range uint64(20) {
		h := hash(i)
		h.Lo = 0
		decide(t, source, hourStart, charge(1, arith.Key{Hash: h, Rule: rule}))
	}
	table.SetCopy(0, true)
	if err := table.Import(0, hourStart, exported(source, 0, hourStart), Replace); err != nil {
		t.Fatal(err)
	}
	fresh := func(i uint64) bool {
		h := hash(1000 + i)
		h.Lo = 1 << 63 // of another partition
		return decide(t, table, hourStart, charge(1, arith.Key{Hash: h, Rule: rule})).Allowed
	}
	for i := range uint64(10) {
		if !fresh(i) {
			t.Fatalf("new key %d of 10 is denied beside 20 copies", i+1)
		}
	}
	if fresh(10) {
		t.Error("an eleventh new key is admitted")
	}
	table.Drop(0)
	if n := table.room.copied.Load(); n != 0 {
		t.Errorf("%d copies are counted after the drop", n)
	}
	table.SetCopy(0, false)
	if err := table.Import(0, hourStart, exported(source, 0, hourStart), Replace); err != nil {
		t.Fatal(err)
	}
	if fresh(11) {
		t.Error("counters that were taken over do not count against the bound")
	}
}

// A block of another node ends when one that began now would: in an update of a counter that is new, and of one that
// is there.
func TestAnUpdateIsBelievedAsFar(t *testing.T) {
	burst := limit(t, limiter.Spec{Algorithm: limiter.GCRA, Limit: 10, Window: time.Second, Block: time.Minute})
	rule := &limiter.Rule{Name: "r", Limits: []*limiter.Limit{burst}}
	source := New(Config{})
	decide(t, source, hourStart, charge(1, arith.Key{Hash: arith.Hash{Hi: 1, Lo: 0}, Rule: rule}))
	update := exported(source, 0, hourStart)
	for from, want := range []limiter.Tick{limiter.Hour, limiter.Minute} {
		table := New(Config{})
		for range 2 {
			e := update[0]
			e.State.Until, e.From = limiter.Hour, uint8(from)
			if err := table.ReplaceKey(0, e.Hi, hourStart, []Entry{e}); err != nil {
				t.Fatal(err)
			}
			if got := exported(table, 0, hourStart)[0].State.Until; got != want {
				t.Errorf("from %d: it is blocked for %v, want %v", from, got.Duration(), want.Duration())
			}
		}
	}
}
