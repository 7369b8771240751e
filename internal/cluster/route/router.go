package route

import (
	"math"
	"sync"
	"sync/atomic"

	"github.com/weirlimit/weir/internal/cluster/mesh"
	"github.com/weirlimit/weir/internal/cluster/replica"
	"github.com/weirlimit/weir/internal/cluster/view"
	"github.com/weirlimit/weir/internal/peer"
	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/limiter/arith"
	"github.com/weirlimit/weir/limiter/table"
)

const (
	// SilentAfter is when a silent owner is treated as unreachable.
	SilentAfter = 80 * limiter.Millisecond
	// RetryEvery is the first wait before a call that found no owner is routed again.
	RetryEvery = 5 * limiter.Millisecond

	// maxAttempts is how many attempts of a call, and replies that did not decide it,
	// there are before it waits longer between attempts.
	maxAttempts = 64
)

// Config configures a [Router]. All fields are required unless their comment says
// otherwise.
type Config struct {
	Self peer.Instance
	// Deadline is how long a call waits for an owner or heir.
	Deadline limiter.Tick
	// Mesh has the links to other members, Rules the rules that their replies name.
	Mesh  *mesh.Mesh
	Rules *mesh.Dictionary
	// View returns the members as this node sees them.
	View func() *view.View
	// Places knows who owns which key.
	Places Places
	// Fallback holds the counters that policies decide by.
	Fallback *table.Table
	// CachedDenials makes the router repeat a denial that the owner of a key has just
	// given, for at most a second.
	CachedDenials bool
	// Wall is the wall clock, by which leases end, too; nil: there is none.
	Wall func() limiter.Tick
	// Sample counts the key of a check that a lease has decided among those that are asked for most. It is called for one
	// in [table.SampleOf] of them.
	Sample func(*arith.Charge)
}

// Places is what this node knows of the partitions, without their locks. Its methods may
// be called from many goroutines and must not block.
type Places interface {
	// Owner returns the member to ask about a key, 0 if unknown. managed is false if this
	// node does not manage its partition. Where returns more, and takes longer.
	Owner(k *arith.Key) (to peer.Instance, managed bool)
	Where(k *arith.Key) Place
	// CutOff reports whether this node reaches no other member, though others count.
	CutOff(now limiter.Tick) bool
	// Random returns a number from 0 up to, but not including, below.
	Random(below limiter.Tick) limiter.Tick
	// FellBack counts a check that a policy answers because of a partition.
	FellBack(partition uint16)
}

// Place is where a partition is decided. Owner and Heir are the members to ask, 0 if
// unknown. Managed is false if this node does not manage the partition.
type Place struct {
	Managed, Closed bool
	Partition       uint16
	Owner, Heir     peer.Instance
	// GivenUpAt is when this node gave up the partition; 0 if it has not.
	GivenUpAt limiter.Tick
}

// Router holds the calls of this node that are under way. It is safe for concurrent use.
type Router struct {
	config   Config
	calls    callTable
	doubted  sync.Map  // partitions whose owners are asked again, see inquire
	waiting  sync.Pool // of Waiting
	denials  *denials  // nil if denials are not cached
	Leases   Leases
	policies policies
	clocks   clocks
	resets   atomic.Uint64 // begun by this node
}

// New returns a router without calls.
func New(c Config) *Router {
	r := &Router{config: c}
	r.waiting.New, r.Leases.c = newWaiting, r
	r.calls.exact.Store(math.MaxInt64)
	r.policies = policies{view: c.View, fallback: c.Fallback, shares: shares{scaled: make(map[scaledKey]*limiter.Rule)}}
	if c.CachedDenials {
		r.denials = new(denials)
	}
	return r
}

func (c *Router) where(k *arith.Key) Place { return c.config.Places.Where(k) }

// Find returns the call that waits for the reply to the request with that number; nil if
// none does.
func (c *Router) Find(id uint64) *Call { return c.calls.get(id) }

// Touch loads what the reply to the request with that number needs first into the
// processor's cache. The processor does not wait for it.
func (c *Router) Touch(id uint64) {
	if o := c.calls.get(id); o != nil {
		table.Touch(o.task.answer)
	}
}

