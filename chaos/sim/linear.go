package sim

import (
	"fmt"

	"github.com/anishathalye/porcupine"

	"github.com/weirlimit/weir/limiter"
)

// op is what a client asked of a key, and was told.
type op struct {
	call, back limiter.Tick
	cost       int
	allowed    bool
	reset      bool
	peek       bool
	left       int // of a peek: what remained
}

// counter is a counter that only counts up to its limit, and that resets start anew.
func counter(limit int) porcupine.Model {
	return porcupine.Model{
		Init: func() any { return 0 },
		Step: func(state, input, _ any) (bool, any) {
			used, o := state.(int), input.(op)
			switch fits := used+o.cost <= limit; {
			case o.reset:
				return true, 0
			case o.peek:
				return used == limit-o.left, used
			case o.allowed:
				return fits, used + o.cost
			default:
				return !fits, used
			}
		},
	}
}

// linear returns an error if no order of what clients were told of a key, each between its
// call and its return, is that of one counter. It judges keys with one rule at all nodes,
// of which no charge was lost, decided by a policy or refunded.
func (k *key) linear() error {
	if k.pair != nil || k.rolled || k.form || k.turned != nil || k.lost+k.fallbacks+k.openOps+k.refunded > 0 ||
		k.unclear || k.resetsDone() < k.tried {
		return nil
	}
	ops := make([]porcupine.Operation, len(k.ops))
	for i, o := range k.ops {
		ops[i] = porcupine.Operation{ClientId: i, Input: o, Call: 2 * int64(o.call), Return: 2*int64(o.back) + 1}
	}
	if !porcupine.CheckOperations(counter(k.limit), ops) {
		return fmt.Errorf("%s (partition %d): no order of its %d answers is that of one counter of %d (%v, reset %d times)",
			k.rule.Name, k.part, len(ops), k.limit, k.rule.Limits[0].Algorithm(), k.tried)
	}
	return nil
}

// resetsDone returns how many resets were answered.
func (k *key) resetsDone() (n int) {
	for _, o := range k.ops {
		if o.reset {
			n++
		}
	}
	return n
}
