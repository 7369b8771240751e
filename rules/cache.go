package rules

import (
	"hash/maphash"
	"math/bits"
	"strings"
	"sync/atomic"
)

// Bounds of the cache of paths.
const (
	defaultCacheEntries = 8192
	maxCacheEntries     = 1 << 20
	maxCachedPath       = 512 // bytes
	maxCachedRules      = 512 // rules that match one path
	cacheWays           = 8   // with as many entries as paths, one set in a million overflows
)

// pathCache remembers which rules match a path. It is a fixed array of sets of
// eight entries; a path belongs to one set by its hash. Entries are immutable
// and replaced as a whole, so readers need no lock and writers may race: the
// worst that happens is that a path is looked up in the index once more.
//
// While a set has room a path is remembered at once, then only when it is seen
// for the second time. So a flood of paths that are asked for once, which cannot
// profit from it, neither allocates nor drives out the paths that do.
type pathCache struct {
	seed maphash.Seed
	mask uint64 // of sets
	sets [][cacheWays]atomic.Pointer[cached]
	seen []atomic.Uint32 // a fingerprint of the last path met, one for each entry
	turn atomic.Uint32   // which entry of a full set is replaced next
}

// cached is what is remembered of a path. Few rules match most paths, so they
// lie in the entry itself: it is one cache line, and reading it one miss.
type cached struct {
	hash  uint64
	path  string
	rules []uint16
	few   [8]uint16
}

// newPathCache returns a cache of about this many paths; nil, which caches
// nothing, if there are none.
func newPathCache(entries int) *pathCache {
	if entries < 0 {
		return nil
	}
	if entries == 0 {
		entries = defaultCacheEntries
	}
	entries = min(entries, maxCacheEntries)
	sets := 1 << bits.Len(uint((entries+cacheWays-1)/cacheWays-1)) // rounded up
	return &pathCache{
		seed: maphash.MakeSeed(),
		mask: uint64(sets - 1),
		sets: make([][cacheWays]atomic.Pointer[cached], sets),
		seen: make([]atomic.Uint32, sets*cacheWays),
	}
}

// get returns what is remembered of a path, or nil, and the path's hash.
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

// put remembers the rules of a path that get did not find, or at least that it
// was seen. The rules are copied.
func (c *pathCache) put(path string, h uint64, rules []uint16) {
	if len(path) > maxCachedPath || len(rules) > maxCachedRules {
		return
	}
	set := &c.sets[h&c.mask]
	free := 0
	for free < len(set) && set[free].Load() != nil {
		free++
	}
	mark := uint32(h>>32) | 1 // never the zero of a place that is free
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