// Waits reports whether a call waits for the reply to the request with that number.
func (c *Router) Waits(id uint64) bool { return c.calls.get(id) != nil }

// Waiting returns the number of calls under way.
func (c *Router) Waiting() int { return c.calls.waiting() }

// Tick does the work that is due for the calls. It reports whether there are any at all.
func (c *Router) Tick(t *Turn) bool {
	lent := c.Leases.tick(t)
	return c.calls.tick(t) || lent
}

// NextExact returns when the policy answers the first of the calls that have a deadline of their own.
func (c *Router) NextExact() limiter.Tick { return limiter.Tick(c.calls.exact.Load()) }

// Lost tells the calls that wait for a member that it may not answer.
func (c *Router) Lost(t *Turn, i peer.Instance) { c.calls.lost(t, i) }

// Undelivered tells a call that its request did not reach a member.
func (c *Router) Undelivered(t *Turn, x mesh.Lost) {
	if o := c.calls.get(x.ID); o != nil {
		o.replied(t, x.To, &peer.Reply{ID: x.ID, Status: peer.Lost, Owner: peer.Epoch{Instance: x.To}})
	}
}

// Begin starts a check, and returns the call that waits for its decision. It returns nil
// if the check is decided already; then done is not called. Otherwise done is called
// once, and the router owns answer until then. The charge must not be reused even
// afterwards: if the deadline ended the check, the router may still read it for a
// moment. until is when the policy answers, a millisecond later at most; 0 means the configured deadline,
// and a tick later at most.
func (c *Router) Begin(t *Turn, charge *arith.Charge, answer *limiter.Decision, until limiter.Tick,
	done func()) (o *Call) {
	if charge.Len() == 0 {
		answer.Clear()
		return nil
	}
	defer c.catchBegin(t, charge, answer, &o)
	to, same := c.Owner(charge)
	if c.refusedHere(t, to, charge, answer) {
		return nil
	}
	o = t.call()
	o.c, o.task.charge, o.task.answer, o.task.until, o.task.begunAt = c, charge, answer, until, t.At
	o.task.remember, o.task.wake, o.task.exact = c.denials.remembered(charge), done, until != 0
	if o.task.until == 0 {
		o.task.until = t.Now + c.config.Deadline
	}
	return c.beginAt(t, o, to, same)
}

// catchBegin recovers from a panic of Begin and sets its result to the call that waits
// for the decision, or nil. It must be deferred directly.
func (c *Router) catchBegin(t *Turn, charge *arith.Charge, answer *limiter.Decision, o **Call) {
	if t.Panicked == nil {
		return
	}
	if v := recover(); v != nil {
		t.Broken = true
		t.Panicked(v)
		*o = c.interrupted(t, *o, charge, answer)
	}
}

// interrupted returns the call that still waits for the decision of a check that a
// panic interrupted. That is o if o has a number, so that it is answered at its
// deadline, or has ended. Otherwise the policy answers, and interrupted returns nil.
func (c *Router) interrupted(t *Turn, o *Call, charge *arith.Charge, answer *limiter.Decision) *Call {
	if o != nil {
		t.fresh = nil // o may still be referenced, so its memory is not reused
		if o.Over() || o.id != 0 && c.calls.get(o.id) == o {
			t.Tick = true
			return o
		}
		o.Abandon()
	}
	c.policies.answer(t, charge, answer, nil)
	return nil
}

// beginAt starts a check at the node that should decide it: at this node, or at the
// member to if same reports that to owns all keys. It returns nil if the check is
// decided already.
func (c *Router) beginAt(t *Turn, o *Call, to peer.Instance, same bool) *Call {
	if same && to == c.config.Self {
		o.progress.owner = c.config.Self
		switch t.handle(Request{Wait: replica.Wait{Charge: o.task.charge, Until: o.task.until}, Reply: ReplyTo{Call: o}},
			o.task.answer) {
		case Answered:
			return nil
		case NotOwner, Overloaded:
			o.progress.owner = 0
		case Pointless:
			c.config.Places.FellBack(c.where(o.task.charge.Key(0)).Partition)
			c.policies.decide(t, o.task.charge, o.task.answer, nil)
			return nil
		default:
			t.taken()
			c.register(t, o)
			return o
		}
	}
	t.taken()
	if !same || !c.first(t, o, to) {
		c.start(t, o)
	}
	return o
}

