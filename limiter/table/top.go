package table

import (
	"cmp"
	"slices"

	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/limiter/arith"
)

// topKeys lists the most frequent keys of one partition, by the Space-Saving algorithm
// (Metwally, Agrawal, El Abbadi: Efficient computation of frequent and top-k elements
// in data streams, 2005). A key that is not listed replaces the one with the smallest
// count, which it inherits as its error. So a listed count is too high by at most its
// error, and no key is missing that was seen more often than the smallest count of a
// full list.
//
// Each tenant has its share of the places, so that no flood of one hides the keys of another: a key takes a place of
// its own tenant, unless another one has at least two places more. What the list promises holds for each
// tenant by itself. With more tenants than places they take them from each other.
type topKeys struct {
	// What each check that is counted reads of all entries is in two cache lines.
	hi    [topPerPartition]uint64
	count [topPerPartition]uint64 // 0: the entry is free
	rest  [topPerPartition]topEntry
	gone  uint64 // the highest count with which a tenant lost its last place
}

const (
	topPerPartition = 8
	// SampleOf is how many checks there are for one that is counted in a list of hot keys.
	SampleOf = 16
)

// topEntry is what is known of a key beside the high half of its hash and its count.
type topEntry struct {
	lo    uint64
	limit *limiter.Limit // nil for all limits of the key
	err   uint64
	name  []byte // its memory is reused for the next key
	named bool
}

// add counts a key and reports whether its name is needed. A key that replaced another
// is named only when it is seen again: if all keys are equally frequent, most are
// replaced before that.
func (t *topKeys) add(hi, lo uint64, l *limiter.Limit, n uint64) (unnamed bool) {
	least := 0
	for i := range t.hi {
		if t.hi[i] == hi && t.count[i] > 0 && t.rest[i].lo == lo {
			t.count[i] += n
			return !t.rest[i].named
		}
		if t.count[i] < t.count[least] {
			least = i
		}
	}
	had := uint64(0)
	if t.count[least] > 0 {
		least, had = t.place(keyOfTop(lo, l))
	}
	e := &t.rest[least]
	t.hi[least], t.count[least] = hi, had+n
	*e = topEntry{lo: lo, limit: l, err: had, name: e.name[:0]}
	return had == 0
}

// remove takes one of a key that is listed out again.
func (t *topKeys) remove(hi, lo uint64) {
	for i := range t.hi {
		e := &t.rest[i]
		if t.hi[i] != hi || t.count[i] == 0 || e.lo != lo {
			continue
		}
		if t.count[i]--; t.count[i] == 0 {
			*e = topEntry{name: e.name[:0]}
		}
		return
	}
}

// keyOfTop returns the low half of the hash of the key of an entry.
func keyOfTop(lo uint64, l *limiter.Limit) uint64 {
	if l == nil {
		return lo
	}
	return lo ^ arith.NameID(l)
}

// place returns which entry of a full list a new key takes the place of, by the low half of its hash, and how often the
// key may have been seen before: no oftener than the least of its tenant's that are listed, or, if none is, than the
// last one that was.
func (t *topKeys) place(key uint64) (at int, had uint64) {
	var of [topPerPartition]uint16
	for i := range of {
		of[i] = arith.LabelOf(keyOfTop(t.rest[i].lo, t.rest[i].limit))
	}
	least := func(label uint16) (at, places int) {
		for i := range of {
			if of[i] != label {
				continue
			}
			if places++; places == 1 || t.count[i] < t.count[at] {
				at = i
			}
		}
		return at, places
	}
	own, places := least(arith.LabelOf(key))
	if places == len(of) {
		return own, t.count[own]
	}
	from, most := 0, 0
	for _, label := range of {
		if i, n := least(label); n > most || n == most && t.count[i] < t.count[from] {
			from, most = i, n
		}
	}
	switch {
	case places > 0 && most < places+2:
		return own, t.count[own]
	case most == 1:
		t.gone = max(t.gone, t.count[from])
	}
	if places > 0 {
		return from, t.count[own]
	}
	return from, t.gone
}

// setName sets the name of a key's entries.
func (t *topKeys) setName(hi, lo uint64, name []byte) {
	for i := range t.rest {
		e := &t.rest[i]
		if t.hi[i] != hi || t.count[i] == 0 || e.named {
			continue
		}
		if want := e.lo; e.limit != nil && want^arith.NameID(e.limit) != lo || e.limit == nil && want != lo {
			continue
		}
		e.name, e.named = append(e.name[:0], name...), true
	}
}

// TopKey is an entry in a list of top keys.
type TopKey struct {
	// Name is the key's name, such as "/towns:ada", or for a counter of one limit
	// "/towns:ada:minute".
	Name string
	// Count is how often it was seen. It is too high by at most Error.
	Count, Error uint64
	// Lent is what is lent of the key.
	Lent Loans

	part int
	key  arith.Hash
}

// Loans sum up the leases and the slices of a key.
type Loans struct {
	// Holders is how many there are. They have Units, and slices besides Rate units a second.
	Holders     int
	Units, Rate uint64
	// Until is when the last of them ends.
	Until limiter.Tick
}

// Top returns up to n keys that were checked most (sampled, one check in 16, and scaled
// up) and up to n counters that denied most, each in descending order. Each partition
// lists only 8 keys, so rarer ones may be missing. Those that keep is false for are left out; nil keeps all. Top is
// safe for concurrent use.
func (t *Table) Top(n int, keep func(tenant uint16, name string) bool) (hottest, denied []TopKey) {
	for i := range t.parts {
		p := &t.parts[i]
		p.mu.Lock()
		hottest = p.hot.list(hottest, i, keep)
		denied = p.denied.list(denied, i, keep)
		p.mu.Unlock()
	}
	hottest, denied = most(hottest, n), most(denied, n)
	for _, list := range [][]TopKey{hottest, denied} {
		for i := range list {
			list[i].lookUp(&t.parts[list[i].part])
		}
	}
	return hottest, denied
}

// lookUp sets what is lent of the key. Of a copy the owner says it.
func (k *TopKey) lookUp(p *partition) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.table.copies[p.number].on {
		return
	}
	loans{p.ledgerAt(p.table.order.of(k.key.Hi), k.key.Lo)}.each(func(h arith.Hold) {
		k.Lent.Holders++
		k.Lent.Units += h.Cost
		k.Lent.Rate += h.Rate
		k.Lent.Until = max(k.Lent.Until, h.End)
	})
}

// list appends the entries, of a partition.
func (t *topKeys) list(dst []TopKey, part int, keep func(tenant uint16, name string) bool) []TopKey {
	if t == nil {
		return dst
	}
	for i := range t.rest {
		e := &t.rest[i]
		if !e.named {
			continue
		}
		name := string(e.name)
		if e.limit != nil {
			name += ":" + e.limit.Name()
		}
		lo := keyOfTop(e.lo, e.limit)
		if keep == nil || keep(arith.LabelOf(lo), name) {
			dst = append(dst, TopKey{Name: name, Count: t.count[i], Error: e.err, part: part,
				key: arith.Hash{Hi: t.hi[i], Lo: lo}})
		}
	}
	return dst
}

func most(keys []TopKey, n int) []TopKey {
	slices.SortFunc(keys, func(a, b TopKey) int {
		return cmp.Or(cmp.Compare(b.Count, a.Count), cmp.Compare(a.Name, b.Name))
	})
	return keys[:min(max(n, 0), len(keys))]
}
