package table

import (
	"slices"

	"github.com/weirlimit/weir/limiter"
)

// maxResets bounds how many keys of a partition are remembered as reset.
const maxResets = 16

// void tells which receipts of a partition are void. The lock of the partition guards it.
type void struct {
	before limiter.Tick // all receipts from before
	keys   []resetKey   // in the order of their resets
}

// resetKey makes the receipts of one key void that are from before an instant.
type resetKey struct {
	place  uint64
	before limiter.Tick
}

// reset makes the receipts of the key at a place void that are from before an instant.
// Beyond maxResets the first one is forgotten, and all receipts from before it are void.
func (v *void) reset(place uint64, before limiter.Tick) {
	v.keys = slices.DeleteFunc(v.keys, func(k resetKey) bool { return k.place == place })
	if len(v.keys) == maxResets {
		v.before = max(v.before, v.keys[0].before)
		v.keys = slices.Delete(v.keys, 0, 1)
	}
	v.keys = append(v.keys, resetKey{place, before})
}

// has reports whether a receipt of the key at a place is void. A nil void has none.
func (v *void) has(place uint64, of limiter.Tick) bool {
	return v != nil && (of < v.before || slices.ContainsFunc(v.keys, func(k resetKey) bool { return k.place == place && of < k.before }))
}
