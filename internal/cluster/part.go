package cluster

import (
	"sync"
	"sync/atomic"

	"github.com/weirlimit/weir/internal/cluster/replica"
	"github.com/weirlimit/weir/internal/cluster/route"
	"github.com/weirlimit/weir/internal/peer"
	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/limiter/table"
)

// part is the shell of one partition's replica: its lock, and what is read without the
// lock. Whoever runs a step of the replica holds mu, and applies the step's effects
// before unlocking.
type part struct {
	id     uint16
	closed bool
	// to and toHeir are the owner and the heir to ask, 0 if unknown.
	to, toHeir atomic.Uint64
	// givenUpAt is when the partition was given up; 0 if it is not.
	givenUpAt atomic.Int64

	mu       sync.Mutex
	r        replica.Replica // by value: each tick reads it right after the lock
	flushing bool            // to be flushed at the end of the turn
}

// manages adds a partition to those that this core manages.
func (c *Core) manages(node *replica.Node, id int) {
	p := &part{id: uint16(id), closed: id >= table.Partitions, r: *replica.New(node, uint16(id))}
	c.byID[id] = p
	c.parts = append(c.parts, p)
}

// inputs returns what the next step of a replica may read. The partition is locked.
func (t *turn) inputs() *replica.Turn {
	s := &t.step
	s.Now, s.At, s.View, s.State = t.Now, t.At, t.c.view.Load(), t.c.state()
	return s
}

// in runs a step of a partition under its lock, and applies its effects. If one of them
// panics, the partition breaks.
func (c *Core) in(t *turn, p *part, step func(*replica.Replica, *replica.Turn)) {
	p.mu.Lock()
	defer p.leave(t)
	c.fault(p.id)
	step(&p.r, t.inputs())
	p.apply(t)
	p.rewatch(t)
}

// apply does what the last step has left to do. The partition is locked.
func (p *part) apply(t *turn) {
	s := &t.step
	if !s.Any() {
		return
	}
	if s.Routed {
		p.point(s)
	}
	if s.Flush && !p.flushing {
		p.flushing = true
		t.parts = append(t.parts, p)
	}
	if s.Watch {
		p.watch(t)
		t.Tick = true
	}
	for t.applied < len(s.List) {
		e := &s.List[t.applied]
		t.applied++ // first, so that after a panic the others can still be done
		t.c.do(t, p, e)
	}
	s.Reset()
	t.applied = 0
}

// point publishes which members to ask.
func (p *part) point(s *replica.Turn) {
	owner, heir, givenUp := p.r.Route(s)
	p.to.Store(uint64(owner))
	p.toHeir.Store(uint64(heir))
	p.givenUpAt.Store(int64(givenUp))
}

// do does one effect of a partition, which is locked.
func (c *Core) do(t *turn, p *part, e *replica.Effect) {
	switch e.Kind {
	case replica.SendAnnounce:
		t.Out.Announce(e.To, e.Announce)
	case replica.SendClaim:
		t.Out.Claim(e.To, e.Claim, e.Asks)
	case replica.SendAnswer:
		t.Out.Answer(e.To, e.Answer)
	case replica.SendRevoke:
		t.Out.Revoke(e.To, e.Revoke, e.Asks)
	case replica.SendAck:
		t.Out.Ack(e.To, e.Ack)
	case replica.SendBatch:
		t.Out.Batch(e.To, &e.Batch, e.Keys, t.At)
	case replica.Refuse, replica.Expire, replica.Rerun, replica.Release:
		c.complete(t, p, e)
	case replica.Happened:
		c.event(eventOf(e.Event), int(p.id))
	case replica.Complain:
		c.complain(e.What, e.Err)
	}
}

// complete ends the wait of a request or of a withheld reply.
func (c *Core) complete(t *turn, p *part, e *replica.Effect) {
	if e.Kind == replica.Release {
		if h := e.Reply.(*withheldReply); h.released() {
			c.ended(&h.reply)
			c.reply(t, h)
		}
		return
	}
	if h, ok := e.Reply.(*withheldReply); ok {
		c.ended(&h.reply)
		c.refuse(t, h.reply, peer.Reply{Status: e.Status, Owner: e.Owner, Partition: p.id})
		return
	}
	q := e.Request.(*route.Request)
	c.ended(&q.Reply)
	switch e.Kind {
	case replica.Refuse:
		c.refuse(t, q.Reply, peer.Reply{Status: e.Status, Owner: e.Owner, Partition: p.id})
	case replica.Rerun:
		t.later = append(t.later, func(t *turn) { c.rerun(t, q) })
	}
}

// eventOf returns the event that the core counts for one of a replica.
func eventOf(e replica.Event) Event {
	return [...]Event{
		replica.Takeover: EventTakeover, replica.Renewal: EventRenewal, replica.Handoff: EventHandoff,
		replica.Reopened: EventReopened, replica.Fenced: EventFenced, replica.Merged: EventMerged,
		replica.Recovered: EventRecovered, replica.Emptied: EventEmptied, replica.Raised: EventRaised,
		replica.Broken: EventBroken, replica.GivenUp: EventGivenUp,
	}[e]
}

// withheldReply is a decision whose reply is withheld, in one partition or in several.
type withheldReply struct {
	replica.Withheld // its receipt is a copy: a policy may overwrite the answer at the deadline

	answer *limiter.Decision
	idle   *limiter.Decision // only of a reservation
	reply  route.ReplyTo
	waits  atomic.Int32 // number of partitions that still withhold it
	over   atomic.Bool  // the reply was sent, or the charge taken back
}

// Facts returns what a replica must know of the reply.
func (h *withheldReply) Facts() *replica.Withheld { return &h.Withheld }

// Over reports whether its wait has ended, perhaps in another partition.
func (h *withheldReply) Over() bool { return h.over.Load() }

// TakeBack ends its wait, so that its charge can be taken back. It reports false if the
// wait had ended already.
func (h *withheldReply) TakeBack() bool { return h.over.CompareAndSwap(false, true) }

// released ends its wait in one partition. It reports whether that was the last one, and
// ended its wait altogether.
func (h *withheldReply) released() bool {
	return h.waits.Add(-1) == 0 && h.over.CompareAndSwap(false, true)
}

// reply sends a decision that was withheld to the asker.
func (c *Core) reply(t *turn, h *withheldReply) {
	if h.reply.Call != nil {
		h.reply.Call.Decided(&t.Turn, h.Charge, h.answer, h.idle, 0)
		return
	}
	c.sendReply(t, h.reply, h.answer, h.idle)
}
