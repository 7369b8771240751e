package table

import (
	"errors"
	"fmt"
	"math/bits"

	"github.com/weirlimit/weir/limiter"
)

// Entry is one counter as nodes exchange it.
type Entry struct {
	// Hi and Lo are the identity of the counter: the key's hash, Lo mixed with
	// the limit's name.
	Hi, Lo uint64
	// Limit is the limit whose state it is.
	Limit *limiter.Limit
	// State and Words are relative to the instant of the export, see
	// [limiter.Limit.Export]. During an export Words are memory of the table's:
	// they are good until the visit returns, and must not be written to.
	State limiter.State
	Words []uint64
}

// ImportMode says what becomes of a counter that is there already.
type ImportMode uint8

// The modes. The zero value is Replace.
const (
	// Replace overwrites it.
	Replace ImportMode = iota
	// Merge makes it deny whatever either denies, see [limiter.Limit.Merge].
	Merge
)

// ErrFull is returned by Import and ReplaceKey when the table would hold more
// than three times [Config.MaxKeys] or [Config.MaxBytes]. Nothing was imported.
var ErrFull = errors.New("the table holds three times its max_keys counters or max_bytes, the bound for copies of other nodes' counters: raise them, or add nodes")

// replicaFactor times MaxKeys and MaxBytes bounds the counters that imports may bring to.
const replicaFactor = 3

// maxImportedPerKey bounds the counters of one key that are there, or come with one
// import. It is above what two owners can have under maxPerKey, with a check's last
// ones, and their merger.
const maxImportedPerKey = 4 * maxPerKey

var errManyOfOneKey = fmt.Errorf("%w: a key has more than %d counters", limiter.ErrInvalid, maxImportedPerKey)

// tooManyOfOneKey reports whether entries have more of one key than a table takes.
func tooManyOfOneKey(entries []Entry) bool {
	if len(entries) <= maxImportedPerKey {
		return false
	}
	n := make(map[uint64]uint16, len(entries))
	for i := range entries {
		if n[entries[i].Hi]++; n[entries[i].Hi] > maxImportedPerKey {
			return true
		}
	}
	return false
}

// partition returns a partition by number, or an error that wraps
// [limiter.ErrInvalid].
func (t *Table) partition(part int) (*partition, error) {
	if part < 0 || part >= len(t.parts) {
		return nil, fmt.Errorf("%w: there is no partition %d", limiter.ErrInvalid, part)
	}
	return &t.parts[part], nil
}

// Export visits all counters of a partition that still count at now, under its
// lock: visit must not call the table.
func (t *Table) Export(part int, now limiter.Tick, visit func(Entry)) {
	p, err := t.partition(part)
	if err != nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.advance(now)
	for i := range p.slots.size {
		if s := p.slots.at(i); s.limit != 0 {
			t.export(s, now, visit)
		}
	}
}

// ExportKey is Export for the counters of one key, of all its limits: those
// whose hash begins with hi.
func (t *Table) ExportKey(part int, hi uint64, now limiter.Tick, visit func(Entry)) {
	p, err := t.partition(part)
	if err != nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.advance(now)
	place := t.order.of(hi)
	i, found := p.slots.findKey(place)
	if !found {
		return
	}
	for s := p.slots.at(i); s.limit != 0 && s.place == place; s = p.slots.at(i) {
		t.export(s, now, visit)
		i++
	}
}

func (t *Table) export(s *slot, now limiter.Tick, visit func(Entry)) {
	l, words := t.registry.limit(s.limit), t.words(s)
	now = l.NotBefore(&s.state, now)
	l.Roll(&s.state, words, now)
	if l.EmptyAt(&s.state, words) <= now {
		return
	}
	e := Entry{Hi: t.order.hash(s.place), Lo: s.lo, Limit: l, State: s.state}
	switch held := l.Held(&s.state); {
	case held == 0:
	case l.Algorithm() == limiter.SlidingLog:
		// Its words hold instants, and begin anywhere.
		e.Words = make([]uint64, held)
		l.Move(e.Words, words, &s.state)
	default:
		e.Words = words[:held:held]
	}
	l.Export(&e.State, e.Words, now)
	visit(e)
}

// Import puts counters into a partition, all of them or none. The entries may
// come from a network: one that is not of this partition, or whose parts
// contradict each other, is refused with an error that wraps
// [limiter.ErrInvalid]. The words are copied.
//
// The limit of an entry becomes the counter's, as if a check had come with it.
// Imported counters are not held to [Config.MaxKeys] and [Config.MaxBytes], but to three
// times as much: beyond, the error is [ErrFull]. They are in no rule's share. [ErrTooManyLimits] is returned as by
// Decide. After an error nothing has changed.
func (t *Table) Import(part int, now limiter.Tick, entries []Entry, mode ImportMode) error {
	return t.replace(part, now, entries, func(p *partition) outcome {
		return t.importAll(p, entries, 0, now, mode)
	})
}

