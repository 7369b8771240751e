package rules

import (
	"cmp"
	"hash/maphash"
	"math/bits"
	"strings"
	"sync/atomic"
)

// Bounds of the path cache.
const (
	defaultCacheEntries = 8192
	maxCacheEntries     = 1 << 20
	maxCachedPath       = 512 // bytes
	maxCachedRules      = 512 // rules that match one path
	cacheWays           = 8   // with as many entries as paths, one set in a million overflows
)

// pathCache caches which rules match a path. It is a fixed array of sets of eight
// entries; the hash of a path selects its set. Entries are immutable and replaced as a
// whole, so readers need no lock and writers may race. The worst result of a race is
// one more look-up in the index.
//
// While a set has room, a path is cached at once; later only when it is seen for the
// second time. So a flood of paths that occur once, and cannot benefit, neither
// allocates nor evicts other paths.
type pathCache struct {
	seed maphash.Seed
	mask uint64 // number of sets - 1
	sets [][cacheWays]atomic.Pointer[cached]
	seen []atomic.Uint32 // a fingerprint of the last path seen, one for each entry
	turn atomic.Uint32   // the entry of a full set to replace next
}

// cached is the entry of a path. Few rules match most paths, so their numbers are
// stored in the entry itself: it is one cache line, so reading it is one miss.
type cached struct {
	hash  uint64
	path  string
	rules []uint16
	few   [8]uint16
}

// newPathCache returns a cache of about this many paths, or nil, which caches nothing,
// for 0 or less.
func newPathCache(entries int) *pathCache {
	if entries < 0 {
		return nil
	}
	entries = cmp.Or(entries, defaultCacheEntries)
	entries = min(entries, maxCacheEntries)
	sets := 1 << bits.Len(uint((entries+cacheWays-1)/cacheWays-1)) // rounded up
	return &pathCache{
		seed: maphash.MakeSeed(),
		mask: uint64(sets - 1),
		sets: make([][cacheWays]atomic.Pointer[cached], sets),
		seen: make([]atomic.Uint32, sets*cacheWays),
	}
}

// get returns the entry of a path, or nil, and the path's hash.
func (c *pathCache) get(path string) (*cached, uint64) {
	h := maphash.String(c.seed, path)
	set := &c.sets[h&c.mask]
	for i := range set {
		if e := set[i].Load(); e != nil && e.hash == h && e.path == path {
			return e, h
		}
	}
	return nil, h
}

// put caches the rules of a path that get did not find, or at least records that it was
// seen. The rules are copied.
func (c *pathCache) put(path string, h uint64, rules []uint16) {
	if len(path) > maxCachedPath || len(rules) > maxCachedRules {
		return
	}
	set := &c.sets[h&c.mask]
	free := 0
	for free < len(set) && set[free].Load() != nil {
		free++
	}
	mark := uint32(h>>32) | 1 // not 0, which marks a free place
	seen := &c.seen[(h>>8)&uint64(len(c.seen)-1)]
	if free == len(set) && seen.Load() != mark {
		seen.Store(mark)
		return
	}
	e := &cached{hash: h, path: strings.Clone(path)}
	e.rules = append(e.few[:0], rules...)
	if free < len(set) && set[free].CompareAndSwap(nil, e) {
		return
	}
	set[c.turn.Add(1)%cacheWays].Store(e)
}
