package table

import (
	"errors"
	"fmt"
	"math/bits"

	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/limiter/arith"
)

// Entry is one counter in the form that nodes exchange.
type Entry struct {
	// Hi and Lo identify the counter: the key's hash, with Lo combined with the limit's
	// name.
	Hi, Lo uint64
	// Limit is the limit that made the state.
	Limit *limiter.Limit
	// State and Words are relative to the instant of the export, see
	// [arith.State.Export]. During an export, Words belong to the table: they are
	// valid until visit returns, and must not be written to.
	State arith.State
	Words []uint64
	// From is who sent the entry, see [Table.Source]; 0 if it does not come from another node. What another
	// node sends is believed as far as its limit can hold it, see [arith.Believe].
	From uint8
}

// ImportMode is how an existing counter is treated.
type ImportMode uint8

// The modes. The zero value is Replace.
const (
	// Replace overwrites an existing counter.
	Replace ImportMode = iota
	// Merge makes it deny whatever either counter denies, see [arith.State.Merge].
	Merge
)

// ErrFull is returned by Import and ReplaceKey when the table would hold more
// than three times [Config.MaxKeys] or [Config.MaxBytes], or twice that of one node. Nothing was imported.
var ErrFull = errors.New("the table holds three times its max_keys counters or max_bytes, the bound for copies of " +
	"other nodes' counters, or twice that from one node: raise them, or add nodes")

// replicaFactor times MaxKeys and MaxBytes bounds the counters, including imported
// ones.
const replicaFactor = 3

// maxImportedPerKey bounds the counters of one key that exist, or are in one import. It
// is more than two owners can have under maxPerKey, with those of a last check, and
// their merger.
const maxImportedPerKey = 4 * maxPerKey

var errManyOfOneKey = fmt.Errorf("%w: a key has more than %d counters", limiter.ErrInvalid, maxImportedPerKey)

// tooManyOfOneKey reports whether entries have more counters of one key than a table
// accepts.
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

// partition returns the partition with a number, or an error that wraps
// [limiter.ErrInvalid].
func (t *Table) partition(part int) (*partition, error) {
	if part < 0 || part >= len(t.parts) {
		return nil, fmt.Errorf("%w: there is no partition %d", limiter.ErrInvalid, part)
	}
	return &t.parts[part], nil
}

// Export visits all counters of a partition that still count at now, under its lock.
// visit must not call the table.
func (t *Table) Export(part int, now limiter.Tick, visit func(Entry)) {
	p, err := t.partition(part)
	if err != nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.advance(now)
	p.arriveAll(now)
	ids := t.ring(p).byPlace() // counters and ids come in one order
	for i := range p.slots.size {
		s := p.slots.at(i)
		if s.limit == 0 {
			continue
		}
		for len(ids) > 0 && t.ring(p).ring[ids[0]].place < s.place {
			p.exportIDs(ids[:1], now, visit)
			ids = ids[1:]
		}
		p.export(s, now, visit)
	}
	p.exportIDs(ids, now, visit)
}

// Keys returns the high halves of the hashes of a partition's counters, each once, in the order in which they lie in
// memory: also of those that have ended. A key's are exported by [Table.ExportKey].
func (t *Table) Keys(part int) (all []uint64) {
	t.ExportCharged(part, 0, 0, func(hi uint64, _ bool) (yes, stop bool) {
		all = append(all, hi)
		return false, false
	}, nil)
	return all
}

// ExportKey is Export for the counters of one key, of all its limits: those whose hash
// has the high half hi.
func (t *Table) ExportKey(part int, hi uint64, now limiter.Tick, visit func(Entry)) {
	p, err := t.partition(part)
	if err != nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.advance(now)
	p.arriveAll(now)
	place := t.order.of(hi)
	i, found := p.slots.findKey(place)
	if !found { // no id has this half of a hash, too
		var one [1]int
		p.exportIDs(t.ring(p).all(place, one[:0]), now, visit)
		return
	}
	for s := p.slots.at(i); s.limit != 0 && s.place == place; s = p.slots.at(i) {
		p.export(s, now, visit)
		i++
	}
}

// exportIDs exports the ids at some positions.
func (p *partition) exportIDs(at []int, now limiter.Tick, visit func(Entry)) {
	for _, pos := range at {
		s := p.table.ring(p).slot(pos)
		p.export(&s, now, visit)
	}
}

