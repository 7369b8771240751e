package table

import (
	"cmp"
	"slices"

	"github.com/weirlimit/weir/limiter"
)

// topKeys lists the keys of one partition that were seen most, by the
// Space-Saving algorithm (Metwally, Agrawal, El Abbadi: Efficient computation
// of frequent and top-k elements in data streams, 2005): a key that is not
// listed takes the place of the least, inheriting its count as its error. So a
// listed count is too high by at most its error, and no key that was seen more
// often than the least of a full list is missing.
type topKeys struct {
	entries [topPerPartition]topEntry
}

const (
	topPerPartition = 8
	// hotSample: one check in so many counts for the hottest keys.
	hotSample = 16
)

type topEntry struct {
	hi, lo uint64
	limit  *limiter.Limit // nil for all limits of the key
	count  uint64
	err    uint64
	name   []byte // reused for the next key
	named  bool
}

// add counts a key and tells whether its name is missing: one that took another's
// place is named when it is seen again, since where all keys are as frequent, hardly
// any is before it has lost its place.
func (t *topKeys) add(hi, lo uint64, l *limiter.Limit, n uint64) (unnamed bool) {
	least := &t.entries[0]
	for i := range t.entries {
		e := &t.entries[i]
		if e.hi == hi && e.lo == lo && e.count > 0 {
			e.count += n
			return !e.named
		}
		if e.count < least.count {
			least = e
		}
	}
	*least = topEntry{hi: hi, lo: lo, limit: l, count: least.count + n, err: least.count, name: least.name[:0]}
	return least.err == 0
}

// setName names the entries of a key.
func (t *topKeys) setName(hi, lo uint64, name []byte) {
	for i := range t.entries {
		e := &t.entries[i]
		if e.count == 0 || e.named || e.hi != hi {
			continue
		}
		if want := e.lo; e.limit != nil && want^e.limit.NameID() != lo || e.limit == nil && want != lo {
			continue
		}
		e.name, e.named = append(e.name[:0], name...), true
	}
}

// TopKey is a key in a list of top keys.
type TopKey struct {
	// Name is the key's name, such as "/towns:ada" or, where it is counted by
	// limit, "/towns:ada:minute".
	Name string
	// Count is how often it was seen, at most Error too high.
	Count, Error uint64
}

// Top returns the n keys that were checked most (counted in a sample of one
// check in 16, and scaled up) and the n counters that denied most, the most
// first. Which keys are listed is bounded: those seen too seldom to be among
// the first 8 of their partition may be missing. It may be called at any time,
// from any goroutine.
func (t *Table) Top(n int) (hottest, denied []TopKey) {
	for i := range t.parts {
		p := &t.parts[i]
		p.mu.Lock()
		hottest = p.hot.list(hottest)
		denied = p.denied.list(denied)
		p.mu.Unlock()
	}
	return most(hottest, n), most(denied, n)
}

func (t *topKeys) list(dst []TopKey) []TopKey {
	if t == nil {
		return dst
	}
	for i := range t.entries {
		e := &t.entries[i]
		if !e.named {
			continue
		}
		name := string(e.name)
		if e.limit != nil {
			name += ":" + e.limit.Name()
		}
		dst = append(dst, TopKey{name, e.count, e.err})
	}
	return dst
}

func most(keys []TopKey, n int) []TopKey {
	slices.SortFunc(keys, func(a, b TopKey) int {
		return cmp.Or(cmp.Compare(b.Count, a.Count), cmp.Compare(a.Name, b.Name))
	})
	return keys[:min(max(n, 0), len(keys))]
}