// first starts a check by sending its first request to the owner of its keys. It is a
// short cut for [Call.Route] when the owner is connected. It reports false and changes
// nothing if the owner is unknown or not connected, if waiting is pointless, or if too
// many calls are under way.
func (c *Router) first(t *Turn, o *Call, to peer.Instance) bool {
	if to == 0 || c.pointless(t, &o.task) || !c.config.Mesh.Reachable(to) {
		return false
	}
	o.progress.sent, o.progress.tries = o.progress.one[:0], 0
	o.progress.record(to)
	o.progress.askedAt, o.progress.owner = t.Now, to
	if !c.calls.add(o, t) {
		o.progress.sent, o.progress.tries, o.progress.askedAt, o.progress.owner = nil, 0, 0, 0
		return false
	}
	t.Tick = true
	o.write(t, to, attempt{id: o.id})
	return true
}

// register numbers a call that already waits at this node. If there are too many,
// the policy answers.
func (c *Router) register(t *Turn, o *Call) {
	o.mu.Lock()
	ok := o.progress.ended || c.calls.add(o, t)
	o.mu.Unlock()
	t.Tick = true
	if !ok {
		o.policy(t)
	}
}

// start numbers a call and routes it. If too many are under way, the policy
// answers.
func (c *Router) start(t *Turn, o *Call) {
	o.c = c
	o.progress.sent = o.progress.one[:0]
	if o.task.until == 0 {
		o.task.until = t.Now + c.config.Deadline
	}
	if !c.calls.add(o, t) {
		o.policy(t)
		return
	}
	t.Tick = true
	o.Route(t)
}

// Refund takes back a charge by its receipt. It calls done once with the outcome, at the
// deadline at the latest. A receipt of a policy, or of an ownership before the present
// one, is void; that is no failure. A second member is asked only if the first has
// certainly not executed the refund: executed twice, it would admit too much. A receipt of
// several owners is taken back part by part, a credit key by key.
func (c *Router) Refund(t *Turn, charge *arith.Charge, r limiter.Receipt, done func(Outcome)) {
	if arith.Fields(&r).Parts != nil || arith.Fields(&r).IsCredit() && charge.Len() > 1 {
		c.refundParts(t, charge, r, done)
		return
	}
	c.start(t, &Call{task: task{kind: KindRefund, charge: charge, answer: new(limiter.Decision), receipt: &r,
		done: func(_ *Turn, o *Call) {
			// Not before: denials from before it may still have been on their way.
			c.denials.forget(charge)
			done(o.result.outcome)
		}}})
}

// Reset forgets the counters of a charge, wherever they are. It calls done once with the
// outcome, at the deadline at the latest. It asks the owner and, if the owner does not
// answer, its heir. It has an id, by which an heir that took over knows that it has copied the
// reset: executed again, it would forget what was charged in between.
func (c *Router) Reset(t *Turn, charge *arith.Charge, done func(Outcome)) {
	charge = charge.Clone()
	charge.ID = &arith.Idempotency{ID: uint64(c.config.Self) + c.resets.Add(1),
		Life: (c.config.Deadline + limiter.Second).Duration()}
	for i := range charge.Len() {
		charge.Key(i).Cost = 1 // ids are remembered for keys that cost something
	}
	c.start(t, &Call{task: task{kind: KindReset, charge: charge, answer: new(limiter.Decision),
		done: func(_ *Turn, o *Call) {
			c.denials.forget(charge)
			done(o.result.outcome)
		}}})
}

// Owner returns the member that a check of these keys would be sent to now, this node
// included; 0 if none is known. If the keys have several owners, one is false and to is
// the owner of the first key.
func (c *Router) Owner(k *arith.Charge) (to peer.Instance, one bool) {
	for i := range k.Len() {
		switch at, managed := c.config.Places.Owner(k.Key(i)); {
		case !managed:
		case i == 0:
			to = at
		case at != to:
			return to, false
		}
	}
	return to, true
}
