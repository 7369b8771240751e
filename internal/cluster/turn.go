package cluster

import (
	"time"

	"github.com/weirlimit/weir/internal/cluster/replica"
	"github.com/weirlimit/weir/internal/cluster/route"
	"github.com/weirlimit/weir/internal/cluster/view"
	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/limiter/arith"
	"github.com/weirlimit/weir/limiter/table"
)

// turn is one entry into the core, by one goroutine. It collects the work that is done
// when all locks are released, and scratch memory. Turns are pooled.
type turn struct {
	route.Turn

	c     *Core
	parts []*partition // to be flushed
	later []func(*turn)

	asked   asked
	scratch scratch
	before  []*table.Before // of the keys of the check that is prepared

	step    replica.Step // of the replica at work
	applied int          // how many of its effects are done
}

// asked is the memory for what a frame asks, one request after the other.
type asked struct {
	rule   namedRule // of the last key
	charge arith.Charge
	id     arith.Idempotency
	answer limiter.Decision
	idle   limiter.Decision
}

// once gives the charge an id, unless that is 0.
func (a *asked) once(id uint64, life time.Duration) {
	if id != 0 {
		a.id = arith.Idempotency{ID: id, Life: life}
		a.charge.ID = &a.id
	}
}

func (t *turn) view() *view.View { return t.c.view.Load() }

func (c *Core) begin() *turn {
	t := c.turns.Get().(*turn)
	t.c, t.Node, t.Panicked, t.Now = c, t, c.config.Panicked, c.config.Scheduler.Now()
	t.Out.Begin(c.mesh)
	if t.At = t.Now; c.config.Clock != nil {
		t.At = c.config.Clock(t.Now)
	}
	c.ticks.pulse(t)
	return t
}

// end does the deferred work, including work that it adds itself, and returns the turn
// to its pool.
func (t *turn) end() {
	for t.pending() && !t.finish() {
	}
	t.Turn.End()
	if t.Tick || t.Out.Expects { // last, so that the tick finds everything that needs it
		t.Tick, t.Out.Expects = false, false
		t.c.ticks.arm()
	}
	if !t.Broken {
		t.c.turns.Put(t)
	}
}

func (t *turn) pending() bool {
	return len(t.later)+len(t.parts)+t.Ended() > 0 || t.Out.Pending()
}

// finish does the deferred work. It reports false after a panic; then more may be left,
// but not the work that panicked.
func (t *turn) finish() (all bool) {
	defer t.Catch()
	for t.pending() {
		for len(t.later)+len(t.parts)+t.Ended() > 0 {
			t.goOn()
		}
		t.lose()
		for t.Out.Flush() { // a link that is down may wake others
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
	t.Notify()
	for i := 0; i < len(t.parts); {
		p := take(t.parts, i)
		i++
		if p != nil {
			p.flush(t)
		}
	}
	t.parts = t.parts[:0]
}

// namedRule is the rule that a frame names by an index. same reports whether it is the
// rule that the sender asked for.
type namedRule struct {
	index        uint16
	closed, same bool
	rule         *limiter.Rule // nil if it is not known
}
