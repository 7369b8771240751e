package route

import (
	"github.com/weirlimit/weir/internal/cluster/replica"
	"github.com/weirlimit/weir/internal/peer"
	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/limiter/table"
)

// Kind is the kind of a call or request.
type Kind uint8

// The kinds. An explanation is a peek that also returns the reasons.
const (
	KindCheck Kind = iota
	KindRefund
	KindReset
	KindExplain
	KindAmend // settles or extends a reservation
)

// Request is a request to this node, as owner or heir, by a call of its own or by another
// member. It is kept while it waits for a partition's owner to be known, or for charges
// to be settled.
type Request struct {
	replica.Wait

	Kind    Kind
	Receipt limiter.Receipt
	Prepare bool
	Ends    bool // it is a refund that ends a reservation
	Denied  bool // the whole check of that reservation was denied: its id is forgotten
	Heir    bool // this node is asked as heir
	Waited  bool // it waited for the owner to be known
	Reply   ReplyTo
	Amend   limiter.Amend    // what is done with a reservation
	Back    *table.Extension // what is taken back; nil if nothing is
	Outcome Outcome          // of what is not a check
}

// Facts returns what a replica may know of the request.
func (q *Request) Facts() *replica.Wait { return &q.Wait }

// Changes reports whether the request is a check or a reset, whose second execution changes
// counters again: a peek changes nothing, and a refund is sent to one member only.
func (q *Request) Changes() bool {
	return q.Kind == KindReset || q.Kind == KindCheck && !q.Charge.Peek
}

// Stale reports whether the request is a reset that waited here while another member may have
// executed it. Executed here as well, it would forget what was charged in between. Its asker
// knows whether that member has answered. If not, it asks the owner, which this node is now.
func (q *Request) Stale() bool {
	return q.Kind == KindReset && q.Waited && q.Sent && q.Reply.Call == nil
}

// ReplyTo is the destination of an answer: a call of this node, or else the member To,
// which gave the request the number ID.
type ReplyTo struct {
	Call *Call
	To   peer.Instance
	ID   uint64
	// Rules are the rules that were applied, if they differ from those that were asked
	// for.
	Rules []*limiter.Rule
	// Unnamed are the keys whose names this node lacks, one bit each.
	Unnamed uint32
	// Known are the keys that a denial leaves out since the check's id is remembered for
	// them, one bit each.
	Known uint32
	// Reasons are those of an explanation; nil if they were not asked for.
	Reasons []limiter.LimitExplanation
	// Provisional means that the answer must not be cached.
	Provisional bool
	// Traced ends the span of a request of another member; nil if it is not traced.
	Traced func()
}

// Over reports whether a call of this node has ended, so that nobody waits for the
// answer.
func (r *ReplyTo) Over() bool { return r.Call != nil && r.Call.Over() }

// Verdict is the result of a request at this node.
type Verdict uint8

// The verdicts.
const (
	Answered Verdict = iota
	Withheld         // the reply waits for the heir
	Kept             // the request waits, see [Request]
	NotOwner
	Overloaded
	Pointless // it would wait for members that this node, cut off, cannot reach
	Forbidden // this node refuses resets of other members
	AtGiver   // the member that handed over to this node may have executed it, and answers
)
