package cluster

import (
	"slices"
	"sync"
	"sync/atomic"

	"github.com/weirlimit/weir/internal/cluster/replica"
	"github.com/weirlimit/weir/internal/peer"
	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/limiter/arith"
	"github.com/weirlimit/weir/limiter/table"
)

// partitions are the partitions that a core manages. The lists do not change, so a copy
// of the struct is the same partitions.
type partitions struct {
	node  *replica.Node
	parts []*partition // by ascending number
	byID  []*partition // by number; nil for those that the core does not manage
	// owners are the members to ask, by number. They lie together: most checks of a large
	// cluster need no more of a partition than its owner, and partitions are far apart.
	owners []atomic.Uint64
}

// newPartitions returns the partitions with the given numbers; nil means all.
func newPartitions(node *replica.Node, ids []int) partitions {
	ps := partitions{node: node, byID: make([]*partition, 2*table.Partitions),
		owners: make([]atomic.Uint64, 2*table.Partitions)}
	if ids == nil {
		for id := range ps.byID {
			ps.add(id)
		}
	}
	for _, id := range ids {
		ps.add(id)
	}
	return ps
}

// add adds a partition while the core is made.
func (ps *partitions) add(id int) {
	p := &partition{id: uint16(id), closed: id >= table.Partitions, to: &ps.owners[id],
		r: *replica.New(ps.node, uint16(id))}
	ps.byID[id] = p
	ps.parts = append(ps.parts, p)
}

// of returns the partition of a key, or nil if it is not managed.
func (ps *partitions) of(k *arith.Key) *partition { return ps.byID[table.PartitionOf(k)] }

// owner returns the member to ask about a key, 0 if it is unknown or the key's partition
// is not managed.
func (ps *partitions) owner(k *arith.Key) peer.Instance {
	return peer.Instance(ps.owners[table.PartitionOf(k)].Load())
}

// touch prefetches what a step of a partition needs first.
func (ps *partitions) touch(id int) {
	if uint(id) < uint(len(ps.byID)) && ps.byID[id] != nil {
		table.Touch(&ps.byID[id].mu)
	}
}

// ofCharge appends the partitions of a charge to dst, each once, in the order in which
// they must be locked.
func (ps *partitions) ofCharge(k *arith.Charge, dst []*partition) []*partition {
	for i := range k.Len() {
		if p := ps.of(k.Key(i)); p != nil && !slices.Contains(dst, p) {
			dst = append(dst, p)
		}
	}
	slices.SortFunc(dst, func(a, b *partition) int { return int(a.id) - int(b.id) })
	return dst
}

// at runs a step of the partition with that number, if it is managed.
func (ps *partitions) at(t *turn, id uint16, step func(*replica.Replica, *replica.Step)) {
	if int(id) < len(ps.byID) && ps.byID[id] != nil {
		ps.byID[id].run(t, step)
	}
}

func (ps *partitions) each(t *turn, step func(*replica.Replica, *replica.Step)) {
	for _, p := range ps.parts {
		p.run(t, step)
	}
}

// announceTo announces to a member every partition that this node owns.
func (ps *partitions) announceTo(t *turn, to peer.Instance) {
	ps.each(t, func(r *replica.Replica, s *replica.Step) { r.Introduce(s, to) })
}

// partition is the shell of one partition's replica: its lock, and what is read without
// the lock. Whoever runs a step of the replica holds mu, and applies the step's effects
// before unlocking.
type partition struct {
	id     uint16
	closed bool
	// to and toHeir are the owner and the heir to ask, 0 if unknown. to is one of
	// [partitions.owners].
	to     *atomic.Uint64
	toHeir atomic.Uint64
	// givenUpAt is when the partition was given up; 0 if it is not.
	givenUpAt atomic.Int64

	mu       sync.Mutex
	r        replica.Replica // by value: each tick reads it right after the lock
	flushing bool            // to be flushed at the end of the turn
	at       limiter.Tick    // when it was last charged or reset
}

// inputs returns what the next step of a replica may read. The partition is locked.
func (t *turn) inputs() *replica.Step {
	s := &t.step
	s.Now, s.At, s.View, s.State = t.Now, t.At, t.view(), peer.State(t.c.mine.Load())
	return s
}

