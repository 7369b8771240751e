package arith

import (
	"math/bits"

	"github.com/weirlimit/weir/limiter"
)

// pushedTimes is how many times its capacity a bucket is believed to hold that a fenced owner pushes.
const pushedTimes = 2

// Believe lowers a state that another node sent to what its limit can hold. It must have been imported at now.
//
//   - A bucket of an owner: what a settlement can make of one, at most what takes a day, a window or a recovery
//     until there is room again, see leastDebt. Any of it may be honest, and [State.Import] has cut the rest.
//   - A bucket that a fenced owner pushes: twice its capacity. It had what it answered acknowledged by the heir
//     that took over, so the merger has it already. Only what it decided without an heir, in a split, and
//     settled beyond that is forgotten. Such a key is granted no more than both sides may and what estimates were too
//
// low by.
//
//	  With count_rejected: all each denial charges a bucket, so any level is what it can hold.
//	- A block: until one that began now would end.
//	- Windows, sub-windows and logs: any count, since it ends with them, as it does where it was charged.
//	  Slots on concurrency end with their holds.
func Believe(l *limiter.Limit, s *State, now limiter.Tick, pushed bool) {
	c := s.Open(l)
	if c.believe(of(l), now, pushed) {
		*s = c.State(l)
	}
}

// believe is Believe. It reports whether it changed anything.
func (s *Counts) believe(l *rate, now limiter.Tick, pushed bool) (changed bool) {
	if l.internal() {
		return false
	}
	if most := now + l.P.Block; s.Until > most {
		s.Until, changed = most, true
	}
	if !pushed || !l.leaks() || l.P.Count == limiter.CountAll {
		return changed
	}
	most := min(l.Most, pushedTimes*l.Full)
	if !l.Shared {
		if s.A > most {
			s.A, changed = most, true
		}
		return changed
	}
	hi, lo := (*bucket)(l).debt(s, now)
	mostHi, mostLo := bits.Mul64(most, uint64(l.Window))
	if hi > mostHi || hi == mostHi && lo > mostLo {
		(*bucket)(l).setDebt(s, now, mostHi, mostLo)
		return true
	}
	return changed
}
