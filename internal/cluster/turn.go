package cluster

import (
	"github.com/weirlimit/weir/internal/peer"
	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/limiter/table"
)

// turn is one entry into the core: what is left to do when all locks are
// released.
type turn struct {
	c     *Core
	now   limiter.Tick
	at    limiter.Tick // the instant that counters see
	wakes []*link
	parts []*part // to be flushed
	later []func(*turn)
	ended []*op // whose callers are to be told
	arm   bool  // something waits for the next tick
	// broken: there was a panic, so its memory is not used again.
	broken bool

	link    *link         // the one that was looked for last
	shard   uint64        // of the numbers of operations that begin in this turn; 0: none has
	fresh   []op          // room for operations, in one piece of memory
	replies replies       // to the member that asked last
	rule    namedRule     // that the last check of a frame was of
	entries []table.Entry // scratch of split
	keys    []entries     // the same

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

// end does what was put off, which may put off more.
func (t *turn) end() {
	for t.pending() && !t.finish() {
	}
	t.link, t.shard = nil, 0
	if t.arm { // after all that may have to be looked at is where the tick looks
		t.arm = false
		t.c.arm()
	}
	if !t.broken {
		t.c.turns.Put(t)
	}
}

// pending reports whether something was put off.
func (t *turn) pending() bool {
	return len(t.later)+len(t.parts)+len(t.ended)+len(t.replies.list)+len(t.wakes) > 0
}

// finish does what was put off. It reports false where a panic came between: then there
// may be more to do, without what panicked.
func (t *turn) finish() (all bool) {
	defer t.catch()
	for t.pending() {
		for len(t.later)+len(t.parts)+len(t.ended) > 0 {
			t.goOn()
		}
		t.sendReplies()
		for i := 0; i < len(t.wakes); { // one that is down may have others woken
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

// take takes an element out of a list, so that it is not there again after a panic.
func take[T any](list []*T, i int) *T {
	x := list[i]
	list[i] = nil
	return x
}

// goOn does what was put off, but for what is to be sent.
func (t *turn) goOn() {
	for i := 0; i < len(t.later); { // what runs may add to it
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

// flushNow sends what a partition has for its copies.
func (c *Core) flushNow(t *turn, p *part) {
	p.mu.Lock()
	defer p.leave(t)
	p.flushing = false
	p.fault()
	p.flush(t)
}

// flushPart has a partition's batches sent with the end of the turn.
func (c *Core) flushPart(t *turn, p *part) {
	if !p.flushing {
		p.flushing = true
		t.parts = append(t.parts, p)
	}
}

// namedRule is what a frame names by an index, and whether it is what it was there.
type namedRule struct {
	index        uint16
	closed, same bool
	rule         *limiter.Rule // nil: it is not known
}

// replies are decisions for one member, until they are put into a frame together.
type replies struct {
	to      peer.Instance
	list    []peer.Reply
	results []peer.Result
}

// maxReplies are put into a frame at once, at most, and replies with maxResults at
// least are no longer gathered: a link takes 65536 of a frame.
const (
	maxReplies = 256
	maxResults = 4096
)

// respond has a decision sent to a member with the end of the turn, if not before.
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

// sendReplies puts the decisions that have gathered into a frame.
func (t *turn) sendReplies() {
	q := &t.replies
	if len(q.list) == 0 {
		return
	}
	list, results := q.list, q.results
	q.list, q.results = q.list[:0], q.results[:0] // first: a panic does not leave them to be sent for ever
	t.c.send(t, q.to, 40*len(list)+32*len(results), false, func(_ *link, f *peer.Frame) {
		f.Replies = append(f.Replies, list...)
		f.Results = append(f.Results, results...)
	})
	clear(list)
}

// to returns the link to a member, which is mostly that of the last time.
func (t *turn) to(i peer.Instance) *link {
	if t.link == nil || t.link.to != i {
		t.link = t.c.link(i)
	}
	return t.link
}

// op returns room for an operation, not cleared, which stays the turn's until it is
// taken.
func (t *turn) op() *op {
	if len(t.fresh) == 0 {
		t.fresh = make([]op, opsAtOnce)
	}
	return &t.fresh[0]
}

// taken makes the operation that [turn.op] returned last its caller's.
func (t *turn) taken() { t.fresh = t.fresh[1:] }

// opsAtOnce is how many operations lie in one piece of memory.
const opsAtOnce = 32

// wake notes that there is something to send.
func (t *turn) wake(l *link) {
	if !l.awake {
		l.awake = true
		t.wakes = append(t.wakes, l)
	}
}