func (p *partition) export(s *slot, now limiter.Tick, visit func(Entry)) {
	l, words := p.table.registry.limit(s.limit), p.table.words(s)
	now = s.state.NotBefore(l, now)
	s.state.Roll(l, words, now)
	if s.state.EmptyAt(l, words) <= now {
		return
	}
	e := Entry{Hi: p.table.order.hash(s.place), Lo: s.lo, Limit: l, State: s.state}
	switch held := s.state.Held(l); {
	case held == 0:
	case l.Algorithm() == limiter.SlidingLog, l.Algorithm() == arith.Holds:
		// Their words hold instants, and the ring of a log may start anywhere.
		e.Words = make([]uint64, held)
		s.state.Move(l, e.Words, words)
		if l.Algorithm() == arith.Holds {
			p.ledger(s).steady(e.Words)
		}
	default:
		e.Words = words[:held:held]
	}
	e.State.Export(l, e.Words, now)
	visit(e)
}

// Import inserts counters into a partition, all of them or none. The entries may come
// from the network: an entry of another partition, or one that contradicts itself, is
// refused with an error that wraps [limiter.ErrInvalid]. The words are copied.
//
// The limit of an entry becomes the counter's, as if a check had come with it. Imported
// counters are bounded by three times [Config.MaxKeys] and [Config.MaxBytes]; beyond
// that the error is [ErrFull]. They count towards no rule's share. Import may return
// [ErrTooManyLimits], as Decide does. After an error nothing has changed.
func (t *Table) Import(part int, now limiter.Tick, entries []Entry, mode ImportMode) error {
	return t.replace(part, now, entries, func(p *partition) outcome {
		return p.importAll(entries, 0, now, mode)
	})
}

// ReplaceKey replaces all counters of the key whose hash has the high half hi by
// entries. Counters of other limits are removed, so without entries the key is reset.
// The errors are those of Import.
func (t *Table) ReplaceKey(part int, hi uint64, now limiter.Tick, entries []Entry) error {
	for i := range entries {
		if entries[i].Hi != hi {
			return fmt.Errorf("%w: entry %d is of another key", limiter.ErrInvalid, i)
		}
	}
	if len(entries) == 1 {
		if done, err := t.overwriteKey(part, now, &entries[0]); done || err != nil {
			return err
		}
	}
	return t.replace(part, now, entries, func(p *partition) outcome {
		gone := p.keep(hi, entries, now, false)
		if result := p.importAll(entries, gone, now, Replace); result != decided {
			return result
		}
		p.keep(hi, entries, now, true)
		return decided
	})
}

// overwriteKey is ReplaceKey for the usual update, see [Table.overwrite]. It reports
// false if this is another case.
func (t *Table) overwriteKey(part int, now limiter.Tick, e *Entry) (done bool, err error) {
	p, err := t.partition(part)
	if err != nil {
		return false, err
	}
	if err := checkEntry(part, e); err != nil {
		return false, fmt.Errorf("entry 0: %w", err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.advance(now)
	p.arriveAll(now) // a hold that is over ends its id, and not the one that comes
	if e.isID(t.ids.limit) {
		state := e.State
		state.Import(t.ids.limit, nil, now)
		return state.Time > now && p.putID(t.order.of(e.Hi), e.Lo, state, e.From, now), nil
	}
	return p.overwrite(e, now), nil
}

// overwrite replaces the only counter of a key by an entry, if neither has words. It
// takes no memory, so no count changes. In any other case it changes nothing and reports
// false.
func (p *partition) overwrite(e *Entry, now limiter.Tick) bool {
	place := p.table.order.of(e.Hi)
	i, found := p.slots.findKey(place)
	if !found || len(e.Words) > 0 {
		return false
	}
	have, next := p.slots.at(i), p.slots.at(i+1)
	if have.lo != e.Lo || have.words != 0 || next.limit != 0 && next.place == place {
		return false
	}
	if !p.table.registry.limit(have.limit).Equal(e.Limit) {
		return false
	}
	in := slot{place: place, lo: e.Lo, state: e.State, limit: have.limit, from: have.from}
	in.state.Import(e.Limit, nil, now)
	if e.From != 0 {
		arith.Believe(e.Limit, &in.state, now, false)
	}
	at := in.state.EmptyAt(e.Limit, nil)
	if at <= now {
		return false
	}
	*have = in
	p.expiresAt(at)
	return true
}

// replace validates entries and runs one import under the partition's lock. If there
// was no room, it makes room and runs it again.
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
		result := p.changed(now, run)
		switch {
		case result == decided:
			return nil
		case result == crowded:
			return errManyOfOneKey
		case result == noRoom && reclaimed:
			return ErrFull
		case result == noRoom:
			t.reclaim(now, (*partition).sweepOne)
			reclaimed = true
		case collected || !t.collectLimits(now):
			return ErrTooManyLimits
		default:
			collected = true
		}
	}
}

