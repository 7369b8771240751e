package cluster

import (
	"github.com/weirlimit/weir/internal/cluster/mesh"
	"github.com/weirlimit/weir/internal/cluster/replica"
	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/limiter/table"
)

// turn is one entry into the core, by one goroutine. It collects the work that is done
// when all locks are released, and scratch memory. Turns are pooled.
type turn struct {
	c     *Core
	now   limiter.Tick
	at    limiter.Tick // present time of the counters' clock
	out   mesh.Writer  // what is said to other members
	parts []*part      // to be flushed
	later []func(*turn)
	ended []*op // whose callers are to be told
	arm   bool  // a tick is needed
	// broken means that there was a panic, so the turn's memory is not reused.
	broken bool

	shard   uint64            // shard for the operations that begin in this turn; 0 before the first
	fresh   []op              // unused operations, allocated together
	rule    namedRule         // the rule of the last check of a frame
	entries []table.Entry     // scratch of split
	keys    []replica.Entries // scratch of split

	step    replica.Turn // of the replica at work
	applied int          // how many of its effects are done

	charge limiter.Charge // scratch
	answer limiter.Decision
	idle   limiter.Decision
}

func (c *Core) begin() *turn {
	t := c.turns.Get().(*turn)
	t.c, t.now = c, c.sched.Now()
	t.out.Begin(c.mesh)
	if t.at = t.now; c.config.Clock != nil {
		t.at = c.config.Clock()
	}
	c.pulse(t)
	return t
}

// end does the deferred work, including work that it adds itself, and returns the turn
// to its pool.
func (t *turn) end() {
	for t.pending() && !t.finish() {
	}
	t.out.End()
	t.shard = 0
	if t.arm || t.out.Expects { // last, so that the tick finds everything that needs it
		t.arm, t.out.Expects = false, false
		t.c.arm()
	}
	if !t.broken {
		t.c.turns.Put(t)
	}
}

// pending reports whether there is deferred work.
func (t *turn) pending() bool {
	return len(t.later)+len(t.parts)+len(t.ended) > 0 || t.out.Pending()
}

// finish does the deferred work. It reports false after a panic; then more may be left,
// but not the work that panicked.
func (t *turn) finish() (all bool) {
	defer t.catch()
	for t.pending() {
		for len(t.later)+len(t.parts)+len(t.ended) > 0 {
			t.goOn()
		}
		t.lose()
		for t.out.Flush() { // a link that is down may wake others
			t.lose()
		}
	}
	return true
}

// take returns an element of a list and clears it, so that a panic does not leave it
// there.
func take[T any](list []*T, i int) *T {
	x := list[i]
	list[i] = nil
	return x
}

// goOn does the deferred work except sending frames.
func (t *turn) goOn() {
	for i := 0; i < len(t.later); { // f may add to the list
		f := t.later[i]
		t.later[i] = nil
		i++
		if f != nil {
			f(t)
		}
	}
	t.later = t.later[:0]
	for i := 0; i < len(t.ended); {
		o := take(t.ended, i)
		i++
		if o != nil {
			o.tell(t)
		}
	}
	t.ended = t.ended[:0]
	for i := 0; i < len(t.parts); {
		p := take(t.parts, i)
		i++
		if p != nil {
			t.c.flushNow(t, p)
		}
	}
	t.parts = t.parts[:0]
}

// flushNow sends a partition's batches that are due.
func (c *Core) flushNow(t *turn, p *part) {
	p.mu.Lock()
	defer p.leave(t)
	p.flushing = false
	c.fault(p.id)
	p.r.Flush(t.inputs())
	p.apply(t)
}

// namedRule is the rule that a frame names by an index. same reports whether it is the
// rule that the sender asked for.
type namedRule struct {
	index        uint16
	closed, same bool
	rule         *limiter.Rule // nil if it is not known
}

// op returns memory for an operation, not cleared. The turn keeps it until [turn.taken].
func (t *turn) op() *op {
	if len(t.fresh) == 0 {
		t.fresh = make([]op, opsAtOnce)
	}
	return &t.fresh[0]
}

// taken hands the operation that [turn.op] returned last to the caller.
func (t *turn) taken() { t.fresh = t.fresh[1:] }

// opsAtOnce is how many operations are allocated together.
const opsAtOnce = 32
