//go:build amd64 || arm64

package table

import "unsafe"

// fetch fetches the cache line at p. It reads nothing, so p may be any address.
//
//go:noescape
func fetch(p unsafe.Pointer)

// fetchWrite is fetch for a cache line that will be written. Other cores give it up at once, and not only when it
// is written.
//
//go:noescape
func fetchWrite(p unsafe.Pointer)

// fetchPair fetches the cache lines of two slots, the first of which is at p.
//
//go:noescape
func fetchPair(p unsafe.Pointer)

// The assembly knows the size of a slot.
const _ = uint(slotBytes-48) + uint(48-slotBytes)
