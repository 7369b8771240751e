package replica

import (
	"slices"

	"github.com/weirlimit/weir/limiter/arith"
)

// maxResets is how many keys an ownership remembers as reset. At the bound the reset that
// is longest ago is forgotten, and a late push can bring its counters back.
const maxResets = 1 << 8

// resets are the keys that were reset under an ownership, the latest last. An owner of
// before that was paused did not hear of it: what it pushes of such a key is older than the
// reset. An owner that came later began from a copy that has the reset.
type resets struct{ reset []resetKey }

// resetKey is a key that was reset, and the counter of the epoch under which it was.
type resetKey struct{ hi, counter uint64 }

// Reset records that a key was reset under the epoch with a counter: what owners of that
// epoch or earlier ones push of it from now on is left out. The last 256 keys are
// remembered.
func (r *resets) Reset(k *arith.Key, counter uint64) {
	hi := k.Hash.Hi
	r.reset = slices.DeleteFunc(r.reset, func(k resetKey) bool { return k.hi == hi })
	if len(r.reset) == maxResets {
		r.reset = slices.Delete(r.reset, 0, 1)
	}
	r.reset = append(r.reset, resetKey{hi, counter})
}

// resetSince reports whether a key was reset under the epoch with a counter, or a later
// one.
func (r *resets) resetSince(hi, counter uint64) bool {
	return slices.ContainsFunc(r.reset, func(k resetKey) bool { return k.hi == hi && k.counter >= counter })
}
