package replica

import (
	"slices"

	"github.com/weirlimit/weir/limiter"
)

// maxResets is how many keys an ownership remembers as reset. At the bound the reset that
// is longest ago is forgotten, and a late push can bring its counters back.
const maxResets = 1 << 8

// resets are the keys that were reset under an ownership, the latest last. A former owner
// that was paused did not hear of it: what it pushes of such a key is older than the reset.
type resets struct{ reset []uint64 }

// Reset records that a key was reset: what former owners push of it from now on is left
// out. The owner remembers 256 keys of a partition.
func (r *resets) Reset(k *limiter.Key) {
	hi := k.Hash.Hi
	if i := slices.Index(r.reset, hi); i >= 0 {
		r.reset = slices.Delete(r.reset, i, i+1)
	}
	if len(r.reset) == maxResets {
		r.reset = slices.Delete(r.reset, 0, 1)
	}
	r.reset = append(r.reset, hi)
}

// wasReset reports whether a key was reset under this ownership.
func (r *resets) wasReset(hi uint64) bool { return slices.Contains(r.reset, hi) }