// maxLate bounds for how long a turn that began earlier may have waited for a partition.
const maxLate = limiter.Second

// instant lets what is charged or reset here happen no earlier than what was before. The
// partition is locked. A turn may wait for locks, and several may be of one instant. An instant
// that is earlier by more than [maxLate] is of a clock that was set back, and stands.
func (p *partition) instant(t *turn) {
	if p.at-t.At <= maxLate {
		t.At = max(t.At, p.at)
	}
	p.at = t.At
}

// run runs a step of the replica under the lock, and applies its effects. If one of them
// panics, the partition breaks.
func (p *partition) run(t *turn, step func(*replica.Replica, *replica.Step)) {
	p.mu.Lock()
	defer p.leave(t)
	t.c.config.fault(p.id)
	step(&p.r, t.inputs())
	p.apply(t)
	p.rewatch(t)
}

// apply does what the last step has left to do. The partition is locked.
func (p *partition) apply(t *turn) {
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
		t.do(p, e)
	}
	s.Reset()
	t.applied = 0
}

// point publishes which members to ask.
func (p *partition) point(s *replica.Step) {
	owner, heir, givenUp := p.r.Route(s)
	p.to.Store(uint64(owner))
	p.toHeir.Store(uint64(heir))
	p.givenUpAt.Store(int64(givenUp))
}

// do does one effect of a partition, which is locked.
func (t *turn) do(p *partition, e *replica.Effect) {
	switch e.Kind {
	case replica.SendAnnounce:
		t.Out.Announce(e.To, e.Announce)
	case replica.SendClaim:
		t.Out.Claim(e.To, e.Claim, e.Asks)
	case replica.SendAnswer:
		p.answer(t, e)
	case replica.SendRevoke:
		t.Out.Revoke(e.To, e.Revoke, e.Asks)
	case replica.SendAck:
		t.Out.Ack(e.To, e.Ack)
	case replica.SendBatch:
		t.Out.Batch(e.To, &e.Batch, e.Keys, e.IDs, t.At)
	case replica.Refuse, replica.Expire, replica.Rerun, replica.Release:
		t.c.decider.complete(t, p, e)
	case replica.Happened:
		t.c.event(eventOf(e.Event), int(p.id))
		switch e.Event {
		case replica.Takeover, replica.Renewal, replica.Reopened, replica.Recovered, replica.Emptied:
			if !p.closed {
				t.c.decider.shares.few.claimed(t.Now)
			}
		}
	case replica.Problem:
		t.c.problem(e.What, e.Err)
	}
}

// answer sends an answer. One that grants something of a closed partition is sent when the grant lasts.
func (p *partition) answer(t *turn, e *replica.Effect) {
	keeps := t.c.config.Promises
	if keeps == nil || !p.closed || !e.Answer.Granted {
		t.Out.Answer(e.To, e.Answer)
		return
	}
	c, to, a := t.c, e.To, e.Answer
	// The next save writes it, too: this one finds no room if the disk stands still.
	keeps.Keep(p.r.OnDisk().Promise(), func() {
		later := c.begin()
		defer later.end()
		defer later.Catch()
		later.Out.Answer(to, a)
	})
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

// flush sends the batches that are due.
func (p *partition) flush(t *turn) {
	p.mu.Lock()
	defer p.leave(t)
	p.flushing = false
	t.c.config.fault(p.id)
	p.r.Flush(t.inputs())
	p.apply(t)
	p.rewatch(t)
}

// charged records that a decision changed a key of a partition, which is locked and
// owned, see [replica.Ownership.Charged].
func (p *partition) charged(t *turn, k *arith.Key, id *arith.Idempotency, came bool,
	cost uint64) (stamp uint64, wait bool) {
	stamp, wait = p.r.Own().Charged(t.inputs(), k, id, came, cost)
	p.apply(t)
	return stamp, wait
}

// takesOver starts a takeover of a partition, which is locked, if none is under way. It
// reports whether one is.
func (p *partition) takesOver(t *turn) bool {
	over := p.r.TakesOver(t.inputs())
	p.apply(t)
	return over
}
