package route

import (
	"unsafe"

	"github.com/weirlimit/weir/internal/cluster/mesh"
	"github.com/weirlimit/weir/internal/peer"
	"github.com/weirlimit/weir/limiter"
)

// Turn is one entry into a node, by one goroutine, as calls see it: what time it is, what
// is said to other members, and what is left to do at its end.
type Turn struct {
	// Now is the scheduler's time, At the time of the counters' clock.
	Now, At limiter.Tick
	// Out is what is said to other members.
	Out mesh.Writer
	// Tick means that a tick is needed, see [Router.Tick].
	Tick bool
	// Node decides at this node.
	Node Node
	// Panicked receives the value of each panic. If it is nil, the turn does not recover
	// from panics.
	Panicked func(v any)
	// Broken means that there was a panic, so the turn's memory is not reused.
	Broken bool

	ended []*Call // whose callers are to be told
	shard uint64  // shard for the calls that begin in this turn; 0 before the first
	fresh []Call  // unused calls, allocated together
	used  bool    // the first of them was begun, and is not taken
	asked Request // scratch of handle
}

// handle has a request decided at this node, in memory of the turn.
func (t *Turn) handle(q Request, answer *limiter.Decision) Verdict {
	t.asked = q
	v, _ := t.Node.Handle(&t.asked, answer, nil)
	t.asked = Request{}
	return v
}

// Node is this node as owner, heir and learner, in the turn under way.
type Node interface {
	// Handle decides a request or keeps it. at is the partition that stood in the way,
	// [NoPartition] if none did.
	Handle(q *Request, answer, idle *limiter.Decision) (v Verdict, at uint16)
	// Learn records an owner that another member named. doubt means that the member is
	// believed only if this node knows no later owner.
	Learn(partition uint16, owner peer.Epoch, doubt bool)
	// Doubt questions the owner of a partition, which did not answer.
	Doubt(partition uint16)
}

// NoPartition is the number of no partition.
const NoPartition uint16 = 1<<16 - 1

// End ends a turn. Its callers must have been told.
func (t *Turn) End() {
	t.Out.End()
	t.shard = 0
}

// Ended returns how many ended calls have callers that are not told yet.
func (t *Turn) Ended() int { return len(t.ended) }

// Notify tells the callers of ended calls.
func (t *Turn) Notify() {
	for i := 0; i < len(t.ended); {
		o := t.ended[i]
		t.ended[i] = nil // so that a panic does not leave it there
		i++
		if o != nil {
			o.notify(t)
		}
	}
	t.ended = t.ended[:0]
}

// Catch recovers from a panic. The turn's memory is not reused after one. It must be
// deferred directly.
func (t *Turn) Catch() {
	if t.Panicked == nil {
		return
	}
	if v := recover(); v != nil {
		t.Broken = true
		t.Panicked(v)
	}
}

// call returns memory for a call, cleared. The turn keeps it until [Turn.taken].
func (t *Turn) call() *Call {
	switch {
	case len(t.fresh) == 0:
		t.fresh = make([]Call, callsAtOnce)
	case t.used:
		t.fresh[0] = Call{}
	}
	t.used = true
	return &t.fresh[0]
}

// taken hands the call that [Turn.call] returned last to the caller.
func (t *Turn) taken() { t.fresh, t.used = t.fresh[1:], false }

// callsAtOnce is how many calls are allocated together. With a call of at most 340 bytes
// they fill one of the runtime's sizes (10880); the next one is an eighth larger.
const (
	callsAtOnce = 32
	_           = uint(10880 - callsAtOnce*unsafe.Sizeof(Call{})) // a compile-time check
)