// changed calls run under the lock of a partition; a panic empties the partition.
func (p *partition) changed(now limiter.Tick, run func(*partition) outcome) outcome {
	p.mu.Lock()
	whole := false
	defer func() { p.leave(whole) }()
	p.advance(now)
	p.arriveAll(now)
	result := run(p)
	p.tally()
	whole = true
	return result
}

func checkEntry(part int, e *Entry) error {
	if e.Limit == nil {
		return fmt.Errorf("%w: it has no limit", limiter.ErrInvalid)
	}
	if at, _ := bits.Mul64(e.Lo^arith.NameID(e.Limit), Partitions); int(at) != part%Partitions {
		return fmt.Errorf("%w: it is of partition %d, not of %d", limiter.ErrInvalid, at, part%Partitions)
	}
	return e.State.CheckExported(e.Limit, e.Words)
}

// Drop deletes all counters of a partition, and its lists of top keys. Earlier receipts
// from there become void. If a counter cannot be released because its data is broken,
// Drop panics, but the partition is empty and unlocked all the same.
func (t *Table) Drop(part int) {
	p, err := t.partition(part)
	if err != nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.forget()
}

// forget empties a partition, which is locked, even if giving a counter back panics.
func (p *partition) forget() {
	defer p.emptied()
	p.belongsAll(-1)
	p.table.copies[p.number].emptied = true
	if n := p.table.ring(p).used(); n > 0 {
		p.table.registry.release(p.table.ring(p).number, int64(n))
	}
	for i := range p.slots.size {
		if s := p.slots.at(i); s.limit != 0 {
			p.sent(s, -1)
			p.discard(s)
		}
	}
}

// emptied resets a locked partition whose counters have been released.
func (p *partition) emptied() {
	p.table.room.keys.Add(-int64(p.used()))
	p.table.room.arena.held.Add(-p.table.ring(p).bytes())
	p.sentIDs(0, -p.table.copies[p.number].sent.ids)
	p.table.copies[p.number].sent = sentBy{}
	*p.table.ring(p) = idRing{}
	p.slots.drop(1)
	p.table.room.arena.ordinary(-len(p.slots.first))
	p.slots = slots{arena: p.slots.arena}
	p.publish()
	p.hot, p.denied = nil, nil
	p.table.copies[p.number].emptied = false
	p.expiry.Store(int64(never))
	p.due, p.ends, p.lending = never, never, nil
	p.void = &void{all: resetOf{p.clock + 1, p.table.registry.left.resets.Add(1)}}
	p.tally()
}

// copied is the contribution of a partition to the counts of copies: all of it, or what was sent to it.
type copied struct {
	on    bool
	sent  sentBy
	n     int
	bytes int64
	words int64 // bytes of words in the partition, copy or not
	// emptied is set while the partition is emptied: no tenant has any of it any more.
	emptied bool
}

// apart reports whether what is in the partition counts towards no tenant's share.
func (c *copied) apart() bool { return c.on || c.emptied }

// SetCopy sets whether a partition is a copy of another node's. The counters of copies
// do not count towards [Config.MaxKeys] and [Config.MaxBytes], which bound new keys of
// checks. All counters together are bounded by three times these.
func (t *Table) SetCopy(part int, on bool) {
	p, err := t.partition(part)
	if err != nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if c := &t.copies[part]; c.on != on {
		p.belongsAll(-1) // one of these two does nothing
		c.on = on
		p.belongsAll(1)
	}
	p.tally()
}

// tally updates the counts of copies from a locked partition.
func (p *partition) tally() {
	c := &p.table.copies[p.number]
	n, bytes := c.sent.slots+c.sent.ids, int64(c.sent.slots)*slotBytes+int64(c.sent.ids)*idBytes+c.sent.words
	if c.on {
		n, bytes = p.used(), int64(p.slots.bytes())+p.table.ring(p).bytes()+c.words
	}
	if n != c.n {
		p.table.room.copied.Add(int64(n - c.n))
		c.n = n
	}
	if bytes != c.bytes {
		p.table.room.copiedBytes.Add(bytes - c.bytes)
		c.bytes = bytes
	}
}

// Count returns how many counters a partition holds. Recovered ones count until they
// are swept.
func (t *Table) Count(part int) int {
	p, err := t.partition(part)
	if err != nil {
		return 0
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.used()
}
