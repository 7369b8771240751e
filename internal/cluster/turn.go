package cluster

import (
	"github.com/weirlimit/weir/internal/cluster/replica"
	"github.com/weirlimit/weir/internal/peer"
	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/limiter/table"
)

// turn is one entry into the core, by one goroutine. It collects the work that is done
// when all locks are released, and scratch memory. Turns are pooled.
type turn struct {
	c     *Core
	now   limiter.Tick
	at    limiter.Tick // present time of the counters' clock
	wakes []*link
	parts []*part // to be flushed
	later []func(*turn)
	ended []*op // whose callers are to be told
	arm   bool  // a tick is needed
	// broken means that there was a panic, so the turn's memory is not reused.
	broken bool

	link    *link             // the link that was looked up last
	shard   uint64            // shard for the operations that begin in this turn; 0 before the first
	fresh   []op              // unused operations, allocated together
	replies replies           // replies to the member that asked last
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
	t.link, t.shard = nil, 0
	if t.arm { // last, so that the tick finds everything that needs it
		t.arm = false
		t.c.arm()
	}
	if !t.broken {
		t.c.turns.Put(t)
	}
}

// pending reports whether there is deferred work.
func (t *turn) pending() bool {
	return len(t.later)+len(t.parts)+len(t.ended)+len(t.replies.list)+len(t.wakes) > 0
}

// finish does the deferred work. It reports false after a panic; then more may be left,
// but not the work that panicked.
func (t *turn) finish() (all bool) {
	defer t.catch()
	for t.pending() {
		for len(t.later)+len(t.parts)+len(t.ended) > 0 {
			t.goOn()
		}
		t.sendReplies()
		for i := 0; i < len(t.wakes); { // a link that is down may wake others
			l := take(t.wakes, i)
			i++
			if l != nil {
				t.c.flush(t, l)
			}
		}
		t.wakes = t.wakes[:0]
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

// replies are decisions for one member that will share a frame.
type replies struct {
	to      peer.Instance
	list    []peer.Reply
	results []peer.Result
}

// maxReplies is the most replies that are collected before they are sent. maxResults is
// the number of results from which on no further reply is collected. A frame may have
// 65536 of each.
const (
	maxReplies = 256
	maxResults = 4096
)

// respond adds a decision to the replies for a member. They are sent at the end of the
// turn or earlier.
func (t *turn) respond(to peer.Instance, r peer.Reply, answer, idle *limiter.Decision) {
	q := &t.replies
	if q.to != to || len(q.list) == maxReplies || len(q.results) >= maxResults {
		t.sendReplies()
		q.to = to
	}
	q.list = append(q.list, r)
	q.results = appendResults(q.results, answer)
	if idle != nil {
		q.results = appendResults(q.results, idle)
	}
}

// sendReplies puts the collected replies into a frame.
func (t *turn) sendReplies() {
	q := &t.replies
	if len(q.list) == 0 {
		return
	}
	list, results := q.list, q.results
	q.list, q.results = q.list[:0], q.results[:0] // cleared first, so that a panic does not make them be sent for ever
	t.c.send(t, q.to, 40*len(list)+32*len(results), false, func(_ *link, f *peer.Frame) {
		f.Replies = append(f.Replies, list...)
		f.Results = append(f.Results, results...)
	})
	clear(list)
}

// to returns the link to a member. It remembers the last one.
func (t *turn) to(i peer.Instance) *link {
	if t.link == nil || t.link.to != i {
		t.link = t.c.link(i)
	}
	return t.link
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

// wake records that a link has something to send. l.mu is held.
func (t *turn) wake(l *link) {
	if !l.awake {
		l.awake = true
		t.wakes = append(t.wakes, l)
	}
}
