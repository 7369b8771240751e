package slices

import (
	"sync"

	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/limiter/arith"
)

const (
	// maxAll bounds the holders of all keys: a generation has at most so many, and at most twice as many are kept.
	// One takes 96 bytes, and up to as many again as the room of its list grows.
	maxAll = 1 << 19
	// idleFor is how long a key is kept that is not asked for, at least.
	idleFor = limiter.Minute
)

// Divisions are those of many keys, in bounded number. One that nobody asks for is forgotten, after one minute or
// sooner if there are many others: the table counts its slices, and what counts is at least what was assigned. The
// zero value has none. It is safe for concurrent use.
type Divisions struct {
	mu      sync.Mutex
	since   limiter.Tick // when the generation began
	holders int          // of the generation
	latest  map[arith.Hash]*Division
	before  map[arith.Hash]*Division // those of the generation before it that were not asked for since
}

// Assign divides the rate of a key, see [Division.Assign].
func (x *Divisions) Assign(now limiter.Tick, key arith.Hash, w Wish, total uint64, held []Held) (assigned,
	counted uint64) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.latest == nil || x.holders >= maxAll || now-x.since >= idleFor {
		x.before, x.latest, x.holders, x.since = x.latest, make(map[arith.Hash]*Division), 0, now
	}
	d := x.latest[key]
	if d == nil {
		if d = x.before[key]; d == nil {
			d = new(Division)
		}
		delete(x.before, key)
		x.latest[key] = d
		x.holders += len(d.holders)
	}
	had := len(d.holders)
	assigned, counted = d.Assign(now, w, total, held)
	if x.holders += len(d.holders) - had; d.idle(now) {
		delete(x.latest, key)
		x.holders -= len(d.holders)
	}
	return assigned, counted
}

// Cut lowers what the latest Assign for a holder of a key has assigned, since the table has no room for more; 0:
// nothing is assigned.
func (x *Divisions) Cut(key arith.Hash, id, rate uint64) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if d := x.latest[key]; d != nil {
		d.cut(id, rate)
	}
}

// Len returns how many keys are divided.
func (x *Divisions) Len() int {
	x.mu.Lock()
	defer x.mu.Unlock()
	return len(x.latest) + len(x.before)
}