// ReplaceKey makes entries all that is held of the key whose hash begins with
// hi: counters of other limits are removed, so that without entries the key is
// reset. Errors are those of Import.
func (t *Table) ReplaceKey(part int, hi uint64, now limiter.Tick, entries []Entry) error {
	for i := range entries {
		if entries[i].Hi != hi {
			return fmt.Errorf("%w: entry %d is of another key", limiter.ErrInvalid, i)
		}
	}
	return t.replace(part, now, entries, func(p *partition) outcome {
		if len(entries) == 1 && t.overwrite(p, &entries[0], now) {
			return decided
		}
		gone := t.keep(p, hi, entries, false)
		if result := t.importAll(p, entries, gone, now, Replace); result != decided {
			return result
		}
		t.keep(p, hi, entries, true)
		return decided
	})
}

// overwrite replaces the one counter of a key by an entry for it, which is what most
// updates are. It reports false, having changed nothing, in any other case.
func (t *Table) overwrite(p *partition, e *Entry, now limiter.Tick) bool {
	place := t.order.of(e.Hi)
	i, found := p.slots.findKey(place)
	if !found || len(e.Words) > 0 {
		return false
	}
	have, next := p.slots.at(i), p.slots.at(i+1)
	if have.lo != e.Lo || next.limit != 0 && next.place == place {
		return false
	}
	if !t.registry.limit(have.limit).Equal(e.Limit) {
		return false
	}
	in := slot{place: place, lo: e.Lo, state: e.State, limit: have.limit}
	e.Limit.Import(&in.state, nil, now)
	at := e.Limit.EmptyAt(&in.state, nil)
	if at <= now {
		return false
	}
	t.free(p, have)
	*have = in
	t.expiresAt(p, at)
	return true
}

// replace checks entries and runs one import under the partition's lock, again
// after room was made.
func (t *Table) replace(part int, now limiter.Tick, entries []Entry, run func(*partition) outcome) error {
	p, err := t.partition(part)
	if err != nil {
		return err
	}
	for i := range entries {
		if err := checkEntry(part, &entries[i]); err != nil {
			return fmt.Errorf("entry %d: %w", i, err)
		}
	}
	if tooManyOfOneKey(entries) {
		return errManyOfOneKey
	}
	reclaimed, collected := false, false
	for {
		result := t.changed(p, now, run)
		switch {
		case result == decided:
			return nil
		case result == crowded:
			return errManyOfOneKey
		case result == noRoom && reclaimed:
			return ErrFull
		case result == noRoom:
			t.reclaim(now)
			reclaimed = true
		case collected || !t.collectLimits(now):
			return ErrTooManyLimits
		default:
			collected = true
		}
	}
}

// changed runs run under the lock of a partition, of which a panic does not leave it locked.
func (t *Table) changed(p *partition, now limiter.Tick, run func(*partition) outcome) outcome {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.advance(now)
	result := run(p)
	t.tally(p)
	return result
}

func checkEntry(part int, e *Entry) error {
	if e.Limit == nil {
		return fmt.Errorf("%w: it has no limit", limiter.ErrInvalid)
	}
	if at, _ := bits.Mul64(e.Lo^e.Limit.NameID(), Partitions); int(at) != part%Partitions {
		return fmt.Errorf("%w: it is of partition %d, not of %d", limiter.ErrInvalid, at, part%Partitions)
	}
	return e.Limit.CheckExported(&e.State, e.Words)
}

// Drop forgets all counters of a partition, and what was checked most there.
// Receipts that were issued there before are void. If a counter cannot be given back
// because something of it is broken, so that Drop panics, the partition is empty and
// unlocked all the same.
func (t *Table) Drop(part int) {
	p, err := t.partition(part)
	if err != nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	defer t.emptied(p)
	for i := range p.slots.size {
		if s := p.slots.at(i); s.limit != 0 {
			t.discard(p, s)
		}
	}
}

// emptied makes a partition an empty one, which is locked. Its counters have been given
// back.
func (t *Table) emptied(p *partition) {
	t.keys.Add(-int64(p.slots.used))
	p.slots.drop(1)
	t.arena.ordinary(-len(p.slots.first))
	p.slots = slots{arena: p.slots.arena}
	t.publish(p)
	p.hot, p.denied = nil, nil
	p.expiry.Store(int64(never))
	p.reset = p.clock + 1
	t.tally(p)
}

// copied is a partition's part in the counters that are copies.
type copied struct {
	on    bool
	n     int
	bytes int64
	words int64 // bytes of words that the partition has, copy or not
}

// SetCopy says whether a partition is a copy of another node's. Counters of
// copies do not count against [Config.MaxKeys] and [Config.MaxBytes], which bound new
// keys of checks, but against three times as much, with all others.
func (t *Table) SetCopy(part int, on bool) {
	p, err := t.partition(part)
	if err != nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	t.copies[part].on = on
	t.tally(p)
}

// tally brings the count of counters in copies up to date with a partition,
// which is locked.
func (t *Table) tally(p *partition) {
	c := &t.copies[p.number]
	n, bytes := 0, int64(0)
	if c.on {
		n, bytes = p.slots.used, int64(p.slots.bytes())+c.words
	}
	if n != c.n {
		t.copied.Add(int64(n - c.n))
		c.n = n
	}
	if bytes != c.bytes {
		t.lent.Add(bytes - c.bytes)
		c.bytes = bytes
	}
}

// Count returns how many counters a partition holds. Those that have recovered
// count until they are swept.
func (t *Table) Count(part int) int {
	p, err := t.partition(part)
	if err != nil {
		return 0
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.slots.used
}
