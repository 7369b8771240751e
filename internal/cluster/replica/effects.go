package replica

import (
	"github.com/weirlimit/weir/internal/cluster/view"
	"github.com/weirlimit/weir/internal/peer"
	"github.com/weirlimit/weir/limiter"
)

// Step is what one step of a replica may read besides the replica and its [Node], and
// what the step leaves to do. The shell fills the inputs before each step and applies
// the effects after it, both under the partition's lock.
type Step struct {
	// Now is the scheduler's time, At the time of the counters' clock.
	Now, At limiter.Tick
	// View is the members as this node sees them, State the state of this node.
	View  *view.View
	State peer.State

	Effects
}

// Effects is what steps leave to do. The zero value is empty.
type Effects struct {
	// List is to be done in its order.
	List []Effect
	// Watch means that [Replica.Tick] is to be called with the next tick. Flush means
	// that [Replica.Flush] is to be called at the end of the turn. Routed means that
	// [Replica.Route] may have changed.
	Watch, Flush, Routed bool

	keys []uint64 // memory of the keys of batches
}

// Kind is the kind of an effect.
type Kind uint8

// The kinds.
const (
	// SendAnnounce sends Announce to the member To. The other kinds of messages follow.
	SendAnnounce Kind = iota
	SendClaim
	SendAnswer
	SendRevoke
	SendAck
	// SendBatch sends Batch with the counters that Keys have when it is applied, and the ids that came after IDs.
	SendBatch
	// Refuse ends the wait of Request or Reply: it was not executed, for the reason
	// Status. The owner was Owner then.
	Refuse
	// Expire ends the wait of Request: its deadline has passed.
	Expire
	// Rerun ends the wait of Request: it is to be handled again, after all locks are
	// released.
	Rerun
	// Release ends the wait of Reply in this partition.
	Release
	// Happened reports Event.
	Happened
	// Problem reports Err, with What it prevents.
	Problem
)

// Effect is one thing to do. The fields beyond Kind and To belong to the kinds.
type Effect struct {
	Kind Kind
	// To is the receiver of a message. Asks means that an answer is expected.
	To   peer.Instance
	Asks bool

	Announce peer.Announce
	Claim    peer.Claim
	Answer   peer.Answer
	Revoke   peer.Revoke
	Ack      peer.Ack
	Batch    peer.Batch
	Keys     []uint64
	IDs      uint64

	Request Request
	Reply   Reply
	Status  peer.ReplyStatus
	Owner   peer.Epoch

	Event Event
	What  string
	Err   error
}

// Event is a kind of event that is counted.
type Event uint8

// The events.
const (
	Takeover Event = iota
	Renewal
	Handoff
	Reopened
	Fenced
	Merged
	Recovered // the last resort took the best old copy
	Emptied   // the last resort started the partition empty
	Raised    // a policy raised what an owner may answer without its heir's acknowledgement
	Broken    // a panic broke the partition and its state was dropped
	GivenUp   // the partition broke twice within a minute and is not held for a minute
)

// The most effects, and keys of batches, whose memory is kept for later steps. A step that
// ends the waits of all requests leaves 16,384 effects.
const (
	maxKeptEffects = 1 << 7
	maxKeptKeys    = 1 << 13
)

// Any reports whether there is anything to do.
func (e *Effects) Any() bool { return len(e.List) > 0 || e.Watch || e.Flush || e.Routed }

// Reset empties the effects and keeps their memory for reuse.
func (e *Effects) Reset() {
	clear(e.List)
	*e = Effects{List: e.List[:0], keys: e.keys[:0]}
	if cap(e.List) > maxKeptEffects {
		e.List = nil
	}
	if cap(e.keys) > maxKeptKeys {
		e.keys = nil
	}
}

// add appends an effect of a kind and returns it to be filled. The pointer is valid
// until the next one is added. An effect has hundreds of bytes, so none is copied to its
// place: the memory behind List is zero, because make and Reset leave it so.
func (e *Effects) add(kind Kind, to peer.Instance) *Effect {
	n := len(e.List)
	if n == cap(e.List) {
		more := make([]Effect, n, 2*n+4)
		copy(more, e.List)
		e.List = more
	}
	e.List = e.List[:n+1]
	x := &e.List[n]
	x.Kind, x.To = kind, to
	return x
}

func (e *Effects) sendAnnounce(to peer.Instance, a peer.Announce) {
	e.add(SendAnnounce, to).Announce = a
}

// sendClaim sends a claim or a question; an answer is expected.
func (e *Effects) sendClaim(to peer.Instance, c peer.Claim) {
	x := e.add(SendClaim, to)
	x.Claim, x.Asks = c, true
}

func (e *Effects) sendAnswer(to peer.Instance, a peer.Answer) { e.add(SendAnswer, to).Answer = a }

func (e *Effects) sendRevoke(to peer.Instance, r peer.Revoke, asks bool) {
	x := e.add(SendRevoke, to)
	x.Revoke, x.Asks = r, asks
}

func (e *Effects) sendAck(to peer.Instance, a peer.Ack) { e.add(SendAck, to).Ack = a }

// sendBatch sends a batch; an answer is expected. keys are not copied.
func (e *Effects) sendBatch(to peer.Instance, b *peer.Batch, keys []uint64, ids uint64) {
	x := e.add(SendBatch, to)
	x.Batch, x.Keys, x.IDs, x.Asks = *b, keys, ids, true
}

func (e *Effects) event(v Event) { e.add(Happened, 0).Event = v }

func (e *Effects) problem(what string, err error) {
	x := e.add(Problem, 0)
	x.What, x.Err = what, err
}

// end ends the wait of a request.
func (e *Effects) end(kind Kind, q Request) { e.add(kind, 0).Request = q }

// refuse ends the wait of a request that was not executed. owner is the owner known.
func (e *Effects) refuse(q Request, status peer.ReplyStatus, owner peer.Epoch) {
	x := e.add(Refuse, 0)
	x.Request, x.Status, x.Owner = q, status, owner
}

// refuseReply ends the wait of a withheld reply whose charge was taken back.
func (e *Effects) refuseReply(r Reply, status peer.ReplyStatus, owner peer.Epoch) {
	x := e.add(Refuse, 0)
	x.Reply, x.Status, x.Owner = r, status, owner
}

// release ends a reply's wait in this partition. The reply is sent when the last
// partition lets it go.
func (e *Effects) release(r Reply) { e.add(Release, 0).Reply = r }

// Spoil drops the batches that were not sent before a panic: the counters that they
// would carry may be half changed. Everything else stays to be done.
func (e *Effects) Spoil() {
	for i := range e.List {
		if x := &e.List[i]; x.Kind == SendBatch {
			x.Keys, x.To = nil, 0
		}
	}
}
