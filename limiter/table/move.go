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
// than three times [Config.MaxKeys]. Nothing was imported.
var ErrFull = errors.New("the table holds three times its max_keys counters, the bound for copies of other nodes' counters: raise max_keys, or add nodes")

// replicaFactor times MaxKeys bounds the counters that imports may bring to.
const replicaFactor = 3

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
	now = p.advance(now)
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
	now = p.advance(now)
	i, found := p.slots.findKey(hi)
	if !found {
		return
	}
	for s := p.slots.at(i); s.limit != 0 && s.hi == hi; s = p.slots.at(i) {
		t.export(s, now, visit)
		i++
	}
}

func (t *Table) export(s *slot, now limiter.Tick, visit func(Entry)) {
	l, words := t.registry.limit(s.limit), t.words(s)
	l.Roll(&s.state, words, now)
	if l.EmptyAt(&s.state, words) <= now {
		return
	}
	e := Entry{Hi: s.hi, Lo: s.lo, Limit: l, State: s.state}
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
// Imported counters are not held to [Config.MaxKeys], but to three times as
// many: beyond, the error is [ErrFull]. [ErrTooManyLimits] is returned as by
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
	i, found := p.slots.findKey(e.Hi)
	if !found || len(e.Words) > 0 {
		return false
	}
	have, next := p.slots.at(i), p.slots.at(i+1)
	if have.lo != e.Lo || next.limit != 0 && next.hi == e.Hi {
		return false
	}
	in := slot{hi: e.Hi, lo: e.Lo, state: e.State, limit: t.registry.id(e.Limit)}
	if in.limit == 0 {
		return false
	}
	now = p.advance(now)
	e.Limit.Import(&in.state, nil, now)
	at := e.Limit.EmptyAt(&in.state, nil)
	if at <= now {
		return false
	}
	t.free(have)
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
	reclaimed, collected := false, false
	for {
		p.mu.Lock()
		p.advance(now)
		result := run(p)
		t.tally(p)
		p.mu.Unlock()
		switch {
		case result == decided:
			return nil
		case result == noRoom && reclaimed:
			return ErrFull
		case result == noRoom:
			t.reclaim(now)
			reclaimed = true
		case collected:
			return ErrTooManyLimits
		default:
			t.collectLimits(now)
			collected = true
		}
	}
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

// importAll imports entries into a partition that is locked, all or none. gone
// is how many counters the caller will remove.
func (t *Table) importAll(p *partition, entries []Entry, gone int64, now limiter.Tick, mode ImportMode) outcome {
	now = p.advance(now)
	fresh := int64(0)
	for i := range entries {
		if t.registry.id(entries[i].Limit) == 0 {
			return noLimit
		}
		if _, found := p.slots.find(entries[i].Hi, entries[i].Lo); !found {
			fresh++
		}
	}
	if t.keys.Add(fresh)-gone > replicaFactor*t.maxKeys {
		t.keys.Add(-fresh)
		return noRoom
	}
	for i := range entries {
		if t.importOne(p, &entries[i], now, mode) {
			fresh--
		}
	}
	t.keys.Add(-fresh) // two entries were the same, or one counted nothing
	return decided
}

// importOne imports one entry, and reports whether it added a slot.
func (t *Table) importOne(p *partition, e *Entry, now limiter.Tick, mode ImportMode) bool {
	l := e.Limit
	in := slot{hi: e.Hi, lo: e.Lo, state: e.State, limit: t.registry.id(l)}
	if len(e.Words) > 0 {
		in.words, in.class = t.slab.get(len(e.Words))
		copy(t.words(&in), e.Words)
	}
	l.Import(&in.state, t.words(&in), now)
	at := l.EmptyAt(&in.state, t.words(&in))
	i, found := p.slots.find(e.Hi, e.Lo)
	switch {
	case at <= now:
		t.free(&in)
		if found && mode == Replace {
			t.remove(p, i)
		}
		return false
	case !found:
		t.insert(p, in, now)
		return true
	}
	have := p.slots.at(i)
	if mode == Merge {
		t.merge(p, have, &in, l, now)
		t.free(&in)
		return false
	}
	t.free(have)
	*have = in
	t.expiresAt(p, at)
	return false
}

// merge merges a slot that is not in the table into one that is. Both have the
// same key; the limit is that of in.
func (t *Table) merge(p *partition, into, in *slot, l *limiter.Limit, now limiter.Tick) {
	t.adopt(p, into, l, now) // which numbers no limit: in has a number
	words := t.words(into)
	l.Roll(&into.state, words, now)
	words = t.room(l, into, words, l.MergeWords(&into.state, &in.state))
	l.Merge(&into.state, words, &in.state, t.words(in), now) // which recovers no sooner
}

// keep counts the counters of a key that are not among entries, and removes
// them if it is told to.
func (t *Table) keep(p *partition, hi uint64, entries []Entry, remove bool) (others int64) {
	i, found := p.slots.findKey(hi)
	if !found {
		return 0
	}
	for s := p.slots.at(i); s.limit != 0 && s.hi == hi; s = p.slots.at(i) {
		switch {
		case has(entries, s.lo):
			i++
		case remove:
			t.remove(p, i)
			others++
		default:
			i++
			others++
		}
	}
	return others
}

func has(entries []Entry, lo uint64) bool {
	for i := range entries {
		if entries[i].Lo == lo {
			return true
		}
	}
	return false
}

// remove forgets the counter in slot i.
func (t *Table) remove(p *partition, i int) {
	t.free(p.slots.at(i))
	p.slots.remove(i)
	t.keys.Add(-1)
}

// Drop forgets all counters of a partition, and what was checked most there.
// Receipts that were issued there before are void.
func (t *Table) Drop(part int) {
	p, err := t.partition(part)
	if err != nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for i := range p.slots.size {
		if s := p.slots.at(i); s.limit != 0 {
			t.free(s)
		}
	}
	t.keys.Add(-int64(p.slots.used))
	p.slots.drop(1)
	p.slots = slots{arena: p.slots.arena}
	t.publish(p)
	p.hot, p.denied = nil, nil
	p.expiry.Store(int64(never))
	p.reset = p.clock + 1
	t.tally(p)
}

// copied is a partition's part in the counters that are copies.
type copied struct {
	on bool
	n  int
}

// SetCopy says whether a partition is a copy of another node's. Counters of
// copies do not count against [Config.MaxKeys], which bounds new keys of checks,
// but against three times as much, with all others.
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
	n := 0
	if c.on {
		n = p.slots.used
	}
	if n != c.n {
		t.copied.Add(int64(n - c.n))
		c.n = n
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
